/* Plans on a dataset made by hand: which windows there are, and where their targets lie, to the
 * nanosecond. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_fixture.h"
#include "daemon/window/window_batch.h"
#include "proto/array_len.h"

/* Resamples the first `count` windows of a feed of the first episode, in order. Returns how many
 * windows it has. */
static uint64_t run_feed(struct fixture *f, const char *keys, uint32_t count, int64_t *values,
                         uint8_t *mask)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan;
    struct trajd_error error;
    char text[512];
    uint64_t windows;

    snprintf(text, sizeof text,
             "{dataset: test, filter: train, global_batch: %u, anchor: {clock: camera}, order: "
             "sequential, tail: short, %s}",
             count, keys);
    plan = make_plan(f, text, &spec, &error);
    if (!plan)
        fail_msg("%s: %s", keys, error.message);
    run(f, plan, count, values, mask);
    windows = trajd_sampler_window_count(plan->sampler);
    destroy(&plan, &spec);
    return windows;
}

/* A grid of 15 Hz around anchors of 30 Hz meets every second row exactly: floor() of a sum, not a
 * sum of floors. */
static void test_a_slower_grid_meets_the_rows(void **state)
{
    int64_t values[80 * 4];
    uint8_t mask[80 * 4];

    assert_int_equal(run_feed(*state,
                              "rate: 15, pad: {before: 0, after: 0}, outputs: {action: {from: cam, "
                              "at: -1..2}}",
                              80, values, mask),
                     ROWS - 6);
    for (int w = 0; w < 80; w++)
        for (int t = 0; t < 4; t++) {
            assert_int_equal(values[w * 4 + t], w + 2 + 2 * (t - 1));
            assert_int_equal(mask[w * 4 + t], 0);
        }
}

/* Steps of the camera on the arm's clock: the last arm row at or before each camera row. */
static void test_anchor_steps_on_another_clock(void **state)
{
    int64_t values[90 * 3];
    uint8_t mask[90 * 3];

    run_feed(*state, "outputs: {obs: {from: arm, at: -2..0}}", 90, values, mask);
    for (int w = 0; w < 90; w++)
        for (int t = 0; t < 3; t++) {
            const int64_t x = 5000000 + trajd_rate_row_ns((struct trajd_rate){30, 1}, w - 2 + t);
            assert_int_equal(values[w * 3 + t], x < 0                ? 0
                                                : x / 10000000 < 299 ? x / 10000000
                                                                     : 299);
            assert_int_equal(mask[w * 3 + t], x < 0 ? TRAJD_MASK_BEFORE_START : 0);
        }
}

/* An observation does not see the row after its anchor, wherever the grid lies. */
static void test_observations_are_clipped(void **state)
{
    int64_t values[90 * 2];
    uint8_t mask[90 * 2];

    run_feed(*state,
             "outputs: {obs: {from: arm, at: -1ms..0ms @ 1000, kind: nearest, max_age: 4ms}}", 90,
             values, mask);
    for (int w = 0; w < 90; w++) {
        const int64_t anchor = 5000000 + trajd_rate_row_ns((struct trajd_rate){30, 1}, w);
        const int64_t row = anchor / 10000000 < 299 ? anchor / 10000000 : 299;
        assert_int_equal(values[w * 2 + 1], row); /* nearest would be row + 1 for half of them */
        assert_int_equal(mask[w * 2 + 1],
                         anchor - row * 10000000 > 4000000 ? TRAJD_MASK_TOO_OLD : 0);
    }
}

/* max_age is a time: an output with one looks rows of the anchor's own clock up by time, and holds
 * them no longer. */
static void test_an_age_on_the_anchors_own_clock(void **state)
{
    int64_t values[90 * 8];
    uint8_t mask[90 * 8];

    run_feed(*state, "outputs: {action: {from: cam, at: 0..7, max_age: 100ms}}", 90, values, mask);
    for (int t = 0; t < 8; t++) { /* the last row's window: steps of 33 ms after the end */
        assert_int_equal(values[89 * 8 + t], 89);
        assert_int_equal(mask[89 * 8 + t], t <= 3 ? TRAJD_MASK_VALID : TRAJD_MASK_TOO_OLD);
        assert_int_equal(values[10 * 8 + t], 10 + t);
    }
}

