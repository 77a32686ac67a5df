/* The result of the search: one entry per stream and target, which a block keeps in shared
 * memory. */
#ifndef TRAJD_KERNELS_CUDA_ENTRY_CUH
#define TRAJD_KERNELS_CUDA_ENTRY_CUH

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/search.cuh"

/* value = low + a (high - low), with low at `row` and high `next_bytes` after it. A row alone has
 * next_bytes 0 and a = -0, which gives back every finite value, including its sign. If the result
 * is NaN, or there is no row, the slow path looks closer. */
struct __align__(16) entry
{
    const char *row; /* at the first column; NULL: the edge's constant */
    float a;
    uint32_t next_bytes;
};

/* Further fields that only FULL streams need. */
struct full_entry {
    double a;
    int64_t mean_count;       /* rows of the mean, ending at row; below 1: row alone */
    float per_second;         /* factor of the derivative; 0: none */
    uint16_t interval_before; /* 1: the derivative's interval begins one row earlier */
    uint16_t blends;
};

/* Returns whether the arithmetic of a source type is in double. */
__device__ __forceinline__ bool is_wide(uint32_t type)
{
    return type == TRAJD_F64 || type == TRAJD_I32 || type == TRAJD_U32 || type == TRAJD_I64 ||
           type == TRAJD_U64;
}

/* One target on its bracket, before the rules of a stream apply. */
enum target_place { PLACE_INSIDE, PLACE_BEFORE, PLACE_AFTER, PLACE_NOWHERE };

struct target {
    enum target_place place;
    bool searched; /* true: found on a clock; false: a row of a ROWS grid */
    int64_t x;
    int64_t row;
    uint64_t past;  /* x - t[row] */
    uint64_t width; /* t[row + 1] - t[row] if there is a next row */
};

/* A bracket in one window. */
struct window_view {
    clock_view clock;
    int64_t row_begin;
    int64_t anchor;
    uint32_t unit;
};

__device__ __forceinline__ target find_target(const window_view &view, int64_t offset)
{
    target found = {PLACE_INSIDE, view.unit == TRAJD_GRID_NS, 0, 0, 0, 0};

    found.x = (int64_t)((uint64_t)view.anchor + (uint64_t)offset);
    if (offset == TRAJD_NO_TARGET) {
        found.place = PLACE_NOWHERE;
    } else if (view.clock.row_count <= 0) {
        found.place = PLACE_BEFORE;
    } else if (!found.searched) {
        found.row = found.x;
        found.place = found.x < 0                       ? PLACE_BEFORE
                      : found.x >= view.clock.row_count ? PLACE_AFTER
                                                        : PLACE_INSIDE;
    } else {
        bracket_place place = search_clock(view.clock, found.x);
        found.row = place.row;
        found.past = (uint64_t)found.x - (uint64_t)place.before_ns;
        found.width = (uint64_t)place.after_ns - (uint64_t)place.before_ns;
        if (place.row < 0)
            found.place = PLACE_BEFORE;
        else if (place.row == view.clock.row_count - 1 && found.past > 0)
            found.place = PLACE_AFTER;
    }
    return found;
}

/* Returns past / width in float, from 1 to 2^64. The division is within one unit of the last place
 * and avoids the slow path of the full division. */
__device__ __forceinline__ float share_of(uint64_t past, uint64_t width)
{
    const float above = float_of(past), below = float_of(width);
    float reciprocal;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(below));
    const float share = above * reciprocal;
    return fmaf(fmaf(-share, below, above), reciprocal, share);
}

/* Returns the stream's mask code, and its row, for a target inside the rows. STREAM: any type with
 * the members of a stream's rules. */
