#include "daemon/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum trajd_status trajd_file_read(const char *path, size_t limit, char **data, size_t *length,
                                  struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    FILE *file = fopen(path, "rbe");

    *data = NULL;
    *length = 0;
    if (!file)
        return trajd_error_set(error, errno == ENOENT ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO, errno,
                               "%s: %s", path, strerror(errno));
    *data = malloc(limit + 1);
    if (!*data)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory to read it", path);
    else
        *length = fread(*data, 1, limit + 1, file);
    if (!status && ferror(file))
        status = trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    else if (!status && *length > limit)
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: longer than %zu bytes", path, limit);
    fclose(file);
    if (status) {
        free(*data);
        *data = NULL;
    } else {
        (*data)[*length] = '\0';
    }
    return status;
}

int trajd_file_write_all(int fd, const void *data, size_t length)
{
    const char *next = data;

    while (length > 0) {
        const ssize_t written = write(fd, next, length);
        if (written < 0 && errno != EINTR)
            return -1;
        next += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

static int name_temporary(struct trajd_file_replacement *replacement, const char *path,
                          const char *suffix)
{
    const int length =
        snprintf(replacement->temporary, sizeof replacement->temporary, "%s%s", path, suffix);

    if ((size_t)length < sizeof replacement->temporary)
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}

int trajd_file_replace_begin(struct trajd_file_replacement *replacement, const char *path)
{
    if (name_temporary(replacement, path, ".XXXXXX"))
        return -1;
    replacement->fd = mkostemp(replacement->temporary, O_CLOEXEC);
    return replacement->fd < 0 ? -1 : 0;
}

int trajd_file_replace_begin_as(struct trajd_file_replacement *replacement, const char *path,
                                const char *suffix, mode_t mode)
{
    if (name_temporary(replacement, path, suffix))
        return -1;
    unlink(replacement->temporary);
    replacement->fd =
        open(replacement->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    return replacement->fd < 0 ? -1 : 0;
}

int trajd_file_replace_end(struct trajd_file_replacement *replacement, const char *path, bool good)
{
    int code = good && fsync(replacement->fd) ? errno : 0;

    if (close(replacement->fd) && !code)
        code = errno;
    if (good && !code && rename(replacement->temporary, path) == 0)
        return 0;
    code = code ? code : errno;
    unlink(replacement->temporary);
    errno = code;
    return good ? -1 : 0;
}

int trajd_file_sync_folder(const char *path)
{
    char *folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    int fd, code;

    if (!folder)
        return -1;
    if (slash)
        slash[slash == folder] = '\0';
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0)
        return -1;
    code = fsync(fd) ? errno : 0;
    close(fd);
    errno = code;
    return code ? -1 : 0;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat left, right;

    return lstat(a, &left) == 0 && lstat(b, &right) == 0 && left.st_ino == right.st_ino &&
           left.st_dev == right.st_dev;
}

/* A server may answer EEXIST for the link that it has just made, when its first answer was lost. */
static int move_by_link(const char *from, const char *to)
{
    if (link(from, to) && (errno != EEXIST || !is_same_file(from, to)))
        return -1;
    return unlink(from);
}

int trajd_file_rename_new(const char *from, const char *to, bool *is_sure)
{
    struct stat there;

    *is_sure = true;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    if (move_by_link(from, to) == 0)
        return 0;
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP && errno != EMLINK)
        return -1;
    *is_sure = false;
    if (lstat(to, &there) == 0) {
        errno = EEXIST;
        return -1;
    }
    return errno == ENOENT ? rename(from, to) : -1;
}
