/* The file of an episode, while the episodes of an index are read one after another: they are in the
 * order of the files, so one file is open at a time. */
#ifndef TRAJD_CLI_FILES_EPISODE_FILE_H
#define TRAJD_CLI_FILES_EPISODE_FILE_H

#include "daemon/index/index.h"

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
