/* Prepared frames: the kernels against the reference, geometry, checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/image.h"
#include "proto/array_len.h"
#include "support/references/references.h"

enum { CANARY = 0xA5, MARGIN = 64 };

static uint32_t state = 1;

static uint32_t draw(uint32_t count)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % count;
}

static struct trajd_image_preparation make(uint32_t height, uint32_t width, uint32_t channels,
                                           enum trajd_image_filter filter)
{
    return (struct trajd_image_preparation){.source_height = height,
                                            .source_width = width,
                                            .channels = channels,
                                            .type = TRAJD_U8,
                                            .crop = {0, 0, height, width},
                                            .filter = filter,
                                            .pad_value = 7};
}

/* Prepares random bytes both ways. Returns the largest difference. Nothing may be written outside
 * the output, and each byte of it must be. */
static int compare(const struct trajd_image_preparation *p)
{
    const size_t bytes = trajd_image_bytes(p), size = trajd_image_source_bytes(p);
    uint8_t *source = malloc(size), *expected = malloc(bytes), *got = malloc(bytes + 2 * MARGIN);
    struct trajd_image_plan *plan;
    struct trajd_error error;
    int largest = 0;

    for (size_t i = 0; i < size; i++)
        source[i] = draw(3) ? (uint8_t)draw(256) : draw(2) ? 0 : 255;
    memset(got, CANARY, bytes + 2 * MARGIN);
    if (trajd_image_plan_create(p, &plan, &error))
        fail_msg("%s", error.message);
    assert_int_equal(trajd_image_reference(p, source, expected), TRAJD_OK);
    trajd_image_prepare(plan, source, got + MARGIN);
    for (size_t i = 0; i < bytes; i++) {
        const int difference = abs((int)expected[i] - (int)got[MARGIN + i]);
        largest = difference > largest ? difference : largest;
    }
    for (int i = 0; i < MARGIN; i++)
        assert_true(got[i] == CANARY && got[MARGIN + bytes + i] == CANARY);
    memset(got, 0, bytes + 2 * MARGIN); /* a second frame with the same plan */
    trajd_image_prepare(plan, source, got + MARGIN);
    for (size_t i = 0; i < bytes; i++)
        assert_true(abs((int)expected[i] - (int)got[MARGIN + i]) <= largest);
    trajd_image_plan_destroy(&plan);
    free(source);
    free(expected);
    free(got);
    return largest;
}

static bool is_exact(enum trajd_image_filter filter)
{
    return filter == TRAJD_IMAGE_PILLOW_BICUBIC || filter == TRAJD_IMAGE_PILLOW_LANCZOS ||
           filter == TRAJD_IMAGE_NEAREST;
}

static void test_random(void **unused)
{
    (void)unused;
    for (int turn = 0; turn < 400; turn++) {
        const enum trajd_image_filter filter = draw(TRAJD_IMAGE_FILTER_COUNT);
        struct trajd_image_preparation p =
            make(1 + draw(90), 1 + draw(90), draw(2) ? 3 : 1, filter);
        uint32_t height = 1 + draw(60), width = 1 + draw(60);
        int difference;
        p.crop.top = draw(p.source_height);
        p.crop.left = draw(p.source_width);
        p.crop.height = 1 + draw(p.source_height - p.crop.top);
        p.crop.width = 1 + draw(p.source_width - p.crop.left);
        if (filter == TRAJD_IMAGE_AREA) {
            height = 1 + draw(p.crop.height);
            width = 1 + draw(p.crop.width);
        }
        trajd_image_place(
            &p, filter == TRAJD_IMAGE_AREA ? TRAJD_IMAGE_STRETCH : draw(TRAJD_IMAGE_FIT_COUNT),
            height, width);
        if (p.inner_height > 400 || p.inner_width > 400)
            continue;
        difference = compare(&p);
        if (difference > (is_exact(filter) ? 0 : 1))
            fail_msg("%s: %ux%u of %ux%u to %ux%u in %ux%u: differs by %d",
                     trajd_image_filter_name(filter), p.crop.height, p.crop.width, p.source_height,
                     p.source_width, p.inner_height, p.inner_width, p.height, p.width, difference);
    }
}

