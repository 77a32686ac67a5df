/* Philox, draws and their distribution, checks of augmentations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/augment/augment_math.h"
#include "kernels/image/augment/augment.h"
#include "kernels/image/augment/philox.h"
#include "proto/array_len.h"

/* The known answers of Random123 (tests/kat_vectors, philox4x32 10). */
static void test_philox(void **unused)
{
    static const struct {
        struct trajd_philox counter;
        uint32_t low, high;
        struct trajd_philox answer;
    } cases[] = {
        {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffff,
         0xffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0xa4093822,
         0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct trajd_philox got = trajd_philox(cases[i].counter, cases[i].low, cases[i].high);
        assert_memory_equal(&got, &cases[i].answer, sizeof got);
    }
    assert_true(trajd_philox_uniform(0) == 0 && trajd_philox_uniform(UINT32_MAX) < 1);
    assert_int_equal(trajd_philox_below(UINT32_MAX, 9), 8);
}

static void test_math(void **unused)
{
    double sine, cosine;

    (void)unused;
    for (double x = 0.01; x < 100; x *= 1.07) {
        assert_true(fabs(trajd_augment_log(x) - log(x)) < 2e-15);
        assert_true(fabs(trajd_augment_exp(log(x)) / x - 1) < 2e-15);
    }
    for (double degrees = -180; degrees <= 180; degrees += 0.7) {
        trajd_augment_sine(degrees, &sine, &cosine);
        assert_true(fabs(sine - sin(degrees * M_PI / 180)) < 1e-15);
        assert_true(fabs(cosine - cos(degrees * M_PI / 180)) < 1e-15);
    }
    trajd_augment_sine(-90, &sine, &cosine);
    assert_true(sine == -1 && cosine == 0);
}

static struct trajd_augment_step make_crop(uint32_t side, bool excludes_last)
{
    return (struct trajd_augment_step){.kind = TRAJD_AUGMENT_CROP,
                                       .probability = 1,
                                       .height = side,
                                       .width = side,
                                       .excludes_last = excludes_last};
}

static struct trajd_augment make_all(void)
{
    return (struct trajd_augment){
        8,
        {make_crop(76, false),
         {.kind = TRAJD_AUGMENT_FLIP, .probability = 0.5},
         {.kind = TRAJD_AUGMENT_AFFINE,
          .probability = 1,
          .degrees = 5,
          .translate_y = 0.1,
          .translate_x = 0.2,
          .scale = {0.9, 1.1},
          .filter = TRAJD_IMAGE_NEAREST},
         {.kind = TRAJD_AUGMENT_RESIZED_CROP,
          .probability = 1,
          .height = 64,
          .width = 64,
          .scale = {0.5, 1},
          .ratio = {0.75, 1.25},
          .filter = TRAJD_IMAGE_PILLOW_BILINEAR},
         {.kind = TRAJD_AUGMENT_BRIGHTNESS, .probability = 1, .factor = {0.7, 1.3}},
         {.kind = TRAJD_AUGMENT_CONTRAST, .probability = 1, .factor = {0.6, 1.4}},
         {.kind = TRAJD_AUGMENT_SATURATION, .probability = 0.5, .factor = {0.5, 1.5}},
         {.kind = TRAJD_AUGMENT_HUE, .probability = 1, .factor = {-0.08, 0.08}}},
        TRAJD_AUGMENT_ROUND_ONCE};
}

static const struct trajd_augment_key some_key = {7, 2, 12345, UINT64_C(0xabcdef0123456789), 1};

/* Draws are data that runs and resumed runs share: these numbers may never change. */
static void test_recorded(void **unused)
{
    static const float expected[8][4] = {{0, 0x1.4p+2F, 0, 0},
                                         {0x1p+0F, 0, 0, 0},
                                         {0x1.5ed718p+1F, -0x1p+1F, 0x1.8p+2F, 0x1.fc3398p-1F},
                                         {0x1.2p+3F, 0x1.8p+1F, 0x1.ep+5F, 0x1.1cp+6F},
                                         {0x1.6ee388p-1F, 0, 0, 0},
                                         {0x1.3ea954p+0F, 0, 0, 0},
                                         {0x1p+0F, 0, 0, 0},
                                         {0x1.4e3a3ep-9F, 0, 0, 0}};
    const struct trajd_augment augment = make_all();
    struct trajd_augment_params params;

    (void)unused;
    trajd_augment_draw(&augment, &some_key, 84, 84, &params);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 4; k++)
            if (params.values[i][k] != expected[i][k])
                fail_msg("step %d, value %d is %a, not %a", i, k, (double)params.values[i][k],
                         (double)expected[i][k]);
}

