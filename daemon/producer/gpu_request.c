#include "daemon/producer/gpu_request.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_ALIGNMENT 16

/* The arrays of one gathered request. */
struct frame {
    struct trajd_grid *grids;
    struct trajd_bracket *brackets;
    struct trajd_stream *streams;
    struct trajd_resample_request request;
};

struct trajd_gpu_request {
    const struct trajd_window_batch *batch;
    struct trajd_gpu *gpu;
    void *constants; /* on the GPU */
    uint64_t constants_bytes;
    struct trajd_clock *clocks;
    struct frame *frames; /* [frame_count]; all have the constants of the first */
    uint32_t frame_count;
};

static uint64_t align(uint64_t size_bytes)
{
    return (size_bytes + ARRAY_ALIGNMENT - 1) / ARRAY_ALIGNMENT * ARRAY_ALIGNMENT;
}

/* Gathers arrays into `block`. Where `block` is NULL it only counts the bytes. */
struct gathering {
    uint8_t *block, *device_block;
    uint64_t used;
};

static const void *put(struct gathering *gathering, const void *array, uint64_t size_bytes)
{
    const uint64_t at = gathering->used;

    if (!array)
        return NULL;
    if (gathering->block)
        memcpy(gathering->block + at, array, size_bytes);
    gathering->used += align(size_bytes);
    /* an address on the GPU, which the host must not dereference */
    return (const void *)((uintptr_t)gathering->device_block + at);
}

static void put_constants(struct trajd_gpu_request *request, struct gathering *gathering)
{
    const struct trajd_dataset *dataset = request->batch->plan->dataset;
    const struct trajd_resample_request *from = &request->batch->request;
    const struct frame *to = request->frames;

    for (uint32_t c = 0; c < from->clock_count; c++) {
        request->clocks[c] = from->clocks[c];
        request->clocks[c].stamps_ns =
            put(gathering, from->clocks[c].stamps_ns,
                (uint64_t)dataset->clock_stamp_count[c] * sizeof(int64_t));
    }
    for (uint32_t g = 0; g < from->grid_count; g++) {
        to->grids[g] = from->grids[g];
        if (!from->grids[g].offsets_per_window)
            to->grids[g].offsets =
                put(gathering, from->grids[g].offsets, from->grids[g].step_count * sizeof(int64_t));
    }
    for (uint32_t s = 0; s < from->stream_count; s++) {
        const uint64_t size_bytes = from->streams[s].feature_count * sizeof(float);
        to->streams[s] = from->streams[s];
        to->streams[s].scale = put(gathering, from->streams[s].scale, size_bytes);
        to->streams[s].offset = put(gathering, from->streams[s].offset, size_bytes);
    }
}

static void copy_constants(struct trajd_gpu_request *request)
{
    const struct trajd_resample_request *shape = &request->batch->request;
    const struct frame *first = request->frames;

    for (uint32_t f = 1; f < request->frame_count; f++) {
        memcpy(request->frames[f].grids, first->grids, shape->grid_count * sizeof *first->grids);
        memcpy(request->frames[f].streams, first->streams,
               shape->stream_count * sizeof *first->streams);
    }
}

static enum trajd_status upload(struct trajd_gpu_request *request,
                                struct trajd_device_stream *stream, struct trajd_error *error)
{
    struct gathering gathering = {0};
    enum trajd_status status;

    put_constants(request, &gathering);
    request->constants_bytes = gathering.used + ARRAY_ALIGNMENT;
    gathering = (struct gathering){.block = calloc(1, request->constants_bytes)};
    if (!gathering.block)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's request");
    status = trajd_gpu_take_ring(request->gpu, request->constants_bytes,
                                 "a feed's stamps and constants", &request->constants, error);
    gathering.device_block = request->constants;
    if (!status) {
        put_constants(request, &gathering);
        status = trajd_device_copy_async(request->constants, gathering.block,
                                         request->constants_bytes, stream, error);
    }
    if (!status)
        status = trajd_device_stream_wait(stream, error);
    copy_constants(request);
    free(gathering.block);
    return status;
}

