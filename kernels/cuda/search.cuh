/* Finds the row of a target: the last row at or before x, for stamps in shared or global memory and
 * for regular clocks.
 *
 * Math      last i with t[i] <= x. Stamps: a guess from the mean rate of the window and four
 *           stamps around it, loaded together. If the clock drifted further, the search goes on
 *           by quarters. Regular: floor in exact integers.
 * Numerics  the guess is float and may be wrong. The result is checked against the stamps and is
 *           always right. Stamps that do not ascend give some row of the window in a bounded
 *           number of steps. */
#ifndef TRAJD_KERNELS_CUDA_SEARCH_CUH
#define TRAJD_KERNELS_CUDA_SEARCH_CUH

#include "kernels/cuda/element.cuh"

/* The rows of a window in time. */
struct clock_view {
    const int64_t *stamps_ns; /* local row 0, in shared or global memory; NULL: regular */
    struct trajd_rate rate;
    int64_t row_count; /* >= 1 */
    int64_t first_ns;  /* this and last_ns: only with stamps */
    int64_t last_ns;
};

/* The bracket of x: t[row], and t[row + 1] if row is not the last. */
struct bracket_place {
    int64_t row;
    int64_t before_ns;
    int64_t after_ns;
};

/* Returns floor(n / d) for d > 0 and |n| < 2^62, by double and two exact corrections. An integer
 * division costs five times as much. */
__device__ __forceinline__ int64_t floor_div_small(int64_t n, int64_t d)
{
    double reciprocal = 1.0 / (double)d;
    int64_t q = (int64_t)((double)n * reciprocal);

    q += (int64_t)((double)(n - q * d) * reciprocal);
    int64_t rest = n - q * d;
    if (rest < 0)
        q -= 1, rest += d;
    if (rest < 0)
        q -= 1;
    else if (rest >= d)
        q += 1;
    return q;
}

static __device__ __noinline__ int64_t rate_row_ns_wide(struct trajd_rate rate, int64_t row)
{
    return trajd_rate_row_ns(rate, row);
}

static __device__ __noinline__ int64_t rate_row_at_wide(struct trajd_rate rate, int64_t x_ns)
{
    return trajd_rate_row_at(rate, x_ns);
}

/* Returns true only if |a * b| < 2^62. Checks the upper halves, so nothing overflows. */
__device__ __forceinline__ bool product_is_small(int64_t a, int64_t b)
{
    int64_t high = __mul64hi(a, b);
    int64_t low = (int64_t)((uint64_t)a * (uint64_t)b);

    return (high == 0 && low >= 0 && low < INT64_C(1) << 62) ||
           (high == -1 && low < 0 && low > -(INT64_C(1) << 62));
}

__device__ __forceinline__ int64_t rate_row_ns(struct trajd_rate rate, int64_t row)
{
    int64_t period = 1000000000 * rate.den;

    return product_is_small(row, period) ? floor_div_small(row * period, rate.num)
                                         : rate_row_ns_wide(rate, row);
}

__device__ __forceinline__ int64_t rate_row_at(struct trajd_rate rate, int64_t x_ns)
{
    if (x_ns < INT64_MAX && product_is_small(x_ns + 1, rate.num))
        return floor_div_small((x_ns + 1) * rate.num - 1, 1000000000 * rate.den);
    return rate_row_at_wide(rate, x_ns);
}

__device__ __forceinline__ int64_t clamp_row(int64_t row, int64_t low, int64_t high)
{
    return row < low ? low : row > high ? high : row;
}

/* Narrows t[low] <= x < t[high] to neighbouring rows, with three stamps in flight per round. */
static __device__ __noinline__ bracket_place search_by_quarters(const int64_t *stamps, int64_t low,
                                                                int64_t high, int64_t x)
{
    while (high - low > 1) {
        int64_t quarter = (high - low + 3) / 4;
        int64_t a = low + quarter, b = min(low + 2 * quarter, high),
                c = min(low + 3 * quarter, high);
        int64_t at_a = stamps[a], at_b = stamps[b], at_c = stamps[c];
        if (at_b <= x && b < high) {
            if (at_c <= x && c < high)
                low = c;
            else
                low = b, high = c;
        } else if (at_a <= x && a < high) {
            low = a, high = b;
        } else {
            high = a;
        }
    }
    return {low, stamps[low], stamps[high]};
}

__device__ __forceinline__ bracket_place search_stamps(const clock_view &view, int64_t x)
{
    const int64_t *stamps = view.stamps_ns;
    int64_t last = view.row_count - 1;

    if (x < view.first_ns)
        return {-1, 0, 0};
    if (x >= view.last_ns)
        return {last, view.last_ns, 0};
    /* from here on first <= x < last, so there are at least two rows */
    float share = __fdividef(float_of((uint64_t)x - (uint64_t)view.first_ns),
                             float_of((uint64_t)view.last_ns - (uint64_t)view.first_ns));
    int64_t start = clamp_row((int64_t)(share * (float)last) - 1, 0, max(last - 3, (int64_t)0));
    int64_t at0 = stamps[start];
    int64_t at1 = stamps[min(start + 1, last)];
    int64_t at2 = stamps[min(start + 2, last)];
    int64_t at3 = stamps[min(start + 3, last)];
    if (at0 <= x && x < at3) {
        if (x < at1)
            return {start, at0, at1};
        if (x < at2)
            return {start + 1, at1, at2};
        return {start + 2, at2, at3};
    }
    if (x < at0)
        return search_by_quarters(stamps, 0, start, x);
    return search_by_quarters(stamps, min(start + 3, last), last, x);
}

__device__ __forceinline__ bracket_place search_clock(const clock_view &view, int64_t x)
{
    if (view.stamps_ns)
        return search_stamps(view, x);
    int64_t row = rate_row_at(view.rate, x);
    if (row < 0)
        return {-1, 0, 0};
    row = min(row, view.row_count - 1);
    return {row, rate_row_ns(view.rate, row),
            row + 1 < view.row_count ? rate_row_ns(view.rate, row + 1) : 0};
}

#endif
