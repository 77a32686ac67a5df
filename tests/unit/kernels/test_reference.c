/* The reference on small requests that can be checked by hand: every edge and mask once. cpu_rows
 * runs the same requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/element_convert.h"
#include "kernels/dispatch/plan.h"
#include "kernels/quaternion.h"
#include "proto/array_len.h"
#include "unit/kernels/small_request.h"

static void expect_values(const struct small_request *one, const double *values,
                          const uint8_t *mask, uint32_t steps, double slack)
{
    for (uint32_t i = 0; i < steps * one->stream.feature_count; i++)
        if (!(isnan(values[i]) && isnan(one->out[i])) && !(fabs(values[i] - one->out[i]) <= slack))
            fail_msg("value %u is %.17g, expected %.17g", i, one->out[i], values[i]);
    for (uint32_t t = 0; t < steps; t++)
        if (mask[t] != one->mask[t])
            fail_msg("mask %u is %u, expected %u", t, one->mask[t], mask[t]);
}

static const char *const variants[] = {"reference", "cpu_rows"};

/* Runs a variant on the request as it is. */
static void run_variant(struct small_request *one, const char *variant)
{
    const struct trajd_device_facts facts = {.cpu_threads = 1};
    struct trajd_error error = {0};
    struct trajd_plan *plan;

    if (trajd_plan_create(&one->request, &facts, variant, &plan, &error) ||
        trajd_plan_run(plan, &one->request, NULL, &error))
        fail_msg("%s", error.message);
    trajd_plan_destroy(&plan);
}

/* Runs both variants at `steps` targets and compares values and masks. */
static void expect(struct small_request *one, const int64_t *targets, uint32_t steps,
                   const double *values, const uint8_t *mask, double slack)
{

    memcpy(one->offsets, targets, steps * sizeof *targets);
    one->grid.step_count = steps;
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
        memset(one->out, 0x77, sizeof one->out);
        memset(one->mask, 0x77, sizeof one->mask);
        memset(one->derivative, 0x77, sizeof one->derivative);
        run_variant(one, variants[i]);
        expect_values(one, values, mask, steps, slack);
    }
}

static void test_edges(void **state)
{
    const int64_t targets[] = {-5, 0, 5, 40, 41, TRAJD_NO_TARGET};
    const uint8_t mask[] = {1, 0, 0, 0, 2, 4};
    const double hold[] = {0.5, 0.5, 1, 4.5, 4.5, 0}, zero[] = {0, 0.5, 1, 4.5, 0, 0};
    const double nans[] = {NAN, 0.5, 1, 4.5, NAN, NAN}, rows[] = {0.5, 1.5, 2.5, 4.5};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, rows);
    expect(&one, targets, 6, hold, mask, 0);
    one.stream.edge = TRAJD_EDGE_ZERO;
    expect(&one, targets, 6, zero, mask, 0);
    one.stream.edge = TRAJD_EDGE_NAN;
    expect(&one, targets, 6, nans, mask, 0);
}

static void test_zero_is_before_normalisation(void **state)
{
    const int64_t targets[] = {-5, 10, 99};
    const uint8_t mask[] = {1, 0, 2};
    const double values[] = {7, 10, 7};
    const float scale = 3, offset = 7;
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    one.stream.edge = TRAJD_EDGE_ZERO;
    one.stream.scale = &scale;
    one.stream.offset = &offset;
    expect(&one, targets, 3, values, mask, 0);
}

static void test_age(void **state)
{
    const int64_t targets[] = {40, 45, 50, 51};
    const uint8_t mask[] = {0, 0, 0, 7}, beyond[] = {2, 2, 2, 2};
    const double values[] = {4, 4, 4, 4}, zeros[] = {0, 0, 0, 0};
    const int64_t later[] = {41, 42, 43, 44};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_PREVIOUS, 1, small_request_ramp);
    one.stream.max_age_ns = 10;
    one.stream.edge = TRAJD_EDGE_ZERO; /* a row is held for any edge */
    expect(&one, targets, 4, values, mask, 0);
    one.stream.max_age_ns = -1;
    expect(&one, later, 4, zeros, beyond, 0);
}