static void test_padding_filter_and_rows_of_their_own(void **state)
{
    static const struct {
        const char *feed;
        uint64_t windows;
    } cases[] = {
        {"anchor: {clock: camera}, outputs: {action: {from: cam, at: 0..9}}", 180},
        {"anchor: {clock: camera}, filter: train, outputs: {action: {from: cam, at: 0..9}}", 90},
        {"anchor: {clock: camera}, filter: train, pad: {after: 0}, outputs: {action: {from: cam, "
         "at: 0..9}}",
         81},
        {"anchor: {clock: camera}, filter: train, pad: {after: 4}, outputs: {action: {from: cam, "
         "at: 0..9}}",
         85},
        {"anchor: {clock: camera}, filter: train, pad: {after: 0}, outputs: {action: {from: "
         "wrench, at: 0..9}}",
         82},
        {"anchor: {clock: camera}, filter: train, pad: {before: 0}, outputs: {obs: {from: cam, at: "
         "-3..0}}",
         87},
        {"anchor: {clock: camera}, filter: train, pad: {before: 1, after: 2}, outputs: {obs: "
         "{from: cam, at: -3..0}, action: {from: cam, at: 0..9}}",
         81},
        {"anchor: {rate: 30}, filter: train, outputs: {obs: {from: cam, at: 0}}", 89},
        {"anchor: {rate: 1}, filter: train, outputs: {obs: {from: arm, at: 0}}", 3},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_error error;
        char text[512];
        struct trajd_window_plan *plan;

        snprintf(text, sizeof text, "{dataset: test, global_batch: 2, %s}", cases[i].feed);
        plan = make_plan(f, text, &spec, &error);
        if (!plan)
            fail_msg("%s: %s", cases[i].feed, error.message);
        if (trajd_sampler_window_count(plan->sampler) != cases[i].windows)
            fail_msg("%s: %llu windows", cases[i].feed,
                     (unsigned long long)trajd_sampler_window_count(plan->sampler));
        destroy(&plan, &spec);
    }
}

/* A stream on a regular clock gets rows of its own where one kept episode has another number of
 * them. */
static void test_where_rows_of_their_own_are_counted(void **state)
{
    static const struct {
        uint32_t changed;    /* episodes, as bits */
        int32_t quarantined; /* -1: none */
        int32_t own;         /* the bracket's array */
    } cases[] = {{0, -1, -1}, {1, -1, 0}, {2, -1, 0}, {3, -1, 0},
                 {1, 0, -1},  {2, 0, 0},  {2, 1, -1}};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        for (int e = 0; e < 2; e++) {
            make_array(f, e, 0);
            if (cases[i].changed & 1u << e) {
                f->arrays[e][0].shape[0]++;
                f->arrays[e][0].size_bytes += 8;
            }
            f->episodes[e].quarantine = cases[i].quarantined == e ? "bad" : NULL;
        }
        plan = make_plan(f,
                         "{dataset: test, global_batch: 2, anchor: {clock: camera}, outputs: {obs: "
                         "{from: cam, at: 0}}}",
                         &spec, &error);
        if (!plan)
            fail_msg("case %zu: %s", i, error.message);
        assert_int_equal(plan->rules.bracket_count, 1);
        assert_int_equal(plan->rules.brackets[0].array_index, cases[i].own);
        destroy(&plan, &spec);
    }
}

