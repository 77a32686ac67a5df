/* Which resident piece goes first: the one announced for the latest use (or for none), then the one
 * used longest ago. */
#include "daemon/cache/cache_internal.h"

uint64_t trajd_store_next_use(const struct trajd_store *store, uint32_t piece)
{
    uint32_t use = store->pieces[piece].first_use;

    return use == NO_USE ? NEVER : store->uses[use].when;
}

static bool goes_before(const struct trajd_store *store, uint32_t a, uint32_t b)
{
    uint64_t use_a = trajd_store_next_use(store, a), use_b = trajd_store_next_use(store, b);

    if (use_a != use_b)
        return use_a > use_b;
    return store->pieces[a].last_use < store->pieces[b].last_use;
}

static void put(struct trajd_store *store, uint32_t at, uint32_t piece)
{
    store->heap[at] = piece;
    store->pieces[piece].heap_index = at;
}

static void sift(struct trajd_store *store, uint32_t at)
{
    uint32_t piece = store->heap[at];

    while (at > 0 && goes_before(store, piece, store->heap[(at - 1) / 2])) {
        put(store, at, store->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (uint64_t child; (child = 2 * (uint64_t)at + 1) < store->heap_count; at = (uint32_t)child) {
        if (child + 1 < store->heap_count &&
            goes_before(store, store->heap[child + 1], store->heap[child]))
            child++;
        if (!goes_before(store, store->heap[child], piece))
            break;
        put(store, at, store->heap[child]);
    }
    put(store, at, piece);
}

void trajd_store_heap_add(struct trajd_store *store, uint32_t piece)
{
    put(store, store->heap_count++, piece);
    sift(store, store->pieces[piece].heap_index);
}

void trajd_store_heap_remove(struct trajd_store *store, uint32_t piece)
{
    uint32_t at = store->pieces[piece].heap_index;
    uint32_t last = store->heap[--store->heap_count];

    store->pieces[piece].heap_index = NO_PIECE;
    if (last != piece) {
        put(store, at, last);
        sift(store, at);
    }
}

void trajd_store_take_use(struct trajd_store *store, uint32_t piece)
{
    struct piece *p = &store->pieces[piece];
    struct use *use;

    if (p->first_use == NO_USE)
        return;
    use = &store->uses[p->first_use];
    p->first_use = use->next;
    use->piece = NO_PIECE;
    if (p->heap_index != NO_PIECE)
        sift(store, p->heap_index);
}

void trajd_store_add_use(struct trajd_store *store, uint32_t piece, uint64_t when)
{
    struct piece *p = &store->pieces[piece];
    uint32_t slot = store->next_use;

    if (p->first_use != NO_USE && store->uses[p->last_announced].when == when)
        return;                              /* the same batch names the episode more than once */
    if (store->uses[slot].piece != NO_PIECE) /* the oldest of all, so its piece's first */
        trajd_store_take_use(store, store->uses[slot].piece);
    store->next_use = (slot + 1) % store->use_capacity;
    store->uses[slot] = (struct use){when, piece, NO_USE};
    if (p->first_use == NO_USE)
        p->first_use = slot;
    else
        store->uses[p->last_announced].next = slot;
    p->last_announced = slot;
    if (p->heap_index != NO_PIECE)
        sift(store, p->heap_index);
}
