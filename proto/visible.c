/* Replaces invisible characters by escapes. */
#include "proto/visible.h"

#include <stdio.h>
#include <string.h>

#include "proto/array_len.h"
#include "proto/msgpack.h"

/* Control and format characters of Unicode (Cc, Cf), line and paragraph separators, and letters that
 * are drawn as nothing. */
static const struct {
    uint32_t first, last;
} hidden[] = {{0x01, 0x1f},      {0x7f, 0x9f},     {0xad, 0xad},     {0x34f, 0x34f},
              {0x61c, 0x61c},    {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f},
              {0x200b, 0x200f},  {0x2028, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164},
              {0xfeff, 0xfeff},  {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1d173, 0x1d17a},
              {0xe0000, 0xe0fff}};

static uint32_t code_of(const uint8_t *bytes, size_t length)
{
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);

    for (size_t i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3f);
    return code;
}

uint32_t trajd_hidden_character(const char *text, size_t remaining, size_t *length)
{
    const size_t bytes = trajd_utf8_length(text, remaining);
    const uint32_t code = bytes ? code_of((const uint8_t *)text, bytes) : 0;

    *length = bytes ? bytes : 1;
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        if (code >= hidden[i].first && code <= hidden[i].last)
            return code;
    return 0;
}

size_t trajd_visible(char *to, size_t size, const char *text)
{
    const size_t all = strlen(text);
    size_t used = 0;

    for (size_t i = 0, step; i < all; i += step) {
        const uint32_t code = trajd_hidden_character(text + i, all - i, &step);
        const unsigned char byte = (unsigned char)text[i];
        char escape[16];
        size_t length = step;
        if (code)
            length = (size_t)snprintf(escape, sizeof escape, code > 0xffff ? "\\U%08x" : "\\u%04x",
                                      code);
        else if (step == 1 && byte >= 0x80)
            length = (size_t)snprintf(escape, sizeof escape, "\\x%02x", byte);
        if (used + length >= size)
            break;
        memcpy(to + used, length == step ? text + i : escape, length);
        used += length;
    }
    to[used] = '\0';
    return used;
}
