/* Prefetching, pinning and retaining entries. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache_internal.h"

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
                continue; /* nothing to load, or it never fits; pin reports that */
            trajd_cache_add_use(cache, entry, when);
            if (cache->entries[entry].state == ENTRY_ABSENT)
                trajd_cache_enqueue(cache, QUEUE_AHEAD, entry);
        }
    pthread_mutex_unlock(&cache->lock);
}

/* Forgets an I/O error once it has been returned, so that the next pin tries again: storage
 * recovers. An error in the data stays. */
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
    pthread_cond_broadcast(&cache->work); /* there may be room for entries that wait */
}

/* Counts the entries as pinned if the budget has room for all of them beside those already
 * pinned. */
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
            "%s: episode %s needs %llu bytes of rows; the row cache has %llu bytes, of which %llu "
            "are in use",
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
    /* present, but without bytes to read: any address that is not NULL */
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
                               "episode %u is in quarantine or does not exist", episode_index);
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
        if (p->retains++ == 0)
            cache->retained_bytes += p->bytes;
    }
    pthread_mutex_unlock(&cache->lock);
}

void trajd_cache_release(struct trajd_cache *cache, const struct trajd_selection *selection,
                         uint32_t episode_index)
{
    pthread_mutex_lock(&cache->lock);
    for (uint32_t k = 0; k < selection->array_count; k++) {
        struct entry *p = &cache->entries[trajd_cache_entry(cache, selection, k, episode_index)];
        if (--p->retains == 0)
            cache->retained_bytes -= p->bytes;
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
        if (p->retains == 0 && __builtin_add_overflow(needed, p->bytes, &needed))
            needed = UINT64_MAX;
    }
    fits = needed <= cache->budget_bytes - cache->retained_bytes;
    pthread_mutex_unlock(&unlocked->lock);
    return fits;
}
