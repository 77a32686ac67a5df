/* Augmented frames against the recorded results of other programs (tests/tools/augment_vectors.py):
 * the reference and the fast way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/image/augment/augment.h"
#include "support/references/references.h"

struct record {
    uint32_t height, width, to_height, to_width, rounding, steps, bound, exceptions;
};

struct step {
    uint32_t kind, filter, box;
    float values[TRAJD_AUGMENT_VALUES];
};

/* The source of a record, as make_source in tests/tools/image_vectors.py. */
static void make_source(const struct record *record, uint8_t *source)
{
    uint32_t state = record->height * 1000 + record->width;

    for (size_t i = 0; i < (size_t)record->height * record->width * 3; i++) {
        state = state * 1664525 + 1013904223;
        source[i] = (uint8_t)(state >> 20 & 3 ? state >> 24 : 255 * (state >> 19 & 1));
    }
}

/* Sizes a step: a crop before another step has its size as parameters. */
static struct trajd_augment_step make_step(const struct record *record, const struct step *step)
{
    const bool has_size = step->kind == TRAJD_AUGMENT_CROP && step->values[2] > 0;

    return (struct trajd_augment_step){
        .kind = (enum trajd_augment_kind)step->kind,
        .probability = 1,
        .height = has_size ? (uint32_t)step->values[2] : record->to_height,
        .width = has_size ? (uint32_t)step->values[3] : record->to_width,
        .scale = {1, 1},
        .ratio = {1, 1},
        .box = (enum trajd_augment_box)step->box,
        .filter = (enum trajd_image_filter)step->filter,
        .factor = {0,
                   step->kind == TRAJD_AUGMENT_HUE || step->kind == TRAJD_AUGMENT_SHIFT ? 0.5 : 2},
    };
}

static void compare(const char *name, const struct record *record, const struct step *step,
                    const uint8_t *expected, const uint8_t *got)
{
    uint32_t exceptions = 0;

    for (size_t i = 0; i < (size_t)record->to_height * record->to_width * 3; i++) {
        exceptions += (uint32_t)abs((int)got[i] - (int)expected[i]) > record->bound;
        if (exceptions > record->exceptions)
            fail_msg("%s: %s(%g, %g, %g, %g), %u steps, rounding %u, %ux%u: byte %zu is %u, not %u",
                     name, trajd_augment_kind_name((enum trajd_augment_kind)step->kind),
                     (double)step->values[0], (double)step->values[1], (double)step->values[2],
                     (double)step->values[3], record->steps, record->rounding, record->height,
                     record->width, i, got[i], expected[i]);
    }
}

static void check(const struct record *record, const struct step *steps, const uint8_t *expected)
{
    const struct trajd_augment_frame frame = {record->height, record->width, 3, TRAJD_U8};
    struct trajd_augment augment = {
        record->steps, {{0}}, (enum trajd_augment_rounding)record->rounding};
    struct trajd_augment_params params = {{{0}}};
    struct trajd_augment_plan *plan;
    struct trajd_error error;
    uint8_t source[64 * 64 * 3], output[64 * 64 * 3];

    make_source(record, source);
    for (uint32_t i = 0; i < record->steps; i++) {
        augment.steps[i] = make_step(record, &steps[i]);
        memcpy(params.values[i], steps[i].values, sizeof steps[i].values);
    }
    assert_int_equal(trajd_augment_reference(&augment, &frame, &params, source, output), TRAJD_OK);
    compare("reference", record, steps, expected, output);
    if (trajd_augment_plan_create(&augment, &frame, &plan, &error))
        fail_msg("%s", error.message);
    memset(output, 0, sizeof output);
    assert_int_equal(trajd_augment_apply(plan, &params, source, output), TRAJD_OK);
    compare("apply", record, steps, expected, output);
    trajd_augment_plan_destroy(&plan);
}

/* Checks all records of a program. Returns their number. */
static int check_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t expected[64 * 64 * 3];
    struct record record;
    struct step steps[TRAJD_AUGMENT_STEPS_MAX];
    int count = 0;

    assert_non_null(file);
    for (; fread(&record, sizeof record, 1, file) == 1; count++) {
        const size_t size = (size_t)record.to_height * record.to_width * 3;
        assert_true(record.steps <= TRAJD_AUGMENT_STEPS_MAX && size <= sizeof expected);
        assert_int_equal(fread(steps, sizeof *steps, record.steps, file), record.steps);
        assert_int_equal(fread(expected, 1, size, file), size);
        check(&record, steps, expected);
    }
    fclose(file);
    return count;
}

static void test_torchvision(void **state)
{
    (void)state;
    assert_int_equal(check_file(TRAJD_SOURCE_DIR "/tests/golden/augment/torchvision.bin"), 68);
}

static void test_tensorflow(void **state)
{
    (void)state;
    assert_int_equal(check_file(TRAJD_SOURCE_DIR "/tests/golden/augment/tensorflow.bin"), 22);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torchvision),
        cmocka_unit_test(test_tensorflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
