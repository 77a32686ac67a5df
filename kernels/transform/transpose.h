/* Blocks of 4 x 4 numbers, turned between rows in memory and columns of doubles. */
#ifndef TRAJD_KERNELS_TRANSFORM_TRANSPOSE_H
#define TRAJD_KERNELS_TRANSFORM_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

#include "kernels/clones.h"

typedef float trajd_four_floats __attribute__((vector_size(16)));
typedef double trajd_four_doubles __attribute__((vector_size(32)));
typedef int64_t trajd_four_masks __attribute__((vector_size(32)));

/* zip_low returns a0 b0 a1 b1, and zip_high a2 b2 a3 b3. Of doubles: a0 b0 a2 b2, and a1 b1 a3 b3,
 * which takes one instruction; join_low returns a0 a1 b0 b1, and join_high a2 a3 b2 b3. */
#ifdef __clang__
#define TRAJD_ZIP(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t trajd_four_places __attribute__((vector_size(16)));
#define TRAJD_ZIP(a, b, i, j, k, l)                                                                \
    __builtin_shuffle(a, b,                                                                        \
                      __builtin_choose_expr(sizeof(a) == 16, ((trajd_four_places){i, j, k, l}),    \
                                            ((trajd_four_masks){i, j, k, l})))
#endif

TRAJD_INLINE void trajd_transpose(trajd_four_floats rows[4])
{
    const trajd_four_floats a = TRAJD_ZIP(rows[0], rows[2], 0, 4, 1, 5),
                            b = TRAJD_ZIP(rows[1], rows[3], 0, 4, 1, 5),
                            c = TRAJD_ZIP(rows[0], rows[2], 2, 6, 3, 7),
                            d = TRAJD_ZIP(rows[1], rows[3], 2, 6, 3, 7);

    rows[0] = TRAJD_ZIP(a, b, 0, 4, 1, 5);
    rows[1] = TRAJD_ZIP(a, b, 2, 6, 3, 7);
    rows[2] = TRAJD_ZIP(c, d, 0, 4, 1, 5);
    rows[3] = TRAJD_ZIP(c, d, 2, 6, 3, 7);
}

TRAJD_INLINE void trajd_transpose_doubles(trajd_four_doubles rows[4])
{
    const trajd_four_doubles a = TRAJD_ZIP(rows[0], rows[1], 0, 4, 2, 6),
                             b = TRAJD_ZIP(rows[0], rows[1], 1, 5, 3, 7),
                             c = TRAJD_ZIP(rows[2], rows[3], 0, 4, 2, 6),
                             d = TRAJD_ZIP(rows[2], rows[3], 1, 5, 3, 7);

    rows[0] = TRAJD_ZIP(a, c, 0, 1, 4, 5);
    rows[1] = TRAJD_ZIP(b, d, 0, 1, 4, 5);
    rows[2] = TRAJD_ZIP(a, c, 2, 3, 6, 7);
    rows[3] = TRAJD_ZIP(b, d, 2, 3, 6, 7);
}

#undef TRAJD_ZIP
#endif
