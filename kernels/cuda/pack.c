/* Decides which streams share a launch, and which path each stream takes. It is decided once here,
 * so that a kernel branches on one byte. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/tuning.h"

_Static_assert(sizeof(struct trajd_cuda_problem) <= TRAJD_CUDA_PARAMETER_SIZE_MAX,
               "a problem is a kernel parameter");

#define VECTOR_BYTES_MAX 16
#define FEATURES_MAX (1u << 28) /* limit for vectors: the bytes of a row then fit 32 bits */
#define WARP 32u
#define TASKS_UNCOUNTED (UINT64_C(1) << 40)
/* Output bytes, or vectors, from which on a launch of its own costs less than the slower kernels of
 * several streams: it costs a microsecond. Two streams of 14 and 7 features, 1024 windows x 50 steps,
 * take 45 us by `batch`, and 5 + 4 us alone (H200). */
#define ALONE_BYTES_MIN (UINT64_C(4) << 20)
#define ALONE_VECTORS_MIN (UINT64_C(1) << 18)

static bool is_slerp(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

static bool picks_rows(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST;
}

static enum trajd_cuda_path float_path(enum trajd_dtype source, enum trajd_dtype output)
{
    if (source == output)
        return source == TRAJD_BF16  ? TRAJD_CUDA_BF16
               : source == TRAJD_F32 ? TRAJD_CUDA_F32
               : source == TRAJD_F16 ? TRAJD_CUDA_F16
                                     : TRAJD_CUDA_FULL;
    if (source == TRAJD_F32 && output == TRAJD_BF16)
        return TRAJD_CUDA_F32_BF16;
    return source == TRAJD_BF16 && output == TRAJD_F32 ? TRAJD_CUDA_BF16_F32 : TRAJD_CUDA_FULL;
}

static enum trajd_cuda_path path_of(const struct trajd_stream *stream)
{
    bool is_float = stream->source_type >= TRAJD_F16 && stream->source_type <= TRAJD_F64;

    if (stream->feature_count > FEATURES_MAX || stream->row_stride_bytes > UINT32_MAX ||
        stream->derivative || stream->total ||
        (stream->kind != TRAJD_KIND_LINEAR && !picks_rows(stream->kind)))
        return TRAJD_CUDA_FULL;
    if (is_float)
        return float_path(stream->source_type, stream->output_type);
    if (!picks_rows(stream->kind) || stream->scale || stream->source_type != stream->output_type)
        return TRAJD_CUDA_FULL;
    return TRAJD_CUDA_COPY;
}

/* Returns the largest power of two up to `limit` that divides `bits`, the OR of all values that
 * must be multiples of the vector. */
static uint32_t common_alignment(uint64_t bits, uint32_t limit)
{
    while (limit > 1 && bits % limit != 0)
        limit /= 2;
    return limit;
}

/* Chooses the width of vectors. The addresses in `bases` are known only on the device; windows
 * whose rows turn out to be unaligned are moved by element there. */
static void set_vectors(const struct trajd_stream *stream, struct trajd_cuda_stream *out)
{
    uint32_t source_size = trajd_dtype_size(stream->source_type),
             output_size = trajd_dtype_size(stream->output_type);
    uint64_t places =
        (uintptr_t)stream->output | stream->step_stride_bytes | stream->window_stride_bytes;
    uint64_t rows = (stream->bases ? 0 : (uintptr_t)stream->base) |
                    (uint64_t)stream->first_column * source_size | stream->row_stride_bytes;
    uint64_t row_bytes = (uint64_t)stream->feature_count * source_size;
    uint32_t larger = source_size > output_size ? source_size : output_size;

    out->vector_width = 1;
    out->load_bytes = 1;
    if (out->path == TRAJD_CUDA_FULL) {
        out->vector_count =
            is_slerp(stream->kind) ? stream->feature_count / 4 : stream->feature_count;
    } else if (out->path == TRAJD_CUDA_COPY) {
        uint32_t bytes = common_alignment(places | rows | row_bytes, VECTOR_BYTES_MAX);
        out->vector_width = out->load_bytes = (uint8_t)(bytes == 16 ? 16 : bytes >= 4 ? 4 : 1);
        out->vector_count = (uint32_t)(row_bytes / out->vector_width);
    } else {
        uint32_t width = common_alignment(stream->feature_count, VECTOR_BYTES_MAX / larger);
        width = common_alignment(places, width * output_size) / output_size;
        if (width > 1)
            width = common_alignment(rows, width * source_size) / source_size;
        out->vector_width = (uint8_t)(width > 0 ? width : 1);
        out->vector_count = stream->feature_count / out->vector_width;
        out->load_bytes = (uint8_t)(out->vector_width * source_size);
    }
    out->widest_vector = out->vector_width;
}

static void pack_stream(const struct trajd_stream *in, struct trajd_cuda_stream *out)
{
    uint64_t first_column_bytes = (uint64_t)in->first_column * trajd_dtype_size(in->source_type);

    *out = (struct trajd_cuda_stream){
        .base = in->bases ? NULL : (const char *)in->base + first_column_bytes,
        .bases = in->bases,
        .row_stride_bytes = in->row_stride_bytes,
        .first_column_bytes = first_column_bytes,
        .output = in->output,
        .window_stride_bytes = in->window_stride_bytes,
        .step_stride_bytes = in->step_stride_bytes,
        .mask = in->mask,
        .mask_window_stride_bytes = in->mask_window_stride_bytes,
        .scale = in->scale,
        .offset = in->offset,
        .max_gap_ns = in->max_gap_ns,
        .max_age_ns = in->max_age_ns,
        .derivative = in->derivative,
        .derivative_window_stride_bytes = in->derivative_window_stride_bytes,
        .derivative_step_stride_bytes = in->derivative_step_stride_bytes,
        .mean_width = in->mean_width,
        .angle_period = in->angle_period,
        .angle_low = in->angle_low,
        .feature_count = in->feature_count,
        .unit_count = is_slerp(in->kind) ? in->feature_count / 4 : in->feature_count,
        .kind = (uint8_t)in->kind,
        .source_type = (uint8_t)in->source_type,
        .output_type = (uint8_t)in->output_type,
        .edge = (uint8_t)in->edge,
        .path = (uint8_t)path_of(in),
    };
    if (in->total) {
        out->total_width = in->total_width;
        out->total_gamma = in->total == TRAJD_TOTAL_REST ? in->total_gamma : 1;
    }
    set_vectors(in, out);
}

static void pack_bracket(const struct trajd_resample_request *request, uint32_t index,
                         struct trajd_cuda_bracket *out)
{
    const struct trajd_bracket *bracket = &request->brackets[index];
    const struct trajd_clock *clock = &request->clocks[bracket->clock_index];
    const struct trajd_grid *grid = &request->grids[bracket->grid_index];

    *out = (struct trajd_cuda_bracket){
        .stamps_ns = clock->stamps_ns,
        .rate = clock->rate,
        .offsets = grid->offsets,
        .offsets_per_window = grid->offsets_per_window,
        .row_begin = bracket->row_begin,
        .row_count = bracket->row_count,
        .anchor = bracket->anchor,
        .dense_rows = (int64_t)bracket->dense_row_count,
        .step_count = grid->step_count,
        .unit = (uint32_t)grid->unit,
    };
}

static void pack_mask(const struct trajd_stream *in, struct trajd_cuda_problem *problem)
{
    struct trajd_cuda_stream *out = &problem->streams[problem->stream_count];

    out->mask_slot = TRAJD_CUDA_NO_MASK;
    if (!in->mask)
        return;
    if (in->mask_joins_previous && problem->stream_count > 0) {
        out->mask_slot = out[-1].mask_slot;
        return;
    }
    out->mask_continues = in->mask_joins_previous;
    out->mask_slot = (uint8_t)problem->mask_count++;
}

/* Returns whether the kernels of one stream can serve the problem. */
static bool is_lean(const struct trajd_cuda_problem *problem)
{
    const struct trajd_cuda_stream *only = &problem->streams[0];

    return problem->stream_count == 1 && only->path != TRAJD_CUDA_FULL &&
           problem->window_count <= TRAJD_CUDA_GRID_HEIGHT_MAX &&
           only->step_stride_bytes <= UINT32_MAX && problem->step_count_max <= INT32_MAX;
}

/* Narrows vectors to widths 4 and 1, which the kernels for every path support. */
static void narrow_vectors(struct trajd_cuda_problem *problem)
{
    for (uint32_t s = 0; s < problem->stream_count; s++) {
        struct trajd_cuda_stream *stream = &problem->streams[s];
        uint32_t width = stream->vector_width >= 4 ? 4 : 1;
        if (stream->path == TRAJD_CUDA_COPY)
            continue;
        stream->vector_count *= stream->vector_width / width;
        stream->load_bytes = (uint8_t)(stream->load_bytes / (stream->vector_width / width));
        stream->vector_width = (uint8_t)width;
    }
}

/* Makes the groups of the batch kernel. Sets task_count to 0 if there are too many tasks to
 * count. */
static void group_streams(struct trajd_cuda_problem *problem)
{
    uint64_t tasks = 0;

    problem->group_count = 0;
    for (uint32_t s = 0; s < problem->stream_count; s++) {
        const struct trajd_cuda_stream *stream = &problem->streams[s];
        struct trajd_cuda_group *group = &problem->groups[problem->group_count];
        uint64_t units = stream->unit_count;
        uint32_t first = s;

        while (stream->mask_slot != TRAJD_CUDA_NO_MASK && s + 1 < problem->stream_count &&
               problem->streams[s + 1].mask_slot == stream->mask_slot)
            units += problem->streams[++s].unit_count;
        *group = (struct trajd_cuda_group){
            .first_task = (uint32_t)tasks,
            .unit_count = (uint32_t)units,
            .step_count = problem->brackets[stream->bracket_index].step_count,
            .first_stream = (uint16_t)first,
            .steps_per_task = (uint16_t)(units < WARP ? WARP / units : 1),
            .unit_reciprocal = (uint32_t)((65536 + units - 1) / units),
        };
        tasks += (group->step_count - 1) / group->steps_per_task + 1;
        problem->group_count++;
        if (tasks > INT32_MAX || units > INT32_MAX)
            tasks = TASKS_UNCOUNTED;
    }
    problem->task_count = tasks >= TASKS_UNCOUNTED ? 0 : (uint32_t)tasks;
}

/* Returns whether a stream is large enough for a launch of its own, by the kernels of one
 * stream. */
static bool stands_alone(const struct trajd_resample_request *request,
                         const struct trajd_stream *stream, const struct trajd_cuda_stream *packed)
{
    const struct trajd_grid *grid =
        &request->grids[request->brackets[stream->bracket_index].grid_index];
    uint64_t targets = (uint64_t)request->window_count * grid->step_count;
    uint64_t bytes = (uint64_t)stream->feature_count * trajd_dtype_size(stream->output_type);

    return packed->path != TRAJD_CUDA_FULL && stream->step_stride_bytes <= UINT32_MAX &&
           request->window_count <= TRAJD_CUDA_GRID_HEIGHT_MAX && grid->step_count <= INT32_MAX &&
           (bytes >= ALONE_BYTES_MIN / targets ||
            packed->vector_count >= ALONE_VECTORS_MIN / targets);
}

uint32_t trajd_cuda_pack(const struct trajd_resample_request *request, uint32_t first,
                         struct trajd_cuda_problem *problem)
{
    uint32_t sources[TRAJD_CUDA_BRACKETS_MAX];
    uint32_t s, b;

    problem->window_count = request->window_count;
    problem->window_rows = request->window_rows;
    problem->bracket_count = problem->stream_count = problem->mask_count = 0;
    problem->step_count_max = 0;
    problem->totals = first < request->stream_count && request->streams[first].total;
    for (s = first; s < request->stream_count && problem->stream_count < TRAJD_CUDA_STREAMS_MAX;
         s++) {
        const struct trajd_stream *stream = &request->streams[s];
        struct trajd_cuda_stream *packed = &problem->streams[problem->stream_count];
        bool alone;

        pack_stream(stream, packed);
        alone = stands_alone(request, stream, packed);
        if ((alone && s > first) || (stream->total != TRAJD_TOTAL_NONE) != problem->totals)
            break;
        for (b = 0; b < problem->bracket_count && sources[b] != stream->bracket_index; b++)
            ;
        if (b == TRAJD_CUDA_BRACKETS_MAX)
            break;
        if (b == problem->bracket_count) {
            sources[b] = stream->bracket_index;
            pack_bracket(request, sources[b], &problem->brackets[b]);
            if (problem->brackets[b].step_count > problem->step_count_max)
                problem->step_count_max = problem->brackets[b].step_count;
            problem->bracket_count++;
        }
        packed->bracket_index = (uint8_t)b;
        pack_mask(stream, problem);
        problem->stream_count++;
        if (alone) {
            s++;
            break;
        }
    }
    problem->lean = is_lean(problem);
    group_streams(problem);
    if (!problem->lean)
        narrow_vectors(problem);
    return s;
}

uint32_t trajd_cuda_launch_count(const struct trajd_resample_request *request)
{
    struct trajd_cuda_problem problem;
    uint32_t count = 0;

    for (uint32_t s = 0; s < request->stream_count; count++)
        s = trajd_cuda_pack(request, s, &problem);
    return count;
}

void trajd_cuda_describe(const struct trajd_resample_request *shape,
                         const struct trajd_device_facts *facts, int style,
                         struct trajd_cuda_shape *cut, char *why, uint32_t why_size)
{
    struct trajd_cuda_problem problem;
    struct trajd_tuning_found found;
    uint32_t first = 0;

    while (first + 1 < shape->stream_count && shape->streams[first].total)
        first++;
    trajd_cuda_pack(shape, first, &problem);
    if (problem.totals) {
        *cut = (struct trajd_cuda_shape){
            .style = TRAJD_CUDA_DIRECT, .tile_steps = 1, .thread_count = TRAJD_CUDA_TOTAL_THREADS};
        snprintf(why, why_size, "sums of rows");
        return;
    }
    *cut = trajd_cuda_styled_shape_of(&problem, facts, 0, style);
    if (style != TRAJD_CUDA_ANY_STYLE)
        snprintf(why, why_size, "as was asked for");
    else if (facts->tuning && trajd_tuning_find(facts->tuning, &problem, facts,
                                                (uint64_t)problem.brackets[0].dense_rows, &found))
        snprintf(why, why_size, "by %s:%u, %.2f us there", found.name, found.line, found.us);
    else
        snprintf(why, why_size, "by rule");
}
