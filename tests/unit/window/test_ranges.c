/* `ranges:`: files and mappings of ranges, the episodes that they name, and the windows that are
 * left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan_fixture.h"
#include "proto/array_len.h"

static void test_good_files(void **state)
{
    static const char text[] = " {\"demo_0\": [[0, 12],\n [12,20] , [31, 32]], \"b\" : [ ] ,\r\n"
                               "\t\"\\u00e9\\ud83d\\ude00\\\"\\/\": [[5, 999999999999999999]]}\n";
    struct trajd_ranges *ranges, *other;
    struct trajd_error error;

    (void)state;
    if (trajd_ranges_parse("r.json", text, strlen(text), &ranges, &error))
        fail_msg("%s", error.message);
    assert_int_equal(ranges->entry_count, 3);
    assert_int_equal(ranges->range_count, 4);
    assert_string_equal(trajd_ranges_name(ranges, &ranges->entries[0]), "demo_0");
    assert_string_equal(trajd_ranges_name(ranges, &ranges->entries[2]),
                        "\xc3\xa9\xf0\x9f\x98\x80\"/");
    assert_int_equal(ranges->entries[0].count, 3);
    assert_int_equal(ranges->entries[1].count, 0);
    assert_int_equal(ranges->entries[2].first, 3);
    assert_true(ranges->ranges[1].begin == 12 && ranges->ranges[1].end == 20);
    assert_true(ranges->ranges[3].begin == 5 &&
                ranges->ranges[3].end == INT64_C(999999999999999999));
    /* space does not matter, the content does */
    assert_int_equal(trajd_ranges_parse("o.json", "{\"a\":[[0,2]]}", 13, &other, &error), TRAJD_OK);
    assert_true(other->digest != ranges->digest);
    trajd_ranges_destroy(&ranges);
    assert_int_equal(trajd_ranges_parse("o.json", "{ \"a\": [[0, 2]]}", 16, &ranges, &error),
                     TRAJD_OK);
    assert_true(other->digest == ranges->digest);
    trajd_ranges_destroy(&ranges);
    trajd_ranges_destroy(&other);
}

/* Many episodes and ranges: more than any first allocation. */
static void test_a_large_file(void **state)
{
    enum { COUNT = 5000 };
    struct trajd_ranges *ranges;
    struct trajd_error error;
    char *text = malloc(COUNT * 64), *at = text;

    (void)state;
    at += sprintf(at, "{");
    for (int e = 0; e < COUNT; e++)
        at += sprintf(at, "%s\"episode_%d\": [[%d, %d], [%d, %d]]", e ? ", " : "", e, e, e + 1,
                      e + 7, e + 9);
    at += sprintf(at, "}");
    if (trajd_ranges_parse("r.json", text, (size_t)(at - text), &ranges, &error))
        fail_msg("%s", error.message);
    assert_true(ranges->entry_count == COUNT && ranges->range_count == 2 * COUNT);
    for (int e = 0; e < COUNT; e++) {
        char name[32];
        snprintf(name, sizeof name, "episode_%d", e);
        assert_string_equal(trajd_ranges_name(ranges, &ranges->entries[e]), name);
        assert_true(ranges->ranges[2 * e + 1].begin == e + 7);
    }
    trajd_ranges_destroy(&ranges);
    free(text);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "r.json:1: expected {\"EPISODE\""},
        {"[]", "r.json:1: expected {\"EPISODE\""},
        {"{}", "r.json: names no episode"},
        {"{\"a\": [[0, 3]]", "r.json:1: a: expected ',' or '}'"},
        {"{\"a\": [[0, 3]],}", "expected an episode in quotes"},
        {"{\"a\": [[0, 3]]} {", "there is more text"},
        {"{\"a\" [[0, 3]]}", "r.json:1: a: expected ':'"},
        {"{\n\"a\": [[0, 3],\n [2, 5]]}", "r.json:3: a: the ranges overlap or do not ascend"},
        {"{\"a\": [[5, 9], [0, 3]]}", "the ranges overlap or do not ascend"},
        {"{\"a\": [[3, 3]]}", "a range is empty or reversed"},
        {"{\"a\": [[5, 3]]}", "a range is empty or reversed"},
        {"{\"a\": [[-1, 3]]}", "begins before row 0"},
        {"{\"a\": [[0, 3.5]]}", "two whole numbers"},
        {"{\"a\": [[0, 3e1]]}", "two whole numbers"},
        {"{\"a\": [[0]]}", "two whole numbers"},
        {"{\"a\": [[0, 1, 2]]}", "two whole numbers"},
        {"{\"a\": [0, 1]}", "two whole numbers"},
        {"{\"a\": [[0, \"1\"]]}", "two whole numbers"},
        {"{\"a\": [[0, 1] [2, 3]]}", "expected ',' or ']'"},
        {"{\"a\": [[0, 9999999999999999999]]}", "more than 18 digits"},
        {"{\"a\": 3}", "a: expected a list of ranges"},
        {"{\"keep_ranges\": {\"a\": [[0, 1]]}}", "take what is under keep_ranges"},
        {"{\"a\": [[0, 1]], \"b\": [[0, 1]], \"a\": []}", "r.json: the key a comes twice"},
        {"{\"\": [[0, 1]]}", "a key must be 1 to 4095 bytes"},
        {"{\"a\\x\": []}", "an unknown escape"},
        {"{\"a\\u12\": []}", "four hexadecimal digits"},
        {"{\"a\\ud800\": []}", "half of a character"},
        {"{\"a\\u0000\": []}", "half of a character, or zero"},
        {"{\"a\n\": []}", "a control character"},
        {"{\"a\\nb\": [], \"a\\nb\": []}", "a control character"},
        {"{\"a\\u001b\": []}", "a control character"},
        {"{\"a", "the file ends inside a key"},
        {"{\"a\\", "the file ends inside a key"},
    };
    struct trajd_ranges *ranges;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(
            trajd_ranges_parse("r.json", bad[i].text, strlen(bad[i].text), &ranges, &error),
            TRAJD_ERR_ARGUMENT);
        assert_null(ranges);
        if (!strstr(error.message, bad[i].message))
            fail_msg("\n%s\nsaid: %s\nnot: %s", bad[i].text, error.message, bad[i].message);
    }
    assert_int_equal(trajd_ranges_load("/nowhere/r.json", &ranges, &error), TRAJD_ERR_NOT_FOUND);
}

