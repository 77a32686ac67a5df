/* Arithmetic without libm stays within its bounds, and steps side by side have the bits of the
 * reference: all forms, frames and types, windows of few and of many steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/transform/rotation_math.h"
#include "kernels/transform/transform.h"
#include "proto/array_len.h"
#include "support/references/references.h"

#define WINDOWS 5
#define STEPS_MAX 300
#define WIDTH_MAX 16

static uint64_t state = 7;

/* Returns a number in [-1, 1). */
static double draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) / 0x1p52 - 1;
}

static void assert_near(double found, double wanted, double most)
{
    if (!(fabs(found - wanted) <= most))
        fail_msg("%.17g, expected %.17g", found, wanted);
}

static void test_bounds_of_the_arithmetic(void **unused)
{
    double sine, cosine;
    (void)unused;

    for (int i = 0; i < 200000; i++) {
        const double x = draw() * (i % 2 ? 10 : 4e5), a = draw(), b = draw() * pow(10, 8 * draw());
        trajd_math_sine(x, &sine, &cosine);
        assert_near(sine, sin(x), 4e-16);
        assert_near(cosine, cos(x), 4e-16);
        assert_near(trajd_math_atan2(a, b), atan2(a, b), 1e-15);
    }
    trajd_math_sine(6e5, &sine, &cosine);
    assert_true(isnan(sine) && isnan(cosine));
    assert_true(trajd_math_atan2(0, 0) == 0 && trajd_math_atan2(-1, 0) == -atan2(1, 0));
    assert_true(trajd_math_atan2(-0.0, -1) == -M_PI && trajd_math_atan2(0, -1) == M_PI);
}

/* Angles up to 2 pi take another way than larger ones. */
static void test_long_axis_angles(void **unused)
{
    (void)unused;

    for (double angle = 0; angle < 30; angle += 0.01) {
        const double v[3] = {angle * 0.6, 0, angle * -0.8};
        double q[4];
        assert_true(trajd_rotation_load(TRAJD_ROTATION_AXIS_ANGLE, v, q));
        assert_near(q[0], 0.6 * sin(angle / 2), 4e-15);
        assert_near(q[2], -0.8 * sin(angle / 2), 4e-15);
        assert_near(q[3], cos(angle / 2), 4e-15);
    }
}

/* ---- lanes ---- */

struct case_of {
    enum trajd_rotation_form from, to, reference_form;
    enum trajd_frame frame;
    enum trajd_dtype source_type, output_type;
    uint32_t step_count;
    enum trajd_edge edge;
    bool is_relative, step_before, scales, per_step;
    bool is_mixed, has_edges; /* rows in another order; masks */
};

/* Position, rotation, two plain columns (of which an angle), a column as recorded. */
static struct trajd_transform make_transform(const struct case_of *c)
{
    const uint32_t from = trajd_rotation_width(c->from), to = trajd_rotation_width(c->to),
                   state_width = trajd_rotation_width(c->reference_form);
    const bool turns = c->is_relative && c->frame == TRAJD_FRAME_ANCHOR;

    return (struct trajd_transform){.part_count = 4,
                                    .column_count = from + 5,
                                    .output_count = to + 5,
                                    .reference_count = c->is_relative ? state_width + 4 : 0,
                                    .origin_count = 8,
                                    .frame = c->frame,
                                    .from_step_before = c->step_before,
                                    .parts = {{.is_relative = c->is_relative,
                                               .count = 3,
                                               .output_count = 3,
                                               .turned_by = turns ? 1 : -1},
                                              {.kind = TRAJD_PART_ROTATION,
                                               .is_relative = c->is_relative,
                                               .first = 3,
                                               .count = from,
                                               .output_first = 3,
                                               .output_count = to,
                                               .reference_first = 3,
                                               .origin_first = 3,
                                               .from = c->from,
                                               .to = c->to,
                                               .reference_form = c->reference_form,
                                               .turned_by = -1},
                                              {.kind = TRAJD_PART_ANGLE,
                                               .is_relative = c->is_relative,
                                               .first = from + 3,
                                               .count = 1,
                                               .output_first = to + 3,
                                               .output_count = 1,
                                               .reference_first = state_width + 3,
                                               .origin_first = 7,
                                               .period = 0.75,
                                               .turned_by = -1},
                                              {.first = from + 4,
                                               .count = 1,
                                               .output_first = to + 4,
                                               .output_count = 1,
                                               .turned_by = -1}}};
}

