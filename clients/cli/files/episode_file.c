#include "clients/cli/files/episode_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum trajd_status episode_file_open(struct episode_file *file, const struct trajd_episode *episode,
                                    struct trajd_error *error)
{
    const char *path = file->index->files[episode->file_index].path;

    if (file->is_open && file->file_index == episode->file_index)
        return TRAJD_OK;
    episode_file_close(file);
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
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
