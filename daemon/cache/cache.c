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

void *trajd_store_allocate(uint64_t bytes)
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

void trajd_store_release(void *rows, uint64_t bytes)
{
    if (rows && bytes >= MAP_BYTES)
        munmap(rows, bytes);
    else
        free(rows);
}

/* ---- pieces ---- */

const struct trajd_array *trajd_store_piece_array(const struct trajd_store *store, uint32_t piece)
{
    return &store->index->episodes[trajd_store_piece_episode(store, piece)]
                .arrays[trajd_store_piece_dataset(store, piece)];
}

const uint32_t *trajd_store_piece_rows(const struct trajd_store *store, uint32_t piece,
                                       uint64_t *count)
{
    int64_t clock_index = store->dataset_clock[trajd_store_piece_dataset(store, piece)];
    uint64_t rows = trajd_array_row_count(trajd_store_piece_array(store, piece));
    const struct trajd_episode_clock *clock;
    uint64_t low = 0, high;

    *count = rows;
    if (clock_index < 0)
        return NULL;
    clock = &store->index->episodes[trajd_store_piece_episode(store, piece)].clocks[clock_index];
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

void trajd_store_enqueue(struct trajd_store *store, enum queue_kind kind, uint32_t piece)
{
    struct piece *p = &store->pieces[piece];
    uint32_t file_index =
        store->index->episodes[trajd_store_piece_episode(store, piece)].file_index;
    struct queue *queue = &store->filesystems[store->files[file_index].filesystem].queues[kind];

    if (p->queued[kind])
        return;
    p->queued[kind] = true;
    p->next[kind] = NO_PIECE;
    if (queue->last == NO_PIECE)
        queue->first = piece;
    else
        store->pieces[queue->last].next[kind] = piece;
    queue->last = piece;
    pthread_cond_signal(&store->work);
}

/* ---- making and destroying ---- */

/* Which clock filters each dataset. One piece has one set of kept rows, so streams of a dataset
 * must agree on them. */
static enum trajd_status find_clocks(struct trajd_store *store, struct trajd_error *error)
{
    const struct trajd_index *index = store->index;

    for (uint32_t d = 0; d < index->dataset_count; d++)
        store->dataset_clock[d] = -1;
    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        int64_t *clock = &store->dataset_clock[stream->dataset_index];
        for (uint32_t e = 0;
             *clock >= 0 && *clock != stream->clock_index && e < index->episode_count; e++) {
            const struct trajd_episode *episode = &index->episodes[e];
            if (!episode->quarantine &&
                episode->clocks[*clock].kept_rows != episode->clocks[stream->clock_index].kept_rows)
                return trajd_error_set(
                    error, TRAJD_ERR_UNSUPPORTED, 0,
                    "dataset %s is on the clocks %s and %s, which drop different rows of %s",
                    index->datasets[stream->dataset_index].path, index->clocks[*clock].name,
                    index->clocks[stream->clock_index].name, episode->id);
        }
        if (*clock < 0)
            *clock = stream->clock_index;
    }
    return TRAJD_OK;
}

static uint64_t row_bytes_of(const struct trajd_store *store, uint32_t piece)
{
    const struct trajd_array *array = trajd_store_piece_array(store, piece);
    uint64_t count, bytes;

    if (store->index->episodes[trajd_store_piece_episode(store, piece)].quarantine)
        return 0;
    trajd_store_piece_rows(store, piece, &count);
    bytes = count * trajd_array_row_bytes(array);
    return trajd_store_piece_converts(array, piece) ? bytes / 2 : bytes;
}

uint64_t trajd_store_piece_bytes(const struct trajd_store *store,
                                 const struct trajd_selection *selection, uint32_t k,
                                 uint32_t episode_index)
{
    return row_bytes_of(store, trajd_store_piece(store, selection, k, episode_index));
}

static void prepare_pieces(struct trajd_store *store)
{
    for (uint32_t piece = 0; piece < store->piece_count; piece++) {
        struct piece *p = &store->pieces[piece];
        p->bytes = footprint(row_bytes_of(store, piece));
        p->heap_index = NO_PIECE;
        p->first_use = p->last_announced = NO_USE;
    }
}

/* Files by filesystem, so that one that hangs does not take all readers. A file that is gone is
 * found when it is read. */
