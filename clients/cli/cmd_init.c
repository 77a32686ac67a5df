/* trajctl init: writes a first configuration for a file or folder, and drafts of layouts where no
 * layout fits. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/draft/draft.h"
#include "clients/cli/draft/draft_config.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/frames/frame_show.h"
#include "daemon/index/tree/tree.h"
#include "daemon/layout/glob.h"
#include "proto/plural.h"

enum { MOST_UNREAD = 8 };  /* that are named */
enum { COMPARED_MAX = 8 }; /* episodes: each starts decoders */

struct init {
    const char *layout, *preset_name, *path, *output; /* output NULL: stdout, and no drafts */
    const struct config_preset *preset;
    struct cli_files files;
    uint32_t count;
    struct draft_shape shapes[DRAFT_SHAPES_MAX];
    struct config_dataset datasets[DRAFT_SHAPES_MAX];
    struct trajd_index *indices[DRAFT_SHAPES_MAX];
    char real[PATH_MAX]; /* of `path` */
    char paths[DRAFT_SHAPES_MAX][PATH_MAX];
    char layouts[DRAFT_SHAPES_MAX][CLI_PATH_SIZE + 2]; /* of drafts: their files */
    char readings[DRAFT_SHAPES_MAX][CLI_PATH_SIZE];    /* files with both readings of the colours */
};

/* Writes the name of a file beside the configuration: "lab.yaml" has "lab.layout.yaml". */
static void name_file(const struct init *init, uint32_t which, const char *ending,
                      char path[CLI_PATH_SIZE])
{
    const char *dot = strrchr(init->output, '.'), *slash = strrchr(init->output, '/');
    const int length = dot && dot > (slash ? slash : init->output) ? (int)(dot - init->output)
                                                                   : (int)strlen(init->output);

    if (init->count == 1)
        snprintf(path, CLI_PATH_SIZE, "%.*s.%s", length, init->output, ending);
    else
        snprintf(path, CLI_PATH_SIZE, "%.*s.%s.%s", length, init->output, init->shapes[which].name,
                 ending);
}

/* Writes a text into a new file. */
static enum trajd_status write_file(const char *path, const char *text, struct trajd_error *error)
{
    FILE *out = fopen(path, "wx");
    bool failed = !out;

    if (out) {
        failed = fputs(text, out) < 0;
        failed = fclose(out) || failed;
    }
    return failed ? trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno))
                  : TRAJD_OK;
}

/* Makes a draft of a layout for one dataset, writes it into a file, and indexes with it. */
static enum trajd_status make_draft(struct init *init, uint32_t which, const char *tried,
                                    struct trajd_error *error)
{
    const char *path = init->shapes[which].path;
    char file[CLI_PATH_SIZE], place[CLI_PATH_SIZE];
    enum trajd_status status;
    struct draft draft;

    if (!init->output)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: no layout of trajd reads it (%.200s). `trajctl init %s -o "
                               "FILE.yaml` writes a draft of a layout beside the configuration",
                               path, tried, init->path);
    name_file(init, which, "layout.yaml", place);
    status = draft_find_file(path, file, error);
    if (!status)
        status = draft_make(&init->files, file, init->shapes[which].name, &draft, error);
    if (status)
        return status;
    if (!draft.layout || *draft.why)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: no draft of a layout: %s", file,
                                 draft.why);
    if (!status)
        status = draft_open(&init->files, draft.layout, path, &init->indices[which], error);
    if (!status)
        status = write_file(place, draft.layout, error);
    draft_free(&draft);
    if (!status) {
        const char *slash = strrchr(place, '/');
        snprintf(init->layouts[which], sizeof init->layouts[which], "./%s",
                 slash ? slash + 1 : place);
        fprintf(stderr,
                "trajctl: wrote %s, a draft: check its lines with GUESS, and delete their entries "
                "of guessed:\n",
                place);
    }
    return status;
}

static enum trajd_status open_dataset(struct init *init, uint32_t which, struct trajd_error *error)
{
    const char *path = init->shapes[which].path;
    struct trajd_error tried;
    enum trajd_status status =
        cli_files_open(&init->files, init->layout, path, &init->indices[which], &tried);

