/* Statistics of outputs that are differences of rows, against all steps of all windows, which this
 * test forms one by one. Each feed has the same output twice, in float32 and in float64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stats/histogram.h"
#include "daemon/stats/stats.h"
#include "daemon/stats/stats_walk.h"
#include "proto/array_len.h"
#include "unit/stats/difference_fixture.h"

#define COLUMNS_MAX 64 /* steps x features where each step has figures of its own */

/* An output: steps [from, to] of the arrays `rows`, relative to the arrays `state` at the anchor. */
struct output_case {
    int64_t from, to;
    const char *rows, *state; /* letters of arrays; state "": none */
    const char *mask; /* of each column of the rows 1: relative, 0: as recorded; "": all 1 */
    bool per_step;
    int64_t pad; /* steps without a row at either end of a window; -1: any number */
    /* The arrays are float64 for both outputs: a difference is rounded once. */
    bool of_doubles;
};

static const struct difference_data spoiled = {.rows = {40, 23, 7}, .is_spoiled = true};
static const struct difference_data clean = {.rows = {40, 23, 7}};
static const struct difference_data fewer_states = {
    .rows = {40, 23, 7}, .more_states = {-9, 1, -6}, .is_spoiled = true};
/* more windows, and more steps, than are counted at once */
static const struct difference_data long_episodes = {
    .rows = {1100, 40, 1}, .more_states = {-500, 0, 0}, .is_spoiled = true};

/* ---- the expected figures ---- */

struct expected {
    uint64_t windows, steps, valid;
    uint64_t column_count, infinite[COLUMNS_MAX], count[COLUMNS_MAX], room[COLUMNS_MAX];
    double *values[COLUMNS_MAX];
};

static void add_value(struct expected *expected, uint64_t column, double value)
{
    if (isinf(value)) {
        expected->infinite[column]++;
        return;
    }
    if (expected->count[column] == expected->room[column]) {
        expected->room[column] = 2 * expected->room[column] + 1024;
        expected->values[column] =
            realloc(expected->values[column], expected->room[column] * sizeof(double));
        assert_non_null(expected->values[column]);
    }
    expected->values[column][expected->count[column]++] = value;
}

/* Reads one row of several arrays, side by side. Returns their columns. */
static uint32_t read_row(const struct difference_fixture *f, uint32_t e, const char *letters,
                         bool of_doubles, int64_t row, double *out)
{
    uint32_t column = 0;

    for (const char *letter = letters; *letter; letter++)
        for (uint32_t d = 0; d < difference_width(*letter); d++)
            out[column++] = difference_number(f, e, difference_array(*letter, of_doubles), row, d);
    return column;
}

/* Forms the step at a row, relative to a row of the state. Returns whether it counts. */
static bool form_step(const struct difference_fixture *f, const struct output_case *c,
                      bool is_double, uint32_t e, int64_t row, int64_t anchor, double *out)
{
    double state[16];
    const uint32_t columns = read_row(f, e, c->rows, is_double || c->of_doubles, row, out);
    uint32_t relative = 0, states = 0, used = 0;
    bool is_valid = true;

    if (*c->state) {
        const int64_t last = difference_rows(f, e, *c->state) - 1;
        states = read_row(f, e, c->state, is_double || c->of_doubles, anchor < last ? anchor : last,
                          state);
    }
    for (uint32_t d = 0; d < states; d++)
        is_valid &= isfinite(state[d]);
    for (uint32_t d = 0; d < columns; d++)
        relative += !*c->mask || c->mask[d] == '1';
    assert_true(!states || states == columns || states == relative);
    for (uint32_t d = 0; d < columns; d++) {
        const bool is_relative = states && (!*c->mask || c->mask[d] == '1');
        if (is_relative)
            out[d] -= state[states == columns ? d : used];
        used += is_relative;
        is_valid &= isfinite(out[d]);
        if (!is_double)
            out[d] = (double)(float)out[d];
    }
    return is_valid;
}

