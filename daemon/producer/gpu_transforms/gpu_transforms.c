#include "daemon/producer/gpu_transforms/gpu_transforms.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/transform/cuda/transform_gpu.h"

#define ALIGNMENT 256

struct trajd_gpu_transforms {
    struct trajd_gpu *gpu;
    struct trajd_window_batch *batch;
    struct trajd_device_facts facts;
    uint8_t *memory; /* on the GPU */
    uint64_t size_bytes;
    /* [visible outputs]: addresses on the GPU; NULL: the output is not normalised */
    const float **scale, **offset;
    uint32_t job_count;                   /* outputs with a transform */
    struct trajd_transform_gpu_job *jobs; /* [frames][job_count] */
    uint32_t blend_count;
    struct trajd_batch_blend *blends; /* [blend_count] */
};

/* Takes memory from a block. Where the block is NULL it only counts the bytes. */
struct laying {
    uint8_t *block, *staged; /* on the GPU; on the host, only for what is copied */
    uint64_t used;
};

static uint8_t *take(struct laying *laying, uint64_t size_bytes)
{
    uint8_t *at = laying->block ? laying->block + laying->used : NULL;

    laying->used += (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static const float *put(struct laying *laying, const float *numbers, uint64_t count)
{
    if (!numbers)
        return NULL;
    if (laying->staged)
        memcpy(laying->staged + laying->used, numbers, count * sizeof *numbers);
    return (const float *)take(laying, count * sizeof *numbers);
}

static void lay_norms(struct trajd_gpu_transforms *transforms, struct laying *laying)
{
    const struct trajd_window_plan *plan = transforms->batch->plan;

    for (uint32_t o = 0; o < plan->visible_count; o++) {
        const struct trajd_plan_output *out = &plan->outputs[o];
        if (!out->transform)
            continue;
        transforms->scale[o] = put(laying, out->scale, trajd_plan_norm_count(out));
        transforms->offset[o] = put(laying, out->offset, trajd_plan_norm_count(out));
    }
}

/* Lends the batch rows and their masks. */
static void lay_rows(struct trajd_gpu_transforms *transforms, struct laying *laying)
{
    struct trajd_window_batch *batch = transforms->batch;
    const struct trajd_window_plan *plan = batch->plan;

    for (uint32_t o = 0; o < plan->output_count; o++) {
        const struct trajd_plan_output *out = &plan->outputs[o];
        const uint64_t steps = (uint64_t)plan->spec->global_batch * out->step_count;
        uint8_t *rows, *mask;
        if (!batch->outputs[o].rows)
            continue;
        rows = take(laying, steps * out->row_feature_count * trajd_dtype_size(out->row_dtype));
        mask = take(laying, steps);
        if (rows)
            trajd_window_batch_lend_rows(batch, o, rows, mask);
    }
}

/* Lists the rotations that are blended behind the resampling. Where `blends` is NULL it only counts
 * them. */
static uint32_t list_blends(const struct trajd_window_plan *plan, struct trajd_batch_blend *blends)
{
    struct trajd_batch_blend found;
    uint32_t count = 0;

    for (uint32_t o = 0; o < plan->visible_count; o++)
        for (uint32_t p = 0;
             plan->outputs[o].transform && p < plan->outputs[o].transform->part_count; p++)
            for (int of_state = 0; of_state < 2; of_state++)
                if (trajd_window_find_blend(plan, o, p, of_state, &found)) {
                    if (blends)
                        blends[count] = found;
                    count++;
                }
    return count;
}

static bool make_tables(struct trajd_gpu_transforms *transforms, uint32_t frame_count)
{
    const struct trajd_window_plan *plan = transforms->batch->plan;

    for (uint32_t o = 0; o < plan->visible_count; o++)
        transforms->job_count += plan->outputs[o].transform != NULL;
    transforms->scale = calloc(plan->visible_count, sizeof *transforms->scale);
    transforms->offset = calloc(plan->visible_count, sizeof *transforms->offset);
    transforms->jobs =
        calloc((size_t)frame_count * transforms->job_count, sizeof *transforms->jobs);
    transforms->blend_count = list_blends(plan, NULL);
    transforms->blends = calloc(transforms->blend_count + 1, sizeof *transforms->blends);
    if (!transforms->scale || !transforms->offset || !transforms->jobs || !transforms->blends)
        return false;
    list_blends(plan, transforms->blends);
    return true;
}

static enum trajd_status make_memory(struct trajd_gpu_transforms *transforms,
                                     struct trajd_device_stream *stream, struct trajd_error *error)
{
    struct laying laying = {0};
    uint64_t norm_bytes;
    enum trajd_status status;
    void *memory;

    lay_norms(transforms, &laying);
    norm_bytes = laying.used;
    lay_rows(transforms, &laying);
    transforms->size_bytes = laying.used;
    status = trajd_gpu_take_ring(transforms->gpu, transforms->size_bytes,
                                 "rows of outputs with transforms", &memory, error);
    if (status)
        return status;
    transforms->memory = memory;
    laying = (struct laying){.block = memory, .staged = calloc(1, norm_bytes + 1)};
    if (!laying.staged)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's transforms");
    lay_norms(transforms, &laying);
    lay_rows(transforms, &laying);
    if (norm_bytes)
        status = trajd_device_copy_async(memory, laying.staged, norm_bytes, stream, error);
    if (!status)
        status = trajd_device_stream_wait(stream, error);
    free(laying.staged);
    return status;
}

enum trajd_status
trajd_gpu_transforms_create(struct trajd_gpu *gpu, struct trajd_device_stream *stream,
                            struct trajd_window_batch *batch, uint32_t frame_count,
                            struct trajd_gpu_transforms **out, struct trajd_error *error)
{
    struct trajd_gpu_transforms *transforms;
    bool has_any = false;
    enum trajd_status status;

    *out = NULL;
    for (uint32_t o = 0; o < batch->plan->visible_count; o++)
        has_any |= batch->plan->outputs[o].transform != NULL;
    if (!has_any)
        return TRAJD_OK;
    transforms = calloc(1, sizeof *transforms);
    if (!transforms)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's transforms");
    transforms->gpu = gpu;
    transforms->batch = batch;
    trajd_device_facts(trajd_gpu_device(gpu), &transforms->facts);
    status = make_tables(transforms, frame_count)
                 ? make_memory(transforms, stream, error)
                 : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's transforms");
    if (status)
        trajd_gpu_transforms_destroy(&transforms);
    *out = transforms;
    return status;
}

void trajd_gpu_transforms_destroy(struct trajd_gpu_transforms **out)
{
    struct trajd_gpu_transforms *transforms = *out;

    *out = NULL;
    if (!transforms)
        return;
    trajd_gpu_return_ring(transforms->gpu, transforms->memory, transforms->size_bytes);
    free(transforms->scale);
    free(transforms->offset);
    free(transforms->jobs);
    free(transforms->blends);
    free(transforms);
}

void trajd_gpu_transforms_gather(struct trajd_gpu_transforms *transforms, uint32_t frame,
                                 uint32_t first, const struct trajd_resample_request *request,
                                 uint8_t *slot)
{
    struct trajd_transform_gpu_job *to;

    if (!transforms)
        return;
    to = transforms->jobs + (size_t)frame * transforms->job_count;
    for (uint32_t o = 0; o < transforms->batch->plan->visible_count; o++) {
        const struct trajd_plan_output *out = &transforms->batch->plan->outputs[o];
        if (!out->transform)
            continue;
        trajd_window_batch_job(transforms->batch, first, o, slot, &to->job);
        to->job.window_rows = request->window_rows;
        to->job.scale = transforms->scale[o];
        to->job.offset = transforms->offset[o];
        to->source_mask = transforms->batch->outputs[o].row_mask +
                          (request->window_rows ? 0 : (uint64_t)first * out->step_count);
        to++;
    }
}

enum trajd_status trajd_gpu_transforms_launch(const struct trajd_gpu_transforms *transforms,
                                              uint32_t frame,
                                              const struct trajd_resample_request *request,
                                              struct trajd_device_stream *stream,
                                              struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (!transforms)
        return TRAJD_OK;
    for (uint32_t b = 0; b < transforms->blend_count && !status; b++)
        status = trajd_transform_gpu_blend(request, transforms->blends[b].target_index,
                                           transforms->blends[b].column, transforms->blends[b].form,
                                           &transforms->facts, trajd_device_stream_handle(stream),
                                           error);
    if (!status)
        status = trajd_transform_gpu_run(
            transforms->jobs + (size_t)frame * transforms->job_count, transforms->job_count,
            request->window_count, &transforms->facts, trajd_device_stream_handle(stream), error);
    return status;
}
