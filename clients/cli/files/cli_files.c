/* Opens files through the index: with a layout that was named, or with the first installed one that
 * fits, those of one family before the general ones. */
#include "clients/cli/files/cli_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/paths.h"
#include "proto/array_len.h"
#include "proto/regular_file.h"

enum trajd_status cli_files_find(struct cli_files *files, struct trajd_error *error)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    files->child_count = processors > 0 && processors < 64 ? (uint32_t)processors : 4;
    if (!trajd_paths_helper(files->helper, sizeof files->helper))
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "trajd-indexer was found neither beside this program nor in its installation");
    if (!trajd_paths_layouts(files->layouts, sizeof files->layouts))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "the folder of layouts is not in this program's installation");
    return TRAJD_OK;
}

struct trajd_index_options cli_files_options(const struct cli_files *files, const char *path)
{
    return (struct trajd_index_options){.path = path,
                                        .layout_directory = files->layouts,
                                        .helper_path = files->helper,
                                        .child_count = files->child_count,
                                        .file_timeout_ms = CLI_FILE_TIMEOUT_MS,
                                        .assumed_rate = files->assumed_rate,
                                        .color = files->color,
                                        .media_folder = files->media_folder};
}

static enum trajd_status open_with(const struct cli_files *files, const char *layout,
                                   const char *path, bool is_probe, struct trajd_index **index,
                                   struct trajd_error *error)
{
    struct trajd_index_options options = cli_files_options(files, path);

    options.layout = layout;
    options.is_probe = is_probe;
    if (is_probe) /* a layout to which the rate cannot apply is passed over like any other */
        options.assumed_rate = (struct trajd_rate){0};
    return trajd_index_open(&options, index, error);
}

/* ---- the choice of a layout ---- */

/* A layout that is tried. */
struct candidate {
    const char *layout;
    /* a prefix of a stream that only files of this family have; without one, another layout may fit
     * better. NULL: none is needed */
    const char *convincing;
    /* a layout that reads the same files and differs in what no file states, and in what; or NULL */
    const char *twin, *difference;
};

/* robomimic, robosuite, LIBERO, MimicGen and Isaac Lab have the same groups. Only robomimic fits all
 * of them, so its like come first. */
static const struct candidate candidates[] = {
    {.layout = "libero"},
    {.layout = "mimicgen"},
    {.layout = "isaaclab"},
    {.layout = "robomimic", .convincing = "obs/"},
    {.layout = "robosuite_raw"},
    {.layout = "maniskill"},
    {.layout = "minari_jpeg"},
    {.layout = "minari"},
    {.layout = "lerobot"},
    {.layout = "droid"},
    {.layout = "agibot"},
    {.layout = "rlds"},
    {.layout = "replay_buffer"},
    {.layout = "droid_im"},
    {.layout = "droid_raw"},
    {.layout = "aloha"},
    {.layout = "robomind"},
    {.layout = "robotwin", .twin = "robotwin_bgr", .difference = "the order of the colours"},
};

enum { REASON_SIZE = 72 };

/* Why the candidates did not fit. */
struct reasons {
    char texts[ARRAY_LEN(candidates)][REASON_SIZE];
    size_t count;
};

static bool is_convincing(const struct candidate *candidate, const struct trajd_index *index)
{
    const size_t length = candidate->convincing ? strlen(candidate->convincing) : 0;

    for (uint32_t i = 0; i < index->stream_count && length; i++)
        if (!strncmp(index->streams[i].name, candidate->convincing, length))
            return true;
    return !length;
}

/* Keeps the part of the message that differs between layouts: without the file's name. */
static void add_reason(struct reasons *reasons, const char *message)
{
    static const char before[] = "the first reason: ";
    const char *reason = strstr(message, before), *behind_file;

    reason = reason ? reason + strlen(before) : message;
    behind_file = strstr(reason, ": ");
    reason = behind_file ? behind_file + 2 : reason;
    snprintf(reasons->texts[reasons->count++], REASON_SIZE, "%.*s",
             (int)(strstr(reason, " (the layout") ? strstr(reason, " (the layout") - reason
                                                  : (ptrdiff_t)strlen(reason)),
             reason);
}

static bool is_one_reason(const struct reasons *reasons)
{
    for (size_t i = 1; i < reasons->count; i++)
        if (strcmp(reasons->texts[i], reasons->texts[0]))
            return false;
    return true;
}

