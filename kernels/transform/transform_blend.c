/* Rotations between two rows, on the shortest arc. */
#include <math.h>

#include "kernels/element_convert.h"
#include "kernels/quaternion.h"
#include "kernels/transform/transform.h"

#define WINDOWS_PER_SLICE 16

struct blend {
    const struct trajd_resample_request *request;
    uint32_t stream_index, column;
    enum trajd_rotation_form form;
};

static bool load_rotation(const struct blend *blend, uint32_t window, int64_t row, double q[4])
{
    const struct trajd_stream *stream = &blend->request->streams[blend->stream_index];
    const size_t size = trajd_dtype_size(stream->source_type);
    const char *from = (const char *)stream->bases[window] +
                       (uint64_t)row * stream->row_stride_bytes +
                       (uint64_t)(stream->first_column + blend->column) * size;
    double numbers[TRAJD_ROTATION_MAX_WIDTH];

    for (uint32_t d = 0; d < trajd_rotation_width(blend->form); d++)
        numbers[d] = trajd_element_load(stream->source_type, from + d * size);
    return trajd_rotation_load(blend->form, numbers, q);
}

static void store_rotation(const struct blend *blend, uint32_t window, uint32_t step,
                           const double q[4])
{
    const struct trajd_stream *stream = &blend->request->streams[blend->stream_index];
    const size_t size = trajd_dtype_size(stream->output_type);
    char *to = (char *)stream->output +
               trajd_window_row(blend->request, window) * stream->window_stride_bytes +
               step * stream->step_stride_bytes + blend->column * size;
    double numbers[TRAJD_ROTATION_MAX_WIDTH];

    trajd_rotation_store(blend->form, q, numbers);
    for (uint32_t d = 0; d < trajd_rotation_width(blend->form); d++)
        trajd_element_store(stream->output_type, to + d * size, numbers[d]);
}

static void blend_step(const struct blend *blend, uint32_t window, uint32_t step)
{
    struct trajd_resample_step found;
    double p[4], q[4];

    trajd_resample_resolve(blend->request, blend->stream_index, window, step, &found);
    if (!blend->request->streams[blend->stream_index].bases[window] || !found.has_row ||
        !found.blends)
        return;
    if (load_rotation(blend, window, found.row, p) &&
        load_rotation(blend, window, found.row + 1, q))
        trajd_quaternion_slerp(p, q, (double)found.past_ns / (double)found.width_ns, q);
    else
        q[0] = q[1] = q[2] = q[3] = NAN;
    store_rotation(blend, window, step, q);
}

static void blend_slice(void *context, uint32_t slice)
{
    const struct blend *blend = context;
    const struct trajd_resample_request *request = blend->request;
    const uint32_t bracket = request->streams[blend->stream_index].bracket_index;
    const uint32_t steps = request->grids[request->brackets[bracket].grid_index].step_count;
    const uint32_t count = request->window_count, begin = slice * WINDOWS_PER_SLICE,
                   end = count - begin < WINDOWS_PER_SLICE ? count : begin + WINDOWS_PER_SLICE;

    for (uint32_t w = begin; w < end; w++)
        for (uint32_t t = 0; t < steps; t++)
            blend_step(blend, w, t);
}

void trajd_transform_blend(const struct trajd_resample_request *request, uint32_t stream_index,
                           uint32_t column, enum trajd_rotation_form form, struct trajd_pool *pool)
{
    const struct blend blend = {request, stream_index, column, form};
    const enum trajd_kind kind = request->streams[stream_index].kind;

    if (kind == TRAJD_KIND_LINEAR || kind == TRAJD_KIND_ANGLE)
        trajd_pool_run(pool, (request->window_count + WINDOWS_PER_SLICE - 1) / WINDOWS_PER_SLICE,
                       blend_slice, (void *)(uintptr_t)&blend);
}
