/* The resampling request: the contract between the daemon and every variant of the kernels.
 *
 * One request resamples all streams of a batch. Four letters name its sizes, here and in all
 * kernels, documents and tests:
 *   B  windows of the request (window_count)
 *   S  source rows that a window may see (row_count of the window)
 *   T  target steps of a window (step_count of the grid)
 *   D  features of a row (feature_count of the stream)
 *
 * A request consists of four lists:
 *   clocks    when the rows of an episode were recorded: a stamp for each row, or a regular rate
 *   grids     where the T targets of a window lie, relative to the window's anchor
 *   brackets  a clock paired with a grid, and for each of the B windows its rows and its anchor
 *   streams   the rows of one sensor or actuator, the interpolation, and where the result goes
 *
 * A window sees the rows [0, row_count) of one episode. These indexes are called local rows. For
 * each target x, a bracket finds the last local row i at or before x. It searches once, and all
 * streams on the bracket share the result. Each stream then forms its value from rows i and i + 1.
 *
 * Times are int64 nanoseconds. All times of a bracket count from the zero of its clock in that
 * episode: the stamps, the anchors, and row 0 of a regular clock, which stands at 0.
 *
 * Memory: for CPU variants all pointers are host memory. For CUDA variants they are device memory,
 * except the request struct and its four lists of structs, which are always host memory. The
 * request borrows everything and owns nothing. The caller keeps it unchanged until the run is over.
 * A GPU may read the whole 16 bytes, aligned to 16, that hold the first or last bytes of an array.
 * It uses only the array's. CUDA's own allocations always hold them.
 * All functions are thread-safe for different requests.
 *
 * Growth: the members `reserved` are zero. A later version of the library may give them names, and
 * zero keeps the behaviour of this version. Set a struct to zero before you fill it. */
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

/* How a stream forms its value at target x. Let i be the last row at or before x, v[i] its value,
 * t[i] its stamp, and a = (x - t[i]) / (t[i+1] - t[i]). Both differences are exact integers. If x
 * equals t[i] (a = 0) or row i is the last row, the value does not read row i + 1. If stamps do not
 * ascend, a run neither fails nor reads outside the rows, but the row that it finds is
 * unspecified. */
enum trajd_kind {
    TRAJD_KIND_LINEAR = 0,   /* v[i] + a (v[i+1] - v[i]) */
    TRAJD_KIND_PREVIOUS = 1, /* v[i] */
    TRAJD_KIND_NEAREST = 2,  /* v[i] if 2 (x - t[i]) < t[i+1] - t[i], else v[i+1] */
    /* Spherical interpolation of D/4 quaternions on the shorter arc; D must be a multiple of 4. The
     * sources are scaled to unit length first, and the output has unit length. At half a turn both
     * arcs are equally long, and the one to v[i+1] as it is stored is taken. If the squared length
     * of a source is not in [1e-30, 1e30], it has no direction: the value is NaN and the mask is
     * NAN. At a = 0 a quaternion whose squared length is within 1e-5 of 1 is copied as it is
     * stored. The scalar is last (x, y, z, w). */
    TRAJD_KIND_SLERP_XYZW = 3,
    TRAJD_KIND_SLERP_WXYZ = 4, /* as above, with the scalar first */
    /* v[i] + a w, with w = v[i+1] - v[i] wrapped into [-period/2, period/2). Beyond 1e15 periods
     * an angle has no phase, and variants may differ. */
    TRAJD_KIND_ANGLE = 5,
    /* The average of the rows in (x - mean_width, x], for each feature without its NaN elements. If
     * no row lies there, the value is v[i]. The same formula applies if the last row is held after
     * the end. */
    TRAJD_KIND_MEAN = 6,
    TRAJD_KIND_COUNT = 7,
};