/* Writes "a, b: REASON; c: REASON": layouts with the same reason stand together. */
static void write_reasons(const struct reasons *reasons, char *text, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < reasons->count; i++) {
        const char *reason = reasons->texts[i];
        bool is_told = false;
        for (size_t k = 0; k < i && !is_told; k++)
            is_told = !strcmp(reasons->texts[k], reason);
        for (size_t k = i; k < reasons->count && !is_told && used < size; k++)
            if (!strcmp(reasons->texts[k], reason))
                used += (size_t)snprintf(text + used, size - used, "%s%s",
                                         k > i ? ", "
                                         : i   ? "; "
                                               : "",
                                         candidates[k].layout);
        if (!is_told && used < size)
            used += (size_t)snprintf(text + used, size - used, ": %s", reason);
    }
}

static enum trajd_status refuse_twins(const struct candidate *candidate, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "the layouts %s and %s fit, which differ in %s, and the file does not "
                           "state it: choose one of them as its layout",
                           candidate->layout, candidate->twin, candidate->difference);
}

/* Opens the path if the first episodes fit the layout: the others need not be read to refuse it. */
static enum trajd_status try(const struct cli_files *files, const char *layout, const char *path,
                             struct trajd_index **index, struct trajd_error *error)
{
    enum trajd_status status = open_with(files, layout, path, true, index, error);

    trajd_index_destroy(index);
    return status == TRAJD_ERR_NOT_FOUND ? status
                                         : open_with(files, layout, path, false, index, error);
}

/* Opens the path with the first layout that keeps an episode and is plausible. A layout whose
 * structure the file has, but whose rules its content breaks, ends the search: another one would
 * only read less of it. A layout that none of the first 8 episodes of the first 8 files fits is
 * passed over. TRAJD_ERR_NOT_FOUND: none fits; the message has the reason for each.
 * TRAJD_ERR_ARGUMENT: two fit that differ in what the file does not state. */
static enum trajd_status guess(const struct cli_files *files, const char *path,
                               struct trajd_index **index, struct trajd_error *error)
{
    struct trajd_index *second_best = NULL;
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;
    struct reasons reasons = {.count = 0};
    char text[TRAJD_ERROR_MESSAGE_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(candidates) && status == TRAJD_ERR_NOT_FOUND; i++) {
        status = try(files, candidates[i].layout, path, index, error);
        if (status) {
            add_reason(&reasons, error->message);
        } else if (candidates[i].twin) {
            trajd_index_destroy(index);
            status = refuse_twins(&candidates[i], error);
        } else if (!is_convincing(&candidates[i], *index)) {
            second_best = *index;
            *index = NULL;
            status = TRAJD_ERR_NOT_FOUND;
            add_reason(&reasons, "");
        }
    }
    if (status == TRAJD_ERR_NOT_FOUND && second_best) {
        *index = second_best;
        return TRAJD_OK;
    }
    trajd_index_destroy(&second_best);
    if (status != TRAJD_ERR_NOT_FOUND)
        return status;
    if (is_one_reason(&reasons))
        return status; /* the path itself: the message names it */
    write_reasons(&reasons, text, sizeof text);
    return trajd_error_set(error, status, 0, "no layout fits: %s", text);
}

static bool is_yaml(const char *path)
{
    const char *dot = strrchr(path, '.');
    struct stat about;

    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml")) && !stat(path, &about) &&
           S_ISREG(about.st_mode);
}

enum trajd_status cli_files_open(const struct cli_files *files, const char *layout,
                                 const char *path, struct trajd_index **index,
                                 struct trajd_error *error)
{
    if (is_yaml(path))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: a YAML file, not a dataset. If it is a configuration of trajd, "
                               "`trajctl check %s` shows its outputs, and `trajctl doctor %s` "
                               "tries it",
                               path, path, path);
    return layout ? open_with(files, layout, path, false, index, error)
                  : guess(files, path, index, error);
}

/* ---- the file of an episode ---- */

enum trajd_status episode_file_open(struct episode_file *file, const struct trajd_episode *episode,
                                    struct trajd_error *error)
{
    const char *path = file->index->files[episode->file_index].path;
    enum trajd_status status;

    if (file->is_open && file->file_index == episode->file_index)
        return TRAJD_OK;
    episode_file_close(file);
    status = trajd_open_regular(path, &file->fd, error);
    if (status)
        return status;
    file->file_index = episode->file_index;
    file->is_open = true;
    return TRAJD_OK;
}

void episode_file_close(struct episode_file *file)
{
    if (file->is_open)
        close(file->fd);
    file->is_open = false;
}
