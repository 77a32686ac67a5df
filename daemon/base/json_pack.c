/* JSON to msgpack, and msgpack to JSON. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/json_read.h"
#include "proto/array_len.h"

enum { NUMBER_LENGTH_MAX = 1100, KEY_SIZE = 256 };

/* ---- JSON to msgpack ---- */

struct packing {
    struct trajd_json_reader reader;
    struct trajd_bytes *bytes;
    const char *wrong; /* NULL: nothing yet */
};

static bool fail(struct packing *p, const char *wrong)
{
    p->wrong = p->wrong ? p->wrong : wrong;
    return false;
}

/* Appends the head of a text or container, whose length is set when it is known. Returns its
 * place. */
static size_t open_head(struct trajd_bytes *bytes, uint8_t format)
{
    const uint8_t head[5] = {format};

    trajd_bytes_add(bytes, head, sizeof head);
    return bytes->length - (bytes->failed ? 0 : sizeof head);
}

static void close_head(struct trajd_bytes *bytes, size_t place, size_t count)
{
    for (int i = 0; i < 4 && !bytes->failed; i++)
        bytes->data[place + 1 + (size_t)i] = (uint8_t)(count >> 8 * (3 - i));
}

static bool pack_string(struct packing *p)
{
    const size_t place = open_head(p->bytes, 0xdb);
    const char *text, *wrong;
    size_t length;
    char *copy;

    if (trajd_json_peek(&p->reader) != '"')
        return fail(p, "expected a name in quotes");
    if (!trajd_json_take_string(&p->reader, &text, &length))
        return fail(p, "the text ends inside a string");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20)
            return fail(p, "a control character in a string");
    if (length > UINT32_MAX || !trajd_utf8_is_valid(text, length))
        return fail(p, "a string that is not UTF-8");
    trajd_bytes_add(p->bytes, text, length);
    trajd_bytes_add(p->bytes, "", 1); /* room for the zero byte of trajd_json_unescape */
    if (p->bytes->failed)
        return true;
    copy = (char *)p->bytes->data + place + 5;
    wrong = trajd_json_unescape(copy, length, copy, &length);
    p->bytes->length = place + 5 + length;
    close_head(p->bytes, place, length);
    return !wrong || fail(p, wrong);
}

bool trajd_json_is_number(const char *word, bool *is_whole)
{
    const size_t sign = *word == '-', digits = strspn(word + sign, "0123456789");
    const char *at = word + sign + digits;

    if (!digits || (digits > 1 && word[sign] == '0'))
        return false;
    *is_whole = !*at && strcmp(word, "-0") != 0; /* -0 is a float: its sign counts */
    if (*at == '.') {
        const size_t places = strspn(at + 1, "0123456789");
        at += places ? 1 + places : 0;
    }
    if (*at == 'e' || *at == 'E') {
        const size_t begin = at[1] == '+' || at[1] == '-' ? 2 : 1;
        const size_t places = strspn(at + begin, "0123456789");
        at += places ? begin + places : 0;
    }
    return !*at;
}

static bool pack_number(struct packing *p, const char *word)
{
    bool is_whole;

    if (!trajd_json_is_number(word, &is_whole))
        return fail(p, "expected a value");
    errno = 0;
    if (is_whole && *word == '-') {
        const long long number = strtoll(word, NULL, 10);
        if (!errno)
            return trajd_pack_int(p->bytes, number), true;
    } else if (is_whole) {
        const unsigned long long number = strtoull(word, NULL, 10);
        if (!errno)
            return trajd_pack_uint(p->bytes, number), true;
    }
    trajd_pack_f64(p->bytes, strtod(word, NULL));
    return true;
}

