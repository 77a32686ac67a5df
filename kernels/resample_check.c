/* Checks a request: sizes, strides, times, kinds and the members that must be zero. */
#include <math.h>
#include <stdbool.h>

#include "kernels/element_convert.h"
#include "kernels/quaternion.h"
#include "kernels/resample.h"
#include "proto/array_len.h"

#define RATE_LIMIT INT32_MAX
#define SIZE_LIMIT ((uint64_t)INT64_MAX)

/* The object that is checked, for messages: "streams[3]: mean_width is 0 (must be positive)". */
struct place {
    const char *list;
    uint32_t index;
    struct trajd_error *error;
};

static enum trajd_status wrong(const struct place *place, const char *rule)
{
    return trajd_error_set(place->error, TRAJD_ERR_ARGUMENT, 0, "%s[%u]: %s", place->list,
                           place->index, rule);
}

static enum trajd_status unsupported(const struct place *place, const char *rule)
{
    return trajd_error_set(place->error, TRAJD_ERR_UNSUPPORTED, 0, "%s[%u]: %s", place->list,
                           place->index, rule);
}

/* Refuses reserved members that are not zero, which a caller may have left uninitialised. */
static enum trajd_status check_reserved(const uint64_t *reserved, size_t count,
                                        const struct place *place)
{
    uint64_t bits = 0;

    for (size_t i = 0; i < count; i++)
        bits |= reserved[i];
    return bits ? wrong(place, "reserved is not zero (set the struct to zero first)") : TRAJD_OK;
}

static bool has_rate(struct trajd_rate rate)
{
    return rate.num > 0 && rate.den > 0 && rate.num <= RATE_LIMIT && rate.den <= RATE_LIMIT;
}

static enum trajd_status check_clock(const struct trajd_clock *clock, const struct place *place)
{
    bool none = clock->rate.num == 0 && clock->rate.den == 0;

    if (clock->stamps_ns && !none)
        return wrong(place, "has both stamps and a rate");
    if (!clock->stamps_ns && !none && !has_rate(clock->rate))
        return wrong(place, "rate must have num and den in [1, 2^31 - 1]");
    return check_reserved(clock->reserved, ARRAY_LEN(clock->reserved), place);
}

static enum trajd_status check_grid(const struct trajd_grid *grid, bool pointers,
                                    const struct place *place)
{
    if (grid->unit != TRAJD_GRID_NS && grid->unit != TRAJD_GRID_ROWS)
        return wrong(place, "unit is unknown");
    if (grid->step_count == 0)
        return wrong(place, "step_count is 0 (at least one step)");
    if (grid->offsets_per_window != 0 && grid->offsets_per_window != grid->step_count)
        return wrong(place, "offsets_per_window must be 0 or step_count");
    if (pointers && !grid->offsets)
        return wrong(place, "offsets is NULL");
    return check_reserved(grid->reserved, ARRAY_LEN(grid->reserved), place);
}

static enum trajd_status check_bracket(const struct trajd_resample_request *request,
                                       const struct trajd_bracket *bracket, bool pointers,
                                       const struct place *place)
{
    const struct trajd_clock *clock;

    if (bracket->clock_index >= request->clock_count)
        return wrong(place, "clock_index is out of range");
    if (bracket->grid_index >= request->grid_count)
        return wrong(place, "grid_index is out of range");
    if (bracket->dense_row_count && (bracket->row_begin || bracket->row_count || bracket->anchor))
        return wrong(place, "has dense_row_count, so row_begin, row_count and anchor must be NULL");
    if (bracket->dense_row_count > SIZE_LIMIT / request->window_count)
        return wrong(place, "dense_row_count is too large");
    if (pointers && !bracket->dense_row_count &&
        (!bracket->row_begin || !bracket->row_count || !bracket->anchor))
        return wrong(place, "row_begin, row_count or anchor is NULL");
    if (!bracket->too_old_begin != !bracket->too_old_end)
        return wrong(place, "too_old_begin and too_old_end must both be given or both be NULL");
    clock = &request->clocks[bracket->clock_index];
    if (request->grids[bracket->grid_index].unit == TRAJD_GRID_NS && pointers &&
        !clock->stamps_ns && !has_rate(clock->rate))
        return wrong(place, "a grid in ns needs a clock with stamps or a rate");
    return check_reserved(bracket->reserved, ARRAY_LEN(bracket->reserved), place);
}

