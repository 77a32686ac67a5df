/* The definition of correct: one step at a time, one pixel at a time, in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/image/augment/augment_step.h"
#include "support/references/references.h"

/* A frame between two steps. `pixels` has the size that `frame` gives. */
struct image {
    struct trajd_augment_frame frame;
    uint8_t *pixels;
};

static uint64_t pixel_bytes(const struct image *p)
{
    return (uint64_t)p->frame.channels * trajd_dtype_size(p->frame.type);
}

static uint64_t image_bytes(const struct image *p)
{
    return pixel_bytes(p) * p->frame.height * p->frame.width;
}

static uint8_t *at(const struct image *p, int64_t y, int64_t x)
{
    return p->pixels + ((uint64_t)y * p->frame.width + (uint64_t)x) * pixel_bytes(p);
}

static bool is_inside(const struct image *p, int64_t y, int64_t x)
{
    return y >= 0 && x >= 0 && y < p->frame.height && x < p->frame.width;
}

static void crop(const struct image *in, const float *values, struct image *out)
{
    for (uint32_t y = 0; y < out->frame.height; y++)
        memcpy(at(out, y, 0), at(in, y + (int64_t)values[0], (int64_t)values[1]),
               out->frame.width * pixel_bytes(out));
}

static void flip(const struct image *in, const float *values, struct image *out)
{
    for (uint32_t y = 0; y < out->frame.height; y++)
        for (uint32_t x = 0; x < out->frame.width; x++)
            memcpy(at(out, y, x), at(in, y, values[0] == 1 ? out->frame.width - 1 - x : x),
                   pixel_bytes(out));
}

static uint8_t to_byte(double value)
{
    return (uint8_t)fmin(fmax(floor(value + 0.5), 0), 255);
}

/* Bilinear at a place in 2^-32 of a pixel, where a pixel's centre is a whole number. Pixels outside
 * count as 0. */
static void sample(const struct image *in, int64_t y, int64_t x, uint8_t *pixel)
{
    const double part_y = ldexp((double)(y & UINT32_MAX), -32);
    const double part_x = ldexp((double)(x & UINT32_MAX), -32);

    for (uint32_t c = 0; c < in->frame.channels; c++) {
        double sum = 0;
        for (int corner = 0; corner < 4; corner++) {
            const int64_t row = (y >> 32) + corner / 2, column = (x >> 32) + corner % 2;
            const double weight =
                (corner / 2 ? part_y : 1 - part_y) * (corner % 2 ? part_x : 1 - part_x);
            if (is_inside(in, row, column))
                sum += weight * at(in, row, column)[c];
        }
        pixel[c] = to_byte(sum);
    }
}

static void warp(const struct trajd_augment_step *step, const struct image *in, const float *values,
                 struct image *out)
{
    const struct trajd_augment_warp w =
        trajd_augment_warp_make(values, in->frame.height, in->frame.width);
    const int64_t half = INT64_C(1) << 31;

    for (uint32_t y = 0; y < out->frame.height; y++)
        for (uint32_t x = 0; x < out->frame.width; x++) {
            const int64_t from_y = w.y + y * w.y_down + x * w.y_right;
            const int64_t from_x = w.x + y * w.x_down + x * w.x_right;
            if (step->filter == TRAJD_IMAGE_LINEAR)
                sample(in, from_y - half, from_x - half, at(out, y, x));
            else if (is_inside(in, from_y >> 32, from_x >> 32))
                memcpy(at(out, y, x), at(in, from_y >> 32, from_x >> 32), pixel_bytes(out));
            else
                memset(at(out, y, x), 0, pixel_bytes(out));
        }
}

static int64_t place(const struct trajd_augment_line *line, uint32_t output)
{
    const int64_t at = line->first + output * line->step;

    return at < line->last ? at : line->last;
}

static void sample_box(const struct image *in, const float *values, struct image *out)
{
    const struct trajd_augment_line rows =
        trajd_augment_line_make(values[0], values[2], in->frame.height, out->frame.height);
    const struct trajd_augment_line columns =
        trajd_augment_line_make(values[1], values[3], in->frame.width, out->frame.width);

    for (uint32_t y = 0; y < out->frame.height; y++)
        for (uint32_t x = 0; x < out->frame.width; x++)
            sample(in, place(&rows, y), place(&columns, x), at(out, y, x));
}

static enum trajd_status apply_geometry(const struct trajd_augment_step *step,
                                        const struct image *in, const float *values,
                                        struct image *out)
{
    struct trajd_image_preparation resize;