static void test_large(void **unused)
{
    static const enum trajd_image_filter filters[] = {TRAJD_IMAGE_PILLOW_BILINEAR,
                                                      TRAJD_IMAGE_PILLOW_LANCZOS, TRAJD_IMAGE_AREA};

    (void)unused;
    for (size_t f = 0; f < ARRAY_LEN(filters); f++) {
        struct trajd_image_preparation p = make(480, 640, 3, filters[f]);
        trajd_image_place(&p, TRAJD_IMAGE_STRETCH, 60, 80);
        assert_true(compare(&p) <= 1);
    }
}

static void test_identity(void **unused)
{
    (void)unused;
    for (int filter = 0; filter < TRAJD_IMAGE_FILTER_COUNT; filter++) {
        struct trajd_image_preparation p = make(33, 47, 3, (enum trajd_image_filter)filter);
        struct trajd_image_plan *plan;
        uint8_t source[33 * 47 * 3], output[33 * 47 * 3];
        trajd_image_place(&p, TRAJD_IMAGE_STRETCH, 33, 47);
        for (size_t i = 0; i < sizeof source; i++)
            source[i] = (uint8_t)draw(256);
        assert_int_equal(trajd_image_plan_create(&p, &plan, NULL), TRAJD_OK);
        trajd_image_prepare(plan, source, output);
        assert_memory_equal(source, output, sizeof source);
        trajd_image_plan_destroy(&plan);
    }
}

/* Sizes and corners as the trainers compute them. */
/* A crop box that is not resized: every filter gives its pixels as they are, also where the output
 * shows only a part of it. */
static void test_unscaled(void **unused)
{
    (void)unused;
    for (int filter = 0; filter < TRAJD_IMAGE_FILTER_COUNT; filter++)
        for (int turn = 0; turn < 20; turn++) {
            struct trajd_image_preparation p =
                make(20 + draw(20), 20 + draw(20), 3, (enum trajd_image_filter)filter);
            p.crop = (struct trajd_image_box){draw(10), draw(10), 1 + draw(10), 1 + draw(10)};
            p.inner_height = p.crop.height;
            p.inner_width = p.crop.width;
            p.height = 1 + draw(20);
            p.width = 1 + draw(20);
            p.top = (int32_t)draw(p.height + p.crop.height - 1) - (int32_t)p.crop.height + 1;
            p.left = (int32_t)draw(p.width + p.crop.width - 1) - (int32_t)p.crop.width + 1;
            assert_true(trajd_image_is_unscaled(&p));
            assert_false(trajd_image_is_source(&p));
            assert_int_equal(compare(&p), 0);
        }
}

static void test_source(void **unused)
{
    struct trajd_image_preparation p = make(30, 40, 3, TRAJD_IMAGE_PILLOW_BILINEAR), other;

    (void)unused;
    trajd_image_place(&p, TRAJD_IMAGE_STRETCH, 30, 40);
    assert_true(trajd_image_is_source(&p));
    trajd_image_place(&p, TRAJD_IMAGE_STRETCH, 40, 30);
    assert_false(trajd_image_is_source(&p));
    trajd_image_place(&p, TRAJD_IMAGE_PAD, 30, 60);
    assert_false(trajd_image_is_source(&p));
    other = make(30, 40, 3, TRAJD_IMAGE_NEAREST);
    other.crop = (struct trajd_image_box){1, 0, 29, 40};
    trajd_image_place(&other, TRAJD_IMAGE_STRETCH, 29, 40);
    assert_false(trajd_image_is_source(&other));
}

static void test_fits(void **unused)
{
    static const struct {
        uint32_t height, width;
        enum trajd_image_fit fit;
        uint32_t to_height, to_width, inner_height, inner_width;
        int32_t top, left;
    } cases[] = {
        {480, 640, TRAJD_IMAGE_STRETCH, 224, 224, 224, 224, 0, 0},
        {480, 640, TRAJD_IMAGE_PAD, 224, 224, 168, 224, 28, 0},
        {640, 480, TRAJD_IMAGE_PAD, 224, 224, 224, 168, 0, 28},
        {481, 640, TRAJD_IMAGE_PAD, 224, 223, 167, 223, 28, 0}, /* 57 rows: 28 above, 29 below */
        {480, 640, TRAJD_IMAGE_PAD_TOPLEFT, 512, 512, 384, 512, 128, 0},
        {480, 640, TRAJD_IMAGE_COVER, 240, 320, 240, 320, 0, 0},
        {480, 640, TRAJD_IMAGE_COVER, 224, 224, 224, 299, 0, -37},
        {2, 900, TRAJD_IMAGE_PAD, 90, 90, 1, 90, 44, 0},
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_image_preparation p =
            make(cases[i].height, cases[i].width, 3, TRAJD_IMAGE_PILLOW_BILINEAR);
        trajd_image_place(&p, cases[i].fit, cases[i].to_height, cases[i].to_width);
        assert_int_equal(p.inner_height, cases[i].inner_height);
        assert_int_equal(p.inner_width, cases[i].inner_width);
        assert_int_equal(p.top, cases[i].top);
        assert_int_equal(p.left, cases[i].left);
        assert_int_equal(trajd_image_check(&p, NULL), TRAJD_OK);
    }
}

