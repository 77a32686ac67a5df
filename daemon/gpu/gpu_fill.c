/* Rows on their way to the GPU, once. A stream's rows lie end to end there: they go in chunks of one size, however short its episodes are. All
 * threads of the pool copy chunks into pinned buffers and send them off; what a buffer was filled with last is under way meanwhile. */
#include "daemon/gpu/gpu_private.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/watch.h"

#define CHUNK_BYTES ((uint64_t)2 << 20)
#define BUFFERS 32u /* chunks under way */
#define PAUSE_NS 1000000
#define PATIENCE_NS INT64_C(10000000000) /* for room in the store */

struct piece { /* rows of an episode */
    uint64_t begin, end; /* in the resident */
    const void *rows;
    uint32_t episode;
};

struct filling {
    struct trajd_gpu *gpu;
    struct trajd_dataset *dataset;
    struct trajd_device_stream *stream;
    uint32_t buffer_count, next_buffer;
    uint8_t *buffers; /* [buffer_count][CHUNK_BYTES], pinned */
    struct trajd_device_event *over[BUFFERS]; /* the copy out of a buffer */
    bool used[BUFFERS];
    struct piece *pieces; /* [index episodes]: those that are pinned */
    uint32_t piece_count;
    bool announces;       /* the store does not hold all rows: readers are told what comes */
    uint32_t announced;   /* episodes before it are */
    struct trajd_gpu_resident *resident;
    struct trajd_selection selection; /* the resident's rows alone */
    uint64_t at, end; /* bytes of the resident that are to be sent */
    pthread_mutex_t mutex; /* of the error */
    struct trajd_error error; /* the first of a slice's; OK: none */
    int64_t copy_ns;
};

/* ---- a chunk, by any thread of the pool ---- */