    switch (step->kind) {
    case TRAJD_AUGMENT_CROP:
        crop(in, values, out);
        return TRAJD_OK;
    case TRAJD_AUGMENT_FLIP:
        flip(in, values, out);
        return TRAJD_OK;
    case TRAJD_AUGMENT_AFFINE:
        warp(step, in, values, out);
        return TRAJD_OK;
    default:
        if (step->kind == TRAJD_AUGMENT_RESIZED_CROP && step->box == TRAJD_AUGMENT_BOX_TF) {
            sample_box(in, values, out);
            return TRAJD_OK;
        }
        resize = trajd_augment_box_resize(step, &in->frame, values);
        return trajd_image_reference(&resize, in->pixels, out->pixels);
    }
}

/* How a run rounds and clips. */
struct rules {
    bool rounds, clips;
};

/* Colours are between 0 and 255. */
static double clip(double value, bool clips)
{
    return clips ? fmin(fmax(value, 0), 255) : value;
}

/* Rounds to float32 where torchvision's u8 arithmetic does. Which level a value falls to depends on
 * it: 0.7F * 250 is 174.999997, and 175 as a float. */
static double single(double value, bool rounds)
{
    return rounds ? (double)(float)value : value;
}

/* The grey of a pixel, with the weights of torchvision. */
static double grey(const double *pixel, uint32_t channels, bool rounds)
{
    static const double weights[] = {0.2989, 0.587, 0.114};
    double sum = 0;

    if (channels == 1)
        return pixel[0];
    for (int c = 0; c < 3; c++)
        sum = single(sum + single(single(weights[c], rounds) * pixel[c], rounds), rounds);
    return rounds ? floor(sum) : sum;
}

/* value * color + (1 - value) * other. */
static double blend(double color, double other, double value, struct rules rules)
{
    const double rest = single(1 - value, rules.rounds);
    const double sum = single(value * color, rules.rounds) + single(rest * other, rules.rounds);

    return clip(single(sum, rules.rounds), rules.clips);
}

static double hue_of(const double *pixel, double most, double range)
{
    if (range == 0)
        return 0;
    if (most == pixel[0])
        return (pixel[1] - pixel[2]) / range;
    if (most == pixel[1])
        return 2 + (pixel[2] - pixel[0]) / range;
    return 4 + (pixel[0] - pixel[1]) / range;
}

/* From RGB to HSV, and back with another hue: a sixth of the circle is 1. */
static void turn_hue(double *pixel, double shift)
{
    static const double places[] = {5, 3, 1};
    const double most = fmax(fmax(pixel[0], pixel[1]), pixel[2]);
    const double range = most - fmin(fmin(pixel[0], pixel[1]), pixel[2]);
    const double hue = hue_of(pixel, most, range) + 6 * shift;

    for (int c = 0; c < 3; c++) {
        const double k = places[c] + hue - 6 * floor((places[c] + hue) / 6);
        pixel[c] = most - range * fmin(fmax(fmin(k, 4 - k), 0), 1);
    }
}

/* Multiplies the saturation by a factor, up to full: the largest channel stays, and the others move
 * away from it or towards it. */
static void saturate_hsv(double *pixel, double factor)
{
    const double most = fmax(fmax(pixel[0], pixel[1]), pixel[2]);
    const double range = most - fmin(fmin(pixel[0], pixel[1]), pixel[2]);

    for (int c = 0; c < 3; c++)
        pixel[c] = most - (most - pixel[c]) * (range > 0 ? fmin(factor, most / range) : 1);
}

/* Moves the largest channel along a curve, and the others in proportion. Black becomes a grey. */
static void bend_hsv(double *pixel, enum trajd_augment_kind kind, double value)
{
    const struct trajd_augment_curve curve = trajd_augment_curve_make(kind, (float)value);
    const double most = fmax(fmax(pixel[0], pixel[1]), pixel[2]);
    const int piece = most < curve.low ? 0 : most > curve.high ? 2 : 1;
    const double moved = curve.slope[piece] * most + curve.add[piece];

    for (int c = 0; c < 3; c++)
        pixel[c] = most > 0 ? pixel[c] / most * moved : moved;
}

static double flat_grey(const double *values, uint32_t channels)
{
    return channels == 1 ? values[0] : (values[0] + values[1] + values[2]) / 3;
}

/* One colour step of a pixel. The last of the means is that of the greys. */
static void change_pixel(enum trajd_augment_kind kind, double value, const double means[4],
                         struct rules rules, uint32_t channels, double *pixel)
{
    const bool rounds = rules.rounds;
    const double pixel_grey = grey(pixel, channels, rounds);
    const double flat = flat_grey(pixel, channels), flat_mean = flat_grey(means, channels);

