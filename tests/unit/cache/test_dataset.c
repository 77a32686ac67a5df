/* Datasets: the times of their clocks, which the kernels read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cache/dataset.h"
#include "proto/array_len.h"
#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

static enum trajd_status open_layout(const char *layout, struct trajd_dataset **dataset,
                                     struct trajd_error *error)
{
    char path[256], layout_path[256];
    struct trajd_dataset_options options = {
        .name = layout, .cache_budget_bytes = 1 << 20, .reader_count = 1};

    snprintf(path, sizeof path, "%s/%s", index_folder, layout);
    snprintf(layout_path, sizeof layout_path, "%s/%s.yaml", index_folder, layout);
    options.index = options_for(path, layout_path);
    return trajd_dataset_open(&options, dataset, error);
}

/* Returns the rows of an episode that need times: those of the clock, or of its longest array. */
static int64_t rows_of(const struct trajd_index *index, const struct trajd_episode *episode,
                       uint32_t clock)
{
    int64_t rows = episode->clocks[clock].row_count;

    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_array *array = &episode->extents[index->streams[s].array_index];
        const int64_t own = (int64_t)trajd_array_row_count(array);
        if (index->streams[s].clock_index == clock && index->clocks[clock].regular && own > rows)
            rows = own;
    }
    return rows;
}

/* Checks the times of a clock that has no common rate. Returns their number. */
static int64_t check_stamps(const struct trajd_dataset *dataset, uint32_t clock)
{
    const struct trajd_index *index = dataset->index;
    int64_t total = 0;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *own = &index->episodes[e].clocks[clock];
        assert_int_equal(dataset->clock_row_begin[clock][e], total);
        if (index->episodes[e].quarantine)
            continue;
        for (int64_t row = 0; row < rows_of(index, &index->episodes[e], clock); row++)
            assert_int_equal(dataset->clock_stamps_ns[clock][total++],
                             own->stamps_ns ? own->stamps_ns[row]
                                            : trajd_rate_row_ns(own->rate, row));
    }
    assert_int_equal(dataset->clock_stamp_count[clock], total);
    return total;
}

static void clocks_have_a_rate_or_stamps(void **state)
{
    static const struct {
        const char *layout;
        uint32_t clock;
        int64_t num, stamps; /* num 0: stamps */
    } cases[] = {{"rows", 0, 0, 6 + 7 + 10 + 12},
                 {"rows", 1, 20, 0},
                 {"rows", 2, 0, 5 + 6 + 8 + 9},
                 {"rows", 3, 0, 27},
                 {"stamped", 0, 0, 5},
                 {"whole", 0, 20, 0},
                 {"groups", 0, 0, -1},
                 {"groups", 1, 0, -1}};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct trajd_dataset *dataset;
        struct trajd_error error;
        const uint32_t clock = cases[k].clock;
        assert_int_equal(open_layout(cases[k].layout, &dataset, &error), TRAJD_OK);
        assert_string_equal(dataset->name, cases[k].layout);
        assert_int_equal(dataset->clock_rates[clock].num, cases[k].num);
        assert_int_equal(dataset->clock_rates[clock].den, cases[k].num ? 1 : 0);
        if (cases[k].num) {
            assert_null(dataset->clock_stamps_ns[clock]);
            assert_null(dataset->clock_row_begin[clock]);
            assert_int_equal(dataset->clock_stamp_count[clock], 0);
        } else {
            const int64_t stamps = check_stamps(dataset, clock);
            if (cases[k].stamps >= 0)
                assert_int_equal(stamps, cases[k].stamps);
        }
        trajd_dataset_destroy(&dataset);
        assert_null(dataset);
        trajd_dataset_destroy(&dataset); /* nothing to do */
    }
}

static void errors_name_the_dataset(void **state)
{
    struct trajd_dataset *dataset = (struct trajd_dataset *)&index_folder;
    struct trajd_error error;

    (void)state;
    assert_int_equal(open_layout("none", &dataset, &error), TRAJD_ERR_NOT_FOUND);
    assert_memory_equal(error.message, "dataset none: ", 14);
    assert_null(dataset);
}

/* ---- rows and times ---- */

