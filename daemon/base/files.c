/* Reads whole files, and replaces them by a temporary file that is renamed. */
#include "daemon/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/digest.h"
#include "proto/regular_file.h"

enum { FIRST_READ_BYTES = 64 << 10 };

/* Reads to the end of the file or one byte beyond the limit. Returns 0 or an errno. */
static int read_to_end(int fd, size_t limit, char **data, size_t *length)
{
    size_t room = 0;

    for (ssize_t got = 1; got != 0 && *length <= limit; *length += (size_t)got) {
        if (*length == room) {
            const size_t more = room ? 2 * room : FIRST_READ_BYTES;
            char *larger = realloc(*data, (more < limit ? more : limit + 1) + 1);
            if (!larger)
                return ENOMEM;
            *data = larger;
            room = more < limit ? more : limit + 1;
        }
        do
            got = read(fd, *data + *length, room - *length);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return errno;
    }
    return 0;
}

enum trajd_status trajd_file_read_fd(int fd, const char *path, size_t limit, char **data,
                                     size_t *length, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    int code;

    *data = NULL;
    *length = 0;
    code = read_to_end(fd, limit, data, length);
    if (code == ENOMEM)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%s: no memory to read it", path);
    else if (code)
        status = trajd_error_set(error, TRAJD_ERR_IO, code, "%s: %s", path, strerror(code));
    else if (*length > limit)
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s: longer than %zu bytes", path, limit);
    if (status) {
        free(*data);
        *data = NULL;
    } else {
        (*data)[*length] = '\0';
    }
    return status;
}

enum trajd_status trajd_file_read(const char *path, size_t limit, char **data, size_t *length,
                                  struct trajd_error *error)
{
    int fd;
    enum trajd_status status = trajd_open_regular(path, &fd, error);

    *data = NULL;
    *length = 0;
    if (status)
        return status;
    status = trajd_file_read_fd(fd, path, limit, data, length, error);
    close(fd);
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

/* Closes the new file and renames it, unless `code` is an errno. */
static int end_replacement(struct trajd_file_replacement *replacement, const char *path, bool good,
                           int code)
{
    if (close(replacement->fd) && !code)
        code = errno;
    if (good && !code && rename(replacement->temporary, path) == 0)
        return 0;
    code = code ? code : errno;
    unlink(replacement->temporary);
    errno = code;
    return good ? -1 : 0;
}

int trajd_file_replace_end(struct trajd_file_replacement *replacement, const char *path, bool good)
{
    return end_replacement(replacement, path, good, good && fsync(replacement->fd) ? errno : 0);
}

struct seal {
    uint64_t magic, length, digest;
};

void *trajd_file_read_sealed(const char *path, uint64_t magic, size_t limit, size_t *length)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct seal seal = {0};
    struct stat about;
    char *data = NULL;

    *length = 0;
    /* read and not mapped: a bad disk is an error of read, but a signal where it is mapped */
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
        read(fd, &seal, sizeof seal) == sizeof seal)
        trajd_file_read_fd(fd, path, limit, &data, length, NULL);
    if (fd >= 0)
        close(fd);
    if (data && seal.magic == magic && seal.length == *length &&
        seal.digest == trajd_digest_of(data, *length))
        return data;
    free(data);
    return NULL;
}

int trajd_file_write_sealed(const char *path, uint64_t magic, const void *content, size_t length)
{
    const struct seal seal = {magic, length, trajd_digest_of(content, length)};
    struct trajd_file_replacement file;
    int code = 0;

    if (trajd_file_replace_begin(&file, path))
        return -1;
    if (trajd_file_write_all(file.fd, &seal, sizeof seal) ||
        trajd_file_write_all(file.fd, content, length))
        code = errno;
    /* not synced, which may take longer than all that the cache saves: the digest shows what a power
     * cut has left */
    return end_replacement(&file, path, true, code);
}

bool trajd_file_is_own(const struct stat *file)
{
    return S_ISREG(file->st_mode) && file->st_uid == geteuid() && file->st_nlink == 1;
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