static void group_files(struct trajd_store *store)
{
    for (uint32_t i = 0; i < store->index->file_count; i++) {
        struct stat file_stat = {0};
        uint32_t f = 0;
        store->files[i].fd = -1;
        if (stat(store->index->files[i].path, &file_stat) != 0)
            file_stat.st_dev = 0;
        while (f < store->filesystem_count && store->filesystems[f].device != file_stat.st_dev)
            f++;
        store->files[i].filesystem = f;
        if (f < store->filesystem_count)
            continue;
        store->filesystems[f].device = file_stat.st_dev;
        for (int kind = 0; kind < QUEUE_COUNT; kind++)
            store->filesystems[f].queues[kind] = (struct queue){NO_PIECE, NO_PIECE};
        store->filesystem_count++;
    }
}

static enum trajd_status allocate_tables(struct trajd_store *store,
                                         const struct trajd_store_options *options,
                                         struct trajd_error *error)
{
    const struct trajd_index *index = options->index;
    uint64_t piece_count = (uint64_t)index->episode_count * index->dataset_count * 2;
    uint64_t uses = piece_count * 16 + 64;

    if (piece_count >= NO_PIECE)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "%llu pieces (at most 2^32)",
                               (unsigned long long)piece_count);
    store->piece_count = (uint32_t)piece_count;
    store->use_capacity = uses < MAX_USES ? (uint32_t)uses : MAX_USES;
    store->pieces = calloc(piece_count + 1, sizeof *store->pieces);
    store->heap = calloc(piece_count + 1, sizeof *store->heap);
    store->uses = malloc(store->use_capacity * sizeof *store->uses);
    store->dataset_clock = calloc(index->dataset_count + 1, sizeof *store->dataset_clock);
    store->dataset_named =
        calloc(2 * (size_t)index->dataset_count + 1, sizeof *store->dataset_named);
    store->files = calloc(index->file_count + 1, sizeof *store->files);
    store->filesystems = calloc((size_t)index->file_count + 1, sizeof *store->filesystems);
    store->readers = calloc(options->reader_count, sizeof *store->readers);
    if (!store->pieces || !store->heap || !store->uses || !store->dataset_clock ||
        !store->dataset_named || !store->files || !store->filesystems || !store->readers)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the store's tables");
    for (uint32_t i = 0; i < store->use_capacity; i++)
        store->uses[i].piece = NO_PIECE;
    return TRAJD_OK;
}

enum trajd_status trajd_store_create(const struct trajd_store_options *options,
                                     struct trajd_store **store, struct trajd_error *error)
{
    struct trajd_store *made;
    enum trajd_status status;

    *store = NULL;
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
        prepare_pieces(made);
        group_files(made);
        /* With a single filesystem there is nobody to keep readers free for. */
        made->reads_per_filesystem =
            made->filesystem_count < 2 ? options->reader_count : (options->reader_count + 1) / 2;
        status = trajd_store_start_readers(made, options->reader_count, error);
    }
    if (status)
        trajd_store_destroy(&made);
    *store = made;
    return status;
}

static void stop_readers(struct trajd_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->stopping = true;
    pthread_cond_broadcast(&store->work);
    pthread_mutex_unlock(&store->lock);
    trajd_heartbeat_wait(); /* for what they are reading */
    for (uint32_t i = 0; i < store->reader_count; i++)
        pthread_join(store->readers[i], NULL);
    trajd_heartbeat_resume();
}

void trajd_store_destroy(struct trajd_store **store)
{
    struct trajd_store *made = *store;

    *store = NULL;
    if (!made)
        return;
    stop_readers(made);
    for (uint32_t i = 0; made->pieces && i < made->piece_count; i++) {
        trajd_store_release(made->pieces[i].rows, made->pieces[i].bytes);
        free(made->pieces[i].failure);
    }
    for (uint32_t i = 0; made->filesystem_count && i < made->index->file_count; i++)
        if (made->files[i].fd >= 0)
            close(made->files[i].fd);
    pthread_cond_destroy(&made->done);
    pthread_cond_destroy(&made->work);
    pthread_mutex_destroy(&made->lock);
    free(made->pieces);
    free(made->heap);
    free(made->uses);
    free(made->dataset_clock);
    free(made->dataset_named);
    free(made->files);
    free(made->filesystems);
    free(made->readers);
    free(made);
}

