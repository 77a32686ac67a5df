#include "clients/cli/files/cli_files.h"

#include "clients/cli/files/guess.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/paths.h"

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
                                        .color = files->color};
}

static enum trajd_status open_with(const struct cli_files *files, const char *layout,
                                   const char *path, bool is_probe, struct trajd_index **index,
                                   struct trajd_error *error)
{
    struct trajd_index_options options = cli_files_options(files, path);

    options.layout = layout;
    options.is_probe = is_probe;
    return trajd_index_open(&options, index, error);
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
                  : cli_guess(files, open_with, path, index, error);
}
