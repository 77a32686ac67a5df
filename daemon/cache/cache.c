/* Makes and destroys the row cache: its entries, its budget and its reader threads by
 * filesystem. */
#include "daemon/cache/cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache_internal.h"

#define MAX_READERS 1024u

/* ---- making and destroying ---- */

/* Finds the clock that filters each array. An entry has one set of kept rows, so all streams of an
 * array must agree on it. */
static enum trajd_status find_clocks(struct trajd_cache *cache, struct trajd_error *error)
{
    const struct trajd_index *index = cache->index;

    for (uint32_t d = 0; d < index->array_count; d++)
        cache->array_clock[d] = -1;
    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        int64_t *clock = &cache->array_clock[stream->array_index];
        for (uint32_t e = 0;
             *clock >= 0 && *clock != stream->clock_index && e < index->episode_count; e++) {
            const struct trajd_episode *episode = &index->episodes[e];
            if (!episode->quarantine &&
                episode->clocks[*clock].kept_rows != episode->clocks[stream->clock_index].kept_rows)
                return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                       "array %s has streams on the clocks %s and %s, which drop "
                                       "different rows of episode %s: one array needs one clock",
                                       index->arrays[stream->array_index].path,
                                       index->clocks[*clock].name,
                                       index->clocks[stream->clock_index].name, episode->id);
        }
        if (*clock < 0)
            *clock = stream->clock_index;
    }
    return TRAJD_OK;
}

static void prepare_entries(struct trajd_cache *cache)
{
    for (uint32_t entry = 0; entry < cache->entry_count; entry++) {
        struct entry *p = &cache->entries[entry];
        p->bytes = trajd_cache_footprint(trajd_cache_entry_row_bytes(cache, entry));
        p->heap_index = NO_ENTRY;
        p->first_use = p->last_prefetched = NO_USE;
    }
}

/* Returns the highest folder above a file that lies on the same filesystem, by which users know it.
 * It must be found before the filesystem hangs. */
static const char *find_mount(struct trajd_arena *arena, const char *path, dev_t device)
{
    char *real = realpath(path, NULL), *folder;
    struct stat parent;

    folder = trajd_arena_copy(arena, real ? real : path, strlen(real ? real : path));
    free(real);
    for (char *slash; folder && (slash = strrchr(folder, '/')) && folder[1];) {
        const char last = slash[slash == folder];
        slash[slash == folder] = '\0';
        if (stat(folder, &parent) == 0 && parent.st_dev == device)
            continue;
        slash[slash == folder] = last;
        break;
    }
    return folder;
}

/* Groups the files by filesystem, so that one filesystem that hangs does not block all readers. A
 * file that is missing is noticed when it is read. */
static void group_files(struct trajd_cache *cache)
{
    for (uint32_t i = 0; i < cache->index->file_count; i++) {
        const uint64_t device = cache->index->files[i].device;
        uint32_t f = 0;
        cache->files[i].fd = -1;
        while (f < cache->filesystem_count && cache->filesystems[f].device != device)
            f++;
        cache->files[i].filesystem = f;
        if (f < cache->filesystem_count)
            continue;
        cache->filesystems[f].device = device;
        cache->filesystems[f].mount =
            find_mount(&cache->arena, cache->index->files[i].path, (dev_t)device);
        for (int kind = 0; kind < QUEUE_COUNT; kind++)
            cache->filesystems[f].queues[kind] = (struct queue){NO_ENTRY, NO_ENTRY};
        cache->filesystem_count++;
    }
}

static enum trajd_status allocate_tables(struct trajd_cache *cache,
                                         const struct trajd_cache_options *options,
                                         struct trajd_error *error)
{
    const struct trajd_index *index = options->index;
    uint64_t entry_count = (uint64_t)index->episode_count * index->array_count * 2;
    struct trajd_arena *arena = &cache->arena;

    if (entry_count >= NO_ENTRY)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "the row cache would have %llu entries (at most 2^32)",
                               (unsigned long long)entry_count);
    cache->entry_count = (uint32_t)entry_count;
    cache->entries = trajd_arena_array(arena, entry_count, sizeof *cache->entries);
    cache->heap = trajd_arena_array(arena, entry_count, sizeof *cache->heap);
    cache->uses = trajd_arena_array(arena, TRAJD_CACHE_USES, sizeof *cache->uses);
    cache->array_clock = trajd_arena_array(arena, index->array_count, sizeof *cache->array_clock);
    cache->array_named =
        trajd_arena_array(arena, 2 * (uint64_t)index->array_count, sizeof *cache->array_named);
    cache->files = trajd_arena_array(arena, index->file_count, sizeof *cache->files);
    cache->open_files = trajd_arena_array(arena, index->file_count, sizeof *cache->open_files);
    cache->filesystems = trajd_arena_array(arena, index->file_count, sizeof *cache->filesystems);
    cache->readers = trajd_arena_array(arena, options->reader_count, sizeof *cache->readers);
    cache->heartbeats = trajd_arena_array(arena, options->reader_count, sizeof *cache->heartbeats);
    if (arena->is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory for the tables of the row cache");
    return TRAJD_OK;
}

enum trajd_status trajd_cache_create(const struct trajd_cache_options *options,
                                     struct trajd_cache **cache, struct trajd_error *error)
{
    struct trajd_cache *made;
    enum trajd_status status;

    *cache = NULL;
    if (options->reader_count < 1 || options->reader_count > MAX_READERS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%u reader threads: expected 1 to %u",
                               options->reader_count, MAX_READERS);
    made = calloc(1, sizeof *made);
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the row cache");
    made->arena.limit_bytes = SIZE_MAX / 2;
    made->index = options->index;
    made->budget_bytes = made->stats.budget_bytes = options->budget_bytes;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work, NULL);
    trajd_heartbeat_init_condition(&made->done);
    status = allocate_tables(made, options, error);
    if (!status)
        status = find_clocks(made, error);
    if (!status) {
        prepare_entries(made);
        group_files(made);
        /* With one filesystem, no readers need to be reserved for another. */
        made->reads_per_filesystem =
            made->filesystem_count < 2 ? options->reader_count : (options->reader_count + 1) / 2;
        status = trajd_cache_start_readers(made, options->reader_count, error);
    }
    if (status)
        trajd_cache_destroy(&made);
    *cache = made;
    return status;
}

static void stop_readers(struct trajd_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    cache->stopping = true;
    pthread_cond_broadcast(&cache->work);
    pthread_mutex_unlock(&cache->lock);
    trajd_heartbeat_wait(); /* joining waits for reads under way */
    for (uint32_t i = 0; i < cache->reader_count; i++)
        pthread_join(cache->readers[i], NULL);
    trajd_heartbeat_resume();
}

void trajd_cache_destroy(struct trajd_cache **cache)
{
    struct trajd_cache *made = *cache;

    *cache = NULL;
    if (!made)
        return;
    stop_readers(made);
    for (uint32_t i = 0; made->entries && i < made->entry_count; i++) {
        trajd_cache_free(made->entries[i].rows, made->entries[i].bytes);
        free(made->entries[i].failure);
    }
    for (uint32_t i = 0; made->filesystem_count && i < made->index->file_count; i++)
        if (made->files[i].fd >= 0)
            close(made->files[i].fd);
    pthread_cond_destroy(&made->done);
    pthread_cond_destroy(&made->work);
    pthread_mutex_destroy(&made->lock);
    trajd_arena_free(&made->arena);
    free(made);
}
