/* convert_gaps.c: spans between gaps, on clocks made by hand. Times are small numbers of ns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "clients/cli/resample/plan/convert_plan.h"
#include "proto/array_len.h"

#define ROWS(stamps) (int64_t) ARRAY_LEN(stamps)

struct span {
    int64_t begin, end, first_row[2];
};

/* Checks two arrays on clocks 0 and 1 (or both on 0), each with its own limit. */
static void check(const struct trajd_episode_clock *clocks, const uint32_t clock_of[2],
                  const int64_t rows[2], const int64_t max_gap[2], int64_t begin, int64_t end,
                  const struct span *expected, size_t count)
{
    struct convert_dataset datasets[2] = {{.clock = clock_of[0], .max_gap_ns = max_gap[0]},
                                          {.clock = clock_of[1], .max_gap_ns = max_gap[1]}};
    const struct convert_plan plan = {.dataset_count = 2, .datasets = datasets};
    struct convert_array arrays[2] = {{.dataset = 0, .rows = rows[0]},
                                      {.dataset = 1, .rows = rows[1]}};
    const struct trajd_episode episode = {.clocks = clocks};
    struct convert_cutter cutter = {
        .plan = &plan, .episode = &episode, .arrays = arrays, .array_count = 2};
    int64_t from, to;

    convert_cutter_begin(&cutter, begin, end);
    for (size_t i = 0; i < count; i++) {
        assert_true(convert_cutter_next(&cutter, &from, &to));
        assert_int_equal(from, expected[i].begin);
        assert_int_equal(to, expected[i].end);
        for (int a = 0; a < 2; a++)
            assert_int_equal(arrays[a].first_row, expected[i].first_row[a]);
    }
    assert_false(convert_cutter_next(&cutter, &from, &to));
    assert_false(convert_cutter_next(&cutter, &from, &to));
    free(cutter.gaps);
}

static void gaps_of_all_streams_count(void **state)
{
    static const int64_t a[] = {0, 10, 20, 100, 110, 120, 130},
                         b[] = {0, 15, 30, 45, 60, 75, 90, 105, 120, 160};
    const struct trajd_episode_clock clocks[] = {{.row_count = ROWS(a), .stamps_ns = a},
                                                 {.row_count = ROWS(b), .stamps_ns = b}};
    const uint32_t own[] = {0, 1};
    const int64_t rows[] = {ROWS(a), ROWS(b)};

    (void)state;
    check(clocks, own, rows, (int64_t[]){-1, -1}, 0, 130, (struct span[]){{0, 130, {0, 0}}}, 1);
    /* exactly as long as the limit */
    check(clocks, own, rows, (int64_t[]){80, 40}, 0, 130, (struct span[]){{0, 130, {0, 0}}}, 1);
    check(clocks, own, rows, (int64_t[]){79, 40}, 0, 130,
          (struct span[]){{0, 20, {0, 0}}, {100, 130, {3, 0}}}, 2);
    /* b's gap ends after the end of the grid */
    check(clocks, own, rows, (int64_t[]){79, 39}, 0, 130,
          (struct span[]){{0, 20, {0, 0}}, {100, 120, {3, 0}}}, 2);
    check(clocks, own, rows, (int64_t[]){-1, 39}, 0, 160,
          (struct span[]){{0, 120, {0, 0}}, {160, 160, {0, 9}}}, 2);
    /* the grid begins inside a gap */
    check(clocks, own, rows, (int64_t[]){79, 39}, 50, 130, (struct span[]){{100, 120, {3, 0}}}, 1);
    /* the whole grid is in a gap */
    check(clocks, own, rows, (int64_t[]){79, -1}, 30, 90, NULL, 0);
    check(clocks, own, rows, (int64_t[]){79, -1}, 20, 90, (struct span[]){{20, 20, {0, 0}}}, 1);
}

/* Rows before a gap that ends when the grid begins must not be averaged into the grid. */
static void gaps_before_the_grid_count(void **state)
{
    static const int64_t a[] = {0, 10, 20, 100, 110, 200, 210, 220}, b[] = {205, 215, 225};
    const struct trajd_episode_clock clocks[] = {{.row_count = ROWS(a), .stamps_ns = a},
                                                 {.row_count = ROWS(b), .stamps_ns = b}};

    (void)state;
    check(clocks, (uint32_t[]){0, 1}, (int64_t[]){8, 3}, (int64_t[]){50, -1}, 205, 220,
          (struct span[]){{205, 220, {5, 0}}}, 1);
    check(clocks, (uint32_t[]){0, 1}, (int64_t[]){8, 3}, (int64_t[]){90, -1}, 205, 220,
          (struct span[]){{205, 220, {0, 0}}}, 1);
    check(clocks, (uint32_t[]){0, 0}, (int64_t[]){8, 8}, (int64_t[]){-1, 50}, 200, 220,
          (struct span[]){{200, 220, {5, 5}}}, 1);
    check(clocks, (uint32_t[]){0, 0}, (int64_t[]){8, 8}, (int64_t[]){50, -1}, 105, 220,
          (struct span[]){{105, 110, {3, 3}}, {200, 220, {5, 5}}}, 2);
}

static void gaps_may_overlap(void **state)
{
    static const int64_t a[] = {0, 10, 60, 70, 80}, b[] = {0, 5, 40, 75, 80}, c[] = {0, 40, 80};
    const struct trajd_episode_clock clocks[] = {{.row_count = ROWS(a), .stamps_ns = a},
                                                 {.row_count = ROWS(b), .stamps_ns = b},
                                                 {.row_count = ROWS(c), .stamps_ns = c}};

    (void)state;
    /* a: 10..60; b: 5..40, 40..75: at no time from 5 to 75 do both arrays have values */
    check(clocks, (uint32_t[]){0, 1}, (int64_t[]){5, 5}, (int64_t[]){30, 30}, 0, 80,
          (struct span[]){{0, 5, {0, 0}}, {75, 80, {2, 3}}}, 2);
    /* if all rows are far apart, each span is a single time */
    check(clocks, (uint32_t[]){2, 2}, (int64_t[]){3, 3}, (int64_t[]){30, -1}, 0, 80,
          (struct span[]){{0, 0, {0, 0}}, {40, 40, {1, 1}}, {80, 80, {2, 2}}}, 3);
}

static void arrays_on_one_clock_begin_together(void **state)
{
    static const int64_t a[] = {0, 10, 60, 70, 80};
    /* a row every 10 ns */
    const struct trajd_episode_clock clocks[] = {{.row_count = ROWS(a), .stamps_ns = a},
                                                 {.rate = {100000000, 1}}};

    (void)state;
    check(clocks, (uint32_t[]){0, 0}, (int64_t[]){5, 4}, (int64_t[]){30, -1}, 0, 70,
          (struct span[]){{0, 10, {0, 0}}, {60, 70, {2, 2}}}, 2);
    check(clocks, (uint32_t[]){0, 1}, (int64_t[]){5, 9}, (int64_t[]){30, 10}, 0, 80,
          (struct span[]){{0, 10, {0, 0}}, {60, 80, {2, 0}}}, 2);
    check(clocks, (uint32_t[]){1, 1}, (int64_t[]){3, 3}, (int64_t[]){9, -1}, 0, 20,
          (struct span[]){{0, 0, {0, 0}}, {10, 10, {1, 1}}, {20, 20, {2, 2}}}, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_of_all_streams_count),
        cmocka_unit_test(gaps_before_the_grid_count),
        cmocka_unit_test(gaps_may_overlap),
        cmocka_unit_test(arrays_on_one_clock_begin_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
