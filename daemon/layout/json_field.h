/* Looks up one value in a JSON text, by its path. Nothing is allocated. */
#ifndef TRAJD_LAYOUT_JSON_FIELD_H
#define TRAJD_LAYOUT_JSON_FIELD_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the value at `path` ("a.b.c": keys of nested objects) in the JSON text of `length` bytes.
 * *value points into the text: at the characters between the quotes of a string (*quoted, escapes
 * as they are), or at a bare word such as a number, true or null. False where there is no such
 * value, where it is an object or an array, or where the text up to there is not JSON. */
bool trajd_json_field_find(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length, bool *quoted);

/* Copies the same value to `out`, cut to `size` bytes with the zero byte. Escapes stay as they
 * are. */
bool trajd_json_field_read(const char *text, size_t length, const char *path, char *out,
                           size_t size);

/* Replaces the escapes in the characters of a JSON string by UTF-8, in place. */
void trajd_json_field_unescape(char *text);

#endif
