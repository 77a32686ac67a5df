/* Reads and compares the records of shards. */
#include "clients/cli/cli_shard_record.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/files.h"
#include "daemon/base/json.h"
#include "daemon/base/json_read.h"
#include "daemon/base/memory.h"
#include "daemon/layout/glob.h"

#define MAX_BYTES ((size_t)1 << 30)

enum trajd_status shard_record_path(char path[PREP_PATH_SIZE], const char *folder, uint32_t index,
                                    uint32_t count, struct trajd_error *error)
{
    char name[64];

    snprintf(name, sizeof name, "shard-%u-of-%u.jsonl", index, count);
    return prep_path(path, folder, name, "", error);
}

bool shard_record_parse_name(const char *name, uint32_t *index, uint32_t *count)
{
    int length = 0;

    return sscanf(name, "shard-%u-of-%u.jsonl%n", index, count, &length) == 2 && length &&
           !name[length];
}

void shard_record_write_head(const struct shard_record *record, FILE *out)
{
    struct trajd_json json = {.out = out};

    trajd_json_open_object(&json, NULL);
    trajd_json_u64(&json, "version", 1);
    trajd_json_u64(&json, "shard", record->index);
    trajd_json_u64(&json, "shards", record->count);
    trajd_json_string(&json, "recipe", record->recipe);
    trajd_json_u64(&json, "files", record->file_count);
    trajd_json_string(&json, "list", record->list);
    trajd_json_close_object(&json);
    putc('\n', out);
}

/* ---- reading ---- */

/* Returns a copy of the string or number at `path` in a line of JSON, or NULL. */
static char *copy_field(const char *text, size_t length, const char *path)
{
    size_t size = 0;
    const char *value;
    bool is_quoted;
    char *copy;

    if (!trajd_json_field_find(text, length, path, &value, &size, &is_quoted))
        return NULL;
    copy = trajd_memory_or_exit(malloc(size + 1));
    trajd_json_unescape(value, size, copy, &size);
    return copy;
}

static uint64_t read_number(const char *text, size_t length, const char *path)
{
    char number[32] = "";

    trajd_json_field_read(text, length, path, number, sizeof number);
    return strtoull(number, NULL, 10);
}

/* Reads the first line. Returns whether it names the shard of this record. */
static bool read_head(struct shard_record *record, const char *text, size_t length)
{
    char *list = copy_field(text, length, "list");

    record->recipe = copy_field(text, length, "recipe");
    record->file_count = read_number(text, length, "files");
    if (list)
        snprintf(record->list, sizeof record->list, "%s", list);
    free(list);
    return record->recipe && read_number(text, length, "version") == 1 &&
           read_number(text, length, "shard") == record->index &&
           read_number(text, length, "shards") == record->count;
}

/* Names come from a file, and become paths below the folder. */
static bool leads_out(const char *name)
{
    return !*name || *name == '/' || !strcmp(name, "..") || !strncmp(name, "../", 3) ||
           strstr(name, "/../");
}

static enum trajd_status read_line(struct shard_record *record, const char *path, const char *text,
                                   size_t length, struct trajd_error *error)
{
    struct shard_entry entry = {.line = record->entry_count,
                                .name = copy_field(text, length, "begin")};
    enum trajd_status status = TRAJD_OK;

    if (!entry.name && (entry.name = copy_field(text, length, "source.name"))) {
        entry.text = trajd_memory_or_exit(strndup(text, length));
        status = prep_record_parse(path, text, length, &entry.record, error);
    }
    if (!entry.name) {
        char *end = copy_field(text, length, "end");
        record->is_finished = end != NULL;
        free(end);
        return record->is_finished ? TRAJD_OK
                                   : trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                                     "%s: a line of it cannot be read", path);
    }
    record->is_finished = false;
    for (uint32_t i = 0; i < entry.record.output_count && !status; i++)
        if (leads_out(entry.record.outputs[i].name))
            status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                     "%s: %s is not a name of a file below its folder", path,
                                     entry.record.outputs[i].name);
    if ((record->entry_count & (record->entry_count - 1)) == 0)
        record->entries = trajd_memory_or_exit(
            realloc(record->entries, ((size_t)2 * record->entry_count + 1) * sizeof(entry)));
    record->entries[record->entry_count++] = entry;
    return status;
}

static int compare_entries(const void *a, const void *b)
{
    const struct shard_entry *first = a, *second = b;
    const int order = trajd_natural_compare(first->name, second->name);

    return order ? order : (first->line > second->line) - (first->line < second->line);
}

static void clear_entry(struct shard_entry *entry)
{
    prep_record_clear(&entry->record);
    free(entry->name);
    free(entry->text);
}

/* Keeps the last entry of each name. */
static void keep_last(struct shard_record *record)
{
    uint32_t kept = 0;

    if (record->entry_count)
        qsort(record->entries, record->entry_count, sizeof *record->entries, compare_entries);
    for (uint32_t i = 0; i < record->entry_count; i++) {
        if (i + 1 < record->entry_count &&
            !strcmp(record->entries[i].name, record->entries[i + 1].name))
            clear_entry(&record->entries[i]);
        else
            record->entries[kept++] = record->entries[i];
    }
    record->entry_count = kept;
}

enum trajd_status shard_record_load(const char *folder, uint32_t index, uint32_t count,
                                    struct shard_record *record, struct trajd_error *error)
{
    char path[PREP_PATH_SIZE], *text, *line, *end;
    size_t length;
    enum trajd_status status;

    *record = (struct shard_record){.index = index, .count = count};
    if ((status = shard_record_path(path, folder, index, count, error)) ||
        (status = trajd_file_read(path, MAX_BYTES, &text, &length, error)))
        return status;
    end = memchr(text, '\n', length);
    if (!end || !read_head(record, text, (size_t)(end - text)))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "%s: this is not the record of shard %u/%u", path, index, count);
    for (line = end ? end + 1 : text; !status && (end = strchr(line, '\n')); line = end + 1)
        status = read_line(record, path, line, (size_t)(end - line), error);
    free(text);
    keep_last(record);
    return status;
}

void shard_record_clear(struct shard_record *record)
{
    for (uint32_t i = 0; i < record->entry_count; i++)
        clear_entry(&record->entries[i]);
    free(record->entries);
    free(record->recipe);
    *record = (struct shard_record){0};
}

const struct shard_entry *shard_record_find(const struct shard_record *record, const char *name)
{
    uint32_t low = 0, high = record->entry_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = trajd_natural_compare(record->entries[middle].name, name);
        if (!order)
            return &record->entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

enum trajd_status shard_record_compare(const char *folder, const struct shard_record *a,
                                       const struct shard_record *b, struct trajd_error *error)
{
    if (a->count != b->count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s has files of shard %u/%u and of shard %u/%u: use a folder for "
                               "each number of shards",
                               folder, a->index, a->count, b->index, b->count);
    if (strcmp(a->recipe, b->recipe))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: shard %u/%u has another recipe than shard %u/%u: \"%.200s\" "
                               "and \"%.200s\"",
                               folder, b->index, b->count, a->index, a->count, b->recipe,
                               a->recipe);
    if (strcmp(a->list, b->list))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: shard %u/%u was given another list of files (%llu) than shard "
                               "%u/%u (%llu): give all shards the same list",
                               folder, b->index, b->count, (unsigned long long)b->file_count,
                               a->index, a->count, (unsigned long long)a->file_count);
    return TRAJD_OK;
}
