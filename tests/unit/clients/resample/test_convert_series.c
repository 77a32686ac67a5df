/* One stream of one episode as numbers, for plots: rows and steps of a ramp, in spans of time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/resample/convert_series.h"
#include "proto/array_len.h"
#include "tests/support/index_files.h"
#include "tests/unit/clients/resample/convert_fixture.h"

#define MS INT64_C(1000000)

static struct convert_series_options all_of(const struct trajd_index *index, uint32_t episode,
                                            const char *stream)
{
    return (struct convert_series_options){.index = index,
                                           .episode = &index->episodes[episode],
                                           .stream = stream,
                                           .rule = {.kind = TRAJD_CONVERT_NO_KIND},
                                           .rate = {25, 1},
                                           .from_ns = INT64_MIN,
                                           .to_ns = INT64_MAX,
                                           .features_max = 8};
}

static struct convert_series *must_read(const struct convert_series_options *options)
{
    struct convert_series *series;
    struct trajd_error error;

    if (convert_series_read(options, &series, &error))
        fail_msg("%s", error.message);
    return series;
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) < 1e-9))
        fail_msg("%.12g is not %.12g", value, expected);
}

/* plain.hdf5: a row every 20 ms, and a step every 40 ms. Feature d of row r is r * (d + 1) / 2. */
static void spans_have_their_rows_and_steps(void **state)
{
    static const struct {
        int64_t from_ms, to_ms;
        int first_row, rows, first_step, steps;
    } cases[] = {
        {INT64_MIN, INT64_MAX, 0, 10, 0, 5},
        {0, 180, 0, 10, 0, 5},
        {0, 0, 0, 1, 0, 1},
        {1, 180, 1, 9, 1, 4},
        {20, 40, 1, 2, 1, 1},
        {21, 39, 2, 0, 1, 0},
        {40, 120, 2, 5, 1, 3},
        {41, 119, 3, 3, 2, 1},
        {-50, 19, 0, 1, 0, 1},
        {160, 500, 8, 2, 4, 1},
        {161, 1000, 9, 1, 5, 0},
        {180, 180, 9, 1, 5, 0},
    };
    struct trajd_index *index = convert_open_input("plain", "one");

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct convert_series_options options = all_of(index, 0, "q");
        struct convert_series *series;
        struct trajd_error error;
        if (cases[k].from_ms != INT64_MIN) {
            options.from_ns = cases[k].from_ms * MS;
            options.to_ns = cases[k].to_ms * MS;
        }
        if (!cases[k].rows && !cases[k].steps) {
            assert_int_equal(convert_series_read(&options, &series, &error), TRAJD_ERR_NOT_FOUND);
            assert_non_null(
                strstr(error.message, "in that span: it lasts from 0.000 s to 0.180 s"));
            assert_null(series);
            continue;
        }
        series = must_read(&options);
        assert_string_equal(series->kind, "linear");
        assert_int_equal(series->feature_count, 2);
        assert_int_equal(series->features_left_out, 0);
        assert_int_equal(series->rate.num, 25);
        assert_int_equal(series->row_count, cases[k].rows);
        assert_int_equal(series->step_count, cases[k].steps);
        for (int i = 0; i < cases[k].rows; i++) {
            assert_near(series->row_times_s[i], (cases[k].first_row + i) * 0.02);
            for (int d = 0; d < 2; d++)
                assert_near(series->rows[2 * i + d], (cases[k].first_row + i) * (d + 1) * 0.5);
        }
        for (int i = 0; i < cases[k].steps; i++) {
            assert_near(series->step_times_s[i], (cases[k].first_step + i) * 0.04);
            for (int d = 0; d < 2; d++)
                assert_near(series->steps[2 * i + d], (cases[k].first_step + i) * (d + 1));
        }
        convert_series_destroy(&series);
        assert_null(series);
        convert_series_destroy(&series);
    }
    trajd_index_destroy(&index);
}