static bool picks_a_row(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST;
}

static enum trajd_status check_kind(const struct trajd_stream *stream, const struct place *place)
{
    if ((unsigned)stream->kind >= TRAJD_KIND_COUNT)
        return wrong(place, "kind is unknown");
    if ((unsigned)stream->edge >= TRAJD_EDGE_COUNT)
        return wrong(place, "edge is unknown");
    if (trajd_kind_is_slerp(stream->kind) && stream->feature_count % 4 != 0)
        return wrong(place, "feature_count of slerp must be a multiple of 4");
    if (stream->kind == TRAJD_KIND_MEAN && stream->mean_width <= 0)
        return wrong(place, "mean_width must be positive");
    if (stream->kind == TRAJD_KIND_ANGLE) {
        if (!(stream->angle_period > 0) || isinf(stream->angle_period))
            return wrong(place, "angle_period must be positive and finite");
        if (isinf(stream->angle_low))
            return wrong(place, "angle_low must be finite, or NaN for no range");
    }
    return TRAJD_OK;
}

static enum trajd_status check_total(const struct trajd_stream *stream, enum trajd_grid_unit unit,
                                     const struct place *place)
{
    if ((unsigned)stream->total >= TRAJD_TOTAL_COUNT)
        return wrong(place, "total is unknown");
    if (stream->total == TRAJD_TOTAL_NONE)
        return TRAJD_OK;
    if (stream->kind != TRAJD_KIND_PREVIOUS ||
        unit != (stream->total == TRAJD_TOTAL_REST ? TRAJD_GRID_ROWS : TRAJD_GRID_NS))
        return unsupported(place,
                           "a total needs kind previous, REST a grid in rows, STEP one in ns");
    if (!trajd_dtype_is_float(stream->output_type))
        return unsupported(place, "a total needs a floating-point output");
    if (stream->total == TRAJD_TOTAL_STEP && stream->total_width <= 0)
        return wrong(place, "total_width must be positive");
    if (stream->total == TRAJD_TOTAL_REST &&
        !(stream->total_gamma >= 0 && stream->total_gamma <= 1))
        return wrong(place, "total_gamma must be in [0, 1]");
    return TRAJD_OK;
}

static enum trajd_status check_types(const struct trajd_stream *stream, enum trajd_grid_unit unit,
                                     const struct place *place)
{
    bool floats = trajd_dtype_is_float(stream->output_type);

    if (trajd_dtype_size(stream->source_type) == 0 || trajd_dtype_size(stream->output_type) == 0)
        return wrong(place, "source_type or output_type is unknown");
    if (floats && stream->output_type == TRAJD_F64 && stream->source_type != TRAJD_F64)
        return unsupported(place, "f64 is an output of f64 sources only");
    if (!floats && (stream->output_type != stream->source_type || !picks_a_row(stream->kind)))
        return unsupported(
            place, "an integer output needs a source of that type and kind previous or nearest");
    if (!floats && stream->edge == TRAJD_EDGE_NAN)
        return unsupported(place, "edge NaN needs a floating-point output");
    if (!floats && stream->scale)
        return unsupported(place, "normalisation needs a floating-point output");
    if (!stream->scale != !stream->offset)
        return wrong(place, "scale and offset must both be given or both be NULL");
    if (stream->derivative && (picks_a_row(stream->kind) || stream->kind == TRAJD_KIND_MEAN))
        return unsupported(place, "previous, nearest and mean have no derivative");
    if (stream->derivative && unit == TRAJD_GRID_ROWS)
        return unsupported(place, "a grid in rows has no derivative");
    return TRAJD_OK;
}

/* Computes in *end where `count` blocks of `inner` bytes end, `stride` bytes apart. Returns false
 * if blocks overlap or the end overflows. */