static void test_a_bracket_masks_steps(void **state)
{
    const int64_t targets[] = {-5, 10, 41, 42, 43, 44};
    const uint8_t mask[] = {1, 0, 2, 7, 7, 2}, missing[] = {6, 6, 6, 6, 6, 6};
    const double values[] = {0, 1, 4, 4, 4, 4}, none[] = {0, 0, 0, 0, 0, 0};
    const uint32_t begin = 3, end = 5, past_all = 99;
    const void *no_rows = NULL;
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_PREVIOUS, 1, small_request_ramp);
    one.bracket.too_old_begin = &begin;
    one.bracket.too_old_end = &end;
    expect(&one, targets, 6, values, mask, 0);
    one.bracket.too_old_end = &past_all;
    one.stream.bases = &no_rows;
    expect(&one, targets, 6, none, missing, 0);
}

static void test_gap_is_strictly_inside_a_hole(void **state)
{
    const int64_t targets[] = {15, 20, 21, 40};
    const uint8_t mask[] = {0, 0, 3, 0}, none[] = {0, 0, 0, 0};
    const double values[] = {1.5, 2, 2.1, 4};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    one.stream.max_gap_ns = 19;
    expect(&one, targets, 4, values, mask, 1e-15);
    one.stream.max_gap_ns = 20;
    expect(&one, targets, 4, values, none, 1e-15);
}

static void test_unused_neighbour_does_not_spread(void **state)
{
    const double rows[] = {0, NAN, 2, NAN};
    const int64_t targets[] = {0, 5, 20, 30, 40};
    const uint8_t mask[] = {0, 5, 0, 5, 5}, picked[] = {0, 0, 0, 0, 5};
    const double values[] = {0, NAN, 2, NAN, NAN}, held[] = {0, 0, 2, 2, NAN};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, rows);
    expect(&one, targets, 5, values, mask, 0);
    one.stream.kind = TRAJD_KIND_PREVIOUS;
    expect(&one, targets, 5, held, picked, 0);
}

static void test_nearest_takes_the_later_of_two(void **state)
{
    const int64_t targets[] = {4, 5, 6, 29, 30, 31, 40};
    const double values[] = {0, 1, 1, 2, 4, 4, 4};
    const uint8_t mask[7] = {0};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_NEAREST, 1, small_request_ramp);
    expect(&one, targets, 7, values, mask, 0);
}

static void test_no_rows(void **state)
{
    const int64_t targets[] = {0, TRAJD_NO_TARGET};
    const uint8_t empty[] = {1, 4}, missing[] = {6, 6};
    const double zeros[] = {0, 0};
    const void *bases[] = {NULL};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    one.count = 0;
    expect(&one, targets, 2, zeros, empty, 0);
    one.grid.unit = TRAJD_GRID_ROWS;
    expect(&one, targets, 2, zeros, empty, 0);
    one.stream.bases = bases;
    expect(&one, targets, 2, zeros, missing, 0);
}

static void test_row_steps(void **state)
{
    const int64_t targets[] = {-1, 0, 3, 4};
    const uint8_t mask[] = {1, 0, 0, 2}, held[] = {1, 0, 0, 0};
    const double values[] = {0, 0, 4, 4}, means[] = {0, 0, 3, 4};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    one.grid.unit = TRAJD_GRID_ROWS;
    expect(&one, targets, 4, values, mask, 0);
    one.stream.max_age_ns = 0;
    expect(&one, targets, 4, values, held, 0);
    one.stream.kind = TRAJD_KIND_MEAN;
    one.stream.mean_width = 2;
    expect(&one, targets, 4, means, held, 0);
}

static void test_mean(void **state)
{
    const double rows[] = {1, NAN, 3, NAN, 5, NAN, 7, 8};
    const int64_t targets[] = {-1, 0, 10, 20, 39, 40, 50};
    const uint8_t mask[] = {5, 5, 5, 5, 5, 0, 2};
    const double values[] = {1, NAN, 1, NAN, 2, NAN, 4, NAN, 5, NAN, 7, 8, 7, 8};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_MEAN, 2, rows);
    expect(&one, targets, 7, values, mask, 0);
}

