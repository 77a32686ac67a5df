/* quaternions.c: which columns are quaternions, and what a user should write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "daemon/layout/quaternions.h"

enum { ROWS = 64, COLUMNS = 24 };

static double rows[ROWS][COLUMNS];
static struct trajd_quaternion found[TRAJD_QUATERNIONS_MAX];

/* Returns numbers between -1 and 1 that look random. */
static double noise(int row, int column)
{
    return sin(12.9898 * row + 78.233 * column) * cos(4.1414 * row * column + 1);
}

static void fill_with_noise(void)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            rows[r][c] = noise(r, c);
}

/* Writes a rotation by an angle that grows with the row, about the axis (x, y, z) of length 1, as
 * (w, x, y, z) or, with `w_last`, (x, y, z, w). */
static void put(int column, double x, double y, double z, bool w_last)
{
    for (int r = 0; r < ROWS; r++) {
        const double half = 0.5 + 0.02 * r, sine = sin(half);
        double *q = rows[r] + column;
        q[w_last ? 3 : 0] = cos(half);
        q += w_last ? 0 : 1;
        q[0] = sine * x;
        q[1] = sine * y;
        q[2] = sine * z;
    }
}

static uint32_t search(uint64_t elements, uint64_t axis, int begin, int end)
{
    static struct trajd_quaternion_search state;

    trajd_quaternion_search_start(&state, elements, axis);
    for (int r = begin; r < end; r++)
        trajd_quaternion_search_add_row(&state, rows[r]);
    return trajd_quaternion_search_end(&state, found);
}

/* Returns the number of quaternions in all rows; found has them. */
static uint32_t count_of(uint64_t elements, uint64_t axis)
{
    return trajd_quaternions_select(found, search(elements, axis, 0, ROWS), elements, axis);
}

static void round_to(double step)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            rows[r][c] = round(rows[r][c] / step) * step;
}

static void they_are_found_at_any_column(void **state)
{
    (void)state;
    for (int column = 0; column + 4 <= COLUMNS; column++) {
        fill_with_noise();
        put(column, 0.48, 0.6, 0.64, false);
        assert_int_equal(count_of(COLUMNS, COLUMNS), 1);
        assert_int_equal(found[0].column, column);
    }
    fill_with_noise();
    put(3, 0.48, 0.6, 0.64, false);
    put(7, 0.6, 0.64, 0.48, true);
    put(18, 0.64, 0.6, 0.48, false);
    assert_int_equal(count_of(COLUMNS, COLUMNS), 3);
    assert_int_equal(found[1].column, 7);
    round_to(1e-4); /* as text files have them */
    assert_int_equal(count_of(COLUMNS, COLUMNS), 3);
}

static void signs_may_flip_and_values_may_be_missing(void **state)
{
    (void)state;
    fill_with_noise();
    put(0, 0.48, 0.6, 0.64, false);
    for (int c = 0; c < 4; c++) {
        rows[0][c] = 0; /* nothing was measured yet */
        rows[9][c] = NAN;
        rows[20][c] *= -1;
    }
    assert_int_equal(count_of(4, 4), 1);
    assert_int_equal(count_of(COLUMNS, COLUMNS), 1);
}

/* A column that is nearly 0 beside a quaternion that has one, too, makes a second group of length
 * 1. */
static void the_group_nearest_to_length_1_is_kept(void **state)
{
    (void)state;
    fill_with_noise();
    put(8, 0.8, 0.6, 0, true); /* (x, y, 0, w) */
    for (int r = 0; r < ROWS; r++) {
        const double tilt = 0.003 * noise(r, 1), length = sqrt(1 + tilt * tilt);
        rows[r][10] = tilt;
        for (int c = 8; c < 12; c++)
            rows[r][c] /= length;
        rows[r][7] = rows[r][12] = 0.01 * noise(r, 2);
    }
    assert_int_equal(count_of(COLUMNS, COLUMNS), 1);
    assert_int_equal(found[0].column, 8);
}

static void a_turn_about_one_axis(void **state)
{
    (void)state;
    memset(rows, 0, sizeof rows);
    put(0, 0, 0, 1, false); /* (w, 0, 0, z): four columns of their own are enough */
    assert_int_equal(count_of(4, 4), 1);
    memset(rows, 0, sizeof rows);
    put(3, 0, 0, 1, true); /* a position, and (0, 0, z, w) behind it */
    assert_int_equal(count_of(7, 7), 1);
    assert_int_equal(found[0].column, 3);
    memset(rows, 0, sizeof rows);
    put(9, 0, 0, 1, true); /* zeros, sine and cosine among many columns: a heading */
    assert_int_equal(count_of(COLUMNS, COLUMNS), 0);
}

static void what_is_none(void **state)
{
    (void)state;
    fill_with_noise();
    assert_int_equal(count_of(COLUMNS, COLUMNS), 0);
    memset(rows, 0, sizeof rows);
    assert_int_equal(count_of(4, 4), 0);
    for (int r = 0; r < ROWS; r++)
        rows[r][r / 10 % 4] = 1; /* one-hot */
    assert_int_equal(count_of(4, 4), 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 4; c++)
            rows[r][c] = 0.5; /* constant */
    assert_int_equal(count_of(4, 4), 0);
    put(0, 0.48, 0.6, 0.64, false);
    rows[40][2] += 0.01; /* one row of another length */
    assert_int_equal(count_of(4, 4), 0);
    for (int r = 0; r < ROWS; r++) {
        const double a = 0.1 * r, b = 0.07 * r;
        const double direction[4] = {cos(a) * cos(b), sin(a) * cos(b), sin(b), 0};
        memcpy(rows[r], direction, sizeof direction);
    }
    assert_int_equal(count_of(4, 4), 0);
    for (int r = 0; r < ROWS; r++) { /* a rotation matrix (3, 3), about z */
        const double a = 0.1 * r;
        const double matrix[9] = {cos(a), -sin(a), 0, sin(a), cos(a), 0, 0, 0, 1};
        memcpy(rows[r], matrix, sizeof matrix);
    }
    assert_int_equal(count_of(9, 9), 0);
    assert_int_equal(count_of(9, 3), 0);
}