static bool extend(uint64_t inner, uint64_t count, uint64_t stride, uint64_t *end)
{
    uint64_t last;

    if (count == 1) {
        *end = inner;
        return true;
    }
    return stride >= inner && !__builtin_mul_overflow(count - 1, stride, &last) &&
           !__builtin_add_overflow(last, inner, end) && *end <= SIZE_LIMIT;
}

/* Checks strides where either the steps of a window lie together, or the windows of a step. */
static bool strides_fit(uint64_t row, uint64_t steps, uint64_t step_stride, uint64_t windows,
                        uint64_t window_stride)
{
    uint64_t inner, end;

    return (extend(row, steps, step_stride, &inner) &&
            extend(inner, windows, window_stride, &end)) ||
           (extend(row, windows, window_stride, &inner) && extend(inner, steps, step_stride, &end));
}

static bool aligned(const void *pointer, uint64_t stride_a, uint64_t stride_b, uint64_t size)
{
    return ((uintptr_t)pointer | stride_a | stride_b) % size == 0; /* sizes are powers of two */
}

static enum trajd_status check_source(const struct trajd_stream *stream, bool pointers,
                                      const struct place *place)
{
    uint64_t size = trajd_dtype_size(stream->source_type);

    if (stream->feature_count == 0)
        return wrong(place, "feature_count is 0 (at least one feature)");
    if (stream->row_stride_bytes < ((uint64_t)stream->first_column + stream->feature_count) * size)
        return wrong(place, "row_stride_bytes is less than first_column + feature_count elements");
    if (stream->row_stride_bytes > SIZE_LIMIT)
        return wrong(place, "row_stride_bytes is too large");
    if (pointers && !stream->base && !stream->bases)
        return wrong(place, "base and bases are both NULL");
    if (!aligned(stream->bases ? NULL : stream->base, stream->row_stride_bytes, 0, size))
        return wrong(place, "base and row_stride_bytes must be multiples of the element's size");
    return TRAJD_OK;
}

static enum trajd_status check_output(const struct trajd_stream *stream, uint64_t windows,
                                      uint64_t steps, bool pointers, const struct place *place)
{
    uint64_t size = trajd_dtype_size(stream->output_type);
    uint64_t slopes =
        trajd_kind_is_slerp(stream->kind) ? stream->feature_count / 4 * 3 : stream->feature_count;

    if (pointers && !stream->output)
        return wrong(place, "output is NULL");
    if (!strides_fit(stream->feature_count * size, steps, stream->step_stride_bytes, windows,
                     stream->window_stride_bytes))
        return wrong(place, "output strides overlap, or its size is beyond 2^63");
    if (!aligned(stream->output, steps > 1 ? stream->step_stride_bytes : 0,
                 windows > 1 ? stream->window_stride_bytes : 0, size))
        return wrong(place, "output and its strides must be multiples of the element's size");
    if (!stream->derivative)
        return TRAJD_OK;
    if (!strides_fit(slopes * 4, steps, stream->derivative_step_stride_bytes, windows,
                     stream->derivative_window_stride_bytes))
        return wrong(place, "derivative strides overlap, or its size is beyond 2^63");
    if (!aligned(stream->derivative, steps > 1 ? stream->derivative_step_stride_bytes : 0,
                 windows > 1 ? stream->derivative_window_stride_bytes : 0, sizeof(float)))
        return wrong(place, "derivative and its strides must be multiples of 4");
    return TRAJD_OK;
}

/* Returns the number of output rows, including rows that the request does not write. */
static uint32_t output_rows(const struct trajd_resample_request *request)
{
    return request->window_rows ? request->output_row_count : request->window_count;
}

static uint32_t steps_of(const struct trajd_resample_request *request,
                         const struct trajd_stream *stream)
{
    return request->grids[request->brackets[stream->bracket_index].grid_index].step_count;
}

