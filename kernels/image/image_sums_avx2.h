/* Sums of int16 by the instructions of AVX2, with the bits of plain C. Where the processor lacks
 * them, these functions do nothing. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_SUMS_AVX2_H
#define TRAJD_KERNELS_IMAGE_IMAGE_SUMS_AVX2_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/image/image_sums.h"

/* As trajd_image_sum_rows, for the first elements. Returns how many it did. */
uint32_t trajd_image_sum_rows_avx2(int16_t *restrict out, const int16_t *const *rows,
                                   const int16_t *weights, uint32_t taps, uint32_t count);

/* As trajd_image_sum_columns. Returns false if it did nothing. */
bool trajd_image_sum_columns_avx2(int16_t *restrict out, const int16_t *restrict in,
                                  const struct trajd_image_axis *x, uint32_t channels);

#endif
