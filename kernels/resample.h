/* Resampling: what a batch asks of the kernels, whatever runs them.
 *
 * One request covers every stream of a batch. The letters, here and in all kernels, prose and
 * tests:
 *   B windows in a launch, S source rows that a window may see, T target steps, D features of a
 *     row.
 *
 * A window looks at the rows [0, row_count) of one episode ("local rows") through a clock. A grid
 * says where its T targets are, around the window's anchor. A bracket pairs a clock with a grid:
 * for every target x the last row i at or before x is searched once and shared by all streams on
 * that bracket. A stream says what to do with rows i and i + 1.
 *
 * Times are int64 nanoseconds. Every time of a bracket is counted from the clock's zero for that
 * episode: stamps are stored that way, row 0 of a regular clock stands at 0, and anchors are given
 * that way too.
 *
 * Every pointer is host memory for CPU variants and device memory for CUDA variants, except the
 * request struct itself and the arrays of structs it names, which are always host memory. Nothing
 * is owned by the request. It must stay unchanged until the run is over. Functions are safe to call
 * from several threads on different requests. */
#ifndef TRAJD_KERNELS_RESAMPLE_H
#define TRAJD_KERNELS_RESAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/timebase.h"
#include "proto/dtype.h"
#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Value at x, with i the last row at or before x and a = (x - t[i]) / (t[i+1] - t[i]) from exact
 * integer differences. Where x hits row i exactly (a = 0), and where row i is the last one, row i +
 * 1 is not read for the value. Stamps that are not ascending cannot make a run fail or read outside
 * the rows, but which row is found is then unspecified. */
enum trajd_kind {
    TRAJD_KIND_LINEAR = 0,   /* v[i] + a (v[i+1] - v[i]) */
    TRAJD_KIND_PREVIOUS = 1, /* v[i] */
    TRAJD_KIND_NEAREST = 2,  /* v[i] where 2 (x - t[i]) < t[i+1] - t[i], else v[i+1] */
    /* D a multiple of 4: D/4 unit quaternions, shortest arc; output is unit length. Sources are
     * scaled to unit length first; one whose squared length is not in [1e-30, 1e30] has no
     * direction: NaN, masked NAN. At a = 0 a quaternion whose squared length is within 1e-5 of 1 is
     * passed on as it is stored */
    TRAJD_KIND_SLERP_XYZW = 3,
    TRAJD_KIND_SLERP_WXYZ = 4, /* the same arithmetic, the scalar first */
    TRAJD_KIND_ANGLE = 5,      /* v[i] + a w, w the difference wrapped into [-period/2, period/2) */
    /* average of the rows in (x - mean_width, x], NaN elements skipped (per feature); where there
     * is no such row: v[i]. The same where a last row is held after the end */
    TRAJD_KIND_MEAN = 6,
    TRAJD_KIND_COUNT = 7,
};

/* Where x lies before the first or after the last row that the window may see. */
enum trajd_edge {
    /* the first or the last row ("edge" in the config); as ZERO where there is no row at all */
    TRAJD_EDGE_HOLD = 0,
    TRAJD_EDGE_ZERO = 1, /* 0, before normalisation (so `offset` after it); for slerp too */
    TRAJD_EDGE_NAN = 2,  /* NaN; floating-point outputs only */
    TRAJD_EDGE_COUNT = 3,
};

/* The mask, one byte a step: why the step is not valid. The largest code wins, of those that apply
 * to a step and where streams share a mask; but a missing stream is MISSING, and an offset without
 * target BAD_STAMP, whatever the clock says. The mask is about the value: a NaN that only the
 * derivative read does not show in it. The numbers are on the wire: append only. */
enum trajd_mask {
    TRAJD_MASK_VALID = 0,
    TRAJD_MASK_BEFORE_START = 1, /* x before the first row, or no row that the window may see */
    /* x after the last row, and the stream does not hold it (max_age_ns < 0) */
    TRAJD_MASK_AFTER_END = 2,
    TRAJD_MASK_GAP = 3, /* x strictly inside a hole with t[i+1] - t[i] > max_gap_ns */
    /* the offset is TRAJD_NO_TARGET, or t[i+1] <= t[i] where a is needed */
    TRAJD_MASK_BAD_STAMP = 4,
    /* a source element that was used is NaN (mean: every one of a feature is; slerp: or the
     * quaternion has no direction) */
    TRAJD_MASK_NAN = 5,
    TRAJD_MASK_MISSING = 6, /* this episode lacks the stream (bases[w] is NULL) */
    TRAJD_MASK_TOO_OLD = 7, /* the held last row is older than max_age_ns at x */
};

