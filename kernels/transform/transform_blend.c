/* Rotations between two rows, on the shortest arc. */
#include <math.h>

#include "kernels/element_convert.h"
#include "kernels/quaternion.h"
#include "kernels/resample_resolve.h"
#include "kernels/transform/transform.h"

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

void trajd_transform_blend(const struct trajd_resample_request *request, uint32_t stream_index,
                           uint32_t column, enum trajd_rotation_form form, uint32_t begin,
                           uint32_t end)
{
    const struct blend blend = {request, stream_index, column, form};
    const struct trajd_stream *stream = &request->streams[stream_index];
    const uint32_t grid = request->brackets[stream->bracket_index].grid_index;

    if (stream->kind != TRAJD_KIND_LINEAR && stream->kind != TRAJD_KIND_ANGLE)
        return;
    for (uint32_t w = begin; w < end; w++)
        for (uint32_t t = 0; t < request->grids[grid].step_count; t++)
            blend_step(&blend, w, t);
}
