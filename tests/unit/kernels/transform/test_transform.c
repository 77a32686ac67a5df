/* Rotation forms and transforms: round trips, values recorded from trainers' own code
 * (tests/tools/record_action_targets.py), rows without a rotation, masks and normalisation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/transform/transform.h"
#include "proto/array_len.h"
#include "tests/unit/kernels/small_request.h"
#include "support/references/references.h"

#define ROWS 6
#define NUMBERS 256

static uint64_t state = 1;

/* Returns a number in [-1, 1). */
static double draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) / 0x1p52 - 1;
}

static void draw_rotation(double q[4])
{
    for (int k = 0; k < 4; k++)
        q[k] = draw();
    assert_true(trajd_rotation_load(TRAJD_ROTATION_QUAT_XYZW, q, q));
}

static void assert_close(const double *a, const double *b, uint32_t count, double most)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= most))
            fail_msg("number %u: %.17g, expected %.17g", i, a[i], b[i]);
}

static void assert_same_rotation(const double p[4], const double q[4], double most)
{
    const double sign = p[0] * q[0] + p[1] * q[1] + p[2] * q[2] + p[3] * q[3] < 0 ? -1 : 1;
    for (int k = 0; k < 4; k++)
        if (!(fabs(p[k] - sign * q[k]) <= most))
            fail_msg("%.17g %.17g %.17g %.17g, expected another rotation", p[0], p[1], p[2], p[3]);
}

/* ---- forms ---- */

static void test_a_rotation_survives_each_form(void **unused)
{
    double q[4], back[4], numbers[TRAJD_ROTATION_MAX_WIDTH];
    (void)unused;

    for (int form = 1; form < TRAJD_ROTATION_COUNT; form++) {
        assert_int_equal(trajd_rotation_parse(trajd_rotation_name(form)), form);
        for (int i = 0; i < 500; i++) {
            draw_rotation(q);
            trajd_rotation_store(form, q, numbers);
            assert_true(trajd_rotation_load(form, numbers, back));
            assert_same_rotation(back, q, 1e-12);
        }
    }
    assert_int_equal(trajd_rotation_parse("euler"), TRAJD_ROTATION_NONE);
    assert_int_equal(trajd_rotation_parse("euler_zyz"), TRAJD_ROTATION_NONE);
}

static void test_turns_by_zero_half_and_quarter(void **unused)
{
    static const double cases[][4] = {{0, 0, 0, 1},
                                      {1, 0, 0, 0},
                                      {0, 1, 0, 0},
                                      {0, 0, 1, 0},
                                      {0, M_SQRT1_2, 0, M_SQRT1_2},
                                      {M_SQRT1_2, 0, 0, M_SQRT1_2},
                                      {1e-9, 0, 0, 1},
                                      {0.5, 0.5, 0.5, 0.5}};
    double back[4], numbers[TRAJD_ROTATION_MAX_WIDTH];
    (void)unused;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int form = 1; form < TRAJD_ROTATION_COUNT; form++) {
            trajd_rotation_store(form, cases[i], numbers);
            assert_true(trajd_rotation_load(form, numbers, back));
            assert_same_rotation(back, cases[i], 1e-8); /* Euler angles lose digits at 90 degrees */
        }
}

static void test_numbers_that_are_no_rotation(void **unused)
{
    static const struct {
        enum trajd_rotation_form form;
        double numbers[9];
    } cases[] = {{TRAJD_ROTATION_QUAT_XYZW, {0}},
                 {TRAJD_ROTATION_QUAT_WXYZ, {NAN, 0, 0, 1}},
                 {TRAJD_ROTATION_ROT6D, {0}},
                 {TRAJD_ROTATION_ROT6D, {1, 2, 3, 2, 4, 6}},
                 {TRAJD_ROTATION_ROT6D, {1, 0, 0, 0, 0, 0}},
                 {TRAJD_ROTATION_MATRIX, {1, 0, 0, 0, 1, 0, 0, 0, -1}},
                 {TRAJD_ROTATION_MATRIX, {2, 0, 0, 0, 2, 0, 0, 0, 2}},
                 {TRAJD_ROTATION_AXIS_ANGLE, {INFINITY, 0, 0}},
                 {TRAJD_ROTATION_EULER, {NAN, 0, 0}}};
    double q[4];
    (void)unused;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_false(trajd_rotation_load(cases[i].form, cases[i].numbers, q));
        assert_true(isnan(q[0]) && isnan(q[3]));
    }
}

/* ---- recorded vectors ---- */

