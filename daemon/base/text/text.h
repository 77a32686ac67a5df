/* A text that is written piece by piece into memory of a fixed size. */
#ifndef TRAJD_BASE_TEXT_H
#define TRAJD_BASE_TEXT_H

#include <stddef.h>

/* begin has `size` bytes, at least one. The text always ends in a zero byte; what does not fit is
 * cut off. */
struct trajd_text {
    char *begin;
    size_t size, used; /* used: without the zero byte */
};

void trajd_text_add(struct trajd_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
