/* Runs of rows: where all steps of a window are rows that follow each other and the result is what they are, one copy a window.
 *
 * Math      a = 0 for every kind on a grid of rows: the value is the row. Quaternions of unit length are passed on as they are.
 * Shapes    a ROWS grid whose offsets ascend by one and are the same for all windows; rows dense in source and output.
 * Requires  source and output of one type, no normalisation. A window that leaves its rows, holds NaN or a quaternion that is not of unit
 *           length, or lacks the stream, is left to the general path.
 * Moves     each row once in, once out.
 * Threads   none of its own.
 * Numerics  bytes.
 * Chosen    always where it applies: a policy's batch is made of such windows; measurements in README.md.
 */
#include "kernels/resample_cpu.h"

#include <math.h>
#include <string.h>

#include "kernels/quaternion.h"

#define AHEAD 8 /* windows whose rows are fetched ahead: they lie anywhere in the store */

bool trajd_cpu_grid_is_run(const struct trajd_grid *grid)
{
    if (grid->unit != TRAJD_GRID_ROWS || grid->offsets_per_window)
        return false;
    for (uint32_t t = 1; t < grid->step_count; t++)
        if (grid->offsets[t] != grid->offsets[0] + t)
            return false;
    return true;
}

bool trajd_cpu_stream_runs(const struct trajd_stream *stream)
{
    const uint64_t size = (uint64_t)stream->feature_count * trajd_dtype_size(stream->source_type);

    return stream->source_type == stream->output_type && !stream->scale && stream->row_stride_bytes == size &&
           stream->step_stride_bytes == size && stream->kind != TRAJD_KIND_MEAN &&
           !(stream->kind == TRAJD_KIND_ANGLE && !isnan(stream->angle_low)) &&
           (!trajd_kind_is_slerp(stream->kind) || stream->source_type == TRAJD_F32 || stream->source_type == TRAJD_F64);
}

/* Squares are formed in double, as the reference does. NaN is not of unit length. */
#define DEFINE_ALL_UNIT(name, type)                                                                          \
    static bool name(const char *quaternions, uint64_t count)                                                \
    {                                                                                                        \
        bool unit = true;                                                                                    \
        for (uint64_t i = 0; i < count; i++) {                                                               \
            type q[4];                                                                                       \
            memcpy(q, quaternions + i * sizeof q, sizeof q);                                                 \
            const double wide[4] = {q[0], q[1], q[2], q[3]};                                                 \
            unit &= fabs(trajd_quaternion_dot(wide, wide) - 1) <= TRAJD_QUATERNION_UNIT_SLACK;               \
        }                                                                                                    \
        return unit;                                                                                         \
    }

DEFINE_ALL_UNIT(all_unit_f32, float)
DEFINE_ALL_UNIT(all_unit_f64, double)

/* Whether one of `count` elements has all exponent bits set and a fraction: no branch, so that the compiler takes them in vectors. */
#define DEFINE_ANY_NAN(name, type, infinity)                                                                 \
    static bool name(const char *elements, uint64_t count)                                                   \
    {                                                                                                        \
        type found = 0;                                                                                      \
        for (uint64_t i = 0; i < count; i++) {                                                               \
            type bits;                                                                                       \
            memcpy(&bits, elements + i * sizeof bits, sizeof bits);                                          \
            found |= (type)(bits << 1) > (type)((type)(infinity) << 1);                                      \
        }                                                                                                    \
        return found != 0;                                                                                   \
    }

DEFINE_ANY_NAN(any_nan_f16, uint16_t, 0x7c00)
DEFINE_ANY_NAN(any_nan_bf16, uint16_t, 0x7f80)
DEFINE_ANY_NAN(any_nan_f32, uint32_t, 0x7f800000)
DEFINE_ANY_NAN(any_nan_f64, uint64_t, 0x7ff0000000000000)

bool trajd_cpu_any_nan(enum trajd_dtype type, const void *elements, uint64_t count)
{
    switch (type) {
    case TRAJD_F16: return any_nan_f16(elements, count);
    case TRAJD_BF16: return any_nan_bf16(elements, count);
    case TRAJD_F32: return any_nan_f32(elements, count);
    case TRAJD_F64: return any_nan_f64(elements, count);
    default: return false;
    }
}

/* Whether the bytes copied are the result: what is not is done again. */
static bool is_result(const struct trajd_stream *stream, const char *out, uint64_t elements)
{
    if (trajd_kind_is_slerp(stream->kind))
        return stream->source_type == TRAJD_F32 ? all_unit_f32(out, elements / 4) : all_unit_f64(out, elements / 4);
    return !stream->mask || !trajd_cpu_any_nan(stream->source_type, out, elements);
}

/* The first row of window w's run, or NULL where it leaves the rows. */
static const char *run_of(const struct trajd_bracket *bracket, const struct trajd_grid *grid,
                          const struct trajd_stream *stream, uint32_t w)
{
    const char *rows = stream->bases ? stream->bases[w] : stream->base;
    int64_t first, end;

    if (!rows || __builtin_add_overflow(bracket->anchor[w], grid->offsets[0], &first) || first < 0 ||
        __builtin_add_overflow(first, (int64_t)grid->step_count, &end) || end > bracket->row_count[w])
        return NULL;
    if (!stream->bases)
        first += bracket->row_begin[w];
    return rows + first * (int64_t)stream->row_stride_bytes +
           (uint64_t)stream->first_column * trajd_dtype_size(stream->source_type);
}

uint32_t trajd_cpu_copy_runs(const struct trajd_bracket *bracket, const struct trajd_grid *grid,
                             const struct trajd_stream *stream, uint32_t begin, uint32_t end)
{
    const uint64_t size = grid->step_count * stream->row_stride_bytes;
    const uint64_t elements = (uint64_t)grid->step_count * stream->feature_count;

    for (uint32_t w = begin; w < end; w++) {
        const char *ahead = w + AHEAD < end ? run_of(bracket, grid, stream, w + AHEAD) : NULL;
        const char *run = run_of(bracket, grid, stream, w);
        char *out = (char *)stream->output + w * stream->window_stride_bytes;

        if (ahead) {
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + size - 1);
        }
        if (!run)
            return w;
        memcpy(out, run, size);
        if (!is_result(stream, out, elements))
            return w;
    }
    return end;
}
