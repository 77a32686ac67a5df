/* The clocks of an index: stamps, origins, row counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proto/array_len.h"
#include "tests/support/index_files.h"

static void unequal_lengths_stand_on_regular_clocks(void **state)
{
    struct trajd_index *index = open_named("unequal.hdf5", "robomimic");
    const struct trajd_episode *episode = &index->episodes[0];

    (void)state;
    assert_int_equal(episode->clocks[0].row_count, 40); /* as the key "rows: actions" requires */
    assert_int_equal(episode->clocks[0].rate.num, 20);  /* the default */
    assert_int_equal(episode->clocks[0].rate_source, TRAJD_RATE_ASSUMED);
    assert_int_equal(episode->extents[stream_of(index, "obs/longer")->array_index].shape[0], 41);
    assert_int_equal(episode->extents[stream_of(index, "obs/shorter")->array_index].shape[0], 35);
    trajd_index_destroy(&index);
}

/* What counts: the rate of the options, the attribute trajd_resample, the layout's attribute, and
 * last an assumed rate. */
static void the_rate_that_counts(void **state)
{
    static const struct {
        const char *file;
        struct trajd_rate rate, assumed_rate, expected;
        enum trajd_rate_source source;
        const char *text;
    } cases[] = {
        {"unequal", {0, 0}, {0, 0}, {20, 1}, TRAJD_RATE_ASSUMED, "20 Hz (assumed)"},
        {"unequal", {0, 0}, {50, 1}, {50, 1}, TRAJD_RATE_ASSUMED, "50 Hz (assumed)"},
        {"unequal", {15, 2}, {50, 1}, {15, 2}, TRAJD_RATE_DECLARED, "7.5 Hz"},
        {"good", {0, 0}, {50, 1}, {25, 1}, TRAJD_RATE_DECLARED, "25 Hz"},
        {"good", {20, 1}, {0, 0}, {20, 1}, TRAJD_RATE_DECLARED, "20 Hz"},
        {"resampled", {0, 0}, {50, 1}, {25, 2}, TRAJD_RATE_DECLARED, "12.5 Hz"},
        {"resampled", {20, 1}, {0, 0}, {20, 1}, TRAJD_RATE_DECLARED, "20 Hz"},
        {"resampled_badly", {20, 1}, {0, 0}, {20, 1}, TRAJD_RATE_DECLARED, "20 Hz"},
    };
    struct trajd_error error;
    struct trajd_index *index;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_index_rates rates = {0};
        char path[512], text[TRAJD_RATES_TEXT_SIZE];
        struct trajd_index_options options = options_for(path, "robomimic");
        snprintf(path, sizeof path, "%s/%s.hdf5", index_folder, cases[i].file);
        options.rate = cases[i].rate;
        options.assumed_rate = cases[i].assumed_rate;
        index = must_open(&options);
        assert_int_equal(index->episodes[0].clocks[0].rate.num, cases[i].expected.num);
        assert_int_equal(index->episodes[0].clocks[0].rate.den, cases[i].expected.den);
        assert_int_equal(index->episodes[0].clocks[0].rate_source, cases[i].source);
        trajd_index_rates_add(index, 0, &rates);
        assert_int_equal(rates.source, cases[i].source);
        assert_string_equal(trajd_index_rates_text(&rates, text), cases[i].text);
        trajd_index_destroy(&index);
    }
    assert_int_not_equal(try_open("resampled_badly.hdf5", "robomimic", &index, &error), TRAJD_OK);
    assert_non_null(strstr(error.message, "demo_0: clock actions: \"soon\" of "
                                          "/@trajd_resample is not a rate"));
}

static void stamps_begin_at_the_origin(void **state)
{
    struct trajd_index *index = open_named("raw_even.hdf5", "robosuite_raw");
    const struct trajd_episode_clock *clock = &index->episodes[0].clocks[0];

    (void)state;
    assert_int_equal(clock->row_count, 40);
    assert_null(clock->kept_rows);
    for (int64_t i = 0; i < 40; i++)
        assert_int_equal(clock->stamps_ns[i], i * 50000000);
    trajd_index_destroy(&index);
    index = open_named("raw_repeats.hdf5", "robosuite_raw");
    clock = &index->episodes[0].clocks[0];
    assert_int_equal(clock->row_count, 39);
    assert_int_equal(clock->dropped_rows, 1);
    assert_int_equal(clock->kept_rows[6], 6);
    assert_int_equal(clock->kept_rows[7], 8);
    assert_int_equal(clock->stamps_ns[7], 400000000);
    trajd_index_destroy(&index);
    index = open_named("raw_longer.hdf5", "robosuite_raw"); /* T+1 actions: the first T count */
    assert_int_equal(index->kept_count, 2);
    assert_int_equal(index->trimmed_row_count, 1);
    assert_int_equal(index->episodes[0].extents[stream_of(index, "actions")->array_index].shape[0],
                     40);
    trajd_index_destroy(&index);
}

