/* Augmented frames: the fast way against the reference, for random lists of steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/augment/augment.h"
#include "proto/array_len.h"
#include "support/references/references.h"

enum { CANARY = 0xA5, MARGIN = 64 };

static uint32_t state = 1;

static uint32_t draw(uint32_t count)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % count;
}

static double between(double low, double high)
{
    return low + (high - low) * draw(1 << 16) / (1 << 16);
}

/* A random step for a frame. Its kind must be one that the frame takes. */
static struct trajd_augment_step make_step(enum trajd_augment_kind kind,
                                           const struct trajd_augment_frame *frame,
                                           enum trajd_image_filter filter)
{
    const double middle = between(0.5, 1.2);
    const bool is_sum = kind == TRAJD_AUGMENT_HUE || kind == TRAJD_AUGMENT_SHIFT ||
                        kind == TRAJD_AUGMENT_HSV_BRIGHTNESS || kind == TRAJD_AUGMENT_HSV_CONTRAST;
    struct trajd_augment_step step = {.kind = kind,
                                      .probability = 1,
                                      .height = 1 + draw(40),
                                      .width = 1 + draw(40),
                                      .excludes_last = draw(2),
                                      .degrees = between(0, 180),
                                      .translate_y = between(0, 0.3),
                                      .translate_x = between(0, 0.3),
                                      .scale = {0.4, 0.4 + between(0, 0.6)},
                                      .ratio = {middle, middle + between(0, 1)},
                                      .filter = filter,
                                      .factor = {is_sum ? -0.5 : 0.5, is_sum ? 0.5 : 1.5}};

    if (kind == TRAJD_AUGMENT_CROP) {
        step.height = 1 + draw(frame->height);
        step.width = 1 + draw(frame->width);
    }
    if (kind == TRAJD_AUGMENT_FLIP || kind == TRAJD_AUGMENT_AFFINE)
        step.probability = 0.8;
    if (kind >= TRAJD_AUGMENT_BRIGHTNESS && kind != TRAJD_AUGMENT_HUE)
        step.probability = 0.8;
    return step;
}

static struct trajd_augment_params draw_params(const struct trajd_augment *augment,
                                               const struct trajd_augment_frame *frame)
{
    const struct trajd_augment_key key = {draw(1000), 1, draw(1000), 0, draw(5)};
    struct trajd_augment_params params;

    trajd_augment_draw(augment, &key, frame->height, frame->width, &params);
    return params;
}

/* Augments random bytes both ways, twice with one plan. Returns the largest difference. Nothing may
 * be written outside the output. */
static int compare(const struct trajd_augment *augment, const struct trajd_augment_frame *frame)
{
    const uint32_t pixel = frame->channels * trajd_dtype_size(frame->type);
    const size_t size = (size_t)frame->height * frame->width * pixel;
    uint8_t *source = malloc(size), *expected, *got;
    struct trajd_augment_plan *plan;
    struct trajd_error error;
    uint32_t height, width;
    size_t bytes;
    int largest = 0;

    if (trajd_augment_check(augment, frame, &height, &width, &error) ||
        trajd_augment_plan_create(augment, frame, &plan, &error))
        fail_msg("%s", error.message);
    bytes = (size_t)height * width * pixel;
    expected = malloc(bytes);
    got = malloc(bytes + 2 * MARGIN);
    for (int turn = 0; turn < 2; turn++) {
        const struct trajd_augment_params params = draw_params(augment, frame);
        memset(got, CANARY, bytes + 2 * MARGIN);
        for (size_t i = 0; i < size; i++)
            source[i] = (uint8_t)(draw(3) ? draw(256) : draw(2) ? 0 : 255);
        assert_int_equal(trajd_augment_reference(augment, frame, &params, source, expected), 0);
        assert_int_equal(trajd_augment_apply(plan, &params, source, got + MARGIN), TRAJD_OK);
        for (size_t i = 0; i < bytes; i++) {
            const int difference = abs((int)expected[i] - (int)got[MARGIN + i]);
            largest = difference > largest ? difference : largest;
        }
        for (int i = 0; i < MARGIN; i++)
            assert_true(got[i] == CANARY && got[MARGIN + bytes + i] == CANARY);
    }
    trajd_augment_plan_destroy(&plan);
    free(source);
    free(expected);
    free(got);
    return largest;
}

