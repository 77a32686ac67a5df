#include "daemon/cache/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache_internal.h"

#define ROW_ALIGNMENT 64u
/* from here on a mapping of its own, which goes back to the system when freed */
#define MAP_BYTES (UINT64_C(256) << 10)
#define PAGE_BYTES UINT64_C(4096)
#define HUGE_PAGE_BYTES (UINT64_C(4) << 20)
#define MAX_USES (1u << 18)
#define MAX_READERS 1024u

/* ---- memory ---- */

/* What an allocation of so many bytes really takes, which is what the budget counts. */
static uint64_t footprint(uint64_t bytes)
{
    uint64_t unit = bytes < MAP_BYTES ? ROW_ALIGNMENT : PAGE_BYTES;

    return bytes > UINT64_MAX - unit ? UINT64_MAX - unit + 1 : (bytes + unit - 1) / unit * unit;
}

void *trajd_cache_allocate(uint64_t bytes)
{
    void *rows;

    if (bytes < MAP_BYTES)
        return aligned_alloc(ROW_ALIGNMENT, bytes);
    rows = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_PAGE_BYTES)
        madvise(rows, bytes, MADV_HUGEPAGE); /* a hint: fewer faults while reading */
    return rows;
}

void trajd_cache_free(void *rows, uint64_t bytes)
{
    if (rows && bytes >= MAP_BYTES)
        munmap(rows, bytes);
    else
        free(rows);
}

/* ---- entries ---- */

const struct trajd_array *trajd_cache_entry_array(const struct trajd_cache *cache, uint32_t entry)
{
    return &cache->index->episodes[trajd_cache_entry_episode(cache, entry)]
                .extents[trajd_cache_entry_array_index(cache, entry)];
}

const uint32_t *trajd_cache_entry_rows(const struct trajd_cache *cache, uint32_t entry,
                                       uint64_t *count)
{
    int64_t clock_index = cache->array_clock[trajd_cache_entry_array_index(cache, entry)];
    uint64_t rows = trajd_array_row_count(trajd_cache_entry_array(cache, entry));
    const struct trajd_episode_clock *clock;
    uint64_t low = 0, high;

    *count = rows;
    if (clock_index < 0)
        return NULL;
    clock = &cache->index->episodes[trajd_cache_entry_episode(cache, entry)].clocks[clock_index];
    if (!clock->kept_rows)
        return NULL;
    /* how many of the kept rows the array has */
    for (high = (uint64_t)clock->row_count; low < high;) {
        uint64_t middle = low + (high - low) / 2;
        if (clock->kept_rows[middle] < rows)
            low = middle + 1;
        else
            high = middle;
    }
    *count = low;
    return clock->kept_rows;
}

void trajd_cache_enqueue(struct trajd_cache *cache, enum queue_kind kind, uint32_t entry)
{
    struct entry *p = &cache->entries[entry];
    uint32_t file_index =
        cache->index->episodes[trajd_cache_entry_episode(cache, entry)].file_index;
    struct queue *queue = &cache->filesystems[cache->files[file_index].filesystem].queues[kind];

    if (p->queued[kind])
        return;
    p->queued[kind] = true;
    p->next[kind] = NO_ENTRY;
    if (queue->last == NO_ENTRY)
        queue->first = entry;
    else
        cache->entries[queue->last].next[kind] = entry;
    queue->last = entry;
    pthread_cond_signal(&cache->work);
}

/* ---- making and destroying ---- */

/* Which clock filters each dataset. One entry has one set of kept rows, so streams of a dataset
 * must agree on them. */
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
                return trajd_error_set(
                    error, TRAJD_ERR_UNSUPPORTED, 0,
                    "dataset %s is on the clocks %s and %s, which drop different rows of %s",
                    index->arrays[stream->array_index].path, index->clocks[*clock].name,
                    index->clocks[stream->clock_index].name, episode->id);
        }
        if (*clock < 0)
            *clock = stream->clock_index;
    }
    return TRAJD_OK;
}

static uint64_t row_bytes_of(const struct trajd_cache *cache, uint32_t entry)
{
    const struct trajd_array *array = trajd_cache_entry_array(cache, entry);
    uint64_t count, bytes;

    if (cache->index->episodes[trajd_cache_entry_episode(cache, entry)].quarantine)
        return 0;
    trajd_cache_entry_rows(cache, entry, &count);
    bytes = count * trajd_array_row_bytes(array);
    return trajd_cache_entry_converts(array, entry) ? bytes / 2 : bytes;
}

