/* trajctl pack: reads the options and packs one file after another (clients/cli/pack). */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/pack/pack_file.h"
#include "clients/cli/cli_shard.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "daemon/config/config.h"
#include "daemon/window/image/image_preset.h"
#include "proto/plural.h"

/* The value of --prepare: which frames are prepared, and how. */
struct pack_config {
    struct trajd_config *config;    /* owned; the preparations borrow from it */
    const char *layout;             /* of the feed's dataset; NULL with a preset or size */
    enum trajd_image_color color;   /* of the same; TRAJD_COLOR_DEPTH: not given */
    const char *media_folder;       /* of the same; NULL: not given */
    struct trajd_image_spec preset; /* or a size */
    uint32_t count;
    struct pack_preparation preparations[TRAJD_SPEC_MAX_OUTPUTS];
};

struct packer {
    const char *layout, *output; /* layout NULL: guess */
    const char *prepare;         /* NULL: no frames are prepared */
    uint32_t jpeg_quality;       /* 0: prepared frames are raw pixels */
    struct pack_config config;
    bool force, resume;
    bool is_folder; /* the output */
    struct cli_files files;
    struct shard shard;
};

/* Writes where the output of an input goes. */
static void find_output(const struct packer *packer, const char *input, char path[CLI_PATH_SIZE])
{
    const char *slash = strrchr(input, '/');

    if (packer->is_folder)
        snprintf(path, CLI_PATH_SIZE, "%s/%s", packer->output, slash ? slash + 1 : input);
    else
        snprintf(path, CLI_PATH_SIZE, "%s", packer->output);
}

static void print_result(const char *output, const struct pack_result *result)
{
    trajd_progress_clear();
    printf("%s: %u dataset%s, %" PRIu64 " frame%s, %.1f MB of frames to %.1f MB; the file %.1f MB "
           "to %.1f MB\n",
           output, result->stream_count, trajd_plural(result->stream_count), result->frame_count,
           trajd_plural(result->frame_count), (double)result->stored_bytes / 1e6,
           (double)result->packed_bytes / 1e6, (double)result->size_before / 1e6,
           (double)result->size_after / 1e6);
    if (result->prepared_count)
        printf("  prepared: %u dataset%s; %" PRIu64 " of the frames cannot be decoded\n",
               result->prepared_count, trajd_plural(result->prepared_count), result->bad_count);
    if (result->left_count)
        printf("  %u dataset%s of raw pixels kept as stored: without compression, each frame "
               "is in one piece\n",
               result->left_count, trajd_plural(result->left_count));
    fflush(stdout);
}

/* Packs one file. `record` NULL: it is of no shard. */
static int pack_one(struct packer *packer, const char *input, const char *output, bool force,
                    struct prep_record *record)
{
    struct pack_options options = {.helper_path = packer->files.helper,
                                   .preparations = packer->config.preparations,
                                   .preparation_count = packer->config.count,
                                   .jpeg_quality = packer->jpeg_quality,
                                   .force = force,
                                   .cancel = &cli_is_interrupted,
                                   .on_note = cli_note};
    struct trajd_index *index = NULL;
    struct pack_result result;
    struct trajd_error error;
    enum trajd_status status;

    status = cli_files_open(&packer->files, packer->layout, input, &index, &error);
    if (!status && index->file_count != 1)
        status = trajd_error_set(
            &error, TRAJD_ERR_ARGUMENT, 0,
            "name the files to pack, not a folder: trajctl pack %s/*.hdf5 -o FOLDER", input);
    if (!status)
        status = trajd_layout_check_guesses(index->layout, &error);
    options.index = index;
    options.output = output;
    if (!status && index->kept_count < index->episode_count)
        fprintf(stderr, "note: %s: frames of %u quarantined episode%s are copied as they are\n",
                input, index->episode_count - index->kept_count,
                trajd_plural(index->episode_count - index->kept_count));
    if (!status)
        status = pack_file(&options, &result, &error);
    if (!status && record) {
        record->layout =
            trajd_memory_or_exit(strdup(packer->layout ? packer->layout : index->layout->name));
        record->episodes = index->kept_count;
        record->left_out = index->episode_count - index->kept_count;
    }
    if (index)
        trajd_index_destroy(&index);
    if (status)
        return cli_fail_at(input, &error);
    print_result(output, &result);
    return CLI_OK;
}

