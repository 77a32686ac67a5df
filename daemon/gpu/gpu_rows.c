/* Rows on their way to the GPU, once. Those of an episode are pinned in the store, copied by all threads of the pool into one of two
 * pinned buffers, and go from there while the other is filled. */
#include "daemon/gpu/gpu_private.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"

#define STAGE_BYTES ((uint64_t)16 << 20)
#define SLICE_BYTES ((uint64_t)1 << 20)
#define ROW_ALIGNMENT 256

struct stage {
    struct trajd_gpu *gpu;
    struct trajd_device_stream *stream;
    uint8_t *buffers[2];
    struct trajd_device_event *over[2]; /* the copies out of a buffer */
    bool used[2];
    int current;
    uint64_t fill;
    int64_t copy_ns;
};

struct slice_job {
    uint8_t *to;
    const uint8_t *from;
    uint64_t size_bytes;
};

static void copy_slice(void *context, uint32_t index)
{
    const struct slice_job *job = context;
    const uint64_t begin = index * SLICE_BYTES, rest = job->size_bytes - begin;

    memcpy(job->to + begin, job->from + begin, rest < SLICE_BYTES ? rest : SLICE_BYTES);
}

static void close_stage(struct stage *stage)
{
    struct trajd_error ignored; /* copies that are under way after a failure still read the buffers */

    if (stage->stream)
        trajd_device_stream_wait(stage->stream, &ignored);
    for (int i = 0; i < 2; i++) {
        trajd_device_event_destroy(&stage->over[i]);
        if (stage->buffers[i])
            trajd_device_host_free(stage->gpu->device, stage->buffers[i]);
    }
    trajd_device_stream_destroy(&stage->stream);
}

static enum trajd_status open_stage(struct trajd_gpu *gpu, struct stage *stage, struct trajd_error *error)
{
    enum trajd_status status;

    *stage = (struct stage){.gpu = gpu};
    status = trajd_device_stream_create(gpu->device, &stage->stream, error);
    for (int i = 0; i < 2 && !status; i++) {
        status = trajd_device_host_alloc(gpu->device, STAGE_BYTES, (void **)&stage->buffers[i], error);
        if (!status)
            status = trajd_device_event_create(gpu->device, &stage->over[i], error);
    }
    if (status)
        close_stage(stage);
    return status;
}

/* The other buffer is next: what left it last must be over. */
static enum trajd_status turn_stage(struct stage *stage, struct trajd_error *error)
{
    enum trajd_status status = trajd_device_event_record(stage->over[stage->current], stage->stream, error);
    bool passed = false;

    stage->used[stage->current] = true;
    stage->current ^= 1;
    stage->fill = 0;
    while (!status && stage->used[stage->current] && !passed)
        status = trajd_device_event_poll(stage->over[stage->current], &passed, error);
    return status;
}

static enum trajd_status send(struct stage *stage, uint8_t *to, const uint8_t *from, uint64_t size_bytes, struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;

    while (size_bytes && !status) {
        const uint64_t room = STAGE_BYTES - stage->fill, part = size_bytes < room ? size_bytes : room;
        struct slice_job job = {stage->buffers[stage->current] + stage->fill, from, part};
        if (!part) {
            status = turn_stage(stage, error);
            continue;
        }
        trajd_pool_run(stage->gpu->options.pool, (uint32_t)((part + SLICE_BYTES - 1) / SLICE_BYTES), copy_slice, &job);
        status = trajd_device_copy_async(to, job.to, part, stage->stream, error);
        stage->fill += part;
        to += part;
        from += part;
        size_bytes -= part;
    }
    stage->copy_ns += trajd_now_ns() - begin_ns;
    return status;
}

/* ---- residents ---- */

static struct trajd_gpu_resident *find(const struct trajd_gpu *gpu, const struct trajd_dataset *dataset,
                                       const struct trajd_selection *selection, uint32_t k)
{
    const bool as_float32 = selection->as_float32 && selection->as_float32[k];

    for (struct trajd_gpu_resident *r = gpu->residents; r; r = r->next)
        if (r->dataset == dataset && r->dataset_index == selection->dataset_indexes[k] && r->as_float32 == as_float32)
            return r;
    return NULL;
}

