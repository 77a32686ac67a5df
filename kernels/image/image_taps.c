/* Computes the weights of every filter along one axis. */
#include "kernels/image/image_taps.h"

#include <math.h>
#include <stdlib.h>

static const double pi = 3.14159265358979323846;

static double box(double x)
{
    return x > -0.5 && x <= 0.5;
}

static double triangle(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* Cubic convolution with a = -0.5. */
static double cubic(double x)
{
    static const double a = -0.5;
    const double t = fabs(x);

    return t < 1   ? ((a + 2) * t - (a + 3)) * t * t + 1
           : t < 2 ? (((t - 5) * t + 8) * t - 4) * a
                   : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}

static double lanczos3(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

/* The filters that widen where they reduce. */
static const struct {
    double (*value)(double);
    double support;
} wide[] = {
    [TRAJD_IMAGE_PILLOW_BILINEAR] = {triangle, 1}, [TRAJD_IMAGE_PILLOW_BOX] = {box, 0.5},
    [TRAJD_IMAGE_PILLOW_BICUBIC] = {cubic, 2},     [TRAJD_IMAGE_PILLOW_LANCZOS] = {lanczos3, 3},
    [TRAJD_IMAGE_TF_LANCZOS3] = {lanczos3, 3},
};

struct axis {
    enum trajd_image_filter filter;
    uint32_t size, inner;
    double scale;
};

/* Writes the weights of one output pixel. Returns their number, and the first pixel in *start. */
static uint32_t weigh_wide(const struct axis *axis, uint32_t output, uint32_t *start,
                           double *weights)
{
    const double stretch = fmax(axis->scale, 1), centre = (output + 0.5) * axis->scale;
    const double support = wide[axis->filter].support * stretch;
    const int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
    const uint32_t begin = low < 0 ? 0 : (uint32_t)low;
    const uint32_t end = high > axis->size ? axis->size : (uint32_t)high;
    double sum = 0;

    for (uint32_t i = begin; i < end; i++)
        sum += weights[i - begin] = wide[axis->filter].value((i - centre + 0.5) / stretch);
    for (uint32_t i = begin; i < end; i++)
        weights[i - begin] /= sum;
    *start = begin;
    return end - begin;
}

/* Each source pixel counts as much as the output pixel covers of it. */
static uint32_t weigh_area(const struct axis *axis, uint32_t output, uint32_t *start,
                           double *weights)
{
    const double low = output * axis->scale, high = fmin(low + axis->scale, axis->size);
    uint32_t count = 0;

    *start = (uint32_t)low;
    for (uint32_t i = *start; i < axis->size && i < high; i++) {
        const double covered = fmin(i + 1.0, high) - fmax(i, low);
        if (covered < 1e-3 && count) /* as OpenCV, which leaves out slivers */
            break;
        weights[count++] = covered / (high - low);
    }
    return count;
}

static uint32_t weigh_linear(const struct axis *axis, uint32_t output, uint32_t *start,
                             double *weights)
{
    const double at = fmax((output + 0.5) * axis->scale - 0.5, 0);
    const uint32_t below = (uint32_t)at;

    *start = below < axis->size - 1 ? below : axis->size - 1;
    if (below >= axis->size - 1) {
        weights[0] = 1;
        return 1;
    }
    weights[0] = 1 - (at - below);
    weights[1] = at - below;
    return 2;
}

/* Whole numbers, since a centre may lie exactly between two source pixels. */
static uint32_t weigh_nearest(const struct axis *axis, uint32_t output, uint32_t *start,
                              double *weights)
{
    *start = (uint32_t)((2 * (uint64_t)output + 1) * axis->size / (2 * (uint64_t)axis->inner));
    weights[0] = 1;
    return 1;
}

static uint32_t weigh(const struct axis *axis, uint32_t output, uint32_t *start, double *weights)
{
    switch (axis->filter) {
    case TRAJD_IMAGE_AREA:
        return weigh_area(axis, output, start, weights);
    case TRAJD_IMAGE_LINEAR:
        return weigh_linear(axis, output, start, weights);
    case TRAJD_IMAGE_NEAREST:
        return weigh_nearest(axis, output, start, weights);
    default:
        return weigh_wide(axis, output, start, weights);
    }
}

/* Returns the most weights that a pixel can have. */
static uint32_t most_weights(const struct axis *axis)
{
    if (axis->filter == TRAJD_IMAGE_AREA)
        return (uint32_t)ceil(axis->scale) + 2;
    if (axis->filter == TRAJD_IMAGE_LINEAR || axis->filter == TRAJD_IMAGE_NEAREST)
        return 2;
    return (uint32_t)ceil(wide[axis->filter].support * fmax(axis->scale, 1)) * 2 + 1;
}

bool trajd_image_taps_make(enum trajd_image_filter filter, uint32_t size, uint32_t inner,
                           uint32_t begin, uint32_t count, struct trajd_image_taps *taps)
{
    const struct axis axis = {filter, size, inner, (double)size / inner};

    *taps = (struct trajd_image_taps){.count = count, .stride = most_weights(&axis)};
    taps->starts = malloc(count * sizeof *taps->starts);
    taps->lengths = malloc(count * sizeof *taps->lengths);
    taps->weights = malloc((size_t)count * taps->stride * sizeof *taps->weights);
    if (!taps->starts || !taps->lengths || !taps->weights) {
        trajd_image_taps_free(taps);
        return false;
    }
    for (uint32_t o = 0; o < count; o++)
        taps->lengths[o] =
            weigh(&axis, begin + o, &taps->starts[o], taps->weights + (size_t)o * taps->stride);
    return true;
}

void trajd_image_taps_free(struct trajd_image_taps *taps)
{
    free(taps->starts);
    free(taps->lengths);
    free(taps->weights);
    *taps = (struct trajd_image_taps){0};
}
