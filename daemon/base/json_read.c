/* Steps through a JSON text, and looks up values in it. The depth of nesting is limited. */
#include "daemon/base/json_read.h"

#include <string.h>

char trajd_json_peek(struct trajd_json_reader *reader)
{
    for (; reader->at < reader->end && memchr(" \t\r\n", *reader->at, 4); reader->at++)
        reader->line += *reader->at == '\n';
    return reader->at < reader->end ? *reader->at : '\0';
}

bool trajd_json_take(struct trajd_json_reader *reader, char wanted)
{
    if (trajd_json_peek(reader) != wanted || reader->at == reader->end)
        return false;
    reader->at++;
    return true;
}

bool trajd_json_take_string(struct trajd_json_reader *reader, const char **text, size_t *length)
{
    if (!trajd_json_take(reader, '"'))
        return false;
    *text = reader->at;
    for (; reader->at < reader->end && *reader->at != '"'; reader->at++)
        if (*reader->at == '\\' && ++reader->at == reader->end)
            return false;
    if (reader->at == reader->end)
        return false;
    *length = (size_t)(reader->at++ - *text);
    return true;
}

bool trajd_json_take_word(struct trajd_json_reader *reader, const char **text, size_t *length)
{
    trajd_json_peek(reader);
    *text = reader->at;
    while (reader->at < reader->end && !memchr(",]}: \t\r\n\"[{", *reader->at, 12))
        reader->at++;
    *length = (size_t)(reader->at - *text);
    return *length > 0;
}

/* Takes the bracket that opens an object or an array. Returns the one that closes it, or 0. */
static char take_open(struct trajd_json_reader *reader)
{
    return trajd_json_take(reader, '{') ? '}' : trajd_json_take(reader, '[') ? ']' : '\0';
}

static bool take_name(struct trajd_json_reader *reader, const char **name, size_t *length)
{
    return trajd_json_take_string(reader, name, length) && trajd_json_take(reader, ':');
}

static bool skip(struct trajd_json_reader *reader, int depth)
{
    const char close = take_open(reader), *text;
    size_t length;

    if (!close)
        return trajd_json_peek(reader) == '"' ? trajd_json_take_string(reader, &text, &length)
                                              : trajd_json_take_word(reader, &text, &length);
    if (depth > TRAJD_JSON_DEPTH_MAX)
        return false;
    if (trajd_json_take(reader, close))
        return true;
    do
        if ((close == '}' && !take_name(reader, &text, &length)) || !skip(reader, depth + 1))
            return false;
    while (trajd_json_take(reader, ','));
    return trajd_json_take(reader, close);
}

bool trajd_json_skip(struct trajd_json_reader *reader)
{
    return skip(reader, 1);
}

/* Enters the object that comes next and stops at the value of `key`. */
static bool enter(struct trajd_json_reader *reader, const char *key, size_t key_length)
{
    const char *text;
    size_t length;

    if (!trajd_json_take(reader, '{') || trajd_json_take(reader, '}'))
        return false;
    do {
        if (!take_name(reader, &text, &length))
            return false;
        if (length == key_length && !memcmp(text, key, length))
            return true;
        if (!trajd_json_skip(reader))
            return false;
    } while (trajd_json_take(reader, ','));
    return false;
}

/* Goes to the value at a path. */
static bool go(struct trajd_json_reader *reader, const char *path)
{
    for (; path; path = strchr(path, '.') ? strchr(path, '.') + 1 : NULL)
        if (!enter(reader, path, strcspn(path, ".")))
            return false;
    trajd_json_peek(reader);
    return true;
}

bool trajd_json_field_visit(const char *text, size_t length,
                            bool (*visit)(void *context, const char *name, size_t name_length,
                                          const char *value, size_t value_length),
                            void *context)
{
    struct trajd_json_reader reader = {text, text + length, 1};
    const char close = take_open(&reader);
    const char *name = NULL, *value;
    size_t name_length = 0;

    if (!close)
        return false;
    if (!trajd_json_take(&reader, close)) {
        do {
            if (close == '}' && !take_name(&reader, &name, &name_length))
                return false;
            trajd_json_peek(&reader);
            value = reader.at;
            if (!trajd_json_skip(&reader) ||
                !visit(context, name, name_length, value, (size_t)(reader.at - value)))
                return false;
        } while (trajd_json_take(&reader, ','));
        if (!trajd_json_take(&reader, close))
            return false;
    }
    trajd_json_peek(&reader);
    return reader.at == reader.end;
}

bool trajd_json_field_span(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length)
{
    struct trajd_json_reader reader = {text, text + length, 1};

    if (!go(&reader, path))
        return false;
    *value = reader.at;
    if (!trajd_json_skip(&reader))
        return false;
    *value_length = (size_t)(reader.at - *value);
    return true;
}

bool trajd_json_field_find(const char *text, size_t length, const char *path, const char **value,
                           size_t *value_length, bool *quoted)
{
    struct trajd_json_reader reader = {text, text + length, 1};

    if (!go(&reader, path))
        return false;
    *quoted = trajd_json_take_string(&reader, value, value_length);
    return *quoted || trajd_json_take_word(&reader, value, value_length);
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
static int32_t read_hex(const char *text, const char *end)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    int32_t value = 0;

    if (end - text < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char *digit = memchr(digits, text[i], sizeof digits - 1);
        if (!digit)
            return -1;
        value = value * 16 + (int32_t)(digit - digits >= 16 ? digit - digits - 6 : digit - digits);
    }
    return value;
}

/* Reads the character behind a \u, with the other half of a surrogate pair. */
static uint32_t read_character(const char **next, const char *end, const char **wrong)
{
    int32_t code = read_hex(*next, end), low;

    if (code < 0) {
        *wrong = *wrong ? *wrong : "\\u needs four hexadecimal digits";
        return '?';
    }
    *next += 4;
    if (code && (code < 0xd800 || code >= 0xe000))
        return (uint32_t)code;
    if (code >= 0xd800 && code < 0xdc00 && end - *next >= 6 && !memcmp(*next, "\\u", 2)) {
        low = read_hex(*next + 2, end);
        if (low >= 0xdc00 && low < 0xe000) {
            *next += 6;
            return 0x10000 + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
        }
    }
    *wrong = *wrong ? *wrong : "\\u with half of a character, or zero";
    return 0xfffd;
}

/* Writes a character as UTF-8, up to four bytes. Returns their end. */
static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        if (code >= 0x10000) {
            *out++ = (char)(0xf0 | code >> 18);
            *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        } else {
            *out++ = (char)(0xe0 | code >> 12);
        }
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

const char *trajd_json_unescape(const char *text, size_t length, char *out, size_t *out_length)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *const end = text + length, *letter, *wrong = NULL;
    char *next = out;

    while (text < end) {
        if (*text != '\\' || text + 1 == end) {
            *next++ = *text++;
        } else if (text[1] == 'u') {
            text += 2;
            next = put_utf8(next, read_character(&text, end, &wrong));
        } else {
            letter = memchr(letters, text[1], sizeof letters - 1);
            wrong = letter || wrong ? wrong : "an unknown escape";
            *next++ = letter ? meanings[letter - letters] : text[1];
            text += 2;
        }
    }
    *next = '\0';
    *out_length = (size_t)(next - out);
    return wrong;
}
