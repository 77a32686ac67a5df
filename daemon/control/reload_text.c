#include "daemon/control/reload_internal.h"

#include <stdarg.h>
#include <stdio.h>

void trajd_reload_append(struct trajd_reload_text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text->at + text->length, text->size - text->length, format, arguments);
    va_end(arguments);
    if (length > 0)
        text->length = text->length + (size_t)length < text->size ? text->length + (size_t)length
                                                                  : text->size - 1;
}

void trajd_reload_append_key(struct trajd_reload_text *text, const struct trajd_config_key *key)
{
    trajd_reload_append(text, "%s%s%s%s", text->length ? ", " : "",
                        key->section ? key->section : "", key->section ? "." : "", key->name);
}
