/* What the subcommands that read files share: the programs and layouts of this installation, and
 * the choice of a layout. */
#ifndef TRAJD_CLI_FILES_CLI_FILES_H
#define TRAJD_CLI_FILES_CLI_FILES_H

#include "daemon/index/index.h"

enum { CLI_PATH_SIZE = 4096, CLI_FILE_TIMEOUT_MS = 60000 };

struct cli_files {
    char layouts[CLI_PATH_SIZE];
    char helper[CLI_PATH_SIZE];
    uint32_t child_count;
    struct trajd_rate assumed_rate; /* replaces the layout's default; num 0: none */
    enum trajd_image_color color;   /* of encoded frames; TRAJD_COLOR_DEPTH: as the layout says */
    const char *media_folder;       /* of packed video; NULL: the folder of each HDF5 file */
};

/* Finds the programs and layouts of this installation. TRAJD_ERR_NOT_FOUND: one is missing; the
 * message names it. */
enum trajd_status cli_files_find(struct cli_files *files, struct trajd_error *error);

/* Returns options for an index of the path, without a layout. They borrow from *files. */
struct trajd_index_options cli_files_options(const struct cli_files *files, const char *path);

/* Indexes a file or folder with a layout's name or path. NULL: with the first shipped layout that
 * keeps an episode and is plausible. TRAJD_ERR_DATA: a layout fits, but the content breaks its
 * rules. TRAJD_ERR_ARGUMENT: also for a YAML file, such as a configuration. The caller destroys
 * *index. */
enum trajd_status cli_files_open(const struct cli_files *files, const char *layout,
                                 const char *path, struct trajd_index **index,
                                 struct trajd_error *error);

/* The file of an episode, while the episodes of an index are read one after another: they are in the
 * order of the files, so one file is open at a time. */
struct episode_file {
    const struct trajd_index *index;
    bool is_open;
    uint32_t file_index;
    int fd;
};

/* Opens the file of an episode unless it is open already; then `fd` is its descriptor. TRAJD_ERR_IO:
 * it cannot be opened. */
enum trajd_status episode_file_open(struct episode_file *file, const struct trajd_episode *episode,
                                    struct trajd_error *error);
void episode_file_close(struct episode_file *file);

#endif
