/* Loads everything that fits before it is used, in the order of the files. */
#include <stdlib.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache_internal.h"

struct candidate {
    uint32_t file_index;
    uint32_t entry;
    uint64_t offset; /* of its first byte in the file */
};

static uint64_t first_offset(const struct trajd_array *array)
{
    uint64_t first = UINT64_MAX;

    if (array->storage == TRAJD_STORAGE_CONTIGUOUS)
        return array->offset;
    for (uint64_t c = 0; array->storage == TRAJD_STORAGE_CHUNKED && c < array->chunk_count; c++)
        if (array->chunks[c].offset < first)
            first = array->chunks[c].offset;
    return first;
}

static int by_place(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;

    if (left->file_index != right->file_index)
        return left->file_index < right->file_index ? -1 : 1;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
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
                                       first_offset(trajd_cache_entry_array(cache, entry))};
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
        const struct entry *p = &cache->entries[candidates[i].entry];
        if (p->state != ENTRY_ABSENT || p->bytes > room)
            continue;
        room -= p->bytes;
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
