/* Runs of colour steps.
 *
 * **Order.** CHUNK pixels at a time become planes of float32, which stay in the first cache while all
 * steps of the run change them; then they become bytes. A contrast step needs the mean grey of the
 * whole frame as it is before the step: for that, the steps before it run once more.
 *
 * **Math.** Levels of 0 to 255 in float32, without fused multiply-add. Sums have a fixed order: eight
 * lanes a chunk, then double. So the bytes are the same on every machine. Hue goes through HSV: with
 * most and range of a pixel and its hue h in sixths of the circle, a channel is
 * most - range * clip(min(k, 4 - k)), k = (5, 3 or 1) + h modulo 6. */
#include "kernels/image/augment/augment_color.h"

#include <string.h>

#include "kernels/clones.h"
#include "kernels/image/image_planes.h"

enum { CHUNK = 480, LANES = 8 };

/* Pixels of a chunk, a plane a channel. */
struct chunk {
    uint32_t count, channels;
    float planes[3][CHUNK];
};

TRAJD_INLINE float clip(float value, float most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* Rounds down, for numbers above 0. */
TRAJD_INLINE float whole(float value, bool rounds)
{
    return rounds ? (float)(int32_t)value : value;
}

TRAJD_CLONES static void load_1(float *restrict a, const uint8_t *restrict in, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        a[i] = in[i];
}

TRAJD_CLONES static void store_1(uint8_t *restrict out, const float *restrict a, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (uint8_t)(int32_t)(a[i] + 0.5F);
}

/* What is done after a step. The rounding is a constant where this is inlined, as below. */
TRAJD_INLINE float settle(float value, enum trajd_augment_rounding rounding)
{
    return rounding == TRAJD_AUGMENT_ROUND_END
               ? value
               : whole(clip(value, 255), rounding == TRAJD_AUGMENT_ROUND_EACH);
}

/* out = value * out + other. */
TRAJD_INLINE void blend_all(float *out, uint32_t count, float value, float other,
                            enum trajd_augment_rounding rounding)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = settle(value * out[i] + other, rounding);
}

TRAJD_CLONES static void blend(float *out, uint32_t count, float value, float other,
                               enum trajd_augment_rounding rounding)
{
    if (rounding == TRAJD_AUGMENT_ROUND_EACH)
        blend_all(out, count, value, other, TRAJD_AUGMENT_ROUND_EACH);
    else if (rounding == TRAJD_AUGMENT_ROUND_ONCE)
        blend_all(out, count, value, other, TRAJD_AUGMENT_ROUND_ONCE);
    else
        blend_all(out, count, value, other, TRAJD_AUGMENT_ROUND_END);
}

TRAJD_INLINE float grey(float a, float b, float c, bool rounds)
{
    return whole(0.2989F * a + 0.587F * b + 0.114F * c, rounds);
}

TRAJD_INLINE void saturate_all(float *restrict a, float *restrict b, float *restrict c,
                               uint32_t count, float value, enum trajd_augment_rounding rounding)
{
    const float rest = 1 - value;

    for (uint32_t i = 0; i < count; i++) {
        const float other = rest * grey(a[i], b[i], c[i], rounding == TRAJD_AUGMENT_ROUND_EACH);
        a[i] = settle(value * a[i] + other, rounding);
        b[i] = settle(value * b[i] + other, rounding);
        c[i] = settle(value * c[i] + other, rounding);
    }
}

TRAJD_CLONES static void saturate(float *restrict a, float *restrict b, float *restrict c,
                                  uint32_t count, float value, enum trajd_augment_rounding rounding)
{
    if (rounding == TRAJD_AUGMENT_ROUND_EACH)
        saturate_all(a, b, c, count, value, TRAJD_AUGMENT_ROUND_EACH);
    else if (rounding == TRAJD_AUGMENT_ROUND_ONCE)
        saturate_all(a, b, c, count, value, TRAJD_AUGMENT_ROUND_ONCE);
    else
        saturate_all(a, b, c, count, value, TRAJD_AUGMENT_ROUND_END);
}