/* `where:` takes the episodes whose text is one of those, with every key. */
static void test_where(void **state)
{
    static const struct trajd_layout_meta metas[] = {{.name = "task"}, {.name = "language"}};
    static const char *const texts[2][2] = {{"lift", "lift it"}, {"push", NULL}};
    static const struct {
        const char *where, *episodes;
    } cases[] = {
        {"{task: lift}", "a"},
        {"{task: push}", "b"},
        {"{task: [none, push, lift]}", "ab"},
        {"{language: lift it}", "a"},
        {"{task: [push, lift], language: lift it}", "a"},
        {"{task: none}", "no episode has \"none\" (the first has \"lift\")"},
        {"{task: lif}", "no episode has \"lif\""},
        {"{taks: lift}", "no such text (did you mean task?)"},
    };
    struct fixture *f = *state;

    f->layout.metas = metas;
    f->layout.meta_count = 2;
    for (int e = 0; e < 2; e++)
        f->episodes[e].metas = texts[e];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        char text[256], got[8] = "";

        snprintf(text, sizeof text,
                 "{dataset: test, where: %s, global_batch: 1, anchor: {clock: camera}, outputs: "
                 "{obs: {from: cam, at: 0}}}",
                 cases[i].where);
        plan = make_plan(f, text, &spec, &error);
        for (uint32_t e = 0; plan && e < plan->episode_count; e++)
            strcat(got, f->episodes[plan->episodes[e]].id);
        if (plan ? strcmp(got, cases[i].episodes) != 0 : !strstr(error.message, cases[i].episodes))
            fail_msg("%s: %s", cases[i].where, plan ? got : error.message);
        destroy(&plan, &spec);
    }
}

/* Anchors at a rate are where all streams of the feed have rows. An episode in which no stream has
 * any, or no two at the same time, has no anchors. */
static void test_anchors_at_a_rate_without_common_rows(void **state)
{
    static const char *const text =
        "{dataset: test, global_batch: 1, anchor: {rate: 10}, outputs: {obs: {from: cam, at: 0, "
        "missing: zero}, arm: {from: arm, at: 0, missing: zero}}}";
    struct fixture *f = *state;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan;
    struct trajd_error error;
    uint64_t both, one;

    plan = make_plan(f, text, &spec, &error);
    assert_non_null(plan);
    both = trajd_sampler_window_count(plan->sampler);
    destroy(&plan, &spec);
    for (int s = 0; s < 2; s++)
        f->arrays[1][s] = (struct trajd_array){.storage = TRAJD_STORAGE_ABSENT};
    plan = make_plan(f, text, &spec, &error);
    assert_non_null(plan);
    one = trajd_sampler_window_count(plan->sampler);
    assert_int_equal(plan->episode_count, 1);
    assert_int_equal(2 * one, both);
    destroy(&plan, &spec);
    make_array(f, 1, 0);
    make_array(f, 1, 1);
    f->episode_clocks[1][1].row_count = 0;
    plan = make_plan(f, text, &spec, &error);
    assert_non_null(plan);
    assert_int_equal(trajd_sampler_window_count(plan->sampler), one);
    destroy(&plan, &spec);
    f->episode_clocks[0][0].start_ns = INT64_C(4000000000); /* the arm ends after 2.99 s */
    assert_null(make_plan(f, text, &spec, &error));
    assert_non_null(strstr(error.message, "no window"));
    trajd_window_spec_destroy(&spec);
}

static void test_streams_without_features(void **state)
{
    static const uint64_t features[] = {0, UINT64_C(1) << 32};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(features); i++) {
        struct trajd_window_spec *spec;
        struct trajd_error error;

        f->streams[0].feature_count = features[i];
        assert_null(make_plan(f,
                              "{dataset: test, global_batch: 1, anchor: {clock: camera}, outputs: "
                              "{obs: {from: cam, at: 0}}}",
                              &spec, &error));
        assert_non_null(strstr(error.message, i ? "4294967296 features" : "0 features"));
        trajd_window_spec_destroy(&spec);
    }
}

