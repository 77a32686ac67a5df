/* Presets against what the trainers' own code makes of the same frames, with the same parameters
 * where it draws (tests/tools/preset_vectors.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/window/image/image_prepared.h"
#include "daemon/window/image/image_preset.h"

/* What float32 may differ where a trainer divides and we multiply. */
#define FLOAT_ERROR 4e-6

struct record {
    char preset[24];
    uint32_t is_wrist, height, width;
    enum mode { PLAIN, DRAWN, CENTER } mode;
    uint32_t steps, shape[3];
    float bound;         /* in levels of u8 */
    uint32_t exceptions; /* values that may differ more */
    uint32_t stride, count;
};

struct frames {
    uint8_t *source, *prepared, *augmented;
    void *tensor;
};

/* As make_source in tests/tools/image_vectors.py. */
static void make_source(const struct record *record, uint8_t *source)
{
    uint32_t state = record->height * 1000 + record->width;

    for (size_t i = 0; i < (size_t)record->height * record->width * 3; i++) {
        state = state * 1664525 + 1013904223;
        source[i] = (uint8_t)(state >> 20 & 3 ? state >> 24 : 255 * (state >> 19 & 1));
    }
}

static void read_preset(const struct record *record, struct trajd_image_spec *spec)
{
    struct trajd_yaml *yaml;
    struct trajd_error error;
    char text[128];

    snprintf(text, sizeof text, "image: {preset: %s, view: %s}", record->preset,
             record->is_wrist ? "wrist" : "scene");
    *spec = (struct trajd_image_spec){0};
    if (trajd_yaml_parse("t", text, strlen(text), &yaml, &error) ||
        trajd_image_preset_read(yaml, trajd_yaml_root(yaml), spec, &error))
        fail_msg("%s: %s", text, error.message);
    trajd_yaml_destroy(&yaml);
}

static void augment(const struct record *record, const struct trajd_augment *steps,
                    const struct trajd_image_preparation *p,
                    const struct trajd_augment_params *drawn, struct frames *frames)
{
    const struct trajd_augment_frame frame = {p->height, p->width, p->channels, p->type};
    struct trajd_augment_params params = *drawn;
    struct trajd_augment_plan *plan;
    struct trajd_error error;

    assert_int_equal(record->mode == PLAIN, steps->count == 0);
    if (record->mode == CENTER)
        trajd_augment_center(steps, p->height, p->width, &params);
    else
        assert_int_equal(record->steps, steps->count);
    if (trajd_augment_plan_create(steps, &frame, &plan, &error))
        fail_msg("%s: %s", record->preset, error.message);
    assert_int_equal(trajd_augment_apply(plan, &params, frames->prepared, frames->augmented),
                     TRAJD_OK);
    trajd_augment_plan_destroy(&plan);
}

static void compare(const struct record *record, const struct trajd_image_finish *finish,
                    const void *tensor, const float *expected)
{
    double largest = 0;
    uint32_t exceptions = 0;

    for (uint32_t i = 0; i < record->count; i++) {
        const size_t at = (size_t)i * record->stride;
        const uint32_t plane = finish->height * finish->width;
        const uint32_t c = finish->layout == TRAJD_IMAGE_CHW ? (uint32_t)(at / plane)
                                                             : (uint32_t)(at % finish->channels);
        const double value = finish->type == TRAJD_U8 ? (double)((const uint8_t *)tensor)[at]
                                                      : (double)((const float *)tensor)[at];
        const double difference =
            fmax(fabs(value - (double)expected[i]) - FLOAT_ERROR, 0) / (double)finish->scale[c];
        largest = fmax(largest, difference);
        exceptions += difference > (double)record->bound;
        if (exceptions > record->exceptions)
            fail_msg("%s%s of %ux%u, mode %d: value %zu is %g, not %g: %g levels apart",
                     record->preset, record->is_wrist ? ", wrist" : "", record->height,
                     record->width, record->mode, at, value, (double)expected[i], difference);
    }
    print_message("%s%s of %ux%u, mode %d: %.3g levels apart at most, of %g\n", record->preset,
                  record->is_wrist ? ", wrist" : "", record->height, record->width, record->mode,
                  largest, (double)record->bound);
}

static void check(const struct record *record, const struct trajd_augment_params *drawn,
                  const float *expected)
{
    const struct trajd_image_source source = {record->height, record->width, 3, TRAJD_U8, false};
    struct trajd_image_preparation preparation;
    struct trajd_image_finish finish;
    struct trajd_augment steps;
    struct trajd_image_spec spec;
    struct trajd_image_plan *plan;
    struct trajd_error error;
    struct frames frames;

    read_preset(record, &spec);
    if (trajd_image_spec_prepare(&spec, &source, &preparation, &error) ||
        trajd_image_spec_finish(&spec, &preparation, spec.has_norm ? TRAJD_F32 : TRAJD_U8, &steps,
                                &finish, &error) ||
        trajd_image_plan_create(&preparation, &plan, &error))
        fail_msg("%s: %s", record->preset, error.message);
    frames = (struct frames){malloc(trajd_image_source_bytes(&preparation)),
                             malloc(trajd_image_bytes(&preparation)),
                             malloc((size_t)finish.height * finish.width * 3),
                             malloc(trajd_image_finish_bytes(&finish))};
    assert_int_equal(record->shape[finish.layout == TRAJD_IMAGE_CHW ? 1 : 0], finish.height);
    assert_int_equal(record->shape[finish.layout == TRAJD_IMAGE_CHW ? 2 : 1], finish.width);
    make_source(record, frames.source);
    trajd_image_prepare(plan, frames.source, frames.prepared);
    augment(record, &steps, &preparation, drawn, &frames);
    trajd_image_finish_frame(&finish, frames.augmented, frames.tensor);
    compare(record, &finish, frames.tensor, expected);
    trajd_image_plan_destroy(&plan);
    free(frames.source);
    free(frames.prepared);
    free(frames.augmented);
    free(frames.tensor);
}

static void test_presets_equal_the_trainers(void **state)
{
    FILE *file = fopen(TRAJD_SOURCE_DIR "/tests/golden/presets/presets.bin", "rb");
    struct record record;
    int count = 0;

    (void)state;
    assert_non_null(file);
    for (; fread(&record, sizeof record, 1, file) == 1; count++) {
        struct trajd_augment_params drawn = {{{0}}};
        float *expected = malloc(record.count * sizeof *expected);
        assert_true(record.steps <= TRAJD_AUGMENT_STEPS_MAX);
        assert_int_equal(fread(drawn.values, sizeof drawn.values[0], record.steps, file),
                         record.steps);
        assert_int_equal(fread(expected, sizeof *expected, record.count, file), record.count);
        check(&record, &drawn, expected);
        free(expected);
    }
    fclose(file);
    assert_int_equal(count, 44);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_presets_equal_the_trainers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
