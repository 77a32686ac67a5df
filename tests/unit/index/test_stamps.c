/* stamps.c: exact conversion, and the rows that the policies keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/index/stamps.h"
#include "proto/array_len.h"

static void seconds_round_to_the_nearest_ns(void **state)
{
    int64_t ns = 0;

    (void)state;
    assert_true(trajd_stamp_from_f64(0.05, TRAJD_UNIT_S, &ns));
    assert_int_equal(ns, 50000000);
    assert_true(trajd_stamp_from_f64(-0.05, TRAJD_UNIT_S, &ns));
    assert_int_equal(ns, -50000000);
    assert_true(trajd_stamp_from_f64(0.5e-9, TRAJD_UNIT_S,
                                     &ns)); /* 0.5e-9 is stored a little above one half */
    assert_int_equal(ns, 1);
    assert_true(trajd_stamp_from_f64(0.5, TRAJD_UNIT_NS, &ns)); /* an exact tie: away from zero */
    assert_int_equal(ns, 1);
    assert_true(trajd_stamp_from_f64(-0.5, TRAJD_UNIT_NS, &ns));
    assert_int_equal(ns, -1);
    assert_true(trajd_stamp_from_f64(0.49999999999999994, TRAJD_UNIT_NS,
                                     &ns)); /* adding one half in double would round up */
    assert_int_equal(ns, 0);
    assert_true(trajd_stamp_from_f64(1e-300, TRAJD_UNIT_S, &ns));
    assert_int_equal(ns, 0);
}

static void large_seconds_are_exact(void **state)
{
    int64_t ns = 0;

    (void)state;
    /* 1700000000.123456789 is stored as 1700000000.1234567165374755859375 */
    assert_true(trajd_stamp_from_f64(1700000000.123456789, TRAJD_UNIT_S, &ns));
    assert_int_equal(ns, INT64_C(1700000000123456717));
    assert_true(trajd_stamp_from_f64(9007199254740993.0, TRAJD_UNIT_NS, &ns));
    assert_int_equal(ns, INT64_C(9007199254740992)); /* the value of the double */
    assert_true(trajd_stamp_from_f64(0x1p62, TRAJD_UNIT_NS, &ns));
    assert_int_equal(ns, INT64_C(1) << 62);
}

static void values_beyond_int64_are_refused(void **state)
{
    int64_t ns = 77;

    (void)state;
    assert_false(trajd_stamp_from_f64((double)NAN, TRAJD_UNIT_S, &ns));
    assert_false(trajd_stamp_from_f64((double)INFINITY, TRAJD_UNIT_S, &ns));
    assert_false(trajd_stamp_from_f64(-(double)INFINITY, TRAJD_UNIT_NS, &ns));
    assert_false(trajd_stamp_from_f64(1e10, TRAJD_UNIT_S, &ns));
    assert_false(trajd_stamp_from_f64(0x1p63, TRAJD_UNIT_NS, &ns));
    assert_false(trajd_stamp_from_f64(1e308, TRAJD_UNIT_S, &ns));
    assert_false(trajd_stamp_from_i64(INT64_MAX, TRAJD_UNIT_US, &ns));
    assert_int_equal(ns, 77);
    assert_true(trajd_stamp_from_i64(INT64_MIN, TRAJD_UNIT_NS, &ns));
    assert_int_equal(ns, INT64_MIN);
    assert_true(trajd_stamp_from_i64(-3, TRAJD_UNIT_MS, &ns));
    assert_int_equal(ns, -3000000);
}

static void a_column_is_converted_with_its_stride(void **state)
{
    const double states[] = {0.1, 9, 0.2, 9, 0.3, 9};
    const uint32_t micros[] = {1, 2, 4000000000u};
    int64_t ns[3];

    (void)state;
    assert_int_equal(trajd_stamps_convert(TRAJD_F64, states, 3, 2, TRAJD_UNIT_S, ns, NULL),
                     TRAJD_OK);
    assert_int_equal(ns[0], 100000000);
    assert_int_equal(ns[2], 300000000);
    assert_int_equal(trajd_stamps_convert(TRAJD_U32, micros, 3, 1, TRAJD_UNIT_US, ns, NULL),
                     TRAJD_OK);
    assert_int_equal(ns[2], INT64_C(4000000000000));
}

static void a_bad_stamp_is_named_with_its_row(void **state)
{
    const double nan_second[] = {0, (double)NAN};
    const uint64_t too_large[] = {1, 2, UINT64_MAX};
    const uint8_t truth[] = {1};
    struct trajd_error error;
    int64_t ns[3];

    (void)state;
    assert_int_equal(trajd_stamps_convert(TRAJD_F64, nan_second, 2, 1, TRAJD_UNIT_S, ns, &error),
                     TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "row 1"));
    assert_non_null(strstr(error.message, "NaN"));
    assert_int_equal(trajd_stamps_convert(TRAJD_U64, too_large, 3, 1, TRAJD_UNIT_NS, ns, &error),
                     TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "row 2"));
    assert_int_equal(trajd_stamps_convert(TRAJD_BOOL, truth, 1, 1, TRAJD_UNIT_NS, ns, &error),
                     TRAJD_ERR_DATA);
}

struct policy_case {
    enum trajd_stamp_policy repeated, backward;
    uint64_t kept;
    uint32_t rows[8]; /* kept; with kept 0: rows[0] is the row that the error names */
};

