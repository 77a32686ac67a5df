/* Creates and locks OUTPUT.partial, and renames it when it is complete. */
#include "clients/cli/resample/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"

enum trajd_status output_file_name(struct output_file *file, const char *path, bool force,
                                   struct trajd_error *error)
{
    *file = (struct output_file){.force = force, .fd = -1};
    if (!path || !*path)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "name an output");
    if (strlen(path) + sizeof ".partial" > sizeof file->partial)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "the output's path is too long");
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->partial, sizeof file->partial, "%s.partial", path);
    return TRAJD_OK;
}

/* Opens the partial file with these flags, and locks it. */
static enum trajd_status take(struct output_file *file, int flags, struct trajd_error *error)
{
    struct stat found;
    enum trajd_status status = TRAJD_OK;

    file->fd = open(file->partial, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0666);
    if (file->fd < 0)
        return trajd_error_set(
            error, errno == ENOENT || errno == ENOTDIR ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO, errno,
            "%s: %s", file->partial, strerror(errno));
    if (fstat(file->fd, &found) || !trajd_file_is_own(&found))
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "%s: exists, and is not a regular file of this user with a single "
                                 "name: remove it, or choose another output",
                                 file->partial);
    else if (flock(file->fd, LOCK_EX | LOCK_NB) || output_file_check_name(file, NULL))
        status = trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%s: another run is writing it",
                                 file->partial);
    if (status) {
        close(file->fd);
        file->fd = -1;
    } else {
        file->was_there |= found.st_size > 0;
    }
    return status;
}

/* The file of a killed run is not written to, because another process may have it open. Its lock is
 * held until the new file is locked. */
enum trajd_status output_file_open(struct output_file *file, struct trajd_error *error)
{
    enum trajd_status status = take(file, O_CREAT | O_EXCL, error);
    int earlier;

    if (status != TRAJD_ERR_IO || error->foreign_code != EEXIST || (status = take(file, 0, error)))
        return status;
    earlier = file->fd;
    unlink(file->partial);
    status = take(file, O_CREAT | O_EXCL, error);
    close(earlier);
    return status;
}

static bool leads_to(const char *path, int fd)
{
    struct stat held, named;

    return !fstat(fd, &held) && !lstat(path, &named) && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

enum trajd_status output_file_check_name(const struct output_file *file, struct trajd_error *error)
{
    if (leads_to(file->partial, file->fd))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_IO, 0,
                           "%s: was removed or replaced while it was written", file->partial);
}

/* EINVAL: the filesystem has no sync of folders. */
enum trajd_status output_file_publish(struct output_file *file, bool *is_sure,
                                      struct trajd_error *error)
{
    *is_sure = true;
    if (file->force ? rename(file->partial, file->path)
                    : trajd_file_rename_new(file->partial, file->path, is_sure))
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", file->path, strerror(errno));
    if (!leads_to(file->path, file->fd))
        return trajd_error_set(error, TRAJD_ERR_IO, 0,
                               "%s: another process put its own file in the place of this one",
                               file->path);
    close(file->fd);
    file->fd = -1;
    if (trajd_file_sync_folder(file->path) && errno != EINVAL)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", file->path, strerror(errno));
    return TRAJD_OK;
}

void output_file_close(struct output_file *file)
{
    if (file->fd < 0)
        return;
    if (!output_file_check_name(file, NULL))
        unlink(file->partial);
    close(file->fd);
    file->fd = -1;
}
