/* Statistics of outputs and streams over a small file, against sums that this test forms itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/stats/stats.h"
#include "proto/array_len.h"
#include "unit/stats/stats_fixture.h"

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.17g is not %.17g", value, expected);
}

static struct trajd_statistics *compute(struct stats_fixture *f, const char *keys,
                                        struct trajd_pool *pool)
{
    const uint32_t output = 0;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, keys, &spec);
    const struct trajd_statistics_request request = {plan, pool, NULL};
    struct trajd_statistics *result;
    struct trajd_error error;

    if (trajd_statistics_of_outputs(&request, &output, 1, &result, &error))
        fail_msg("%s", error.message);
    assert_int_equal(result->fingerprint, trajd_statistics_output_fingerprint(plan, 0));
    drop_feed(&plan, &spec);
    return result;
}

/* Every row is a step of one window. The row with a NaN counts for neither feature. */
static void test_each_row_once(void **state)
{
    struct trajd_statistics *s = compute(*state, "outputs: {q: {at: 0}}", NULL);
    double sum = 0, squares = 0;

    for (int e = 0; e < FIXTURE_EPISODES; e++)
        for (int r = 0; r < FIXTURE_ROWS; r++)
            sum += e == 0 && r == 5 ? 0 : 100 * e + r;
    for (int e = 0; e < FIXTURE_EPISODES; e++)
        for (int r = 0; r < FIXTURE_ROWS; r++)
            squares += e == 0 && r == 5 ? 0 : pow(100 * e + r - sum / 79, 2);
    assert_int_equal(s->source, TRAJD_STATISTICS_ROWS);
    assert_int_equal(s->item_count, 80);
    assert_int_equal(s->step_count, 80);
    assert_int_equal(s->valid_count, 79);
    assert_int_equal(s->feature_count, 2);
    assert_int_equal(s->features[0].count, 79);
    assert_int_equal(s->features[1].count, 79);
    assert_near(s->features[0].mean, sum / 79, 1e-12);
    assert_near(s->features[0].std, sqrt(squares / 79), 1e-9);
    assert_near(s->features[0].min, 0, 0);
    assert_near(s->features[0].max, 139, 0);
    assert_near(s->features[1].max, 19.5, 0);
    assert_near(s->features[1].quantiles[2], 10, 0); /* the 40th of 79 */
    free(s);
}

static void assert_equal_figures(const struct trajd_statistics *a, const struct trajd_statistics *b)
{
    assert_int_equal(a->valid_count, b->valid_count);
    assert_memory_equal(a->features, b->features, a->feature_count * sizeof *a->features);
}

/* Neither the steps of a window nor padding changes which rows count. */
static void test_windows_do_not_change_what_rows_count(void **state)
{
    static const char *const feeds[] = {
        "outputs: {q: {at: -15..0}}", "outputs: {q: {at: -9..-3}}",
        "pad: {before: 0, after: 0}, outputs: {q: {at: -20..0}}",
        "outputs: {q: {at: -1..0, norm: {over: rows}}, image: {at: 0, norm: {over: windows}}}"};
    struct trajd_statistics *base = compute(*state, "outputs: {q: {at: 0}}", NULL);

    for (size_t i = 0; i < ARRAY_LEN(feeds); i++) {
        struct trajd_statistics *s = compute(*state, feeds[i], NULL);
        assert_int_equal(s->source, TRAJD_STATISTICS_ROWS);
        assert_int_equal(s->item_count, 80);
        assert_int_equal(s->fingerprint, base->fingerprint);
        assert_equal_figures(s, base);
        free(s);
    }
    free(base);
}

/* An episode that is too short for a window counts among the rows. */
static void test_short_episodes_count(void **state)
{
    struct stats_fixture *f = *state;
    struct trajd_statistics *s;

    f->episode_clocks[1].row_count = 3;
    f->extents[1][0].shape[0] = f->extents[1][1].shape[0] = 3;
    s = compute(f, "pad: {before: 0, after: 0}, outputs: {q: {at: -10..0}}", NULL);
    assert_int_equal(s->item_count, 43);
    assert_near(s->features[0].max, 102, 0);
    free(s);
    s = compute(f, "pad: {before: 0}, outputs: {q: {at: -10..0, norm: {over: windows}}}", NULL);
    assert_int_equal(s->item_count, 30);
    assert_near(s->features[0].max, 39, 0);
    free(s);
}

