/* trajctl pack: reads the options and packs one file after another (clients/cli/pack). */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/pack/pack_config.h"
#include "clients/cli/pack/pack_file.h"
#include "clients/cli/cli_shard.h"
#include "daemon/base/memory.h"
#include "daemon/base/progress/progress.h"
#include "proto/plural.h"

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

static bool is_interrupted; /* set only by the signal handler */

static void on_signal(int number)
{
    (void)number;
    __atomic_store_n(&is_interrupted, true, __ATOMIC_RELAXED);
}

static void print_note(void *context, const char *text)
{
    (void)context;
    trajd_progress_clear();
    fprintf(stderr, "note: %s\n", text);
}

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
                                   .cancel = &is_interrupted,
                                   .on_note = print_note};
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

/* Reads what --prepare says. False where it printed an error. */
static bool read_prepare(struct packer *packer)
{
    struct trajd_error error;

    if (!packer->prepare)
        return true;
    if (pack_config_read(packer->prepare, &packer->config, &error)) {
        cli_fail("%s", error.message);
        return false;
    }
    if (!packer->layout)
        packer->layout = packer->config.layout;
    packer->files.color = packer->config.color;
    packer->files.media_folder = packer->config.media_folder;
    return true;
}

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
        pack_config_free(&packer.config);
        return CLI_FAILED;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit becomes an error of the write */
    if (packer.shard.count) {
        const struct shard_work work = {.shard = packer.shard,
                                        .folder = packer.output,
                                        .recipe = recipe,
                                        .inputs = argv + 1,
                                        .input_count = (uint32_t)count,
                                        .cancel = &is_interrupted,
                                        .make = pack_of_shard,
                                        .context = &packer};
        result = shard_do(&work);
    }
    for (int i = 1; i <= count && !is_interrupted && !packer.shard.count; i++)
        if (pack_of_list(&packer, argv[i]))
            result = CLI_FAILED;
    pack_config_free(&packer.config);
    return is_interrupted ? CLI_FAILED : result;
}