/* ---- calls ---- */

void trajd_store_name_datasets(struct trajd_store *store, const struct trajd_selection *selection)
{
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        bool *named = &store->dataset_named[trajd_store_piece(store, selection, k, 0)];
        for (uint32_t e = 0; !*named && e < store->index->episode_count; e++)
            store->stats.total_bytes +=
                store->pieces[trajd_store_piece(store, selection, k, e)].bytes;
        *named = true;
    }
}

static bool is_kept(const struct trajd_store *store, uint32_t episode_index)
{
    return episode_index < store->index->episode_count &&
           !store->index->episodes[episode_index].quarantine;
}

void trajd_store_announce(struct trajd_store *store, const struct trajd_selection *selection,
                          const uint32_t *episode_indexes, uint32_t count, uint64_t when)
{
    pthread_mutex_lock(&store->lock);
    trajd_store_name_datasets(store, selection);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < selection->dataset_count && is_kept(store, episode_indexes[i]);
             k++) {
            uint32_t piece = trajd_store_piece(store, selection, k, episode_indexes[i]);
            if (store->pieces[piece].bytes == 0 || store->pieces[piece].bytes > store->budget_bytes)
                continue; /* nothing to load, or never: pin says so */
            trajd_store_add_use(store, piece, when);
            if (store->pieces[piece].state == PIECE_ABSENT)
                trajd_store_enqueue(store, QUEUE_AHEAD, piece);
        }
    pthread_mutex_unlock(&store->lock);
}

/* An IO failure is told once and then tried again for whoever comes next: storage comes back. What
 * the bytes say stays. */
static void forget_failure(struct piece *p)
{
    if (p->state != PIECE_FAILED || p->pins > 0 ||
        (p->failure && p->failure->status == TRAJD_ERR_DATA))
        return;
    free(p->failure);
    p->failure = NULL;
    p->state = PIECE_ABSENT;
}

static void unpin_pieces(struct trajd_store *store, const struct trajd_selection *selection,
                         uint32_t episode_index)
{
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        uint32_t piece = trajd_store_piece(store, selection, k, episode_index);
        struct piece *p = &store->pieces[piece];
        if (p->bytes == 0 || --p->pins > 0)
            continue;
        store->pinned_bytes -= p->bytes;
        p->last_use = ++store->tick;
        forget_failure(p);
        if (p->state == PIECE_RESIDENT)
            trajd_store_heap_add(store, piece);
    }
    pthread_cond_broadcast(&store->work); /* there may be room now for what waits */
}

/* Counts the pieces as pinned if the budget has room for all of them beside those pinned already.
 */
static enum trajd_status pin_pieces(struct trajd_store *store,
                                    const struct trajd_selection *selection, uint32_t episode_index,
                                    struct trajd_error *error)
{
    uint64_t needed = 0;

    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        struct piece *p = &store->pieces[trajd_store_piece(store, selection, k, episode_index)];
        if (p->pins == 0 && __builtin_add_overflow(needed, p->bytes, &needed))
            needed = UINT64_MAX;
    }
    if (needed > store->budget_bytes - store->pinned_bytes)
        return trajd_error_set(
            error, TRAJD_ERR_MEMORY, 0,
            "%s: %s needs %llu bytes, the store has %llu of which %llu are in use",
            store->index->files[store->index->episodes[episode_index].file_index].path,
            store->index->episodes[episode_index].id, (unsigned long long)needed,
            (unsigned long long)store->budget_bytes, (unsigned long long)store->pinned_bytes);
    store->pinned_bytes += needed;
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        uint32_t piece = trajd_store_piece(store, selection, k, episode_index);
        struct piece *p = &store->pieces[piece];
        if (p->bytes == 0)
            continue;
        if (p->heap_index != NO_PIECE)
            trajd_store_heap_remove(store, piece);
        p->pins++;
        trajd_store_take_use(store, piece);
        if (p->state == PIECE_ABSENT)
            trajd_store_enqueue(store, QUEUE_DEMAND, piece);
    }
    return TRAJD_OK;
}

static enum trajd_status wait_for(struct trajd_store *store, uint32_t piece, const void **rows,
                                  struct trajd_error *error)
{
    const struct piece *p = &store->pieces[piece];

