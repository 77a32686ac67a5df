/* Prepares one batch on a GPU: pins and gathers its rows, and starts the copies. */
#include "daemon/producer/producer_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/producer/gpu_images.h"
#include "kernels/dispatch/plan.h"

struct rows_of_member {
    const struct trajd_gpu_member *member;
    const struct trajd_producer_member *host;
};

/* Returns the episode's rows of streamed arrays in host memory, where they are pinned. */
static const void *const *host_rows_of(void *context, uint32_t episode)
{
    const struct rows_of_member *of = context;

    return trajd_gpu_member_lacks_rows(of->member, episode)
               ? NULL
               : of->host->rows + (size_t)episode * of->host->selection->array_count;
}

/* Fills *error for the first of these windows whose rows cannot be read, with the same text as when
 * the rows are read from the cache. */
static enum trajd_status check_readable(struct trajd_producer *producer, uint32_t p, uint32_t first,
                                        uint32_t count, struct trajd_error *error)
{
    const struct trajd_window_plan *plan = producer->plan->members[p];
    const void **rows;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t w = first; w < first + count && !status && !producer->spec->keep_bad_rows; w++) {
        const uint32_t episode = producer->batch->members[p]->windows[w].episode_index;
        if (!producer->on_gpu->members[p].unreadable[episode])
            continue;
        rows = calloc(plan->selection.array_count, sizeof *rows);
        status = rows ? trajd_cache_pin(producer->members[p].dataset->cache, &plan->selection,
                                        episode, rows, error)
                      : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory",
                                        producer->name);
        if (rows && !status) {
            trajd_cache_unpin(producer->members[p].dataset->cache, &plan->selection, episode);
            status = trajd_error_set(error, TRAJD_ERR_DATA, 0,
                                     "%s: rows could not be read when they were copied to the GPU",
                                     producer->members[p].dataset->index->episodes[episode].id);
        }
        free(rows);
    }
    return status;
}

/* Fills the unreadable windows with NaN (bad_rows: keep). All ones is a NaN in every floating-point
 * type. */
static enum trajd_status fill_nan(const struct trajd_producer *producer, uint32_t p, uint8_t *slot,
                                  uint32_t first, uint32_t count, struct trajd_error *error)
{
    const struct trajd_binding *batch = producer->batch->members[p];
    const struct trajd_window_plan *plan = batch->plan;
    const struct trajd_producer_gpu *own = producer->on_gpu;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t w = first; w < first + count; w++) {
        const uint32_t row = batch->window_rows ? batch->window_rows[w] : w;
        if (!trajd_gpu_member_lacks_rows(&own->members[p], batch->windows[w].episode_index))
            continue;
        for (uint32_t o = 0; o < plan->rules.visible_count && !status; o++) {
            const struct trajd_plan_output *output = &plan->rules.outputs[o];
            const uint64_t bytes =
                output->step_count * output->feature_count * trajd_dtype_size(output->dtype);
            if (output->dtype == TRAJD_F64 || output->dtype == TRAJD_F32 ||
                output->dtype == TRAJD_F16 || output->dtype == TRAJD_BF16)
                status =
                    trajd_device_fill_async(slot + batch->outputs[o].offset_bytes + row * bytes,
                                            0xff, bytes, own->stream, error);
        }
    }
    return status;
}

/* How many bytes of a batch's blocks are used. */
struct used {
    uint64_t block, rows;
};

enum trajd_status trajd_producer_gpu_launch(struct trajd_producer *producer,
                                            struct trajd_gpu_batch *gpu_batch,
                                            struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    const uint32_t frame = (uint32_t)(gpu_batch - own->batches);
    enum trajd_status status =
        own->copies ? trajd_device_stream_follow(own->stream, gpu_batch->copied, error) : TRAJD_OK;

    if (!status)
        status = trajd_gpu_sends_launch(&gpu_batch->sends, own->stream, error);
    pthread_mutex_lock(&own->launching);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++) {
        const struct trajd_resample_request *request = gpu_batch->requests[p];
        if (request)
            status =
                trajd_plan_run_async(producer->members[p].kernel_plan, request, own->stream, error);
        if (request && !status)
            status =
                trajd_gpu_request_transform(own->members[p].request, frame, own->stream, error);
        gpu_batch->requests[p] = NULL;
    }
    pthread_mutex_unlock(&own->launching);
    return status;
}

static enum trajd_status mark_copied(const struct trajd_producer_gpu *own,
                                     const struct trajd_gpu_batch *gpu_batch,
                                     struct trajd_error *error)
{
    return own->copies ? trajd_device_event_record(gpu_batch->copied, own->copies, error)
                       : TRAJD_OK;
}

/* Launches what is gathered so far, before the whole batch is prepared. */
static enum trajd_status launch_first(struct trajd_producer *producer,
                                      struct trajd_gpu_batch *gpu_batch, struct trajd_error *error)
{
    const enum trajd_status status = mark_copied(producer->on_gpu, gpu_batch, error);

    return status ? status : trajd_producer_gpu_launch(producer, gpu_batch, error);
}

/* Launches what is gathered and waits for it, so that the blocks can be used again. This happens
 * where a batch has many ranges of few rows. */