static void expect(const struct trajd_augment *augment, const struct trajd_augment_frame *frame,
                   int bound)
{
    const int difference = compare(augment, frame);

    if (difference > bound)
        fail_msg("%s, %u steps, rounding %d, of %ux%ux%u %s: differs by %d",
                 trajd_augment_kind_name(augment->steps[0].kind), augment->count, augment->rounding,
                 frame->height, frame->width, frame->channels, trajd_dtype_name(frame->type),
                 difference);
}

static struct trajd_augment_frame make_frame(void)
{
    static const enum trajd_dtype types[] = {TRAJD_U8, TRAJD_U8, TRAJD_U16, TRAJD_F32};
    struct trajd_augment_frame frame = {1 + draw(50), 1 + draw(50), 1, types[draw(4)]};

    if (frame.type == TRAJD_U8 && draw(4))
        frame.channels = 3;
    return frame;
}

/* Changes the frame to the size after the step. */
static void append(struct trajd_augment *augment, const struct trajd_augment_step *step,
                   struct trajd_augment_frame *frame)
{
    const struct trajd_augment one = {1, {*step}, TRAJD_AUGMENT_ROUND_ONCE};
    struct trajd_error error;

    augment->steps[augment->count++] = *step;
    if (trajd_augment_check(&one, frame, &frame->height, &frame->width, &error))
        fail_msg("%s", error.message);
}

/* Geometry with filter nearest is exact, for all types. */
static void test_exact(void **unused)
{
    (void)unused;
    for (int turn = 0; turn < 600; turn++) {
        struct trajd_augment augment = {0};
        const struct trajd_augment_frame frame = make_frame();
        struct trajd_augment_frame now = frame;
        for (uint32_t i = draw(6); i > 0; i--) {
            const struct trajd_augment_step step =
                make_step(draw(TRAJD_AUGMENT_BRIGHTNESS), &now, TRAJD_IMAGE_NEAREST);
            append(&augment, &step, &now);
        }
        expect(&augment, &frame, 0);
    }
}

/* One step that mixes pixels is within a level; before it, crops and flips. */
static void test_mixing(void **unused)
{
    static const enum trajd_augment_kind kinds[] = {TRAJD_AUGMENT_AFFINE, TRAJD_AUGMENT_RESIZE,
                                                    TRAJD_AUGMENT_RESIZED_CROP};

    (void)unused;
    for (int turn = 0; turn < 600; turn++) {
        struct trajd_augment augment = {0};
        const struct trajd_augment_frame frame = {9 + draw(50), 9 + draw(50), draw(3) ? 3 : 1,
                                                  TRAJD_U8};
        const enum trajd_augment_kind kind = kinds[draw(3)];
        struct trajd_augment_frame now = frame;
        struct trajd_augment_step step;
        for (uint32_t i = draw(3); i > 0; i--) {
            step = make_step(draw(2), &now, TRAJD_IMAGE_NEAREST);
            append(&augment, &step, &now);
        }
        step = make_step(kind, &now, TRAJD_IMAGE_LINEAR);
        if (kind == TRAJD_AUGMENT_RESIZED_CROP && draw(2))
            step.box = TRAJD_AUGMENT_BOX_TF;
        else if (kind != TRAJD_AUGMENT_AFFINE)
            step.filter = TRAJD_IMAGE_PILLOW_BILINEAR;
        append(&augment, &step, &now);
        expect(&augment, &frame, 1);
    }
}

/* A run of colours is within a level. Where each step rounds down, it is equal, but a step through HSV
 * may be a level off, and steps after it make more of that. */