static bool make_frames(struct trajd_gpu_request *request, uint32_t count)
{
    const struct trajd_resample_request *shape = &request->batch->request;

    request->clocks = calloc(shape->clock_count + 1, sizeof *request->clocks);
    request->frames = calloc(count, sizeof *request->frames);
    for (; request->clocks && request->frames && request->frame_count < count;
         request->frame_count++) {
        struct frame *frame = &request->frames[request->frame_count];
        frame->grids = calloc(shape->grid_count + 1, sizeof *frame->grids);
        frame->brackets = calloc(shape->bracket_count + 1, sizeof *frame->brackets);
        frame->streams = calloc(shape->stream_count + 1, sizeof *frame->streams);
        if (!frame->grids || !frame->brackets || !frame->streams) {
            request->frame_count++; /* so that destroy frees this frame, too */
            return false;
        }
    }
    return request->clocks && request->frames;
}

enum trajd_status trajd_gpu_request_create(struct trajd_gpu *gpu,
                                           struct trajd_device_stream *stream,
                                           const struct trajd_window_batch *batch,
                                           uint32_t frame_count, struct trajd_gpu_request **out,
                                           struct trajd_error *error)
{
    struct trajd_gpu_request *request = calloc(1, sizeof *request);
    enum trajd_status status;

    *out = NULL;
    if (!request)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's request");
    request->batch = batch;
    request->gpu = gpu;
    status = make_frames(request, frame_count)
                 ? upload(request, stream, error)
                 : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's request");
    if (status)
        trajd_gpu_request_destroy(&request);
    *out = request;
    return status;
}

void trajd_gpu_request_destroy(struct trajd_gpu_request **out)
{
    struct trajd_gpu_request *request = *out;

    *out = NULL;
    if (!request)
        return;
    trajd_gpu_return_ring(request->gpu, request->constants, request->constants_bytes);
    for (uint32_t f = 0; f < request->frame_count; f++) {
        free(request->frames[f].grids);
        free(request->frames[f].brackets);
        free(request->frames[f].streams);
    }
    free(request->frames);
    free(request->clocks);
    free(request);
}

uint64_t trajd_gpu_request_block_bytes(const struct trajd_gpu_request *request,
                                       uint32_t window_count)
{
    const struct trajd_resample_request *shape = &request->batch->request;
    uint64_t bytes = shape->bracket_count * 3 * align(window_count * sizeof(int64_t)) +
                     shape->stream_count * align(window_count * sizeof(void *)) +
                     (request->batch->window_rows ? align(window_count * sizeof(uint32_t)) : 0);

    for (uint32_t g = 0; g < shape->grid_count; g++)
        if (shape->grids[g].offsets_per_window)
            bytes += align((uint64_t)window_count * shape->grids[g].step_count * sizeof(int64_t));
    return bytes;
}

const struct trajd_resample_request *trajd_gpu_request_gather(struct trajd_gpu_request *request,
                                                              uint32_t frame, uint8_t *block,
                                                              uint8_t *device_block, uint64_t *used)
{
    const struct trajd_resample_request *from = &request->batch->request;
    const uint64_t each = from->window_count * sizeof(int64_t);
    struct frame *to = &request->frames[frame];
    struct gathering gathering = {block, device_block, 0};

    for (uint32_t g = 0; g < from->grid_count; g++)
        if (from->grids[g].offsets_per_window)
            to->grids[g].offsets =
                put(&gathering, from->grids[g].offsets, each * from->grids[g].step_count);
    for (uint32_t b = 0; b < from->bracket_count; b++) {
        to->brackets[b] = from->brackets[b];
        to->brackets[b].row_begin = put(&gathering, from->brackets[b].row_begin, each);
        to->brackets[b].row_count = put(&gathering, from->brackets[b].row_count, each);
        to->brackets[b].anchor = put(&gathering, from->brackets[b].anchor, each);
    }
    for (uint32_t s = 0; s < from->stream_count; s++) {
        to->streams[s].bases =
            put(&gathering, from->streams[s].bases, from->window_count * sizeof(void *));
        to->streams[s].output = from->streams[s].output;
        to->streams[s].mask = from->streams[s].mask;
    }
    to->request = *from;
    to->request.clocks = request->clocks;
    to->request.grids = to->grids;
    to->request.brackets = to->brackets;
    to->request.streams = to->streams;
    to->request.window_rows =
        put(&gathering, from->window_rows, from->window_count * sizeof(uint32_t));
    *used = gathering.used;
    return &to->request;
}