static enum trajd_status flush(struct trajd_producer *producer, struct trajd_gpu_batch *gpu_batch,
                               struct used *used, struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    enum trajd_status status = launch_first(producer, gpu_batch, error);

    if (!status && own->copies)
        status = trajd_device_stream_wait(own->copies, error);
    *used = (struct used){0, 0};
    return status ? status : trajd_device_stream_wait(own->stream, error);
}

/* Gathers the streamed rows of these windows and starts their copy. TRAJD_ERR_MEMORY: too many
 * windows at once. */
static enum trajd_status send_streamed_rows(struct trajd_producer *producer,
                                            struct trajd_gpu_batch *gpu_batch,
                                            struct rows_of_member *of, uint32_t first,
                                            uint32_t count, struct used *used,
                                            struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    const uint64_t size_bytes =
        trajd_gpu_streamed_rows_narrow(of->member->streamed_rows, first, count);
    enum trajd_status status = TRAJD_OK;

    if (size_bytes > own->rows_bytes)
        return trajd_error_set(
            error, TRAJD_ERR_MEMORY, 0,
            "feed %s: %u windows at once need %llu bytes of rows, more than a batch has",
            producer->name, count, (unsigned long long)size_bytes);
    if (size_bytes > own->rows_bytes - used->rows)
        status = flush(producer, gpu_batch, used, error);
    if (status)
        return status;
    trajd_gpu_streamed_rows_gather(of->member->streamed_rows, first, count, host_rows_of, of,
                                   gpu_batch->rows_staging + used->rows,
                                   gpu_batch->rows_block + used->rows, producer->options.pool);
    if (size_bytes)
        status = trajd_device_copy_async(gpu_batch->rows_block + used->rows,
                                         gpu_batch->rows_staging + used->rows, size_bytes,
                                         own->copies, error);
    used->rows += size_bytes;
    return status;
}

/* Starts the copies of these windows' arrays and leaves their request to be launched. */
static enum trajd_status gather_some(struct trajd_producer *producer,
                                     struct trajd_gpu_batch *gpu_batch, uint32_t p, uint32_t first,
                                     uint32_t count, struct used *used, struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    struct trajd_binding *batch = producer->batch->members[p];
    struct rows_of_member of = {&own->members[p], &producer->members[p]};
    const uint32_t frame = (uint32_t)(gpu_batch - own->batches);
    const struct trajd_resample_request *request;
    uint64_t size_bytes;
    enum trajd_status status = TRAJD_OK;

    if (used->block + trajd_gpu_request_block_bytes(own->members[p].request, count) >
        own->block_bytes)
        status = flush(producer, gpu_batch, used, error);
    trajd_bind_windows(batch, first, count, gpu_batch->fill.memory, trajd_gpu_member_rows,
                       &own->members[p]);
    if (!status && own->members[p].streamed_rows)
        status = send_streamed_rows(producer, gpu_batch, &of, first, count, used, error);
    if (!status && gpu_batch->requests[p]) /* of another range of the same dataset */
        status = launch_first(producer, gpu_batch, error);
    if (status)
        return status;
    request = trajd_gpu_request_gather(own->members[p].request, frame, first,
                                       gpu_batch->staging + used->block,
                                       gpu_batch->block + used->block, &size_bytes);
    status =
        own->members[p].streamed_rows
            ? trajd_device_copy_async(gpu_batch->block + used->block,
                                      gpu_batch->staging + used->block, size_bytes, own->copies,
                                      error)
            : trajd_gpu_sends_add(&gpu_batch->sends, gpu_batch->block + used->block,
                                  gpu_batch->staging + used->block, size_bytes, own->stream, error);
    gpu_batch->requests[p] = request;
    used->block += size_bytes;
    if (!status && producer->spec->keep_bad_rows) {
        status = launch_first(producer, gpu_batch, error);
        if (!status)
            status = fill_nan(producer, p, gpu_batch->fill.memory, first, count, error);
    }
    return status;
}

/* Pins the rows of these windows while they are gathered. */
static enum trajd_status pin(struct trajd_producer *producer, struct trajd_producer_member *member,
                             uint32_t first, uint32_t count, struct trajd_error *error)
{
    enum trajd_status status;

    while ((status = trajd_producer_pin_windows(producer, member, first, count, error))) {
        trajd_producer_unpin_windows(member, first, count);
        if (status != TRAJD_ERR_MEMORY || count > 1 ||
            !trajd_producer_wait_for_others(producer, member,
                                            member->batch->windows[first].episode_index, error))
            break;
    }
    return status;
}

/* Marks the episodes whose rows could not be pinned, also for the images of the batch. */
static void mark_lacking(struct trajd_producer *producer, uint32_t p, uint32_t first,
                         uint32_t count)
{
    const struct trajd_producer_member *member = &producer->members[p];

    for (uint32_t w = first; w < first + count; w++) {
        const uint32_t episode = member->batch->windows[w].episode_index;
        producer->on_gpu->members[p].lacking[episode] |= member->pinned[episode] == 2;
    }
}

