/* Loads everything that fits before it is used, in the order of the files, and keeps their
 * descriptors. */
#include "daemon/cache/cache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"

/* ---- descriptors: a file is opened when it is first read, stays open up to a limit, and is
 * checked against the index at every use ---- */

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

    trajd_heartbeat_wait();
    const int result = fstat(fd, &now), code = errno;
    trajd_heartbeat_resume();
    if (result != 0)
        return trajd_error_set(error, TRAJD_ERR_IO, code, "fstat: %s", strerror(code));
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
        trajd_heartbeat_wait();
        const int opened = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK),
                  code = errno;
        trajd_heartbeat_resume();
        if (opened < 0)
            return trajd_error_set(error, TRAJD_ERR_IO, code, "open: %s", strerror(code));
        posix_fadvise(opened, 0, 0,
                      POSIX_FADV_SEQUENTIAL); /* doubles what the kernel reads ahead */
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

const char *trajd_cache_mount(const struct trajd_cache *cache, uint32_t file_index)
{
    return cache->filesystems[cache->files[file_index].filesystem].mount;
}

/* ---- loading ahead ---- */

struct candidate {
    uint32_t file_index;
    uint32_t entry;
    struct place place;
};

static int by_place(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;

    if (left->file_index != right->file_index)
        return left->file_index < right->file_index ? -1 : 1;
    if (left->place.begin != right->place.begin)
        return left->place.begin < right->place.begin ? -1 : 1;
    return (left->entry > right->entry) - (left->entry < right->entry);
}

static uint64_t list_candidates(const struct trajd_cache *cache,
                                const struct trajd_selection *selection,
                                const uint32_t *episode_indexes, uint32_t episode_count,
                                struct candidate *candidates)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < episode_count; i++) {
        uint32_t e = episode_indexes ? episode_indexes[i] : i;
        if (e >= cache->index->episode_count || cache->index->episodes[e].quarantine)
            continue;
        for (uint32_t k = 0; k < selection->array_count; k++) {
            uint32_t entry = trajd_cache_entry(cache, selection, k, e);
            if (cache->entries[entry].bytes) /* constant, so no lock is needed */
                candidates[count++] =
                    (struct candidate){cache->index->episodes[e].file_index, entry,
                                       trajd_cache_find_place(cache, entry)};
        }
    }
    qsort(candidates, count, sizeof *candidates, by_place);
    return count;
}

/* Queues the entries that fit beside the resident ones, without evicting any. The caller holds the
 * lock. */
static void enqueue_fitting(struct trajd_cache *cache, const struct candidate *candidates,
                            uint64_t count)
{
    uint64_t room = cache->budget_bytes - cache->stats.resident_bytes;

    for (uint64_t i = 0; i < count; i++) {
        struct entry *p = &cache->entries[candidates[i].entry];
        if (p->state != ENTRY_ABSENT || p->bytes > room)
            continue;
        room -= p->bytes;
        p->place = candidates[i].place;
        trajd_cache_enqueue(cache, QUEUE_FILL, candidates[i].entry);
    }
    pthread_cond_broadcast(&cache->work);
}

enum trajd_status trajd_cache_fill(struct trajd_cache *cache,
                                   const struct trajd_selection *selection,
                                   const uint32_t *episode_indexes, uint32_t episode_count,
                                   bool *complete, struct trajd_error *error)
{
    uint32_t episodes = episode_indexes ? episode_count : cache->index->episode_count;
    struct candidate *candidates =
        calloc((uint64_t)episodes * selection->array_count + 1, sizeof *candidates);
    enum trajd_status status;
    uint64_t count;

    *complete = false;
    if (!candidates)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory to sort %u episodes by their place in the files",
                               episodes);
    count = list_candidates(cache, selection, episode_indexes, episodes, candidates);
    pthread_mutex_lock(&cache->lock);
    trajd_cache_name_arrays(cache, selection);
    enqueue_fitting(cache, candidates, count);
    for (uint64_t i = 0; i < count; i++) {
        const struct entry *p = &cache->entries[candidates[i].entry];
        while ((p->queued[QUEUE_FILL] || p->state == ENTRY_LOADING) &&
               !trajd_heartbeat_is_cancelled())
            trajd_heartbeat_wait_for(&cache->done, &cache->lock);
    }
    *complete = true;
    for (uint64_t i = 0; i < count; i++)
        *complete = *complete && cache->entries[candidates[i].entry].state == ENTRY_RESIDENT;
    pthread_mutex_unlock(&cache->lock);
    free(candidates);
    status = trajd_heartbeat_check(error);
    *complete = *complete && !status;
    return status;
}
