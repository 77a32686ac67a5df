/* Blocks of 4 x 4 floats, turned between rows in memory and columns of doubles. */
#ifndef TRAJD_KERNELS_TRANSFORM_TRANSPOSE_H
#define TRAJD_KERNELS_TRANSFORM_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

#include "kernels/clones.h"

typedef float trajd_four_floats __attribute__((vector_size(16)));
typedef double trajd_four_doubles __attribute__((vector_size(32)));
typedef int64_t trajd_four_masks __attribute__((vector_size(32)));

/* Returns a0 b0 a1 b1, and a2 b2 a3 b3. */
#ifdef __clang__
TRAJD_INLINE trajd_four_floats trajd_zip_low(trajd_four_floats a, trajd_four_floats b)
{
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}

TRAJD_INLINE trajd_four_floats trajd_zip_high(trajd_four_floats a, trajd_four_floats b)
{
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#else
typedef int32_t trajd_four_places __attribute__((vector_size(16)));

TRAJD_INLINE trajd_four_floats trajd_zip_low(trajd_four_floats a, trajd_four_floats b)
{
    return __builtin_shuffle(a, b, (trajd_four_places){0, 4, 1, 5});
}

TRAJD_INLINE trajd_four_floats trajd_zip_high(trajd_four_floats a, trajd_four_floats b)
{
    return __builtin_shuffle(a, b, (trajd_four_places){2, 6, 3, 7});
}
#endif

TRAJD_INLINE void trajd_transpose(trajd_four_floats rows[4])
{
    const trajd_four_floats a = trajd_zip_low(rows[0], rows[2]),
                            b = trajd_zip_low(rows[1], rows[3]),
                            c = trajd_zip_high(rows[0], rows[2]),
                            d = trajd_zip_high(rows[1], rows[3]);

    rows[0] = trajd_zip_low(a, b);
    rows[1] = trajd_zip_high(a, b);
    rows[2] = trajd_zip_low(c, d);
    rows[3] = trajd_zip_high(c, d);
}

#endif
