/* trajctl merge: checks that a folder has the outputs of all shards 0..N-1 once and of one recipe,
 * opens it as a training run does, and joins the manifests in DIR/manifest.json. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/cli_shard.h"
#include "clients/cli/cli_shard_record.h"
#include "daemon/base/json.h"
#include "daemon/base/json_read.h"
#include "daemon/base/memory.h"
#include "daemon/layout/glob.h"
#include "proto/plural.h"

#define MANIFEST "manifest.json"
#define NAMED_MAX 8 /* shards that a message names */

/* An output, and the shard that has made it. */
struct merged {
    const char *name;
    const struct shard_entry *entry;
    uint32_t shard;
};

struct merging {
    const char *layout; /* NULL: the layout that the manifests name */
    const char *folder;
    uint32_t count; /* of shards */
    struct shard_record *records;
    struct merged *outputs; /* in natural order of their names */
    uint32_t output_count;
    uint64_t episodes, left_out;
    struct trajd_error *error;
};

const struct cli_option cli_merge_options[] = {{"--layout", "NAME",
                                                "the layout of the outputs (that of the manifests)",
                                                CLI_TEXT, offsetof(struct merging, layout)},
                                               {0}};

static enum trajd_status refuse(const struct merging *merging, const char *text)
{
    return trajd_error_set(merging->error, TRAJD_ERR_ARGUMENT, 0, "%s: %s", merging->folder, text);
}

/* ---- the shards ---- */

/* Loads the record of each shard, and refuses those of other runs. */
static enum trajd_status load(struct merging *merging, const struct trajd_file_list *list)
{
    const struct shard_record *first = NULL;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t f = 0; f < list->count && !status; f++) {
        struct shard_record record;
        uint32_t index, count;
        if (!shard_record_parse_name(list->relative_paths[f], &index, &count))
            continue;
        status = shard_record_load(merging->folder, index, count, &record, merging->error);
        if (!status && first)
            status = shard_record_compare(merging->folder, first, &record, merging->error);
        if (!status && (index >= count || count > SHARD_COUNT_MAX))
            status = refuse(merging, "a record has a number that no shard has");
        if (status) {
            shard_record_clear(&record);
            break;
        }
        if (!first) {
            merging->count = count;
            merging->records = trajd_memory_or_exit(calloc(count, sizeof *merging->records));
        }
        merging->records[index] = record;
        first = &merging->records[index];
    }
    return status || first ? status
                           : refuse(merging, "no shard has been here: run trajctl preprocess, "
                                             "resample or pack with --shard I/N first");
}

/* Refuses shards that are missing or not finished, and names them. */
static enum trajd_status check_shards(struct merging *merging)
{
    char named[256] = "";
    uint32_t bad = 0;

    for (uint32_t s = 0; s < merging->count; s++) {
        const struct shard_record *record = &merging->records[s];
        if (record->recipe && record->is_finished)
            continue;
        if (bad++ < NAMED_MAX)
            snprintf(named + strlen(named), sizeof named - strlen(named), "%s%u/%u%s",
                     bad > 1 ? ", " : "", s, merging->count,
                     record->recipe ? " (begun)" : " (missing)");
    }
    if (!bad)
        return TRAJD_OK;
    return trajd_error_set(merging->error, TRAJD_ERR_ARGUMENT, 0,
                           "%s: %u of %u shards are not finished: %s%s: run them, then merge",
                           merging->folder, bad, merging->count, named,
                           bad > NAMED_MAX ? ", ..." : "");
}

/* ---- the outputs ---- */

static int compare_outputs(const void *a, const void *b)
{
    return trajd_natural_compare(((const struct merged *)a)->name,
                                 ((const struct merged *)b)->name);
}