    if (kind == TRAJD_AUGMENT_HUE)
        turn_hue(pixel, value);
    if (kind == TRAJD_AUGMENT_HSV_SATURATION)
        saturate_hsv(pixel, value);
    if (trajd_augment_is_curve(kind))
        bend_hsv(pixel, kind, value);
    for (uint32_t c = 0; c < channels; c++) {
        if (kind == TRAJD_AUGMENT_BRIGHTNESS)
            pixel[c] = blend(pixel[c], 0, value, rules);
        else if (kind == TRAJD_AUGMENT_SATURATION)
            pixel[c] = blend(pixel[c], pixel_grey, value, rules);
        else if (kind == TRAJD_AUGMENT_FLAT_SATURATION)
            pixel[c] = blend(pixel[c], flat, value, rules);
        else if (kind == TRAJD_AUGMENT_FLAT_CONTRAST)
            pixel[c] = blend(pixel[c], flat_mean, value, rules);
        else if (kind == TRAJD_AUGMENT_CONTRAST)
            pixel[c] = blend(pixel[c], means[3], value, rules);
        else if (kind == TRAJD_AUGMENT_CHANNEL_CONTRAST)
            pixel[c] = blend(pixel[c], means[c], value, rules);
        else if (kind == TRAJD_AUGMENT_SHIFT)
            pixel[c] = clip(single(pixel[c] + single(value * 255, rounds), rounds), rules.clips);
        else if (kind == TRAJD_AUGMENT_HUE && rounds) /* torchvision's way from [0, 1] to u8 */
            pixel[c] *= 255.999 / 255;
        if (rounds)
            pixel[c] = floor((float)pixel[c]);
    }
}

/* One colour step, for all pixels. */
static void apply_color(const struct trajd_augment_step *step, double value, struct rules rules,
                        uint64_t pixels, uint32_t channels, double *colors)
{
    double means[4] = {0};

    for (uint64_t i = 0; i < pixels; i++) {
        for (uint32_t c = 0; c < channels; c++)
            means[c] += colors[i * channels + c];
        means[3] += grey(colors + i * channels, channels, rules.rounds);
    }
    for (int i = 0; i < 4; i++)
        means[i] = single(means[i] / (double)pixels, rules.rounds);
    for (uint64_t i = 0; i < pixels; i++)
        change_pixel(step->kind, value, means, rules, channels, colors + i * channels);
}

/* A run of colour steps: from `first` to the next step of geometry. Returns the step after it, or
 * `first` if out of memory. */
static uint32_t apply_run(const struct trajd_augment *augment, uint32_t first,
                          const struct trajd_augment_params *params, struct image *p)
{
    const uint64_t count = image_bytes(p);
    const struct rules rules = {augment->rounding == TRAJD_AUGMENT_ROUND_EACH,
                                augment->rounding != TRAJD_AUGMENT_ROUND_END};
    double *colors = malloc(count * sizeof *colors);
    uint32_t i = first;

    if (!colors)
        return first;
    for (uint64_t k = 0; k < count; k++)
        colors[k] = p->pixels[k];
    for (; i < augment->count && trajd_augment_is_color(&augment->steps[i]); i++)
        if (!trajd_augment_is_idle(&augment->steps[i], params->values[i]))
            apply_color(&augment->steps[i], params->values[i][0], rules, count / p->frame.channels,
                        p->frame.channels, colors);
    for (uint64_t k = 0; k < count; k++)
        p->pixels[k] = to_byte(colors[k]);
    free(colors);
    return i;
}

/* Replaces the image by the one after a step of geometry. */
static enum trajd_status replace(const struct trajd_augment_step *step, const float *values,
                                 struct image *p)
{
    struct image next = *p;
    enum trajd_status status = TRAJD_ERR_MEMORY;

    trajd_augment_resize(step, &next.frame.height, &next.frame.width);
    next.pixels = malloc(image_bytes(&next));
    if (next.pixels)
        status = apply_geometry(step, p, values, &next);
    free(p->pixels);
    *p = next;
    return status;
}

enum trajd_status trajd_augment_reference(const struct trajd_augment *augment,
                                          const struct trajd_augment_frame *frame,
                                          const struct trajd_augment_params *params,
                                          const void *source, void *output)
{
    struct image p = {.frame = *frame};
    enum trajd_status status = TRAJD_OK;
    uint32_t next;

    p.pixels = malloc(image_bytes(&p));
    if (!p.pixels)
        return TRAJD_ERR_MEMORY;
    memcpy(p.pixels, source, image_bytes(&p));
    for (uint32_t i = 0; !status && i < augment->count; i = next) {
        next = i + 1;
        if (!trajd_augment_is_color(&augment->steps[i]))
            status = replace(&augment->steps[i], params->values[i], &p);
        else if ((next = apply_run(augment, i, params, &p)) == i)
            status = TRAJD_ERR_MEMORY;
    }
    if (!status)
        memcpy(output, p.pixels, image_bytes(&p));
    free(p.pixels);
    return status;
}