static void test_invalid_feeds(void **state)
{
    static const struct {
        const char *feed, *message;
    } cases[] = {
        {"anchor: {clock: camara}, outputs: {obs: {from: cam, at: 0}}",
         "no clock camara in layout test (did you mean camera? there are: camera, arm)"},
        {"anchor: {clock: camera}, outputs: {obs: {from: can, at: 0}}",
         "no stream can in layout test (did you mean cam?"},
        {"anchor: {clock: camera}, filter: valid, outputs: {obs: {from: cam, at: 0}}",
         "no mask valid"},
        {"anchor: {clock: arm}, outputs: {obs: {from: cam, at: -10ms..0ms}}",
         "a range of times needs a rate"},
        {"anchor: {clock: arm}, outputs: {obs: {from: cam, at: 0, kind: mean}}", "needs width:"},
        {"anchor: {clock: camera}, pad: {before: 0, after: 0}, outputs: {action: {from: cam, at: "
         "0..200}}",
         "leave no window of 2 usable episodes; the steps of action reach over 201 rows, and the "
         "longest episode has 90 rows"},
        {"anchor: {clock: camera}, pad: {before: 0}, outputs: {now: {from: cam, at: 0}, obs: "
         "{from: "
         "arm, at: -500..0 @ 10}}",
         "the steps of obs reach over 50 s, and the longest episode lasts 2.99 s"},
        {"anchor: {clock: arm}, outputs: {action: {from: cam, at: 3ms..5ms @ 100}}",
         "the range has no step or more than 65536 steps"},
        {"anchor: {clock: arm}, outputs: {action: {from: cam, at: 0s..656s @ 100}}",
         "the range has no step or more than 65536 steps"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_error error;
        char text[512];

        snprintf(text, sizeof text, "{dataset: test, global_batch: 2, %s}", cases[i].feed);
        assert_null(make_plan(f, text, &spec, &error));
        if (!strstr(error.message, cases[i].message))
            fail_msg("%s\nsaid: %s", cases[i].feed, error.message);
        trajd_window_spec_destroy(&spec);
    }
}

/* Compares rows_until with a linear count, on stamps that are nearly regular, clustered, and
 * few. */
static void test_rows_until(void **state)
{
    int64_t stamps[200];

    (void)state;
    for (int shape = 0; shape < 3; shape++)
        for (int64_t rows = 0; rows <= 200; rows += rows < 5 ? 1 : 39) {
            struct trajd_episode_clock clock = {.row_count = rows, .stamps_ns = stamps};
            for (int64_t i = 0; i < rows; i++)
                stamps[i] = shape == 0   ? 10 * i + i % 3
                            : shape == 1 ? i * i * i
                                         : (i < rows / 2 ? i : 100000 + i);
            /* no line, the right one, and two wrong ones: the guess only saves time */
            for (int line = 0; line < 4; line++) {
                static const double slopes[] = {0, 0.1, -3, 1e300};
                clock.rows_per_ns = slopes[line];
                clock.row_at_zero = line == 2 ? 1e18 : 0;
                for (int64_t k = -1; k <= rows; k++)
                    for (int64_t near = -1; near <= 1; near++) {
                        const int64_t x = (k < 0 ? -5 : k < rows ? stamps[k] : 10000000) + near;
                        int64_t count = 0;
                        while (count < rows && stamps[count] <= x)
                            count++;
                        assert_int_equal(trajd_clock_rows_until(&clock, rows, x), count);
                    }
            }
        }
}

/* The same for regular clocks, also at the ends of 64 bits. */
static void test_regular_rows_until(void **state)
{
    static const struct trajd_rate rates[] = {
        {30, 1}, {30000, 1001}, {500, 1}, {1, 2147483647}, {999999999, 1}};
    static const int64_t times[] = {INT64_MIN + 1000,
                                    -1,
                                    0,
                                    1,
                                    33333332,
                                    33333333,
                                    33333334,
                                    1000000000,
                                    INT64_C(123456789012345),
                                    INT64_MAX - 1,
                                    INT64_MAX};

    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rates); r++)
        for (size_t t = 0; t < ARRAY_LEN(times); t++) {
            const struct trajd_episode_clock clock = {.row_count = INT64_MAX, .rate = rates[r]};
            const int64_t row = trajd_rate_row_at(rates[r], times[t]);
            assert_int_equal(trajd_clock_rows_until(&clock, INT64_MAX, times[t]),
                             row < 0 ? 0 : row + 1);
        }
}