/* Where each episode's rows come to lie; the resident's size. */
static void lay_out(struct trajd_gpu_resident *resident, const struct trajd_selection *selection, uint32_t k)
{
    const struct trajd_index *index = resident->dataset->index;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const uint64_t size = trajd_store_piece_bytes(resident->dataset->store, selection, k, e);
        resident->offsets[e] = index->episodes[e].quarantine || !size ? TRAJD_GPU_NO_ROWS : resident->size_bytes;
        resident->size_bytes += (size + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
    }
}

static void destroy(struct trajd_gpu *gpu, struct trajd_gpu_resident *resident)
{
    if (resident->memory)
        trajd_device_free(gpu->device, resident->memory);
    free(resident->offsets);
    free(resident);
}

static struct trajd_gpu_resident *create(const struct trajd_dataset *dataset, const struct trajd_selection *selection, uint32_t k)
{
    struct trajd_gpu_resident *made = calloc(1, sizeof *made);

    if (made)
        made->offsets = calloc(dataset->index->episode_count, sizeof *made->offsets);
    if (!made || !made->offsets) {
        free(made);
        return NULL;
    }
    made->dataset = dataset;
    made->dataset_index = selection->dataset_indexes[k];
    made->as_float32 = selection->as_float32 && selection->as_float32[k];
    lay_out(made, selection, k);
    return made;
}

static enum trajd_status send_episode(struct stage *stage, struct trajd_dataset *dataset, const struct trajd_selection *selection,
                                      struct trajd_gpu_resident *const *fresh, uint32_t episode, const void **rows,
                                      struct trajd_error *error)
{
    enum trajd_status status = trajd_store_pin(dataset->store, selection, episode, rows, error);

    if (status)
        return status;
    for (uint32_t k = 0; k < selection->dataset_count && !status; k++)
        if (fresh[k] && rows[k])
            status = send(stage, (uint8_t *)fresh[k]->memory + fresh[k]->offsets[episode], rows[k],
                          trajd_store_piece_bytes(dataset->store, selection, k, episode), error);
    trajd_store_unpin(dataset->store, selection, episode);
    return status;
}

/* Rows that cannot be read are no end of it: who wants them is told, batch by batch. */
static bool is_of_rows(enum trajd_status status)
{
    return status == TRAJD_ERR_DATA || status == TRAJD_ERR_IO || status == TRAJD_ERR_NOT_FOUND || status == TRAJD_ERR_UNSUPPORTED;
}

static enum trajd_status fill(struct trajd_gpu *gpu, struct trajd_dataset *dataset, const struct trajd_selection *selection,
                              struct trajd_gpu_resident *const *fresh, struct trajd_error *error)
{
    const struct trajd_index *index = dataset->index;
    const void **rows = calloc(selection->dataset_count + 1, sizeof *rows);
    struct stage stage;
    bool complete;
    enum trajd_status status =
        rows ? trajd_store_fill(dataset->store, selection, NULL, 0, &complete, error)
             : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s", dataset->name);

    if (!status && !(status = open_stage(gpu, &stage, error))) {
        for (uint32_t e = 0; e < index->episode_count && !status; e++) {
            if (index->episodes[e].quarantine)
                continue;
            status = send_episode(&stage, dataset, selection, fresh, e, rows, error);
            for (uint32_t k = 0; is_of_rows(status) && k < selection->dataset_count; k++)
                if (fresh[k])
                    fresh[k]->offsets[e] = TRAJD_GPU_NO_ROWS;
            status = is_of_rows(status) ? TRAJD_OK : status;
        }
        const int64_t begin_ns = trajd_now_ns();
        if (!status)
            status = trajd_device_stream_wait(stage.stream, error);
        pthread_mutex_lock(&gpu->mutex);
        gpu->fill_seconds += (double)(stage.copy_ns + trajd_now_ns() - begin_ns) * 1e-9;
        pthread_mutex_unlock(&gpu->mutex);
        close_stage(&stage);
    }
    free(rows);
    return status;
}

static enum trajd_status check_budget(const struct trajd_gpu *gpu, const struct trajd_dataset *dataset, uint64_t wanted,
                                      struct trajd_error *error)
{
    const uint64_t left = gpu->options.rows_bytes - gpu->rows_used_bytes;

