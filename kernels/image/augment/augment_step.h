/* What the parts of an augmentation share: sizes between the steps, and the geometry of warps. */
#ifndef TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_STEP_H
#define TRAJD_KERNELS_IMAGE_AUGMENT_AUGMENT_STEP_H

#include "kernels/image/augment/augment.h"

static inline bool trajd_augment_is_color(const struct trajd_augment_step *step)
{
    return step->kind >= TRAJD_AUGMENT_BRIGHTNESS;
}

/* Returns whether a colour step goes through HSV: through the largest channel and the range of all. */
static inline bool trajd_augment_is_hsv(enum trajd_augment_kind kind)
{
    return kind == TRAJD_AUGMENT_HUE || kind == TRAJD_AUGMENT_HSV_SATURATION ||
           kind == TRAJD_AUGMENT_HSV_BRIGHTNESS || kind == TRAJD_AUGMENT_HSV_CONTRAST;
}

/* Returns whether a colour step is a curve of the largest channel. */
static inline bool trajd_augment_is_curve(enum trajd_augment_kind kind)
{
    return kind == TRAJD_AUGMENT_HSV_BRIGHTNESS || kind == TRAJD_AUGMENT_HSV_CONTRAST;
}

/* Changes the size to that after the step. */
static inline void trajd_augment_resize(const struct trajd_augment_step *step, uint32_t *height,
                                        uint32_t *width)
{
    if (step->kind == TRAJD_AUGMENT_CROP || step->kind == TRAJD_AUGMENT_RESIZE ||
        step->kind == TRAJD_AUGMENT_RESIZED_CROP) {
        *height = step->height;
        *width = step->width;
    }
}

/* Returns the parameter of a colour step that changes nothing. */
static inline float trajd_augment_neutral(enum trajd_augment_kind kind)
{
    return kind == TRAJD_AUGMENT_HUE || kind == TRAJD_AUGMENT_SHIFT || trajd_augment_is_curve(kind)
               ? 0
               : 1;
}

/* Returns whether the parameters leave a frame as it is. Such a colour step is left out, since hue
 * goes through HSV and back. */
static inline bool trajd_augment_is_idle(const struct trajd_augment_step *step, const float *values)
{
    return values[0] == trajd_augment_neutral(step->kind);
}

/* Three straight pieces: below `low`, between, and above `high`, level -> slope * level + add. */
struct trajd_augment_curve {
    double low, high, slope[3], add[3];
};

/* Makes the curve of the largest channel, in levels, of a step that is one. */
struct trajd_augment_curve trajd_augment_curve_make(enum trajd_augment_kind kind, float value);

/* Where the centre of an output pixel is in the source, in 2^-32 of a pixel, plus half a pixel: the
 * pixel under it is y >> 32, x >> 32. Exact sums, so that a row may be walked. */
struct trajd_augment_warp {
    int64_t y, x;             /* of output pixel (0, 0) */
    int64_t y_down, x_down;   /* added for the pixel below */
    int64_t y_right, x_right; /* added for the pixel to the right */
};

/* Makes the warp of an affine step's parameters. */
struct trajd_augment_warp trajd_augment_warp_make(const float *values, uint32_t height,
                                                  uint32_t width);

/* Where output pixels of tf.image.crop_and_resize lie along one axis of the source, in 2^-32 of a
 * pixel: pixel i at first + i * step, at most last. */
struct trajd_augment_line {
    int64_t first, step, last;
};

/* Makes the line of a box [begin, begin + share) of an axis. */
struct trajd_augment_line trajd_augment_line_make(float begin, float share, uint32_t size,
                                                  uint32_t output);

/* Makes the preparation that resizes a box of pixels: top, left, height, width. */
struct trajd_image_preparation trajd_augment_box_resize(const struct trajd_augment_step *step,
                                                        const struct trajd_augment_frame *frame,
                                                        const float *values);

#endif