struct arrays {
    uint64_t source[WINDOWS * STEPS_MAX * WIDTH_MAX], reference[WINDOWS * WIDTH_MAX],
        out[WINDOWS * STEPS_MAX * WIDTH_MAX]; /* room for doubles */
    float scale[STEPS_MAX * WIDTH_MAX], offset[STEPS_MAX * WIDTH_MAX];
    uint8_t mask[WINDOWS * STEPS_MAX], before[WINDOWS * STEPS_MAX], reference_mask[WINDOWS];
};

/* Writes rows with a random position, rotation and other columns. One rotation of 50 is none. */
static void fill_rows(enum trajd_dtype type, enum trajd_rotation_form form, uint32_t columns,
                      uint32_t count, void *out)
{
    const uint32_t size = trajd_dtype_size(type);
    double numbers[WIDTH_MAX], q[4];

    for (uint32_t r = 0; r < count; r++) {
        for (uint32_t d = 0; d < columns; d++)
            numbers[d] = draw();
        for (int k = 0; k < 4; k++)
            q[k] = draw();
        trajd_rotation_load(TRAJD_ROTATION_QUAT_XYZW, q, q);
        trajd_rotation_store(form, q, numbers + 3);
        if (draw() > 0.96)
            numbers[3] = NAN;
        if (draw() > 0.96)
            numbers[0] = draw() > 0.5 ? INFINITY : 3e38;
        if (draw() > 0.9 && form == TRAJD_ROTATION_AXIS_ANGLE)
            numbers[4] += 20;
        for (uint32_t d = 0; d < columns; d++)
            trajd_element_store(type, (char *)out + (r * columns + d) * size, numbers[d]);
    }
}

static bool same_bits(enum trajd_dtype type, const void *found, double wanted)
{
    uint64_t bits = 0;

    if (isnan(wanted))
        return isnan(trajd_element_load(type, found));
    trajd_element_store(type, &bits, wanted);
    return memcmp(found, &bits, trajd_dtype_size(type)) == 0;
}

static void load_row(enum trajd_dtype type, const void *array, uint32_t row, uint32_t columns,
                     double *out)
{
    for (uint32_t d = 0; d < columns; d++)
        out[d] = trajd_element_load(
            type, (const char *)array + (row * columns + d) * (uint64_t)trajd_dtype_size(type));
}

static bool has_row(const struct case_of *c, uint8_t mask)
{
    return mask != TRAJD_MASK_AFTER_END || c->edge == TRAJD_EDGE_HOLD;
}

/* Finds what a step is relative to: the reference, or the last step before that has a row. */
static void find_origin(const struct case_of *c, const struct trajd_transform *transform,
                        const struct arrays *a, uint32_t w, uint32_t t, double origin[8])
{
    double row[WIDTH_MAX];

    while (t > 0 && !has_row(c, a->before[w * c->step_count + t - 1]))
        t--;
    if (c->step_before && t > 0) {
        load_row(c->source_type, a->source, w * c->step_count + t - 1, transform->column_count,
                 row);
        trajd_transform_origin_of_row(transform, row, origin);
        return;
    }
    load_row(c->source_type, a->reference, w, transform->reference_count, row);
    trajd_transform_origin_of_reference(transform, row, origin);
}

/* Returns the number as it is stored, normalised. */
static double stored(const struct case_of *c, const struct trajd_transform *transform,
                     const struct arrays *a, uint32_t t, uint32_t d, double value)
{
    const uint32_t norm = (c->per_step ? t * transform->output_count : 0) + d;
    uint64_t bits = 0;

    if (c->scales)
        value = value * (double)a->scale[norm] + (double)a->offset[norm];
    trajd_element_store(c->output_type, &bits, value);
    return trajd_element_load(c->output_type, &bits);
}

/* Checks a step against trajd_transform_row. */
static void check_step(const struct case_of *c, const struct trajd_transform *transform,
                       const struct arrays *a, uint32_t w, uint32_t t)
{
    const uint32_t place = w * c->step_count + t;
    const uint8_t before = a->before[place],
                  origin_mask = !c->is_relative           ? 0
                                : c->step_before && t > 0 ? a->before[place - 1]
                                                          : a->reference_mask[w],
                  larger = before > origin_mask ? before : origin_mask;
    double row[WIDTH_MAX], origin[8], wanted[WIDTH_MAX];
    bool lost = false, edge = !has_row(c, before);

    load_row(c->source_type, a->source, place, transform->column_count, row);
    find_origin(c, transform, a, w, t, origin);
    trajd_transform_row(transform, origin, row, wanted);
    for (uint32_t d = 0; d < transform->output_count; d++)
        lost |= !isfinite(stored(c, transform, a, t, d, wanted[d]));
    edge |= lost && larger != TRAJD_MASK_VALID && larger < TRAJD_MASK_NAN;
    assert_int_equal(a->mask[place],
                     lost && larger == TRAJD_MASK_VALID && !edge ? TRAJD_MASK_NAN : larger);
    for (uint32_t d = 0; d < transform->output_count; d++) {
        const double value = stored(c, transform, a, t, d, edge ? 0 : wanted[d]);
        if (!same_bits(c->output_type,
                       (const char *)a->out + (place * (uint64_t)transform->output_count + d) *
                                                  trajd_dtype_size(c->output_type),
                       value))
            fail_msg("%s to %s, window %u, step %u, column %u: expected %.17g",
                     trajd_rotation_name(c->from), trajd_rotation_name(c->to), w, t, d, value);
    }
}