static void they_do_not_cross_the_last_axis(void **state)
{
    (void)state;
    fill_with_noise();
    put(0, 0.48, 0.6, 0.64, false);
    put(4, 0.6, 0.64, 0.48, false);
    assert_int_equal(count_of(8, 4), 2);
    assert_int_equal(count_of(8, 8), 2);
    fill_with_noise();
    put(2, 0.48, 0.6, 0.64, false);
    assert_int_equal(count_of(8, 4), 0);
    assert_int_equal(search(TRAJD_QUATERNION_ROW_MAX + 1, 4, 0, 0), 0);
}

static void episodes_are_merged(void **state)
{
    struct trajd_quaternion all[TRAJD_QUATERNIONS_MAX];
    uint32_t count;

    (void)state;
    fill_with_noise();
    put(3, 0.48, 0.6, 0.64, false);
    put(12, 0.48, 0.6, 0.64, false);
    rows[50][13] = 7; /* in the second episode */
    count = search(COLUMNS, COLUMNS, 0, 32);
    assert_int_equal(count, 2);
    memcpy(all, found, sizeof all);
    count = trajd_quaternions_merge(all, count, found, search(COLUMNS, COLUMNS, 32, ROWS));
    assert_int_equal(count, 1);
    assert_int_equal(all[0].column, 3);
    assert_float_equal(all[0].low[0], (float)rows[63][3], 1e-6f);
    assert_float_equal(all[0].high[0], (float)rows[0][3], 1e-6f);
    assert_int_equal(trajd_quaternions_merge(all, count, found, 0), 0);
}

static const char *order_of(double x, double y, double z, bool w_last)
{
    memset(rows, 0, sizeof rows);
    put(0, x, y, z, w_last);
    assert_int_equal(search(4, 4, 0, ROWS), 1);
    return trajd_quaternion_order(&found[0]);
}

static void the_order_is_named_only_where_the_values_show_it(void **state)
{
    (void)state;
    assert_string_equal(order_of(0, 0, 1, false), "wxyz");
    assert_string_equal(order_of(0, 0, 1, true), "xyzw");
    assert_null(order_of(0.48, 0.6, 0.64, false));
    assert_null(order_of(0.48, 0.6, 0.64, true));
    assert_null(order_of(0, 1, 0, true));
}

static void advise(const struct trajd_quaternion_advice *advice, const char *expected)
{
    char text[TRAJD_QUATERNION_ADVICE_SIZE];

    trajd_quaternions_advise(advice, text);
    assert_string_equal(text, expected);
}

static void the_advice_is_an_entry_of_the_layout(void **state)
{
    struct trajd_quaternion three[3] = {{.column = 4}, {.column = 8}, {.column = 20}};
    struct trajd_quaternion_advice advice = {.stream = "obs/q",
                                             .path = "obs/q",
                                             .kind = TRAJD_KIND_LINEAR,
                                             .feature_count = 8,
                                             .elements = 8,
                                             .has_columns = true,
                                             .count = 2,
                                             .quaternions = three};

    (void)state;
    three[0].column = 0, three[1].column = 4;
    advise(
        &advice,
        "columns 0..7 are quaternions, and kind linear blends them as plain numbers: set in the "
        "layout, before other entries for this dataset: obs/q: {path: obs/q, kind: slerp, order: "
        "ORDER} (ORDER is wxyz in states of MuJoCo and in Isaac Lab 2, xyzw in robosuite's obs "
        "and ROS)");
    advice.count = 3, advice.feature_count = advice.elements = 30, advice.kind = TRAJD_KIND_MEAN;
    advice.clock = "arm";
    memcpy(three[2].high, (float[]){1, 0.1f, 0.1f, 1}, sizeof three[2].high);
    advise(&advice,
           "columns 0..7, 20..23 are quaternions, and kind mean blends them as plain numbers: use "
           "kind: previous, or name them in the layout: obs/q_0: {path: obs/q, columns: \"0:8\", "
           "clock: arm, kind: slerp, order: wxyz}, obs/q_20: {path: obs/q, columns: \"20:24\", "
           "clock: arm, kind: slerp, order: wxyz} (this order is likely from the values)");
    advice.has_columns = false;
    advise(&advice, "columns 0..7, 20..23 are quaternions, and kind mean blends them as plain "
                    "numbers: use kind: previous");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_found_at_any_column),
        cmocka_unit_test(signs_may_flip_and_values_may_be_missing),
        cmocka_unit_test(the_group_nearest_to_length_1_is_kept),
        cmocka_unit_test(a_turn_about_one_axis),
        cmocka_unit_test(what_is_none),
        cmocka_unit_test(they_do_not_cross_the_last_axis),
        cmocka_unit_test(episodes_are_merged),
        cmocka_unit_test(the_order_is_named_only_where_the_values_show_it),
        cmocka_unit_test(the_advice_is_an_entry_of_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
