/* Descriptors of the index's files. A file is opened when it is first read, stays open up to a
 * limit, and is checked against the index at every use. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cache/cache_internal.h"

#define MAX_OPEN_FILES 256u

static void close_file(struct trajd_cache *cache, struct open_file *file)
{
    const uint32_t last = cache->open_files[--cache->open_count];

    close(file->fd);
    file->fd = -1;
    cache->open_files[file->place] = last;
    cache->files[last].place = file->place;
}

/* Closes files that no reader uses, longest unused first, until one more may be opened. The caller
 * holds the lock. */
static void close_unused(struct trajd_cache *cache)
{
    while (cache->open_count >= MAX_OPEN_FILES) {
        struct open_file *oldest = NULL;
        for (uint32_t i = 0; i < cache->open_count; i++) {
            struct open_file *file = &cache->files[cache->open_files[i]];
            if (file->users == 0 && (!oldest || file->last_use < oldest->last_use))
                oldest = file;
        }
        if (!oldest)
            return; /* every open file is in use; at most one file per reader can be */
        close_file(cache, oldest);
    }
}

/* Returns the descriptor of an open file and counts one more user, else -1. The caller holds the
 * lock. */
static int take_open(struct trajd_cache *cache, uint32_t file_index)
{
    struct open_file *file = &cache->files[file_index];

    if (file->fd < 0)
        return -1;
    file->users++;
    file->last_use = ++cache->file_tick;
    return file->fd;
}

/* Puts a descriptor that this thread opened into the table. If another thread was faster, closes it
 * and returns the other one. */
static int publish(struct trajd_cache *cache, uint32_t file_index, int opened)
{
    struct open_file *file = &cache->files[file_index];

    pthread_mutex_lock(&cache->lock);
    if (file->fd < 0) {
        close_unused(cache);
        file->fd = opened;
        file->users = 0;
        file->place = cache->open_count;
        cache->open_files[cache->open_count++] = file_index;
        opened = -1;
    }
    int fd = take_open(cache, file_index);
    pthread_mutex_unlock(&cache->lock);
    if (opened >= 0)
        close(opened);
    return fd;
}

static enum trajd_status check_unchanged(const struct trajd_index_file *file, int fd,
                                         struct trajd_error *error)
{
    struct trajd_file_stat found;
    struct stat now;

    if (fstat(fd, &now) != 0) {
        int code = errno;
        return trajd_error_set(error, TRAJD_ERR_IO, code, "fstat: %s", strerror(code));
    }
    found = trajd_file_stat_from(&now);
    if (!trajd_file_stat_is_same(&file->stat, &found))
        return trajd_error_set(
            error, TRAJD_ERR_IO, 0,
            "the file changed while it was in use: its size, a time or its inode "
            "differs from the index");
    return TRAJD_OK;
}

enum trajd_status trajd_cache_file_acquire(struct trajd_cache *cache, uint32_t file_index, int *fd,
                                           struct trajd_error *error)
{
    const struct trajd_index_file *file = &cache->index->files[file_index];
    enum trajd_status status;

    pthread_mutex_lock(&cache->lock);
    *fd = take_open(cache, file_index);
    pthread_mutex_unlock(&cache->lock);
    if (*fd < 0) { /* open without the lock: on a dead mount open does not return */
        int opened = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (opened < 0) {
            int code = errno;
            return trajd_error_set(error, TRAJD_ERR_IO, code, "open: %s", strerror(code));
        }
        *fd = publish(cache, file_index, opened);
    }
    status = check_unchanged(file, *fd, error);
    if (status)
        trajd_cache_file_release(cache, file_index, *fd, true);
    return status;
}

void trajd_cache_file_release(struct trajd_cache *cache, uint32_t file_index, int fd,
                              bool is_broken)
{
    struct open_file *file = &cache->files[file_index];

    pthread_mutex_lock(&cache->lock);
    file->users--;
    /* with other users, the last one to fail closes it */
    if (is_broken && file->users == 0 && file->fd == fd)
        close_file(cache, file);
    pthread_mutex_unlock(&cache->lock);
}

uint32_t trajd_cache_filesystem_count(const struct trajd_cache *cache)
{
    return cache->filesystem_count;
}

uint32_t trajd_cache_filesystem(const struct trajd_cache *cache, uint32_t file_index)
{
    return cache->files[file_index].filesystem;
}