static enum trajd_status check_output(const struct merging *merging, const struct merged *output,
                                      const struct prep_identity *identity)
{
    char path[PREP_PATH_SIZE];
    struct stat found;

    if (prep_path(path, merging->folder, output->name, "", merging->error))
        return merging->error->status;
    if (lstat(path, &found) || !S_ISREG(found.st_mode))
        return trajd_error_set(merging->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s of shard %u/%u is missing: run that shard again", path,
                               output->shard, merging->count);
    if ((uint64_t)found.st_size != identity->size_bytes)
        return trajd_error_set(
            merging->error, TRAJD_ERR_DATA, 0,
            "%s of shard %u/%u has %lld bytes instead of %" PRIu64 ": run that shard again", path,
            output->shard, merging->count, (long long)found.st_size, identity->size_bytes);
    return TRAJD_OK;
}

/* Lists the outputs of all shards, and checks that they are there. Adds up their episodes. */
static enum trajd_status list_outputs(struct merging *merging)
{
    uint32_t capacity = 0;

    for (uint32_t s = 0; s < merging->count; s++)
        for (uint32_t e = 0; e < merging->records[s].entry_count; e++)
            capacity += merging->records[s].entries[e].record.output_count;
    merging->outputs = trajd_memory_or_exit(calloc((size_t)capacity + 1, sizeof *merging->outputs));
    for (uint32_t s = 0; s < merging->count; s++)
        for (uint32_t e = 0; e < merging->records[s].entry_count; e++) {
            const struct shard_entry *entry = &merging->records[s].entries[e];
            char number[32] = "";
            for (uint32_t i = 0; i < entry->record.output_count; i++) {
                const struct prep_output *made = &entry->record.outputs[i];
                const struct merged output = {made->name, entry, s};
                merging->outputs[merging->output_count++] = output;
                if (check_output(merging, &output, &made->identity))
                    return merging->error->status;
            }
            trajd_json_field_read(entry->text, strlen(entry->text), "episodes", number,
                                  sizeof number);
            merging->episodes += strtoull(number, NULL, 10);
            trajd_json_field_read(entry->text, strlen(entry->text), "left_out", number,
                                  sizeof number);
            merging->left_out += strtoull(number, NULL, 10);
        }
    if (!merging->output_count)
        return refuse(merging, "the shards have made no file");
    qsort(merging->outputs, merging->output_count, sizeof *merging->outputs, compare_outputs);
    return TRAJD_OK;
}

/* Refuses an output of two shards, and a file of none. */
static enum trajd_status check_doubles(struct merging *merging)
{
    struct trajd_file_list list = {0};
    enum trajd_status status =
        trajd_file_list_find_recordings(merging->folder, "**/*.hdf5", &list, merging->error);

    for (uint32_t i = 0; i + 1 < merging->output_count && !status; i++)
        if (!compare_outputs(&merging->outputs[i], &merging->outputs[i + 1]))
            status = trajd_error_set(merging->error, TRAJD_ERR_ARGUMENT, 0,
                                     "%s/%s is of shard %u/%u and of shard %u/%u: the shards were "
                                     "given different files",
                                     merging->folder, merging->outputs[i].name,
                                     merging->outputs[i].shard, merging->count,
                                     merging->outputs[i + 1].shard, merging->count);
    for (uint32_t f = 0; f < list.count && !status; f++) {
        const struct merged wanted = {.name = list.relative_paths[f]};
        if (!bsearch(&wanted, merging->outputs, merging->output_count, sizeof wanted,
                     compare_outputs))
            status = trajd_error_set(merging->error, TRAJD_ERR_ARGUMENT, 0,
                                     "%s/%s is of no shard: move it away, or run the shards again "
                                     "with its source",
                                     merging->folder, wanted.name);
    }
    trajd_file_list_free(&list);
    return status;
}

/* Finds the layout of all manifests. */
static enum trajd_status find_layout(struct merging *merging, char layout[256])
{
    snprintf(layout, 256, "%s", merging->layout ? merging->layout : "");
    for (uint32_t i = 0; i < merging->output_count; i++) {
        char other[256] = "";
        const char *text = merging->outputs[i].entry->text;
        trajd_json_field_read(text, strlen(text), "layout", other, sizeof other);
        if (!*layout)
            snprintf(layout, 256, "%s", other);
        if (!merging->layout && strcmp(layout, other))
            return trajd_error_set(merging->error, TRAJD_ERR_ARGUMENT, 0,
                                   "%s: %s has the layout %.80s and %s %.80s: run all shards with "
                                   "--layout NAME, in a new folder",
                                   merging->folder, merging->outputs[0].name, layout,
                                   merging->outputs[i].name, other);
    }
    return TRAJD_OK;
}

