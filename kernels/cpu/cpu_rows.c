/* Movers that work feature by feature: copy, and linear, previous, nearest, angle and mean with
 * conversion.
 *
 * Math      v = p + a (q - p), and so on; value * scale + offset; one rounding at the store.
 * Shapes    any D. A row is processed in tiles of TILE features, in double: load, blend,
 *           normalise, store. Each is a loop that the compiler vectorises. The common case is in
 *           cpu_fused.c.
 * Requires  nothing. On x86-64 the hot functions exist also for AVX2, picked when the program is
 *           loaded.
 * Moves     each row that is used once, each output row once.
 * Numerics  the reference's operations in the reference's order: the same bits. */
#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/cpu/cpu.h"
#include "kernels/finite.h"

#define TILE 64

/* Loads a tile as double. A constant type leaves only one loop. */
TRAJD_INLINE void load(enum trajd_dtype type, const void *row, uint32_t count, double *restrict out)
{
    switch (type) {
    case TRAJD_F16:
        for (uint32_t d = 0; d < count; d++)
            out[d] = trajd_f16_to_double(((const uint16_t *)row)[d]);
        break;
    case TRAJD_BF16:
        for (uint32_t d = 0; d < count; d++)
            out[d] = (double)trajd_bf16_to_float(((const uint16_t *)row)[d]);
        break;
    case TRAJD_F32:
        for (uint32_t d = 0; d < count; d++)
            out[d] = (double)((const float *)row)[d];
        break;
    case TRAJD_F64:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const double *)row)[d];
        break;
    case TRAJD_I8:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const int8_t *)row)[d];
        break;
    case TRAJD_I16:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const int16_t *)row)[d];
        break;
    case TRAJD_I32:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const int32_t *)row)[d];
        break;
    case TRAJD_I64:
        for (uint32_t d = 0; d < count; d++)
            out[d] = (double)((const int64_t *)row)[d];
        break;
    case TRAJD_U16:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const uint16_t *)row)[d];
        break;
    case TRAJD_U32:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const uint32_t *)row)[d];
        break;
    case TRAJD_U64:
        for (uint32_t d = 0; d < count; d++)
            out[d] = (double)((const uint64_t *)row)[d];
        break;
    default:
        for (uint32_t d = 0; d < count; d++)
            out[d] = ((const uint8_t *)row)[d];
    }
}

TRAJD_INLINE void store(enum trajd_dtype type, void *row, uint32_t count,
                        const double *restrict values)
{
    switch (type) {
    case TRAJD_F16:
        for (uint32_t d = 0; d < count; d++)
            ((uint16_t *)row)[d] = trajd_f16_from_double(values[d]);
        break;
    case TRAJD_BF16:
        for (uint32_t d = 0; d < count; d++)
            ((uint16_t *)row)[d] = trajd_bf16_from_double(values[d]);
        break;
    case TRAJD_F64:
        memcpy(row, values, count * sizeof *values);
        break;
    default:
        for (uint32_t d = 0; d < count; d++)
            ((float *)row)[d] = (float)values[d];
    }
}

TRAJD_INLINE bool has_nan(const double *values, uint32_t count)
{
    int64_t found = 0;

    for (uint32_t d = 0; d < count; d++)
        found |= -(int64_t)(values[d] != values[d]);
    return found != 0;
}

/* Returns whether all values are finite as elements of the output. */
TRAJD_INLINE bool all_finite(const struct trajd_stream *stream, const double *values,
                             uint32_t count)
{
    const double limit = trajd_finite_limit(stream->output_type);
    int64_t all = -1;

    for (uint32_t d = 0; d < count; d++)
        all &= -(int64_t)(fabs(values[d]) < limit);
    return all != 0;
}

void trajd_cpu_write_edge(const struct trajd_stream *stream, char *out)
{
    double constant = stream->edge == TRAJD_EDGE_NAN ? NAN : 0;
    uint32_t size = trajd_dtype_size(stream->output_type);

    if (!trajd_dtype_is_float(stream->output_type)) {
        memset(out, 0, (uint64_t)stream->feature_count * size);
        return;
    }
    for (uint32_t d = 0; d < stream->feature_count; d++, out += size)
        trajd_element_store(stream->output_type, out,
                            stream->scale
                                ? constant * (double)stream->scale[d] + (double)stream->offset[d]
                                : constant);
}

TRAJD_INLINE void blend_angles(const struct trajd_stream *stream, double a, const double *next,
                               uint32_t count, double *values)
{
    double period = stream->angle_period;

    for (uint32_t d = 0; d < count; d++) {
        double difference = next[d] - values[d];
        values[d] += a * (difference - period * floor((difference + period / 2) / period));
    }
}