uint64_t trajd_cache_entry_bytes(const struct trajd_cache *cache,
                                 const struct trajd_selection *selection, uint32_t k,
                                 uint32_t episode_index)
{
    return row_bytes_of(cache, trajd_cache_entry(cache, selection, k, episode_index));
}

static void prepare_entries(struct trajd_cache *cache)
{
    for (uint32_t entry = 0; entry < cache->entry_count; entry++) {
        struct entry *p = &cache->entries[entry];
        p->bytes = footprint(row_bytes_of(cache, entry));
        p->heap_index = NO_ENTRY;
        p->first_use = p->last_prefetched = NO_USE;
    }
}

/* Files by filesystem, so that one that hangs does not take all readers. A file that is gone is
 * found when it is read. */
static void group_files(struct trajd_cache *cache)
{
    for (uint32_t i = 0; i < cache->index->file_count; i++) {
        struct stat file_stat = {0};
        uint32_t f = 0;
        cache->files[i].fd = -1;
        if (stat(cache->index->files[i].path, &file_stat) != 0)
            file_stat.st_dev = 0;
        while (f < cache->filesystem_count && cache->filesystems[f].device != file_stat.st_dev)
            f++;
        cache->files[i].filesystem = f;
        if (f < cache->filesystem_count)
            continue;
        cache->filesystems[f].device = file_stat.st_dev;
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
    uint64_t uses = entry_count * 16 + 64;

    if (entry_count >= NO_ENTRY)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%llu pieces (at most 2^32)",
                               (unsigned long long)entry_count);
    cache->entry_count = (uint32_t)entry_count;
    cache->use_capacity = uses < MAX_USES ? (uint32_t)uses : MAX_USES;
    cache->entries = calloc(entry_count + 1, sizeof *cache->entries);
    cache->heap = calloc(entry_count + 1, sizeof *cache->heap);
    cache->uses = malloc(cache->use_capacity * sizeof *cache->uses);
    cache->array_clock = calloc(index->array_count + 1, sizeof *cache->array_clock);
    cache->array_named = calloc(2 * (size_t)index->array_count + 1, sizeof *cache->array_named);
    cache->files = calloc(index->file_count + 1, sizeof *cache->files);
    cache->filesystems = calloc((size_t)index->file_count + 1, sizeof *cache->filesystems);
    cache->readers = calloc(options->reader_count, sizeof *cache->readers);
    if (!cache->entries || !cache->heap || !cache->uses || !cache->array_clock ||
        !cache->array_named || !cache->files || !cache->filesystems || !cache->readers)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the store's tables");
    for (uint32_t i = 0; i < cache->use_capacity; i++)
        cache->uses[i].entry = NO_ENTRY;
    return TRAJD_OK;
}

enum trajd_status trajd_cache_create(const struct trajd_cache_options *options,
                                     struct trajd_cache **cache, struct trajd_error *error)
{
    struct trajd_cache *made;
    enum trajd_status status;

    *cache = NULL;
    if (options->reader_count < 1 || options->reader_count > MAX_READERS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%u reader threads (1..%u)",
                               options->reader_count, MAX_READERS);
    made = calloc(1, sizeof *made);
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the store");
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
        /* With a single filesystem there is nobody to keep readers free for. */
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
    trajd_heartbeat_wait(); /* for what they are reading */
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
    free(made->entries);
    free(made->heap);
    free(made->uses);
    free(made->array_clock);
    free(made->array_named);
    free(made->files);
    free(made->filesystems);
    free(made->readers);
    free(made);
}

/* ---- calls ---- */

void trajd_cache_name_arrays(struct trajd_cache *cache, const struct trajd_selection *selection)
{
    for (uint32_t k = 0; k < selection->array_count; k++) {
        bool *named = &cache->array_named[trajd_cache_entry(cache, selection, k, 0)];
        for (uint32_t e = 0; !*named && e < cache->index->episode_count; e++)
            cache->stats.total_bytes +=
                cache->entries[trajd_cache_entry(cache, selection, k, e)].bytes;
        *named = true;
    }
}

static bool is_kept(const struct trajd_cache *cache, uint32_t episode_index)
{
    return episode_index < cache->index->episode_count &&
           !cache->index->episodes[episode_index].quarantine;
}

