/* Luma and chroma to RGB in whole numbers.
 *
 * **Math.** With r and b the parts of red and blue in luma, y from 0 to 255, u and v around 0:
 *     red = y + 2 (1 - r) v,   blue = y + 2 (1 - b) u,
 *     green = y - 2 b (1 - b) / (1 - r - b) u - 2 r (1 - r) / (1 - r - b) v
 *
 * **Numerics.** 16 bits wide. swscale's way: each product is rounded down to a level before the
 * sum. The exact way: products in 1/32 of a level, so that a value is less than 1/16 of a level
 * from the exact one when it is rounded.
 *
 * **Order.** Row by row: what chroma adds to each pixel of a row, which the next row takes, too,
 * where chroma has half the rows; then the sums. */
#include "kernels/image/yuv.h"

#include <math.h>
#include <string.h>

#include "kernels/clones.h"
#include "kernels/image/image_planes.h"

/* What a product is shifted by, of luma (a code in the upper bits of 16) and of chroma; the bits of
 * a fraction of a level in the exact way. */
enum { LUMA_SHIFT = 16, CHROMA_SHIFT = 13, FRACTION_BITS = 5 };

/* Returns the factor of swscale for `levels` per code of 8 bits in the limited range. */
static int32_t swscale_factor(double levels, bool is_full)
{
    const long limited = lrint(levels * 65536), scaled = is_full ? limited * 224 / 255 : limited;

    return (int32_t)floor((double)scaled / 8 + 0.5);
}

static int32_t exact_factor(double levels, bool is_full, uint32_t bits)
{
    const double one = 1 << (bits - 8), top = (1 << bits) - 1;

    return (int32_t)lrint(levels * (is_full ? 224 / top : 1 / one) *
                          (1 << (FRACTION_BITS + CHROMA_SHIFT)));
}

static struct trajd_yuv_factors make_factors(const struct trajd_yuv_colors *colors, uint32_t bits,
                                             bool is_exact)
{
    const double r = colors->red, b = colors->blue, g = 1 - r - b, chroma = 2 * 255 / 224.0;
    const double levels[4] = {(1 - r) * chroma, -b * (1 - b) / g * chroma,
                              -r * (1 - r) / g * chroma, (1 - b) * chroma};
    const double luma = colors->is_full ? 255.0 / ((1 << bits) - 1) : 255.0 / (219 << (bits - 8));
    struct trajd_yuv_factors f = {.code_shift = is_exact ? LUMA_SHIFT - 1 - bits : 3,
                                  .chroma_zero = 1 << (bits - 1),
                                  .fraction_bits = is_exact ? FRACTION_BITS : 0};
    int32_t *factors[4] = {&f.red_v, &f.green_u, &f.green_v, &f.blue_u};

    f.zero = colors->is_full ? 0 : 1 << (bits - 4 + f.code_shift);
    f.luma = (int32_t)lrint(luma * (1 << (f.fraction_bits + LUMA_SHIFT - f.code_shift)));
    for (int i = 0; i < 4; i++)
        *factors[i] = is_exact ? exact_factor(levels[i], colors->is_full, bits)
                               : swscale_factor(levels[i], colors->is_full);
    if (is_exact) {
        f.half = 1 << (FRACTION_BITS - 1);
        f.chroma_half = 1 << (CHROMA_SHIFT - 1);
    }
    return f;
}

/* Each sample is for 1 << shift_x pixels; one more than the width may be written. */
TRAJD_INLINE void scale_chroma(struct trajd_yuv_chroma *restrict row, const void *us,
                               const void *vs, uint32_t count, const struct trajd_yuv_factors f,
                               uint32_t shift_x, bool is_wide)
{
    const uint8_t *narrow_u = us, *narrow_v = vs;
    const uint16_t *wide_u = us, *wide_v = vs;

    for (uint32_t i = 0; i < count; i++) {
        const int32_t u = (is_wide ? wide_u[i] : narrow_u[i]) - f.chroma_zero;
        const int32_t v = (is_wide ? wide_v[i] : narrow_v[i]) - f.chroma_zero;
        const int16_t red = (int16_t)((v * f.red_v + f.chroma_half) >> CHROMA_SHIFT);
        const int16_t blue = (int16_t)((u * f.blue_u + f.chroma_half) >> CHROMA_SHIFT);
        const int16_t green = (int16_t)(((u * f.green_u + f.chroma_half) >> CHROMA_SHIFT) +
                                        ((v * f.green_v + f.chroma_half) >> CHROMA_SHIFT));
        for (uint32_t k = 0; k < 1u << shift_x; k++) {
            row->red[(i << shift_x) + k] = red;
            row->green[(i << shift_x) + k] = green;
            row->blue[(i << shift_x) + k] = blue;
        }
    }
}

