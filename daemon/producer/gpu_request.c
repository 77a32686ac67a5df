/* The request of one dataset of a GPU feed: its constants, what differs from batch to batch, and the
 * outputs with a transform. */
#include "daemon/producer/gpu_request.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/transform/cuda/transform_gpu.h"

#define ARRAY_ALIGNMENT 16
#define ROWS_ALIGNMENT 256

/* The arrays of one gathered request. */
struct frame {
    struct trajd_grid *grids;
    struct trajd_bracket *brackets;
    struct trajd_stream *streams;
    struct trajd_resample_request request;
};

struct trajd_gpu_request {
    struct trajd_binding *batch;
    struct trajd_gpu *gpu;
    void *constants; /* on the GPU */
    uint64_t constants_bytes;
    struct trajd_clock *clocks;
    struct frame *frames; /* [frame_count]; all have the constants of the first */
    uint32_t frame_count;
    /* of outputs with a transform: job_count of them */
    uint32_t job_count;
    struct trajd_device_facts facts;
    void *rows; /* on the GPU: scales and offsets, and the rows that the batch is lent */
    uint64_t rows_bytes;
    /* [visible outputs]: addresses on the GPU; NULL: the output is not normalised */
    const float **scale, **offset;
    struct trajd_transform_gpu_job *jobs; /* [frame_count][job_count] */
    uint32_t blend_count;
    struct trajd_binding_blend *blends; /* [blend_count] */
};

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's request");
}

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
        return no_memory(error);
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

static void make_frames(struct trajd_gpu_request *request, struct trajd_arena *arena)
{
    const struct trajd_resample_request *shape = &request->batch->request;

    request->clocks = trajd_arena_array(arena, shape->clock_count, sizeof *request->clocks);
    request->frames = trajd_arena_array(arena, request->frame_count, sizeof *request->frames);
    for (uint32_t f = 0; request->frames && f < request->frame_count; f++) {
        struct frame *frame = &request->frames[f];
        frame->grids = trajd_arena_array(arena, shape->grid_count, sizeof *frame->grids);
        frame->brackets = trajd_arena_array(arena, shape->bracket_count, sizeof *frame->brackets);
        frame->streams = trajd_arena_array(arena, shape->stream_count, sizeof *frame->streams);
    }
}

/* ---- outputs with a transform ---- */

/* Takes memory from a block. Where the block is NULL it only counts the bytes. */
struct laying {
    uint8_t *block, *staged; /* on the GPU; on the host, only for what is copied */
    uint64_t used;
};

static uint8_t *take_room(struct laying *laying, uint64_t size_bytes)
{
    uint8_t *at = laying->block ? laying->block + laying->used : NULL;

    laying->used += (size_bytes + ROWS_ALIGNMENT - 1) / ROWS_ALIGNMENT * ROWS_ALIGNMENT;
    return at;
}

static const float *put_floats(struct laying *laying, const float *numbers, uint64_t count)
{
    if (!numbers)
        return NULL;
    if (laying->staged)
        memcpy(laying->staged + laying->used, numbers, count * sizeof *numbers);
    return (const float *)take_room(laying, count * sizeof *numbers);
}

static void lay_norms(struct trajd_gpu_request *request, struct laying *laying)
{
    const struct trajd_window_plan *plan = request->batch->plan;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++) {
        const struct trajd_plan_output *out = &plan->rules.outputs[o];
        if (!out->transform)
            continue;
        request->scale[o] = put_floats(laying, out->scale, trajd_plan_norm_count(out));
        request->offset[o] = put_floats(laying, out->offset, trajd_plan_norm_count(out));
    }
}

/* Lends the batch rows and their masks. */
static void lay_rows(struct trajd_gpu_request *request, struct laying *laying)
{
    struct trajd_binding *batch = request->batch;
    const struct trajd_window_plan *plan = batch->plan;

    for (uint32_t o = 0; o < plan->rules.output_count; o++) {
        const struct trajd_plan_output *out = &plan->rules.outputs[o];
        const uint64_t steps = (uint64_t)plan->spec->global_batch * out->step_count;
        uint8_t *rows, *mask;
        if (!batch->outputs[o].rows)
            continue;
        rows = take_room(laying, steps * out->row_feature_count * trajd_dtype_size(out->row_dtype));
        mask = take_room(laying, steps);
        if (rows)
            trajd_binding_lend_rows(batch, o, rows, mask);
    }
}