/* Sums instead of one row, for kind previous and floating-point outputs. */
enum trajd_total {
    TRAJD_TOTAL_NONE = 0,
    /* v[i] + total_gamma v[i+1] + total_gamma^2 v[i+2] + ... up to the last row that the window may
     * see; only on a ROWS grid. */
    TRAJD_TOTAL_REST = 1,
    /* The sum of the rows in [x, end), 0 if there are none; only on an NS grid, for rows that hold
     * differences. A row at the border of two steps belongs to the later one: `end` is the next
     * step's target, and x + total_width for the last step. The masks are stricter, because a sum
     * over a part of a step is wrong: BEFORE_START if x is before the first row; AFTER_END if x is
     * after the last row, or if at least half a row is missing between the last row and `end` (the
     * last interval counts as a row); GAP if a hole of more than max_gap_ns is in or reaches into
     * the step. If x is outside the rows, the value is 0, and NaN with edge
     * NaN. max_age_ns is unused. */
    TRAJD_TOTAL_STEP = 2,
    TRAJD_TOTAL_COUNT = 3,
};

/* The value where x lies before the first row or after the last row that the window may see. */
enum trajd_edge {
    /* repeats the first or the last row ("edge" in the configuration); as ZERO if there is no
     * row */
    TRAJD_EDGE_HOLD = 0,
    /* the value is 0 before normalisation, so it is offset[d] after it; also for slerp */
    TRAJD_EDGE_ZERO = 1,
    TRAJD_EDGE_NAN = 2, /* NaN; only for floating-point outputs */
    TRAJD_EDGE_COUNT = 3,
};

/* The mask: one byte a step, which gives the reason why the step is not valid. If several codes
 * apply to a step, or several streams share a mask, the largest code wins. Two codes do not depend
 * on the clock: a missing stream is always MISSING, and an offset without a target is always
 * BAD_STAMP. The mask describes the value only: a derivative that is not finite does not appear in
 * it. The numbers are part of the wire format: append only. */
enum trajd_mask {
    TRAJD_MASK_VALID = 0,
    TRAJD_MASK_BEFORE_START = 1, /* x is before the first row, or the window may see no row */
    /* x is after the last row, and the stream does not hold that row (max_age_ns < 0) */
    TRAJD_MASK_AFTER_END = 2,
    TRAJD_MASK_GAP = 3, /* x is strictly inside a hole with t[i+1] - t[i] > max_gap_ns */
    /* the offset is TRAJD_NO_TARGET, or t[i+1] <= t[i] where a is needed */
    TRAJD_MASK_BAD_STAMP = 4,
    /* An element of the result, as it is stored, is NaN or infinite, and the step is formed from
     * rows. So a NaN or an infinity was used, a quaternion has no direction, or a number is too
     * large for the output's type. For mean a NaN counts only if all elements of a feature are NaN.
     * A number within one rounding of the type's end may be on either side of it. */
    TRAJD_MASK_NAN = 5,
    TRAJD_MASK_MISSING = 6, /* the episode has no such stream (bases[w] is NULL) */
    /* the last row is held, but at x it is older than max_age_ns; or the bracket says so */
    TRAJD_MASK_TOO_OLD = 7,
    /* The frame of an image stream cannot be decoded (bad_rows: keep). Kernels never write it. */
    TRAJD_MASK_BAD_FRAME = 8,
};

/* An offset without a target. The mask is BAD_STAMP, and the value is what the edge rule gives for
 * a row that does not exist. */
#define TRAJD_NO_TARGET INT64_MIN

/* The time base on which streams were recorded. */
struct trajd_clock {
    /* Stamps of all episodes in ns, ascending within an episode. Window w sees
     * stamps_ns[row_begin[w] + local row]. NULL for a regular clock: local row i then stands at
     * trajd_rate_row_ns(rate, i). */
    const int64_t *stamps_ns;
    /* of a regular clock: num and den are in [1, 2^31 - 1]; both are 0 if there are stamps */
    struct trajd_rate rate;
    uint64_t reserved[4]; /* 0 */
};

enum trajd_grid_unit {
    TRAJD_GRID_NS = 0,   /* offsets in ns: x = anchor[w] + offset, which is searched on the clock */
    TRAJD_GRID_ROWS = 1, /* offsets in rows: local row = anchor[w] + offset; no search, a = 0 */
};

/* The T targets of a window, relative to its anchor. Offsets may be in any order. A clock that is
 * used only with ROWS grids needs neither stamps nor a rate. */
