/* trajctl merge: checks that a folder has the outputs of all shards 0..N-1 once and of one recipe,
 * opens it as a training run does, and joins the manifests in DIR/manifest.json. The first fault that
 * it finds ends the program. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clients/cli/cli.h"
#include "clients/cli/cli_shard.h"
#include "clients/cli/cli_shard_record.h"
#include "clients/cli/files/cli_files.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

#define NAMED_MAX 8 /* shards that a message names */

/* An output, and the shard that has made it. */
struct merged {
    const struct prep_output *output;
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
};

const struct cli_option cli_merge_options[] = {{"--layout", "NAME",
                                                "the layout of the outputs (that of the manifests)",
                                                CLI_TEXT, offsetof(struct merging, layout)},
                                               {0}};

/* Loads the record of each shard, and refuses those of other runs. */
static void load(struct merging *merging)
{
    struct trajd_file_list list = shard_record_list(merging->folder);
    const struct shard_record *first = NULL;

    for (uint32_t f = 0; f < list.count; f++) {
        struct shard_record record;
        if (!shard_record_load(merging->folder, list.relative_paths[f], true, &record))
            continue;
        if (record.index >= record.count || record.count > SHARD_COUNT_MAX)
            cli_die("%s: a record has a number that no shard has", merging->folder);
        if (first)
            shard_record_compare(merging->folder, first, &record);
        else
            merging->records = trajd_memory_or_exit(calloc(record.count, sizeof record));
        merging->count = record.count;
        merging->records[record.index] = record;
        first = &merging->records[record.index];
    }
    trajd_file_list_free(&list);
    if (!first)
        cli_die("%s: no shard has been here: run trajctl preprocess, resample or pack with --shard "
                "I/N first",
                merging->folder);
}

/* Refuses shards that are missing or not finished, and names them. */
static void check_shards(const struct merging *merging)
{
    char named[256] = "";
    uint32_t bad = 0;

    for (uint32_t s = 0; s < merging->count; s++) {
        const struct shard_record *record = &merging->records[s];
        if (record->recipe && record->published_count >= record->own_count)
            continue;
        if (bad++ < NAMED_MAX)
            snprintf(named + strlen(named), sizeof named - strlen(named), "%s%u/%u%s",
                     bad > 1 ? ", " : "", s, merging->count,
                     record->recipe ? " (begun)" : " (missing)");
    }
    if (bad)
        cli_die("%s: %u of %u shards are not finished: %s%s: run them, then merge", merging->folder,
                bad, merging->count, named, bad > NAMED_MAX ? ", ..." : "");
}

static int compare_outputs(const void *a, const void *b)
{
    return trajd_natural_compare(((const struct merged *)a)->output->name,
                                 ((const struct merged *)b)->output->name);
}

static void add_output(struct merging *merging, struct merged merged)
{
    const struct prep_output *output = merged.output;
    char path[PREP_PATH_SIZE];
    struct trajd_error error;
    struct stat found;

    if (prep_path(path, merging->folder, output->name, "", &error))
        cli_die("%s", error.message);
    if (lstat(path, &found) || !S_ISREG(found.st_mode))
        cli_die("%s of shard %u/%u is missing: run that shard again", path, merged.shard,
                merging->count);
    if ((uint64_t)found.st_size != output->identity.size_bytes)
        cli_die("%s of shard %u/%u has %jd bytes instead of %" PRIu64 ": run that shard again",
                path, merged.shard, merging->count, (intmax_t)found.st_size,
                output->identity.size_bytes);
    if ((merging->output_count & (merging->output_count - 1)) == 0)
        merging->outputs = trajd_memory_or_exit(
            realloc(merging->outputs, ((size_t)2 * merging->output_count + 1) * sizeof merged));
    merging->outputs[merging->output_count++] = merged;
}