/* 1 + 2/2 + 4/4 + 8/8, and so on; the rows after the last that the window may see do not count */
static void test_total(void **state)
{
    const double rows[] = {1, 2, 4, 8}, with_nan[] = {1, NAN, 4, 8};
    const int64_t targets[] = {-1, 0, 1, 2, 3, 4};
    const uint8_t mask[] = {1, 0, 0, 0, 0, 2}, masked[] = {5, 5, 5, 0, 0, 2},
                  short_mask[] = {1, 0, 0, 2, 2, 2};
    const double halves[] = {4, 4, 6, 8, 8, 8}, broken[] = {NAN, NAN, NAN, 8, 8, 8};
    const double alone[] = {1, 1, 2, 4, 8, 8}, clipped[] = {3, 3, 2, 2, 2, 2};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_PREVIOUS, 1, rows);
    one.grid.unit = TRAJD_GRID_ROWS;
    one.stream.total = TRAJD_TOTAL_REST;
    one.stream.total_gamma = 0.5;
    expect(&one, targets, 6, halves, mask, 0);
    one.stream.total_gamma = 0;
    expect(&one, targets, 6, alone, mask, 0);
    one.count = 2;
    one.stream.total_gamma = 1;
    expect(&one, targets, 6, clipped, short_mask, 0);
    small_request_set_up(&one, TRAJD_KIND_PREVIOUS, 1, with_nan);
    one.grid.unit = TRAJD_GRID_ROWS;
    one.stream.total = TRAJD_TOTAL_REST;
    one.stream.total_gamma = 0.5;
    expect(&one, targets, 6, broken, masked, 0);
}

/* Rows at 0, 10, 20 and 40. A row at the border of two steps belongs to the later one. */
static void test_total_of_a_step(void **state)
{
    const double rows[] = {1, 2, 4, 8};
    const int64_t every_15[] = {-15, 0, 15, 30, 45}, every_10[] = {0, 10, 20, 30, 40, 50},
                  borders[] = {0, 11, 20, 21}, ends[] = {20, 40}, late[] = {20, 50};
    const uint8_t all[] = {0, 0, 0, 0, 0}, padded[] = {1, 0, 0, 0, 2},
                  late_mask[] = {0, 0, 0, 0, 0, 2}, half[] = {0, 2}, gaps[] = {0, 0, 3, 3, 0, 2};
    const double by_15[] = {0, 3, 4, 8, 0}, by_10[] = {1, 2, 4, 0, 8, 0},
                 by_border[] = {3, 0, 4, 8};
    const double by_end[] = {4, 8}, by_late[] = {12, 0};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_PREVIOUS, 1, rows);
    one.stream.total = TRAJD_TOTAL_STEP;
    one.stream.total_width = 15;
    expect(&one, every_15, 5, by_15, padded, 0);
    one.stream.total_width = 10;
    expect(&one, every_10, 6, by_10, late_mask, 0);
    one.stream.max_gap_ns = 15; /* 20 ns lie between the last two rows */
    expect(&one, every_10, 6, by_10, gaps, 0);
    one.stream.max_gap_ns = -1;
    one.stream.total_width = 20;
    expect(&one, borders, 4, by_border, all, 0);
    one.stream.total_width = 29; /* the last interval is 20 ns: the next row would be at 60 */
    expect(&one, ends, 2, by_end, all, 0);
    one.stream.total_width = 30;
    expect(&one, ends, 2, by_end, half, 0);
    expect(&one, late, 2, by_late, half, 0);
    one.count = 0;
    expect(&one, late, 1, (double[]){0}, (uint8_t[]){1}, 0);
}

static void test_angle(void **state)
{
    const double rows[] = {350, 10, 190, -170}, tiny[] = {-1e-17, 10, 190, -170};
    const int64_t targets[] = {5, 10, 15, 30};
    const uint8_t mask[] = {0, 0, 0, 0};
    const double free_values[] = {360, 10, -80, 190}, ranged[] = {0, 10, 280, 190};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_ANGLE, 1, rows);
    expect(&one, targets, 4, free_values, mask, 1e-12); /* a difference of 180 counts as -180 */
    one.stream.angle_low = 0;
    expect(&one, targets, 4, ranged, mask, 1e-12);
    /* a full period more than a tiny negative number is the period, which is not in the range */
    small_request_set_up(&one, TRAJD_KIND_ANGLE, 1, tiny);
    one.stream.angle_low = 0;
    expect(&one, (int64_t[]){0}, 1, (double[]){0}, mask, 1e-12);
}