/* Columns of a dataset whose clock drops rows and has a gap: lab.hdf5, episode ep_1. */
static void rows_are_those_that_the_clock_kept(void **state)
{
    struct trajd_index *index = convert_open_input("lab", "lab");
    struct convert_series_options options = all_of(index, 1, "heading");
    struct convert_series *series;
    const struct trajd_episode_clock *clock = &index->episodes[1].clocks[0];

    (void)state;
    options.rate = (struct trajd_rate){0};
    series = must_read(&options);
    assert_string_equal(series->kind, "angle");
    assert_int_equal(series->rate.num, 20);
    assert_int_equal(series->feature_count, 1);
    assert_int_equal(series->row_count, clock->row_count);
    for (int64_t i = 0; i < clock->row_count; i++) {
        assert_near(series->row_times_s[i], (double)clock->stamps_ns[i] * 1e-9);
        assert_near(series->rows[i], fmod(clock->kept_rows[i] * 40.0, 360));
    }
    assert_true(series->step_count > 10);
    for (uint64_t i = 1; i < series->step_count; i++) /* the gap is in the plot */
        assert_near(series->step_times_s[i] - series->step_times_s[i - 1], 0.05);
    convert_series_destroy(&series);
    options = all_of(index, 1, "pos");
    options.features_max = 2;
    options.rule.kind = TRAJD_KIND_PREVIOUS;
    series = must_read(&options);
    assert_string_equal(series->kind, "previous");
    assert_int_equal(series->feature_count, 2);
    assert_int_equal(series->features_left_out, 1);
    for (int64_t i = 0; i < clock->row_count; i++)
        assert_near(series->rows[2 * i + 1], clock->kept_rows[i]);
    convert_series_destroy(&series);
    trajd_index_destroy(&index);
}

static void what_cannot_be_drawn_is_an_error(void **state)
{
    static const struct {
        const char *input, *layout, *stream;
        struct trajd_rate rate;
        enum trajd_status status;
        const char *word;
    } cases[] = {
        {"plain", "one", "*", {25, 1}, TRAJD_ERR_NOT_FOUND, "name one stream, not a pattern"},
        {"plain", "one", "other", {25, 1}, TRAJD_ERR_NOT_FOUND, "other"},
        {"plain", "one", "q", {-1, 1}, TRAJD_ERR_ARGUMENT, "the rate must be above 0"},
        {"first", NULL, "obs/grasped", {25, 1}, TRAJD_ERR_UNSUPPORTED, "bool cannot be drawn"},
        {"long", NULL, "actions", {20000, 1}, TRAJD_ERR_UNSUPPORTED, "are too many to plot"},
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct trajd_index *index = convert_open_input(cases[k].input, cases[k].layout);
        struct convert_series_options options = all_of(index, 0, cases[k].stream);
        struct convert_series *series;
        struct trajd_error error;
        options.rate = cases[k].rate;
        if (convert_series_read(&options, &series, &error) != cases[k].status ||
            !strstr(error.message, cases[k].word))
            fail_msg("case %zu: %s", k, error.message);
        assert_null(series);
        trajd_index_destroy(&index);
    }
}

static void a_file_that_is_gone_is_an_error(void **state)
{
    struct trajd_index *index;
    struct convert_series_options options;
    struct convert_series *series;
    struct trajd_error error;

    (void)state;
    shell("cp %s/plain.hdf5 %s/gone.hdf5", index_folder, index_folder);
    index = convert_open_input("gone", "one");
    options = all_of(index, 0, "q");
    shell("rm %s/gone.hdf5", index_folder);
    assert_int_equal(convert_series_read(&options, &series, &error), TRAJD_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "gone.hdf5: No such file or directory"));
    assert_null(series);
    trajd_index_destroy(&index);
}

/* More steps than one segment has. */
static void long_spans_are_whole(void **state)
{
    struct trajd_index *index = convert_open_input("long", NULL);
    struct convert_series_options options = all_of(index, 0, "obs/eef_pos");
    struct convert_series *series;

    (void)state;
    options.rate = (struct trajd_rate){40, 1};
    series = must_read(&options);
    assert_int_equal(series->row_count, 90000);
    assert_int_equal(series->step_count, 2 * 90000 - 1);
    for (uint64_t i = 0; i < series->step_count; i++)
        assert_near(series->steps[3 * i + 1], (double)i * 0.5);
    convert_series_destroy(&series);
    trajd_index_destroy(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_have_their_rows_and_steps),
        cmocka_unit_test(rows_are_those_that_the_clock_kept),
        cmocka_unit_test(what_cannot_be_drawn_is_an_error),
        cmocka_unit_test(a_file_that_is_gone_is_an_error),
        cmocka_unit_test(long_spans_are_whole),
    };

    if (!index_files_choose("make_convert_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