static int pack_of_list(struct packer *packer, const char *input)
{
    char output[CLI_PATH_SIZE];

    find_output(packer, input, output);
    if (packer->resume && !access(output, F_OK)) {
        printf("%s: is there, skipped\n", output);
        return CLI_OK;
    }
    return pack_one(packer, input, output, packer->force, NULL);
}

static int pack_of_shard(void *context, const char *input, const char *output, bool force,
                         struct prep_record *record, uint32_t *part_count)
{
    *part_count = 0;
    return pack_one(context, input, output, force, record);
}

/* ---- the value of --prepare: a preset, a size, or a feed of a configuration ---- */

enum { VALUE_SIZE = 4096 };

/* "CONFIG:FEED:DATASET", cut at its colons. */
struct value {
    char text[VALUE_SIZE];
    const char *feed, *dataset; /* NULL: not given */
};

/* Finds the file's name: the longest part in front of a colon that is one. */
static enum trajd_status cut(const char *text, struct value *value, struct trajd_error *error)
{
    *value = (struct value){.text = ""};
    if ((size_t)snprintf(value->text, sizeof value->text, "%s", text) >= sizeof value->text)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "--prepare: the path is too long");
    for (int parts = 0; parts < 3; parts++) {
        char *colon = strrchr(value->text, ':');
        if (!access(value->text, F_OK))
            return TRAJD_OK;
        if (!colon || parts == 2)
            break;
        *colon = '\0';
        value->dataset = value->feed;
        value->feed = colon + 1;
    }
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                           "--prepare %s: no such file; expected CONFIG[:FEED[:DATASET]], like "
                           "train.yaml:policy, HEIGHTxWIDTH, like 224x224, or the name of a preset",
                           text);
}

/* ---- presets ---- */

static enum trajd_status read_view(const char *name, const char *view,
                                   struct trajd_image_spec *spec, struct trajd_error *error)
{
    char text[128];
    struct trajd_yaml *yaml;
    enum trajd_status status;

    *spec = (struct trajd_image_spec){0};
    snprintf(text, sizeof text, "{image: {preset: \"%.32s\", view: %s}}", name, view);
    status = trajd_yaml_parse("--prepare", text, strlen(text), &yaml, error);
    if (status)
        return status;
    status = trajd_image_preset_read(yaml, trajd_yaml_root(yaml), spec, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

static bool prepare_alike(const struct trajd_image_spec *a, const struct trajd_image_spec *b)
{
    return a->height == b->height && a->width == b->width && a->fit == b->fit &&
           a->filter == b->filter;
}

/* Reads the name of a preset. A preset that prepares wrist cameras in another way needs to know
 * which ones they are. */
static enum trajd_status read_preset(const char *name, struct pack_config *config,
                                     struct trajd_error *error)
{
    struct trajd_image_spec wrist;
    const enum trajd_status status = read_view(name, "scene", &config->preset, error);

    if (status)
        return status;
    if (!read_view(name, "wrist", &wrist, NULL) && !prepare_alike(&config->preset, &wrist))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--prepare %s: it resizes wrist cameras in another way: name a "
                               "configuration that says view: wrist where it matters, CONFIG:FEED",
                               name);
    config->preparations[config->count++] =
        (struct pack_preparation){.output = name, .image = &config->preset};
    return TRAJD_OK;
}

/* ---- sizes ---- */

/* Reads "HEIGHTxWIDTH" as the key `resize` of a feed. *is_size: it is one. */
static enum trajd_status read_size(const char *text, struct pack_config *config, bool *is_size,
                                   struct trajd_error *error)
{
    char keys[64];
    struct trajd_yaml *yaml;
    uint32_t height, width;
    int length = 0;
    enum trajd_status status;

