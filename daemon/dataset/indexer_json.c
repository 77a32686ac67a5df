/* The one question asked of JSON in attributes: the scalar at "a.b.c". Nothing is built; nesting is limited.
 */
#include <string.h>

#include "daemon/dataset/indexer.h"

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

/* A string's raw inside; escapes are stepped over and stay as they are. */
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

/* Steps to the value of `key` in the object that comes next. */
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

bool trajd_indexer_json(const char *text, size_t length, const char *path, char *out, size_t size)
{
    struct json json = {text, text + length};
    const char *value;

    while (true) {
        size_t part = strcspn(path, ".");
        if (!enter(&json, path, part))
            return false;
        if (!path[part])
            break;
        path += part + 1;
    }
    if (!take_string(&json, &value, &length) && !take_word(&json, &value, &length))
        return false;
    if (length >= size)
        length = size - 1;
    memcpy(out, value, length);
    out[length] = '\0';
    return true;
}
