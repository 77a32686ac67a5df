/* Chooses which resident entry is evicted first: the one prefetched for the latest use, or for
 * none; among equals the one used longest ago. */
#include "daemon/cache/cache_internal.h"

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

void trajd_cache_heap_remove(struct trajd_cache *cache, uint32_t entry)
{
    uint32_t at = cache->entries[entry].heap_index;
    uint32_t last = cache->heap[--cache->heap_count];

    cache->entries[entry].heap_index = NO_ENTRY;
    if (last != entry) {
        put(cache, at, last);
        sift(cache, at);
    }
}

void trajd_cache_take_use(struct trajd_cache *cache, uint32_t entry)
{
    struct entry *p = &cache->entries[entry];
    struct use *use;

    if (p->first_use == NO_USE)
        return;
    use = &cache->uses[p->first_use];
    p->first_use = use->next;
    use->entry = NO_ENTRY;
    if (p->heap_index != NO_ENTRY)
        sift(cache, p->heap_index);
}

void trajd_cache_add_use(struct trajd_cache *cache, uint32_t entry, uint64_t when)
{
    struct entry *p = &cache->entries[entry];
    uint32_t slot = cache->next_use;

    if (p->first_use != NO_USE && cache->uses[p->last_prefetched].when == when)
        return;                              /* the batch names the episode more than once */
    if (cache->uses[slot].entry != NO_ENTRY) /* the oldest use of all, so the first of its entry */
        trajd_cache_take_use(cache, cache->uses[slot].entry);
    cache->next_use = (slot + 1) % cache->use_capacity;
    cache->uses[slot] = (struct use){when, entry, NO_USE};
    if (p->first_use == NO_USE)
        p->first_use = slot;
    else
        cache->uses[p->last_prefetched].next = slot;
    p->last_prefetched = slot;
    if (p->heap_index != NO_ENTRY)
        sift(cache, p->heap_index);
}