    *error = tried;
    if (status == TRAJD_ERR_NOT_FOUND && !init->layout && !access(init->path, R_OK))
        status = make_draft(init, which, tried.message, error);
    else if (!status)
        snprintf(init->layouts[which], sizeof init->layouts[which], "%s",
                 init->layout ? init->layout : init->indices[which]->layout->name);
    if (status)
        return status;
    if (init->layout && trajd_layout_is_path(init->layout))
        (void)!realpath(init->layout,
                        init->layouts[which]); /* the output may be in another folder */
    if (trajd_is_glob(path) || !realpath(path, init->paths[which]))
        snprintf(init->paths[which], sizeof init->paths[which], "%s", path);
    init->datasets[which] =
        (struct config_dataset){init->shapes[which].name, init->paths[which], init->layouts[which],
                                init->indices[which],     TRAJD_COLOR_DEPTH,  NULL};
    return TRAJD_OK;
}

static enum trajd_status open_datasets(struct init *init, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    bool are_mixed;

    if (realpath(init->path, init->real))
        init->path = init->real;
    init->count = init->layout ? 1 : 0;
    if (init->layout) {
        init->shapes[0] = (struct draft_shape){.name = "data"};
        snprintf(init->shapes[0].path, sizeof init->shapes[0].path, "%s", init->path);
    } else {
        init->count = draft_find_shapes(&init->files, init->path, init->shapes, &are_mixed, error);
        if (!init->count)
            return error->status;
        if (are_mixed)
            fprintf(stderr,
                    "trajctl: %s has files of several kinds, which neither folders nor the "
                    "beginnings of their names separate: they become one dataset\n",
                    init->path);
    }
    for (uint32_t i = 0; i < init->count && !status; i++)
        status = open_dataset(init, i, error);
    return status;
}

/* Names the feeds whose outputs lack an action on stderr. */
static void report_missing_actions(const struct init *init)
{
    for (uint32_t i = 0; i < init->count; i++)
        if (!config_find_action(init->datasets[i].index))
            fprintf(
                stderr,
                "trajctl: %s: no stream's name begins with action. Add the stream that the policy "
                "predicts to the outputs of the configuration: actions: {from: STREAM, at: "
                "%s}\n",
                init->shapes[i].path, init->preset->actions);
}

/* ---- arrays that a shipped layout does not read ---- */

static const struct trajd_episode *first_kept(const struct trajd_index *index)
{
    uint32_t e = 0;

    while (e < index->episode_count && index->episodes[e].quarantine)
        e++;
    return e < index->episode_count ? &index->episodes[e] : NULL;
}

/* Returns the path of an object relative to the episode, or NULL for one elsewhere. */
static const char *path_in(const struct trajd_index *index, const struct trajd_episode *episode,
                           const char *path)
{
    const char *at = path;
    const size_t length = strlen(episode->id);

    if (!strcmp(episode->id, index->files[episode->file_index].relative_path))
        return path;
    while (at && !(!strncmp(at, episode->id, length) && at[length] == '/'))
        at = (at = strchr(at, '/')) ? at + 1 : NULL;
    return at ? at + length + 1 : NULL;
}

/* Returns whether the array has a row for each row of a clock, and the index does not read it, nor a
 * group that it is in: packed frames and video. */
static bool is_unread(const struct trajd_index *index, const struct trajd_episode *episode,
                      const struct trajd_tree_object *object, const char *path)
{
    bool has_rows = false;

    if (object->kind != TRAJD_TREE_DATASET || !object->rank || object->shape[0] < 2)
        return false;
    for (uint32_t c = 0; c < index->clock_count; c++)
        has_rows = has_rows || (uint64_t)episode->clocks[c].row_count == object->shape[0];
    for (uint32_t a = 0; a < index->array_count && has_rows; a++)
        has_rows = fnmatch(index->arrays[a].path, path, FNM_LEADING_DIR) != 0;
    return has_rows;
}

/* Names on stderr the arrays of the first episode that the layout leaves out. */
static void report_unread(const struct init *init, uint32_t which)
{
    const struct trajd_index *index = init->indices[which];
    const struct trajd_episode *episode = first_kept(index);
    char file[CLI_PATH_SIZE];
    struct trajd_tree tree;
    struct trajd_error error;
    uint32_t count = 0;

    if (!episode || draft_find_file(init->shapes[which].path, file, &error) ||
        trajd_tree_read(init->files.helper, file, CLI_FILE_TIMEOUT_MS, &tree, &error))
        return;
    for (uint32_t i = 0; i < tree.object_count; i++) {
        const char *path = path_in(index, episode, tree.objects[i].path);
        if (!path || !is_unread(index, episode, &tree.objects[i], path))
            continue;
        if (!count++)
            fprintf(stderr, "trajctl: %s: layout %s does not read", file, index->layout->name);
        if (count <= MOST_UNREAD)
            fprintf(stderr, "%s %s", count > 1 ? "," : "", path);
    }
    if (count > MOST_UNREAD)
        fprintf(stderr, ", and %u more", count - MOST_UNREAD);
    if (count)
        fprintf(stderr,
                ". To use them, add them to a copy of the layout, and pass --layout COPY\n");
    trajd_tree_free(&tree);
}