/* Lists the outputs of all shards, adds up their episodes, and refuses an output of two shards. */
static void list_outputs(struct merging *merging)
{
    for (uint32_t s = 0; s < merging->count; s++)
        for (const struct shard_entry *entry = merging->records[s].entries; entry;
             entry = entry->next) {
            const struct prep_record *record = &entry->record;
            for (uint32_t i = 0; i < record->output_count; i++)
                add_output(merging, (struct merged){&record->outputs[i], entry, s});
            merging->episodes += record->episodes;
            merging->left_out += record->left_out;
        }
    if (!merging->output_count)
        cli_die("%s: the shards have made no file", merging->folder);
    qsort(merging->outputs, merging->output_count, sizeof *merging->outputs, compare_outputs);
    for (uint32_t i = 0; i + 1 < merging->output_count; i++) {
        const struct merged *a = &merging->outputs[i], *b = a + 1;
        if (!compare_outputs(a, b))
            cli_die("%s/%s is of shard %u/%u and of shard %u/%u: the shards were given different "
                    "files",
                    merging->folder, a->output->name, a->shard, merging->count, b->shard,
                    merging->count);
    }
}

/* Refuses a file of no shard. */
static void check_files(const struct merging *merging)
{
    struct trajd_file_list list = {0};
    struct trajd_error error;

    if (trajd_file_list_find_recordings(merging->folder, "**/*.hdf5", &list, &error))
        cli_die("%s", error.message);
    for (uint32_t f = 0; f < list.count; f++) {
        const struct prep_output output = {.name = list.relative_paths[f]};
        const struct merged wanted = {.output = &output};
        if (!bsearch(&wanted, merging->outputs, merging->output_count, sizeof wanted,
                     compare_outputs))
            cli_die("%s/%s is of no shard: move it away, or run the shards again with its source",
                    merging->folder, output.name);
    }
    trajd_file_list_free(&list);
}

/* Opens the folder as a dataset with the layout of all manifests, and compares it with them. */
static struct trajd_index *open_dataset(const struct merging *merging)
{
    const struct merged *first = &merging->outputs[0];
    const char *layout = first->entry->record.layout;
    struct trajd_index *index = NULL;
    struct cli_files files = {0};
    struct trajd_error error;

    for (uint32_t i = 0; i < merging->output_count && !merging->layout; i++) {
        const struct merged *other = &merging->outputs[i];
        if (strcmp(layout, other->entry->record.layout))
            cli_die(
                "%s: %s has the layout %.80s and %s %.80s: run all shards with --layout NAME, in "
                "a new folder",
                merging->folder, first->output->name, layout, other->output->name,
                other->entry->record.layout);
    }
    if (cli_files_find(&files, &error) ||
        cli_files_open(&files, merging->layout ? merging->layout : layout, merging->folder, &index,
                       &error))
        cli_die("%s", error.message);
    if (index->kept_count != merging->episodes)
        cli_die("%s: %u episodes can be read, and the manifests have %" PRIu64
                ": trajctl inspect %s says what is wrong",
                merging->folder, index->kept_count, merging->episodes, merging->folder);
    return index;
}

static void write_manifest(const struct merging *merging, const struct trajd_index *index)
{
    char path[PREP_PATH_SIZE], *text = NULL;
    const struct shard_entry *before = NULL;
    size_t size = 0;
    FILE *out = trajd_memory_or_exit(open_memstream(&text, &size));
    struct trajd_json json = {.out = out};
    struct trajd_error error;

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
    if (prep_path(path, merging->folder, "manifest.json", "", &error) ||
        prep_write(path, text, size, &error))
        cli_die("%s", error.message);
    free(text);
}

int cli_merge(int argc, char **argv)
{
    struct merging merging = {0};
    struct trajd_index *index;

    cli_parse(argc, argv, &merging);
    merging.folder = argv[1];
    load(&merging);
    check_shards(&merging);
    list_outputs(&merging);
    check_files(&merging);
    index = open_dataset(&merging);
    write_manifest(&merging, index);
    printf("%s: %u file%s of %u shard%s, %" PRIu64 " episode%s, %" PRIu64
           " left out, fingerprint %016" PRIx64 "\n",
           merging.folder, merging.output_count, trajd_plural(merging.output_count), merging.count,
           trajd_plural(merging.count), merging.episodes, trajd_plural(merging.episodes),
           merging.left_out, index->fingerprint);
    trajd_index_destroy(&index);
    for (uint32_t s = 0; s < merging.count; s++)
        shard_record_clear(&merging.records[s]);
    free(merging.records);
    free(merging.outputs);
    return CLI_OK;
}
