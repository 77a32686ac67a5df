/* Ranges of rows: a list that is made one by one, and the reader of JSON files. Files for large
 * datasets have tens of MiB, so the reader builds no tree. */
#include "daemon/window/select/ranges.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/base/files.h"
#include "daemon/base/json_read.h"

#define MAX_RANGES (1u << 24)

struct trajd_ranges *trajd_ranges_new(const char *source)
{
    struct trajd_ranges *made = calloc(1, sizeof *made);

    if (made && !(made->source = strdup(source))) {
        free(made);
        made = NULL;
    }
    return made;
}

void trajd_ranges_destroy(struct trajd_ranges **ranges)
{
    struct trajd_ranges *made = *ranges;

    *ranges = NULL;
    if (!made)
        return;
    free(made->source);
    free(made->entries);
    free(made->ranges);
    free(made->names);
    free(made);
}

const char *trajd_ranges_name(const struct trajd_ranges *ranges,
                              const struct trajd_ranges_entry *entry)
{
    return ranges->names + entry->name;
}

/* Makes room for `more` items behind `count`. The room doubles, so it follows from the count. */
static bool make_room(void **items, size_t size, size_t count, size_t more)
{
    size_t room = 64, wanted = 64;
    void *grown;

    while (room < count)
        room *= 2;
    while (wanted < count + more)
        wanted *= 2;
    if (*items && room >= count + more)
        return true;
    grown = realloc(*items, wanted * size);
    if (grown)
        *items = grown;
    return grown;
}

const char *trajd_ranges_add_entry(struct trajd_ranges *ranges, const char *name, size_t length)
{
    if (!length || length > TRAJD_RANGES_MAX_NAME || memchr(name, 0, length))
        return "a key must be 1 to 4095 bytes long, without zero bytes";
    if (ranges->entry_count == MAX_RANGES)
        return "there are more than 16,777,216 episodes";
    if (!make_room((void **)&ranges->entries, sizeof *ranges->entries, ranges->entry_count, 1) ||
        !make_room((void **)&ranges->names, 1, ranges->names_length, length + 1))
        return "no memory for the ranges";
    ranges->entries[ranges->entry_count++] =
        (struct trajd_ranges_entry){.name = ranges->names_length, .first = ranges->range_count};
    memcpy(ranges->names + ranges->names_length, name, length);
    ranges->names[ranges->names_length + length] = 0;
    ranges->names_length += length + 1;
    return NULL;
}

const char *trajd_ranges_add(struct trajd_ranges *ranges, int64_t begin, int64_t end)
{
    struct trajd_ranges_entry *entry = &ranges->entries[ranges->entry_count - 1];

    if (begin < 0)
        return "a range begins before row 0";
    if (end <= begin)
        return "a range is empty or reversed: expected [BEGIN, END] with BEGIN < END; row END is "
               "not in it";
    if (entry->count && begin < ranges->ranges[ranges->range_count - 1].end)
        return "the ranges overlap or do not ascend";
    if (ranges->range_count == MAX_RANGES)
        return "there are more than 16,777,216 ranges";
    if (!make_room((void **)&ranges->ranges, sizeof *ranges->ranges, ranges->range_count, 1))
        return "no memory for the ranges";
    ranges->ranges[ranges->range_count++] = (struct trajd_range){begin, end};
    entry->count++;
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum trajd_status check_names(const struct trajd_ranges *ranges, struct trajd_error *error)
{
    const char **names = calloc((size_t)ranges->entry_count + 1, sizeof *names);
    enum trajd_status status = TRAJD_OK;

    if (!names)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the ranges");
    for (uint32_t e = 0; e < ranges->entry_count; e++)
        names[e] = trajd_ranges_name(ranges, &ranges->entries[e]);
    qsort(names, ranges->entry_count, sizeof *names, compare_names);
    for (uint32_t e = 1; e < ranges->entry_count && !status; e++)
        if (strcmp(names[e - 1], names[e]) == 0)
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: the key %.200s comes twice",
                                     ranges->source, names[e]);
    free(names);
    return status;
}

enum trajd_status trajd_ranges_finish(struct trajd_ranges *ranges, struct trajd_error *error)
{
    struct trajd_digest digest;

    if (!ranges->entry_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: names no episode",
                               ranges->source);
    trajd_digest_init(&digest);
    for (uint32_t e = 0; e < ranges->entry_count; e++) {
        const struct trajd_ranges_entry *entry = &ranges->entries[e];
        trajd_digest_add_text(&digest, trajd_ranges_name(ranges, entry));
        trajd_digest_add_u64(&digest, entry->count);
        for (uint32_t r = entry->first; r < entry->first + entry->count; r++) {
            trajd_digest_add_u64(&digest, (uint64_t)ranges->ranges[r].begin);
            trajd_digest_add_u64(&digest, (uint64_t)ranges->ranges[r].end);
        }
    }
    ranges->digest = trajd_digest_end(&digest);
    return check_names(ranges, error);
}

/* ---- files ---- */

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