/* Returns whether an episode has all arrays of an output. */
static bool is_whole(const struct difference_fixture *f, const struct output_case *c, uint32_t e)
{
    bool found = true;

    for (const char *letter = c->rows; *letter; letter++)
        found &= difference_rows(f, e, *letter) > 0;
    for (const char *letter = c->state; *letter; letter++)
        found &= difference_rows(f, e, *letter) > 0;
    return found;
}

static bool has_window(const struct difference_fixture *f, const struct output_case *c, uint32_t e,
                       int64_t anchor)
{
    return c->pad < 0 || (anchor + c->from >= -c->pad &&
                          anchor + c->to < f->episode_clocks[e][0].row_count + c->pad);
}

static void add_window(const struct difference_fixture *f, const struct output_case *c,
                       bool is_double, uint32_t e, int64_t anchor, struct expected *expected)
{
    const uint64_t columns = expected->column_count / (c->per_step ? c->to - c->from + 1 : 1);
    double values[16];

    expected->windows++;
    for (int64_t k = c->from; k <= c->to; k++) {
        expected->steps++;
        if (!is_whole(f, c, e) || anchor + k < 0 || anchor + k >= difference_rows(f, e, *c->rows) ||
            !form_step(f, c, is_double, e, anchor + k, anchor, values))
            continue;
        expected->valid++;
        for (uint64_t d = 0; d < columns; d++)
            add_value(expected, (c->per_step ? (uint64_t)(k - c->from) * columns : 0) + d,
                      values[d]);
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void form_expected(const struct difference_fixture *f, const struct output_case *c,
                          bool is_double, struct expected *expected)
{
    memset(expected, 0, sizeof *expected);
    for (const char *letter = c->rows; *letter; letter++)
        expected->column_count += difference_width(*letter);
    expected->column_count *= c->per_step ? (uint64_t)(c->to - c->from + 1) : 1;
    assert_true(expected->column_count <= COLUMNS_MAX);
    for (uint32_t e = 0; e < DIFFERENCE_EPISODES; e++)
        for (int64_t anchor = 0; anchor < f->episode_clocks[e][0].row_count; anchor++)
            if (has_window(f, c, e, anchor))
                add_window(f, c, is_double, e, anchor, expected);
    for (uint64_t d = 0; d < expected->column_count; d++)
        if (expected->count[d])
            qsort(expected->values[d], expected->count[d], sizeof(double), by_value);
}

/* ---- comparing ---- */

static void assert_near(const char *what, uint64_t column, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected) + 1e-13))
        fail_msg("%s of column %llu: %.17g is not %.17g", what, (unsigned long long)column, value,
                 expected);
}

