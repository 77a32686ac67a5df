/* Runs of rows: if the steps of a window are consecutive rows and the result equals them, one copy
 * serves the window.
 *
 * Math      a = 0 for every kind on a grid of rows, so the value is the row. Quaternions of unit
 *           length are copied as they are.
 * Shapes    a ROWS grid whose offsets ascend by one and are the same for all windows; rows dense
 *           in source and output. One row of a window may lie anywhere in the output.
 * Requires  source and output of one type, no normalisation. The general path serves windows
 *           without a row, with edges that are not held, with numbers that are not finite, or
 *           with a quaternion that is not of unit length.
 * Moves     each row once in, once out.
 * Threads   the caller's.
 * Numerics  bytes.
 * Chosen    always if it applies: a policy batch consists of such windows; measurements in
 *           kernels/README.md. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "kernels/clones.h"
#include "kernels/quaternion.h"

#define AHEAD 32 /* windows whose rows are prefetched, because they lie anywhere in the row cache */
#define LINE 64  /* bytes of a cache line */

bool trajd_cpu_grid_is_run(const struct trajd_grid *grid)
{
    if (grid->unit != TRAJD_GRID_ROWS || grid->offsets_per_window)
        return false;
    for (uint32_t t = 1; t < grid->step_count; t++)
        if (grid->offsets[t] != grid->offsets[0] + t)
            return false;
    return true;
}

bool trajd_cpu_stream_runs(const struct trajd_grid *grid, const struct trajd_stream *stream)
{
    const uint64_t size = (uint64_t)stream->feature_count * trajd_dtype_size(stream->source_type);

    return stream->source_type == stream->output_type && !stream->scale && !stream->total &&
           stream->row_stride_bytes == size &&
           (stream->step_stride_bytes == size || grid->step_count == 1) &&
           stream->kind != TRAJD_KIND_MEAN &&
           !(stream->kind == TRAJD_KIND_ANGLE && !isnan(stream->angle_low)) &&
           (!trajd_kind_is_slerp(stream->kind) || stream->source_type == TRAJD_F32 ||
            stream->source_type == TRAJD_F64);
}

/* Returns whether all quaternions have unit length. Squares are formed in double, as in the
 * reference. A NaN does not count as unit length. */
#define DEFINE_ALL_UNIT(name, type)                                                                \
    static bool name(const char *quaternions, uint64_t count)                                      \
    {                                                                                              \
        bool unit = true;                                                                          \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            type q[4];                                                                             \
            memcpy(q, quaternions + i * sizeof q, sizeof q);                                       \
            const double wide[4] = {q[0], q[1], q[2], q[3]};                                       \
            unit &= fabs(trajd_quaternion_dot(wide, wide) - 1) <= TRAJD_QUATERNION_UNIT_SLACK;     \
        }                                                                                          \
        return unit;                                                                               \
    }

DEFINE_ALL_UNIT(all_unit_f32, float)
DEFINE_ALL_UNIT(all_unit_f64, double)

/* Returns whether one of `count` elements has all exponent bits set. Has no branch, so that the
 * compiler vectorises it. */
#define DEFINE_ANY_LOST(name, type, infinity)                                                      \
    TRAJD_INLINE bool name(const char *elements, uint64_t count)                                   \
    {                                                                                              \
        type found = 0;                                                                            \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            type bits;                                                                             \
            memcpy(&bits, elements + i * sizeof bits, sizeof bits);                                \
            found |= (type)(bits << 1) >= (type)((type)(infinity) << 1);                           \
        }                                                                                          \
        return found != 0;                                                                         \
    }

DEFINE_ANY_LOST(any_lost_f16, uint16_t, 0x7c00)
DEFINE_ANY_LOST(any_lost_bf16, uint16_t, 0x7f80)
DEFINE_ANY_LOST(any_lost_f32, uint32_t, 0x7f800000)
DEFINE_ANY_LOST(any_lost_f64, uint64_t, 0x7ff0000000000000)

TRAJD_INLINE bool any_lost(enum trajd_dtype type, const void *elements, uint64_t count)
{
    switch (type) {
    case TRAJD_F16:
        return any_lost_f16(elements, count);
    case TRAJD_BF16:
        return any_lost_bf16(elements, count);
    case TRAJD_F32:
        return any_lost_f32(elements, count);
    case TRAJD_F64:
        return any_lost_f64(elements, count);
    default:
        return false;
    }
}

TRAJD_CLONES bool trajd_cpu_any_lost(enum trajd_dtype type, const void *elements, uint64_t count)
{
    return any_lost(type, elements, count);
}

/* Returns whether the rows are the result. If not, the general path makes it. The copy is not looked
 * at, because its bytes can be read only when they are in the cache. */