struct trajd_grid {
    enum trajd_grid_unit unit;
    uint32_t step_count;    /* T >= 1 */
    const int64_t *offsets; /* in ns or rows; shape by offsets_per_window */
    /* 0: one array [T] for all windows. T: an array [B, T], each window with its own offsets */
    uint64_t offsets_per_window;
    uint64_t reserved[4]; /* 0 */
};

/* A clock paired with a grid, and the B windows on it. anchor + offset must not overflow int64. */
struct trajd_bracket {
    uint32_t clock_index;
    uint32_t grid_index;
    /* [B], in rows: where the window's episode begins in stamps_ns and in streams with `base` */
    const int64_t *row_begin;
    /* [B], in rows, >= 0: how many rows the window may see; for observations up to the anchor */
    const int64_t *row_count;
    /* [B]: ns from the clock's zero on an NS grid, a local row on a ROWS grid */
    const int64_t *anchor;
    /* > 0: all windows have this number of rows, one window after the other, and the anchor 0.
     * Window w begins at row w * dense_row_count. row_begin, row_count and anchor are NULL then. */
    uint64_t dense_row_count;
    /* NULL, or both [B]: the steps [too_old_begin[w], too_old_end[w]) are masked TOO_OLD, because
     * the rows ended before their recording. Values do not change, and MISSING stays MISSING. */
    const uint32_t *too_old_begin, *too_old_end;
    uint64_t reserved[1]; /* 0 */
};

static inline int64_t trajd_row_begin(const struct trajd_bracket *bracket, uint32_t w)
{
    return bracket->row_begin ? bracket->row_begin[w] : (int64_t)(w * bracket->dense_row_count);
}

static inline int64_t trajd_row_count(const struct trajd_bracket *bracket, uint32_t w)
{
    return bracket->row_count ? bracket->row_count[w] : (int64_t)bracket->dense_row_count;
}

static inline int64_t trajd_anchor(const struct trajd_bracket *bracket, uint32_t w)
{
    return bracket->anchor ? bracket->anchor[w] : 0;
}

/* One stream of the batch: where its rows are, how they are resampled, and where the result
 * goes. */
struct trajd_stream {
    uint32_t bracket_index;
    enum trajd_kind kind;

    /* Source. Element d of a row stands at base + row * row_stride_bytes + (first_column + d) *
     * element size. With `bases`, the base of window w is bases[w] and `row` is the local row; a
     * NULL entry means that the episode lacks the stream. Without, the base is `base` and `row` is
     * row_begin[w] + local row. */
    enum trajd_dtype source_type;
    uint32_t feature_count; /* D >= 1; a multiple of 4 for slerp */
    uint32_t first_column;
    uint64_t row_stride_bytes;
    const void *base;
    const void *const *bases; /* [B] or NULL */

    enum trajd_edge edge;
    /* >= 0: longer holes are masked GAP; < 0: no limit. Unused on a ROWS grid */
    int64_t max_gap_ns;
    /* What happens after the last row. < 0: the mask is AFTER_END. >= 0: the last row is held, for
     * every `edge`; the step is valid up to this age and TOO_OLD beyond. On a ROWS grid, >= 0 holds
     * the row without an age limit. */
    int64_t max_age_ns;
    int64_t mean_width; /* > 0 for kind mean: in ns or rows, as the grid's unit */
    enum trajd_total total;
    double total_gamma;  /* in [0, 1] for total REST */
    int64_t total_width; /* > 0 for total STEP */
    double angle_period; /* > 0 for kind angle: in the stream's unit, such as 2 pi or 360 */
    /* for kind angle: wraps the result into [low, low + period); NaN: no wrapping */
    double angle_low;

    /* Normalisation in the same pass: value * scale[d] + offset[d]. Both are NULL, or both are
     * [D]. */
    const float *scale;
    const float *offset;

    /* Output. Element (w, t, d) stands at output + w * window_stride_bytes + t * step_stride_bytes
     * + d * element size. */
    enum trajd_dtype output_type;
    void *output;
    uint64_t window_stride_bytes;
    uint64_t step_stride_bytes;

