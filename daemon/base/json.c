/* Writes JSON values with their commas, and escapes texts. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/base/json.h"
#include "proto/msgpack.h"
#include "proto/visible.h"

enum syntax { JSON, YAML };

/* Writes the escape of a hidden character. Above U+FFFF JSON has only a pair of escapes, of which YAML
 * makes two characters that are none. */
static void write_escape(FILE *out, uint32_t code, enum syntax syntax)
{
    if (code <= 0xffff)
        fprintf(out, "\\u%04x", code);
    else if (syntax == YAML)
        fprintf(out, "\\U%08x", code);
    else
        fprintf(out, "\\u%04x\\u%04x", 0xd800 | (code - 0x10000) >> 10, 0xdc00 | (code & 0x3ff));
}

static void write_text(FILE *out, const char *text, size_t length, enum syntax syntax)
{
    fputc('"', out);
    for (size_t i = 0, step; i < length; i += step ? step : 1) {
        const unsigned char c = (unsigned char)text[i];
        size_t bytes;
        const uint32_t code = trajd_hidden_character(text + i, length - i, &bytes);
        step = trajd_utf8_length(text + i, length - i);
        if (!step)
            fputs(c ? "\\ufffd" : "\\u0000", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (code)
            write_escape(out, code, syntax);
        else
            fwrite(text + i, 1, step, out);
    }
    fputc('"', out);
}

static void write_text_or_null(FILE *out, const char *text, enum syntax syntax)
{
    if (text)
        write_text(out, text, strlen(text), syntax);
    else
        fputs("null", out);
}

void trajd_json_text(FILE *out, const char *text)
{
    write_text_or_null(out, text, YAML);
}

/* Writes what stands before a value: a comma, and the key with its colon. */
static void begin_value(struct trajd_json *json, const char *key)
{
    if (json->needs_comma)
        fputc(',', json->out);
    if (key) {
        write_text_or_null(json->out, key, JSON);
        fputc(':', json->out);
    }
    json->needs_comma = true;
}

static void open_list(struct trajd_json *json, const char *key, char bracket)
{
    begin_value(json, key);
    fputc(bracket, json->out);
    json->needs_comma = false;
}

static void close_list(struct trajd_json *json, char bracket)
{
    fputc(bracket, json->out);
    json->needs_comma = true;
}

void trajd_json_open_object(struct trajd_json *json, const char *key)
{
    open_list(json, key, '{');
}

void trajd_json_close_object(struct trajd_json *json)
{
    close_list(json, '}');
}

void trajd_json_open_array(struct trajd_json *json, const char *key)
{
    open_list(json, key, '[');
}

void trajd_json_close_array(struct trajd_json *json)
{
    close_list(json, ']');
}

void trajd_json_string(struct trajd_json *json, const char *key, const char *text)
{
    begin_value(json, key);
    write_text_or_null(json->out, text, JSON);
}

void trajd_json_characters(struct trajd_json *json, const char *key, const char *text,
                           size_t length)
{
    begin_value(json, key);
    write_text(json->out, text, length, JSON);
}

void trajd_json_u64(struct trajd_json *json, const char *key, uint64_t value)
{
    begin_value(json, key);
    fprintf(json->out, "%llu", (unsigned long long)value);
}

void trajd_json_i64(struct trajd_json *json, const char *key, int64_t value)
{
    begin_value(json, key);
    fprintf(json->out, "%lld", (long long)value);
}

void trajd_json_bool(struct trajd_json *json, const char *key, bool value)
{
    trajd_json_raw(json, key, value ? "true" : "false");
}

void trajd_json_null(struct trajd_json *json, const char *key)
{
    trajd_json_raw(json, key, "null");
}

void trajd_json_number(struct trajd_json *json, const char *key, const char *format, double value)
{
    char text[400]; /* %.17f of the largest double fits */

    if (!isfinite(value)) {
        trajd_json_null(json, key);
        return;
    }
    snprintf(text, sizeof text, format, value);
    trajd_json_raw(json, key, text);
}

void trajd_json_format(struct trajd_json *json, const char *key, const char *format, ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    trajd_json_string(json, key, text);
}

void trajd_json_raw(struct trajd_json *json, const char *key, const char *value)
{
    begin_value(json, key);
    fputs(value, json->out);
}

struct trajd_json_mark trajd_json_get_mark(const struct trajd_json *json)
{
    return (struct trajd_json_mark){ftell(json->out), json->needs_comma};
}

void trajd_json_go_back(struct trajd_json *json, struct trajd_json_mark mark)
{
    fseek(json->out, mark.at, SEEK_SET);
    json->needs_comma = mark.needs_comma;
}

bool trajd_json_fits(struct trajd_json *json, struct trajd_json_mark mark, size_t size)
{
    if (ftell(json->out) <= (long)size)
        return true;
    trajd_json_go_back(json, mark);
    return false;
}