    if (wanted <= left)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "dataset %s: its rows are %llu MiB, and gpu.rows leaves %llu MiB on %s", dataset->name,
                           (unsigned long long)(wanted >> 20), (unsigned long long)(left >> 20), trajd_gpu_uuid(gpu));
}

/* All that is not there yet, or nothing. */
static enum trajd_status make_resident(struct trajd_gpu *gpu, struct trajd_dataset *dataset, const struct trajd_selection *selection,
                                       struct trajd_gpu_resident **fresh, struct trajd_error *error)
{
    uint64_t wanted = 0;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t k = 0; k < selection->dataset_count && !status; k++) {
        if (find(gpu, dataset, selection, k))
            continue;
        fresh[k] = create(dataset, selection, k);
        if (!fresh[k])
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s", dataset->name);
        wanted += fresh[k]->size_bytes;
    }
    status = check_budget(gpu, dataset, wanted, error);
    for (uint32_t k = 0; k < selection->dataset_count && !status; k++)
        if (fresh[k] && fresh[k]->size_bytes)
            status = trajd_device_alloc(gpu->device, fresh[k]->size_bytes, &fresh[k]->memory, error);
    if (!status && wanted)
        status = fill(gpu, dataset, selection, fresh, error);
    return status;
}

static void enlist(struct trajd_gpu *gpu, struct trajd_gpu_resident *resident)
{
    resident->next = gpu->residents;
    gpu->residents = resident;
    gpu->rows_used_bytes += resident->size_bytes;
    gpu->filled_bytes += resident->size_bytes;
}

static void point_at_rows(const struct trajd_gpu_resident *resident, uint32_t piece_count, uint32_t k, const void **rows, bool *unreadable,
                          const struct trajd_selection *selection)
{
    const struct trajd_index *index = resident->dataset->index;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const bool has = resident->offsets[e] != TRAJD_GPU_NO_ROWS;
        rows[(size_t)e * piece_count + k] = has ? (const uint8_t *)resident->memory + resident->offsets[e] : NULL;
        if (!has && !index->episodes[e].quarantine && trajd_store_piece_bytes(resident->dataset->store, selection, k, e))
            unreadable[e] = true;
    }
}

enum trajd_status trajd_gpu_hold_rows(struct trajd_gpu *gpu, struct trajd_dataset *dataset, const struct trajd_selection *selection,
                                      const void **rows, bool *unreadable, struct trajd_error *error)
{
    struct trajd_gpu_resident **fresh = calloc(selection->dataset_count + 1, sizeof *fresh);
    enum trajd_status status = fresh ? make_resident(gpu, dataset, selection, fresh, error)
                                     : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of dataset %s", dataset->name);

    for (uint32_t k = 0; status && fresh && k < selection->dataset_count; k++)
        if (fresh[k])
            destroy(gpu, fresh[k]);
    pthread_mutex_lock(&gpu->mutex);
    for (uint32_t k = 0; !status && k < selection->dataset_count; k++) {
        if (fresh[k])
            enlist(gpu, fresh[k]);
        find(gpu, dataset, selection, k)->holders++;
    }
    pthread_mutex_unlock(&gpu->mutex);
    for (uint32_t k = 0; !status && k < selection->dataset_count; k++)
        point_at_rows(find(gpu, dataset, selection, k), selection->dataset_count, k, rows, unreadable, selection);
    free(fresh);
    return status;
}

void trajd_gpu_drop_rows(struct trajd_gpu *gpu, const struct trajd_dataset *dataset, const struct trajd_selection *selection)
{
    for (uint32_t k = 0; k < selection->dataset_count; k++) {
        struct trajd_gpu_resident *resident = find(gpu, dataset, selection, k), **link = &gpu->residents;
        pthread_mutex_lock(&gpu->mutex);
        const bool over = --resident->holders == 0;
        while (over && *link != resident)
            link = &(*link)->next;
        if (over) {
            *link = resident->next;
            gpu->rows_used_bytes -= resident->size_bytes;
        }
        pthread_mutex_unlock(&gpu->mutex);
        if (over)
            destroy(gpu, resident);
    }
}