TRAJD_INLINE void limit_angles(double low, double period, uint32_t count, double *values)
{
    for (uint32_t d = 0; d < count; d++) {
        double value = values[d] - period * floor((values[d] - low) / period);
        values[d] = value < low || value >= low + period ? low : value;
    }
}

TRAJD_INLINE void add_rows(enum trajd_dtype type, const char *row, uint64_t stride_bytes,
                           int64_t row_count, uint32_t count, double *restrict sums)
{
    double next[TILE];

    for (int64_t r = 0; r < row_count; r++, row += stride_bytes) {
        load(type, row, count, next);
        for (uint32_t d = 0; d < count; d++)
            sums[d] += next[d];
    }
}

/* Averages without NaN elements. The result is NaN if all elements of a feature are NaN. */
TRAJD_INLINE void average_of_some(const struct trajd_stream *stream, const char *row,
                                  int64_t row_count, uint32_t count, double *values)
{
    double next[TILE], seen[TILE];

    for (uint32_t d = 0; d < count; d++)
        values[d] = seen[d] = 0;
    for (int64_t r = 0; r < row_count; r++, row += stream->row_stride_bytes) {
        load(stream->source_type, row, count, next);
        for (uint32_t d = 0; d < count; d++) {
            values[d] += next[d] == next[d] ? next[d] : 0;
            seen[d] += next[d] == next[d] ? 1 : 0;
        }
    }
    for (uint32_t d = 0; d < count; d++)
        values[d] = seen[d] > 0 ? values[d] / seen[d] : NAN;
}

/* Averages row_count rows from `row` on. First assumes that there is no NaN, and repeats the tile
 * with average_of_some if there is one. */
TRAJD_INLINE void average(const struct trajd_stream *stream, const char *row, int64_t row_count,
                          uint32_t count, double *values)
{
    uint64_t stride = stream->row_stride_bytes;

    for (uint32_t d = 0; d < count; d++)
        values[d] = 0;
    if (stream->source_type == TRAJD_F64)
        add_rows(TRAJD_F64, row, stride, row_count, count, values);
    else if (stream->source_type == TRAJD_F32)
        add_rows(TRAJD_F32, row, stride, row_count, count, values);
    else
        add_rows(stream->source_type, row, stride, row_count, count, values);
    if (has_nan(values, count)) {
        average_of_some(stream, row, row_count, count, values);
        return;
    }
    for (uint32_t d = 0; d < count; d++)
        values[d] /= (double)row_count;
}

/* Forms one tile of one move. `at` is the tile's address in the first row. */
TRAJD_INLINE void form_tile(const struct trajd_stream *stream, const struct trajd_cpu_move *move,
                            const char *at, uint32_t count, double *values)
{
    double next[TILE];

    if (stream->kind == TRAJD_KIND_MEAN && move->row_count > 1) {
        average(stream, at, move->row_count, count, values);
        return;
    }
    load(stream->source_type, at, count, values);
    if (move->a > 0) {
        load(stream->source_type, at + stream->row_stride_bytes, count, next);
        if (stream->kind == TRAJD_KIND_ANGLE)
            blend_angles(stream, move->a, next, count, values);
        else
            for (uint32_t d = 0; d < count; d++)
                values[d] += move->a * (next[d] - values[d]);
    }
    if (stream->kind == TRAJD_KIND_ANGLE && !isnan(stream->angle_low))
        limit_angles(stream->angle_low, stream->angle_period, count, values);
}

TRAJD_CLONES static void move_tiles(const struct trajd_stream *stream, struct trajd_cpu_move *move)
{
    uint64_t source_size = trajd_dtype_size(stream->source_type),
             output_size = trajd_dtype_size(stream->output_type);
    double values[TILE];

    for (uint32_t d = 0; d < stream->feature_count; d += TILE) {
        uint32_t count = stream->feature_count - d < TILE ? stream->feature_count - d : TILE;
        form_tile(stream, move, move->row + d * source_size, count, values);
        if (stream->scale)
            for (uint32_t k = 0; k < count; k++)
                values[k] =
                    values[k] * (double)stream->scale[d + k] + (double)stream->offset[d + k];
        if (!all_finite(stream, values, count))
            trajd_cpu_mark_lost(move);
        store(stream->output_type, move->out + d * output_size, count, values);
    }
}

void trajd_cpu_rows(const struct trajd_stream *stream, struct trajd_cpu_move *moves, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (moves[i].row)
            move_tiles(stream, &moves[i]);
        else
            trajd_cpu_write_edge(stream, moves[i].out);
    }
}

