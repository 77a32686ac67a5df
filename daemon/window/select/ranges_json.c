/* Reads a JSON file of ranges. Files for large datasets have tens of MiB, so this does not build a
 * tree. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/files.h"
#include "daemon/base/text/text.h"
#include "daemon/window/select/ranges.h"

struct reader {
    const char *at, *end;
    uint32_t line;
    struct trajd_ranges *ranges;
    const char *wrong; /* what is wrong; NULL: nothing yet */
    char key[TRAJD_RANGES_MAX_NAME + 8];
    size_t key_length;
};

static bool fail(struct reader *reader, const char *wrong)
{
    reader->wrong = reader->wrong ? reader->wrong : wrong;
    return false;
}

/* Returns the next character that is not space, or 0 at the end. */
static char peek(struct reader *reader)
{
    for (; reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at; reader->at++)
        reader->line += *reader->at == '\n';
    return reader->at < reader->end ? *reader->at : 0;
}

static bool take(struct reader *reader, char wanted, const char *wrong)
{
    if (peek(reader) != wanted)
        return fail(reader, wrong);
    reader->at++;
    return true;
}

static bool read_hex(struct reader *reader, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        const char c = reader->at < reader->end ? *reader->at : 0;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return fail(reader, "\\u needs four hexadecimal digits");
        *code = 16 * *code + (uint32_t)digit;
    }
    return true;
}

/* Appends a character to the key, as UTF-8. The key has room for it. */
static void put_code(struct reader *reader, uint32_t code)
{
    char *const key = reader->key;

    reader->key_length = (size_t)(trajd_utf8_put(key + reader->key_length, code) - key);
}

/* Reads \uD83D\uDE00 and the like. */
static bool read_code(struct reader *reader)
{
    uint32_t code, low;

    if (!read_hex(reader, &code))
        return false;
    if (code >= 0xD800 && code < 0xDC00) {
        if (reader->end - reader->at < 2 || memcmp(reader->at, "\\u", 2) != 0)
            return fail(reader, "\\u with half of a character");
        reader->at += 2;
        if (!read_hex(reader, &low))
            return false;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail(reader, "\\u with half of a character");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (!code || (code >= 0xDC00 && code < 0xE000)) {
        return fail(reader, "\\u with half of a character, or zero");
    }
    put_code(reader, code);
    return true;
}

static bool read_escape(struct reader *reader)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (reader->at == reader->end)
        return fail(reader, "the file ends inside a key");
    if (*reader->at == 'u') {
        reader->at++;
        return read_code(reader);
    }
    found = *reader->at ? strchr(letters, *reader->at) : NULL;
    if (!found)
        return fail(reader, "an unknown escape in a key");
    reader->key[reader->key_length++] = meanings[found - letters];
    reader->at++;
    return true;
}

static bool read_key(struct reader *reader)
{
    reader->key_length = 0;
    if (!take(reader, '"', "expected an episode in quotes"))
        return false;
    while (reader->at < reader->end && *reader->at != '"') {
        const char c = *reader->at++;
        if (reader->key_length >= TRAJD_RANGES_MAX_NAME)
            return fail(reader, "a key of more than 4095 bytes");
        if (c != '\\')
            reader->key[reader->key_length++] = c;
        else if (!read_escape(reader))
            return false;
        if ((unsigned char)reader->key[reader->key_length - 1] < 0x20)
            return fail(reader, "a control character in a key");
    }
    return take(reader, '"', "the file ends inside a key");
}

static bool read_row(struct reader *reader, int64_t *row)
{
    const char first = peek(reader);
    const bool is_negative = first == '-';
    int digits = 0;

    reader->at += is_negative;
    for (*row = 0; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; digits++) {
        if (digits == 18)
            return fail(reader, "a number of more than 18 digits");
        *row = 10 * *row + (*reader->at++ - '0');
    }
    if (is_negative)
        *row = -*row;
    if (!digits || (reader->at < reader->end && strchr(".eE", *reader->at) && *reader->at))
        return fail(reader, "expected [BEGIN, END], two whole numbers");
    return true;
}

static bool read_range(struct reader *reader)
{
    static const char form[] = "expected [BEGIN, END], two whole numbers";
    const char *wrong;
    int64_t begin, end;

    if (!take(reader, '[', form) || !read_row(reader, &begin) || !take(reader, ',', form) ||
        !read_row(reader, &end) || !take(reader, ']', form))
        return false;
    wrong = trajd_ranges_add(reader->ranges, begin, end);
    return wrong ? fail(reader, wrong) : true;
}

static bool read_ranges(struct reader *reader)
{
    if (!take(reader, '[', "expected a list of ranges: [[BEGIN, END], ...]"))
        return false;
    if (peek(reader) == ']')
        return take(reader, ']', "");
    do
        if (!read_range(reader))
            return false;
    while (peek(reader) == ',' && take(reader, ',', ""));
    return take(reader, ']', "expected ',' or ']' behind a range");
}

static bool read_entry(struct reader *reader)
{
    const char *wrong;

    if (!read_key(reader))
        return false;
    wrong = trajd_ranges_add_entry(reader->ranges, reader->key, reader->key_length);
    if (wrong)
        return fail(reader, wrong);
    reader->key[reader->key_length] = 0;
    if (!take(reader, ':', "expected ':' behind a key"))
        return false;
    if (peek(reader) == '{')
        return fail(reader, "expected a list of ranges: [[BEGIN, END], ...]; of a file with "
                            "\"metadata\" and \"keep_ranges\", take what is under keep_ranges, and "
                            "end each range metadata.filter_last_n_in_ranges rows earlier");
    return read_ranges(reader);
}

static bool read_document(struct reader *reader)
{
    if (!take(reader, '{', "expected {\"EPISODE\": [[BEGIN, END], ...], ...}"))
        return false;
    if (peek(reader) == '}')
        return take(reader, '}', "");
    do
        if (!read_entry(reader))
            return false;
    while (peek(reader) == ',' && take(reader, ',', ""));
    if (!take(reader, '}', "expected ',' or '}' behind an episode's ranges"))
        return false;
    return !peek(reader) && reader->at == reader->end
               ? true
               : fail(reader, "there is more text behind the last '}'");
}

/* Replaces control characters: an error message is one line. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

enum trajd_status trajd_ranges_parse(const char *source, const char *text, size_t length,
                                     struct trajd_ranges **out, struct trajd_error *error)
{
    struct reader reader = {.at = text, .end = text + length, .line = 1};
    enum trajd_status status = TRAJD_OK;

    *out = NULL;
    reader.ranges = trajd_ranges_new(source);
    if (!reader.ranges)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the ranges");
    if (!read_document(&reader)) {
        reader.key[reader.key_length < sizeof reader.key ? reader.key_length : 0] = 0;
        make_printable(reader.key);
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s:%u: %.160s%s%s", source,
                                 reader.line, reader.key, *reader.key ? ": " : "", reader.wrong);
    }
    if (!status)
        status = trajd_ranges_finish(reader.ranges, error);
    if (status)
        trajd_ranges_destroy(&reader.ranges);
    *out = reader.ranges;
    return status;
}

enum trajd_status trajd_ranges_load(const char *path, struct trajd_ranges **ranges,
                                    struct trajd_error *error)
{
    size_t length;
    char *text;
    enum trajd_status status = trajd_file_read(path, TRAJD_RANGES_MAX_BYTES, &text, &length, error);

    *ranges = NULL;
    if (!status)
        status = trajd_ranges_parse(path, text, length, ranges, error);
    free(text);
    return status;
}
