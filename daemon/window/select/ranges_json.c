/* Reads a JSON file of ranges. Files for large datasets have tens of MiB, so this does not build a
 * tree. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/files.h"
#include "daemon/base/json_read.h"
#include "daemon/window/select/ranges.h"

static const char form[] = "expected [BEGIN, END], two whole numbers";

struct reader {
    struct trajd_json_reader json;
    struct trajd_ranges *ranges;
    const char *wrong; /* what is wrong; NULL: nothing yet */
    char key[TRAJD_RANGES_MAX_NAME + 1];
    size_t key_length;
};

static bool fail(struct reader *reader, const char *wrong)
{
    reader->wrong = reader->wrong ? reader->wrong : wrong;
    return false;
}

static bool take(struct reader *reader, char wanted, const char *wrong)
{
    return trajd_json_take(&reader->json, wanted) || fail(reader, wrong);
}

static bool read_key(struct reader *reader)
{
    const char *text, *wrong;
    size_t length;

    reader->key_length = 0;
    if (trajd_json_peek(&reader->json) != '"')
        return fail(reader, "expected an episode in quotes");
    if (!trajd_json_take_string(&reader->json, &text, &length))
        return fail(reader, "the file ends inside a key");
    if (length > TRAJD_RANGES_MAX_NAME)
        return fail(reader, "a key of more than 4095 bytes");
    wrong = trajd_json_unescape(text, length, reader->key, &reader->key_length);
    if (wrong)
        return fail(reader, wrong);
    for (size_t i = 0; i < reader->key_length; i++)
        if ((unsigned char)reader->key[i] < 0x20)
            return fail(reader, "a control character in a key");
    return true;
}

static bool read_row(struct reader *reader, int64_t *row)
{
    size_t length = 0, sign, digits = 0;
    char word[20] = "";
    const char *text;

    trajd_json_take_word(&reader->json, &text, &length);
    sign = length && *text == '-';
    while (sign + digits < length && text[sign + digits] >= '0' && text[sign + digits] <= '9')
        digits++;
    if (!digits || sign + digits < length)
        return fail(reader, form);
    if (digits > 18)
        return fail(reader, "a number of more than 18 digits");
    memcpy(word, text, length);
    *row = strtoll(word, NULL, 10);
    return true;
}

static bool read_range(struct reader *reader)
{
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
    if (trajd_json_take(&reader->json, ']'))
        return true;
    do
        if (!read_range(reader))
            return false;
    while (trajd_json_take(&reader->json, ','));
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
    if (!take(reader, ':', "expected ':' behind a key"))
        return false;
    if (trajd_json_peek(&reader->json) == '{')
        return fail(reader, "expected a list of ranges: [[BEGIN, END], ...]; of a file with "
                            "\"metadata\" and \"keep_ranges\", take what is under keep_ranges, and "
                            "end each range metadata.filter_last_n_in_ranges rows earlier");
    return read_ranges(reader);
}

static bool read_document(struct reader *reader)
{
    if (!take(reader, '{', "expected {\"EPISODE\": [[BEGIN, END], ...], ...}"))
        return false;
    if (trajd_json_take(&reader->json, '}'))
        return true;
    do
        if (!read_entry(reader))
            return false;
    while (trajd_json_take(&reader->json, ','));
    if (!take(reader, '}', "expected ',' or '}' behind an episode's ranges"))
        return false;
    return !trajd_json_peek(&reader->json) && reader->json.at == reader->json.end
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
    struct reader reader = {.json = {text, text + length, 1}};
    enum trajd_status status = TRAJD_OK;

    *out = NULL;
    reader.ranges = trajd_ranges_new(source);
    if (!reader.ranges)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the ranges");
    if (!read_document(&reader)) {
        reader.key[reader.key_length] = 0;
        make_printable(reader.key);
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s:%u: %.160s%s%s", source,
                            reader.json.line, reader.key, *reader.key ? ": " : "", reader.wrong);
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