static void test_colors(void **unused)
{
    static const enum trajd_augment_kind kinds[] =
        {TRAJD_AUGMENT_BRIGHTNESS,     TRAJD_AUGMENT_CONTRAST,
         TRAJD_AUGMENT_SHIFT,          TRAJD_AUGMENT_CHANNEL_CONTRAST,
         TRAJD_AUGMENT_FLAT_CONTRAST, /* for grey frames up to here, for END the next two, too */
         TRAJD_AUGMENT_SATURATION,     TRAJD_AUGMENT_FLAT_SATURATION,
         TRAJD_AUGMENT_HSV_SATURATION, TRAJD_AUGMENT_HSV_BRIGHTNESS,
         TRAJD_AUGMENT_HSV_CONTRAST};

    (void)unused;
    for (int turn = 0; turn < 1000; turn++) {
        struct trajd_augment augment = {.rounding = draw(TRAJD_AUGMENT_ROUNDING_COUNT)};
        const bool each = augment.rounding == TRAJD_AUGMENT_ROUND_EACH;
        const bool end = augment.rounding == TRAJD_AUGMENT_ROUND_END, hue = draw(2) && !end;
        const struct trajd_augment_frame frame = {1 + draw(50), 1 + draw(50), draw(4) ? 3 : 1,
                                                  TRAJD_U8};
        const uint32_t kind_count = frame.channels == 1 ? 5 : end ? 7 : 10;
        struct trajd_augment_frame now = frame;
        struct trajd_augment_step step = make_step(TRAJD_AUGMENT_CROP, &now, 0);
        int float_steps = 0;
        if (draw(2))
            append(&augment, &step, &now);
        for (uint32_t i = 1 + draw(4); i > 0; i--) {
            step = make_step(kinds[draw(kind_count)], &now, 0);
            float_steps += step.kind >= TRAJD_AUGMENT_HSV_SATURATION;
            append(&augment, &step, &now);
        }
        if (frame.channels == 1 && augment.count < 2)
            continue;
        step = make_step(TRAJD_AUGMENT_HUE, &now, 0);
        if (hue && frame.channels == 3)
            append(&augment, &step, &now);
        if (each && float_steps)
            expect(&augment, &frame, 4);
        else
            expect(&augment, &frame, each && !(hue && frame.channels == 3) ? 0 : 1);
    }
}

/* All steps in any order, on a frame with the size of a camera. */
static void test_all(void **unused)
{
    (void)unused;
    for (int turn = 0; turn < 60; turn++) {
        struct trajd_augment augment = {.rounding = draw(TRAJD_AUGMENT_ROUNDING_COUNT)};
        const struct trajd_augment_frame frame = {84, 97, 3, TRAJD_U8};
        struct trajd_augment_frame now = frame;
        for (uint32_t i = 0; i < TRAJD_AUGMENT_STEPS_MAX; i++) {
            struct trajd_augment_step step =
                make_step(draw(TRAJD_AUGMENT_KIND_COUNT), &now, TRAJD_IMAGE_LINEAR);
            if (augment.rounding == TRAJD_AUGMENT_ROUND_END && step.kind >= TRAJD_AUGMENT_HUE)
                continue;
            append(&augment, &step, &now);
        }
        expect(&augment, &frame, 12);
    }
}

/* A frame of one colour stays so, and by how much it changes can be computed by hand. */
static void test_by_hand(void **unused)
{
    static const uint8_t source[] = {200, 100, 50, 10, 20, 30};
    static const struct {
        enum trajd_augment_kind kind;
        float value;
        uint8_t expected[6];
    } cases[] = {
        {TRAJD_AUGMENT_BRIGHTNESS, 1.5F, {255, 150, 75, 15, 30, 45}},
        {TRAJD_AUGMENT_SATURATION, 0, {124, 124, 124, 18, 18, 18}},
        {TRAJD_AUGMENT_CONTRAST, 0, {71, 71, 71, 71, 71, 71}},
        {TRAJD_AUGMENT_HUE, 1 / 3.0F, {50, 200, 100, 30, 10, 20}},
        {TRAJD_AUGMENT_SHIFT, 0.4F, {255, 202, 152, 112, 122, 132}},
        {TRAJD_AUGMENT_CHANNEL_CONTRAST, 0, {105, 60, 40, 105, 60, 40}},
        {TRAJD_AUGMENT_HSV_SATURATION, 0, {200, 200, 200, 30, 30, 30}},
        {TRAJD_AUGMENT_HSV_SATURATION, 2, {200, 67, 0, 0, 15, 30}},
        {TRAJD_AUGMENT_HSV_BRIGHTNESS, -0.5F, {100, 50, 25, 5, 10, 15}},
        {TRAJD_AUGMENT_HSV_BRIGHTNESS, 0.12F, {207, 103, 52, 19, 38, 57}}, /* 0.88 most + 30.6 */
        {TRAJD_AUGMENT_HSV_CONTRAST, 0.5F, {232, 116, 58, 4, 8, 12}},      /* tan 67.5 = 2.414 */
        {TRAJD_AUGMENT_FLAT_CONTRAST, 0, {68, 68, 68, 68, 68, 68}},
        {TRAJD_AUGMENT_FLAT_SATURATION, 0, {117, 117, 117, 20, 20, 20}},
        {TRAJD_AUGMENT_FLIP, 1, {10, 20, 30, 200, 100, 50}},
    };
    const struct trajd_augment_frame frame = {1, 2, 3, TRAJD_U8};

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct trajd_augment augment = {
            1, {{.kind = cases[i].kind, .probability = 1}}, TRAJD_AUGMENT_ROUND_ONCE};
        const struct trajd_augment_params params = {{{cases[i].value}}};
        struct trajd_augment_plan *plan;
        uint8_t output[6];
        assert_int_equal(trajd_augment_plan_create(&augment, &frame, &plan, NULL), TRAJD_OK);
        assert_int_equal(trajd_augment_apply(plan, &params, source, output), TRAJD_OK);
        assert_memory_equal(output, cases[i].expected, sizeof output);
        trajd_augment_plan_destroy(&plan);
    }
}