/* Writes a layout that uses columns 0:6 and 7:8 of q, which may have more. */
static void write_lab_layout(char layout[512], const char *offset)
{
    static const char text[] =
        "layout: lab\nepisodes: {files: \"*.hdf5\", groups: /ep_*}\nclocks:\n"
        "  arm: {path: t/arm, unit: ns}\n"
        "  wrist: {path: t/wrist, unit: us, latency: 30us}\n"
        "  force: {rate: 1000, start: {path: t/force0, unit: ns}, offset: %s}\n"
        "streams:\n  q: {clock: arm, kind: linear, columns: \"0:6\"}\n"
        "  grip: {path: q, clock: arm, kind: previous, columns: \"7:8\"}\n"
        "  rgb: {clock: wrist, kind: previous, optional: true}\n"
        "  wrench: {clock: force, kind: mean, optional: true}\n";
    FILE *file;

    snprintf(layout, 512, "%s/lab.yaml", index_folder);
    file = fopen(layout, "w");
    assert_true(file && fprintf(file, text, offset) > 0 && !fclose(file));
}

/* Rows must lie equally far apart in all episodes, so the columns that no stream uses count as
 * well. */
static void columns_of_arrays_of_other_widths(void **state)
{
    char layout[512];
    struct trajd_index *index;

    (void)state;
    write_lab_layout(layout, "1us");
    index = open_named("wide_columns.hdf5", layout);
    assert_int_equal(index->kept_count, 2);
    assert_non_null(strstr(index->episodes[2].quarantine,
                           "ep_2: q: its rows are f64 [8]; f64 [9], the shape of 2 of 4 episodes"));
    assert_non_null(strstr(index->episodes[3].quarantine, "ep_3: q: its rows are f64 [12]; f64 "));
    trajd_index_destroy(&index);
}

/* The layout says in which column the stamps are. */
static void stamps_in_a_column_that_is_missing(void **state)
{
    char layout[512];
    struct trajd_error error;

    (void)state;
    for (unsigned column = 4; column < 6; column++) {
        struct trajd_index_options options;
        struct trajd_index *index;
        char path[512];
        FILE *file;
        snprintf(layout, sizeof layout, "%s/far.yaml", index_folder);
        file = fopen(layout, "w");
        assert_true(file &&
                    fprintf(file,
                            "layout: far\nepisodes: {files: '*.hdf5', groups: /data/demo_1}\n"
                            "clocks: {sim: {path: states, column: %u, unit: s, repeated: drop, "
                            "backward: drop}}\nstreams:\n  states: {clock: sim, kind: linear}\n",
                            column) > 0 &&
                    !fclose(file));
        snprintf(path, sizeof path, "%s/raw_even.hdf5", index_folder);
        options = options_for(path, layout);
        if (trajd_index_open(&options, &index, &error) == TRAJD_OK)
            trajd_index_destroy(&index);
        assert_int_equal(strstr(error.message, "has 5 columns, but the layout's stamps are in "
                                               "column 5") != NULL,
                         column == 5);
    }
}

static void clocks_share_one_origin(void **state)
{
    char layout[512];
    struct trajd_index *index;
    const struct trajd_episode *episode;

    (void)state;
    write_lab_layout(layout, "1us");
    index = open_named("lab.hdf5", layout);
    episode = &index->episodes[0];
    assert_null(episode->quarantine);
    /* wrist: ...010 us - 30 us */
    assert_int_equal(episode->origin_ns, INT64_C(1699999999999980000));
    assert_int_equal(episode->clocks[0].stamps_ns[0], 20000);
    assert_int_equal(episode->clocks[0].stamps_ns[1], 2020000);
    assert_int_equal(episode->clocks[1].stamps_ns[0], 0);
    assert_int_equal(episode->clocks[1].stamps_ns[7], 7 * 33333000);
    assert_int_equal(episode->clocks[2].start_ns, 25000);
    assert_int_equal(episode->clocks[2].row_count, 100);
    assert_int_equal(stream_of(index, "grip")->first_column, 7);
    assert_int_equal(stream_of(index, "grip")->feature_count, 1);
    assert_int_equal(stream_of(index, "grip")->array_index, stream_of(index, "q")->array_index);
    assert_non_null(strstr(index->episodes[1].quarantine, "t/arm: all 40 stamps are equal"));
    trajd_index_destroy(&index);
}

/* Sums of two times of an episode fit 64 bits. A clock that is far from the others does not belong
 * to the recording. */
static void clocks_that_lie_far_apart(void **state)
{
    char layout[512];
    struct trajd_index *index;
    struct trajd_error error;

    (void)state;
    write_lab_layout(layout, "2300000000s");
    index = open_named("lab.hdf5", layout);
    assert_null(index->episodes[0].quarantine);
    trajd_index_destroy(&index);
    write_lab_layout(layout, "2310000000s");
    assert_int_not_equal(try_open("lab.hdf5", layout, &index, &error), TRAJD_OK);
    assert_non_null(strstr(error.message, "clock force: it reaches more than 73 years"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_lengths_stand_on_regular_clocks),
        cmocka_unit_test(the_rate_that_counts),
        cmocka_unit_test(stamps_begin_at_the_origin),
        cmocka_unit_test(columns_of_arrays_of_other_widths),
        cmocka_unit_test(stamps_in_a_column_that_is_missing),
        cmocka_unit_test(clocks_share_one_origin),
        cmocka_unit_test(clocks_that_lie_far_apart),
    };

    if (!index_files_choose("make_index_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