/* What one move of a total leaves for the move before it: the sums from `row` to the last row. */
struct running {
    const char *row, *end; /* NULL: nothing */
    double sums[TILE];
};

/* Forms a tile of sums, the last row first. Goes on from `running` if that has the same last
 * row. */
static void sum_rows(const struct trajd_stream *stream, const char *at, int64_t row_count,
                     uint32_t count, struct running *running)
{
    const char *end = at + row_count * (int64_t)stream->row_stride_bytes;
    const double gamma = stream->total == TRAJD_TOTAL_REST ? stream->total_gamma : 1;
    double values[TILE];

    if (running->end != end || running->row < at) {
        running->row = running->end = end;
        memset(running->sums, 0, sizeof running->sums);
    }
    while (running->row > at) {
        running->row -= stream->row_stride_bytes;
        load(stream->source_type, running->row, count, values);
        for (uint32_t d = 0; d < count; d++)
            running->sums[d] = values[d] + gamma * running->sums[d];
    }
}

static void move_total(const struct trajd_stream *stream, struct trajd_cpu_move *move,
                       struct running *running)
{
    const uint64_t source_size = trajd_dtype_size(stream->source_type),
                   output_size = trajd_dtype_size(stream->output_type);
    double values[TILE];

    for (uint32_t d = 0; d < stream->feature_count; d += TILE) {
        const uint32_t count = stream->feature_count - d < TILE ? stream->feature_count - d : TILE;
        sum_rows(stream, move->row + d * source_size, move->row_count, count, running);
        for (uint32_t k = 0; k < count; k++)
            values[k] = stream->scale ? running->sums[k] * (double)stream->scale[d + k] +
                                            (double)stream->offset[d + k]
                                      : running->sums[k];
        if (!all_finite(stream, values, count))
            trajd_cpu_mark_lost(move);
        store(stream->output_type, move->out + d * output_size, count, values);
    }
}

/* Sums of rows. From the last move to the first: steps of a window that follow each other share
 * their sums, so that a window costs one pass over its rows. */
void trajd_cpu_totals(const struct trajd_stream *stream, struct trajd_cpu_move *moves,
                      uint32_t count)
{
    struct running running = {0};

    for (uint32_t i = count; i-- > 0;) {
        if (moves[i].row)
            move_total(stream, &moves[i], &running);
        else
            trajd_cpu_write_edge(stream, moves[i].out);
    }
}

/* Copies bytes. Rows that follow each other in source and output are copied together. */
void trajd_cpu_copy(const struct trajd_stream *stream, struct trajd_cpu_move *moves, uint32_t count)
{
    uint64_t size = (uint64_t)stream->feature_count * trajd_dtype_size(stream->source_type);
    uint32_t end;

    for (uint32_t begin = 0; begin < count; begin = end) {
        end = begin + 1;
        if (!moves[begin].row) {
            trajd_cpu_write_edge(stream, moves[begin].out);
            continue;
        }
        while (end < count && moves[end].row && moves[end].row == moves[end - 1].row + size &&
               moves[end].out == moves[end - 1].out + size)
            end++;
        memcpy(moves[begin].out, moves[begin].row, (end - begin) * size);
        if (stream->mask && trajd_cpu_any_lost(stream->source_type, moves[begin].row,
                                               (end - begin) * (uint64_t)stream->feature_count))
            for (uint32_t i = begin; i < end; i++)
                if (trajd_cpu_any_lost(stream->source_type, moves[i].row, stream->feature_count))
                    trajd_cpu_mark_lost(&moves[i]);
    }
}

trajd_cpu_mover *trajd_cpu_mover_of(const struct trajd_stream *stream)
{
    bool picks = stream->kind == TRAJD_KIND_PREVIOUS || stream->kind == TRAJD_KIND_NEAREST;

    if (stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ)
        return trajd_cpu_slerp;
    if (stream->total)
        return trajd_cpu_totals;
    if (picks && stream->source_type == stream->output_type && !stream->scale)
        return trajd_cpu_copy;
    if ((picks || stream->kind == TRAJD_KIND_LINEAR) && stream->output_type == TRAJD_F64)
        return trajd_cpu_fused_double; /* f64 is an output of f64 sources only */
    if ((picks || stream->kind == TRAJD_KIND_LINEAR) && stream->output_type == TRAJD_F32) {
        if (stream->source_type == TRAJD_F32)
            return trajd_cpu_fused_f32;
        if (stream->source_type == TRAJD_F64)
            return trajd_cpu_fused_f64;
        if (stream->source_type == TRAJD_U8)
            return trajd_cpu_fused_u8;
    }
    return trajd_cpu_rows;
}