/* As saturate, with the mean of the channels as grey. Does not clip. */
TRAJD_CLONES static void saturate_flat(float *restrict a, float *restrict b, float *restrict c,
                                       uint32_t count, float value)
{
    const float rest = (1 - value) / 3;

    for (uint32_t i = 0; i < count; i++) {
        const float other = rest * (a[i] + b[i] + c[i]);
        a[i] = value * a[i] + other;
        b[i] = value * b[i] + other;
        c[i] = value * c[i] + other;
    }
}

/* Moves the largest channel along a curve, and the others in proportion. Does not clip. */
TRAJD_CLONES static void bend_hsv(float *restrict a, float *restrict b, float *restrict c,
                                  uint32_t count, const struct trajd_augment_curve *curve)
{
    const float low_end = (float)curve->low, high_end = (float)curve->high;
    const float slopes[] = {(float)curve->slope[0], (float)curve->slope[1], (float)curve->slope[2]};
    const float adds[] = {(float)curve->add[0], (float)curve->add[1], (float)curve->add[2]};

    for (uint32_t i = 0; i < count; i++) {
        const float x = a[i], y = b[i], z = c[i], high = x > y ? x : y, most = high > z ? high : z;
        const float slope = most < low_end ? slopes[0] : most > high_end ? slopes[2] : slopes[1];
        const float add = most < low_end ? adds[0] : most > high_end ? adds[2] : adds[1];
        const float moved = slope * most + add, k = moved / (most > 0 ? most : 1);
        a[i] = most > 0 ? x * k : moved;
        b[i] = most > 0 ? y * k : moved;
        c[i] = most > 0 ? z * k : moved;
    }
}

/* A channel of a pixel whose hue is h, from -4 to 8. */
TRAJD_INLINE float channel(float place, float h, float most, float range)
{
    float k = place + h;

    k = k < 0 ? k + 6 : k;
    k = k >= 6 ? k - 6 : k;
    k = k >= 6 ? k - 6 : k;
    return most - range * clip(k < 4 - k ? k : 4 - k, 1);
}

TRAJD_CLONES static void turn_hue(float *restrict a, float *restrict b, float *restrict c,
                                  uint32_t count, float shift)
{
    for (uint32_t i = 0; i < count; i++) {
        const float x = a[i], y = b[i], z = c[i], high = x > y ? x : y, low = x > y ? y : x;
        const float most = high > z ? high : z, least = low < z ? low : z, range = most - least;
        const float up = most == x ? y - z : most == y ? z - x : x - y;
        const float base = most == x ? 0 : most == y ? 2 : 4;
        const float h = base + up / (range > 0 ? range : 1) + 6 * shift;
        a[i] = channel(5, h, most, range);
        b[i] = channel(3, h, most, range);
        c[i] = channel(1, h, most, range);
    }
}

/* The largest channel stays, and the others move away from it by the factor: at most down to 0. */
TRAJD_CLONES static void saturate_hsv(float *restrict a, float *restrict b, float *restrict c,
                                      uint32_t count, float factor)
{
    for (uint32_t i = 0; i < count; i++) {
        const float x = a[i], y = b[i], z = c[i], high = x > y ? x : y, low = x > y ? y : x;
        const float most = high > z ? high : z, least = low < z ? low : z, range = most - least;
        const float full = most / (range > 0 ? range : 1), k = factor < full ? factor : full;
        a[i] = most - (most - x) * k;
        b[i] = most - (most - y) * k;
        c[i] = most - (most - z) * k;
    }
}

/* Rounds down after a hue step, as torchvision goes from [0, 1] to u8. */
TRAJD_CLONES static void round_hue(float *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = whole(out[i] * (255.999F / 255), true);
}