/* Lists the rotations that are blended behind the resampling. Where `blends` is NULL it only counts
 * them. */
static uint32_t list_blends(const struct trajd_window_plan *plan,
                            struct trajd_binding_blend *blends)
{
    struct trajd_binding_blend found;
    uint32_t count = 0;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        for (uint32_t p = 0;
             plan->rules.outputs[o].transform && p < plan->rules.outputs[o].transform->part_count;
             p++)
            for (int of_state = 0; of_state < 2; of_state++)
                if (trajd_rules_find_blend(&plan->rules, o, p, of_state, &found)) {
                    if (blends)
                        blends[count] = found;
                    count++;
                }
    return count;
}

static void make_tables(struct trajd_gpu_request *request, struct trajd_arena *arena)
{
    const struct trajd_window_plan *plan = request->batch->plan;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        request->job_count += plan->rules.outputs[o].transform != NULL;
    if (!request->job_count)
        return;
    request->scale = trajd_arena_array(arena, plan->rules.visible_count, sizeof *request->scale);
    request->offset = trajd_arena_array(arena, plan->rules.visible_count, sizeof *request->offset);
    request->jobs = trajd_arena_array(arena, (uint64_t)request->frame_count * request->job_count,
                                      sizeof *request->jobs);
    request->blend_count = list_blends(plan, NULL);
    request->blends = trajd_arena_array(arena, request->blend_count, sizeof *request->blends);
    if (request->blends)
        list_blends(plan, request->blends);
}

static enum trajd_status make_rows(struct trajd_gpu_request *request,
                                   struct trajd_device_stream *stream, struct trajd_error *error)
{
    struct laying laying = {0};
    uint64_t norm_bytes;
    enum trajd_status status;

    lay_norms(request, &laying);
    norm_bytes = laying.used;
    lay_rows(request, &laying);
    request->rows_bytes = laying.used;
    status = trajd_gpu_take_ring(request->gpu, request->rows_bytes,
                                 "rows of outputs with transforms", &request->rows, error);
    if (status)
        return status;
    laying = (struct laying){.block = request->rows, .staged = calloc(1, norm_bytes + 1)};
    if (!laying.staged)
        return no_memory(error);
    lay_norms(request, &laying);
    lay_rows(request, &laying);
    if (norm_bytes)
        status = trajd_device_copy_async(request->rows, laying.staged, norm_bytes, stream, error);
    if (!status)
        status = trajd_device_stream_wait(stream, error);
    free(laying.staged);
    return status;
}

/* ---- calls ---- */

enum trajd_status trajd_gpu_request_create(struct trajd_gpu *gpu,
                                           struct trajd_device_stream *stream,
                                           struct trajd_binding *batch, uint32_t frame_count,
                                           struct trajd_arena *arena,
                                           struct trajd_gpu_request **out,
                                           struct trajd_error *error)
{
    struct trajd_gpu_request *request = *out = trajd_arena_array(arena, 1, sizeof *request);
    enum trajd_status status;

    if (!request)
        return no_memory(error);
    request->batch = batch;
    request->gpu = gpu;
    request->frame_count = frame_count;
    trajd_device_facts(trajd_gpu_device(gpu), &request->facts);
    make_frames(request, arena);
    make_tables(request, arena);
    if (arena->is_starved)
        return no_memory(error);
    status = upload(request, stream, error);
    return !status && request->job_count ? make_rows(request, stream, error) : status;
}

void trajd_gpu_request_destroy(struct trajd_gpu_request *request)
{
    if (!request)
        return;
    trajd_gpu_return_ring(request->gpu, request->rows, request->rows_bytes);
    trajd_gpu_return_ring(request->gpu, request->constants, request->constants_bytes);
}

