/* Reads and compares the records of shards. */
#include "clients/cli/cli_shard_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "daemon/base/json.h"
#include "daemon/base/json_read.h"
#include "daemon/base/memory.h"

void shard_record_path(char path[PREP_PATH_SIZE], const char *folder, uint32_t index,
                       uint32_t count)
{
    char name[64];
    struct trajd_error error;

    snprintf(name, sizeof name, "shard-%u-of-%u.jsonl", index, count);
    if (prep_path(path, folder, name, "", &error))
        cli_die("%s", error.message);
}

bool shard_record_next(const struct trajd_file_list *list, uint32_t *at, uint32_t *index,
                       uint32_t *count)
{
    while (*at < list->count) {
        const char *name = list->relative_paths[(*at)++];
        int length = 0;
        if (sscanf(name, "shard-%u-of-%u.jsonl%n", index, count, &length) == 2 && length &&
            !name[length])
            return true;
    }
    return false;
}

char *shard_record_head(const struct shard_record *record)
{
    char *text;
    size_t size;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
    struct trajd_json json = {.out = out};

    trajd_json_open_object(&json, NULL);
    trajd_json_u64(&json, "version", 1);
    trajd_json_u64(&json, "shard", record->index);
    trajd_json_u64(&json, "shards", record->count);
    trajd_json_string(&json, "recipe", record->recipe);
    trajd_json_u64(&json, "files", record->file_count);
    trajd_json_u64(&json, "own", record->own_count);
    trajd_json_string(&json, "list", record->list);
    trajd_json_close_object(&json);
    putc('\n', out);
    trajd_memory_close_or_exit(out, &text);
    return text;
}

static uint64_t read_number(const char *line, size_t length, const char *key)
{
    char number[32] = "";

    trajd_json_field_read(line, length, key, number, sizeof number);
    return strtoull(number, NULL, 10);
}

/* Reads the first line. Returns whether it names the shard of this record. */
static bool read_head(struct shard_record *record, const char *line, size_t length)
{
    const char *recipe;
    size_t size;
    bool is_quoted;

    if (read_number(line, length, "version") != 1 ||
        read_number(line, length, "shard") != record->index ||
        read_number(line, length, "shards") != record->count ||
        !trajd_json_field_find(line, length, "recipe", &recipe, &size, &is_quoted))
        return false;
    record->recipe = trajd_memory_or_exit(malloc(size + 1));
    trajd_json_unescape(recipe, size, record->recipe, &size);
    record->file_count = read_number(line, length, "files");
    record->own_count = read_number(line, length, "own");
    trajd_json_field_read(line, length, "list", record->list, sizeof record->list);
    return true;
}

static void add_entry(struct shard_record *record, const char *path, const char *line,
                      size_t length)
{
    struct shard_entry entry = {.line = record->entry_count};
    struct trajd_error error;

    if (prep_record_parse(path, line, length, &entry.record, &error))
        cli_die("%s", error.message);
    entry.text = trajd_memory_or_exit(strndup(line, length));
    if ((record->entry_count & (record->entry_count - 1)) == 0)
        record->entries = trajd_memory_or_exit(
            realloc(record->entries, ((size_t)2 * record->entry_count + 1) * sizeof entry));
    record->entries[record->entry_count++] = entry;
}

static void clear_entry(struct shard_entry *entry)
{
    prep_record_clear(&entry->record);
    free(entry->text);
}

static int compare_names(const void *a, const void *b)
{
    return trajd_natural_compare(((const struct shard_entry *)a)->record.name,
                                 ((const struct shard_entry *)b)->record.name);
}

static int compare_entries(const void *a, const void *b)
{
    const struct shard_entry *first = a, *second = b;
    const int order = compare_names(a, b);

    return order ? order : (first->line > second->line) - (first->line < second->line);
}

/* Keeps the last entry of each source. */
static void keep_last(struct shard_record *record)
{
    struct shard_entry *entries = record->entries;
    uint32_t kept = 0;

    if (entries)
        qsort(entries, record->entry_count, sizeof *entries, compare_entries);
    for (uint32_t i = 0; i < record->entry_count; i++) {
        if (i + 1 < record->entry_count && !compare_names(&entries[i], &entries[i + 1]))
            clear_entry(&entries[i]);
        else
            entries[kept++] = entries[i];
    }
    record->entry_count = kept;
}

struct shard_record shard_record_load(const char *folder, uint32_t index, uint32_t count,
                                      bool with_entries)
{
    struct shard_record record = {.index = index, .count = count};
    char path[PREP_PATH_SIZE], *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    FILE *file;

    shard_record_path(path, folder, index, count);
    file = fopen(path, "re");
    if (!file)
        cli_die("%s: %s", path, strerror(errno));
    while ((length = getline(&line, &capacity, file)) > 0 && line[length - 1] == '\n') {
        if (record.size_bytes)
            add_entry(&record, path, line, (size_t)length - 1);
        else if (!read_head(&record, line, (size_t)length - 1))
            cli_die("%s: this is not the record of shard %u/%u", path, index, count);
        record.size_bytes += (size_t)length;
        if (!with_entries)
            break;
    }
    if (ferror(file))
        cli_die("%s: %s", path, strerror(errno));
    fclose(file);
    free(line);
    keep_last(&record);
    return record;
}

void shard_record_clear(struct shard_record *record)
{
    for (uint32_t i = 0; i < record->entry_count; i++)
        clear_entry(&record->entries[i]);
    free(record->entries);
    free(record->recipe);
}

const struct shard_entry *shard_record_find(const struct shard_record *record, const char *name)
{
    const struct shard_entry wanted = {.record.name = name};

    return record->entry_count ? bsearch(&wanted, record->entries, record->entry_count,
                                         sizeof wanted, compare_names)
                               : NULL;
}

bool shard_record_is_finished(const struct shard_record *record)
{
    uint32_t published = 0;

    for (uint32_t e = 0; e < record->entry_count; e++)
        published += record->entries[e].record.output_count > 0;
    return record->recipe && published >= record->own_count;
}

void shard_record_compare(const char *folder, const struct shard_record *a,
                          const struct shard_record *b)
{
    if (a->count != b->count)
        cli_die("%s has files of shard %u/%u and of shard %u/%u: use a folder for each number of "
                "shards",
                folder, a->index, a->count, b->index, b->count);
    if (strcmp(a->recipe, b->recipe))
        cli_die("%s: shard %u/%u has another recipe than shard %u/%u: \"%.200s\" and \"%.200s\"",
                folder, b->index, b->count, a->index, a->count, b->recipe, a->recipe);
    if (strcmp(a->list, b->list))
        cli_die("%s: shard %u/%u was given another list of files (%ju) than shard %u/%u (%ju): "
                "give all shards the same list",
                folder, b->index, b->count, (uintmax_t)b->file_count, a->index, a->count,
                (uintmax_t)a->file_count);
}