/* An offset that names no target: mask BAD_STAMP, and the value that the edge rule gives for a row
 * that does not exist. */
#define TRAJD_NO_TARGET INT64_MIN

/* The time base that streams were recorded on. */
struct trajd_clock {
    /* Stamps of every episode, ascending within each; window w sees stamps_ns[row_begin[w] + local
     * row]. NULL for a regular clock: local row i then stands at trajd_rate_row_ns(rate, i). */
    const int64_t *stamps_ns;
    struct trajd_rate rate; /* of a regular clock; num = den = 0 with stamps */
};

enum trajd_grid_unit {
    TRAJD_GRID_NS = 0,   /* x = anchor[w] + offset, searched (or computed) on the clock */
    TRAJD_GRID_ROWS = 1, /* local row = anchor[w] + offset: no search, a = 0 for every kind */
};

/* T targets around the anchor. Offsets need not be in order. A clock that is seen through ROWS
 * grids alone needs neither stamps nor rate. */
struct trajd_grid {
    enum trajd_grid_unit unit;
    uint32_t step_count;    /* T >= 1 */
    const int64_t *offsets; /* ns or rows */
    /* 0: offsets[T] for all; T: offsets[B][T], explicit targets of each window */
    uint64_t offsets_per_window;
};

/* A clock seen through a grid, for B windows. anchor + offset must not overflow int64. */
struct trajd_bracket {
    uint32_t clock_index;
    uint32_t grid_index;
    /* [B]: where the window's episode begins in the clock's stamps and in packed streams */
    const int64_t *row_begin;
    /* [B] >= 0: rows that this window may see. An observation's is clipped at its anchor */
    const int64_t *row_count;
    /* [B]: ns from the clock's zero, or a local row, by the grid's unit */
    const int64_t *anchor;
};

/* One stream of the batch: where its rows are, what to do, where the result goes. */
struct trajd_stream {
    uint32_t bracket_index;
    enum trajd_kind kind;

    /* source: element (row, d) at base + row * row_stride_bytes + (first_column + d) * element
     * size, where base is bases[w] and row local if `bases` is given (NULL entry: stream missing in
     * that episode), else `base` and row_begin[w] + local. */
    enum trajd_dtype source_type;
    uint32_t feature_count; /* D >= 1 */
    uint32_t first_column;
    uint64_t row_stride_bytes;
    const void *base;
    const void *const *bases; /* [B] or NULL */

    enum trajd_edge edge;
    int64_t max_gap_ns; /* < 0: any hole is bridged. Unused on a ROWS grid */
    /* < 0: x after the last row is AFTER_END. >= 0: the last row is held (whatever `edge` says) and
     * valid up to this age, TOO_OLD beyond. On a ROWS grid: >= 0 holds, no age */
    int64_t max_age_ns;
    int64_t mean_width;  /* > 0: of kind mean, ns or rows by the grid's unit */
    double angle_period; /* > 0: of kind angle, in the stream's unit: 2 pi or 360 */
    /* of kind angle: result wrapped into [low, low + period); NaN: left as it comes */
    double angle_low;

    /* normalisation in the same pass: value * scale[d] + offset[d]; both NULL or both [D] */
    const float *scale;
    const float *offset;

    /* output: element (w, t, d) at output + w * window_stride_bytes + t * step_stride_bytes + d *
     * element size */
    enum trajd_dtype output_type;
    void *output;
    uint64_t window_stride_bytes;
    uint64_t step_stride_bytes;

    /* mask[w * mask_window_stride_bytes + t]; NULL: none wanted */
    uint8_t *mask;
    uint64_t mask_window_stride_bytes;
    /* 1: shares the mask of the stream before it in the list (same mask pointer) */
    uint8_t mask_joins_previous;

    /* optional time derivative, float32, in units per second, not normalised: D slopes of the
     * bracket for linear and angle, 3 angular rates a quaternion (rotation vector of q[i+1] q[i]^-1
     * over the interval, fixed frame) for slerp. At the last row the slope of the bracket before
     * it; 0 where x is outside the rows, there is one row only or the bracket has no length. At a =
     * 0 too both rows of the bracket are read. NULL, and must be NULL for previous, nearest and
     * mean and on a ROWS grid. */
    float *derivative;
    uint64_t derivative_window_stride_bytes;
    uint64_t derivative_step_stride_bytes;
};

