/* The mover for the common case: f32, f64 and u8 rows to f32, and f64 to f64, by linear, previous
 * or nearest, in one loop.
 *
 * Math      v = p + a (q - p), or p; value * scale + offset; one rounding at the store. A step is
 *           masked NAN if a result is not finite.
 * Shapes    any D. Made for the 2 to 14 features of robots, where the begin and end of a loop
 *           cost more than its middle.
 * Requires  nothing.
 * Moves     each row that is used once, each output row once.
 * Numerics  the reference's operations in the reference's order, in double: the same bits.
 * Chosen    by trajd_cpu_mover_of. Against tiles: 7 ns instead of 15 for a row of D = 7, and 0.5
 *           ns instead of 1.1 for an element of u8 images. f64 to f64, a row of D = 7 with its
 *           search: 15 ns instead of 45; D = 128: 39 instead of 136. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/finite.h"

#define WIDE 48 /* number of features from which on plain loops are faster */

/* Four features at once. Without AVX the compiler makes two halves of it. */
typedef double four_doubles __attribute__((vector_size(32)));
typedef int64_t four_flags __attribute__((vector_size(32)));
typedef float four_floats __attribute__((vector_size(16)));
typedef uint8_t four_bytes __attribute__((vector_size(4)));
typedef int32_t four_integers __attribute__((vector_size(16)));

TRAJD_INLINE void load_four_floats(const float *from, four_doubles *out)
{
    four_floats narrow;

    memcpy(&narrow, from, sizeof narrow);
    *out = __builtin_convertvector(narrow, four_doubles);
}

TRAJD_INLINE void load_four(enum trajd_dtype type, const void *row, uint32_t d, four_doubles *out)
{
    four_bytes bytes;

    if (type == TRAJD_F64) {
        memcpy(out, (const double *)row + d, sizeof *out);
    } else if (type == TRAJD_F32) {
        load_four_floats((const float *)row + d, out);
    } else {
        memcpy(&bytes, (const uint8_t *)row + d, sizeof bytes);
        *out = __builtin_convertvector(__builtin_convertvector(bytes, four_integers), four_doubles);
    }
}

/* The work of one row in local variables. For all the compiler knows, every store could change what
 * is in memory. */
struct fused {
    enum trajd_dtype type;
    bool blends, scaled, doubles; /* doubles: the output is f64, else f32 */
    const char *row, *next;
    double a;
    const float *scale, *offset;
    char *restrict out;
};

TRAJD_INLINE void fuse_four(struct fused work, uint32_t d, four_flags *finite)
{
    const double limit = trajd_finite_limit(work.doubles ? TRAJD_F64 : TRAJD_F32);
    four_doubles value, other;
    four_floats narrow;

    load_four(work.type, work.row, d, &value);
    if (work.blends) {
        load_four(work.type, work.next, d, &other);
        value += work.a * (other - value);
    }
    if (work.scaled) {
        load_four_floats(work.scale + d, &other);
        value *= other;
        load_four_floats(work.offset + d, &other);
        value += other;
    }
    *finite &= (four_doubles)((four_flags)value & INT64_MAX) < limit;
    narrow = __builtin_convertvector(value, four_floats);
    if (work.doubles)
        memcpy(work.out + d * sizeof(double), &value, sizeof value);
    else
        memcpy(work.out + d * sizeof(float), &narrow, sizeof narrow);
}

TRAJD_INLINE double element(enum trajd_dtype type, const void *row, uint32_t d)
{
    if (type == TRAJD_F64)
        return ((const double *)row)[d];
    return type == TRAJD_F32 ? (double)((const float *)row)[d] : ((const uint8_t *)row)[d];
}

TRAJD_INLINE int64_t fuse_one(struct fused work, uint32_t d)
{
    double value = element(work.type, work.row, d);

    if (work.blends)
        value += work.a * (element(work.type, work.next, d) - value);
    if (work.scaled)
        value = value * (double)work.scale[d] + (double)work.offset[d];
    if (work.doubles)
        ((double *)work.out)[d] = value;
    else
        ((float *)work.out)[d] = (float)value;
    return -(int64_t)(fabs(value) < trajd_finite_limit(work.doubles ? TRAJD_F64 : TRAJD_F32));
}

/* Processes one row. Rows of medium D go in groups of four, and the last group may repeat some
 * features: single remaining features took most of the time at D = 7. Long rows use a plain loop,
 * which the compiler makes faster. Returns whether all results are finite. */
TRAJD_INLINE bool fuse_features(struct fused work, uint32_t count)
{
    four_flags finite = {-1, -1, -1, -1};
    int64_t all = -1;

    if (count < 4 || count >= WIDE) {
        for (uint32_t d = 0; d < count; d++)
            all &= fuse_one(work, d);
        return all != 0;
    }
    for (uint32_t d = 0; d <= count - 4; d += 4)
        fuse_four(work, d, &finite);
    if (count % 4 != 0)
        fuse_four(work, count - 4, &finite);
    return (finite[0] & finite[1] & finite[2] & finite[3]) != 0;
}

/* Processes one row for each of the four combinations. Constant arguments leave no branch in the
 * loop. */
TRAJD_INLINE bool fused_row(enum trajd_dtype type, bool doubles, const struct trajd_stream *stream,
                            const struct trajd_cpu_move *move)
{
    struct fused work = {.type = type,
                         .doubles = doubles,
                         .row = move->row,
                         .next = move->row + stream->row_stride_bytes,
                         .a = move->a,
                         .scale = stream->scale,
                         .offset = stream->offset,
                         .out = move->out};

    if (stream->scale) {
        work.scaled = true;
        if (move->a > 0) {
            work.blends = true;
            return fuse_features(work, stream->feature_count);
        }
        return fuse_features(work, stream->feature_count);
    }
    if (move->a > 0) {
        work.blends = true;
        return fuse_features(work, stream->feature_count);
    }
    return fuse_features(work, stream->feature_count);
}

TRAJD_INLINE void fused_rows(enum trajd_dtype type, bool doubles, const struct trajd_stream *stream,
                             struct trajd_cpu_move *moves, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!moves[i].row)
            trajd_cpu_write_edge(stream, moves[i].out);
        else if (!fused_row(type, doubles, stream, &moves[i]))
            trajd_cpu_mark_lost(&moves[i]);
    }
}

TRAJD_CLONES void trajd_cpu_fused_f32(const struct trajd_stream *stream,
                                      struct trajd_cpu_move *moves, uint32_t count)
{
    fused_rows(TRAJD_F32, false, stream, moves, count);
}

TRAJD_CLONES void trajd_cpu_fused_f64(const struct trajd_stream *stream,
                                      struct trajd_cpu_move *moves, uint32_t count)
{
    fused_rows(TRAJD_F64, false, stream, moves, count);
}

TRAJD_CLONES void trajd_cpu_fused_double(const struct trajd_stream *stream,
                                         struct trajd_cpu_move *moves, uint32_t count)
{
    fused_rows(TRAJD_F64, true, stream, moves, count);
}

TRAJD_CLONES void trajd_cpu_fused_u8(const struct trajd_stream *stream,
                                     struct trajd_cpu_move *moves, uint32_t count)
{
    fused_rows(TRAJD_U8, false, stream, moves, count);
}