static void policies_keep_the_right_rows(void **state)
{
    static const int64_t stamps[8] = {10, 20, 20, 30, 15, 25, 40, 40};
    static const struct policy_case cases[] = {
        {TRAJD_STAMPS_ERROR, TRAJD_STAMPS_DROP, 0, {2}},
        {TRAJD_STAMPS_DROP, TRAJD_STAMPS_ERROR, 0, {4}},
        {TRAJD_STAMPS_DROP, TRAJD_STAMPS_DROP, 4, {0, 1, 3, 6}},
        {TRAJD_STAMPS_KEEP_LAST, TRAJD_STAMPS_DROP, 4, {0, 2, 3, 7}},
        {TRAJD_STAMPS_DROP, TRAJD_STAMPS_KEEP_LAST, 4, {0, 4, 5, 6}},
        {TRAJD_STAMPS_KEEP_LAST, TRAJD_STAMPS_KEEP_LAST, 4, {0, 4, 5, 7}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_error error = {0};
        int64_t copy[8];
        uint32_t rows[8];
        uint64_t kept = 0;
        char named[16];
        enum trajd_status status;

        memcpy(copy, stamps, sizeof copy);
        status =
            trajd_stamps_filter(copy, rows, 8, cases[i].repeated, cases[i].backward, &kept, &error);
        snprintf(named, sizeof named, "row %u:", cases[i].rows[0]);
        assert_int_equal(status, cases[i].kept ? TRAJD_OK : TRAJD_ERR_DATA);
        assert_int_equal(kept, cases[i].kept);
        if (status)
            assert_non_null(strstr(error.message, named));
        for (uint64_t k = 0; k < kept; k++) {
            assert_int_equal(rows[k], cases[i].rows[k]);
            assert_int_equal(copy[k], stamps[rows[k]]);
        }
    }
}

static void equal_stamps_have_a_message_of_their_own(void **state)
{
    int64_t stamps[3] = {5, 5, 5}, one[1] = {5};
    uint32_t rows[3];
    uint64_t kept;
    struct trajd_error error;

    (void)state;
    assert_int_equal(
        trajd_stamps_filter(stamps, rows, 3, TRAJD_STAMPS_ERROR, TRAJD_STAMPS_ERROR, &kept, &error),
        TRAJD_ERR_DATA);
    assert_non_null(strstr(error.message, "too coarse"));
    assert_int_equal(
        trajd_stamps_filter(one, rows, 1, TRAJD_STAMPS_ERROR, TRAJD_STAMPS_ERROR, &kept, &error),
        TRAJD_OK);
    assert_int_equal(kept, 1);
    assert_int_equal(
        trajd_stamps_filter(stamps, rows, 3, TRAJD_STAMPS_DROP, TRAJD_STAMPS_ERROR, &kept, &error),
        TRAJD_OK);
    assert_int_equal(kept, 1);
    assert_int_equal(
        trajd_stamps_filter(stamps, rows, 0, TRAJD_STAMPS_ERROR, TRAJD_STAMPS_ERROR, &kept, &error),
        TRAJD_OK);
    assert_int_equal(kept, 0);
}

static void stamps_of_another_rate_are_off_the_grid(void **state)
{
    static const uint32_t rows[] = {2, 3, 7};
    const struct trajd_rate rate = {10, 1};
    const int64_t even[] = {5, 100000005, 200000005, 299999000};
    const int64_t late[] = {0, 200000001}; /* by a step and a unit of 1 ns */
    const int64_t later[] = {0, 200000002};
    const int64_t fast[] = {0, 50000000, 100000000, 150000000};
    const int64_t gap[] = {7, 100000007, 500000007};         /* of dropped rows */
    const int64_t coarse[] = {0, 0, 1000000000, 1000000000}; /* in whole seconds */

    (void)state;
    assert_int_equal(trajd_stamps_find_off_grid(even, NULL, 4, rate, TRAJD_UNIT_NS), 4);
    assert_int_equal(trajd_stamps_find_off_grid(late, NULL, 2, rate, TRAJD_UNIT_NS), 2);
    assert_int_equal(trajd_stamps_find_off_grid(later, NULL, 2, rate, TRAJD_UNIT_NS), 1);
    assert_int_equal(trajd_stamps_find_off_grid(fast, NULL, 4, rate, TRAJD_UNIT_NS), 3);
    assert_int_equal(trajd_stamps_find_off_grid(fast, NULL, 3, rate, TRAJD_UNIT_NS), 3);
    assert_int_equal(trajd_stamps_find_off_grid(gap, rows, 3, rate, TRAJD_UNIT_NS), 3);
    assert_int_equal(trajd_stamps_find_off_grid(gap, NULL, 3, rate, TRAJD_UNIT_NS), 2);
    assert_int_equal(trajd_stamps_find_off_grid(coarse, NULL, 4, rate, TRAJD_UNIT_S), 4);
    assert_int_equal(trajd_stamps_find_off_grid(even, NULL, 0, rate, TRAJD_UNIT_NS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_round_to_the_nearest_ns),
        cmocka_unit_test(large_seconds_are_exact),
        cmocka_unit_test(values_beyond_int64_are_refused),
        cmocka_unit_test(a_column_is_converted_with_its_stride),
        cmocka_unit_test(a_bad_stamp_is_named_with_its_row),
        cmocka_unit_test(policies_keep_the_right_rows),
        cmocka_unit_test(equal_stamps_have_a_message_of_their_own),
        cmocka_unit_test(stamps_of_another_rate_are_off_the_grid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
