/* Takes and releases the lock file of a runtime directory. */
#include "daemon/server/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static long read_holder(int fd)
{
    char text[32];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    return strtol(text, NULL, 10);
}

static enum trajd_status write_holder(int fd, const char *path, struct trajd_error *error)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    return TRAJD_OK;
}

enum trajd_status trajd_lock_take(const char *directory, int *fd, struct trajd_error *error)
{
    char path[PATH_MAX];
    *fd = -1;
    if (snprintf(path, sizeof path, "%s/lock", directory) >= (int)sizeof path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG, "%s: the path is too long",
                               directory);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    enum trajd_status status;
    if (flock(lock, LOCK_EX | LOCK_NB) != 0)
        status =
            errno == EWOULDBLOCK
                ? trajd_error_set(error, TRAJD_ERR_BUSY, errno,
                                  "%s: the daemon with pid %ld holds this lock", path,
                                  read_holder(lock))
                : trajd_error_set(error, TRAJD_ERR_SYSTEM, errno, "%s: %s", path, strerror(errno));
    else
        status = write_holder(lock, path, error);
    if (status) {
        close(lock);
        return status;
    }
    *fd = lock;
    return TRAJD_OK;
}

void trajd_lock_release(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