static enum trajd_status check_mask(const struct trajd_resample_request *request, uint32_t index,
                                    const struct place *place)
{
    const struct trajd_stream *stream = &request->streams[index];
    const struct trajd_stream *before = index > 0 ? stream - 1 : NULL;
    uint32_t steps = steps_of(request, stream);

    if (stream->mask_joins_previous > 1)
        return wrong(place, "mask_joins_previous must be 0 or 1");
    if (stream->mask &&
        !strides_fit(steps, 1, 0, output_rows(request), stream->mask_window_stride_bytes))
        return wrong(place, "mask strides overlap");
    if (!stream->mask_joins_previous)
        return TRAJD_OK;
    if (!before)
        return wrong(place, "mask_joins_previous: there is no stream before it");
    if (before->mask != stream->mask || steps_of(request, before) != steps ||
        before->mask_window_stride_bytes != stream->mask_window_stride_bytes)
        return wrong(
            place,
            "mask_joins_previous: mask, stride or step_count differ from the stream before it");
    return TRAJD_OK;
}

static enum trajd_status check_stream(const struct trajd_resample_request *request, uint32_t index,
                                      bool pointers, const struct place *place)
{
    const struct trajd_stream *stream = &request->streams[index];
    const struct trajd_grid *grid;
    enum trajd_status status;

    if (stream->bracket_index >= request->bracket_count)
        return wrong(place, "bracket_index is out of range");
    grid = &request->grids[request->brackets[stream->bracket_index].grid_index];
    if ((status = check_reserved(stream->reserved, ARRAY_LEN(stream->reserved), place)) ||
        (status = check_kind(stream, place)) || (status = check_total(stream, grid->unit, place)) ||
        (status = check_types(stream, grid->unit, place)) ||
        (status = check_source(stream, pointers, place)) ||
        (status = check_output(stream, output_rows(request), grid->step_count, pointers, place)))
        return status;
    return check_mask(request, index, place);
}

static enum trajd_status check_lists(const struct trajd_resample_request *request, bool pointers,
                                     struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < request->clock_count && !status; i++)
        status = check_clock(&request->clocks[i], &(struct place){"clocks", i, error});
    for (uint32_t i = 0; i < request->grid_count && !status; i++)
        status = check_grid(&request->grids[i], pointers, &(struct place){"grids", i, error});
    for (uint32_t i = 0; i < request->bracket_count && !status; i++)
        status = check_bracket(request, &request->brackets[i], pointers,
                               &(struct place){"brackets", i, error});
    for (uint32_t i = 0; i < request->stream_count && !status; i++)
        status = check_stream(request, i, pointers, &(struct place){"streams", i, error});
    return status;
}

static enum trajd_status check(const struct trajd_resample_request *request, bool pointers,
                               struct trajd_error *error)
{
    enum trajd_status status;

    if (!request)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "request is NULL");
    if (request->window_count == 0)
        return TRAJD_OK;
    if ((request->clock_count && !request->clocks) || (request->grid_count && !request->grids) ||
        (request->bracket_count && !request->brackets) ||
        (request->stream_count && !request->streams))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "request: a list is NULL though its count is not 0");
    if (request->window_rows && request->output_row_count < request->window_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "request: %u windows into output_row_count %u",
                               request->window_count, request->output_row_count);
    status = check_reserved(request->reserved, ARRAY_LEN(request->reserved),
                            &(struct place){"requests", 0, error});
    return status ? status : check_lists(request, pointers, error);
}

enum trajd_status trajd_resample_check(const struct trajd_resample_request *request,
                                       struct trajd_error *error)
{
    return check(request, true, error);
}

enum trajd_status trajd_resample_check_shape(const struct trajd_resample_request *shape,
                                             struct trajd_error *error)
{
    return check(shape, false, error);
}

enum trajd_status trajd_resample_check_rows(const struct trajd_resample_request *request,
                                            struct trajd_error *error)
{
    for (uint32_t w = 0; w < request->window_count && request->window_rows; w++)
        if (request->window_rows[w] >= request->output_row_count ||
            (w > 0 && request->window_rows[w] <= request->window_rows[w - 1]))
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "window_rows[%u]: row %u (must ascend, and be below output_row_count, %u)", w,
                request->window_rows[w], request->output_row_count);
    return TRAJD_OK;
}
