/* A text that is written piece by piece into memory of a fixed size; characters as UTF-8. */
#ifndef TRAJD_BASE_TEXT_H
#define TRAJD_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* begin has `size` bytes, at least one. The text always ends in a zero byte; what does not fit is
 * cut off. */
struct trajd_text {
    char *begin;
    size_t size, used; /* used: without the zero byte */
};

void trajd_text_add(struct trajd_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes a character as UTF-8, up to four bytes without a zero byte behind them. Returns their
 * end. */
char *trajd_utf8_put(char *out, uint32_t code);

#endif