template <typename STREAM>
__device__ __forceinline__ uint32_t resolve_inside(const STREAM &stream, const target &target,
                                                   int64_t &row, entry &out)
{
    uint32_t code = TRAJD_MASK_VALID;

    if (target.past == 0)
        return code;
    if (target.past >= target.width)
        return TRAJD_MASK_BAD_STAMP;
    if (stream.max_gap_ns >= 0 && target.width > (uint64_t)stream.max_gap_ns)
        code = TRAJD_MASK_GAP;
    if (stream.kind == TRAJD_KIND_NEAREST)
        row += target.past >= target.width - target.past;
    else if (stream.kind != TRAJD_KIND_PREVIOUS && stream.kind != TRAJD_KIND_MEAN) {
        out.a = share_of(target.past, target.width);
        out.next_bytes = (uint32_t)stream.row_stride_bytes;
    }
    return code;
}

/* Fills the stream's entry. Returns its mask code so far; a NaN is found later. */
template <typename STREAM>
__device__ __forceinline__ uint32_t resolve_entry(const STREAM &stream, int64_t row_count,
                                                  const target &target, const char *rows,
                                                  entry &out)
{
    int64_t row = target.row;
    bool has_row = true;
    uint32_t code = TRAJD_MASK_VALID;

    out.a = -0.0f;
    out.next_bytes = 0;
    out.row = NULL;
    if (!rows)
        return TRAJD_MASK_MISSING;
    if (target.place == PLACE_NOWHERE)
        return TRAJD_MASK_BAD_STAMP;
    if (target.place == PLACE_BEFORE) {
        code = TRAJD_MASK_BEFORE_START;
        row = 0;
        has_row = stream.edge == TRAJD_EDGE_HOLD && row_count > 0;
    } else if (target.place == PLACE_AFTER) {
        row = row_count - 1;
        has_row = stream.edge == TRAJD_EDGE_HOLD || stream.max_age_ns >= 0;
        if (stream.max_age_ns < 0)
            code = TRAJD_MASK_AFTER_END;
        else if (target.past > (uint64_t)stream.max_age_ns)
            code = TRAJD_MASK_TOO_OLD;
    } else {
        code = resolve_inside(stream, target, row, out);
    }
    if (has_row)
        out.row = rows + row * (int64_t)stream.row_stride_bytes;
    return code;
}

/* Returns the first row of (x - width, x], or of the last `width` rows. */
__device__ __forceinline__ int64_t mean_first(const trajd_cuda_stream &stream,
                                              const window_view &view, const target &target)
{
    int64_t width = stream.mean_width;

    if (target.place == PLACE_BEFORE)
        return 0;
    if (!target.searched)
        return target.x < INT64_MIN + width ? 0 : max(target.x - width + 1, (int64_t)0);
    return search_clock(view.clock, target.x < INT64_MIN + width ? INT64_MIN : target.x - width)
               .row +
           1;
}

__device__ __forceinline__ void resolve_full(const trajd_cuda_stream &stream,
                                             const window_view &view, const target &target,
                                             const entry &out, full_entry &full)
{
    int64_t row = target.place == PLACE_AFTER ? view.clock.row_count - 1 : target.row;
    uint64_t width = target.width;

    full.blends = out.a > 0;
    full.a = out.a; /* float streams are blended with the float value */
    if (full.blends && is_wide(stream.source_type))
        full.a = (double)target.past / (double)target.width;
    full.per_second = 0;
    full.mean_count = 0;
    full.interval_before = 0;
    if (stream.kind == TRAJD_KIND_MEAN && out.row)
        full.mean_count =
            (target.place == PLACE_BEFORE ? 0 : row) - mean_first(stream, view, target) + 1;
    if (!stream.derivative || !target.searched || target.place != PLACE_INSIDE ||
        view.clock.row_count < 2 || !out.row)
        return;
    if (row == view.clock.row_count - 1) {
        full.interval_before = 1;
        const int64_t *stamps = view.clock.stamps_ns;
        width = stamps ? (uint64_t)stamps[row] - (uint64_t)stamps[row - 1]
                       : (uint64_t)(rate_row_ns(view.clock.rate, row) -
                                    rate_row_ns(view.clock.rate, row - 1));
    }
    full.per_second = width ? (float)(1e9 / (double)width) : 0;
}

#endif