/* A window of two steps has most rows twice; steps before the first row are padding. */
static void test_rows_count_once_per_window(void **state)
{
    struct trajd_statistics *s =
        compute(*state, "outputs: {q: {at: -1..0, norm: {over: windows}}}", NULL);

    assert_int_equal(s->source, TRAJD_STATISTICS_WINDOWS);
    assert_int_equal(s->item_count, 80);
    assert_int_equal(s->step_count, 160);
    assert_int_equal(s->valid_count, 160 - 2 - 2); /* padding, and the row with a NaN */
    assert_int_equal(s->features[0].count, 156);
    free(s);
}

/* Targets at 5 Hz are found by time and resampled by the kernels. At the anchor they are its row.
 */
static void test_resampled_outputs_equal_direct_ones(void **state)
{
    struct trajd_statistics *direct = compute(*state, "outputs: {q: {at: 0}}", NULL),
                            *resampled = compute(*state, "outputs: {q: {at: 0 @ 5}}", NULL);

    assert_int_not_equal(direct->fingerprint, resampled->fingerprint);
    assert_int_equal(direct->valid_count, resampled->valid_count);
    for (int d = 0; d < 2; d++) {
        const struct trajd_feature_statistics *a = &direct->features[d],
                                              *b = &resampled->features[d];
        assert_int_equal(a->count, b->count);
        assert_near(a->mean, b->mean, 1e-9);
        assert_near(a->std, b->std, 1e-9);
        for (int q = 0; q < TRAJD_STATISTICS_QUANTILES; q++)
            assert_near(a->quantiles[q], b->quantiles[q], 0);
    }
    free(direct);
    free(resampled);
}

static void test_results_do_not_depend_on_threads(void **state)
{
    static const char feed[] = "outputs: {q: {at: -3..0 @ 20, norm: {over: windows}}}";
    struct trajd_statistics *alone = compute(*state, feed, NULL), *together;
    struct trajd_pool *pool;
    struct trajd_error error;

    assert_int_equal(trajd_pool_create(3, "test", &pool, &error), TRAJD_OK);
    together = compute(*state, feed, pool);
    assert_memory_equal(alone, together,
                        sizeof *alone + alone->feature_count * sizeof *alone->features);
    trajd_pool_destroy(&pool);
    free(alone);
    free(together);
}

static void test_images_have_figures_per_channel(void **state)
{
    struct trajd_statistics *s = compute(*state, "outputs: {image: {at: 0}}", NULL);

    assert_int_equal(s->feature_count, 3);
    for (int c = 0; c < 3; c++) {
        assert_int_equal(s->features[c].count, 80 * 4);
        assert_near(s->features[c].min, 10 * c, 0);
        assert_near(s->features[c].mean, 10 * c + 19.5, 1e-12);
        assert_near(s->features[c].max, 10 * c + 39, 0);
    }
    free(s);
}

/* Rows as recorded: a NaN is left out alone. */
static void test_streams(void **state)
{
    struct stats_fixture *f = *state;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, "outputs: {image: {at: 0}}", &spec);
    const struct trajd_statistics_request request = {plan, NULL, NULL};
    struct trajd_statistics *s;
    struct trajd_error error;

    assert_int_equal(trajd_statistics_of_stream(&request, 0, &s, &error), TRAJD_OK);
    assert_int_equal(s->source, TRAJD_STATISTICS_ROWS);
    assert_int_equal(s->fingerprint, trajd_statistics_stream_fingerprint(plan, 0));
    assert_int_equal(s->item_count, 80);
    assert_int_equal(s->features[0].count, 80);
    assert_int_equal(s->features[0].nan, 0);
    assert_int_equal(s->features[1].count, 79);
    assert_int_equal(s->features[1].nan, 1);
    assert_near(s->features[0].mean, 69.5, 1e-12);
    free(s);
    drop_feed(&plan, &spec);
}