/* Returns the sum of the greys. */
TRAJD_CLONES static double sum_greys(const float *restrict a, const float *restrict b,
                                     const float *restrict c, uint32_t count, bool rounds)
{
    trajd_floats lanes = {0};
    double sum = 0;
    uint32_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        trajd_floats x, y, z;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        memcpy(&z, c + i, sizeof z);
        x = 0.2989F * x + 0.587F * y + 0.114F * z;
        if (rounds)
            x = __builtin_convertvector(__builtin_convertvector(x, trajd_words), trajd_floats);
        lanes += x;
    }
    for (uint32_t k = 0; k < LANES; k++)
        sum += lanes[k];
    for (; i < count; i++)
        sum += grey(a[i], b[i], c[i], rounds);
    return sum;
}

/* Returns the sum of a plane. */
TRAJD_CLONES static double sum_plane(const float *plane, uint32_t count)
{
    trajd_floats lanes = {0};
    double sum = 0;
    uint32_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        trajd_floats v;
        memcpy(&v, plane + i, sizeof v);
        lanes += v;
    }
    for (uint32_t k = 0; k < LANES; k++)
        sum += lanes[k];
    for (; i < count; i++)
        sum += plane[i];
    return sum;
}

/* Changes each channel on its own: value * channel + other. */
static void blend_planes(const struct trajd_augment_run *run, float value, const float other[3],
                         struct chunk *chunk)
{
    for (uint32_t d = 0; d < chunk->channels; d++)
        blend(chunk->planes[d], chunk->count, value, other[d], run->rounding);
}

static void change(const struct trajd_augment_run *run, uint32_t step, struct chunk *chunk)
{
    const float value = run->values[step], rest = 1 - value, *means = run->means[step];
    const float about[] = {rest * means[0], rest * means[1], rest * means[2]};
    const float added[] = {value * 255, value * 255, value * 255}, zero[] = {0, 0, 0};
    float *a = chunk->planes[0], *b = chunk->planes[1], *c = chunk->planes[2];

    switch (run->kinds[step]) {
    case TRAJD_AUGMENT_BRIGHTNESS:
        blend_planes(run, value, zero, chunk);
        break;
    case TRAJD_AUGMENT_SHIFT:
        blend_planes(run, 1, added, chunk);
        break;
    case TRAJD_AUGMENT_SATURATION:
        saturate(a, b, c, chunk->count, value, run->rounding);
        break;
    case TRAJD_AUGMENT_HSV_SATURATION:
        saturate_hsv(a, b, c, chunk->count, value);
        blend_planes(run, 1, zero, chunk); /* clips and rounds */
        break;
    case TRAJD_AUGMENT_FLAT_SATURATION:
        saturate_flat(a, b, c, chunk->count, value);
        blend_planes(run, 1, zero, chunk);
        break;
    case TRAJD_AUGMENT_HSV_BRIGHTNESS:
    case TRAJD_AUGMENT_HSV_CONTRAST:
        bend_hsv(a, b, c, chunk->count, &run->curves[step]);
        blend_planes(run, 1, zero, chunk);
        break;
    case TRAJD_AUGMENT_HUE:
        turn_hue(a, b, c, chunk->count, value);
        for (uint32_t d = 0; run->rounding == TRAJD_AUGMENT_ROUND_EACH && d < 3; d++)
            round_hue(chunk->planes[d], chunk->count);
        break;
    default: /* the contrasts */
        blend_planes(run, value, about, chunk);
    }
}

/* Walks through a view. Rows without gaps between them are one long row. */
struct walk {
    const struct trajd_augment_view *view;
    uint64_t row_pixels, rows;
    uint64_t row, pixel; /* the next chunk */
};

static struct walk start(const struct trajd_augment_view *view)
{
    const bool is_dense = view->row_bytes == (uint64_t)view->width * view->channels;
    const struct walk walk = {view, is_dense ? (uint64_t)view->width * view->height : view->width,
                              is_dense ? 1 : view->height, 0, 0};

