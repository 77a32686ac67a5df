/* The arithmetic of resizing u8 frames: weighted sums of rows of int16, transposition, rounding.
 * image_sums.c explains it. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_SUMS_H
#define TRAJD_KERNELS_IMAGE_IMAGE_SUMS_H

#include "kernels/image/image_taps.h"

enum {
    TRAJD_IMAGE_ROWS = 16,       /* rows that are transposed together */
    TRAJD_IMAGE_WHOLE = 1 << 15, /* what the weights of a pixel add up to */
    TRAJD_IMAGE_EXACT_BITS = 22, /* exact weights are w * 2^22, as Pillow's */
};

/* Weights along one axis, as whole numbers. A filter has one of both. */
struct trajd_image_axis {
    struct trajd_image_taps taps;
    int16_t *weights; /* [count * stride] */
    int32_t *exact;   /* [count * stride] */
};

/* out[i] = in[i] * 2^shift. */
void trajd_image_widen(int16_t *restrict out, const uint8_t *restrict in, uint32_t count,
                       int shift);

/* out = the weighted sum of `taps` rows of `count` elements. */
void trajd_image_sum_rows(int16_t *restrict out, const int16_t *const *rows, const int16_t *weights,
                          uint32_t taps, uint32_t count);

/* The weighted sums along x of 16 transposed rows: out[pixel][channel][16], and in the same, or
 * in[channel][plane pixels][16] where `plane` is not 0. `channels` is 1 or 3. */
void trajd_image_sum_columns(int16_t *restrict out, const int16_t *restrict in,
                             const struct trajd_image_axis *x, uint32_t channels, uint32_t plane);

/* The same two with exact weights, 32-bit sums, and values of 0..255 that are rounded and clipped. */
void trajd_image_sum_rows_exact(uint8_t *restrict out, const uint8_t *const *rows,
                                const int32_t *weights, uint32_t taps, uint32_t count);
void trajd_image_sum_columns_exact(int16_t *restrict out, const int16_t *restrict in,
                                   const struct trajd_image_axis *x, uint32_t channels);

/* Transposes 16 rows of `count` elements, a multiple of 8: out[count][16]. */
void trajd_image_turn(int16_t *out, const int16_t *in, uint32_t count);

/* Transposes result[count][16] back, and rounds: `rows` rows of `count` bytes, `step` bytes apart.
 * `result` has room for `count` rounded up to a multiple of 8. */
void trajd_image_store(uint8_t *out, uint64_t step, const int16_t *result, uint32_t rows,
                       uint32_t count, int shift);

#endif