    *rows = NULL;
    if (trajd_store_piece_array(store, piece)->storage == TRAJD_STORAGE_ABSENT)
        return TRAJD_OK;
    /* no rows, or of no width: there, but nothing to read; some address that is not NULL */
    if (p->bytes == 0) {
        *rows = trajd_store_piece_array(store, piece);
        return TRAJD_OK;
    }
    if (p->state == PIECE_ABSENT || p->state == PIECE_LOADING)
        store->stats.pin_waits++;
    while ((p->state == PIECE_ABSENT || p->state == PIECE_LOADING) &&
           !trajd_heartbeat_is_cancelled())
        trajd_heartbeat_wait_for(&store->done, &store->lock);
    if (p->state == PIECE_ABSENT || p->state == PIECE_LOADING)
        return trajd_heartbeat_check(error);
    *rows = p->rows;
    if (p->state == PIECE_RESIDENT)
        return TRAJD_OK;
    if (!p->failure)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory to read rows");
    if (error)
        *error = *p->failure;
    return p->failure->status;
}

enum trajd_status trajd_store_pin(struct trajd_store *store,
                                  const struct trajd_selection *selection, uint32_t episode_index,
                                  const void **rows, struct trajd_error *error)
{
    enum trajd_status status;

    if (!is_kept(store, episode_index))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "episode %u is not among the kept ones", episode_index);
    pthread_mutex_lock(&store->lock);
    trajd_store_name_datasets(store, selection);
    status = pin_pieces(store, selection, episode_index, error);
    if (!status) {
        for (uint32_t k = 0; k < selection->dataset_count && !status; k++)
            status = wait_for(store, trajd_store_piece(store, selection, k, episode_index),
                              &rows[k], error);
        if (status)
            unpin_pieces(store, selection, episode_index);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

void trajd_store_unpin(struct trajd_store *store, const struct trajd_selection *selection,
                       uint32_t episode_index)
{
    pthread_mutex_lock(&store->lock);
    unpin_pieces(store, selection, episode_index);
    pthread_mutex_unlock(&store->lock);
}

void trajd_store_keep(struct trajd_store *store, const struct trajd_selection *selection,
                      uint32_t episode_index)
{
    pthread_mutex_lock(&store->lock);
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        struct piece *p = &store->pieces[trajd_store_piece(store, selection, k, episode_index)];
        if (p->keeps++ == 0)
            store->kept_bytes += p->bytes;
    }
    pthread_mutex_unlock(&store->lock);
}

void trajd_store_let_go(struct trajd_store *store, const struct trajd_selection *selection,
                        uint32_t episode_index)
{
    pthread_mutex_lock(&store->lock);
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        struct piece *p = &store->pieces[trajd_store_piece(store, selection, k, episode_index)];
        if (--p->keeps == 0)
            store->kept_bytes -= p->bytes;
    }
    pthread_mutex_unlock(&store->lock);
}

bool trajd_store_will_have_room(const struct trajd_store *store,
                                const struct trajd_selection *selection, uint32_t episode_index)
{
    struct trajd_store *unlocked = (struct trajd_store *)store; /* only its lock changes */
    uint64_t needed = 0;
    bool fits;

    pthread_mutex_lock(&unlocked->lock);
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        const struct piece *p =
            &store->pieces[trajd_store_piece(store, selection, k, episode_index)];
        if (p->keeps == 0 && __builtin_add_overflow(needed, p->bytes, &needed))
            needed = UINT64_MAX;
    }
    fits = needed <= store->budget_bytes - store->kept_bytes;
    pthread_mutex_unlock(&unlocked->lock);
    return fits;
}

void trajd_store_raise_budget(struct trajd_store *store, uint64_t more_bytes)
{
    pthread_mutex_lock(&store->lock);
    store->budget_bytes += more_bytes;
    store->stats.budget_bytes = store->budget_bytes;
    pthread_cond_broadcast(&store->work); /* a reader may have waited for room */
    pthread_mutex_unlock(&store->lock);
}

void trajd_store_get_stats(const struct trajd_store *store, struct trajd_store_stats *stats)
{
    struct trajd_store *unlocked = (struct trajd_store *)store; /* only its lock changes */

    pthread_mutex_lock(&unlocked->lock);
    *stats = store->stats;
    stats->pinned_bytes = store->pinned_bytes;
    pthread_mutex_unlock(&unlocked->lock);
}