    return walk;
}

/* Loads the next chunk, after the first `steps` steps. False after the last one. */
static bool next(struct walk *walk, const struct trajd_augment_run *run, uint32_t steps,
                 struct chunk *chunk)
{
    const struct trajd_augment_view *view = walk->view;
    const uint8_t *in = view->pixels + walk->row * view->row_bytes + walk->pixel * view->channels;
    const uint64_t rest = walk->row_pixels - walk->pixel;
    static const float same[] = {1, 1, 1}, zero[] = {0, 0, 0};

    if (walk->row == walk->rows)
        return false;
    chunk->channels = view->channels;
    chunk->count = rest < CHUNK ? (uint32_t)rest : CHUNK;
    if (chunk->channels == 1)
        load_1(chunk->planes[0], in, chunk->count);
    else
        trajd_image_take_apart(chunk->planes[0], chunk->planes[1], chunk->planes[2], in,
                               chunk->count, same, zero);
    for (uint32_t i = 0; i < steps; i++)
        change(run, i, chunk);
    walk->pixel += chunk->count;
    if (walk->pixel == walk->row_pixels) {
        walk->row++;
        walk->pixel = 0;
    }
    return true;
}

/* Fills the means of a contrast step: of the greys, of each channel, or of all values. */
static void fill_means(struct trajd_augment_run *run, uint32_t step,
                       const struct trajd_augment_view *view)
{
    const bool of_greys = run->kinds[step] == TRAJD_AUGMENT_CONTRAST && view->channels == 3;
    const double pixels = (double)view->height * view->width;
    struct walk walk = start(view);
    struct chunk chunk;
    double sums[3] = {0};

    while (next(&walk, run, step, &chunk)) {
        if (of_greys)
            sums[0] += sum_greys(chunk.planes[0], chunk.planes[1], chunk.planes[2], chunk.count,
                                 run->rounding == TRAJD_AUGMENT_ROUND_EACH);
        for (uint32_t d = 0; !of_greys && d < chunk.channels; d++)
            sums[d] += sum_plane(chunk.planes[d], chunk.count);
    }
    if (run->kinds[step] == TRAJD_AUGMENT_FLAT_CONTRAST && view->channels == 3)
        sums[0] = sums[1] = sums[2] = (sums[0] + sums[1] + sums[2]) / 3;
    for (uint32_t d = 0; d < 3; d++)
        run->means[step][d] = (float)(sums[of_greys ? 0 : d] / pixels);
}

void trajd_augment_run(struct trajd_augment_run *run, const struct trajd_augment_view *view,
                       uint8_t *output)
{
    struct walk walk = start(view);
    struct chunk chunk;

    for (uint32_t i = 0; i < run->count; i++)
        if (run->kinds[i] == TRAJD_AUGMENT_CONTRAST ||
            run->kinds[i] == TRAJD_AUGMENT_CHANNEL_CONTRAST ||
            run->kinds[i] == TRAJD_AUGMENT_FLAT_CONTRAST)
            fill_means(run, i, view);
        else if (trajd_augment_is_curve(run->kinds[i]))
            run->curves[i] = trajd_augment_curve_make(run->kinds[i], run->values[i]);
    for (; next(&walk, run, run->count, &chunk); output += chunk.count * chunk.channels) {
        for (uint32_t d = 0; run->rounding == TRAJD_AUGMENT_ROUND_END && d < chunk.channels; d++)
            blend(chunk.planes[d], chunk.count, 1, 0, TRAJD_AUGMENT_ROUND_ONCE); /* clips */
        if (chunk.channels == 1)
            store_1(output, chunk.planes[0], chunk.count);
        else
            trajd_image_put_together(output, chunk.planes[0], chunk.planes[1], chunk.planes[2],
                                     chunk.count);
    }
}
