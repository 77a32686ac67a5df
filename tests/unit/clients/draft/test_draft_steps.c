/* Which columns count as stamps, and in which unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "clients/cli/draft/draft_facts.h"
#include "proto/array_len.h"

enum { ROWS = 50 };

/* A column of rows begin, begin + step, ... */
static const struct {
    const char *name;
    double begin, step;
    int unit; /* -1: no stamps */
    double rate_hz;
} columns[] = {
    {"time", 0, 0.02, TRAJD_UNIT_S, 50},
    {"t", 5, 0.1, TRAJD_UNIT_S, 10},
    {"stamps", 1.7e9, 0.05, TRAJD_UNIT_S, 20},
    {"stamps", 1.7e12, 50, TRAJD_UNIT_MS, 20},
    {"stamps", 1.7e15, 2000, TRAJD_UNIT_US, 500},
    {"stamps", 1.7e18, 1e6, TRAJD_UNIT_NS, 1000},
    {"time_ms", 0, 20, TRAJD_UNIT_MS, 50},
    {"robot_time_ns", 0, 33333333, TRAJD_UNIT_NS, 30},
    {"clock", 0, 33, TRAJD_UNIT_MS, 30.3}, /* an integer that is too slow for us */
    {"states", 0.05, 0.05, TRAJD_UNIT_S, 20},
    {"frame_index", 0, 1, -1, 0},
    {"states", 0, 1, -1, 0},      /* a counter */
    {"progress", 0, 0.02, -1, 0}, /* grows, but is not a time */
    {"time", 10, -0.1, -1, 0},
    {"time", 3, 0, -1, 0},
    {"joint", 0, 3e-7, -1, 0}, /* no clock of a robot is so fast */
};

static void test_columns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        struct draft_clock clock = {0};
        double values[2 * ROWS];
        for (int row = 0; row < ROWS; row++)
            values[2 * row] = columns[i].begin + row * columns[i].step;
        if (columns[i].unit < 0) {
            if (draft_is_clock(values, ROWS, 2, columns[i].name, &clock))
                fail_msg("column %zu (%s) is not a clock", i, columns[i].name);
            continue;
        }
        if (!draft_is_clock(values, ROWS, 2, columns[i].name, &clock))
            fail_msg("column %zu (%s) is a clock", i, columns[i].name);
        assert_int_equal(clock.unit, columns[i].unit);
        assert_true(fabs(clock.rate_hz / columns[i].rate_hz - 1) < 0.01);
        assert_false(clock.has_repeats);
    }
}

static void test_irregular(void **state)
{
    double values[ROWS];
    struct draft_clock clock = {0};

    (void)state;
    for (int row = 0; row < ROWS; row++)
        values[row] = 0.02 * (row - row % 5 * 0.1); /* intervals of 0.018 and 0.028 s */
    assert_true(draft_is_clock(values, ROWS, 1, "time", &clock));
    assert_true(clock.jitter_percent > 35 && clock.jitter_percent < 45);
    assert_false(draft_is_clock(values, ROWS, 1, "joint", &clock)); /* only a name makes it one */

    values[7] = values[6];
    assert_true(draft_is_clock(values, ROWS, 1, "time", &clock));
    assert_true(clock.has_repeats);
    values[9] = values[8] - 0.001;
    assert_false(draft_is_clock(values, ROWS, 1, "time", &clock));
    values[9] = NAN;
    assert_false(draft_is_clock(values, ROWS, 1, "time", &clock));
    assert_false(draft_is_clock(values, 2, 1, "time", &clock)); /* too few rows */
}

/* Returns what is found for 100 stamps. */
static struct draft_clock clock_of(const char *name, double begin, double step)
{
    double values[100];
    struct draft_clock clock = {0};

    for (int row = 0; row < 100; row++)
        values[row] = begin + row * step;
    assert_true(draft_is_clock(values, 100, 1, name, &clock));
    return clock;
}

static void test_units_of_one_file(void **state)
{
    struct draft_clock clocks[2];

    (void)state;
    /* 1 Hz in us, which would be 1 kHz in ns */
    clocks[0] = clock_of("battery/time", 7e7, 1e6);
    clocks[1] = clock_of("imu/time", 7e7, 1e6 - 7);
    assert_int_equal(clocks[0].unit, TRAJD_UNIT_NS);
    draft_settle_units(clocks, 2);
    assert_int_equal(clocks[0].unit, TRAJD_UNIT_NS); /* both may be ns */
    clocks[1] =
        (struct draft_clock){.unit = TRAJD_UNIT_US, .first = 7e7, .last = 17e7, .rate_hz = 50};
    draft_settle_units(clocks, 2);
    assert_int_equal(clocks[0].unit, TRAJD_UNIT_US);
    assert_true(fabs(clocks[0].rate_hz - 1) < 1e-9);

    /* a name decides, and numbers of another range prove nothing */
    clocks[0] = clock_of("battery/time_ns", 7e7, 1e6);
    draft_settle_units(clocks, 2);
    assert_int_equal(clocks[0].unit, TRAJD_UNIT_NS);
    clocks[0] = clock_of("battery/time", 7e9, 1e6);
    draft_settle_units(clocks, 2);
    assert_int_equal(clocks[0].unit, TRAJD_UNIT_NS);
}

static void test_common_time(void **state)
{
    const struct draft_clock since_1970 = clock_of("time", 1.7e9, 0.5);
    const struct draft_clock since_boot = clock_of("time_ms", 8e6, 1);
    const struct draft_clock in_ns = clock_of("time", 1.7e18 + 30e9, 1e7);

    (void)state;
    assert_false(draft_have_common_time(&since_1970, &since_boot));
    assert_false(draft_have_common_time(&since_boot, &since_1970));
    assert_true(draft_have_common_time(&since_1970, &in_ns));
}

static void test_matrices(void **state)
{
    double pose[2][16] = {{0, -1, 0, 5, 1, 0, 0, 6, 0, 0, 1, 7, 0, 0, 0, 1},
                          {1, 0, 0, 5, 0, 1, 0, 6, 0, 0, 1, 7, 0, 0, 0, 1}};
    double transposed[16], rotation[9] = {0, -1, 0, 1, 0, 0, 0, 0, 1};

    (void)state;
    for (int i = 0; i < 16; i++)
        transposed[i] = pose[0][i % 4 * 4 + i / 4];
    assert_true(draft_are_matrices(pose[0], 2, 16));
    assert_true(draft_are_matrices(transposed, 1, 16));
    assert_true(draft_are_matrices(rotation, 1, 9));
    assert_false(draft_are_matrices(pose[0], 0, 16));
    assert_false(draft_are_matrices(pose[0], 2, 12));
    pose[1][15] = 0;
    assert_false(draft_are_matrices(pose[0], 2, 16));
    pose[1][15] = 1;
    pose[1][0] = NAN;
    assert_false(draft_are_matrices(pose[0], 2, 16));
    rotation[8] = 0.5; /* a covariance */
    assert_false(draft_are_matrices(rotation, 1, 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),           cmocka_unit_test(test_irregular),
        cmocka_unit_test(test_units_of_one_file), cmocka_unit_test(test_common_time),
        cmocka_unit_test(test_matrices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
