/* Copies rows to the GPU, once. An array's rows lie end to end there, so they are copied by the
 * full buffer, however short the episodes are. All threads of the pool gather rows into one of two
 * pinned buffers while the other one is copied. */
#include "daemon/producer/gpu_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"

#define BUFFER_BYTES ((uint64_t)32 << 20)
#define SLICE_BYTES ((uint64_t)1 << 20)
#define HOLE_BYTES ((uint64_t)1 << 20) /* longer runs of unreadable rows are not copied */
#define PAUSE_NS 50000
#define ROOM_PAUSE_NS 1000000
#define TIMEOUT_NS INT64_C(10000000000)     /* for room in the cache */
#define GPU_TIMEOUT_NS INT64_C(30000000000) /* for the copy of a buffer */

/* The pinned rows of an episode. */
struct entry {
    uint64_t begin, end; /* in the array */
    const void *rows;
    uint32_t episode;
};

struct buffer {
    uint8_t *bytes;                    /* pinned */
    struct trajd_device_event *copied; /* the copy out of it */
    bool used;
};

struct filling {
    struct trajd_gpu *gpu;
    struct trajd_dataset *dataset;
    struct trajd_device_stream *stream;
    uint64_t buffer_bytes;
    struct buffer buffers[2];
    uint32_t current;
    struct entry *entries; /* [index episodes]: the first entry_count are pinned */
    uint32_t entry_count;
    bool prefetches;     /* the cache does not hold all rows, so they are prefetched */
    uint32_t prefetched; /* episodes before this one are prefetched */
    struct trajd_gpu_array *array;
    struct trajd_selection selection; /* the array's rows alone */
    uint64_t at, end;                 /* bytes of the array that are gathered */
    int64_t copy_ns;
};

/* ---- a slice of a buffer: on any thread of the pool ---- */