/* ---- the result ---- */

static enum trajd_status write_manifest(const struct merging *merging,
                                        const struct trajd_index *index)
{
    char path[PREP_PATH_SIZE], *text = NULL;
    const struct shard_entry *before = NULL;
    size_t size = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
    struct trajd_json json = {.out = out};
    enum trajd_status status;

    trajd_json_open_object(&json, NULL);
    trajd_json_u64(&json, "version", 1);
    trajd_json_string(&json, "recipe", merging->records[0].recipe);
    trajd_json_u64(&json, "shards", merging->count);
    trajd_json_string(&json, "layout", index->layout->name);
    trajd_json_format(&json, "fingerprint", "%016" PRIx64, index->fingerprint);
    trajd_json_u64(&json, "episodes", merging->episodes);
    trajd_json_u64(&json, "left_out", merging->left_out);
    trajd_json_open_array(&json, "files");
    for (uint32_t i = 0; i < merging->output_count; i++) {
        if (merging->outputs[i].entry != before) /* the parts of an episode have one manifest */
            trajd_json_raw(&json, NULL, merging->outputs[i].entry->text);
        before = merging->outputs[i].entry;
    }
    trajd_json_close_array(&json);
    trajd_json_close_object(&json);
    putc('\n', out);
    trajd_memory_close_or_exit(out, &text);
    status = prep_path(path, merging->folder, MANIFEST, "", merging->error);
    if (!status)
        status = prep_write(path, text, size, merging->error);
    free(text);
    return status;
}

/* Opens the folder as a dataset, and compares it with the manifests. */
static enum trajd_status open_dataset(const struct merging *merging, const char *layout,
                                      struct trajd_index **index)
{
    struct cli_files files = {0};
    enum trajd_status status = cli_files_find(&files, merging->error);

    if (!status)
        status = cli_files_open(&files, layout, merging->folder, index, merging->error);
    if (!status && (*index)->kept_count != merging->episodes)
        status = trajd_error_set(merging->error, TRAJD_ERR_DATA, 0,
                                 "%s: %u episodes can be read, and the manifests have %" PRIu64
                                 ": trajctl inspect %s says what is wrong",
                                 merging->folder, (*index)->kept_count, merging->episodes,
                                 merging->folder);
    return status;
}

static enum trajd_status merge(struct merging *merging)
{
    struct trajd_file_list list = {0};
    struct trajd_index *index = NULL;
    char layout[256];
    enum trajd_status status =
        trajd_file_list_find(merging->folder, "shard-*-of-*.jsonl", &list, merging->error);

    if (!status)
        status = load(merging, &list);
    trajd_file_list_free(&list);
    if (status || (status = check_shards(merging)) || (status = list_outputs(merging)) ||
        (status = check_doubles(merging)) || (status = find_layout(merging, layout)))
        return status;
    status = open_dataset(merging, layout, &index);
    if (!status)
        status = write_manifest(merging, index);
    if (!status)
        printf("%s: %u file%s of %u shard%s, %" PRIu64 " episode%s, %" PRIu64
               " left out, fingerprint %016" PRIx64 "\n",
               merging->folder, merging->output_count, trajd_plural(merging->output_count),
               merging->count, trajd_plural(merging->count), merging->episodes,
               trajd_plural(merging->episodes), merging->left_out, index->fingerprint);
    if (index)
        trajd_index_destroy(&index);
    return status;
}

int cli_merge(int argc, char **argv)
{
    struct trajd_error error;
    struct merging merging = {.error = &error};
    enum trajd_status status;

    cli_parse(argc, argv, &merging);
    merging.folder = argv[1];
    status = merge(&merging);
    for (uint32_t s = 0; s < merging.count; s++)
        shard_record_clear(&merging.records[s]);
    free(merging.records);
    free(merging.outputs);
    return status ? cli_fail("%s", error.message) : CLI_OK;
}
