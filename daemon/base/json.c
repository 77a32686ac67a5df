#include <stdint.h>

#include "daemon/base/json.h"

/* The length of the UTF-8 sequence at `text`, or 0 if it is none. */
static int sequence_length(const unsigned char *text)
{
    int length = text[0] < 0x80                      ? 1
                 : text[0] >= 0xC2 && text[0] < 0xE0 ? 2
                 : text[0] >= 0xE0 && text[0] < 0xF0 ? 3
                 : text[0] >= 0xF0 && text[0] < 0xF5 ? 4
                                                     : 0;

    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F) ||
        (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F))
        return 0;
    return length;
}

void trajd_json_text(FILE *file, const char *text)
{
    const unsigned char *next = (const unsigned char *)text;

    if (!text) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    while (*next) {
        int length = sequence_length(next);
        if (!length)
            fputs("\\ufffd", file);
        else if (*next == '"' || *next == '\\')
            fprintf(file, "\\%c", *next);
        else if (*next < 0x20)
            fprintf(file, "\\u%04x", *next);
        else
            fwrite(next, 1, (size_t)length, file);
        next += length ? length : 1;
    }
    fputc('"', file);
}
