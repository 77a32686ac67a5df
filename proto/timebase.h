/* Rates as fractions, and the rows of regular clocks. Compiles as C11, C++17 and CUDA device code.
 *
 * The time of row i of a regular clock of num/den Hz is floor(i * 1e9 * den / num) ns after the
 * clock's zero. The product is computed in 128 bits and never accumulated, so that row 10^12 is as
 * exact as row 1. The row for a time comes from the same formula, because floor(x / period) is off
 * by one at 15, 30 and 29.97 Hz. */
#ifndef TRAJD_PROTO_TIMEBASE_H
#define TRAJD_PROTO_TIMEBASE_H

#include <stdint.h>

#ifdef __CUDACC__
#define TRAJD_BOTH_SIDES __host__ __device__ static __inline__
#else
#define TRAJD_BOTH_SIDES static inline
#endif

/* A rate of num/den Hz, a reduced fraction with 1 <= num, den <= 2^31-1. 29.97 Hz is 30000/1001. */
struct trajd_rate {
    int64_t num;
    int64_t den;
};

/* Returns whether each step of the grid is a row: the rows of one step are a whole number. A rate
 * with num 0 is unknown. */
TRAJD_BOTH_SIDES int trajd_rate_divides(struct trajd_rate grid, struct trajd_rate rows)
{
    return grid.num > 0 && rows.num > 0 &&
           (__int128)rows.num * grid.den % ((__int128)rows.den * grid.num) == 0;
}

/* Returns floor(a / b) for b > 0. */
TRAJD_BOTH_SIDES __int128 trajd_floor_div(__int128 a, __int128 b)
{
    __int128 q = a / b;
    return q - (a % b < 0);
}

/* Returns the time of row i in ns from the clock's zero; i may be negative. |i| * den must stay
 * below 2^63 / num * 2^31. */
TRAJD_BOTH_SIDES int64_t trajd_rate_row_ns(struct trajd_rate rate, int64_t i)
{
    const __int128 product = (__int128)i * 1000000000 * rate.den;

    /* The product nearly always fits 64 bits, and a 64-bit division costs a tenth of a 128-bit one.
     */
    if (product == (int64_t)product) {
        const int64_t q = (int64_t)product / rate.num;
        return q - ((int64_t)product % rate.num < 0);
    }
    return (int64_t)trajd_floor_div(product, rate.num);
}

/* Returns what rounding down cuts off the time of row i, in units of 1 / num ns: (i * 1e9 * den)
 * mod num. */
TRAJD_BOTH_SIDES uint64_t trajd_rate_fraction(struct trajd_rate rate, int64_t i)
{
    const __int128 product = (__int128)i * 1000000000 * rate.den;
    return (uint64_t)(product - trajd_floor_div(product, rate.num) * rate.num);
}

/* Returns the last row at or before x ns, negative for x before row 0. It is the exact inverse of
 * trajd_rate_row_ns: row_ns(i) <= x < row_ns(i + 1). Derived from
 * floor(i*c/num) <= x  <=>  i*c < (x+1)*num, with c = 1e9*den. */
TRAJD_BOTH_SIDES int64_t trajd_rate_row_at(struct trajd_rate rate, int64_t x_ns)
{
    __int128 c = (__int128)1000000000 * rate.den;
    return (int64_t)trajd_floor_div(((__int128)x_ns + 1) * rate.num - 1, c);
}

/* Returns how many of `count` ascending stamps are at or before x ns. */
TRAJD_BOTH_SIDES int64_t trajd_stamps_until(const int64_t *stamps_ns, int64_t count, int64_t x_ns)
{
    int64_t low = 0, high = count;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (stamps_ns[middle] <= x_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
