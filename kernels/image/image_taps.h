/* The weights of a filter along one axis. */
#ifndef TRAJD_KERNELS_IMAGE_IMAGE_TAPS_H
#define TRAJD_KERNELS_IMAGE_IMAGE_TAPS_H

#include "kernels/image/image.h"

/* Returns whether the filter rounds and clips the sums along x before it sums along y. */
static inline bool trajd_image_rounds_between(enum trajd_image_filter filter)
{
    return filter == TRAJD_IMAGE_PILLOW_BICUBIC || filter == TRAJD_IMAGE_PILLOW_LANCZOS;
}

/* Output pixel o of [0, count) is the sum over k < lengths[o] of weights[o * stride + k] times source
 * pixel starts[o] + k. Weights of a pixel sum to 1. Starts are in the crop box: [0, size). */
struct trajd_image_taps {
    uint32_t count;
    uint32_t stride; /* the most weights of a pixel */
    uint32_t *starts;
    uint32_t *lengths;
    double *weights;
};

/* Makes the weights for output pixels [begin, begin + count) of a resize from `size` to `inner`
 * pixels. False if out of memory. The caller frees. */
bool trajd_image_taps_make(enum trajd_image_filter filter, uint32_t size, uint32_t inner,
                           uint32_t begin, uint32_t count, struct trajd_image_taps *taps);
void trajd_image_taps_free(struct trajd_image_taps *taps);

#endif