/* Every part of the key counts; and a step's draws do not depend on the others. */
static void test_keys(void **unused)
{
    struct trajd_augment augment = make_all(), other = make_all();
    struct trajd_augment_key keys[6];
    struct trajd_augment_params params[6], params_of_other;

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        keys[i] = some_key;
    keys[1].seed += UINT64_C(1) << 32;
    keys[2].epoch++;
    keys[3].window += UINT64_C(1) << 32;
    keys[4].output++;
    keys[5].group++;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        trajd_augment_draw(&augment, &keys[i], 84, 84, &params[i]);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(&params[k], &params[i], sizeof params[i]);
    }
    other.steps[4].factor.high = 1.9;
    trajd_augment_draw(&other, &some_key, 84, 84, &params_of_other);
    assert_memory_equal(params[0].values, params_of_other.values, 4 * sizeof params[0].values[0]);
    assert_memory_equal(params[0].values[5], params_of_other.values[5],
                        3 * sizeof params[0].values[0]);
}

/* robomimic's rule never gives the last offset, torchvision's does; all others occur alike. */
static void test_crops(void **unused)
{
    (void)unused;
    for (int excludes = 0; excludes < 2; excludes++) {
        const struct trajd_augment augment = {
            1, {make_crop(76, excludes)}, TRAJD_AUGMENT_ROUND_ONCE};
        struct trajd_augment_key key = some_key;
        const int offsets = excludes ? 8 : 9;
        int counts[2][9] = {{0}};
        struct trajd_augment_params params;
        for (int i = 0; i < 9000; i++) {
            key.window = (uint64_t)i;
            trajd_augment_draw(&augment, &key, 84, 84, &params);
            counts[0][(int)params.values[0][0]]++;
            counts[1][(int)params.values[0][1]]++;
        }
        for (int axis = 0; axis < 2; axis++)
            for (int i = 0; i < 9; i++)
                assert_true(i < offsets ? abs(counts[axis][i] - 9000 / offsets) < 160
                                        : counts[axis][i] == 0);
    }
}

static void test_ranges(void **unused)
{
    struct trajd_augment augment = make_all();
    struct trajd_augment_key key = some_key;
    struct trajd_augment_params params;
    double sum = 0;
    int flips = 0, idle = 0;

    (void)unused;
    for (int i = 0; i < 4000; i++) {
        const float(*v)[4] = params.values;
        key.group = (uint32_t)i;
        trajd_augment_draw(&augment, &key, 84, 84, &params);
        flips += v[1][0] == 1;
        idle += v[6][0] == 1;
        sum += v[4][0];
        assert_true(fabsf(v[2][0]) <= 5 && fabsf(v[2][1]) <= 8 && fabsf(v[2][2]) <= 15);
        assert_true(v[2][3] >= 0.9F && v[2][3] <= 1.1F && v[2][1] == rintf(v[2][1]));
        assert_true(v[3][0] >= 0 && v[3][0] + v[3][2] <= 76 && v[3][1] + v[3][3] <= 76);
        assert_true(v[3][2] * v[3][3] >= 0.48F * 76 * 76);
        assert_true(v[4][0] >= 0.7F && v[4][0] <= 1.3F && fabsf(v[7][0]) <= 0.08F);
    }
    assert_true(abs(flips - 2000) < 150 && abs(idle - 2000) < 150);
    assert_true(fabs(sum / 4000 - 1) < 0.01);
}

/* Boxes as shares of the frame, and a ratio that no box of pixels can have. */
static void test_boxes(void **unused)
{
    struct trajd_augment augment = {1, {make_all().steps[3]}, TRAJD_AUGMENT_ROUND_ONCE};
    struct trajd_augment_key key = some_key;
    struct trajd_augment_params params;
    const float *v = params.values[0];

    (void)unused;
    augment.steps[0].box = TRAJD_AUGMENT_BOX_TF;
    for (key.group = 0; key.group < 1000; key.group++) {
        trajd_augment_draw(&augment, &key, 84, 84, &params);
        assert_true(v[0] >= 0 && v[1] >= 0 && v[2] > 0.5F && v[3] > 0.5F);
        assert_true(v[0] + v[2] <= 1.000001F && v[1] + v[3] <= 1.000001F);
    }
    augment.steps[0].box = TRAJD_AUGMENT_BOX_PIXELS;
    augment.steps[0].scale.low = 1;
    augment.steps[0].ratio.low = augment.steps[0].ratio.high = 2;
    trajd_augment_draw(&augment, &some_key, 84, 84, &params);
    assert_true(v[0] == 21 && v[1] == 0 && v[2] == 42 && v[3] == 84);
    trajd_augment_draw(&augment, &some_key, 84, 1, &params); /* half a pixel high */
    assert_true(v[0] == 41 && v[1] == 0 && v[2] == 1 && v[3] == 1);
    augment.steps[0].ratio.low = augment.steps[0].ratio.high = 0.25;
    trajd_augment_draw(&augment, &some_key, 1, 84, &params); /* a quarter of a pixel wide */
    assert_true(v[0] == 0 && v[1] == 41 && v[2] == 1 && v[3] == 1);
}