TRAJD_INLINE int16_t to_level(int16_t value, uint32_t fraction_bits, int16_t scale)
{
    const int16_t least = 0, most = 255;
    int16_t level = (int16_t)(value >> fraction_bits);

    level = level > least ? level : least;
    level = level < most ? level : most;
    return (int16_t)(level * scale);
}

/* A row, or a part of it. */
struct part {
    const void *codes; /* of luma */
    const int16_t *chroma[3];
    uint32_t width;
    int16_t scale; /* of levels */
};

TRAJD_INLINE void add_luma(int16_t *restrict red, int16_t *restrict green, int16_t *restrict blue,
                           const struct part part, const struct trajd_yuv_factors f,
                           uint32_t fraction_bits, bool is_wide)
{
    const uint8_t *restrict narrow = part.codes;
    const uint16_t *restrict wide = part.codes;
    const int16_t luma = (int16_t)f.luma, half = (int16_t)f.half, zero = (int16_t)f.zero;
    const uint16_t scale = (uint16_t)(1 << f.code_shift); /* see trajd_image_widen() */

    for (uint32_t x = 0; x < part.width; x++) {
        const uint16_t sample = is_wide ? wide[x] : narrow[x];
        const int16_t code = (int16_t)((int16_t)(uint16_t)(sample * scale) - zero);
        const int16_t y = (int16_t)((int16_t)((code * luma) >> LUMA_SHIFT) + half);
        red[x] = to_level((int16_t)(y + part.chroma[0][x]), fraction_bits, part.scale);
        green[x] = to_level((int16_t)(y + part.chroma[1][x]), fraction_bits, part.scale);
        blue[x] = to_level((int16_t)(y + part.chroma[2][x]), fraction_bits, part.scale);
    }
}

/* The levels of a row as bytes, a plane for each colour. */
struct levels {
    uint8_t red[TRAJD_YUV_WIDTH_MAX], green[TRAJD_YUV_WIDTH_MAX], blue[TRAJD_YUV_WIDTH_MAX];
};

TRAJD_CLONES static void narrow(uint8_t *restrict out, const int16_t *restrict in, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (uint8_t)in[i];
}

/* Four pixels at a time: a vector of 16 bytes, of which 12 count. */
TRAJD_CLONES static void interleave(uint8_t *restrict out, const struct levels *restrict in,
                                    uint32_t width)
{
    typedef uint32_t words __attribute__((vector_size(16), may_alias));
    typedef uint8_t bytes __attribute__((vector_size(16), may_alias));
    uint32_t x = 0;

    for (; x + 6 <= width; x += 4) {
        uint32_t red, green, blue;
        words v;
        memcpy(&red, in->red + x, 4);
        memcpy(&green, in->green + x, 4);
        memcpy(&blue, in->blue + x, 4);
        v = (words){red, green, blue, 0};
        v = (words)TRAJD_CHOOSE(bytes, v, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 15, 15, 15, 15);
        memcpy(out + 3 * x, &v, sizeof v);
    }
    for (; x < width; x++) {
        out[3 * x] = in->red[x];
        out[3 * x + 1] = in->green[x];
        out[3 * x + 2] = in->blue[x];
    }
}

/* A level of chroma for two pixels. */
typedef uint32_t pair __attribute__((aligned(2), may_alias));

TRAJD_INLINE pair twice(int16_t level)
{
    return (uint16_t)level | (uint32_t)(uint16_t)level << 16;
}

/* The cases that exist, with constants for the compiler. The first has swscale's products of 16
 * bits, which are the same numbers. */