static void check_rows_until(const struct trajd_episode_clock *clock, int64_t rows, int64_t x_ns)
{
    int64_t expected = 0;

    while (expected < rows && trajd_clock_row_ns(clock, expected) <= x_ns)
        expected++;
    trajd_clock_fetch_rows_until(clock, rows, x_ns);
    assert_int_equal(trajd_clock_rows_until(clock, rows, x_ns), expected);
}

/* Every time around every stamp, with a line that guesses well, badly or not at all. */
static void rows_are_found_at_every_time(void **state)
{
    int64_t stamps[24];

    (void)state;
    for (int64_t count = 1; count <= (int64_t)ARRAY_LEN(stamps); count++)
        for (int kind = 0; kind < 4; kind++) {
            struct trajd_episode_clock clock = {.row_count = count, .stamps_ns = stamps};
            for (int64_t i = 0; i < count; i++)
                stamps[i] = kind == 0 ? 3 * i : kind == 1 ? i * i * i : kind == 2 ? 40 * i : i / 3;
            clock.rows_per_ns =
                kind == 3 ? 0 : (double)(count - 1) / (double)(stamps[count - 1] + 1);
            clock.row_at_zero = kind == 2 ? 7 : 0;
            for (int64_t rows = 0; rows <= count; rows++)
                for (int64_t i = 0; i < count; i++)
                    for (int64_t x = stamps[i] - 1; x <= stamps[i] + 1; x++)
                        check_rows_until(&clock, rows, x);
        }
}

static void rows_of_regular_clocks_are_found(void **state)
{
    static const struct trajd_rate rates[] = {{20, 1}, {30000, 1001}, {1, 7}, {1000000, 3}};

    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rates); r++) {
        const struct trajd_episode_clock clock = {
            .row_count = 50, .start_ns = -17, .rate = rates[r]};
        for (int64_t n = 0; n < 50; n++) {
            const int64_t at = trajd_clock_row_ns(&clock, n);
            assert_int_equal(at, -17 + trajd_rate_row_ns(rates[r], n));
            for (int64_t x = at - 1; x <= at + 1; x++)
                check_rows_until(&clock, 50, x);
        }
        check_rows_until(&clock, 50, INT64_MAX / 2);
        check_rows_until(&clock, 50, INT64_MIN / 2);
        assert_int_equal(trajd_clock_rows_until(&clock, 50, INT64_MAX - 17), 50);
        assert_int_equal(trajd_clock_rows_until(&clock, 50, INT64_MAX - 18), 50);
    }
}

/* Outside its rows a stamped clock continues with its mean interval. No time leaves the limit. */
static void clocks_continue_outside_their_rows(void **state)
{
    static const int64_t stamps[] = {100, 130, 200};
    const struct trajd_episode_clock stamped = {.row_count = 3, .stamps_ns = stamps},
                                     single = {.row_count = 1, .stamps_ns = stamps},
                                     absent = {.row_count = 0},
                                     regular = {.row_count = 3, .start_ns = 5, .rate = {20, 1}};
    const int64_t far = INT64_C(1) << 61;

    (void)state;
    assert_int_equal(trajd_clock_row_ns(&stamped, -2), 0);
    assert_int_equal(trajd_clock_row_ns(&stamped, -1), 50);
    assert_int_equal(trajd_clock_row_ns(&stamped, 0), 100);
    assert_int_equal(trajd_clock_row_ns(&stamped, 2), 200);
    assert_int_equal(trajd_clock_row_ns(&stamped, 3), 250);
    assert_int_equal(trajd_clock_row_ns(&stamped, 4), 300);
    assert_int_equal(trajd_clock_row_ns(&single, 1), 1000000100);
    assert_int_equal(trajd_clock_row_ns(&single, -1), -999999900);
    assert_int_equal(trajd_clock_row_ns(&absent, 7), 0);
    assert_int_equal(trajd_clock_row_ns(&regular, 1), 50000005);
    assert_int_equal(trajd_clock_row_ns(&stamped, INT64_MAX), far);
    assert_int_equal(trajd_clock_row_ns(&stamped, INT64_MIN), -far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_have_a_rate_or_stamps),
        cmocka_unit_test(errors_name_the_dataset),
        cmocka_unit_test(rows_are_found_at_every_time),
        cmocka_unit_test(rows_of_regular_clocks_are_found),
        cmocka_unit_test(clocks_continue_outside_their_rows),
    };

    if (!index_files_choose("make_scan_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