static void test_quaternions(void **state)
{
    const double h = 0.70710678118654752;
    /* the second: 90 degrees about z, of length two, with the other sign */
    const double rows[] = {0, 0, 0, 1, 0, 0, -2 * h, -2 * h, 0, 0, 0, 0, 0, 0, 0, 1 + 1e-6};
    const int64_t targets[] = {0, 5, 10, 15, 20, 40};
    const uint8_t mask[] = {0, 0, 0, 5, 5, 0};
    const double values[] = {0,
                             0,
                             0,
                             1,
                             0,
                             0,
                             0.38268343236508978,
                             0.92387953251128674,
                             0,
                             0,
                             -h,
                             -h,
                             NAN,
                             NAN,
                             NAN,
                             NAN,
                             NAN,
                             NAN,
                             NAN,
                             NAN,
                             0,
                             0,
                             0,
                             1 + 1e-6};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_SLERP_XYZW, 4, rows);
    small_request_add_derivative(&one);
    expect(&one, targets, 6, values, mask, 1e-15);
    /* 90 degrees in 10 ns */
    assert_true(fabsf(one.derivative[2] - 1.5707963e8f) < 20 && fabsf(one.derivative[0]) < 1e-3f);
}

/* Between rows half a turn apart both arcs are equally long, and the dot product of the unit
 * quaternions is 0 but for rounding. The value goes to the next row as it is stored, and so does the
 * rate. */
static void test_half_turns(void **state)
{
    /* their dot products: -7e-17; -1e-17, or 0 with the scalar added first; 0 */
    static const double turns[][8] = {{0.3, 0.1, 0.7, 0.2, -0.7, 0.2, 0.3, -0.1},
                                      {0.7, 0.1, 0.3, -0.6, -0.3, -0.6, 0.7, -0.1},
                                      {0.201171875, -0.435546875, 0.37109375, -0.796875, 0.44921875,
                                       -0.71484375, -0.44921875, 0.294921875}};
    static const enum trajd_kind kinds[] = {TRAJD_KIND_SLERP_XYZW, TRAJD_KIND_SLERP_WXYZ};
    const int64_t target = 5;
    const uint8_t mask = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(turns); i++)
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            double rows[16] = {0}, p[4], q[4], middle[4], turn[3];
            struct small_request one;

            memcpy(rows, turns[i], sizeof turns[i]);
            memcpy(p, rows, sizeof p);
            memcpy(q, rows + 4, sizeof q);
            trajd_quaternion_make_unit(p);
            trajd_quaternion_make_unit(q);
            for (int d = 0; d < 4; d++)
                middle[d] = (p[d] + q[d]) / sqrt(2);
            trajd_quaternion_turn(kinds[k], p, middle, turn); /* a quarter turn: no tie */
            small_request_set_up(&one, kinds[k], 4, rows);
            small_request_add_derivative(&one);
            expect(&one, &target, 1, middle, &mask, 1e-12);
            for (size_t v = 0; v < ARRAY_LEN(variants); v++) {
                memset(one.derivative, 0x77, sizeof one.derivative);
                run_variant(&one, variants[v]);
                for (uint32_t d = 0; d < 3; d++)
                    if (!(fabs((double)one.derivative[d] - 2 * turn[d] * 1e8) < 100)) /* of 3e8 */
                        fail_msg("%s: rate %u is %.9g, expected %.9g", variants[v], d,
                                 (double)one.derivative[d], 2 * turn[d] * 1e8);
            }
        }
}

static void test_slopes(void **state)
{
    const int64_t targets[] = {-1, 0, 15, 20, 40, 41};
    const uint8_t mask[] = {1, 0, 0, 0, 0, 2};
    const double values[] = {0, 0, 1.5, 2, 4, 4};
    const float slopes[] = {0, 1e8f, 1e8f, 1e8f, 1e8f, 0};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    small_request_add_derivative(&one);
    expect(&one, targets, 6, values, mask, 0);
    for (int t = 0; t < 6; t++)
        assert_true(one.derivative[t * 4] == slopes[t]);
    one.count = 1;
    expect(&one, (const int64_t[]){0}, 1, values, (const uint8_t[]){0}, 0);
    assert_true(one.derivative[0] == 0);
}