/* G, slots, tail and seed do not change the fingerprint; offsets and filters do. */
static void test_fingerprint(void **state)
{
    static const char *const same[] = {"global_batch: 4",
                                       "global_batch: 8, slots: 7, tail: short, seed: 3"};
    static const char *const other[] = {"global_batch: 4, filter: train",
                                        "global_batch: 4, pad: {before: 2}"};
    struct fixture *f = *state;
    uint64_t first = 0;

    for (int i = 0; i < 4; i++) {
        struct trajd_window_spec *spec;
        struct trajd_error error;
        char text[256];
        struct trajd_window_plan *plan;

        snprintf(text, sizeof text,
                 "{dataset: test, %s, anchor: {clock: camera}, outputs: {obs: {from: cam, at: 0}}}",
                 i < 2 ? same[i] : other[i - 2]);
        plan = make_plan(f, text, &spec, &error);
        assert_non_null(plan);
        first = i ? first : plan->fingerprint;
        if (i < 2)
            assert_true(plan->fingerprint == first);
        else
            assert_true(plan->fingerprint != first);
        destroy(&plan, &spec);
    }
    /* Journals and checkpoints of earlier versions hold this value. */
    assert_true(first == UINT64_C(0xe7db4137d10d129c));
}

/* An episode's place in [0, 1) never changes, so that neither new data nor a new version moves it
 * from one split to another. */
static void test_places_of_episodes_in_splits(void **state)
{
    static const double places[] = {0.891622089974, 0.873007403401}; /* of "a" and "b" */
    struct fixture *f = *state;

    for (uint32_t e = 0; e < 2; e++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        char text[256];

        snprintf(text, sizeof text,
                 "{dataset: test, split: %.9f..%.9f, global_batch: 4, anchor: {clock: camera}, "
                 "outputs: {obs: {from: cam, at: 0}}}",
                 places[e] - 1e-8, places[e] + 1e-8);
        plan = make_plan(f, text, &spec, &error);
        assert_non_null(plan);
        assert_int_equal(plan->episode_count, 1);
        assert_int_equal(plan->episodes[0], e);
        destroy(&plan, &spec);
    }
}

/* What the trainer should know is in the plan, for every program that shows it. */
static void test_warnings_of_a_plan(void **state)
{
    struct fixture *f = *state;
    struct trajd_window_spec *spec;
    struct trajd_error error;
    struct trajd_window_plan *plan =
        make_plan(f,
                  "{dataset: test, global_batch: 4, anchor: {rate: 10}, "
                  "outputs: {obs: {from: arm, at: 0, kind: linear}, held: {from: cam, at: 0}}}",
                  &spec, &error);

    assert_non_null(plan);
    assert_int_equal(plan->warnings.count, 1);
    assert_string_equal(plan->warnings.list[0], "obs: kind: linear from 100 Hz to 10 Hz uses 2 of "
                                                "every 10 rows; kind: mean averages all");
    for (uint32_t i = 1; i < TRAJD_PLAN_TEXTS_MAX + 3; i++)
        trajd_window_plan_warn(plan, "warning %u", i);
    assert_int_equal(plan->warnings.count, TRAJD_PLAN_TEXTS_MAX + 3);
    assert_string_equal(plan->warnings.list[TRAJD_PLAN_TEXTS_MAX - 1], "warning 63");
    destroy(&plan, &spec);

    f->episode_clocks[1][0].row_count = 5;
    f->arrays[1][0].shape[0] = 5;
    plan = make_plan(f,
                     "{dataset: test, global_batch: 4, anchor: {clock: camera}, pad: {before: 0, "
                     "after: 0}, outputs: {action: {from: cam, at: 0..5}}}",
                     &spec, &error);
    assert_non_null(plan);
    assert_int_equal(plan->episode_count, 1);
    assert_int_equal(plan->warnings.count, 1);
    assert_string_equal(plan->warnings.list[0],
                        "1 of the 2 selected episodes are too short for any window with this pad: "
                        "(the first: file: b)");
    destroy(&plan, &spec);
}