uint64_t trajd_gpu_request_block_bytes(const struct trajd_gpu_request *request,
                                       uint32_t window_count)
{
    const struct trajd_resample_request *shape = &request->batch->request;
    uint64_t bytes = shape->bracket_count * (3 * align(window_count * sizeof(int64_t)) +
                                             2 * align(window_count * sizeof(uint32_t))) +
                     shape->stream_count * align(window_count * sizeof(void *)) +
                     (request->batch->window_rows ? align(window_count * sizeof(uint32_t)) : 0);

    for (uint32_t g = 0; g < shape->grid_count; g++)
        if (shape->grids[g].offsets_per_window)
            bytes += align((uint64_t)window_count * shape->grids[g].step_count * sizeof(int64_t));
    return bytes;
}

/* Makes the jobs of the windows that the batch bound last, from `first` on. */
static void gather_jobs(const struct trajd_gpu_request *request, uint32_t frame, uint32_t first,
                        const struct trajd_resample_request *gathered)
{
    struct trajd_transform_gpu_job *to = request->jobs + (size_t)frame * request->job_count;

    for (uint32_t o = 0; request->job_count && o < request->batch->plan->rules.visible_count; o++) {
        const struct trajd_plan_output *out = &request->batch->plan->rules.outputs[o];
        if (!out->transform)
            continue;
        trajd_binding_job(request->batch, first, o, &to->job);
        to->job.window_rows = gathered->window_rows;
        to->job.scale = request->scale[o];
        to->job.offset = request->offset[o];
        to->source_mask = request->batch->outputs[o].row_mask +
                          (gathered->window_rows ? 0 : (uint64_t)first * out->step_count);
        to++;
    }
}

const struct trajd_resample_request *trajd_gpu_request_gather(struct trajd_gpu_request *request,
                                                              uint32_t frame, uint32_t first,
                                                              uint8_t *block, uint8_t *device_block,
                                                              uint64_t *used)
{
    const struct trajd_resample_request *from = &request->batch->request;
    const uint64_t each = from->window_count * sizeof(int64_t),
                   each_number = from->window_count * sizeof(uint32_t);
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
        to->brackets[b].too_old_begin =
            put(&gathering, from->brackets[b].too_old_begin, each_number);
        to->brackets[b].too_old_end = put(&gathering, from->brackets[b].too_old_end, each_number);
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
    gather_jobs(request, frame, first, &to->request);
    return &to->request;
}

enum trajd_status trajd_gpu_request_transform(const struct trajd_gpu_request *request,
                                              uint32_t frame, struct trajd_device_stream *stream,
                                              struct trajd_error *error)
{
    const struct trajd_resample_request *gathered = &request->frames[frame].request;
    void *handle = trajd_device_stream_handle(stream);
    enum trajd_status status = TRAJD_OK;

    for (uint32_t b = 0; b < request->blend_count && !status; b++)
        status = trajd_transform_gpu_blend(gathered, request->blends[b].target_index,
                                           request->blends[b].column, request->blends[b].form,
                                           &request->facts, handle, error);
    if (!status && request->job_count)
        status = trajd_transform_gpu_run(request->jobs + (size_t)frame * request->job_count,
                                         request->job_count, gathered->window_count,
                                         &request->facts, handle, error);
    return status;
}

/* ---- sends ---- */

enum trajd_status trajd_gpu_sends_launch(struct trajd_gpu_sends *sends,
                                         struct trajd_device_stream *stream,
                                         struct trajd_error *error)
{
    const uint32_t count = sends->count;

    sends->count = 0;
    return count ? trajd_device_send_async(sends->list, count, stream, error) : TRAJD_OK;
}

enum trajd_status trajd_gpu_sends_add(struct trajd_gpu_sends *sends, void *to, const void *from,
                                      uint64_t size_bytes, struct trajd_device_stream *stream,
                                      struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (sends->count == TRAJD_DEVICE_SENDS_MAX)
        status = trajd_gpu_sends_launch(sends, stream, error);
    sends->list[sends->count++] = (struct trajd_device_send){to, from, size_bytes};
    return status;
}