/* Says how many episodes the layout leaves out. */
static void report_quarantined(const struct init *init, uint32_t which)
{
    const struct trajd_index *index = init->indices[which];
    const uint32_t found = index->episode_count + index->refused_file_count;

    if (found > index->kept_count)
        fprintf(
            stderr,
            "trajctl: %s: %u of %u episode%s are quarantined. `trajctl inspect %s --layout %s` has "
            "the reasons\n",
            init->shapes[which].name, found - index->kept_count, found, trajd_plural(found),
            init->paths[which], init->layouts[which]);
}

/* ---- which colour encoded frames have first ---- */

/* Returns the first stream with frames of which nothing says whether red or blue is first, or
 * NULL. */
static const struct trajd_index_stream *find_undecided(const struct trajd_index *index)
{
    for (uint32_t s = 0; s < index->stream_count; s++)
        if (index->streams[s].image.color == TRAJD_COLOR_UNDECIDED)
            return &index->streams[s];
    return NULL;
}

/* Finds the frame of an episode, and decodes the one in its middle as it is stored. The caller frees
 * *pixels. */
static bool read_middle(const struct trajd_index *index, const char *stream, const char *episode,
                        struct frame *frame, uint8_t **pixels)
{
    struct trajd_error error;

    if (frame_find(index, stream, episode, frame, &error))
        return false;
    frame->row = trajd_array_row_count(frame->array) / 2;
    return !frame_decode(index, frame, pixels, &error);
}

/* Returns the reading in which two frames are alike. What is lost by encoding is far less than half
 * of what exchanged colours change, and two recordings that only share a name are far apart either
 * way. */
static enum trajd_image_color choose_color(const uint8_t *encoded, const uint8_t *raw,
                                           uint64_t count)
{
    uint64_t same = 0, exchanged = 0;

    for (uint64_t i = 0; i < 3 * count; i += 3)
        for (uint64_t c = 0; c < 3; c++) {
            same += (uint64_t)abs(encoded[i + c] - raw[i + c]);
            exchanged += (uint64_t)abs(encoded[i + c] - raw[i + 2 - c]);
        }
    if (2 * same < exchanged)
        return TRAJD_COLOR_RGB;
    return 2 * exchanged < same ? TRAJD_COLOR_BGR : TRAJD_COLOR_UNDECIDED;
}

/* Compares the episode with the one of the same name in the other index, and counts it. */
static enum trajd_image_color compare_episode(const struct trajd_index *index,
                                              const struct trajd_index *raw, const char *stream,
                                              const char *episode, uint32_t *count)
{
    enum trajd_image_color color = TRAJD_COLOR_UNDECIDED;
    struct frame one = {0}, other = {0};
    uint8_t *pixels = NULL, *raw_pixels = NULL;

    if (read_middle(index, stream, episode, &one, &pixels) &&
        read_middle(raw, stream, episode, &other, &raw_pixels) &&
        other.stream->form == TRAJD_ROWS_PLAIN && one.row == other.row &&
        one.image.height == other.image.height && one.image.width == other.image.width &&
        other.stream->feature_count == one.stream->feature_count) {
        color = choose_color(pixels, raw_pixels, (uint64_t)one.image.height * one.image.width);
        (*count)++;
    }
    free(pixels);
    free(raw_pixels);
    return color;
}

/* Compares the undecided frames of an index with the raw frames of another one that have the same
 * stream, episode and row. Returns RGB or BGR and sets *twin to the raw file, where one reading is
 * clearly closer. Returns TRAJD_COLOR_UNDECIDED where there are no such frames, where they show
 * something else, or where they have no colours. Blocks. */
static enum trajd_image_color find_color(const struct trajd_index *index,
                                         const struct trajd_index *raw, const char **twin)
{
    const struct trajd_index_stream *stream = find_undecided(index);

    uint32_t count = 0;

    for (uint32_t e = 0; e < raw->episode_count && stream && count < COMPARED_MAX; e++) {
        const struct trajd_episode *episode = &raw->episodes[e];
        const enum trajd_image_color color =
            episode->quarantine ? TRAJD_COLOR_UNDECIDED
                                : compare_episode(index, raw, stream->name, episode->id, &count);
        *twin = raw->files[episode->file_index].path;
        if (color != TRAJD_COLOR_UNDECIDED)
            return color;
    }
    return TRAJD_COLOR_UNDECIDED;
}