/* Quaternions among the columns of a stream are blended between rows, and by a mean over several
 * rows. Steps on rows blend nothing. */
static void test_quaternions_that_are_blended(void **state)
{
    static const struct {
        const char *feed;
        uint32_t warnings;
    } cases[] = {
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -1..0, kind: linear}}", 0},
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -3..0 @ 15, kind: linear}}", 0},
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -3..0 @ 20, kind: linear}}", 1},
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -3..0 @ 20}}", 0},
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -3..0 @ 15, kind: mean}}", 1},
        {"anchor: {clock: camera}, outputs: {x: {from: arm, at: -1..0, kind: linear}}", 0},
        /* the other warning: steps of 100 Hz on rows of 30 Hz */
        {"anchor: {clock: arm}, outputs: {x: {from: cam, at: -1..0, kind: linear}}", 2},
    };
    struct fixture *f = *state;
    const struct trajd_quaternion quaternions[2] = {{.column = 0}, {.column = 7}};

    f->index_arrays[0].quaternions = quaternions;
    f->index_arrays[0].quaternion_count = 2;
    f->streams[0].feature_count = 11;
    f->streams[0].rank = 1;
    f->streams[0].shape[0] = 11;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        char feed[256];
        snprintf(feed, sizeof feed, "{dataset: test, global_batch: 4, %s}", cases[i].feed);
        plan = make_plan(f, feed, &spec, &error);
        if (!plan)
            fail_msg("%s: %s", feed, error.message);
        if (plan->warnings.count != cases[i].warnings)
            fail_msg("%s: %u warnings", feed, plan->warnings.count);
        if (cases[i].warnings)
            assert_non_null(strstr(plan->warnings.list[cases[i].warnings - 1],
                                   "x: cam: columns 0..3, 7..10 are"));
        destroy(&plan, &spec);
    }
}

static void test_warnings_of_rates(void **state)
{
    static const struct {
        const char *outputs, *warning; /* NULL: there is none */
    } cases[] = {
        {"{held: {from: cam, at: -3..0}}", NULL},
        {"{held: {from: cam, at: -3..0 @ 60}}", NULL},
        {"{held: {from: cam, at: 0 @ 300}}", NULL},
        {"{held: {from: cam, at: -3..0 @ 75}}",
         "held: kind: previous from 30 Hz to 75 Hz makes 2.5 steps of each row; a rate of 30 Hz "
         "gives the recorded rows"},
    };
    struct fixture *f = *state;

    for (int assumed = 0; assumed < 2; assumed++) {
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            /* rows of the anchor's clock are the same at any rate */
            const bool warns = assumed && strchr(cases[i].outputs, '@');
            char text[256];
            struct trajd_window_spec *spec;
            struct trajd_error error;
            struct trajd_window_plan *plan;
            snprintf(text, sizeof text,
                     "{dataset: test, global_batch: 4, anchor: {clock: camera}, outputs: %s}",
                     cases[i].outputs);
            f->episode_clocks[1][0].rate_source =
                assumed ? TRAJD_RATE_ASSUMED : TRAJD_RATE_DECLARED;
            plan = make_plan(f, text, &spec, &error);
            assert_non_null(plan);
            assert_int_equal(plan->warnings.count, (cases[i].warning != NULL) + warns);
            if (cases[i].warning)
                assert_string_equal(plan->warnings.list[0], cases[i].warning);
            if (warns)
                assert_string_equal(plan->warnings.list[plan->warnings.count - 1],
                                    "held: its steps are times, but the rate of clock camera is "
                                    "not stated: 30 Hz (assumed in 1 of 2 episodes); state it with "
                                    "datasets.test.rate");
            destroy(&plan, &spec);
        }
    }
}