    /* The mask of step t stands at mask[w * mask_window_stride_bytes + t]. NULL: no mask is
     * written. */
    uint8_t *mask;
    uint64_t mask_window_stride_bytes;
    /* 0 or 1. 1: shares the mask of the stream before it in the list (the same mask pointer) */
    uint8_t mask_joins_previous;

    /* Optional time derivative in float32, in units per second, not normalised. NULL: none; it must
     * be NULL for previous, nearest and mean, and on a ROWS grid. Linear and angle give the D
     * slopes between rows i and i + 1. Slerp gives 3 angular rates per quaternion: the rotation
     * vector of q[i+1] q[i]^-1 over the interval, in the fixed frame. At the last row the interval
     * before it is used. The derivative is 0 if x is outside the rows, if there is only one row, or
     * if the interval has no length. Both rows are read even if a = 0. */
    float *derivative;
    uint64_t derivative_window_stride_bytes;
    uint64_t derivative_step_stride_bytes;
    uint64_t reserved[8]; /* 0 */
};

struct trajd_resample_request {
    uint32_t window_count; /* B; 0: the request does nothing */
    uint32_t clock_count;
    uint32_t grid_count;
    uint32_t bracket_count;
    uint32_t stream_count;
    const struct trajd_clock *clocks;
    const struct trajd_grid *grids;
    const struct trajd_bracket *brackets;
    const struct trajd_stream *streams;

    /* [B] or NULL. Window w is written to row window_rows[w] of every output, mask and derivative
     * (NULL: to row w). These arrays then have output_row_count >= B rows. The numbers must ascend
     * strictly and be below output_row_count. Other rows are not changed. Inputs are still indexed
     * by w. */
    const uint32_t *window_rows;
    uint32_t output_row_count; /* unused if window_rows is NULL */
    uint64_t reserved[6];      /* 0 */
};

static inline uint64_t trajd_window_row(const struct trajd_resample_request *request, uint32_t w)
{
    return request->window_rows ? request->window_rows[w] : w;
}

/* Arithmetic and types, for all variants:
 *   - Arithmetic is in float32 or wider, and in float64 if the source is f64, i32, u32, i64 or u64.
 *     i64 and u64 beyond 2^53 are rounded to float64 first. The store rounds once, to nearest even.
 *   - Where float32 would overflow in between, or where its rounding would choose the way round of
 *     a rotation or an angle, float64 decides.
 *   - Outputs f32, f16 and bf16 exist for every source, and f64 for f64.
 *   - The source's own type exists for previous and nearest. Without normalisation they copy bytes.
 *     On a ROWS grid (a = 0) it also exists for linear and angle of floating-point sources.
 *   - Normalisation needs a floating-point output.
 *   - Addresses and strides are multiples of their element's size. Windows and steps of an output
 *     do not overlap. */

/* Checks everything about a request except the content of arrays: counts, indexes, NULL pointers,
 * types, kinds, strides that overlap, and sizes that overflow 64 bits. Returns TRAJD_ERR_ARGUMENT
 * or TRAJD_ERR_UNSUPPORTED, with a message such as "streams[3]: ..." in *error. */
enum trajd_status trajd_resample_check(const struct trajd_resample_request *request,
                                       struct trajd_error *error);

/* Makes the same checks for a request that describes only a shape. Pointers to rows, arrays of B,
 * offsets, outputs and masks may be NULL. If window_rows of the shape is not NULL, the requests
 * that are run later may have window_rows. */
enum trajd_status trajd_resample_check_shape(const struct trajd_resample_request *shape,
                                             struct trajd_error *error);

/* Checks the numbers in window_rows, which must be in host memory. The request must have passed
 * trajd_resample_check. Returns TRAJD_ERR_ARGUMENT if they do not ascend or are out of range. */
enum trajd_status trajd_resample_check_rows(const struct trajd_resample_request *request,
                                            struct trajd_error *error);

/* Resamples windows [window_begin, window_end) in host memory. It defines the correct result. It
 * works in scalar double arithmetic, one window after the other. The request must have passed
 * trajd_resample_check. Never fails: the content of rows can lead to masks, but not to errors. */
void trajd_resample_reference(const struct trajd_resample_request *request, uint32_t window_begin,
                              uint32_t window_end);

#ifdef __cplusplus
}
#endif
#endif