void trajd_cache_prefetch(struct trajd_cache *cache, const struct trajd_selection *selection,
                          const uint32_t *episode_indexes, uint32_t count, uint64_t when)
{
    pthread_mutex_lock(&cache->lock);
    trajd_cache_name_arrays(cache, selection);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < selection->array_count && is_kept(cache, episode_indexes[i]);
             k++) {
            uint32_t entry = trajd_cache_entry(cache, selection, k, episode_indexes[i]);
            if (cache->entries[entry].bytes == 0 ||
                cache->entries[entry].bytes > cache->budget_bytes)
                continue; /* nothing to load, or never: pin says so */
            trajd_cache_add_use(cache, entry, when);
            if (cache->entries[entry].state == ENTRY_ABSENT)
                trajd_cache_enqueue(cache, QUEUE_AHEAD, entry);
        }
    pthread_mutex_unlock(&cache->lock);
}

/* An IO failure is told once and then tried again for whoever comes next: storage comes back. What
 * the bytes say stays. */
static void forget_failure(struct entry *p)
{
    if (p->state != ENTRY_FAILED || p->pins > 0 ||
        (p->failure && p->failure->status == TRAJD_ERR_DATA))
        return;
    free(p->failure);
    p->failure = NULL;
    p->state = ENTRY_ABSENT;
}

static void unpin_entries(struct trajd_cache *cache, const struct trajd_selection *selection,
                          uint32_t episode_index)
{
    for (uint32_t k = 0; k < selection->array_count; k++) {
        uint32_t entry = trajd_cache_entry(cache, selection, k, episode_index);
        struct entry *p = &cache->entries[entry];
        if (p->bytes == 0 || --p->pins > 0)
            continue;
        cache->pinned_bytes -= p->bytes;
        p->last_use = ++cache->tick;
        forget_failure(p);
        if (p->state == ENTRY_RESIDENT)
            trajd_cache_heap_add(cache, entry);
    }
    pthread_cond_broadcast(&cache->work); /* there may be room now for what waits */
}

/* Counts the entries as pinned if the budget has room for all of them beside those pinned already.
 */
static enum trajd_status pin_entries(struct trajd_cache *cache,
                                     const struct trajd_selection *selection,
                                     uint32_t episode_index, struct trajd_error *error)
{
    uint64_t needed = 0;

    for (uint32_t k = 0; k < selection->array_count; k++) {
        struct entry *p = &cache->entries[trajd_cache_entry(cache, selection, k, episode_index)];
        if (p->pins == 0 && __builtin_add_overflow(needed, p->bytes, &needed))
            needed = UINT64_MAX;
    }
    if (needed > cache->budget_bytes - cache->pinned_bytes)
        return trajd_error_set(
            error, TRAJD_ERR_MEMORY, 0,
            "%s: %s needs %llu bytes, the store has %llu of which %llu are in use",
            cache->index->files[cache->index->episodes[episode_index].file_index].path,
            cache->index->episodes[episode_index].id, (unsigned long long)needed,
            (unsigned long long)cache->budget_bytes, (unsigned long long)cache->pinned_bytes);
    cache->pinned_bytes += needed;
    for (uint32_t k = 0; k < selection->array_count; k++) {
        uint32_t entry = trajd_cache_entry(cache, selection, k, episode_index);
        struct entry *p = &cache->entries[entry];
        if (p->bytes == 0)
            continue;
        if (p->heap_index != NO_ENTRY)
            trajd_cache_heap_remove(cache, entry);
        p->pins++;
        trajd_cache_take_use(cache, entry);
        if (p->state == ENTRY_ABSENT)
            trajd_cache_enqueue(cache, QUEUE_DEMAND, entry);
    }
    return TRAJD_OK;
}

static enum trajd_status wait_for(struct trajd_cache *cache, uint32_t entry, const void **rows,
                                  struct trajd_error *error)
{
    const struct entry *p = &cache->entries[entry];

