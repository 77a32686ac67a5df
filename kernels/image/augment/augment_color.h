/* Runs of colour steps on u8 frames. augment_color.c explains them. */
#ifndef TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_COLOR_H
#define TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_COLOR_H

#include "kernels/image/augment/augment_step.h"

/* A frame of u8, or a part of one. */
struct trajd_augment_view {
    const uint8_t *pixels;
    uint64_t row_bytes; /* from one row to the next */
    uint32_t height, width, channels;
};

struct trajd_augment_run {
    uint32_t count;
    enum trajd_augment_rounding rounding;
    enum trajd_augment_kind kinds[TRAJD_AUGMENT_STEPS_MAX];
    float values[TRAJD_AUGMENT_STEPS_MAX];
    /* filled by the run: what a contrast step is about, a mean a channel */
    float means[TRAJD_AUGMENT_STEPS_MAX][3];
    struct trajd_augment_curve curves[TRAJD_AUGMENT_STEPS_MAX]; /* filled by the run, too */
};

/* Applies the steps, and writes a frame without gaps. */
void trajd_augment_run(struct trajd_augment_run *run, const struct trajd_augment_view *view,
                       uint8_t *output);

#endif
