#include "clients/cli/preprocess/prep_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"

static enum trajd_status io_error(const char *path, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
}

enum trajd_status prep_path(char path[PREP_PATH_SIZE], const char *folder, const char *name,
                            const char *suffix, struct trajd_error *error)
{
    if (snprintf(path, PREP_PATH_SIZE, "%s/%s%s", folder, name, suffix) < PREP_PATH_SIZE)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, ENAMETOOLONG,
                           "%.200s...: the path is too long", path);
}

enum trajd_status prep_make_parents(const char *path, struct trajd_error *error)
{
    char above[PREP_PATH_SIZE];

    snprintf(above, sizeof above, "%s", path);
    for (char *slash = strchr(above + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(above, 0750) && errno != EEXIST)
            return io_error(above, error);
        *slash = '/';
    }
    return TRAJD_OK;
}

enum trajd_status prep_sync_parent(const char *path, struct trajd_error *error)
{
    char above[PREP_PATH_SIZE];
    int fd, failed;

    snprintf(above, sizeof above, "%s", path);
    if (strrchr(above, '/'))
        *strrchr(above, '/') = 0;
    fd = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    failed = fd < 0 || fsync(fd);
    if (fd >= 0)
        close(fd);
    return failed ? io_error(above, error) : TRAJD_OK;
}

static enum trajd_status put(const char *temporary, const char *path, struct trajd_error *error)
{
    if (rename(temporary, path))
        return io_error(path, error);
    return prep_sync_parent(path, error);
}

/* Opens a new file for writing. Removes the file of a killed run. */
static int create(const char *path)
{
    unlink(path);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
}

enum trajd_status prep_write(const char *path, const char *text, size_t length,
                             struct trajd_error *error)
{
    char temporary[PREP_PATH_SIZE];
    enum trajd_status status = prep_path(temporary, path, "", "", error);
    int fd, failed;

    if (status)
        return status;
    snprintf(temporary, sizeof temporary, "%.*s.new", (int)sizeof temporary - 8, path);
    if ((status = prep_make_parents(path, error)))
        return status;
    fd = create(temporary);
    failed = fd < 0 || write(fd, text, length) != (ssize_t)length || fsync(fd);
    if (failed)
        status = io_error(temporary, error);
    if (fd >= 0)
        close(fd);
    if (!status)
        status = put(temporary, path, error);
    if (status)
        unlink(temporary);
    return status;
}

static enum trajd_status sync_file(const char *path, struct trajd_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const int failed = fd < 0 || fsync(fd);

    if (fd >= 0)
        close(fd);
    return failed ? io_error(path, error) : TRAJD_OK;
}

enum trajd_status prep_publish(const char *from, const char *to, struct trajd_error *error)
{
    enum trajd_status status = prep_make_parents(to, error);

    if (!status)
        status = sync_file(from, error);
    return status ? status : put(from, to, error);
}

enum trajd_status prep_publish_new(const char *from, const char *to, bool *is_sure,
                                   struct trajd_error *error)
{
    enum trajd_status status = prep_make_parents(to, error);

    if (!status)
        status = sync_file(from, error);
    if (!status && trajd_file_rename_new(from, to, is_sure))
        status = io_error(to, error);
    return status ? status : prep_sync_parent(to, error);
}

/* Checks that `from` still leads to the file that was copied, and that it is unchanged. */
static enum trajd_status check_copied(const char *from, int in, const struct stat *before,
                                      struct trajd_error *error)
{
    struct stat after, named;

    if (fstat(in, &after) || lstat(from, &named))
        return io_error(from, error);
    if (named.st_ino == before->st_ino && named.st_dev == before->st_dev &&
        after.st_size == before->st_size && after.st_mtim.tv_sec == before->st_mtim.tv_sec &&
        after.st_mtim.tv_nsec == before->st_mtim.tv_nsec)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%s: changed while it was copied", from);
}

static enum trajd_status copy(const char *from, const char *to, struct trajd_error *error)
{
    const int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), out = in < 0 ? -1 : create(to);
    enum trajd_status status = in < 0    ? io_error(from, error)
                               : out < 0 ? io_error(to, error)
                                         : TRAJD_OK;
    struct stat before;
    ssize_t sent = 1;

    if (!status && fstat(in, &before))
        status = io_error(from, error);
    while (!status && sent) {
        sent = sendfile(out, in, NULL, 1 << 24);
        if (sent < 0)
            status = io_error(to, error);
    }
    if (!status && fsync(out))
        status = io_error(to, error);
    if (!status)
        status = check_copied(from, in, &before, error);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return status;
}

static enum trajd_status refuse_move(const char *from, struct trajd_error *error)
{
    const bool is_ours = errno != EACCES && errno != EPERM && errno != EROFS;
    return trajd_error_set(error, is_ours ? TRAJD_ERR_IO : TRAJD_ERR_UNSUPPORTED, errno, "%s: %s",
                           from, strerror(errno));
}

enum trajd_status prep_move(const char *from, const char *to, struct trajd_error *error)
{
    char temporary[PREP_PATH_SIZE];
    enum trajd_status status = prep_make_parents(to, error);

    if (status)
        return status;
    if (rename(from, to) == 0)
        return (status = prep_sync_parent(to, error)) ? status : prep_sync_parent(from, error);
    if (errno != EXDEV)
        return refuse_move(from, error);
    snprintf(temporary, sizeof temporary, "%.*s.new", (int)sizeof temporary - 8, to);
    status = copy(from, temporary, error);
    if (!status)
        status = put(temporary, to, error);
    if (status)
        unlink(temporary);
    if (!status && unlink(from))
        return refuse_move(from, error);
    return status;
}
