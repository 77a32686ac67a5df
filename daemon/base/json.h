/* Texts in JSON documents. */
#ifndef TRAJD_BASE_JSON_H
#define TRAJD_BASE_JSON_H

#include <stdio.h>

/* A JSON string in quotes, or null for NULL. Bytes that are no UTF-8 become U+FFFD. */
void trajd_json_text(FILE *file, const char *text);

#endif