/* Decides it by the raw frames of another dataset. */
static bool compare_colors(struct init *init, uint32_t which)
{
    struct config_dataset *dataset = &init->datasets[which];

    for (uint32_t i = 0; i < init->count && dataset->color == TRAJD_COLOR_UNDECIDED; i++)
        if (i != which)
            dataset->color =
                find_color(init->indices[which], init->indices[i], &dataset->color_source);
    if (dataset->color == TRAJD_COLOR_UNDECIDED)
        dataset->color_source = NULL;
    else
        fprintf(stderr, "trajctl: %s: color: %s, because its frames are then those of %s\n",
                dataset->name, trajd_image_color_name(dataset->color), dataset->color_source);
    return dataset->color != TRAJD_COLOR_UNDECIDED;
}

/* Writes a frame of the first episode in both readings. */
static void show_readings(struct init *init, uint32_t which)
{
    const struct trajd_index *index = init->indices[which];
    const struct trajd_index_stream *stream = find_undecided(index);
    const struct trajd_array *array = NULL;
    char frame[CLI_PATH_SIZE];
    const struct frame_request request = {.frame = frame, .output = init->readings[which]};
    struct trajd_error error;

    for (uint32_t e = 0; e < index->episode_count && !array; e++)
        if (!index->episodes[e].quarantine &&
            trajd_array_row_count(&index->episodes[e].extents[stream->array_index]))
            array = &index->episodes[e].extents[stream->array_index];
    name_file(init, which, "colors.png", init->readings[which]);
    snprintf(frame, sizeof frame, "%s:%" PRIu64, stream->name,
             array ? trajd_array_row_count(array) / 2 : 0);
    if (frame_show(index, &request, stderr, &error))
        fprintf(stderr, "trajctl: %s: no image of both readings of its colours: %s\n",
                init->shapes[which].name, error.message);
    else
        init->datasets[which].color_source = init->readings[which];
}

static void find_colors(struct init *init)
{
    for (uint32_t i = 0; i < init->count; i++) {
        if (!find_undecided(init->indices[i]))
            continue;
        init->datasets[i].color = TRAJD_COLOR_UNDECIDED;
        if (compare_colors(init, i))
            continue;
        if (init->output)
            show_readings(init, i);
        else
            fprintf(stderr,
                    "trajctl: %s: choose its color in the configuration: rgb or bgr. With -o "
                    "FILE.yaml, init writes an image of both readings\n",
                    init->shapes[i].name);
    }
}

static int write_config(struct init *init)
{
    FILE *out = init->output ? fopen(init->output, "wx") : stdout;
    bool failed;

    if (!out)
        return cli_fail("%s: %s", init->output, strerror(errno));
    find_colors(init);
    config_write(out, init->datasets, init->count, init->preset);
    for (uint32_t i = 0; i < init->count; i++) {
        report_quarantined(init, i);
        if (init->layouts[i][0] != '.')
            report_unread(init, i);
    }
    report_missing_actions(init);
    failed = fflush(out) || ferror(out);
    if (init->output)
        failed = fclose(out) || failed;
    return failed ? cli_fail("the configuration could not be written") : CLI_OK;
}

const struct cli_option cli_init_options[] = {
    {"--layout", "NAME",
     "how the files map to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct init, layout)},
    {"--preset", "act|diffusion_policy|lerobot|openpi|robomimic", "write what this trainer reads",
     CLI_TEXT, offsetof(struct init, preset_name)},
    {"-o", "FILE.yaml", "write it into a new file, and drafts of layouts beside it", CLI_TEXT,
     offsetof(struct init, output)},
    {0}};

int cli_init(int argc, char **argv)
{
    struct init *init = calloc(1, sizeof *init);
    struct trajd_error error;
    int result;

    if (!init)
        cli_die("out of memory");
    cli_parse(argc, argv, init);
    init->path = argv[1];
    init->preset = config_preset_find(init->preset_name, &error);
    if (!init->preset)
        cli_die("%s", error.message);
    if (init->output && !access(init->output, F_OK))
        cli_die("%s exists already", init->output);
    if (cli_files_find(&init->files, &error) || open_datasets(init, &error))
        result = cli_fail("%s", error.message);
    else
        result = write_config(init);
    for (uint32_t i = 0; i < init->count; i++)
        trajd_index_destroy(&init->indices[i]);
    free(init);
    return result;
}