/* Returns the number of warnings of the feed that have this text. */
static uint32_t count_warnings(struct fixture *f, const char *feed, const char *words)
{
    struct trajd_window_spec *spec;
    struct trajd_error error;
    struct trajd_window_plan *plan;
    uint32_t count = 0;
    char text[256];

    snprintf(text, sizeof text, "{dataset: test, global_batch: 4, %s}", feed);
    plan = make_plan(f, text, &spec, &error);
    if (!plan)
        fail_msg("%s: %s", feed, error.message);
    for (uint32_t i = 0; i < plan->warnings.count; i++)
        count += strstr(plan->warnings.list[i], words) != NULL;
    destroy(&plan, &spec);
    return count;
}

/* An assumed rate matters where it decides which rows a window takes: not for rows of the anchor's
 * own clock. The clock camera is assumed, the arm has stamps. */
static void test_where_an_assumed_rate_matters(void **state)
{
    static const struct {
        const char *feed;
        uint32_t count;
    } cases[] = {
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -3..0}}", 0},
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -100ms..0ms}}", 1},
        {"anchor: {clock: camera}, outputs: {x: {from: cam, at: -3..0 @ 30}}", 1},
        {"anchor: {clock: camera}, rate: 30, outputs: {x: {from: cam, at: -3..0}}", 1},
        {"anchor: {clock: camera}, outputs: {x: {from: arm, at: -3..0}}", 1},
        {"anchor: {clock: arm}, outputs: {x: {from: cam, at: -3..0}}", 1},
        {"anchor: {clock: arm}, outputs: {x: {from: arm, at: -3..0}}", 0},
        {"anchor: {rate: 10}, outputs: {x: {from: cam, at: 0}}", 1},
        {"anchor: {rate: 10}, outputs: {x: {from: arm, at: 0}}", 0},
        /* one warning a clock */
        {"anchor: {rate: 10}, outputs: {x: {from: cam, at: 0}, y: {from: wrench, at: 0}}", 1},
        {"anchor: {rate: 10}, outputs: {x: {from: arm, at: 0}, y: {from: wrench, at: 0}}", 1},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        f->episode_clocks[0][0].rate_source = TRAJD_RATE_ASSUMED;
        if (count_warnings(f, cases[i].feed, "its steps are times") != cases[i].count)
            fail_msg("%s: not %u", cases[i].feed, cases[i].count);
        f->episode_clocks[0][0].rate_source = TRAJD_RATE_DECLARED;
        assert_int_equal(count_warnings(f, cases[i].feed, "its steps are times"), 0);
    }
}

