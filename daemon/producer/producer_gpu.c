/* Makes and destroys the production on a GPU: its ring, buffers and batches. */
#include "daemon/producer/producer_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/producer/gpu_images.h"
#include "kernels/dispatch/plan.h"
#include "proto/ring_layout.h"

/* limit of pinned memory for streamed rows, unless two batches need more */
#define ROWS_BYTES ((uint64_t)256 << 20)

static enum trajd_status write_header(void *context, const void *header, size_t size_bytes,
                                      struct trajd_error *error)
{
    const struct trajd_producer_gpu *own = context;
    enum trajd_status status =
        trajd_device_fill_async(own->slab, 0, TRAJD_RING_ALIGNMENT, own->stream, error);

    if (!status)
        status = trajd_device_copy_async(own->slab, header, size_bytes, own->stream, error);
    return status ? status : trajd_device_stream_wait(own->stream, error);
}

static enum trajd_status make_ring(struct trajd_producer *producer, struct trajd_producer_gpu *own,
                                   struct trajd_error *error)
{
    enum trajd_status status;

    if (__builtin_mul_overflow(producer->schema.slot_size_bytes, producer->slot_count,
                               &own->slab_bytes) ||
        __builtin_add_overflow(own->slab_bytes, TRAJD_RING_ALIGNMENT, &own->slab_bytes))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: the size of the ring overflows", producer->name);
    status = trajd_gpu_take_ring(own->gpu, own->slab_bytes, "a ring", &own->slab, error);
    if (!status)
        status = trajd_device_share(trajd_gpu_device(own->gpu), own->slab, own->handle, error);
    own->memory = (struct trajd_feed_memory){.gpu = trajd_gpu_id(own->gpu),
                                             .memory = own->slab,
                                             .handle = own->handle,
                                             .handle_size_bytes = sizeof own->handle,
                                             .write_header = write_header,
                                             .context = own};
    return status;
}

static const struct trajd_selection nothing;

static enum trajd_status make_member(struct trajd_producer *producer,
                                     struct trajd_producer_gpu *own, uint32_t p,
                                     struct trajd_error *error)
{
    const struct trajd_window_plan *plan = producer->plan->members[p];
    struct trajd_dataset *dataset = producer->members[p].dataset;
    struct trajd_gpu_member *member = &own->members[p];
    enum trajd_status status;

    if (!trajd_plan_is_cuda(producer->members[p].kernel_plan))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "feed %s: kernel %s runs on the CPU, so batches are in host memory",
                               producer->name,
                               trajd_plan_describe(producer->members[p].kernel_plan));
    member->rows = trajd_arena_array(
        &own->arena, (uint64_t)dataset->index->episode_count * plan->selection.array_count,
        sizeof *member->rows);
    member->array_count = plan->selection.array_count;
    member->unreadable =
        trajd_arena_array(&own->arena, dataset->index->episode_count, sizeof *member->unreadable);
    member->held =
        trajd_arena_array(&own->arena, plan->selection.array_count, sizeof *member->held);
    member->lacking =
        trajd_arena_array(&own->arena, dataset->index->episode_count, sizeof *member->lacking);
    if (own->arena.is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of feed %s",
                               producer->name);
    status = trajd_gpu_request_create(own->gpu, own->stream, producer->batch->members[p],
                                      TRAJD_GPU_MAX_BATCHES, &own->arena, &member->request, error);
    if (!status)
        status = trajd_gpu_hold_rows(own->gpu, dataset, &plan->selection, member->rows,
                                     member->unreadable, member->held, error);
    member->holds_rows = !status;
    if (!status)
        status = trajd_gpu_streamed_rows_create(producer->batch->members[p], member->held,
                                                &own->arena, &member->streamed_rows, error);
    producer->members[p].selection =
        member->streamed_rows ? trajd_gpu_streamed_rows_selection(member->streamed_rows) : &nothing;
    return status;
}

/* Sets sizes and depth. The ids and the parameters of images are the last tensors of a slot, side
 * by side. */