TRAJD_INLINE bool is_result(const struct trajd_stream *stream, const char *rows, uint64_t elements)
{
    if (trajd_kind_is_slerp(stream->kind))
        return stream->source_type == TRAJD_F32 ? all_unit_f32(rows, elements / 4)
                                                : all_unit_f64(rows, elements / 4);
    return !stream->mask || !any_lost(stream->source_type, rows, elements);
}

/* The part of a window's steps that are rows: `before` steps lie before the first row, then
 * `inside` steps are the rows from `row` on, and the remaining steps lie after the last row. */
struct run {
    const char *row;
    uint32_t before, inside;
};

/* Finds a window's run. Returns false if no step is a row or the stream is missing. */
TRAJD_INLINE bool find_run(const struct trajd_bracket *bracket, const struct trajd_grid *grid,
                           const struct trajd_stream *stream, uint32_t w, struct run *run)
{
    const char *rows = stream->bases ? stream->bases[w] : stream->base;
    const int64_t steps = grid->step_count, row_count = trajd_row_count(bracket, w);
    int64_t first, end, begin;

    if (!rows || __builtin_add_overflow(trajd_anchor(bracket, w), grid->offsets[0], &first) ||
        __builtin_add_overflow(first, steps, &end))
        return false;
    begin = first > 0 ? first : 0;
    end = end < row_count ? end : row_count;
    if (begin >= end)
        return false;
    run->before = (uint32_t)(begin - first);
    run->inside = (uint32_t)(end - begin);
    if (!stream->bases)
        begin += trajd_row_begin(bracket, w);
    run->row = rows + begin * (int64_t)stream->row_stride_bytes +
               (uint64_t)stream->first_column * trajd_dtype_size(stream->source_type);
    return true;
}

/* Returns whether the edge rule repeats the first or last row for the steps outside the rows. */
static bool may_repeat(const struct trajd_stream *stream, const struct run *run,
                       uint32_t step_count)
{
    return stream->edge == TRAJD_EDGE_HOLD ||
           (run->before == 0 && (run->inside == step_count || stream->max_age_ns >= 0));
}

static void raise_mask(uint8_t *mask, uint32_t count, enum trajd_mask code)
{
    for (uint32_t t = 0; t < count; t++)
        if (mask[t] < (uint8_t)code)
            mask[t] = (uint8_t)code;
}

static void repeat_edges(const struct trajd_stream *stream, const struct run *run,
                         uint32_t step_count, char *out, uint8_t *mask)
{
    const uint64_t size = stream->row_stride_bytes;
    const uint32_t end = run->before + run->inside;

    for (uint32_t t = 0; t < run->before; t++)
        memcpy(out + t * size, run->row, size);
    for (uint32_t t = end; t < step_count; t++)
        memcpy(out + t * size, out + (end - 1) * size, size);
    if (!mask)
        return;
    raise_mask(mask, run->before, TRAJD_MASK_BEFORE_START);
    if (stream->max_age_ns < 0)
        raise_mask(mask + end, step_count - end, TRAJD_MASK_AFTER_END);
}

/* Finds a window's run and fetches its rows into the caches. A window that the general path serves
 * gets a run without steps. */
TRAJD_INLINE void fetch_run(const struct trajd_bracket *bracket, const struct trajd_grid *grid,
                            const struct trajd_stream *stream, uint32_t w, struct run *run)
{
    run->inside = 0;
    if (!find_run(bracket, grid, stream, w, run))
        return;
    for (uint64_t at = 0; at < run->inside * stream->row_stride_bytes && at < 8 * LINE; at += LINE)
        __builtin_prefetch(run->row + at);
}

TRAJD_CLONES uint32_t trajd_cpu_copy_runs(const struct trajd_resample_request *request,
                                          const struct trajd_stream *stream, uint32_t begin,
                                          uint32_t end)
{
    const struct trajd_bracket *bracket = &request->brackets[stream->bracket_index];
    const struct trajd_grid *grid = &request->grids[bracket->grid_index];
    const uint64_t size = stream->row_stride_bytes;
    struct run runs[AHEAD];

    for (uint32_t w = begin; w < end && w < begin + AHEAD; w++)
        fetch_run(bracket, grid, stream, w, &runs[w % AHEAD]);
    for (uint32_t w = begin; w < end; w++) {
        const struct run run = runs[w % AHEAD];
        const uint64_t row = trajd_window_row(request, w);
        char *out = (char *)stream->output + row * stream->window_stride_bytes;
        uint8_t *mask = stream->mask ? stream->mask + row * stream->mask_window_stride_bytes : NULL;

        if (w + AHEAD < end)
            fetch_run(bracket, grid, stream, w + AHEAD, &runs[w % AHEAD]);
        if (!run.inside || !may_repeat(stream, &run, grid->step_count))
            return w;
        if (!is_result(stream, run.row, (uint64_t)run.inside * stream->feature_count))
            return w;
        memcpy(out + run.before * size, run.row, run.inside * size);
        if (run.inside < grid->step_count)
            repeat_edges(stream, &run, grid->step_count, out, mask);
    }
    return end;
}