/* From which rate on a grid is said to leave out rows, or to repeat them. */
static void test_limits_of_rates(void **state)
{
    static const char few[] = "uses 2 of every", many[] = "steps of each row";
    static const struct {
        const char *feed, *words;
        uint32_t count;
    } cases[] = {
        {"anchor: {clock: arm}, outputs: {x: {from: arm, at: -1..0 @ 25, kind: linear}}", few, 0},
        {"anchor: {clock: arm}, outputs: {x: {from: arm, at: -1..0 @ 24, kind: linear}}", few, 1},
        {"anchor: {clock: arm}, outputs: {x: {from: arm, at: -1..0 @ 24, kind: mean}}", few, 0},
        {"anchor: {clock: arm}, outputs: {x: {from: arm, at: -1..0 @ 200}}", many, 0},
        {"anchor: {clock: arm}, outputs: {x: {from: arm, at: -1..0 @ 201}}", many, 1},
        {"anchor: {rate: 201}, outputs: {x: {from: arm, at: -1..0}}", many, 1},
        {"anchor: {rate: 201}, outputs: {x: {from: arm, at: 0}}", many, 0},
        {"anchor: {rate: 20}, outputs: {x: {from: arm, at: 0, kind: linear}}", few, 1},
        {"anchor: {clock: arm}, outputs: {x: {from: cam, at: -1..0}}", many, 1},
        {"anchor: {clock: camera}, outputs: {x: {from: arm, at: -1..0, kind: linear}}", few, 0},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (count_warnings(f, cases[i].feed, cases[i].words) != cases[i].count)
            fail_msg("%s: not %u", cases[i].feed, cases[i].count);
    /* the rate is that of the first episode, which needs two rows */
    for (int64_t rows = 1; rows <= 2; rows++) {
        f->episode_clocks[0][1].row_count = rows;
        f->arrays[0][1].shape[0] = (uint64_t)rows;
        assert_int_equal(
            count_warnings(f, "anchor: {rate: 20}, outputs: {x: {from: arm, at: 0, kind: linear}}",
                           few),
            rows == 2);
    }
}

/* Steps that span more than the longest episode: each window has padding. */
static void test_steps_that_reach_too_far(void **state)
{
    static const char words[] = "each window has steps outside its episode";
    static const struct {
        const char *feed;
        uint32_t count;
    } cases[] = {
        {"anchor: {clock: camera}, outputs: {action: {from: cam, at: -45..44}}", 0},
        {"anchor: {clock: camera}, outputs: {action: {from: cam, at: -45..45}}", 1},
        {"anchor: {clock: camera}, outputs: {action: {from: cam, at: 89}}", 0},
        {"anchor: {clock: camera}, outputs: {action: {from: cam, at: 90}}", 1},
        {"anchor: {clock: camera}, outputs: {x: {from: wrench, at: -90..0}}", 1},
        {"anchor: {clock: camera}, outputs: {x: {from: arm, at: -2s..0s @ 50}}", 0},
        {"anchor: {clock: camera}, outputs: {x: {from: arm, at: -3s..0s @ 50}}", 1},
        {"anchor: {rate: 10}, outputs: {x: {from: arm, at: -29..0}}", 0},
        {"anchor: {rate: 10}, outputs: {x: {from: arm, at: -30..0}}", 1},
        /* 317 years, more ns than 64 bits hold with a sign */
        {"anchor: {clock: camera}, outputs: {action: {from: cam, at: -5000..5000 @ 0.000001}}", 1},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (count_warnings(f, cases[i].feed, words) != cases[i].count)
            fail_msg("%s: not %u", cases[i].feed, cases[i].count);
    assert_int_equal(
        count_warnings(f, "anchor: {clock: camera}, outputs: {action: {from: cam, at: -1..1000}}",
                       "action: its steps reach over 1002 rows, and the longest episode has 90 "
                       "rows: "),
        1);
    assert_int_equal(
        count_warnings(f, "anchor: {clock: camera}, outputs: {x: {from: arm, at: -500..0 @ 10}}",
                       "x: its steps reach over 50 s, and the longest episode lasts 2.99 s: "),
        1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_where_an_assumed_rate_matters, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_limits_of_rates, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_steps_that_reach_too_far, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_a_slower_grid_meets_the_rows, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_anchor_steps_on_another_clock, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_observations_are_clipped, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_an_age_on_the_anchors_own_clock, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_padding_filter_and_rows_of_their_own, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_where_rows_of_their_own_are_counted, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_where, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_anchors_at_a_rate_without_common_rows, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_streams_without_features, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_invalid_feeds, make_fixture, free_fixture),
        cmocka_unit_test(test_rows_until),
        cmocka_unit_test(test_regular_rows_until),
        cmocka_unit_test_setup_teardown(test_fingerprint, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_places_of_episodes_in_splits, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_warnings_of_a_plan, make_fixture, free_fixture),
        cmocka_unit_test_setup_teardown(test_quaternions_that_are_blended, make_fixture,
                                        free_fixture),
        cmocka_unit_test_setup_teardown(test_warnings_of_rates, make_fixture, free_fixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