TRAJD_CLONES static void chroma_swscale(pair *restrict red, pair *restrict green,
                                        pair *restrict blue, const uint8_t *us, const uint8_t *vs,
                                        uint32_t count, const struct trajd_yuv_factors *f)
{
    const int16_t red_v = (int16_t)f->red_v, green_u = (int16_t)f->green_u,
                  green_v = (int16_t)f->green_v, blue_u = (int16_t)f->blue_u;

    for (uint32_t i = 0; i < count; i++) {
        const int16_t u = (int16_t)(8 * (us[i] - 128)), v = (int16_t)(8 * (vs[i] - 128));
        red[i] = twice((int16_t)(v * red_v >> 16));
        green[i] = twice((int16_t)((int16_t)(u * green_u >> 16) + (int16_t)(v * green_v >> 16)));
        blue[i] = twice((int16_t)(u * blue_u >> 16));
    }
}
TRAJD_CLONES static void chroma_narrow(struct trajd_yuv_chroma *row, const void *us, const void *vs,
                                       uint32_t count, const struct trajd_yuv_factors *f)
{
    scale_chroma(row, us, vs, count, *f, 0, false);
}
TRAJD_CLONES static void chroma_wide(struct trajd_yuv_chroma *row, const void *us, const void *vs,
                                     uint32_t count, const struct trajd_yuv_factors *f,
                                     uint32_t shift_x)
{
    scale_chroma(row, us, vs, count, *f, shift_x, true);
}
TRAJD_CLONES static void luma_swscale(int16_t *out, const struct part *part,
                                      const struct trajd_yuv_factors *f)
{
    add_luma(out, out + part->width, out + 2 * part->width, *part, *f, 0, false);
}
TRAJD_CLONES static void luma_exact(int16_t *out, const struct part *part,
                                    const struct trajd_yuv_factors *f, bool is_wide)
{
    if (is_wide)
        add_luma(out, out + part->width, out + 2 * part->width, *part, *f, FRACTION_BITS, true);
    else
        add_luma(out, out + part->width, out + 2 * part->width, *part, *f, FRACTION_BITS, false);
}

static void make_chroma(struct trajd_yuv_rows *rows, uint32_t row)
{
    const struct trajd_yuv *frame = rows->frame;
    const uint32_t count = (frame->width + frame->shift_x) >> frame->shift_x;
    const uint8_t *u = (const uint8_t *)frame->planes[1] + row * frame->steps[1];
    const uint8_t *v = (const uint8_t *)frame->planes[2] + row * frame->steps[2];

    if (frame->bits > 8)
        chroma_wide(&rows->chroma, u, v, count, &rows->factors, frame->shift_x);
    else if (frame->shift_x)
        chroma_swscale((pair *)rows->chroma.red, (pair *)rows->chroma.green,
                       (pair *)rows->chroma.blue, u, v, count, &rows->factors);
    else
        chroma_narrow(&rows->chroma, u, v, count, &rows->factors);
}

static bool is_exact(const struct trajd_yuv *frame)
{
    return frame->bits > 8 || frame->is_gray || !frame->shift_x;
}

void trajd_yuv_rows_begin(struct trajd_yuv_rows *rows, const struct trajd_yuv *frame,
                          const struct trajd_yuv_colors *colors)
{
    static const struct trajd_yuv_colors gray = {.red = 0.299, .blue = 0.114, .is_full = true};

    rows->frame = frame;
    rows->factors = make_factors(frame->is_gray ? &gray : colors, frame->bits, is_exact(frame));
    rows->chroma_row = UINT32_MAX;
    if (frame->is_gray)
        memset(&rows->chroma, 0, sizeof rows->chroma);
}

void trajd_yuv_rows_read(struct trajd_yuv_rows *rows, uint32_t y, uint32_t left, uint32_t width,
                         int shift, int16_t *levels)
{
    const struct trajd_yuv *frame = rows->frame;
    const uint32_t chroma_row = y >> frame->shift_y;
    const bool is_wide = frame->bits > 8;
    const struct part part = {
        .codes = (const uint8_t *)frame->planes[0] + y * frame->steps[0] +
                 (is_wide ? sizeof(uint16_t) : 1) * left,
        .chroma = {rows->chroma.red + left, rows->chroma.green + left, rows->chroma.blue + left},
        .width = width,
        .scale = (int16_t)(1 << shift)};

    if (!frame->is_gray && chroma_row != rows->chroma_row)
        make_chroma(rows, rows->chroma_row = chroma_row);
    if (is_exact(frame))
        luma_exact(levels, &part, &rows->factors, is_wide);
    else
        luma_swscale(levels, &part, &rows->factors);
}

void trajd_yuv_to_rgb(const struct trajd_yuv *frame, const struct trajd_yuv_colors *colors,
                      uint8_t *pixels)
{
    const uint32_t width = frame->width;
    int16_t wide[3 * TRAJD_YUV_WIDTH_MAX];
    struct trajd_yuv_rows rows;
    struct levels levels;

    trajd_yuv_rows_begin(&rows, frame, colors);
    for (uint32_t y = 0; y < frame->height; y++, pixels += (size_t)3 * width) {
        trajd_yuv_rows_read(&rows, y, 0, width, 0, wide);
        narrow(levels.red, wide, width);
        narrow(levels.green, wide + width, width);
        narrow(levels.blue, wide + 2 * width, width);
        interleave(pixels, &levels, width);
    }
}