static uint64_t fingerprint_of(struct stats_fixture *f, const char *keys)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, keys, &spec);
    const uint64_t fingerprint = trajd_statistics_output_fingerprint(plan, 0);

    drop_feed(&plan, &spec);
    return fingerprint;
}

static void test_fingerprints(void **state)
{
    static const char *const equal[] = {
        "seed: 3, outputs: {q: {at: 0}}", "order: sequential, tail: short, outputs: {q: {at: 0}}",
        "outputs: {q: {at: 0, norm: mean_std}, image: {at: 0}}", "outputs: {q: {at: -1..0}}",
        "pad: {before: 0}, outputs: {q: {at: -1..0}}"};
    static const char *const different[] = {
        "outputs: {q: {at: 0, kind: nearest}}", "outputs: {q: {at: 0, norm: {over: windows}}}",
        "bad_rows: keep, outputs: {q: {at: 0}}", "split: 0..0.5, outputs: {q: {at: 0}}"};
    static const char *const windows[] = {
        "outputs: {q: {at: 0, norm: {over: windows}}}",
        "outputs: {q: {at: -1..0, norm: {over: windows}}}",
        "pad: {before: 0}, outputs: {q: {at: -1..0, norm: {over: windows}}}"};
    const uint64_t base = fingerprint_of(*state, "outputs: {q: {at: 0}}");

    for (size_t i = 0; i < ARRAY_LEN(equal); i++)
        assert_int_equal(fingerprint_of(*state, equal[i]), base);
    for (size_t i = 0; i < ARRAY_LEN(different); i++)
        assert_int_not_equal(fingerprint_of(*state, different[i]), base);
    for (size_t i = 0; i < ARRAY_LEN(windows); i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(fingerprint_of(*state, windows[i]),
                                 fingerprint_of(*state, windows[j]));
}

static void test_cancelling(void **state)
{
    const uint32_t output = 0;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(*state, "outputs: {q: {at: 0}}", &spec);
    struct trajd_stats_heartbeat heartbeat = {.cancel = true};
    const struct trajd_statistics_request request = {plan, NULL, &heartbeat};
    struct trajd_statistics *result;
    struct trajd_error error;

    assert_int_equal(trajd_statistics_of_outputs(&request, &output, 1, &result, &error),
                     TRAJD_ERR_CLOSED);
    assert_null(result);
    drop_feed(&plan, &spec);
}

static void test_rows_that_cannot_be_read(void **state)
{
    const uint32_t output = 0;
    struct stats_fixture *f = *state;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(f, "outputs: {q: {at: 0}}", &spec);
    struct trajd_statistics_request request = {plan, NULL, NULL};
    struct trajd_statistics *result;
    struct trajd_error error;

    break_file(f);
    assert_int_equal(trajd_statistics_of_outputs(&request, &output, 1, &result, &error),
                     TRAJD_ERR_IO);
    assert_null(result);
    assert_int_equal(trajd_statistics_of_stream(&request, 0, &result, &error), TRAJD_ERR_IO);
    assert_null(result);
    drop_feed(&plan, &spec);

    plan = make_feed(f, "bad_rows: keep, outputs: {q: {at: 0}}", &spec);
    request.plan = plan;
    assert_int_equal(trajd_statistics_of_outputs(&request, &output, 1, &result, &error), TRAJD_OK);
    assert_int_equal(result->step_count, 80);
    assert_int_equal(result->valid_count, 0);
    assert_true(isnan(result->features[0].mean));
    free(result);
    drop_feed(&plan, &spec);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_stats_fixture, free_stats_fixture)
    const struct CMUnitTest tests[] = {
        TEST(test_each_row_once),
        TEST(test_windows_do_not_change_what_rows_count),
        TEST(test_short_episodes_count),
        TEST(test_rows_count_once_per_window),
        TEST(test_resampled_outputs_equal_direct_ones),
        TEST(test_results_do_not_depend_on_threads),
        TEST(test_images_have_figures_per_channel),
        TEST(test_streams),
        TEST(test_fingerprints),
        TEST(test_cancelling),
        TEST(test_rows_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
