/* Loading ahead of any use: everything that fits, in the order of the files. */
#include <stdlib.h>

#include "daemon/base/heartbeat.h"
#include "daemon/cache/cache_internal.h"

struct candidate {
    uint32_t file_index;
    uint32_t piece;
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
    return (left->piece > right->piece) - (left->piece < right->piece);
}

static uint64_t list_candidates(const struct trajd_store *store,
                                const struct trajd_selection *selection,
                                const uint32_t *episode_indexes, uint32_t episode_count,
                                struct candidate *candidates)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < episode_count; i++) {
        uint32_t e = episode_indexes ? episode_indexes[i] : i;
        if (e >= store->index->episode_count || store->index->episodes[e].quarantine)
            continue;
        for (uint32_t k = 0; k < selection->dataset_count; k++) {
            uint32_t piece = trajd_store_piece(store, selection, k, e);
            if (store->pieces[piece].bytes) /* constant, so no lock is needed here */
                candidates[count++] =
                    (struct candidate){store->index->episodes[e].file_index, piece,
                                       first_offset(trajd_store_piece_array(store, piece))};
        }
    }
    qsort(candidates, count, sizeof *candidates, by_place);
    return count;
}

/* Queues what fits beside what is there, without evicting. */
static void enqueue_fitting(struct trajd_store *store, const struct candidate *candidates,
                            uint64_t count)
{
    uint64_t room = store->budget_bytes - store->stats.resident_bytes;

    for (uint64_t i = 0; i < count; i++) {
        const struct piece *p = &store->pieces[candidates[i].piece];
        if (p->state != PIECE_ABSENT || p->bytes > room)
            continue;
        room -= p->bytes;
        trajd_store_enqueue(store, QUEUE_FILL, candidates[i].piece);
    }
    pthread_cond_broadcast(&store->work);
}

enum trajd_status trajd_store_fill(struct trajd_store *store,
                                   const struct trajd_selection *selection,
                                   const uint32_t *episode_indexes, uint32_t episode_count,
                                   bool *complete, struct trajd_error *error)
{
    uint32_t episodes = episode_indexes ? episode_count : store->index->episode_count;
    struct candidate *candidates =
        calloc((uint64_t)episodes * selection->dataset_count + 1, sizeof *candidates);
    enum trajd_status status;
    uint64_t count;

    *complete = false;
    if (!candidates)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory to put %u episodes into file order", episodes);
    count = list_candidates(store, selection, episode_indexes, episodes, candidates);
    pthread_mutex_lock(&store->lock);
    trajd_store_name_datasets(store, selection);
    enqueue_fitting(store, candidates, count);
    for (uint64_t i = 0; i < count; i++) {
        const struct piece *p = &store->pieces[candidates[i].piece];
        while ((p->queued[QUEUE_FILL] || p->state == PIECE_LOADING) &&
               !trajd_heartbeat_is_cancelled())
            trajd_heartbeat_wait_for(&store->done, &store->lock);
    }
    *complete = true;
    for (uint64_t i = 0; i < count; i++)
        *complete = *complete && store->pieces[candidates[i].piece].state == PIECE_RESIDENT;
    pthread_mutex_unlock(&store->lock);
    free(candidates);
    status = trajd_heartbeat_check(error);
    *complete = *complete && !status;
    return status;
}
