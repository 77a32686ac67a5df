/* Paths, digests, and renames that survive a crash. */
#include "clients/cli/preprocess/prep_place.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "daemon/base/memory.h"

enum { BLOCK_BYTES = 1 << 20 };

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

static enum trajd_status sync_folder(const char *path, struct trajd_error *error)
{
    return trajd_file_sync_folder(path) ? io_error(path, error) : TRAJD_OK;
}

/* Begins to replace `path`, over the temporary file of a killed run. Its mode is that of the data:
 * the umask decides. */
static enum trajd_status begin_replacement(struct trajd_file_replacement *file, const char *path,
                                           struct trajd_error *error)
{
    return trajd_file_replace_begin_as(file, path, ".new", 0666) ? io_error(file->temporary, error)
                                                                 : TRAJD_OK;
}

/* Gives the new file its name, or removes it where `status` is an error. */
static enum trajd_status end_replacement(struct trajd_file_replacement *file, const char *path,
                                         enum trajd_status status, struct trajd_error *error)
{
    if (trajd_file_replace_end(file, path, !status))
        return io_error(path, error);
    return status ? status : sync_folder(path, error);
}

enum trajd_status prep_write(const char *path, const char *text, size_t length,
                             struct trajd_error *error)
{
    struct trajd_file_replacement file;
    enum trajd_status status = prep_make_parents(path, error);

    if (status || (status = begin_replacement(&file, path, error)))
        return status;
    if (trajd_file_write_all(file.fd, text, length))
        status = io_error(file.temporary, error);
    return end_replacement(&file, path, status, error);
}

static enum trajd_status sync_file(const char *path, struct trajd_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const int failed = fd < 0 || fsync(fd);

    if (fd >= 0)
        close(fd);
    return failed ? io_error(path, error) : TRAJD_OK;
}

enum trajd_status prep_publish(const char *from, const char *to, bool *is_sure,
                               struct trajd_error *error)
{
    enum trajd_status status = prep_make_parents(to, error);

    if (!status)
        status = sync_file(from, error);
    if (!status && (is_sure ? trajd_file_rename_new(from, to, is_sure) : rename(from, to)))
        status = io_error(to, error);
    return status ? status : sync_folder(to, error);
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
        after.st_mtim.tv_nsec == before->st_mtim.tv_nsec &&
        after.st_ctim.tv_sec == before->st_ctim.tv_sec &&
        after.st_ctim.tv_nsec == before->st_ctim.tv_nsec)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%s: changed while it was copied", from);
}

/* The new file is synced before the check, so that the check is the last step before the rename. */
static enum trajd_status copy_contents(const char *from, int in, int out, const char *to,
                                       struct trajd_error *error)
{
    struct stat before;
    ssize_t sent = 1;

    if (fstat(in, &before))
        return io_error(from, error);
    while (sent) {
        sent = sendfile(out, in, NULL, 1 << 24);
        if (sent < 0)
            return io_error(to, error);
    }
    return fsync(out) ? io_error(to, error) : check_copied(from, in, &before, error);
}

static enum trajd_status copy(const char *from, const char *to, struct trajd_error *error)
{
    const int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct trajd_file_replacement file;
    enum trajd_status status;

    if (in < 0)
        return io_error(from, error);
    status = begin_replacement(&file, to, error);
    if (!status) {
        status = copy_contents(from, in, file.fd, file.temporary, error);
        status = end_replacement(&file, to, status, error);
    }
    close(in);
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
    enum trajd_status status = prep_make_parents(to, error);

    if (status)
        return status;
    if (rename(from, to) == 0)
        return (status = sync_folder(to, error)) ? status : sync_folder(from, error);
    if (errno != EXDEV)
        return refuse_move(from, error);
    status = copy(from, to, error);
    if (!status && unlink(from))
        return refuse_move(from, error);
    return status;
}

/* ---- digests ---- */

static void finish(crypto_hash_sha256_state *state, char digest[PREP_DIGEST_SIZE])
{
    unsigned char bytes[crypto_hash_sha256_BYTES];

    crypto_hash_sha256_final(state, bytes);
    sodium_bin2hex(digest, PREP_DIGEST_SIZE, bytes, sizeof bytes);
}

void prep_digest_bytes(const void *bytes, size_t size, char digest[PREP_DIGEST_SIZE])
{
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, bytes, size);
    finish(&state, digest);
}

enum trajd_status prep_digest_file(int fd, const char *name, char digest[PREP_DIGEST_SIZE],
                                   struct trajd_error *error)
{
    unsigned char *block = trajd_memory_or_exit(malloc(BLOCK_BYTES));
    crypto_hash_sha256_state state;
    ssize_t got = 1;

    crypto_hash_sha256_init(&state);
    for (off_t at = 0; got; at += got) {
        got = pread(fd, block, BLOCK_BYTES, at);
        if (got < 0) {
            free(block);
            return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", name, strerror(errno));
        }
        crypto_hash_sha256_update(&state, block, (unsigned long long)got);
    }
    free(block);
    finish(&state, digest);
    return TRAJD_OK;
}