static void measure(const struct trajd_producer *producer, struct trajd_producer_gpu *own)
{
    const struct trajd_wire_tensor *first =
        &producer->schema.tensors[2 * producer->plan->members[0]->rules.visible_count];
    const struct trajd_wire_tensor *last =
        &producer->schema.tensors[producer->schema.tensor_count - 1];

    uint64_t last_bytes = trajd_dtype_size(last->dtype);

    for (uint32_t i = 0; i < last->rank; i++)
        last_bytes *= last->shape[i];
    own->ids_offset = first->offset_bytes;
    own->ids_bytes = last->offset_bytes + last_bytes - first->offset_bytes;
    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        own->block_bytes +=
            trajd_gpu_request_block_bytes(own->members[p].request, producer->spec->global_batch);
    own->depth = producer->slot_count - 1 < TRAJD_GPU_MAX_BATCHES ? producer->slot_count - 1
                                                                  : TRAJD_GPU_MAX_BATCHES;
}

/* Allocates the buffers of streamed rows, pinned and on the GPU: one of each for every batch. */
static enum trajd_status make_rows_memory(struct trajd_producer *producer,
                                          struct trajd_producer_gpu *own, struct trajd_error *error)
{
    struct trajd_device *device = trajd_gpu_device(own->gpu);
    const uint64_t remaining_bytes = producer->rings_remaining_bytes,
                   bound_bytes = remaining_bytes < ROWS_BYTES ? remaining_bytes : ROWS_BYTES;
    enum trajd_status status;

    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        if (own->members[p].streamed_rows)
            own->rows_bytes += trajd_producer_gpu_rows_bytes(producer, p);
    if (!own->rows_bytes)
        return TRAJD_OK;
    while (own->depth > 2 && own->depth * own->rows_bytes > bound_bytes)
        own->depth--;
    producer->pinned_bytes = own->depth * own->rows_bytes;
    if (producer->pinned_bytes > remaining_bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: pinned memory for streamed rows needs %llu bytes, but "
                               "memory.rings has only %llu bytes left",
                               producer->name, (unsigned long long)producer->pinned_bytes,
                               (unsigned long long)remaining_bytes);
    status = trajd_gpu_take_ring(own->gpu, own->depth * own->rows_bytes, "memory for streamed rows",
                                 &own->rows_memory, error);
    if (!status)
        status = trajd_producer_load_rows(producer, error);
    if (!status)
        status = trajd_device_stream_create(device, &own->copies, error);
    if (!status)
        status = trajd_device_host_alloc(device, own->depth * own->rows_bytes,
                                         (void **)&own->rows_pinned, error);
    for (uint32_t i = 0; i < own->depth && !status; i++) {
        own->batches[i].rows_staging = own->rows_pinned + i * own->rows_bytes;
        own->batches[i].rows_block = (uint8_t *)own->rows_memory + i * own->rows_bytes;
        status = trajd_device_event_create(device, &own->batches[i].copied, error);
    }
    return status;
}

static enum trajd_status make_batches(struct trajd_producer *producer,
                                      struct trajd_producer_gpu *own, struct trajd_error *error)
{
    struct trajd_device *device = trajd_gpu_device(own->gpu);
    const uint64_t staged_bytes = own->block_bytes + own->ids_bytes;
    enum trajd_status status =
        trajd_device_host_alloc(device, own->depth * staged_bytes, (void **)&own->staging, error);

    if (!status) {
        memset(own->staging, 0, own->depth * staged_bytes);
        status = trajd_gpu_take_ring(own->gpu, own->depth * own->block_bytes,
                                     "memory for batches under way", &own->blocks, error);
    }
    for (uint32_t i = 0; i < own->depth && !status; i++) {
        struct trajd_gpu_batch *gpu_batch = &own->batches[i];
        gpu_batch->staging = own->staging + i * staged_bytes;
        gpu_batch->block = (uint8_t *)own->blocks + i * own->block_bytes;
        gpu_batch->requests = trajd_arena_array(&own->arena, producer->plan->member_count,
                                                sizeof *gpu_batch->requests);
        status = gpu_batch->requests
                     ? trajd_device_event_create(device, &gpu_batch->finished, error)
                     : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s",
                                       producer->name);
    }
    return status;
}