    *is_size = sscanf(text, "%ux%u%n", &height, &width, &length) == 2 && !text[length];
    if (!*is_size)
        return TRAJD_OK;
    snprintf(keys, sizeof keys, "{resize: [%u, %u]}", height, width);
    status = trajd_yaml_parse("--prepare", keys, strlen(keys), &yaml, error);
    if (status)
        return status;
    status = trajd_image_spec_read(&(struct trajd_yaml_reader){yaml, error, NULL},
                                   trajd_yaml_root(yaml), &config->preset);
    trajd_yaml_destroy(&yaml);
    config->preparations[config->count++] =
        (struct pack_preparation){.output = text, .image = &config->preset};
    return status;
}

/* ---- feeds ---- */

static enum trajd_status find_feed(const struct trajd_config *config, const char *name,
                                   const struct trajd_window_spec **feed, struct trajd_error *error)
{
    *feed = config->feed_count == 1 && !name ? config->feeds[0] : NULL;
    for (uint32_t f = 0; name && f < config->feed_count; f++)
        if (!strcmp(config->feeds[f]->feed_name, name))
            *feed = config->feeds[f];
    if (*feed)
        return TRAJD_OK;
    if (name)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "--prepare: the configuration has no feed %s", name);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "--prepare: the configuration has %u feeds: name one, CONFIG:FEED",
                           config->feed_count);
}

/* Finds what the feed asks of one of its datasets. */
static enum trajd_status find_member(const struct trajd_window_spec *feed, const char *name,
                                     const struct trajd_spec_member **member,
                                     struct trajd_error *error)
{
    *member = feed->member_count == 1 && !name ? feed->members : NULL;
    for (uint32_t m = 0; name && m < feed->member_count; m++)
        if (!strcmp(feed->members[m].dataset, name))
            *member = &feed->members[m];
    if (*member)
        return TRAJD_OK;
    if (name)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "--prepare: feed %s has no dataset %s", feed->feed_name, name);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "--prepare: feed %s has %u datasets: name one, CONFIG:FEED:DATASET",
                           feed->feed_name, feed->member_count);
}

static void list_outputs(const struct trajd_window_spec *spec, struct pack_config *config)
{
    for (uint32_t o = 0; o < spec->output_count; o++) {
        const struct trajd_spec_output *output = &spec->outputs[o];
        if (output->source_count == 1)
            config->preparations[config->count++] = (struct pack_preparation){
                .stream = output->sources[0], .output = output->name, .image = &output->image};
    }
}

/* Reads "CONFIG[:FEED[:DATASET]]": the outputs of a feed of a configuration, as they are for one
 * dataset of a mixture. FEED may be left out where there is one feed, DATASET where the feed has one.
 * Or reads "HEIGHTxWIDTH" or the name of a preset, for all cameras. TRAJD_ERR_ARGUMENT or TRAJD_ERR_NOT_FOUND with the
 * choices. */
static enum trajd_status read_value(const char *text, struct pack_config *config,
                                    struct trajd_error *error)
{
    const struct trajd_window_spec *feed = NULL;
    const struct trajd_spec_member *member = NULL;
    struct value value;
    bool is_size;
    enum trajd_status status;

    *config = (struct pack_config){0};
    status = read_size(text, config, &is_size, error);
    if (is_size)
        return status;
    status = cut(text, &value, error);
    if (status == TRAJD_ERR_NOT_FOUND && !strpbrk(text, ":./\"\\"))
        return read_preset(text, config, error);
    if (!status)
        status = trajd_config_load(value.text, NULL, 0, &config->config, error);
    if (!status)
        status = find_feed(config->config, value.feed, &feed, error);
    if (!status)
        status = find_member(feed, value.dataset, &member, error);
    if (status)
        return status;
    list_outputs(member->spec, config);
    for (uint32_t d = 0; d < config->config->dataset_count; d++)
        if (!strcmp(config->config->datasets[d].name, member->dataset)) {
            config->layout = config->config->datasets[d].layout;
            config->color = config->config->datasets[d].color;
            config->media_folder = config->config->datasets[d].media;
        }
    return TRAJD_OK;
}

