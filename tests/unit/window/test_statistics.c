/* Files of statistics: the three forms, and what is wrong with others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/window/feed_spec/statistics.h"
#include "proto/array_len.h"

static enum trajd_status read_text(const char *text, const char *name,
                                   struct trajd_statistics **result, struct trajd_error *error)
{
    struct trajd_yaml *yaml;
    enum trajd_status status;

    if (trajd_yaml_parse("s.json", text, strlen(text), &yaml, error))
        fail_msg("%s", error->message);
    status = trajd_statistics_read_yaml(yaml, name, result, error);
    trajd_yaml_destroy(&yaml);
    return status;
}

static void test_three_forms(void **state)
{
    static const char *const texts[] = {
        "{\"trajd_statistics\": 1, \"outputs\": {\"x\": {\"mean\": [1, 2.5], \"std\": [3, null]}}}",
        "{\"norm_stats\": {\"y\": {}, \"x\": {\"mean\": [1, 2.5], \"std\": [3, NaN]}}}",
        "{\"x\": {\"mean\": [[1], [2.5]], \"std\": [[[3]], \"nan\"], \"count\": [7]}}"};
    struct trajd_statistics *s;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (read_text(texts[i], "x", &s, &error))
            fail_msg("%s", error.message);
        assert_int_equal(s->source, TRAJD_STATISTICS_FILE);
        assert_int_equal(s->fingerprint, 0);
        assert_int_equal(s->feature_count, 2);
        assert_true(s->features[0].mean == 1 && s->features[1].mean == 2.5);
        assert_true(s->features[0].std == 3 && isnan(s->features[1].std));
        assert_true(isnan(s->features[0].min) && isnan(s->features[1].quantiles[4]));
        free(s);
    }
}

static void test_all_figures(void **state)
{
    static const char text[] = "{x: {mean: [1], std: [2], min: [3], max: [4], q01: [5], q10: [6], "
                               "q50: [7], q90: [8], q99: [9]}}";
    struct trajd_statistics *s;
    struct trajd_error error;

    (void)state;
    assert_int_equal(read_text(text, "x", &s, &error), TRAJD_OK);
    for (int n = 0; n < TRAJD_STATISTICS_FIGURES; n++)
        assert_true(*(const double *)((const char *)&s->features[0] +
                                      trajd_statistics_figures[n].offset) == n + 1);
    free(s);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text;
        enum trajd_status status;
        const char *message;
    } bad[] = {
        {"[1, 2]", TRAJD_ERR_ARGUMENT, "the file has no statistics"},
        {"{\"trajd_statistics\": 1}", TRAJD_ERR_ARGUMENT, "the file has no statistics"},
        {"{xx: {mean: [1]}}", TRAJD_ERR_NOT_FOUND, "did you mean xx"},
        {"{\"norm_stats\": {}}", TRAJD_ERR_NOT_FOUND, "the file has 0 names"},
        {"{x: 3}", TRAJD_ERR_NOT_FOUND, "no statistics with the name x"},
        {"{x: {mean: [1, 2], std: [1]}}", TRAJD_ERR_ARGUMENT, "1 numbers, but the figures before"},
        {"{x: {count: [1]}}", TRAJD_ERR_ARGUMENT, "no figures"},
        {"{x: {mean: []}}", TRAJD_ERR_ARGUMENT, "no figures"},
        {"{x: {mean: [one]}}", TRAJD_ERR_ARGUMENT, "x.mean"},
        {"{x: {mean: [1e400]}}", TRAJD_ERR_ARGUMENT, "x.mean"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct trajd_statistics *s = (struct trajd_statistics *)1;
        struct trajd_error error = {0};
        const enum trajd_status status = read_text(bad[i].text, "x", &s, &error);
        if (status != bad[i].status || error.status != status || s ||
            !strstr(error.message, bad[i].message))
            fail_msg("%s: %d %s", bad[i].text, (int)status, error.message);
    }
}

static void test_files(void **state)
{
    char path[] = "/tmp/trajd_statistics_XXXXXX";
    const int fd = mkstemp(path);
    struct trajd_statistics *s;
    struct trajd_error error;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{x: {mean: [4]}}", 16), 16);
    close(fd);
    assert_int_equal(trajd_statistics_read_file(path, "x", &s, &error), TRAJD_OK);
    assert_true(s->features[0].mean == 4);
    free(s);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(trajd_statistics_read_file(path, "x", &s, &error), TRAJD_ERR_NOT_FOUND);
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_forms),
        cmocka_unit_test(test_all_figures),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
