/* The fast way of flips, warps and boxes of tf.image.crop_and_resize. */
#ifndef TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_WARP_H
#define TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_WARP_H

#include "kernels/image/augment/augment_color.h"
#include "kernels/image/augment/augment_step.h"

enum { TRAJD_AUGMENT_BEYOND = 3 };

/* Mirrors left to right. A pixel has `pixel_bytes` of 1 to 4. */
void trajd_augment_flip(const struct trajd_augment_view *view, uint32_t pixel_bytes,
                        uint8_t *output);

/* Warps: the nearest pixel, or bilinear (u8). The output has the size of the view. */
void trajd_augment_warp_nearest(const struct trajd_augment_view *view,
                                const struct trajd_augment_warp *warp, uint32_t pixel_bytes,
                                uint8_t *output);
void trajd_augment_warp_linear(const struct trajd_augment_view *view,
                               const struct trajd_augment_warp *warp, uint8_t *output);

/* Samples an output of height x width along two lines (u8). `row` is scratch memory for the
 * values of a row of the view, and TRAJD_AUGMENT_BEYOND more. */
void trajd_augment_sample_box(const struct trajd_augment_view *view,
                              const struct trajd_augment_line *rows,
                              const struct trajd_augment_line *columns, uint32_t height,
                              uint32_t width, int32_t *row, uint8_t *output);

#endif