static void free_config(struct pack_config *config)
{
    if (config->config)
        trajd_config_destroy(&config->config);
}

/* Reads what --prepare says. False where it printed an error. */
static bool read_prepare(struct packer *packer)
{
    struct trajd_error error;

    if (!packer->prepare)
        return true;
    if (read_value(packer->prepare, &packer->config, &error)) {
        cli_fail("%s", error.message);
        return false;
    }
    if (!packer->layout)
        packer->layout = packer->config.layout;
    packer->files.color = packer->config.color;
    packer->files.media_folder = packer->config.media_folder;
    return true;
}

/* ---- the command ---- */

/* Makes the folder that several files need. False where it printed an error. */
static bool make_folder(struct packer *packer)
{
    if (mkdir(packer->output, 0777)) {
        if (errno == EEXIST)
            cli_fail("%s: is not a folder: several files need one", packer->output);
        else
            cli_fail("%s: the folder cannot be made: %s", packer->output, strerror(errno));
        return false;
    }
    packer->is_folder = true;
    return true;
}

const struct cli_option cli_pack_options[] = {
    {"-o", "FILE-OR-FOLDER", "the output; several files need a folder", CLI_TEXT,
     offsetof(struct packer, output)},
    {"--prepare", "CONFIG[:FEED[:DATASET]]|PRESET|HEIGHTxWIDTH",
     "decode and resize the frames as a feed or a preset asks for, or to a size", CLI_TEXT,
     offsetof(struct packer, prepare)},
    {"--jpeg", "QUALITY", "store prepared frames as JPEG 4:4:4, such as 95; raw pixels without it",
     CLI_U32, offsetof(struct packer, jpeg_quality), 1, 100},
    {"--layout", "NAME",
     "how the files map to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct packer, layout)},
    {"--force", NULL, "replace existing files", CLI_FLAG, offsetof(struct packer, force)},
    {"--resume", NULL, "skip files whose output exists", CLI_FLAG, offsetof(struct packer, resume)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct packer, shard), .table = cli_shard_options},
    {0}};

int cli_pack(int argc, char **argv)
{
    struct packer packer = {0};
    const char *recipe = shard_recipe(argc, argv);
    const int count = cli_parse(argc, argv, &packer);
    struct trajd_error error;
    struct stat status;
    int result = CLI_OK;

    if (!packer.output)
        cli_refuse("name one or more files, and the output with -o");
    if (packer.shard.count && (packer.force || packer.resume))
        cli_refuse("--shard skips what it has finished, and replaces nothing else: leave out %s",
                   packer.force ? "--force" : "--resume");
    if (packer.jpeg_quality && !packer.prepare)
        cli_refuse("--jpeg stores prepared frames: it needs --prepare");
    packer.is_folder = !stat(packer.output, &status) && S_ISDIR(status.st_mode);
    if (cli_files_find(&packer.files, &error))
        return cli_fail("%s", error.message);
    if (!read_prepare(&packer) ||
        (count > 1 && !packer.shard.count && !packer.is_folder && !make_folder(&packer))) {
        free_config(&packer.config);
        return CLI_FAILED;
    }
    cli_catch_signals();
    if (packer.shard.count) {
        const struct shard_work work = {.shard = packer.shard,
                                        .folder = packer.output,
                                        .recipe = recipe,
                                        .inputs = argv + 1,
                                        .input_count = (uint32_t)count,
                                        .make = pack_of_shard,
                                        .context = &packer};
        result = shard_do(&work);
    }
    for (int i = 1; i <= count && !cli_is_interrupted && !packer.shard.count; i++)
        if (pack_of_list(&packer, argv[i]))
            result = CLI_FAILED;
    free_config(&packer.config);
    return cli_is_interrupted ? CLI_FAILED : result;
}
