/* Texts of others, for people: characters that a terminal obeys or that nobody sees are written as
 * escapes, so that a name looks like what it is. */
#ifndef TRAJD_PROTO_VISIBLE_H
#define TRAJD_PROTO_VISIBLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the number of the character at text if it is hidden: a control character (also U+0080 to
 * U+009F), one that sets the direction of writing (such as U+202E), or one without width. Else 0.
 * *length becomes its bytes, or 1 where they are not UTF-8. `remaining` is at least 1. */
uint32_t trajd_hidden_character(const char *text, size_t remaining, size_t *length);

/* Copies the text with "\u202e" in place of hidden characters and "\xff" in place of bytes that are
 * not UTF-8. It is cut to `size` bytes with the zero byte, but not within a character. Returns its
 * length. */
size_t trajd_visible(char *to, size_t size, const char *text);

#ifdef __cplusplus
}
#endif

#endif