static void check_column(const struct trajd_feature_statistics *found,
                         const struct expected *expected, uint64_t d)
{
    const double *values = expected->values[d];
    const uint64_t count = expected->count[d];
    long double mean = 0, squares = 0;

    assert_int_equal(found->count, count);
    assert_int_equal(found->infinite, expected->infinite[d]);
    assert_int_equal(found->nan, 0);
    assert_true(count > 0);
    for (uint64_t i = 0; i < count; i++)
        mean += values[i] / (long double)count;
    for (uint64_t i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    assert_near("mean", d, found->mean, (double)mean);
    assert_near("std", d, found->std, sqrt((double)(squares / (long double)count)));
    assert_near("min", d, found->min, values[0]);
    assert_near("max", d, found->max, values[count - 1]);
    for (int q = 0; q < TRAJD_STATISTICS_QUANTILES; q++) {
        const double place = trajd_histogram_quantiles[q] * (double)(count - 1);
        const uint64_t below = (uint64_t)place, above = below + (below + 1 < count);
        assert_near("quantile", d, found->quantiles[q],
                    values[below] + (place - (double)below) * (values[above] - values[below]));
    }
}

static void check_figures(const struct difference_fixture *f, const struct output_case *c,
                          bool is_double, const struct trajd_statistics *found)
{
    struct expected expected;

    form_expected(f, c, is_double, &expected);
    assert_int_equal(found->item_count, expected.windows);
    assert_int_equal(found->step_count, expected.steps);
    assert_int_equal(found->valid_count, expected.valid);
    assert_int_equal(found->feature_count, expected.column_count);
    for (uint64_t d = 0; d < expected.column_count; d++) {
        check_column(&found->features[d], &expected, d);
        free(expected.values[d]);
    }
}

/* ---- feeds ---- */

static int put_streams(char *text, size_t size, const char *letters, bool of_doubles)
{
    int used = snprintf(text, size, "[");

    for (const char *letter = letters; *letter; letter++)
        used += snprintf(text + used, size - (size_t)used, "%s%c%d", letter > letters ? ", " : "",
                         *letter, of_doubles ? 8 : 4);
    return used + snprintf(text + used, size - (size_t)used, "]");
}

/* Writes one output: `x: {...}` in float32, or `y: {...}` in float64. */
static void put_output(char *text, size_t size, const struct output_case *c, bool is_double)
{
    int used = snprintf(
        text, size, "%c: {at: %lld..%lld, role: action, missing: zero, dtype: float%d, from: ",
        is_double ? 'y' : 'x', (long long)c->from, (long long)c->to, is_double ? 64 : 32);

    used += put_streams(text + used, size - (size_t)used, c->rows, is_double || c->of_doubles);
    if (*c->state) {
        used += snprintf(text + used, size - (size_t)used, ", relative_to: {from: ");
        used += put_streams(text + used, size - (size_t)used, c->state, is_double || c->of_doubles);
        for (const char *m = c->mask; *m; m++)
            used += snprintf(text + used, size - (size_t)used, "%s%s",
                             m > c->mask ? ", " : ", mask: [", *m == '1' ? "true" : "false");
        used += snprintf(text + used, size - (size_t)used, "%s}", *c->mask ? "]" : "");
    }
    snprintf(text + used, size - (size_t)used, "%s}",
             c->per_step ? ", norm: {by: mean_std, per: step}" : "");
}

static struct trajd_window_plan *make_feed(struct difference_fixture *f, const char *keys,
                                           struct trajd_window_spec **spec)
{
    struct trajd_window_plan *plan = NULL;
    struct trajd_yaml *yaml;
    struct trajd_error error;

    if (trajd_yaml_parse("test", keys, strlen(keys), &yaml, &error) ||
        trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 2, spec, &error) ||
        trajd_window_plan_create(*spec, &f->dataset, &plan, &error))
        fail_msg("%s: %s", keys, error.message);
    trajd_yaml_destroy(&yaml);
    return plan;
}

static struct trajd_window_plan *make_case(struct difference_fixture *f,
                                           const struct output_case *c,
                                           struct trajd_window_spec **spec)
{
    char outputs[2][256], pad[32], keys[768];

    for (int i = 0; i < 2; i++)
        put_output(outputs[i], sizeof outputs[i], c, i == 1);
    snprintf(pad, sizeof pad, c->pad < 0 ? "any" : "%lld", (long long)c->pad);
    snprintf(keys, sizeof keys,
             "{dataset: test, anchor: {clock: arm}, global_batch: 7, pad: {before: %s, after: %s}, "
             "outputs: {%s, %s}}",
             pad, pad, outputs[0], outputs[1]);
    return make_feed(f, keys, spec);
}

static void check(const struct difference_data *data, const struct output_case *c,
                  struct trajd_pool *pool)
{
    static const uint32_t outputs[] = {0, 1};
    struct difference_fixture *f = make_difference_fixture(data);
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_case(f, c, &spec);
    const struct trajd_statistics_request request = {plan, pool, NULL};
    struct trajd_statistics *found[2];
    struct trajd_error error;

    if (trajd_statistics_of_outputs(&request, outputs, 2, found, &error))
        fail_msg("%s", error.message);
    for (uint32_t o = 0; o < 2; o++) {
        assert_true(statistics_is_difference(plan, o)); /* not resampled */
        check_figures(f, c, o == 1, found[o]);
        free(found[o]);
    }
    trajd_window_plan_destroy(&plan);
    trajd_window_spec_destroy(&spec);
    free_difference_fixture(f);
}