static void clear_lacking(struct trajd_producer *producer)
{
    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        memset(producer->on_gpu->members[p].lacking, false,
               producer->members[p].dataset->index->episode_count * sizeof(bool));
}

/* Gathers these windows. Where they need more rows at once than the cache or the batch's buffers
 * hold, gathers each half of them on its own. */
static enum trajd_status gather_windows(struct trajd_producer *producer,
                                        struct trajd_gpu_batch *gpu_batch, uint32_t p,
                                        uint32_t first, uint32_t count, struct used *used,
                                        struct trajd_error *error)
{
    struct trajd_producer_member *member = &producer->members[p];
    enum trajd_status status = check_readable(producer, p, first, count, error);

    if (status)
        return status;
    if (!producer->on_gpu->members[p].streamed_rows)
        return gather_some(producer, gpu_batch, p, first, count, used, error);
    status = pin(producer, member, first, count, error);
    if (!status) {
        mark_lacking(producer, p, first, count);
        status = gather_some(producer, gpu_batch, p, first, count, used, error);
        trajd_producer_unpin_windows(member, first, count);
    }
    if (status == TRAJD_ERR_MEMORY && count > 1) {
        status = gather_windows(producer, gpu_batch, p, first, count / 2, used, error);
        if (!status)
            status = gather_windows(producer, gpu_batch, p, first + count / 2, count - count / 2,
                                    used, error);
    }
    return status;
}

static const void *const *no_rows(void *context, uint32_t episode)
{
    (void)context;
    (void)episode;
    return NULL;
}

/* Measures the first batch of an epoch as an example of all batches, and adds a quarter. */
uint64_t trajd_producer_gpu_rows_bytes(struct trajd_producer *producer, uint32_t p)
{
    struct trajd_binding *batch = producer->batch->members[p];
    struct trajd_gpu_streamed_rows *streamed_rows = producer->on_gpu->members[p].streamed_rows;
    const uint64_t length = trajd_mixture_plan_epoch_length(producer->plan),
                   largest = trajd_gpu_streamed_rows_largest(streamed_rows);
    uint32_t first, count;
    uint64_t size_bytes = 0;

    trajd_mixture_batch_look_up(
        producer->batch, 0, 0,
        length < producer->spec->global_batch ? (uint32_t)length : producer->spec->global_batch);
    trajd_mixture_batch_slice(batch, 0, producer->spec->global_batch, &first, &count);
    if (count) {
        trajd_bind_windows(batch, first, count, producer->on_gpu->slab, no_rows, NULL);
        size_bytes = trajd_gpu_streamed_rows_narrow(streamed_rows, first, count);
        size_bytes += size_bytes / 4;
    }
    return size_bytes > largest ? size_bytes : largest;
}

static enum trajd_status send_ids(struct trajd_producer *producer,
                                  struct trajd_gpu_batch *gpu_batch, struct trajd_error *error)
{
    const struct trajd_producer_gpu *own = producer->on_gpu;
    uint8_t *staged = gpu_batch->staging + own->block_bytes;
    struct trajd_fill ids = gpu_batch->fill;

    /* an address for which the ids at ids_offset are in `staged`; no other byte of this slot exists
     */
    ids.memory = (void *)((uintptr_t)staged - own->ids_offset);
    trajd_producer_write_ids(producer, &ids);
    return trajd_gpu_sends_add(&gpu_batch->sends,
                               (uint8_t *)gpu_batch->fill.memory + own->ids_offset, staged,
                               own->ids_bytes, own->stream, error);
}

enum trajd_status trajd_producer_gpu_prepare(struct trajd_producer *producer,
                                             struct trajd_gpu_batch *gpu_batch,
                                             struct trajd_error *error)
{
    const struct trajd_fill *fill = &gpu_batch->fill;
    struct used used = {0, 0};
    enum trajd_status status = TRAJD_OK;

    memset(gpu_batch->requests, 0, producer->plan->member_count * sizeof *gpu_batch->requests);
    gpu_batch->sends.count = 0;
    if (producer->on_gpu->copies)
        trajd_producer_prefetch_rows(producer, fill);
    if (producer->on_gpu->copies && producer->spec->keep_bad_rows)
        clear_lacking(producer);
    trajd_mixture_batch_look_up(producer->batch, fill->epoch, fill->position, fill->row_count);
    for (uint32_t r = 0; r < fill->range_count; r++)
        for (uint32_t p = 0; p < producer->plan->member_count && !status; p++) {
            uint32_t first, count;
            trajd_mixture_batch_slice(producer->batch->members[p], fill->ranges[r].begin,
                                      fill->ranges[r].count, &first, &count);
            trajd_counter_add(&producer->members[p].windows, count);
            if (count)
                status = gather_windows(producer, gpu_batch, p, first, count, &used, error);
        }
    if (!status && producer->on_gpu->images)
        status =
            trajd_gpu_images_prepare(producer->on_gpu->images, gpu_batch,
                                     gpu_batch->staging + producer->on_gpu->block_bytes, error);
    if (!status)
        status = send_ids(producer, gpu_batch, error);
    return status ? status : mark_copied(producer->on_gpu, gpu_batch, error);
}