static void test_padding(void **unused)
{
    struct trajd_image_preparation p = make(2, 4, 1, TRAJD_IMAGE_NEAREST);
    static const uint8_t source[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t expected[] = {9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9};
    struct trajd_image_plan *plan;
    uint8_t output[16];

    (void)unused;
    p.pad_value = 9;
    trajd_image_place(&p, TRAJD_IMAGE_PAD, 4, 4);
    assert_int_equal(trajd_image_plan_create(&p, &plan, NULL), TRAJD_OK);
    trajd_image_prepare(plan, source, output);
    assert_memory_equal(output, expected, sizeof output);
    trajd_image_plan_destroy(&plan);
}

static void test_depth(void **unused)
{
    struct trajd_image_preparation p = make(4, 4, 1, TRAJD_IMAGE_NEAREST);
    uint16_t source[16], output[4];
    float numbers[16], picked[12];
    struct trajd_image_plan *plan;

    (void)unused;
    for (int i = 0; i < 16; i++)
        numbers[i] = source[i] = (uint16_t)(1000 * i);
    p.type = TRAJD_U16;
    trajd_image_place(&p, TRAJD_IMAGE_STRETCH, 2, 2);
    assert_int_equal(trajd_image_plan_create(&p, &plan, NULL), TRAJD_OK);
    trajd_image_prepare(plan, source, output);
    for (int i = 0; i < 4; i++)
        assert_int_equal(output[i], source[(i / 2 * 2 + 1) * 4 + i % 2 * 2 + 1]);
    trajd_image_plan_destroy(&plan);

    p.type = TRAJD_F32;
    p.pad_value = -1.5;
    trajd_image_place(&p, TRAJD_IMAGE_PAD, 2, 6);
    assert_int_equal(trajd_image_plan_create(&p, &plan, NULL), TRAJD_OK);
    trajd_image_prepare(plan, numbers, picked);
    assert_true(picked[0] == -1.5f && picked[5] == -1.5f && picked[2] == numbers[5]);
    trajd_image_plan_destroy(&plan);
    p.filter = TRAJD_IMAGE_LINEAR;
    assert_int_equal(trajd_image_plan_create(&p, &plan, NULL), TRAJD_ERR_ARGUMENT);
}

static void test_refused(void **unused)
{
    struct trajd_image_preparation good = make(20, 30, 3, TRAJD_IMAGE_AREA), bad;

    (void)unused;
    trajd_image_place(&good, TRAJD_IMAGE_STRETCH, 10, 10);
    assert_int_equal(trajd_image_check(&good, NULL), TRAJD_OK);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        assert_int_equal(trajd_image_check(&bad, NULL), TRAJD_ERR_ARGUMENT);                       \
    } while (0)
    REFUSED(bad.source_height = 0);
    REFUSED(bad.source_width = 8193);
    REFUSED((bad.source_height = 8192, bad.source_width = 4100));
    REFUSED(bad.channels = 2);
    REFUSED(bad.type = TRAJD_U32);
    REFUSED(bad.type = TRAJD_U16);
    REFUSED(bad.filter = TRAJD_IMAGE_FILTER_COUNT);
    REFUSED(bad.crop.height = 0);
    REFUSED(bad.crop.height = 21);
    REFUSED(bad.crop.top = 1);
    REFUSED(bad.crop.left = UINT32_MAX);
    REFUSED(bad.inner_height = 21); /* area only reduces */
    REFUSED(bad.inner_width = 0);
    REFUSED(bad.height = 9000);
    REFUSED(bad.top = 10);
    REFUSED(bad.left = -10);
    REFUSED(bad.pad_value = 256);
    REFUSED(bad.pad_value = -1);
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_large),
        cmocka_unit_test(test_identity), cmocka_unit_test(test_unscaled),
        cmocka_unit_test(test_source),   cmocka_unit_test(test_fits),
        cmocka_unit_test(test_padding),  cmocka_unit_test(test_depth),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