static const struct entry *first_entry_behind(const struct filling *filling, uint64_t begin)
{
    uint32_t low = 0, high = filling->entry_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (filling->entries[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return filling->entries + low;
}

/* Gathers slice `index` of the buffer. Bytes between entries are not written: no kernel reads
 * them. */
static void gather(void *context, uint32_t index)
{
    const struct filling *filling = context;
    const struct entry *last = filling->entries + filling->entry_count;
    const uint64_t begin = filling->at + index * SLICE_BYTES,
                   end = filling->end - begin < SLICE_BYTES ? filling->end : begin + SLICE_BYTES;
    uint8_t *slice = filling->buffers[filling->current].bytes + index * SLICE_BYTES;

    for (const struct entry *p = first_entry_behind(filling, begin); p < last && p->begin < end;
         p++) {
        const uint64_t from = p->begin > begin ? p->begin : begin, to = p->end < end ? p->end : end;
        memcpy(slice + (from - begin), (const uint8_t *)p->rows + (from - p->begin), to - from);
    }
}

/* ---- buffers: on the thread that makes feeds ---- */

static void pause_for(int64_t ns)
{
    const struct timespec pause = {.tv_nsec = ns};

    nanosleep(&pause, NULL);
}

static enum trajd_status wait_for_buffer(const struct filling *filling, struct trajd_error *error)
{
    const struct buffer *buffer = &filling->buffers[filling->current];
    const int64_t begin_ns = trajd_now_ns();
    bool passed = !buffer->used;
    enum trajd_status status = TRAJD_OK;

    while (!status && !passed) {
        status = trajd_device_event_poll(buffer->copied, &passed, error);
        if (!status && !passed)
            status = trajd_heartbeat_check(error);
        if (!status && !passed && trajd_now_ns() - begin_ns > GPU_TIMEOUT_NS)
            status = trajd_error_set(
                error, TRAJD_ERR_DEVICE, 0,
                "dataset %s: a copy of %llu MiB to the GPU has not ended in %lld s",
                filling->dataset->name, (unsigned long long)(filling->buffer_bytes >> 20),
                (long long)(GPU_TIMEOUT_NS / 1000000000));
        if (!status && !passed)
            pause_for(PAUSE_NS);
    }
    return status;
}

static enum trajd_status send_buffer(struct filling *filling, struct trajd_error *error)
{
    struct buffer *buffer = &filling->buffers[filling->current];
    const uint64_t size_bytes = filling->end - filling->at;
    enum trajd_status status = wait_for_buffer(filling, error);

    if (status)
        return status;
    if (trajd_pool_waiting(filling->gpu->options.pool))
        pause_for(PAUSE_NS);
    trajd_pool_run(filling->gpu->options.pool,
                   (uint32_t)((size_bytes + SLICE_BYTES - 1) / SLICE_BYTES), gather, filling);
    status = trajd_device_copy_async((uint8_t *)filling->array->memory + filling->at, buffer->bytes,
                                     size_bytes, filling->stream, error);
    if (!status)
        status = trajd_device_event_record(buffer->copied, filling->stream, error);
    buffer->used = true;
    filling->current ^= 1;
    return status;
}

/* Copies all pinned entries. */
static enum trajd_status send_entries(struct filling *filling, struct trajd_error *error)
{
    const uint64_t end = filling->entries[filling->entry_count - 1].end;
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;

    for (filling->at = filling->entries[0].begin; filling->at < end && !status;
         filling->at = filling->end) {
        filling->end =
            end - filling->at < filling->buffer_bytes ? end : filling->at + filling->buffer_bytes;
        trajd_heartbeat_turn();
        status = send_buffer(filling, error);
    }
    filling->copy_ns += trajd_now_ns() - begin_ns;
    return status;
}

/* ---- episodes ---- */

/* Returns true where an episode's rows cannot be read. Filling goes on; batches that need these
 * rows fail. */
static bool is_of_rows(enum trajd_status status)
{
    return status == TRAJD_ERR_DATA || status == TRAJD_ERR_IO || status == TRAJD_ERR_NOT_FOUND ||
           status == TRAJD_ERR_UNSUPPORTED;
}

/* Pauses where other feeds have pinned the cache's budget and will soon release it. Returns false
 * where waiting is useless. */
static bool wait_for_room(const struct filling *filling, uint32_t episode, int64_t begin_ns,
                          const struct trajd_error *error)
{
    trajd_heartbeat_turn();
    if (error->foreign_code == ENOMEM || trajd_now_ns() - begin_ns > TIMEOUT_NS ||
        !trajd_cache_will_have_room(filling->dataset->cache, &filling->selection, episode))
        return false;
    pause_for(ROOM_PAUSE_NS);
    return true;
}

/* Pins one more episode. TRAJD_ERR_MEMORY: the cache has no room for it beside the pinned ones. */
static enum trajd_status pin(struct filling *filling, uint32_t episode, struct trajd_error *error)
{
    struct trajd_gpu_array *array = filling->array;
    const uint64_t begin = array->offsets[episode],
                   size = trajd_cache_entry_bytes(filling->dataset->cache, &filling->selection, 0,
                                                  episode);
    const int64_t begin_ns = trajd_now_ns();
    const void *rows;
    enum trajd_status status;

    while ((status = trajd_cache_pin(filling->dataset->cache, &filling->selection, episode, &rows,
                                     error)) == TRAJD_ERR_MEMORY) {
        if (filling->entry_count || !wait_for_room(filling, episode, begin_ns, error))
            return status;
        status = trajd_heartbeat_check(error);
        if (status)
            return status;
    }
    if (is_of_rows(status))
        array->offsets[episode] = TRAJD_GPU_NO_ROWS;
    else if (!status)
        filling->entries[filling->entry_count++] =
            (struct entry){begin, begin + size, rows, episode};
    return is_of_rows(status) ? TRAJD_OK : status;
}

/* Prefetches one buffer of rows from this episode on, which has rows. */
static void prefetch(struct filling *filling, uint32_t episode)
{
    const uint64_t *offsets = filling->array->offsets;
    uint32_t e = filling->prefetched > episode ? filling->prefetched : episode;

    for (;
         e < filling->dataset->index->episode_count &&
         (offsets[e] == TRAJD_GPU_NO_ROWS || offsets[e] - offsets[episode] < filling->buffer_bytes);
         e++)
        if (offsets[e] != TRAJD_GPU_NO_ROWS)
            trajd_cache_prefetch(filling->dataset->cache, &filling->selection, &e, 1, e);
    filling->prefetched = e;
}

/* Returns true where the episode's rows are copied apart from the pinned ones: the pinned ones fill
 * a buffer, or many unreadable rows lie between. */
static bool is_apart(const struct filling *filling, uint32_t episode)
{
    const struct entry *last;

    if (!filling->entry_count)
        return false;
    last = filling->entries + filling->entry_count - 1;
    return last->end - filling->entries->begin >= filling->buffer_bytes ||
           filling->array->offsets[episode] - last->end > HOLE_BYTES;
}

/* Pins episodes from *episode on: one buffer of rows, or as many as the cache has room for. */
static enum trajd_status pin_some(struct filling *filling, uint32_t *episode,
                                  struct trajd_error *error)
{
    const struct trajd_index *index = filling->dataset->index;
    enum trajd_status status = TRAJD_OK;

    filling->entry_count = 0;
    for (; *episode < index->episode_count; ++*episode) {
        if (filling->array->offsets[*episode] == TRAJD_GPU_NO_ROWS)
            continue;
        if (is_apart(filling, *episode))
            break;
        if (filling->prefetches)
            prefetch(filling, *episode);
        status = trajd_heartbeat_check(error);
        if (!status)
            status = pin(filling, *episode, error);
        if (status)
            break;
    }
    return status == TRAJD_ERR_MEMORY && filling->entry_count ? TRAJD_OK : status;
}

static void unpin_all(struct filling *filling)
{
    for (uint32_t i = 0; i < filling->entry_count; i++)
        trajd_cache_unpin(filling->dataset->cache, &filling->selection,
                          filling->entries[i].episode);
}

static enum trajd_status fill_resident(struct filling *filling, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t episode = 0; episode < filling->dataset->index->episode_count && !status;) {
        status = pin_some(filling, &episode, error);
        if (!status && filling->entry_count)
            status = send_entries(filling, error);
        unpin_all(filling);
    }
    return status;
}

/* ---- the filling of arrays ---- */

static void close_filling(struct filling *filling)
{
    /* after a failure, copies that are under way still read the buffers */
    struct trajd_error ignored;

    if (filling->stream)
        trajd_device_stream_wait(filling->stream, &ignored);
    for (uint32_t i = 0; i < 2; i++) {
        trajd_device_event_destroy(&filling->buffers[i].copied);
        if (filling->buffers[i].bytes)
            trajd_device_host_free(filling->gpu->device, filling->buffers[i].bytes);
    }
    trajd_device_stream_destroy(&filling->stream);
    free(filling->entries);
}

static enum trajd_status open_filling(struct filling *filling, uint64_t size_bytes,
                                      struct trajd_error *error)
{
    struct trajd_device *device = filling->gpu->device;
    enum trajd_status status;

    filling->buffer_bytes = size_bytes < BUFFER_BYTES ? size_bytes : BUFFER_BYTES;
    filling->entries = calloc(filling->dataset->index->episode_count + 1, sizeof *filling->entries);
    if (!filling->entries)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s",
                               filling->dataset->name);
    status = trajd_device_stream_create(device, &filling->stream, error);
    for (uint32_t i = 0; i < 2 && !status; i++) {
        status = trajd_device_host_alloc(device, filling->buffer_bytes,
                                         (void **)&filling->buffers[i].bytes, error);
        if (!status)
            status = trajd_device_event_create(device, &filling->buffers[i].copied, error);
    }
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

enum trajd_status trajd_gpu_fill(struct trajd_gpu *gpu, struct trajd_dataset *dataset,
                                 const struct trajd_selection *selection,
                                 struct trajd_gpu_array *const *arrays, struct trajd_error *error)
{
    struct filling filling = {.gpu = gpu, .dataset = dataset};
    uint64_t size_bytes = 0;
    bool complete;
    enum trajd_status status =
        trajd_cache_fill(dataset->cache, selection, NULL, 0, &complete, error);

    if (status)
        return status;
    filling.prefetches = !complete;
    for (uint32_t k = 0; k < selection->array_count; k++)
        size_bytes += arrays[k]->size_bytes;
    status = open_filling(&filling, size_bytes, error);
    for (uint32_t k = 0; k < selection->array_count && !status; k++) {
        filling.array = arrays[k];
        filling.prefetched = 0;
        filling.selection =
            (struct trajd_selection){&selection->array_indexes[k], 1, &selection->as_float32[k]};
        status = fill_resident(&filling, error);
    }
    if (!status)
        status = wait_for_all(&filling, error);
    close_filling(&filling);
    return status;
}
