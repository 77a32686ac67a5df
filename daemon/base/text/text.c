/* Appends formatted text to a buffer of a fixed size. */
#include "daemon/base/text/text.h"

#include <stdarg.h>
#include <stdio.h>

void trajd_text_add(struct trajd_text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text->begin + text->used, text->size - text->used, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->used += (size_t)length;
    if (text->used > text->size - 1)
        text->used = text->size - 1;
}
