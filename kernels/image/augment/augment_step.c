/* Computes sizes, inverse matrices and contrast curves for the steps of an augmentation. */
#include "kernels/image/augment/augment_step.h"

#include <math.h>

#include "kernels/image/augment/augment_math.h"

static const double whole = 4294967296.0; /* 2^32 */

static int64_t fixed(double pixels)
{
    return (int64_t)rint(pixels * whole);
}

/* The inverse of "scale, turn clockwise, move" around the centre of the frame, as torchvision's
 * F.affine computes it. */
struct trajd_augment_warp trajd_augment_warp_make(const float *values, uint32_t height,
                                                  uint32_t width)
{
    const double scale = values[3], y = 0.5 - height / 2.0 - values[1],
                 x = 0.5 - width / 2.0 - values[2];
    struct trajd_augment_warp warp;
    double sine, cosine;

    trajd_augment_sine(values[0], &sine, &cosine);
    sine /= scale;
    cosine /= scale;
    warp.y = fixed(cosine * y - sine * x + height / 2.0);
    warp.x = fixed(sine * y + cosine * x + width / 2.0);
    warp.y_down = warp.x_right = fixed(cosine);
    warp.x_down = fixed(sine);
    warp.y_right = -warp.x_down;
    return warp;
}

/* Contrast is steep in the middle by tan((value + 1) * 45 degrees), and by its inverse at both ends.
 * Two of the pieces meet where slope / (2 + 2 * slope) of the levels lie below. */
struct trajd_augment_curve trajd_augment_curve_make(enum trajd_augment_kind kind, float value)
{
    const double change = value;
    double sine, cosine, steep, low;

    if (kind == TRAJD_AUGMENT_HSV_BRIGHTNESS) {
        const double slope = 1 - fabs(change), add = fmax(change, 0) * 255;
        return (struct trajd_augment_curve){0, 255, {slope, slope, slope}, {add, add, add}};
    }
    trajd_augment_sine((change + 1) * 45, &sine, &cosine);
    steep = sine / cosine;
    low = steep / (2 + 2 * steep) * 255;
    return (struct trajd_augment_curve){low,
                                        255 - low,
                                        {1 / steep, steep, 1 / steep},
                                        {0, 127.5 - 127.5 * steep, 255 - 255 / steep}};
}

struct trajd_augment_line trajd_augment_line_make(float begin, float share, uint32_t size,
                                                  uint32_t output)
{
    const double first = begin, length = share;
    const double last = size - 1;
    const struct trajd_augment_line line = {fixed((output > 1 ? first : first + length / 2) * last),
                                            fixed(output > 1 ? length * last / (output - 1) : 0),
                                            fixed(last)};

    return line;
}

struct trajd_image_preparation trajd_augment_box_resize(const struct trajd_augment_step *step,
                                                        const struct trajd_augment_frame *frame,
                                                        const float *values)
{
    struct trajd_image_preparation preparation = {
        .source_height = frame->height,
        .source_width = frame->width,
        .channels = frame->channels,
        .type = frame->type,
        .crop = {0, 0, frame->height, frame->width},
        .filter = step->filter,
    };

    if (step->kind == TRAJD_AUGMENT_RESIZED_CROP)
        preparation.crop = (struct trajd_image_box){(uint32_t)values[0], (uint32_t)values[1],
                                                    (uint32_t)values[2], (uint32_t)values[3]};
    trajd_image_place(&preparation, TRAJD_IMAGE_STRETCH, step->height, step->width);
    return preparation;
}