struct trajd_resample_request {
    uint32_t window_count; /* B; 0 is a request that does nothing */
    uint32_t clock_count;
    uint32_t grid_count;
    uint32_t bracket_count;
    uint32_t stream_count;
    const struct trajd_clock *clocks;
    const struct trajd_grid *grids;
    const struct trajd_bracket *brackets;
    const struct trajd_stream *streams;

    /* [B] or NULL: the result of window w goes to row window_rows[w] of every output, mask and
     * derivative (NULL: to row w), which then have output_row_count >= B rows. Strictly ascending,
     * below output_row_count; rows between are left as they are. What is read per window stays
     * indexed by w. */
    const uint32_t *window_rows;
    uint32_t output_row_count; /* unused where window_rows is NULL */
};

static inline uint64_t trajd_window_row(const struct trajd_resample_request *request, uint32_t w)
{
    return request->window_rows ? request->window_rows[w] : w;
}

/* Arithmetic is float32 or wider, and float64 where the source is f64, i32, u32, i64 or u64 (i64
 * and u64 beyond 2^53 are rounded to it); one rounding at the store, to nearest even. Normalisation
 * needs a floating-point output. Base, bases, strides and outputs are multiples of their element's
 * size; windows and steps of an output do not overlap. Previous and nearest into the source's own
 * type without normalisation copy bytes. Which pairs exist: output f32, f16, bf16 from every
 * source; f64 from f64; the source's own type for previous and nearest; on a ROWS grid (a = 0,
 * nothing blends) also for linear and angle of floating-point sources. */

/* Checks everything about a request that can be seen without reading rows: counts, indexes, NULLs,
 * types, kinds, strides that overlap, sizes that overflow 64 bits. TRAJD_ERR_ARGUMENT or
 * TRAJD_ERR_UNSUPPORTED with "streams[3]: ..." in *error. */
enum trajd_status trajd_resample_check(const struct trajd_resample_request *request,
                                       struct trajd_error *error);

/* The same for a request that is a shape only: pointers to rows, arrays of B, offsets, outputs and
 * masks may be NULL. window_rows that are not NULL say that runs may have them. */
enum trajd_status trajd_resample_check_shape(const struct trajd_resample_request *shape,
                                             struct trajd_error *error);

/* The numbers that window_rows points to, in host memory, of a request that passed
 * trajd_resample_check: TRAJD_ERR_ARGUMENT. */
enum trajd_status trajd_resample_check_rows(const struct trajd_resample_request *request,
                                            struct trajd_error *error);

/* The definition of correct: scalar, in double, window by window, for windows [window_begin,
 * window_end). Host memory. The request must have passed trajd_resample_check. Never fails: a row's
 * content cannot be wrong, only masked. */
void trajd_resample_reference(const struct trajd_resample_request *request, uint32_t window_begin,
                              uint32_t window_end);

/* How one target of a stream comes about, as trajd_resample_reference resolves it: for telling it
 * to people. */
struct trajd_resample_step {
    enum trajd_mask mask; /* of this stream alone; never NAN, which only the rows tell */
    int64_t x;            /* the target: ns from the clock's zero, or a local row on a ROWS grid */
    int64_t before;       /* the last row at or before x that the window may see; < 0: none */
    bool has_row;         /* false: the value is the edge's constant, or there is none */
    /* of rows `row` and `row + 1`, the fraction past_ns / width_ns between them; else of `row`
     * alone */
    bool blends;
    int64_t row;
    /* of kind mean: the average of [mean_first, row]; above row: `row` alone */
    int64_t mean_first;
    uint64_t past_ns; /* from row `before` to x; 0 on a ROWS grid */
    /* from row `before` to the one behind it; 0 where there is none, and on a ROWS grid */
    uint64_t width_ns;
};

/* The request must have passed trajd_resample_check; rows are not read (a base that is not NULL
 * need point at nothing). */
void trajd_resample_resolve(const struct trajd_resample_request *request, uint32_t stream_index,
                            uint32_t window, uint32_t step_index, struct trajd_resample_step *step);
/* Reads the rows that the step uses: the first feature whose value is NaN for what they hold, or
 * -1. */
int64_t trajd_resample_find_nan(const struct trajd_resample_request *request, uint32_t stream_index,
                                uint32_t window, const struct trajd_resample_step *step);

#ifdef __cplusplus
}
#endif
#endif