#define FEED                                                                                       \
    ", global_batch: 2, tail: short, anchor: {clock: camera}, outputs: {action: {from: cam, at: "  \
    "-3..9}}}"

/* Writes the windows of a plan as runs: "a 0..9, b 3..4". */
static void write_runs(const struct fixture *f, const struct trajd_window_plan *plan, char *text)
{
    const uint64_t count = trajd_sampler_number_count(plan->sampler);
    struct trajd_window window, next;

    for (uint64_t id = 0; id < count; id++) {
        trajd_sampler_window(plan->sampler, id, &window);
        text += sprintf(text, "%s%s %lld", id ? ", " : "", f->episodes[window.episode_index].id,
                        (long long)window.anchor);
        for (next = window; id + 1 < count; id++, window = next) {
            trajd_sampler_window(plan->sampler, id + 1, &next);
            if (next.episode_index != window.episode_index || next.anchor != window.anchor + 1)
                break;
        }
        text += sprintf(text, "..%lld", (long long)window.anchor);
    }
}

static void test_windows_and_warnings(void **state)
{
    static const struct {
        const char *keys, *windows, *warning;
    } cases[] = {
        {"ranges: {a: [[3, 5], [80, 90]], b: [[0, 1]]}", "a 3..4, a 80..89, b 0..0", NULL},
        {"ranges: {a: [[3, 5], [5, 7]], \"file:b\": [[0, 90]]}", "a 3..6, b 0..89", NULL},
        {"ranges: {a: [[0, 90]], b: [[70, 90]]}, pad: {after: 0}", "a 0..80, b 70..80", NULL},
        {"ranges: {a: [[0, 5], [80, 90]]}, filter: train, pad: {before: 0, after: 0}",
         "a 3..4, a 80..80", NULL},
        {"ranges: {a: [[3, 5]]}", "a 3..4",
         "ranges: test:1: ranges: 1 of the 2 selected episodes have no range there, and so no "
         "window "
         "(the first: file: b)"},
        {"ranges: {a: [[3, 5]], b: []}", "a 3..4", "1 of the 2 selected episodes have no range"},
        {"ranges: {a: [[3, 5]]}, filter: train", "a 3..4", NULL},
        {"ranges: {a: [[3, 5]], c: [[1, 2]], d: []}, filter: train", "a 3..4",
         "ranges: test:1: ranges: 2 of the 3 keys name no episode of the dataset (the first: c)"},
        {"ranges: {a: [[3, 5]], b: [[85, 90]]}, pad: {after: 0}", "a 3..4",
         "1 of the 2 selected episodes are too short for any window"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        char text[512], runs[512];

        snprintf(text, sizeof text, "{dataset: test, %s" FEED, cases[i].keys);
        plan = make_plan(f, text, &spec, &error);
        if (!plan)
            fail_msg("%s: %s", cases[i].keys, error.message);
        write_runs(f, plan, runs);
        if (strcmp(runs, cases[i].windows))
            fail_msg("%s: %s", cases[i].keys, runs);
        assert_int_equal(plan->warnings.count, cases[i].warning != NULL);
        if (cases[i].warning && !strstr(plan->warnings.list[0], cases[i].warning))
            fail_msg("%s: %s", cases[i].keys, plan->warnings.list[0]);
        destroy(&plan, &spec);
    }
}

static void test_what_does_not_fit_the_data(void **state)
{
    static const struct {
        const char *keys, *message;
    } cases[] = {
        {"ranges: {a: [[3, 91]]}",
         "ranges: test:1: ranges: a: [3, 91] ends behind the last row: clock camera has 90 rows"},
        {"ranges: {a: [[3, 5]], \"file:a\": [[7, 9]]}", "a and file:a are the same episode"},
        {"ranges: {file: [[3, 5]]}", "file: the dataset has 2 such episodes: write FILE:EPISODE"},
        {"ranges: {c: [[3, 5]]}", "ranges and pad leave no window"},
        {"ranges: r.json", "test:1: ranges: a feed that a job sends can only name a file that"},
        {"ranges: {a: [[3, 5]]}, anchor: {rate: 10}", "test:1: ranges: ranges count the rows"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        char text[512];

        snprintf(text, sizeof text,
                 "{dataset: test, %s%s, global_batch: 2, outputs: {obs: {from: cam, at: 0}}}",
                 cases[i].keys, strstr(cases[i].keys, "anchor") ? "" : ", anchor: {clock: camera}");
        plan = make_plan(f, text, &spec, &error);
        assert_null(plan);
        if (!strstr(error.message, cases[i].message))
            fail_msg("%s: %s", cases[i].keys, error.message);
        destroy(&plan, &spec);
    }
}

/* openpi's keys end with the path of the recording on another machine. */
static void test_keys_of_openpi(void **state)
{
    static const char *const keys[] = {
        "gs://bucket/r2d2/ILIAD/success/Fri/recordings/MP4--/nfs/kun2/r2d2/ILIAD/success/Fri/"
        "trajectory.h5",
        "x--y--success/Fri/trajectory.h5", "x--success/Fri/trajectory.h5",
        "x---success/Fri/trajectory.h5"};
    struct fixture *f = *state;

    f->file.relative_path = "success/Fri/trajectory.h5";
    f->index.episode_count = 1;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        struct trajd_error error;
        char text[512], runs[64];

        snprintf(text, sizeof text, "{dataset: test, ranges: {\"%s\": [[2, 4]]}" FEED, keys[i]);
        plan = make_plan(f, text, &spec, &error);
        if (!plan)
            fail_msg("%s: %s", keys[i], error.message);
        write_runs(f, plan, runs);
        assert_string_equal(runs, "a 2..3");
        assert_int_equal(plan->warnings.count, 0);
        destroy(&plan, &spec);
    }
    f->index.episode_count = 2;
}

/* A file is read when its owner allows it; its content is part of the fingerprint. */
static void test_a_file_and_the_fingerprint(void **state)
{
    static const char *const contents[] = {"{\"a\": [[0, 4]]}", "{ \"a\": [[0, 4]] }",
                                           "{\"a\": [[0, 5]]}"};
    static char far[4096]; /* a folder whose name leaves no room for that of the file */
    char folder[] = "/tmp/trajd_ranges_XXXXXX", path[64];
    uint64_t fingerprints[3];
    struct fixture *f = *state;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/r.json", folder);
    for (int i = 0; i < 3; i++) {
        static const char text[] = "{mix: {test: {weight: 1}, other: {weight: 1, ranges: {b: [[1, "
                                   "2]]}}}, ranges: r.json" FEED;
        struct trajd_window_plan *plan;
        struct trajd_window_spec *spec;
        struct trajd_yaml *yaml;
        struct trajd_error error;
        FILE *file = fopen(path, "w");

        fputs(contents[i], file);
        fclose(file);
        assert_int_equal(trajd_yaml_parse("test", text, strlen(text), &yaml, &error), TRAJD_OK);
        assert_int_equal(
            trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 2, &spec, &error),
            TRAJD_OK);
        trajd_yaml_destroy(&yaml);
        memset(far, 'f', sizeof far - 1);
        assert_int_equal(trajd_spec_ranges_load(spec, far, &error), TRAJD_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "ranges: the path is too long"));
        if (trajd_spec_ranges_load(spec, folder, &error))
            fail_msg("%s", error.message);
        assert_true(spec->members[0].spec->select.ranges == spec->select.ranges);
        assert_string_equal(trajd_spec_file(spec, 0), "r.json");
        assert_null(trajd_spec_file(spec, 1));
        assert_int_equal(spec->members[1].spec->select.ranges->range_count, 1);
        assert_int_equal(
            trajd_window_plan_create(spec->members[0].spec, &f->dataset, &plan, &error), TRAJD_OK);
        fingerprints[i] = plan->fingerprint;
        destroy(&plan, &spec);
    }
    assert_true(fingerprints[0] == fingerprints[1] && fingerprints[0] != fingerprints[2]);
    unlink(path);
    rmdir(folder);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_fixture, free_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),     cmocka_unit_test(test_a_large_file),
        cmocka_unit_test(test_bad_files),      TEST(test_windows_and_warnings),
        TEST(test_what_does_not_fit_the_data), TEST(test_keys_of_openpi),
        TEST(test_a_file_and_the_fingerprint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
