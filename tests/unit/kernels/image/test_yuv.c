/* Luma and chroma to RGB: swscale's whole numbers for chroma of half the columns, exact arithmetic
 * within one level else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/image.h"
#include "kernels/image/yuv.h"
#include "proto/array_len.h"

/* swscale's coefficients, as its results on x86 show them: luma, v of red, u and v of green, u of
 * blue. */
static const struct {
    struct trajd_yuv_colors colors;
    int32_t factors[5];
} cases[] = {{{0.299, 0.114, false}, {9539, 13075, -3209, -6660, 16525}},
             {{0.299, 0.114, true}, {8192, 11485, -2819, -5850, 14516}},
             {{0.2126, 0.0722, false}, {9539, 14686, -1747, -4366, 17305}},
             {{0.2126, 0.0722, true}, {8192, 12901, -1534, -3835, 15201}},
             {{0.2627, 0.0593, false}, {9539, 13752, -1535, -5328, 17545}},
             {{0.2627, 0.0593, true}, {8192, 12080, -1348, -4680, 15412}}};

static uint8_t clip(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void swscale(size_t n, const uint8_t yuv[3], uint8_t rgb[3])
{
    const int32_t *f = cases[n].factors;
    const int32_t y = (((yuv[0] << 3) - (cases[n].colors.is_full ? 0 : 128)) * f[0]) >> 16;
    const int32_t u = (yuv[1] << 3) - 1024, v = (yuv[2] << 3) - 1024;

    rgb[0] = clip(y + ((v * f[1]) >> 16));
    rgb[1] = clip(y + (((u * f[2]) >> 16) + ((v * f[3]) >> 16)));
    rgb[2] = clip(y + ((u * f[4]) >> 16));
}

static void exact(const struct trajd_yuv_colors *c, uint32_t bits, const uint32_t yuv[3],
                  double rgb[3])
{
    const double one = 1 << (bits - 8), top = (1 << bits) - 1, g = 1 - c->red - c->blue;
    const double y = c->is_full ? yuv[0] / top : (yuv[0] - 16 * one) / (219 * one);
    const double span = c->is_full ? top : 224 * one;
    const double u = (yuv[1] - 128 * one) / span, v = (yuv[2] - 128 * one) / span;

    rgb[0] = 255 * (y + 2 * (1 - c->red) * v);
    rgb[2] = 255 * (y + 2 * (1 - c->blue) * u);
    rgb[1] = 255 * y - (c->red * (rgb[0] - 255 * y) + c->blue * (rgb[2] - 255 * y)) / g;
}

/* All values of luma in a row, for each pair of chroma. */
static void test_swscale(void **state)
{
    enum { WIDTH = 512 };
    uint8_t luma[WIDTH], us[WIDTH / 2], vs[WIDTH / 2], rgb[WIDTH * 3], expected[3];
    const struct trajd_yuv frame = {.planes = {luma, us, vs},
                                    .height = 1,
                                    .width = WIDTH,
                                    .bits = 8,
                                    .shift_x = 1,
                                    .shift_y = 1};

    (void)state;
    for (int x = 0; x < WIDTH; x++)
        luma[x] = (uint8_t)(x / 2);
    for (size_t n = 0; n < ARRAY_LEN(cases); n++)
        for (int u = 0; u < 256; u++)
            for (int v = 0; v < 256; v += n ? 5 : 1) {
                memset(us, u, sizeof us);
                memset(vs, v, sizeof vs);
                trajd_yuv_to_rgb(&frame, &cases[n].colors, rgb);
                for (int x = 0; x < WIDTH; x++) {
                    swscale(n, (uint8_t[]){luma[x], (uint8_t)u, (uint8_t)v}, expected);
                    if (memcmp(expected, rgb + 3 * x, 3))
                        fail_msg("case %zu, luma %u, chroma %d %d", n, luma[x], u, v);
                }
            }
}

/* Returns whether a level is one of the two around the exact value, or the nearest. */
static bool is_near(double value, uint8_t level)
{
    const double clipped = value < 0 ? 0 : value > 255 ? 255 : value;

    return fabs(clipped - level) < 0.5 + 1 / 16.0;
}

static void check_exact(const struct trajd_yuv_colors *colors, uint32_t bits, uint32_t shift_x)
{
    enum { WIDTH = 509 }; /* odd, and no multiple of a vector */
    uint16_t wide[3][WIDTH];
    uint8_t narrow[3][WIDTH], rgb[WIDTH * 3];
    struct trajd_yuv frame = {.height = 1, .width = WIDTH, .bits = bits, .shift_x = shift_x};

    for (int p = 0; p < 3; p++)
        frame.planes[p] = bits > 8 ? (void *)wide[p] : (void *)narrow[p];
    for (int round = 0; round < 200; round++) {
        for (int p = 0; p < 3; p++)
            for (int x = 0; x < WIDTH; x++) {
                wide[p][x] = (uint16_t)(rand() & ((1 << bits) - 1));
                if (x % 31 < 2)
                    wide[p][x] = (uint16_t)(x % 31 ? (1 << bits) - 1 : 0);
                narrow[p][x] = (uint8_t)wide[p][x];
            }
        trajd_yuv_to_rgb(&frame, colors, rgb);
        for (int x = 0; x < WIDTH; x++) {
            const uint32_t yuv[3] = {wide[0][x], wide[1][x >> shift_x], wide[2][x >> shift_x]};
            double expected[3];
            exact(colors, bits, yuv, expected);
            for (int c = 0; c < 3; c++)
                if (!is_near(expected[c], rgb[3 * x + c]))
                    fail_msg("%u bits, %u %u %u: %u is not %f", bits, yuv[0], yuv[1], yuv[2],
                             rgb[3 * x + c], expected[c]);
        }
    }
}

static void test_exact(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(cases); n++) {
        check_exact(&cases[n].colors, 8, 0);
        for (uint32_t bits = 9; bits <= 12; bits++)
            for (uint32_t shift_x = 0; shift_x < 2; shift_x++)
                check_exact(&cases[n].colors, bits, shift_x);
    }
}

