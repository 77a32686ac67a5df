/* Opens files, and refuses what only looks like one. */
#include "proto/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const char *name_kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a folder";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

static enum trajd_status status_of(int code)
{
    if (code == EMFILE || code == ENFILE)
        return TRAJD_ERR_SYSTEM;
    return code == ENOENT ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO;
}

enum trajd_status trajd_open_regular(const char *path, int *fd, struct trajd_error *error)
{
    struct stat about = {0};

    *fd = -1;
    if (stat(path, &about) == 0) {
        if (!S_ISREG(about.st_mode))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: %s, not a regular file", path,
                                   name_kind(about.st_mode));
        /* what another program has put there since must not block either */
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    }
    if (*fd >= 0)
        return TRAJD_OK;
    return trajd_error_set(error, status_of(errno), errno, "%s: %s", path, strerror(errno));
}