static void check_case(const struct case_of *c, struct arrays *a)
{
    static const uint32_t rows[WINDOWS] = {4, 2, 0, 1, 3};
    const struct trajd_transform transform = make_transform(c);
    const struct trajd_transform_job job = {.transform = &transform,
                                            .step_count = c->step_count,
                                            .window_rows = c->is_mixed ? rows : NULL,
                                            .source_type = c->source_type,
                                            .reference_type = c->source_type,
                                            .output_type = c->output_type,
                                            .source = a->source,
                                            .reference = a->reference,
                                            .reference_mask = a->reference_mask,
                                            .mask = a->mask,
                                            .edge = c->edge,
                                            .output = a->out,
                                            .scale = c->scales ? a->scale : NULL,
                                            .offset = c->scales ? a->offset : NULL,
                                            .norm_per_step = c->per_step};

    fill_rows(c->source_type, c->from, transform.column_count, WINDOWS * c->step_count, a->source);
    fill_rows(c->source_type, c->reference_form, transform.reference_count,
              c->is_relative ? WINDOWS : 0, a->reference);
    for (uint32_t i = 0; i < WINDOWS * c->step_count; i++)
        a->before[i] = a->mask[i] = !c->has_edges  ? TRAJD_MASK_VALID
                                    : draw() > 0.9 ? TRAJD_MASK_AFTER_END
                                    : draw() > 0.9 ? TRAJD_MASK_GAP
                                                   : TRAJD_MASK_VALID;
    for (uint32_t w = 0; w < WINDOWS; w++)
        a->reference_mask[w] = w == 3 ? TRAJD_MASK_TOO_OLD : TRAJD_MASK_VALID;
    trajd_transform_windows(&job, 0, WINDOWS);
    for (uint32_t w = 0; w < WINDOWS; w++)
        for (uint32_t t = 0; t < c->step_count; t++)
            check_step(c, &transform, a, w, t);
}

static void test_lanes_equal_the_reference(void **unused)
{
    static const uint32_t steps[] = {1, 3, 16, 50, 127, 128, 300};
    static const enum trajd_dtype types[] = {TRAJD_F32, TRAJD_F64, TRAJD_F16};
    struct arrays *arrays = malloc(sizeof *arrays);
    uint32_t n = 0;
    (void)unused;

    assert_non_null(arrays);
    for (uint32_t i = 0; i < ARRAY_LEN(arrays->scale); i++) {
        arrays->scale[i] = (float)draw();
        arrays->offset[i] = (float)draw();
    }
    for (int from = 1; from < TRAJD_ROTATION_COUNT; from++)
        for (int to = 1; to < TRAJD_ROTATION_COUNT; to++, n++) {
            const struct case_of one = {.from = from,
                                        .to = to,
                                        .reference_form = (from + to) % 17 + 1,
                                        .frame = n % 2 ? TRAJD_FRAME_ANCHOR : TRAJD_FRAME_BASE,
                                        .source_type = n % 3 ? TRAJD_F32 : TRAJD_F64,
                                        .output_type = types[n / 2 % 3],
                                        .step_count = steps[n % ARRAY_LEN(steps)],
                                        .edge = n % 11 ? TRAJD_EDGE_ZERO : TRAJD_EDGE_HOLD,
                                        .is_relative = n % 5 > 0,
                                        .step_before = n / 3 % 2,
                                        .is_mixed = n / 5 % 2,
                                        .has_edges = n / 7 % 3 > 0,
                                        .scales = n % 4 > 0,
                                        .per_step = n % 4 == 2};
            check_case(&one, arrays);
        }
    free(arrays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_of_the_arithmetic),
        cmocka_unit_test(test_long_axis_angles),
        cmocka_unit_test(test_lanes_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