/* Rows and columns that chroma covers twice, odd sides, steps, and nothing behind the pixels. */
static void test_places(void **state)
{
    enum { MOST = 40 };
    static uint8_t luma[MOST * MOST], us[MOST * MOST], vs[MOST * MOST];

    (void)state;
    for (int i = 0; i < MOST * MOST; i++) {
        luma[i] = (uint8_t)rand();
        us[i] = (uint8_t)rand();
        vs[i] = (uint8_t)rand();
    }
    for (uint32_t width = 1; width < MOST; width++)
        for (uint32_t shift_y = 0; shift_y < 2; shift_y++) {
            const struct trajd_yuv frame = {.planes = {luma, us, vs},
                                            .steps = {MOST, MOST - 1, MOST - 2},
                                            .height = 5,
                                            .width = width,
                                            .bits = 8,
                                            .shift_x = 1,
                                            .shift_y = shift_y};
            uint8_t *rgb = malloc(5 * 3 * width + 1), expected[3];
            rgb[5 * 3 * width] = 77;
            trajd_yuv_to_rgb(&frame, &cases[0].colors, rgb);
            assert_int_equal(rgb[5 * 3 * width], 77);
            for (uint32_t i = 0; i < 5 * width; i++) {
                const uint32_t y = i / width, x = i % width, row = y >> shift_y;
                swscale(0,
                        (uint8_t[]){luma[y * MOST + x], us[row * (MOST - 1) + x / 2],
                                    vs[row * (MOST - 2) + x / 2]},
                        expected);
                assert_memory_equal(rgb + 3 * i, expected, 3);
            }
            free(rgb);
        }
}

static void test_gray(void **state)
{
    uint8_t luma[256], rgb[256 * 3];
    const struct trajd_yuv frame = {
        .planes = {luma}, .height = 1, .width = 256, .bits = 8, .is_gray = true};

    (void)state;
    for (int x = 0; x < 256; x++)
        luma[x] = (uint8_t)x;
    trajd_yuv_to_rgb(&frame, &cases[0].colors, rgb);
    for (int i = 0; i < 256 * 3; i++)
        assert_int_equal(rgb[i], i / 3);
}

/* Compares frames that are resized row by row with whole ones that are converted, then prepared. */
static void check_prepared(const struct trajd_yuv *frame, enum trajd_image_filter filter,
                           enum trajd_image_fit fit)
{
    struct trajd_image_preparation p = {.source_height = frame->height,
                                        .source_width = frame->width,
                                        .channels = 3,
                                        .type = TRAJD_U8,
                                        .crop = {3, 7, frame->height - 5, frame->width - 12},
                                        .filter = filter,
                                        .pad_value = 9};
    uint8_t *rgb = malloc((size_t)3 * frame->height * frame->width);
    uint8_t expected[3 * 29 * 31], got[sizeof expected];
    struct trajd_image_plan *plan;

    trajd_image_place(&p, fit, 29, 31);
    assert_true(trajd_image_takes_video(&p));
    assert_int_equal(trajd_image_plan_create(&p, &plan, NULL), TRAJD_OK);
    trajd_yuv_to_rgb(frame, &cases[0].colors, rgb);
    trajd_image_prepare(plan, rgb, expected);
    memset(got, 0, sizeof got);
    trajd_image_prepare_video(plan, frame, &cases[0].colors, got);
    assert_memory_equal(got, expected, sizeof expected);
    trajd_image_plan_destroy(&plan);
    free(rgb);
}

static void test_prepared(void **state)
{
    static const enum trajd_image_filter filters[] = {TRAJD_IMAGE_PILLOW_BILINEAR,
                                                      TRAJD_IMAGE_PILLOW_BOX, TRAJD_IMAGE_AREA,
                                                      TRAJD_IMAGE_TF_LANCZOS3, TRAJD_IMAGE_LINEAR};
    enum { HEIGHT = 61, WIDTH = 75 };
    static uint16_t planes[3][HEIGHT * WIDTH];

    (void)state;
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < HEIGHT * WIDTH; i++)
            planes[p][i] = (uint16_t)(rand() & 1023);
    for (uint32_t bits = 8; bits <= 10; bits += 2)
        for (uint32_t shift = 0; shift < 2; shift++)
            for (size_t f = 0; f < ARRAY_LEN(filters); f++)
                for (int fit = 0; fit < TRAJD_IMAGE_FIT_COUNT; fit++) {
                    const ptrdiff_t step = bits > 8 ? 2 * WIDTH : WIDTH;
                    const struct trajd_yuv frame = {.planes = {planes[0], planes[1], planes[2]},
                                                    .steps = {step, step, step},
                                                    .height = HEIGHT,
                                                    .width = WIDTH,
                                                    .bits = bits,
                                                    .shift_x = shift,
                                                    .shift_y = shift};
                    check_prepared(&frame, filters[f], (enum trajd_image_fit)fit);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_swscale), cmocka_unit_test(test_exact),
                                       cmocka_unit_test(test_places), cmocka_unit_test(test_gray),
                                       cmocka_unit_test(test_prepared)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
