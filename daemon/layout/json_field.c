/* Steps through the text without building anything. The depth of nesting is limited. */
#include "daemon/layout/json_field.h"

#include <stdint.h>
#include <string.h>

#include "daemon/base/text/text.h"

enum { DEPTH_MAX = 64 };

struct json {
    const char *next, *end;
};

static void skip_space(struct json *json)
{
    while (json->next < json->end && memchr(" \t\r\n", *json->next, 4))
        json->next++;
}

static bool take(struct json *json, char c)
{
    skip_space(json);
    if (json->next == json->end || *json->next != c)
        return false;
    json->next++;
    return true;
}

/* Takes the characters between a string's quotes. Escapes stay as they are. */
static bool take_string(struct json *json, const char **begin, size_t *length)
{
    if (!take(json, '"'))
        return false;
    *begin = json->next;
    for (; json->next < json->end && *json->next != '"'; json->next++) {
        if (*json->next == '\\' && ++json->next == json->end)
            return false;
    }
    if (json->next == json->end)
        return false;
    *length = (size_t)(json->next++ - *begin);
    return true;
}

static bool take_word(struct json *json, const char **begin, size_t *length)
{
    skip_space(json);
    *begin = json->next;
    while (json->next < json->end && !memchr(",]}: \t\r\n\"[{", *json->next, 12))
        json->next++;
    *length = (size_t)(json->next - *begin);
    return *length > 0;
}

static bool skip_value(struct json *json, int depth);

static bool skip_members(struct json *json, char close, int depth)
{
    const char *text;
    size_t length;

    if (take(json, close))
        return true;
    do {
        if (close == '}' && (!take_string(json, &text, &length) || !take(json, ':')))
            return false;
        if (!skip_value(json, depth + 1))
            return false;
    } while (take(json, ','));
    return take(json, close);
}

static bool skip_value(struct json *json, int depth)
{
    const char *text;
    size_t length;

    if (depth > DEPTH_MAX)
        return false;
    if (take(json, '{'))
        return skip_members(json, '}', depth);
    if (take(json, '['))
        return skip_members(json, ']', depth);
    skip_space(json);
    if (json->next < json->end && *json->next == '"')
        return take_string(json, &text, &length);
    return take_word(json, &text, &length);
}

/* Enters the object that comes next and stops at the value of `key`. */
static bool enter(struct json *json, const char *key, size_t key_length)
{
    const char *text;
    size_t length;

    if (!take(json, '{') || take(json, '}'))
        return false;
    do {
        if (!take_string(json, &text, &length) || !take(json, ':'))
            return false;
        if (length == key_length && !memcmp(text, key, length))
            return true;
        if (!skip_value(json, 0))
            return false;
    } while (take(json, ','));
    return false;
}

/* Enters the object or array that comes next. Returns what closes it, or 0. */
static char take_open(struct json *json)
{
    return take(json, '{') ? '}' : take(json, '[') ? ']' : '\0';
}

bool trajd_json_field_visit(const char *text, size_t length,
                            bool (*visit)(void *context, const char *name, size_t name_length,
                                          const char *value, size_t value_length),
                            void *context)
{
    struct json json = {text, text + length};
    const char close = take_open(&json);
    const char *name = NULL, *value;
    size_t name_length = 0;

    if (!close)
        return false;
    if (!take(&json, close)) {
        do {
            if (close == '}' && (!take_string(&json, &name, &name_length) || !take(&json, ':')))
                return false;
            skip_space(&json);
            value = json.next;
            if (!skip_value(&json, 0) ||
                !visit(context, name, name_length, value, (size_t)(json.next - value)))
                return false;
        } while (take(&json, ','));
        if (!take(&json, close))
            return false;
    }
    skip_space(&json);
    return json.next == json.end;
}

bool trajd_json_field_span(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length)
{
    struct json json = {text, text + length};

    for (; path; path = strchr(path, '.') ? strchr(path, '.') + 1 : NULL)
        if (!enter(&json, path, strcspn(path, ".")))
            return false;
    skip_space(&json);
    *value = json.next;
    if (!skip_value(&json, 0))
        return false;
    *value_length = (size_t)(json.next - *value);
    return true;
}

bool trajd_json_field_find(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length, bool *quoted)
{
    struct json json = {text, text + length};

    while (true) {
        size_t slice = strcspn(path, ".");
        if (!enter(&json, path, slice))
            return false;
        if (!path[slice])
            break;
        path += slice + 1;
    }
    *quoted = take_string(&json, value, value_length);
    return *quoted || take_word(&json, value, value_length);
}

bool trajd_json_field_read(const char *text, size_t length, const char *path, char *out,
                           size_t size)
{
    const char *value;
    bool quoted;

    if (!trajd_json_field_find(text, length, path, &value, &length, &quoted))
        return false;
    if (length >= size)
        length = size - 1;
    memcpy(out, value, length);
    out[length] = '\0';
    return true;
}

/* Returns the value of four hexadecimal digits, or -1. */
static int32_t take_hex(const char *text)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdefABCDEF";
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return -1;
        value = value * 16 + (int32_t)(digit - digits >= 16 ? digit - digits - 6 : digit - digits);
    }
    return value;
}

/* Takes the character behind a \u, with the other half of a surrogate pair. Returns U+FFFD where it
 * is not a character, and '?' where the digits are wrong. UTF-8 of it is never longer than the
 * escape. */
static uint32_t take_character(const char **next)
{
    int32_t code = take_hex(*next), low;

    if (code < 0)
        return '?';
    *next += 4;
    if (code < 0xd800 || code >= 0xe000)
        return code ? (uint32_t)code : 0xfffd;
    if (code >= 0xdc00 || strncmp(*next, "\\u", 2) || (low = take_hex(*next + 2)) < 0xdc00 ||
        low >= 0xe000)
        return 0xfffd;
    *next += 6;
    return 0x10000 + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
}

void trajd_json_field_unescape(char *text)
{
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    const char *next = text;
    char *out = text;

    while (*next) {
        const char *letter;
        if (*next != '\\' || !next[1]) {
            *out++ = *next++;
        } else if (next[1] == 'u') {
            next += 2;
            out = trajd_utf8_put(out, take_character(&next));
        } else {
            letter = strchr(letters, next[1]);
            *out++ = letter ? meanings[letter - letters] : next[1];
            next += 2;
        }
    }
    *out = '\0';
}