enum trajd_status trajd_producer_gpu_create(struct trajd_producer *producer, struct trajd_gpu *gpu,
                                            struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu = calloc(1, sizeof *own);
    enum trajd_status status = TRAJD_OK;

    if (own) {
        own->arena.limit_bytes = SIZE_MAX / 2;
        own->members =
            trajd_arena_array(&own->arena, producer->plan->member_count, sizeof *own->members);
    }
    if (!own || !own->members)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", producer->name);
    own->gpu = gpu;
    pthread_mutex_init(&own->mutex, NULL);
    pthread_mutex_init(&own->launching, NULL);
    trajd_heartbeat_init_condition(&own->changed);
    status = trajd_device_stream_create(trajd_gpu_device(gpu), &own->stream, error);
    if (!status)
        status = trajd_device_event_create(trajd_gpu_device(gpu), &own->probe, error);
    if (!status)
        status = make_ring(producer, own, error);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++)
        status = make_member(producer, own, p, error);
    if (status)
        return status;
    measure(producer, own);
    status = make_rows_memory(producer, own, error);
    if (!status)
        status = trajd_gpu_images_create(producer, own->depth, &own->images, error);
    if (!status)
        status = make_batches(producer, own, error);
    return status ? status : trajd_producer_gpu_start(producer, error);
}

/* Waits for copies of batches that were prepared and never launched: they read memory that is freed
 * next. */
static void wait_for_copies(struct trajd_producer_gpu *own)
{
    struct trajd_error error; /* ignored: on a lost GPU nothing is under way any more */

    if (own->copies)
        trajd_device_stream_wait(own->copies, &error);
    if (own->stream)
        trajd_device_stream_wait(own->stream, &error);
}

void trajd_producer_gpu_destroy(struct trajd_producer *producer)
{
    struct trajd_producer_gpu *own = producer->on_gpu;

    if (own)
        trajd_producer_gpu_stop(own);
    producer->on_gpu = NULL;
    producer->pinned_bytes = 0;
    if (!own)
        return;
    wait_for_copies(own);
    trajd_gpu_images_destroy(&own->images);
    for (uint32_t i = 0; i < own->depth; i++) {
        trajd_device_event_destroy(&own->batches[i].finished);
        trajd_device_event_destroy(&own->batches[i].copied);
    }
    trajd_device_event_destroy(&own->probe);
    trajd_gpu_return_ring(own->gpu, own->blocks, own->depth * own->block_bytes);
    if (own->staging)
        trajd_device_host_free(trajd_gpu_device(own->gpu), own->staging);
    if (producer->members)
        trajd_producer_drop_rows(producer); /* pinned by the streamed rows' selection */
    if (own->rows_pinned)
        trajd_device_host_free(trajd_gpu_device(own->gpu), own->rows_pinned);
    if (own->rows_memory)
        trajd_gpu_return_ring(own->gpu, own->rows_memory, own->depth * own->rows_bytes);
    for (uint32_t p = 0; own->members && p < producer->plan->member_count; p++) {
        producer->members[p].selection = &producer->plan->members[p]->selection;
        trajd_gpu_request_destroy(own->members[p].request);
        if (own->members[p].holds_rows)
            trajd_gpu_drop_rows(own->gpu, producer->members[p].dataset,
                                &producer->plan->members[p]->selection, own->members[p].held);
    }
    if (own->slab)
        trajd_gpu_return_ring(own->gpu, own->slab, own->slab_bytes);
    if (own->copies)
        trajd_device_stream_destroy(&own->copies);
    if (own->stream)
        trajd_device_stream_destroy(&own->stream);
    if (own->members) {
        pthread_cond_destroy(&own->changed);
        pthread_mutex_destroy(&own->mutex);
        pthread_mutex_destroy(&own->launching);
    }
    trajd_arena_free(&own->arena);
    free(own);
}

const struct trajd_feed_memory *trajd_producer_gpu_memory(const struct trajd_producer *producer)
{
    return &producer->on_gpu->memory;
}