    *rows = NULL;
    if (trajd_cache_entry_array(cache, entry)->storage == TRAJD_STORAGE_ABSENT)
        return TRAJD_OK;
    /* no rows, or of no width: there, but nothing to read; some address that is not NULL */
    if (p->bytes == 0) {
        *rows = trajd_cache_entry_array(cache, entry);
        return TRAJD_OK;
    }
    if (p->state == ENTRY_ABSENT || p->state == ENTRY_LOADING)
        cache->stats.pin_waits++;
    while ((p->state == ENTRY_ABSENT || p->state == ENTRY_LOADING) &&
           !trajd_heartbeat_is_cancelled())
        trajd_heartbeat_wait_for(&cache->done, &cache->lock);
    if (p->state == ENTRY_ABSENT || p->state == ENTRY_LOADING)
        return trajd_heartbeat_check(error);
    *rows = p->rows;
    if (p->state == ENTRY_RESIDENT)
        return TRAJD_OK;
    if (!p->failure)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory to read rows");
    if (error)
        *error = *p->failure;
    return p->failure->status;
}

enum trajd_status trajd_cache_pin(struct trajd_cache *cache,
                                  const struct trajd_selection *selection, uint32_t episode_index,
                                  const void **rows, struct trajd_error *error)
{
    enum trajd_status status;

    if (!is_kept(cache, episode_index))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "episode %u is not among the kept ones", episode_index);
    pthread_mutex_lock(&cache->lock);
    trajd_cache_name_arrays(cache, selection);
    status = pin_entries(cache, selection, episode_index, error);
    if (!status) {
        for (uint32_t k = 0; k < selection->array_count && !status; k++)
            status = wait_for(cache, trajd_cache_entry(cache, selection, k, episode_index),
                              &rows[k], error);
        if (status)
            unpin_entries(cache, selection, episode_index);
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

void trajd_cache_unpin(struct trajd_cache *cache, const struct trajd_selection *selection,
                       uint32_t episode_index)
{
    pthread_mutex_lock(&cache->lock);
    unpin_entries(cache, selection, episode_index);
    pthread_mutex_unlock(&cache->lock);
}

void trajd_cache_retain(struct trajd_cache *cache, const struct trajd_selection *selection,
                        uint32_t episode_index)
{
    pthread_mutex_lock(&cache->lock);
    for (uint32_t k = 0; k < selection->array_count; k++) {
        struct entry *p = &cache->entries[trajd_cache_entry(cache, selection, k, episode_index)];
        if (p->keeps++ == 0)
            cache->kept_bytes += p->bytes;
    }
    pthread_mutex_unlock(&cache->lock);
}

void trajd_cache_release(struct trajd_cache *cache, const struct trajd_selection *selection,
                         uint32_t episode_index)
{
    pthread_mutex_lock(&cache->lock);
    for (uint32_t k = 0; k < selection->array_count; k++) {
        struct entry *p = &cache->entries[trajd_cache_entry(cache, selection, k, episode_index)];
        if (--p->keeps == 0)
            cache->kept_bytes -= p->bytes;
    }
    pthread_mutex_unlock(&cache->lock);
}

bool trajd_cache_will_have_room(const struct trajd_cache *cache,
                                const struct trajd_selection *selection, uint32_t episode_index)
{
    struct trajd_cache *unlocked = (struct trajd_cache *)cache; /* only its lock changes */
    uint64_t needed = 0;
    bool fits;

    pthread_mutex_lock(&unlocked->lock);
    for (uint32_t k = 0; k < selection->array_count; k++) {
        const struct entry *p =
            &cache->entries[trajd_cache_entry(cache, selection, k, episode_index)];
        if (p->keeps == 0 && __builtin_add_overflow(needed, p->bytes, &needed))
            needed = UINT64_MAX;
    }
    fits = needed <= cache->budget_bytes - cache->kept_bytes;
    pthread_mutex_unlock(&unlocked->lock);
    return fits;
}

void trajd_cache_raise_budget(struct trajd_cache *cache, uint64_t more_bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->budget_bytes += more_bytes;
    cache->stats.budget_bytes = cache->budget_bytes;
    pthread_cond_broadcast(&cache->work); /* a reader may have waited for room */
    pthread_mutex_unlock(&cache->lock);
}

void trajd_cache_get_stats(const struct trajd_cache *cache, struct trajd_cache_stats *stats)
{
    struct trajd_cache *unlocked = (struct trajd_cache *)cache; /* only its lock changes */

    pthread_mutex_lock(&unlocked->lock);
    *stats = cache->stats;
    stats->pinned_bytes = cache->pinned_bytes;
    pthread_mutex_unlock(&unlocked->lock);
}
