/* The entries of the cache: the rows and the bytes of each, its memory and its queues, what
 * producers ask for, and which entry is evicted. */
#include "daemon/cache/cache_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "daemon/base/heartbeat.h"

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

struct place trajd_cache_find_place(const struct trajd_cache *cache, uint32_t entry)
{
    const struct trajd_array *array = trajd_cache_entry_array(cache, entry);
    struct place place = {0};

    if (array->storage == TRAJD_STORAGE_CONTIGUOUS)
        return (struct place){array->offset, array->offset + array->size_bytes};
    for (uint64_t c = 0; array->storage == TRAJD_STORAGE_CHUNKED && c < array->chunk_count; c++) {
        const struct trajd_chunk *chunk = &array->chunks[c];
        const uint64_t end = chunk->offset + chunk->stored_size;
        if (chunk->offset == TRAJD_ARRAY_MISSING_CHUNK)
            continue;
        place.begin = place.end && place.begin < chunk->offset ? place.begin : chunk->offset;
        place.end = place.end > end ? place.end : end;
    }
    return place;
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
    if (!p->place.end)
        p->place = trajd_cache_find_place(cache, entry);
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

/* ---- which resident entry is evicted first: the one prefetched for the latest use, or for none;
 * among equals the one used longest ago ---- */

uint64_t trajd_cache_next_use(const struct trajd_cache *cache, uint32_t entry)
{
    uint32_t use = cache->entries[entry].first_use;

    return use == NO_USE ? NEVER : cache->uses[use].when;
}

static bool goes_before(const struct trajd_cache *cache, uint32_t a, uint32_t b)
{
    uint64_t use_a = trajd_cache_next_use(cache, a), use_b = trajd_cache_next_use(cache, b);

    if (use_a != use_b)
        return use_a > use_b;
    return cache->entries[a].last_use < cache->entries[b].last_use;
}

static void put(struct trajd_cache *cache, uint32_t at, uint32_t entry)
{
    cache->heap[at] = entry;
    cache->entries[entry].heap_index = at;
}

static void sift(struct trajd_cache *cache, uint32_t at)
{
    uint32_t entry = cache->heap[at];

    while (at > 0 && goes_before(cache, entry, cache->heap[(at - 1) / 2])) {
        put(cache, at, cache->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < cache->heap_count; at = (uint32_t)child) {
        if (child + 1 < cache->heap_count &&
            goes_before(cache, cache->heap[child + 1], cache->heap[child]))
            child++;
        if (!goes_before(cache, cache->heap[child], entry))
            break;
        put(cache, at, cache->heap[child]);
    }
    put(cache, at, entry);
}

void trajd_cache_heap_add(struct trajd_cache *cache, uint32_t entry)
{
    put(cache, cache->heap_count++, entry);
    sift(cache, cache->entries[entry].heap_index);
}

static void heap_remove(struct trajd_cache *cache, uint32_t entry)
{
    uint32_t at = cache->entries[entry].heap_index;
    uint32_t last = cache->heap[--cache->heap_count];

    cache->entries[entry].heap_index = NO_ENTRY;
    if (last != entry) {
        put(cache, at, last);
        sift(cache, at);
    }
}

/* Removes the entry's oldest prefetched use, at a pin. */
static void take_use(struct trajd_cache *cache, uint32_t entry)
{
    struct entry *p = &cache->entries[entry];
    struct use *use;

    if (p->first_use == NO_USE)
        return;
    use = &cache->uses[p->first_use];
    p->first_use = use->next;
    use->is_noted = false;
    if (p->heap_index != NO_ENTRY)
        sift(cache, p->heap_index);
}

static void add_use(struct trajd_cache *cache, uint32_t entry, uint64_t when)
{
    struct entry *p = &cache->entries[entry];
    uint32_t slot = cache->next_use;

    if (p->first_use != NO_USE && cache->uses[p->last_prefetched].when == when)
        return;                     /* the batch names the episode more than once */
    if (cache->uses[slot].is_noted) /* the oldest use of all, so the first of its entry */
        take_use(cache, cache->uses[slot].entry);
    cache->next_use = (slot + 1) % TRAJD_CACHE_USES;
    cache->uses[slot] = (struct use){when, true, entry, NO_USE};
    if (p->first_use == NO_USE)
        p->first_use = slot;
    else
        cache->uses[p->last_prefetched].next = slot;
    p->last_prefetched = slot;
    if (p->heap_index != NO_ENTRY)
        sift(cache, p->heap_index);
}

/* ---- eviction, and the budget ---- */

/* The head of an evicted block, written over its first row. */
struct evicted_block {
    void *next;
    uint64_t bytes;
};

void trajd_cache_evict(struct trajd_cache *cache, uint32_t entry, void **chain)
{
    struct entry *p = &cache->entries[entry];
    struct evicted_block block = {*chain, p->bytes};

    heap_remove(cache, entry);
    memcpy(p->rows, &block, sizeof block);
    *chain = p->rows;
    p->rows = NULL;
    p->state = ENTRY_ABSENT;
    cache->stats.resident_bytes -= p->bytes;
    cache->stats.entries_evicted++;
    if (p->first_use != NO_USE)
        trajd_cache_enqueue(cache, QUEUE_AHEAD, entry);
}

void trajd_cache_free_evicted(void *chain)
{
    while (chain) {
        struct evicted_block block;
        memcpy(&block, chain, sizeof block);
        trajd_cache_free(chain, block.bytes);
        chain = block.next;
    }
}

/* Returns how much of the budget rows keep: what is pinned for long; of the rest, what feeds have
 * named, up to a half, and at least an eighth. */
static uint64_t kept_for_rows(const struct trajd_cache *cache)
{
    const uint64_t all = cache->budget_bytes + cache->lent_bytes, retained = cache->retained_bytes,
                   rest = all - retained;
    uint64_t named = cache->stats.total_bytes > retained ? cache->stats.total_bytes - retained : 0;

    named = named < rest / 2 ? named : rest / 2;
    named = retained + (named > rest / 8 ? named : rest / 8);
    return named > cache->pinned_bytes ? named : cache->pinned_bytes;
}

bool trajd_cache_lend(struct trajd_cache *cache, uint64_t bytes)
{
    void *evicted = NULL;
    uint64_t kept;
    bool lends;

    pthread_mutex_lock(&cache->lock);
    kept = kept_for_rows(cache);
    lends = bytes <= cache->budget_bytes && cache->budget_bytes - bytes >= kept;
    while (lends && cache->stats.resident_bytes > cache->budget_bytes - bytes) {
        lends = cache->heap_count > 0;
        if (lends)
            trajd_cache_evict(cache, cache->heap[0], &evicted);
    }
    if (lends) {
        cache->budget_bytes -= bytes;
        cache->lent_bytes += bytes;
    }
    pthread_mutex_unlock(&cache->lock);
    trajd_cache_free_evicted(evicted);
    return lends;
}

void trajd_cache_raise_budget(struct trajd_cache *cache, uint64_t more_bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->budget_bytes += more_bytes;
    cache->stats.budget_bytes = cache->budget_bytes + cache->lent_bytes;
    pthread_cond_broadcast(&cache->work); /* a reader may have waited for room */
    pthread_mutex_unlock(&cache->lock);
}

void trajd_cache_give_back(struct trajd_cache *cache, uint64_t bytes)
{
    pthread_mutex_lock(&cache->lock);
    cache->lent_bytes -= bytes;
    pthread_mutex_unlock(&cache->lock);
    trajd_cache_raise_budget(cache, bytes);
}

void trajd_cache_get_stats(const struct trajd_cache *cache, struct trajd_cache_stats *stats)
{
    struct trajd_cache *unlocked = (struct trajd_cache *)cache; /* only its lock changes */

    pthread_mutex_lock(&unlocked->lock);
    *stats = cache->stats;
    stats->pinned_bytes = cache->pinned_bytes;
    pthread_mutex_unlock(&unlocked->lock);
}

/* ---- prefetching, pinning and retaining ---- */

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
            add_use(cache, entry, when);
            if (cache->entries[entry].state == ENTRY_ABSENT)
                trajd_cache_enqueue(cache, QUEUE_AHEAD, entry);
        }
    pthread_mutex_unlock(&cache->lock);
}

void trajd_cache_forget_failure(struct entry *p)
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
        trajd_cache_forget_failure(p);
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
            heap_remove(cache, entry);
        p->pins++;
        take_use(cache, entry);
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
