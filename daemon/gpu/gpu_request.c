#include "daemon/gpu/gpu_request.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_ALIGNMENT 16

struct trajd_gpu_request {
    const struct trajd_window_plan *plan;
    struct trajd_gpu *gpu;
    void *constants; /* on the GPU */
    uint64_t constants_bytes;
    struct trajd_clock *clocks;
    struct trajd_grid *grids;
    struct trajd_bracket *brackets;
    struct trajd_stream *streams;
    struct trajd_resample_request request;
};

static uint64_t align(uint64_t size_bytes)
{
    return (size_bytes + ARRAY_ALIGNMENT - 1) / ARRAY_ALIGNMENT * ARRAY_ALIGNMENT;
}

/* Bytes that are gathered: into `block`, or (NULL) only counted. */
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
    return (const void *)((uintptr_t)gathering->device_block + at); /* of an address that is not this process's to follow */
}

static void put_constants(struct trajd_gpu_request *request, struct gathering *gathering)
{
    const struct trajd_window_plan *plan = request->plan;
    const struct trajd_resample_request *from = &plan->request;

    for (uint32_t c = 0; c < from->clock_count; c++) {
        request->clocks[c] = from->clocks[c];
        request->clocks[c].stamps_ns =
            put(gathering, from->clocks[c].stamps_ns, (uint64_t)plan->dataset->clock_stamp_count[c] * sizeof(int64_t));
    }
    for (uint32_t g = 0; g < from->grid_count; g++) {
        request->grids[g] = from->grids[g];
        if (!from->grids[g].offsets_per_window)
            request->grids[g].offsets = put(gathering, from->grids[g].offsets, from->grids[g].step_count * sizeof(int64_t));
    }
    for (uint32_t s = 0; s < from->stream_count; s++) {
        const uint64_t size_bytes = from->streams[s].feature_count * sizeof(float);
        request->streams[s] = from->streams[s];
        request->streams[s].scale = put(gathering, from->streams[s].scale, size_bytes);
        request->streams[s].offset = put(gathering, from->streams[s].offset, size_bytes);
    }
}

static enum trajd_status upload(struct trajd_gpu_request *request, struct trajd_device_stream *stream, struct trajd_error *error)
{
    struct gathering gathering = {0};
    enum trajd_status status;

    put_constants(request, &gathering);
    request->constants_bytes = gathering.used + ARRAY_ALIGNMENT;
    gathering = (struct gathering){.block = calloc(1, request->constants_bytes)};
    if (!gathering.block)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's request");
    status = trajd_gpu_take_ring(request->gpu, request->constants_bytes, "a feed's stamps and constants", &request->constants, error);
    gathering.device_block = request->constants;
    if (!status) {
        put_constants(request, &gathering);
        status = trajd_device_copy_async(request->constants, gathering.block, request->constants_bytes, stream, error);
    }
    if (!status)
        status = trajd_device_stream_wait(stream, error);
    free(gathering.block);
    return status;
}

enum trajd_status trajd_gpu_request_create(struct trajd_gpu *gpu, struct trajd_device_stream *stream,
                                           const struct trajd_window_plan *plan, struct trajd_gpu_request **out,
                                           struct trajd_error *error)
{
    const struct trajd_resample_request *shape = &plan->request;
    struct trajd_gpu_request *request;
    enum trajd_status status;

    *out = NULL;
    request = calloc(1, sizeof *request);
    if (!request)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's request");
    request->plan = plan;
    request->gpu = gpu;
    request->clocks = calloc(shape->clock_count + 1, sizeof *request->clocks);
    request->grids = calloc(shape->grid_count + 1, sizeof *request->grids);
    request->brackets = calloc(shape->bracket_count + 1, sizeof *request->brackets);
    request->streams = calloc(shape->stream_count + 1, sizeof *request->streams);
    status = request->clocks && request->grids && request->brackets && request->streams
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
    free(request->clocks);
    free(request->grids);
    free(request->brackets);
    free(request->streams);
    free(request);
}

uint64_t trajd_gpu_request_block_bytes(const struct trajd_gpu_request *request, uint32_t window_count)
{
    const struct trajd_resample_request *shape = &request->plan->request;
    uint64_t bytes = shape->bracket_count * 3 * align(window_count * sizeof(int64_t)) +
                     shape->stream_count * align(window_count * sizeof(void *)) +
                     (request->plan->window_rows ? align(window_count * sizeof(uint32_t)) : 0);

    for (uint32_t g = 0; g < shape->grid_count; g++)
        if (shape->grids[g].offsets_per_window)
            bytes += align((uint64_t)window_count * shape->grids[g].step_count * sizeof(int64_t));
    return bytes;
}

const struct trajd_resample_request *trajd_gpu_request_gather(struct trajd_gpu_request *request, uint8_t *block,
                                                              uint8_t *device_block, uint64_t *used)
{
    const struct trajd_resample_request *from = &request->plan->request;
    const uint64_t each = from->window_count * sizeof(int64_t);
    struct gathering gathering = {block, device_block, 0};

    for (uint32_t g = 0; g < from->grid_count; g++)
        if (from->grids[g].offsets_per_window)
            request->grids[g].offsets = put(&gathering, from->grids[g].offsets, each * from->grids[g].step_count);
    for (uint32_t b = 0; b < from->bracket_count; b++) {
        request->brackets[b] = from->brackets[b];
        request->brackets[b].row_begin = put(&gathering, from->brackets[b].row_begin, each);
        request->brackets[b].row_count = put(&gathering, from->brackets[b].row_count, each);
        request->brackets[b].anchor = put(&gathering, from->brackets[b].anchor, each);
    }
    for (uint32_t s = 0; s < from->stream_count; s++) {
        request->streams[s].bases = put(&gathering, from->streams[s].bases, from->window_count * sizeof(void *));
        request->streams[s].output = from->streams[s].output;
        request->streams[s].mask = from->streams[s].mask;
    }
    request->request = *from;
    request->request.clocks = request->clocks;
    request->request.grids = request->grids;
    request->request.brackets = request->brackets;
    request->request.streams = request->streams;
    request->request.window_rows = put(&gathering, from->window_rows, from->window_count * sizeof(uint32_t));
    *used = gathering.used;
    return &request->request;
}