static uint32_t read_array(const char *file_name, const char *wanted, double *numbers)
{
    char path[512], word[64], name[64];
    uint32_t rows, columns, count = 0;
    bool found = false;
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/golden/targets/%s", TRAJD_SOURCE_DIR, file_name);
    file = fopen(path, "r");
    assert_non_null(file);
    while (!found && fscanf(file, "%63s %63s %u %u", word, name, &rows, &columns) == 4) {
        found = strcmp(name, wanted) == 0;
        count = rows * columns;
        assert_true(count <= NUMBERS);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(fscanf(file, "%lf", &numbers[i]), 1);
    }
    fclose(file);
    assert_true(found);
    return count;
}

static struct trajd_transform pose_transform(enum trajd_rotation_form from,
                                             enum trajd_rotation_form to, enum trajd_frame frame)
{
    const uint32_t width = trajd_rotation_width(from);
    struct trajd_transform transform = {.part_count = 2,
                                        .column_count = 3 + width,
                                        .output_count = 3 + trajd_rotation_width(to),
                                        .reference_count = 3 + width,
                                        .origin_count = 7,
                                        .frame = frame};

    transform.parts[0] =
        (struct trajd_transform_part){.is_relative = true,
                                      .count = 3,
                                      .output_count = 3,
                                      .turned_by = frame == TRAJD_FRAME_ANCHOR ? 1 : -1};
    transform.parts[1] = (struct trajd_transform_part){.kind = TRAJD_PART_ROTATION,
                                                       .is_relative = true,
                                                       .first = 3,
                                                       .count = width,
                                                       .output_first = 3,
                                                       .output_count = trajd_rotation_width(to),
                                                       .reference_first = 3,
                                                       .origin_first = 3,
                                                       .from = from,
                                                       .to = to,
                                                       .reference_form = from,
                                                       .turned_by = -1};
    return transform;
}

static void check_umi(const char *name, enum trajd_frame frame, bool from_step_before)
{
    struct trajd_transform transform =
        pose_transform(TRAJD_ROTATION_AXIS_ANGLE, TRAJD_ROTATION_ROT6D, frame);
    double base[NUMBERS], poses[NUMBERS], wanted[NUMBERS], out[ROWS][9], row[6], origin[7],
        undone[7], q[4], p[4];
    uint8_t mask[ROWS] = {0}, good = 0;
    struct trajd_transform_job job = {.transform = &transform,
                                      .step_count = ROWS,
                                      .source_type = TRAJD_F64,
                                      .reference_type = TRAJD_F64,
                                      .output_type = TRAJD_F64,
                                      .source = poses,
                                      .reference = base,
                                      .reference_mask = &good,
                                      .mask = mask,
                                      .output = out};

    transform.from_step_before = from_step_before;
    read_array("umi.txt", "base", base);
    read_array("umi.txt", "poses", poses);
    assert_int_equal(read_array("umi.txt", name, wanted), ROWS * 9);
    trajd_transform_windows(&job, 0, 1);
    assert_close(out[0], wanted, ROWS * 9, 1e-14);
    trajd_transform_origin_of_reference(&transform, base, origin);
    for (uint32_t t = 0; t < ROWS; t++) {
        trajd_transform_invert(&transform, origin, out[t], row);
        assert_close(row, poses + 6 * t, 3, 1e-12);
        trajd_rotation_load(TRAJD_ROTATION_AXIS_ANGLE, row + 3, q);
        trajd_rotation_load(TRAJD_ROTATION_AXIS_ANGLE, poses + 6 * t + 3, p);
        assert_same_rotation(q, p, 1e-12);
        trajd_transform_origin_of_row(&transform, row, undone);
        memcpy(origin, from_step_before ? undone : origin, sizeof origin);
    }
}

static void test_umi_poses(void **unused)
{
    (void)unused;
    check_umi("relative", TRAJD_FRAME_ANCHOR, false);
    check_umi("rel", TRAJD_FRAME_BASE, false);
    check_umi("delta", TRAJD_FRAME_BASE, true);
}

static void test_gr00t_rotations(void **unused)
{
    static const struct {
        const char *from, *to, *form, *target;
    } cases[] = {{"quaternion", "axis_angle", "quat_wxyz", "axis_angle"},
                 {"quaternion", "rotation_6d", "quat_wxyz", "rot6d"},
                 {"quaternion", "matrix", "quat_wxyz", "matrix"},
                 {"quaternion", "euler_angles_rpy", "quat_wxyz", "euler_XYZ"},
                 {"euler_angles_rpy", "rotation_6d_of_euler", "euler_XYZ", "rot6d"}};
    double from[NUMBERS], wanted[NUMBERS], found[TRAJD_ROTATION_MAX_WIDTH], q[4];
    (void)unused;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const enum trajd_rotation_form form = trajd_rotation_parse(cases[i].form),
                                       target = trajd_rotation_parse(cases[i].target);
        const uint32_t width = trajd_rotation_width(form), wide = trajd_rotation_width(target);
        assert_int_equal(read_array("gr00t.txt", cases[i].from, from), ROWS * width);
        assert_int_equal(read_array("gr00t.txt", cases[i].to, wanted), ROWS * wide);
        for (uint32_t r = 0; r < ROWS; r++) {
            assert_true(trajd_rotation_load(form, from + r * width, q));
            trajd_rotation_store(target, q, found);
            assert_close(found, wanted + r * wide, wide, 1e-12);
        }
    }
}