static void check_all(const struct difference_data *data, const struct output_case *cases,
                      size_t count)
{
    struct trajd_pool *pool;
    struct trajd_error error;

    assert_int_equal(trajd_pool_create(2, "test", &pool, &error), TRAJD_OK);
    for (size_t i = 0; i < count; i++)
        check(data, &cases[i], i % 2 ? pool : NULL);
    trajd_pool_destroy(&pool);
}

/* ---- the tests ---- */

static const struct output_case short_cases[] = {
    {-3, 6, "ab", "st", "", false, -1, false}, /* steps before the first row, and after the last */
    {-3, 6, "ab", "st", "11011", false, -1, false}, /* three parts of the transform */
    {-3, 6, "ab", "st", "01110", true, -1, false},  /* the first and the last column as recorded */
    /* the state has columns for the relative ones alone */
    {-2, 3, "ba", "t", "01101", false, -1, false},
    {-2, 3, "ba", "t", "10110", true, -1, false},
    {2, 2, "ab", "st", "10011", false, -1, false}, /* one step, after the anchor */
    {-9, -4, "b", "s", "", true, -1, false},       /* steps before the anchor alone */
    {8, 30, "a", "t", "", false, -1, false},       /* in one episode no window has a step */
    {-3, 6, "ab", "st", "11011", false, 2, false}, /* windows with two steps of padding */
    {-3, 3, "ba", "st", "11111", true, 0, false},  /* without padding */
    {-1, 4, "ab", "", "", true, -1, false},        /* no state: only figures of each step */
    {-2, 2, "s", "b", "", false, -1, false},
    {0, 1, "a", "t", "", true, -1, false},     /* figures of two steps */
    {-2, 2, "b", "u", "01", false, -1, false}, /* a state of one column */
    {0, 4, "t", "a", "", true, -1, false},
    {-1, 4, "ab", "st", "01111", false, -1, true},
};

static void test_figures_are_those_of_the_steps(void **state)
{
    (void)state;
    check_all(&clean, short_cases, ARRAY_LEN(short_cases));
}

/* A step that uses a number that is not finite counts for none of its columns. A difference that is
 * infinite in float32 is left out alone. */
static void test_numbers_that_are_not_finite(void **state)
{
    (void)state;
    check_all(&spoiled, short_cases, ARRAY_LEN(short_cases));
}

/* The last row of a state that ends before the steps is held; rows after them are not read. */
static void test_states_with_rows_of_their_own(void **state)
{
    static const struct output_case cases[] = {
        {-3, 6, "b", "s", "", false, -1, false}, {-3, 6, "a", "t", "101", true, -1, false},
        {0, 0, "b", "s", "", false, -1, false},  {-2, 4, "a", "s", "011", false, -1, false},
        {1, 5, "s", "b", "", true, -1, false},   {-1, 5, "t", "a", "", false, -1, false},
    };

    (void)state;
    check_all(&fewer_states, cases, ARRAY_LEN(cases));
}

/* An episode that lacks an array has no valid step. */
static void test_episodes_without_an_array(void **state)
{
    static const char lacking[] = "abst";
    static const struct output_case cases[] = {
        {-3, 6, "ab", "st", "", false, -1, false},
        {-1, 2, "ab", "", "", true, -1, false},
    };

    (void)state;
    for (size_t i = 0; i < strlen(lacking); i++) {
        const struct difference_data data = {.rows = {40, 23, 7}, .lacking = lacking[i]};
        check_all(&data, cases, ARRAY_LEN(cases));
    }
}

/* Neither has an episode whose state or steps have no row. */
static void test_arrays_without_rows(void **state)
{
    static const struct difference_data data = {.rows = {40, 23, 7}, .more_states = {0, -23, 0}};
    static const struct output_case cases[] = {{-3, 6, "b", "s", "", false, -1, false},
                                               {-1, 2, "t", "a", "", true, -1, false}};

    (void)state;
    check_all(&data, cases, ARRAY_LEN(cases));
}

static void test_long_episodes(void **state)
{
    static const struct output_case cases[] = {
        {-2, 3, "b", "s", "", false, -1, false},
        {0, 1040, "b", "s", "10", false, -1, false},
        {-1, 2, "s", "b", "", false, -1, false},
        {-1050, -3, "b", "s", "01", false, -1, false},
    };

    (void)state;
    check_all(&long_episodes, cases, ARRAY_LEN(cases));
}

