/* Which columns count as stamps, and in which unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#include <cmocka.h>

#include "clients/cli/draft/draft_clocks.h"
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
    {"progress", 0, 0.02, -1, 0}, /* grows, but is no time */
    {"time", 10, -0.1, -1, 0},
    {"time", 3, 0, -1, 0},
    {"joint", 0, 3e-7, -1, 0}, /* no clock of a robot is so fast */
};

static void test_columns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        struct draft_clock clock = {0};
        struct draft_steps steps;
        double values[2 * ROWS];
        for (int row = 0; row < ROWS; row++)
            values[2 * row] = columns[i].begin + row * columns[i].step;
        steps = draft_add_steps(values, ROWS, 2);
        if (columns[i].unit < 0) {
            if (draft_is_clock(&steps, columns[i].name, &clock))
                fail_msg("column %zu (%s) is no clock", i, columns[i].name);
            continue;
        }
        if (!draft_is_clock(&steps, columns[i].name, &clock))
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
    struct draft_steps steps;

    (void)state;
    for (int row = 0; row < ROWS; row++)
        values[row] = 0.02 * (row - row % 5 * 0.1); /* intervals of 0.018 and 0.028 s */
    steps = draft_add_steps(values, ROWS, 1);
    assert_true(draft_is_clock(&steps, "time", &clock));
    assert_true(clock.jitter_percent > 35 && clock.jitter_percent < 45);
    assert_false(draft_is_clock(&steps, "joint", &clock)); /* only a name makes it one */

    values[7] = values[6];
    steps = draft_add_steps(values, ROWS, 1);
    assert_true(draft_is_clock(&steps, "time", &clock));
    assert_true(clock.has_repeats);
    values[9] = values[8] - 0.001;
    steps = draft_add_steps(values, ROWS, 1);
    assert_false(draft_is_clock(&steps, "time", &clock));
    values[9] = NAN;
    steps = draft_add_steps(values, ROWS, 1);
    assert_false(draft_is_clock(&steps, "time", &clock));
    steps = draft_add_steps(values, 2, 1);
    assert_false(draft_is_clock(&steps, "time", &clock)); /* too few rows */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_irregular),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