/* openpi's DeltaActions of float32 numbers, then its Normalize by given figures: each float32 is the
 * same. */
static void test_openpi_deltas(void **unused)
{
    struct trajd_transform transform = {.part_count = 4,
                                        .column_count = 14,
                                        .output_count = 14,
                                        .reference_count = 14,
                                        .origin_count = 14};
    double state_numbers[NUMBERS], actions[NUMBERS], wanted[NUMBERS];
    float reference[14], source[ROWS * 14], out[ROWS * 14];
    uint8_t mask[ROWS] = {0, 0, 0, 0, 2, 2}, good = 0;
    struct trajd_transform_job job = {.transform = &transform,
                                      .step_count = ROWS,
                                      .source_type = TRAJD_F32,
                                      .reference_type = TRAJD_F32,
                                      .output_type = TRAJD_F32,
                                      .source = source,
                                      .reference = reference,
                                      .reference_mask = &good,
                                      .mask = mask,
                                      .output = out};
    (void)unused;

    for (uint32_t p = 0; p < 4; p++) {
        const uint32_t first = p < 2 ? 6 * p : 7 + 6 * (p - 2), count = p % 2 ? 1 : 6;
        transform.parts[p] = (struct trajd_transform_part){.is_relative = p % 2 == 0,
                                                           .first = first,
                                                           .count = count,
                                                           .output_first = first,
                                                           .output_count = count,
                                                           .reference_first = first,
                                                           .origin_first = first,
                                                           .turned_by = -1};
    }
    read_array("openpi.txt", "state", state_numbers);
    read_array("openpi.txt", "actions", actions);
    read_array("openpi.txt", "deltas", wanted);
    for (uint32_t d = 0; d < 14; d++)
        reference[d] = (float)state_numbers[d];
    for (uint32_t i = 0; i < ROWS * 14; i++)
        source[i] = (float)actions[i];
    trajd_transform_windows(&job, 0, 1);
    for (uint32_t i = 0; i < ROWS * 14; i++)
        assert_true(out[i] == (float)wanted[i]);
}

/* ---- runs ---- */

/* A run in two parts, with every mask, edge and normalisation per step, equals the rows one by
 * one. */
static void test_a_run_equals_its_rows(void **unused)
{
    enum { WINDOWS = 40, STEPS = 5, D = 7, E = 9 };
    static double source[WINDOWS + 2][STEPS][D], reference[WINDOWS + 2][D];
    static float out[WINDOWS + 2][STEPS][E], scale[STEPS][E], offset[STEPS][E];
    static uint8_t mask[WINDOWS + 2][STEPS], before[WINDOWS + 2][STEPS], good[WINDOWS + 2];
    static uint32_t rows[WINDOWS];
    const struct trajd_transform transform =
        pose_transform(TRAJD_ROTATION_QUAT_XYZW, TRAJD_ROTATION_ROT6D, TRAJD_FRAME_ANCHOR);
    struct trajd_transform_job job = {.transform = &transform,
                                      .step_count = STEPS,
                                      .window_rows = rows,
                                      .source_type = TRAJD_F64,
                                      .reference_type = TRAJD_F64,
                                      .output_type = TRAJD_F32,
                                      .source = source,
                                      .reference = reference,
                                      .reference_mask = good,
                                      .mask = mask[0],
                                      .edge = TRAJD_EDGE_ZERO,
                                      .output = out,
                                      .scale = scale[0],
                                      .offset = offset[0],
                                      .norm_per_step = true};
    (void)unused;

    for (uint32_t w = 0; w < WINDOWS; w++)
        rows[w] = w + 1 + (w > 20);
    for (uint32_t r = 0; r < WINDOWS + 2; r++) {
        for (uint32_t d = 0; d < D; d++)
            reference[r][d] = draw();
        for (uint32_t t = 0; t < STEPS; t++)
            for (uint32_t d = 0; d < D; d++)
                source[r][t][d] = draw();
        good[r] = r == 9 ? TRAJD_MASK_GAP : TRAJD_MASK_VALID;
        mask[r][3] = before[r][3] = r % 2 ? TRAJD_MASK_AFTER_END : TRAJD_MASK_VALID;
        out[r][0][0] = 77;
    }
    memset(source[12][2], 0, sizeof source[12][2]); /* no rotation */
    for (uint32_t t = 0; t < STEPS; t++)
        for (uint32_t d = 0; d < E; d++) {
            scale[t][d] = (float)draw();
            offset[t][d] = (float)draw();
        }
    trajd_transform_windows(&job, 0, 13);
    trajd_transform_windows(&job, 13, WINDOWS);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        const uint32_t r = rows[w];
        double origin[7], wanted[E];
        trajd_transform_origin_of_reference(&transform, reference[r], origin);
        for (uint32_t t = 0; t < STEPS; t++) {
            const bool lost = r == 12 && t == 2, padded = before[r][t] == TRAJD_MASK_AFTER_END;
            trajd_transform_row(&transform, origin, source[r][t], wanted);
            for (uint32_t d = 0; d < E; d++) {
                const float value =
                    (float)((padded ? 0 : wanted[d]) * (double)scale[t][d] + (double)offset[t][d]);
                assert_true(out[r][t][d] == value || (lost && isnan(value)));
            }
            assert_int_equal(mask[r][t], lost     ? TRAJD_MASK_NAN
                                         : r == 9 ? TRAJD_MASK_GAP
                                                  : before[r][t]);
        }
    }
    assert_true(out[0][0][0] == 77 && out[22][0][0] == 77); /* rows of no window */
}