static bool pack_word(struct packing *p)
{
    static const struct {
        const char *word;
        double number;
    } numbers[] = {{"NaN", (double)NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    char word[NUMBER_LENGTH_MAX + 1];
    const char *text;
    size_t length;

    if (!trajd_json_take_word(&p->reader, &text, &length))
        return fail(p, "expected a value");
    if (length > NUMBER_LENGTH_MAX || memchr(text, 0, length))
        return fail(p, "a number of more than 1100 characters");
    memcpy(word, text, length);
    word[length] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (!strcmp(word, numbers[i].word))
            return trajd_pack_f64(p->bytes, numbers[i].number), true;
    if (!strcmp(word, "null"))
        trajd_pack_nil(p->bytes);
    else if (!strcmp(word, "true") || !strcmp(word, "false"))
        trajd_pack_bool(p->bytes, *word == 't');
    else
        return pack_number(p, word);
    return true;
}

static bool pack_value(struct packing *p, int depth);

/* Packs the members of an object, or the elements of an array, behind its opening bracket. */
static bool pack_children(struct packing *p, char close, int depth)
{
    const size_t place = open_head(p->bytes, close == '}' ? 0xdf : 0xdd);
    size_t count = 0;

    if (depth == TRAJD_JSON_DEPTH_MAX)
        return fail(p, "more than 64 levels");
    if (!trajd_json_take(&p->reader, close)) {
        do {
            if (close == '}' && !pack_string(p))
                return false;
            if (close == '}' && !trajd_json_take(&p->reader, ':'))
                return fail(p, "expected ':' behind a name");
            if (!pack_value(p, depth + 1))
                return false;
            count++;
        } while (trajd_json_take(&p->reader, ','));
        if (!trajd_json_take(&p->reader, close))
            return fail(p, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    close_head(p->bytes, place, count);
    return true;
}

static bool pack_value(struct packing *p, int depth)
{
    if (trajd_json_take(&p->reader, '{'))
        return pack_children(p, '}', depth);
    if (trajd_json_take(&p->reader, '['))
        return pack_children(p, ']', depth);
    return trajd_json_peek(&p->reader) == '"' ? pack_string(p) : pack_word(p);
}

enum trajd_status trajd_json_pack(const char *name, const char *text, size_t length,
                                  struct trajd_bytes *bytes, struct trajd_error *error)
{
    struct packing p = {.reader = {text, text + length, 1}, .bytes = bytes};

    if (pack_value(&p, 0)) {
        trajd_json_peek(&p.reader);
        if (p.reader.at < p.reader.end)
            fail(&p, "there is more text behind the document");
    }
    if (p.wrong)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s:%u: %s", name, p.reader.line,
                               p.wrong);
    if (bytes->failed)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: out of memory", name);
    return TRAJD_OK;
}

/* ---- msgpack to JSON ---- */

const char *trajd_json_shortest(double number, bool is_narrow, char text[TRAJD_JSON_NUMBER_SIZE])
{
    const int most = is_narrow ? 9 : 17;

    if (!isfinite(number))
        return strcpy(text, isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    if (number == 0 && signbit(number))
        return strcpy(text, "-0.0"); /* other readers take -0 for the whole number 0 */
    for (int digits = is_narrow ? 6 : 15; digits <= most; digits++) {
        snprintf(text, TRAJD_JSON_NUMBER_SIZE, "%.*g", digits, number);
        if (is_narrow ? (double)strtof(text, NULL) == number : strtod(text, NULL) == number)
            break;
    }
    return text;
}

static bool unpack(struct trajd_json *json, const char *key, struct trajd_cursor *cursor,
                   int depth);

static bool unpack_children(struct trajd_json *json, struct trajd_cursor *cursor,
                            const struct trajd_token *head, int depth)
{
    const bool is_map = head->type == TRAJD_TOKEN_MAP;
    const uint64_t count = is_map ? head->value / 2 : head->value;
    struct trajd_token name;
    char key[KEY_SIZE];

    if (depth == TRAJD_JSON_DEPTH_MAX)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        if (is_map) {
            if (!trajd_token_read(cursor, &name) || name.type != TRAJD_TOKEN_STR ||
                name.value >= sizeof key || memchr(name.bytes, 0, name.value))
                return false;
            memcpy(key, name.bytes, name.value);
            key[name.value] = '\0';
        }
        if (!unpack(json, is_map ? key : NULL, cursor, depth + 1))
            return false;
    }
    return true;
}

static bool unpack(struct trajd_json *json, const char *key, struct trajd_cursor *cursor, int depth)
{
    char number[TRAJD_JSON_NUMBER_SIZE];
    struct trajd_token token;
    bool is_complete;

    if (!trajd_token_read(cursor, &token))
        return false;
    switch (token.type) {
    case TRAJD_TOKEN_NIL:
        return trajd_json_null(json, key), true;
    case TRAJD_TOKEN_BOOL:
        return trajd_json_bool(json, key, token.value), true;
    case TRAJD_TOKEN_UINT:
        return trajd_json_u64(json, key, token.value), true;
    case TRAJD_TOKEN_INT:
        return trajd_json_i64(json, key, (int64_t)token.value), true;
    case TRAJD_TOKEN_F32:
    case TRAJD_TOKEN_F64:
        trajd_json_raw(json, key,
                       trajd_json_shortest(token.number, token.type == TRAJD_TOKEN_F32, number));
        return true;
    case TRAJD_TOKEN_STR:
        return trajd_json_characters(json, key, (const char *)token.bytes, token.value), true;
    case TRAJD_TOKEN_ARRAY:
        trajd_json_open_array(json, key);
        is_complete = unpack_children(json, cursor, &token, depth);
        trajd_json_close_array(json);
        return is_complete;
    case TRAJD_TOKEN_MAP:
        trajd_json_open_object(json, key);
        is_complete = unpack_children(json, cursor, &token, depth);
        trajd_json_close_object(json);
        return is_complete;
    case TRAJD_TOKEN_BIN:
        break;
    }
    return false;
}

bool trajd_json_unpack(struct trajd_json *json, const char *key, const void *data, size_t length)
{
    struct trajd_cursor cursor = {data, (const uint8_t *)data + length};

    return unpack(json, key, &cursor, 0) && cursor.at == cursor.end;
}

bool trajd_json_unpack_members(struct trajd_json *json, const void *data, size_t length)
{
    struct trajd_cursor cursor = {data, (const uint8_t *)data + length};
    struct trajd_token head;

    return trajd_token_read(&cursor, &head) && head.type == TRAJD_TOKEN_MAP &&
           unpack_children(json, &cursor, &head, 0) && cursor.at == cursor.end;
}