static const struct piece *first_piece_behind(const struct filling *filling, uint64_t begin)
{
    uint32_t low = 0, high = filling->piece_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (filling->pieces[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return filling->pieces + low;
}

/* Between pieces lies what nobody reads. */
static void gather(const struct filling *filling, uint64_t begin, uint64_t end, uint8_t *buffer)
{
    const struct piece *last = filling->pieces + filling->piece_count;

    for (const struct piece *p = first_piece_behind(filling, begin); p < last && p->begin < end; p++) {
        const uint64_t from = p->begin > begin ? p->begin : begin, to = p->end < end ? p->end : end;
        memcpy(buffer + (from - begin), (const uint8_t *)p->rows + (from - p->begin), to - from);
    }
}

static enum trajd_status wait_for_buffer(const struct filling *filling, uint32_t b, struct trajd_error *error)
{
    bool passed = !filling->used[b];
    enum trajd_status status = TRAJD_OK;

    while (!status && !passed) {
        status = trajd_device_event_poll(filling->over[b], &passed, error);
        if (!passed)
            sched_yield();
    }
    return status;
}

static void send_chunk(void *context, uint32_t index)
{
    struct filling *filling = context;
    const uint32_t b = (filling->next_buffer + index) % filling->buffer_count;
    const uint64_t begin = filling->at + index * CHUNK_BYTES, end = filling->end - begin < CHUNK_BYTES ? filling->end : begin + CHUNK_BYTES;
    uint8_t *buffer = filling->buffers + b * CHUNK_BYTES;
    struct trajd_error error;
    enum trajd_status status = trajd_device_enter(filling->gpu->device, &error);

    if (!status)
        status = wait_for_buffer(filling, b, &error);
    if (!status) {
        gather(filling, begin, end, buffer);
        status = trajd_device_copy_async((uint8_t *)filling->resident->memory + begin, buffer, end - begin, filling->stream, &error);
    }
    if (!status)
        status = trajd_device_event_record(filling->over[b], filling->stream, &error);
    filling->used[b] = true;
    if (!status)
        return;
    pthread_mutex_lock(&filling->mutex);
    if (!filling->error.status)
        filling->error = error;
    pthread_mutex_unlock(&filling->mutex);
}

/* ---- rounds of chunks, by the thread that opens feeds ---- */

/* As many chunks at a time as there are buffers: the pool has others to serve. */
static enum trajd_status send_pieces(struct filling *filling, struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();

    while (filling->at < filling->end && !filling->error.status) {
        const uint64_t left = (filling->end - filling->at + CHUNK_BYTES - 1) / CHUNK_BYTES;
        const uint32_t count = left < filling->buffer_count ? (uint32_t)left : filling->buffer_count;
        trajd_watch_turn();
        trajd_pool_run(filling->gpu->options.pool, count, send_chunk, filling);
        filling->next_buffer = (filling->next_buffer + count) % filling->buffer_count;
        filling->at += count * CHUNK_BYTES;
    }
    filling->copy_ns += trajd_now_ns() - begin_ns;
    if (filling->error.status)
        *error = filling->error;
    return filling->error.status;
}

/* Rows that cannot be read are no end of it: who wants them is told, batch by batch. */
static bool is_of_rows(enum trajd_status status)
{
    return status == TRAJD_ERR_DATA || status == TRAJD_ERR_IO || status == TRAJD_ERR_NOT_FOUND || status == TRAJD_ERR_UNSUPPORTED;
}

/* Others that have pinned all of the store's budget give it back soon. */
static bool wait_for_room(const struct filling *filling, uint32_t episode, int64_t begin_ns, const struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    trajd_watch_turn();
    if (error->foreign_code == ENOMEM || trajd_watch_is_cancelled() || trajd_now_ns() - begin_ns > PATIENCE_NS ||
        !trajd_store_will_have_room(filling->dataset->store, &filling->selection, episode))
        return false;
    nanosleep(&pause, NULL);
    return true;
}

/* An episode more. TRAJD_ERR_MEMORY: there is no room for it beside those that are pinned. */
static enum trajd_status pin(struct filling *filling, uint32_t episode, struct trajd_error *error)
{
    struct trajd_gpu_resident *resident = filling->resident;
    const uint64_t begin = resident->offsets[episode], size = trajd_store_piece_bytes(filling->dataset->store, &filling->selection, 0, episode);
    const int64_t begin_ns = trajd_now_ns();
    const void *rows;
    enum trajd_status status;

    while ((status = trajd_store_pin(filling->dataset->store, &filling->selection, episode, &rows, error)) == TRAJD_ERR_MEMORY)
        if (filling->piece_count || !wait_for_room(filling, episode, begin_ns, error))
            return status;
    if (is_of_rows(status))
        resident->offsets[episode] = TRAJD_GPU_NO_ROWS;
    else if (!status)
        filling->pieces[filling->piece_count++] = (struct piece){begin, begin + size, rows, episode};
    return is_of_rows(status) ? TRAJD_OK : status;
}

/* What will be pinned from this episode on, which has rows: two rounds of it are read meanwhile. */
static void announce(struct filling *filling, uint32_t episode)
{
    const uint64_t *offsets = filling->resident->offsets, enough = 2 * filling->buffer_count * CHUNK_BYTES;
    uint32_t e = filling->announced > episode ? filling->announced : episode;

    for (; e < filling->dataset->index->episode_count && (offsets[e] == TRAJD_GPU_NO_ROWS || offsets[e] - offsets[episode] < enough); e++)
        if (offsets[e] != TRAJD_GPU_NO_ROWS)
            trajd_store_announce(filling->dataset->store, &filling->selection, &e, 1, e);
    filling->announced = e;
}

/* Episodes from *episode on, of a round's bytes together or all that the store has room for. */
static enum trajd_status pin_some(struct filling *filling, uint32_t *episode, struct trajd_error *error)
{
    const struct trajd_index *index = filling->dataset->index;
    const uint64_t enough = filling->buffer_count * CHUNK_BYTES;
    enum trajd_status status = TRAJD_OK;

    filling->piece_count = 0;
    for (; *episode < index->episode_count; ++*episode) {
        if (filling->piece_count && filling->pieces[filling->piece_count - 1].end - filling->pieces[0].begin >= enough)
            break;
        if (filling->resident->offsets[*episode] == TRAJD_GPU_NO_ROWS)
            continue;
        if (filling->announces)
            announce(filling, *episode);
        status = trajd_watch_check(error);
        if (!status)
            status = pin(filling, *episode, error);
        if (status)
            break;
    }
    return status == TRAJD_ERR_MEMORY && filling->piece_count ? TRAJD_OK : status;
}

static void unpin_all(struct filling *filling)
{
    for (uint32_t i = 0; i < filling->piece_count; i++)
        trajd_store_unpin(filling->dataset->store, &filling->selection, filling->pieces[i].episode);
}

static enum trajd_status fill_resident(struct filling *filling, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t episode = 0; episode < filling->dataset->index->episode_count && !status;) {
        status = pin_some(filling, &episode, error);
        if (!status && filling->piece_count) {
            filling->at = filling->pieces[0].begin;
            filling->end = filling->pieces[filling->piece_count - 1].end;
            status = send_pieces(filling, error);
        }
        unpin_all(filling);
    }
    return status;
}

/* ---- life ---- */

static void close_filling(struct filling *filling)
{
    struct trajd_error ignored; /* copies that are under way after a failure still read the buffers */

    if (filling->stream)
        trajd_device_stream_wait(filling->stream, &ignored);
    for (uint32_t i = 0; i < filling->buffer_count; i++)
        trajd_device_event_destroy(&filling->over[i]);
    if (filling->buffers)
        trajd_device_host_free(filling->gpu->device, filling->buffers);
    trajd_device_stream_destroy(&filling->stream);
    free(filling->pieces);
    pthread_mutex_destroy(&filling->mutex);
}

static enum trajd_status open_filling(struct filling *filling, uint64_t size_bytes, struct trajd_error *error)
{
    const uint64_t chunks = size_bytes / CHUNK_BYTES + 1;
    struct trajd_device *device = filling->gpu->device;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_init(&filling->mutex, NULL);
    filling->buffer_count = chunks < BUFFERS ? (uint32_t)chunks : BUFFERS;
    filling->pieces = calloc(filling->dataset->index->episode_count + 1, sizeof *filling->pieces);
    if (!filling->pieces)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s", filling->dataset->name);
    status = trajd_device_stream_create(device, &filling->stream, error);
    if (!status)
        status = trajd_device_host_alloc(device, filling->buffer_count * CHUNK_BYTES, (void **)&filling->buffers, error);
    for (uint32_t i = 0; i < filling->buffer_count && !status; i++)
        status = trajd_device_event_create(device, &filling->over[i], error);
    return status;
}

static enum trajd_status wait_for_all(struct filling *filling, struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();
    const enum trajd_status status = trajd_device_stream_wait(filling->stream, error);

    pthread_mutex_lock(&filling->gpu->mutex);
    filling->gpu->fill_seconds += (double)(filling->copy_ns + trajd_now_ns() - begin_ns) * 1e-9;
    pthread_mutex_unlock(&filling->gpu->mutex);
    return status;
}

enum trajd_status trajd_gpu_fill(struct trajd_gpu *gpu, struct trajd_dataset *dataset, const struct trajd_selection *selection,
                                 struct trajd_gpu_resident *const *residents, struct trajd_error *error)
{
    struct filling filling = {.gpu = gpu, .dataset = dataset, .error = {.status = TRAJD_OK}};
    uint64_t size_bytes = 0;
    bool complete;
    enum trajd_status status = trajd_store_fill(dataset->store, selection, NULL, 0, &complete, error);

    if (status)
        return status;
    filling.announces = !complete;
    for (uint32_t k = 0; k < selection->dataset_count; k++)
        size_bytes += residents[k]->size_bytes;
    status = open_filling(&filling, size_bytes, error);
    for (uint32_t k = 0; k < selection->dataset_count && !status; k++) {
        filling.resident = residents[k];
        filling.announced = 0;
        filling.selection = (struct trajd_selection){&selection->dataset_indexes[k], 1, &selection->as_float32[k]};
        status = fill_resident(&filling, error);
    }
    if (!status)
        status = wait_for_all(&filling, error);
    close_filling(&filling);
    return status;
}