/* A step after one without a row has no difference. */
static void test_the_step_before_is_masked(void **unused)
{
    struct trajd_transform transform = {.part_count = 1,
                                        .column_count = 1,
                                        .output_count = 1,
                                        .reference_count = 1,
                                        .origin_count = 1,
                                        .from_step_before = true,
                                        .parts = {{.is_relative = true,
                                                   .kind = TRAJD_PART_ANGLE,
                                                   .count = 1,
                                                   .output_count = 1,
                                                   .period = 360,
                                                   .turned_by = -1}}};
    const float source[4] = {170, -170, -160, 100}, reference = 160;
    const float wanted[4] = {10, 20, 0, -90};
    const uint8_t good = TRAJD_MASK_VALID;
    uint8_t mask[4] = {0, 0, TRAJD_MASK_MISSING, TRAJD_MASK_VALID};
    float out[4];
    struct trajd_transform_job job = {.transform = &transform,
                                      .step_count = 4,
                                      .source_type = TRAJD_F32,
                                      .reference_type = TRAJD_F32,
                                      .output_type = TRAJD_F32,
                                      .source = source,
                                      .reference = &reference,
                                      .reference_mask = &good,
                                      .mask = mask,
                                      .output = out};
    (void)unused;

    trajd_transform_windows(&job, 0, 1);
    for (uint32_t t = 0; t < 4; t++)
        assert_true(out[t] == wanted[t]);
    assert_int_equal(mask[1], TRAJD_MASK_VALID);
    assert_int_equal(mask[3], TRAJD_MASK_MISSING);
}

/* Between two rows a rotation is on the arc. Where one row has no direction, no number is left of
 * what was blended. */
static void test_blends_between_rows(void **unused)
{
    const double h = 0.70710678118654752,
                 rows[16] = {0, 0, 0, 1, 0, 0, h, h, 0, 0, 0, 0, 0, 0, h, h};
    struct small_request one;
    const void *base = one.rows;
    (void)unused;

    small_request_set_up(&one, TRAJD_KIND_LINEAR, 4, rows);
    one.grid.step_count = 3;
    one.offsets[0] = 5;
    one.offsets[1] = 10;
    one.offsets[2] = 30; /* the row before it has no direction */
    one.stream.bases = &base;
    trajd_resample_reference(&one.request, 0, 1);
    trajd_transform_blend(&one.request, 0, 0, TRAJD_ROTATION_QUAT_XYZW, 0, 1);
    assert_true(fabs(one.out[2] - 0.38268343236508978) < 1e-12);
    assert_true(fabs(one.out[3] - 0.92387953251128674) < 1e-12);
    assert_true(fabs(one.out[6] - h) < 1e-12); /* on a row nothing is blended */
    for (int d = 0; d < 4; d++)
        assert_true(isnan(one.out[8 + d]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blends_between_rows),
        cmocka_unit_test(test_a_rotation_survives_each_form),
        cmocka_unit_test(test_turns_by_zero_half_and_quarter),
        cmocka_unit_test(test_numbers_that_are_no_rotation),
        cmocka_unit_test(test_umi_poses),
        cmocka_unit_test(test_gr00t_rotations),
        cmocka_unit_test(test_openpi_deltas),
        cmocka_unit_test(test_a_run_equals_its_rows),
        cmocka_unit_test(test_the_step_before_is_masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