/* Asserts that the statistics of an output of a feed are formed by resampling. */
static void check_no_difference(struct difference_fixture *f, const char *output)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan;
    char keys[256];

    snprintf(keys, sizeof keys,
             "{dataset: test, anchor: {clock: arm}, global_batch: 7, outputs: {x: {%s}}}", output);
    plan = make_feed(f, keys, &spec);
    if (statistics_is_difference(plan, 0))
        fail_msg("%s", output);
    trajd_window_plan_destroy(&plan);
    trajd_window_spec_destroy(&spec);
}

/* The second chunk begins in the middle of an episode. What the first has found about rows does not
 * matter there. */
static void test_many_windows(void **state)
{
    static const struct difference_data data = {.rows = {4090, 40, 7}, .is_spoiled = true};
    static const struct output_case cases[] = {{-1, 0, "b", "", "", true, -1, false},
                                               {0, 0, "b", "s", "", false, -1, false},
                                               {-1, 0, "ab", "st", "", false, -1, false}};

    (void)state;
    check_all(&data, cases, ARRAY_LEN(cases));
}

/* The forms whose values do not follow from the rows like this. They are resampled. */
static void test_other_outputs_are_no_differences(void **state)
{
    static const char *const outputs[] = {
        "from: b4, at: -1..2, role: action",
        "from: b4, at: -3..0, role: obs, relative_to: s4",
        "from: b4, at: 0..3 @ 5, role: action, relative_to: s4",
        "from: b4, at: 0..3, role: action, max_age: 1s, relative_to: s4",
        "from: b4, at: 0..3, role: action, dtype: float16, relative_to: s4",
        "from: b4, at: 0..3, role: action, relative_to: {from: s4, step: before}",
        "from: a4, at: 0..3, role: action, rotation: {from: axis_angle, to: rot6d}",
        "from: a4, at: 0..3, role: action, kind: mean, width: 300ms, relative_to: t4",
        "from: a4, at: 0..3, role: action, kind: mean, relative_to: t4",
    };
    static const char *const of_unequal_lengths[] = {
        "from: [a4, b4], at: 0..3, role: action, relative_to: [t4, s4]",
        "from: [t4, s4], at: 0..3, role: action, relative_to: [a4, b4]",
    };
    struct difference_fixture *f = make_difference_fixture(&clean);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++)
        check_no_difference(f, outputs[i]);
    free_difference_fixture(f);
    f = make_difference_fixture(&fewer_states);
    for (size_t i = 0; i < ARRAY_LEN(of_unequal_lengths); i++)
        check_no_difference(f, of_unequal_lengths[i]);
    free_difference_fixture(f);
}

/* Rows on another clock, and whole numbers. */
static void test_other_streams_are_no_differences(void **state)
{
    struct difference_fixture *f = make_difference_fixture(&clean);

    (void)state;
    f->streams[difference_array('t', false)].clock_index = 1;
    check_no_difference(f,
                        "from: t4, at: 0..3, role: action, relative_to: {from: a4, kind: linear}");
    check_no_difference(f,
                        "from: a4, at: 0..3, role: action, relative_to: {from: t4, kind: linear}");
    f->streams[difference_array('b', false)].dtype = TRAJD_I32;
    check_no_difference(f, "from: b4, at: 0..3, role: action, dtype: float32, relative_to: s4");
    check_no_difference(f, "from: s4, at: 0..3, role: action, dtype: float32, relative_to: b4");
    free_difference_fixture(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_are_those_of_the_steps),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_states_with_rows_of_their_own),
        cmocka_unit_test(test_episodes_without_an_array),
        cmocka_unit_test(test_arrays_without_rows),
        cmocka_unit_test(test_long_episodes),
        cmocka_unit_test(test_many_windows),
        cmocka_unit_test(test_other_outputs_are_no_differences),
        cmocka_unit_test(test_other_streams_are_no_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
