#include "clients/cli/files/cli_files.h"

#include <string.h>
#include <unistd.h>

#include "daemon/base/paths.h"
#include "proto/array_len.h"

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
                                        .assumed_rate = files->assumed_rate};
}

static enum trajd_status open_with(const struct cli_files *files, const char *layout,
                                   const char *path, struct trajd_index **index,
                                   struct trajd_error *error)
{
    struct trajd_index_options options = cli_files_options(files, path);

    options.layout = layout;
    return trajd_index_open(&options, index, error);
}

/* Returns whether the guess is plausible. robomimic and robosuite files have the same groups, but
 * only those of robomimic have observations. */
static bool is_convincing(const struct trajd_index *index)
{
    if (strcmp(index->layout->name, "robomimic"))
        return true;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        if (!strncmp(index->streams[i].name, "obs/", 4))
            return true;
    }
    return false;
}

/* Tries the shipped layouts. Takes the first one that keeps an episode and is plausible. A layout
 * whose structure the file has, but whose rules its content breaks, ends the search: another layout
 * would only look at less of it. If none fits, returns the first error. */
static enum trajd_status guess(const struct cli_files *files, const char *path,
                               struct trajd_index **index, struct trajd_error *error)
{
    static const char *const layouts[] = {"robomimic", "robosuite_raw", "aloha"};
    struct trajd_index *second_best = NULL;
    enum trajd_status status = TRAJD_ERR_NOT_FOUND;

    for (size_t i = 0; i < ARRAY_LEN(layouts) && status == TRAJD_ERR_NOT_FOUND; i++) {
        struct trajd_error other;
        status = open_with(files, layouts[i], path, index, &other);
        if (!status && !is_convincing(*index)) {
            second_best = *index;
            *index = NULL;
            status = TRAJD_ERR_NOT_FOUND;
        } else if (status && (i == 0 || status != TRAJD_ERR_NOT_FOUND)) {
            *error = other;
        }
    }
    if (status == TRAJD_ERR_NOT_FOUND && second_best) {
        *index = second_best;
        return TRAJD_OK;
    }
    trajd_index_destroy(&second_best);
    return status;
}

enum trajd_status cli_files_open(const struct cli_files *files, const char *layout,
                                 const char *path, struct trajd_index **index,
                                 struct trajd_error *error)
{
    return layout ? open_with(files, layout, path, index, error) : guess(files, path, index, error);
}
