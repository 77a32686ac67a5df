/* The entries of the cache: the rows and the bytes of each, its memory, and its queues. */
#include <stdlib.h>
#include <sys/mman.h>

#include "daemon/cache/cache_internal.h"

#define ROW_ALIGNMENT 64u
/* from this size on an allocation is a mapping of its own, which returns to the system when
 * freed */
#define MAP_BYTES (UINT64_C(256) << 10)
#define PAGE_BYTES UINT64_C(4096)
#define HUGE_PAGE_BYTES (UINT64_C(4) << 20)

/* ---- memory ---- */

/* Returns what an allocation of `bytes` really takes. The budget counts this. */
uint64_t trajd_cache_footprint(uint64_t bytes)
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
        madvise(rows, bytes, MADV_HUGEPAGE); /* a hint: fewer page faults while reading */
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
    /* count the kept rows that the array has */
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

uint64_t trajd_cache_entry_row_bytes(const struct trajd_cache *cache, uint32_t entry)
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
    return trajd_cache_entry_row_bytes(cache,
                                       trajd_cache_entry(cache, selection, k, episode_index));
}

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
