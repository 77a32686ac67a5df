/* Reads, writes and compares the records of shards. */
#include "clients/cli/cli_shard_record.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "daemon/base/json.h"
#include "daemon/base/json_read.h"
#include "daemon/base/memory.h"

void shard_record_name(uint32_t index, uint32_t count, char name[SHARD_NAME_SIZE])
{
    snprintf(name, SHARD_NAME_SIZE, "shard-%u-of-%u.jsonl", index, count);
}

struct trajd_file_list shard_record_list(const char *folder)
{
    struct trajd_file_list list = {0};
    struct trajd_error error;

    if (trajd_file_list_find(folder, "shard-*-of-*.jsonl", &list, &error))
        cli_die("%s", error.message);
    return list;
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

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct shard_entry *)a)->record.name,
                  ((const struct shard_entry *)b)->record.name);
}

/* Adds a line, and empties the earlier one about the same source. */
static void add_entry(struct shard_record *record, const char *path, const char *line,
                      size_t length)
{
    struct shard_entry *entry = trajd_memory_or_exit(calloc(1, sizeof *entry)), **place;
    struct trajd_error error;

    entry->next = record->entries;
    record->entries = entry;
    if (prep_record_parse(path, line, length, &entry->record, &error))
        cli_die("%s", error.message);
    entry->text = trajd_memory_or_exit(strndup(line, length));
    place = trajd_memory_or_exit(tsearch(entry, &record->tree, compare_names));
    if (*place != entry) {
        record->published_count -= (*place)->record.output_count > 0;
        prep_record_clear(&(*place)->record);
        (*place)->record = (struct prep_record){0};
        *place = entry;
    }
    record->published_count += entry->record.output_count > 0;
}

bool shard_record_load(const char *folder, const char *name, bool with_entries,
                       struct shard_record *record)
{
    char path[PREP_PATH_SIZE], *line = NULL;
    struct trajd_error error;
    size_t capacity = 0;
    ssize_t length;
    int end = 0;
    FILE *file;

    *record = (struct shard_record){0};
    if (sscanf(name, "shard-%u-of-%u.jsonl%n", &record->index, &record->count, &end) != 2 || !end ||
        name[end])
        return false;
    if (prep_path(path, folder, name, "", &error))
        cli_die("%s", error.message);
    file = fopen(path, "re");
    if (!file)
        cli_die("%s: %s", path, strerror(errno));
    while ((length = getline(&line, &capacity, file)) > 0 && line[length - 1] == '\n') {
        if (record->recipe)
            add_entry(record, path, line, (size_t)length - 1);
        else if (!read_head(record, line, (size_t)length - 1))
            cli_die("%s: this is not the record of shard %u/%u", path, record->index,
                    record->count);
        record->size_bytes += (size_t)length;
        if (!with_entries)
            break;
    }
    if (ferror(file))
        cli_die("%s: %s", path, strerror(errno));
    fclose(file);
    free(line);
    return record->recipe != NULL;
}

/* The entries are freed by their list. */
static void keep(void *entry)
{
    (void)entry;
}

void shard_record_clear(struct shard_record *record)
{
    tdestroy(record->tree, keep);
    for (struct shard_entry *entry = record->entries, *next; entry; entry = next) {
        next = entry->next;
        prep_record_clear(&entry->record);
        free(entry->text);
        free(entry);
    }
    free(record->recipe);
}

const struct shard_entry *shard_record_find(const struct shard_record *record, const char *name)
{
    const struct shard_entry wanted = {.record.name = name};
    struct shard_entry *const *place = tfind(&wanted, &record->tree, compare_names);

    return place ? *place : NULL;
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