static void test_center(void **unused)
{
    struct trajd_augment augment = make_all();
    struct trajd_augment_params params;

    (void)unused;
    trajd_augment_center(&augment, 83, 79, &params);
    assert_true(params.values[0][0] == 4 && params.values[0][1] == 2); /* 3.5 and 1.5: to even */
    assert_true(params.values[1][0] == 0 && params.values[2][0] == 0 && params.values[2][3] == 1);
    assert_true(params.values[3][2] == 76 && params.values[4][0] == 1 && params.values[7][0] == 0);
    augment.steps[0].excludes_last = true;
    trajd_augment_center(&augment, 83, 79, &params);
    assert_true(params.values[0][0] == 3 && params.values[0][1] == 1);
}

static void expect_refusal(const struct trajd_augment *augment,
                           const struct trajd_augment_frame *frame, const char *words)
{
    struct trajd_error error;
    uint32_t height, width;

    assert_int_equal(trajd_augment_check(augment, frame, &height, &width, &error),
                     TRAJD_ERR_ARGUMENT);
    if (!strstr(error.message, words))
        fail_msg("'%s' lacks '%s'", error.message, words);
}

static void test_refusals(void **unused)
{
    const struct trajd_augment_frame rgb = {84, 84, 3, TRAJD_U8}, grey = {84, 84, 1, TRAJD_U8},
                                     depth = {84, 84, 1, TRAJD_U16}, small = {70, 84, 3, TRAJD_U8};
    struct trajd_augment augment = make_all();
    uint32_t height, width;

    (void)unused;
    assert_int_equal(trajd_augment_check(&augment, &rgb, &height, &width, NULL), TRAJD_OK);
    assert_true(height == 64 && width == 64);
    expect_refusal(&augment, &small, "step 1 (crop of 70 x 84): the crop is larger");
    expect_refusal(&augment, &grey, "step 7 (saturation of 64 x 64): a grey image");
    expect_refusal(&augment, &depth, "step 4 (random_resized_crop of 76 x 76): depth takes filter");
    augment.steps[3].filter = TRAJD_IMAGE_NEAREST;
    expect_refusal(&augment, &depth, "depth has no colours");
    augment.steps[0].probability = 0.5;
    expect_refusal(&augment, &rgb, "always happens");
    augment.steps[0].probability = NAN;
    expect_refusal(&augment, &rgb, "0 to 1");
    augment = make_all();
    augment.steps[2].filter = TRAJD_IMAGE_AREA;
    expect_refusal(&augment, &rgb, "nearest or linear");
    augment = make_all();
    augment.steps[7].factor.high = 0.6;
    expect_refusal(&augment, &rgb, "-0.5 to 0.5");
    augment.steps[5].factor.low = NAN;
    expect_refusal(&augment, &rgb, "step 6 (contrast");
    augment = make_all();
    augment.steps[0].follows = true;
    expect_refusal(&augment, &rgb, "it follows a step before it");
    augment = make_all();
    augment.rounding = TRAJD_AUGMENT_ROUND_END;
    expect_refusal(&augment, &rgb, "not with rounding: end");
    augment = make_all();
    augment.steps[6] = (struct trajd_augment_step){
        .kind = TRAJD_AUGMENT_HSV_CONTRAST, .probability = 1, .factor = {-1, 1}};
    expect_refusal(&augment, &rgb, "-0.99 to 0.99");
    augment = make_all();
    augment.steps[1].kind = TRAJD_AUGMENT_KIND_COUNT;
    expect_refusal(&augment, &rgb, "unknown kind");
    augment.count = 9;
    expect_refusal(&augment, &rgb, "at most 8");
}

/* A step that follows another happens where that one does, with parameters of its own. */
static void test_follows(void **unused)
{
    const struct trajd_augment augment = {
        3,
        {{.kind = TRAJD_AUGMENT_HSV_BRIGHTNESS, .probability = 0.5, .factor = {0.1, 0.3}},
         {.kind = TRAJD_AUGMENT_HSV_CONTRAST,
          .probability = 0.5,
          .follows = true,
          .factor = {0.1, 0.3}},
         {.kind = TRAJD_AUGMENT_HUE, .probability = 0.5, .follows = true, .factor = {0.1, 0.3}}},
        TRAJD_AUGMENT_ROUND_ONCE};
    int happened = 0;

    (void)unused;
    for (uint64_t window = 0; window < 1000; window++) {
        const struct trajd_augment_key key = {3, 1, window, 0, 0};
        struct trajd_augment_params params;
        trajd_augment_draw(&augment, &key, 8, 8, &params);
        for (int i = 1; i < 3; i++) {
            assert_int_equal(params.values[i][0] > 0, params.values[0][0] > 0);
            assert_true(params.values[i][0] != params.values[0][0] || !params.values[0][0]);
        }
        happened += params.values[0][0] > 0;
    }
    assert_in_range(happened, 450, 550);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),   cmocka_unit_test(test_math),
        cmocka_unit_test(test_recorded), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_crops),    cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_boxes),    cmocka_unit_test(test_center),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_follows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