/* Between the steps of a run that is clipped at its end, values may be out of range. */
static void test_clipped_at_the_end(void **unused)
{
    static const uint8_t source[] = {200, 100, 50, 10, 20, 30},
                         expected[] = {150, 75, 38, 8, 15, 23};
    const struct trajd_augment_frame frame = {1, 2, 3, TRAJD_U8};
    const struct trajd_augment_params params = {{{1.5F}, {0.5F}}};
    struct trajd_augment augment = {2,
                                    {{.kind = TRAJD_AUGMENT_BRIGHTNESS, .probability = 1},
                                     {.kind = TRAJD_AUGMENT_BRIGHTNESS, .probability = 1}},
                                    TRAJD_AUGMENT_ROUND_END};
    uint8_t output[6];

    (void)unused;
    assert_int_equal(trajd_augment_reference(&augment, &frame, &params, source, output), TRAJD_OK);
    assert_memory_equal(output, expected, sizeof output);
    augment.rounding = TRAJD_AUGMENT_ROUND_ONCE;
    assert_int_equal(trajd_augment_reference(&augment, &frame, &params, source, output), TRAJD_OK);
    assert_int_equal(output[0], 128); /* 255 / 2 */
}

/* The bytes are the same on every machine and for every compiler: this sum of them is recorded. */
static void test_recorded(void **unused)
{
    const struct trajd_augment_frame frame = {61, 83, 3, TRAJD_U8};
    uint8_t source[61 * 83 * 3], output[61 * 83 * 3];
    uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    (void)unused;
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (uint8_t)(i * 2654435761U >> 13);
    for (int turn = 0; turn < 20; turn++) {
        const struct trajd_augment augment = {
            6,
            {{.kind = TRAJD_AUGMENT_AFFINE,
              .probability = 1,
              .degrees = 9,
              .scale = {0.8, 1.2},
              .filter = TRAJD_IMAGE_LINEAR},
             {.kind = TRAJD_AUGMENT_BRIGHTNESS, .probability = 0.7, .factor = {0.6, 1.5}},
             {.kind = TRAJD_AUGMENT_CONTRAST, .probability = 0.7, .factor = {0.6, 1.5}},
             {.kind = TRAJD_AUGMENT_SATURATION, .probability = 0.7, .factor = {0.6, 1.5}},
             {.kind = TRAJD_AUGMENT_HUE, .probability = 0.7, .factor = {-0.5, 0.5}},
             {.kind = TRAJD_AUGMENT_FLIP, .probability = 0.5}},
            turn % 2};
        const struct trajd_augment_key key = {1, 2, (uint64_t)turn, 3, 4};
        struct trajd_augment_params params;
        struct trajd_augment_plan *plan;
        trajd_augment_draw(&augment, &key, 61, 83, &params);
        assert_int_equal(trajd_augment_plan_create(&augment, &frame, &plan, NULL), TRAJD_OK);
        assert_int_equal(trajd_augment_apply(plan, &params, source, output), TRAJD_OK);
        for (size_t i = 0; i < sizeof output; i++)
            digest = (digest ^ output[i]) * UINT64_C(0x100000001b3);
        trajd_augment_plan_destroy(&plan);
    }
    if (digest != UINT64_C(0x3903feb12b27fc9f))
        fail_msg("the digest is %#llx", (unsigned long long)digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),    cmocka_unit_test(test_mixing),
        cmocka_unit_test(test_colors),   cmocka_unit_test(test_all),
        cmocka_unit_test(test_by_hand),  cmocka_unit_test(test_clipped_at_the_end),
        cmocka_unit_test(test_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
