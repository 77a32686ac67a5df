#include "clients/cli/resample/convert_io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error)
{
    const struct trajd_file_stat found = trajd_file_stat_from(now);

    if (trajd_file_stat_is_same(&file->stat, &found))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: changed since it was indexed (size, times or inode differ)",
                           file->path);
}

enum trajd_status convert_pwrite(int fd, const void *data, size_t size, uint64_t offset,
                                 const char *path, struct trajd_error *error)
{
    const uint8_t *next = data;

    while (size) {
        const ssize_t done = pwrite(fd, next, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return trajd_error_set(error, TRAJD_ERR_IO, done < 0 ? errno : EIO, "%s: %s", path,
                                   strerror(done < 0 ? errno : EIO));
        next += done;
        offset += (uint64_t)done;
        size -= (size_t)done;
    }
    return TRAJD_OK;
}