/* For an observation, rows after the anchor do not exist, whatever they hold. */
static void test_clipped_rows_are_not_read(void **state)
{
    const double rows[] = {1, 3, NAN, NAN};
    const int64_t targets[] = {5, 10, 14};
    const uint8_t mask[] = {0, 0, 0};
    const double values[] = {2, 3, 3};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, rows);
    one.count = 2;
    one.stream.max_age_ns = 10;
    expect(&one, targets, 3, values, mask, 0);
}

static void test_integers_are_copied_exactly(void **state)
{
    const int64_t big[] = {INT64_MAX, INT64_MIN + 1, (INT64_C(1) << 53) + 1, -1};
    const int64_t targets[] = {0, 10, 20, 40};
    double wanted[4];
    struct small_request one;

    (void)state;
    memcpy(wanted, big, sizeof big);
    small_request_set_up(&one, TRAJD_KIND_PREVIOUS, 1, wanted);
    one.stream.source_type = one.stream.output_type = TRAJD_I64;
    memcpy(one.offsets, targets, sizeof targets);
    one.grid.step_count = 4;
    trajd_resample_reference(&one.request, 0, 1);
    assert_memory_equal(one.out, big, sizeof big);
}

/* Every f16 and bf16 value except NaN survives the way to double and back. */
static void test_halves_round_trip(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        double f16 = trajd_f16_to_double((uint16_t)bits),
               bf16 = (double)trajd_bf16_to_float((uint16_t)bits);
        assert_true(isnan(f16) ? isnan(trajd_f16_to_double(trajd_f16_from_double(f16)))
                               : trajd_f16_from_double(f16) == bits);
        assert_true(isnan(bf16) ? isnan(trajd_bf16_to_float(trajd_bf16_from_double(bf16)))
                                : trajd_bf16_from_double(bf16) == bits);
    }
}

/* Two windows of two rows each, as arrays of B and as a dense bracket. */
static void test_dense_windows_are_arrays_of_b(void **state)
{
    const int64_t begin[] = {0, 2}, count[] = {2, 2}, anchor[] = {0, 0};
    const int64_t targets[] = {-1, 0, 5, 10, 25, 40};
    const struct trajd_bracket brackets[] = {
        {.row_begin = begin, .row_count = count, .anchor = anchor}, {.dense_row_count = 2}};
    const double expected[2][6] = {{0, 0, 0.5, 1, 1, 1}, {2, 2, 2, 2, 2.5, 4}};
    const uint8_t mask[2][6] = {{1, 0, 0, 0, 2, 2}, {1, 1, 1, 1, 0, 0}};
    struct small_request one;

    (void)state;
    small_request_set_up(&one, TRAJD_KIND_LINEAR, 1, small_request_ramp);
    memcpy(one.offsets, targets, sizeof targets);
    one.grid.step_count = ARRAY_LEN(targets);
    one.request.window_count = 2;
    one.stream.window_stride_bytes = sizeof expected[0];
    one.stream.mask_window_stride_bytes = sizeof mask[0];
    for (size_t i = 0; i < ARRAY_LEN(brackets); i++) {
        uint8_t masks[2][6];
        one.bracket = brackets[i];
        one.stream.mask = masks[0];
        for (size_t v = 0; v < ARRAY_LEN(variants); v++) {
            memset(one.out, 0x77, sizeof one.out);
            memset(masks, 0x77, sizeof masks);
            run_variant(&one, variants[v]);
            assert_memory_equal(one.out, expected, sizeof expected);
            assert_memory_equal(masks, mask, sizeof mask);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_zero_is_before_normalisation),
        cmocka_unit_test(test_age),
        cmocka_unit_test(test_a_bracket_masks_steps),
        cmocka_unit_test(test_gap_is_strictly_inside_a_hole),
        cmocka_unit_test(test_unused_neighbour_does_not_spread),
        cmocka_unit_test(test_nearest_takes_the_later_of_two),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_row_steps),
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_total),
        cmocka_unit_test(test_total_of_a_step),
        cmocka_unit_test(test_angle),
        cmocka_unit_test(test_quaternions),
        cmocka_unit_test(test_half_turns),
        cmocka_unit_test(test_slopes),
        cmocka_unit_test(test_clipped_rows_are_not_read),
        cmocka_unit_test(test_integers_are_copied_exactly),
        cmocka_unit_test(test_halves_round_trip),
        cmocka_unit_test(test_dense_windows_are_arrays_of_b),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
