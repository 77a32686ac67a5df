/* Statistics of many feeds over one file with streams of each type are compared, as text, with
 * tests/golden/stats/figures.txt. They are the same where the row cache holds few episodes. To
 * record the text again, name that folder as the argument, and read the differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/stats/stats.h"
#include "proto/array_len.h"
#include "tests/support/array_list.h"
#include "tests/support/index_files.h"

static const char *recorded_folder; /* NULL: the text is compared */

#define ACT "anchor: {clock: act}, "
#define ARM "anchor: {clock: arm}, "

static const char *const feeds[] = {
    ACT "outputs: {act: {at: 0}}",
    ACT "outputs: {act: {at: -2..3, role: action}}",
    ACT "outputs: {act: {at: -2..3, role: action, norm: {over: windows}}}",
    ACT
    "pad: {before: 0, after: 0}, outputs: {act: {at: -2..3, role: action, norm: {over: windows}}}",
    ACT "pad: {before: 2, after: any, with: zero}, outputs: {act: {at: -4..5, role: action, norm: "
        "{over: windows}}}",
    ACT "pad: {before: 1, after: 3}, outputs: {act: {at: -1..6, role: action, max_age: 120ms, "
        "norm: {over: windows}}}",
    ACT "outputs: {count: {at: 0..2, role: action, norm: {over: windows}}, large: {at: -1..0}, "
        "grip: {at: 0}, "
        "half: {at: 0}, force: {at: 0}}",
    ACT "outputs: {count: {at: 0, dtype: float32}, large: {at: 0, norm: {over: windows}}, grip: "
        "{at: -3..0, norm: {over: windows}}, half: {at: -1..0, dtype: float16, norm: {over: "
        "windows}}, force: {at: -2..0, width: 120ms, norm: {over: windows}}}",
    ACT "outputs: {both: {from: [act, force], at: -1..1, role: action, norm: {over: windows}}, "
        "image: {at: 0}, "
        "depth: {at: -1..0, norm: {over: windows}}}",
    ACT "outputs: {image: {at: -1..0, dtype: float32, kind: nearest}, extra: {at: 0, missing: "
        "skip}}",
    ACT "outputs: {extra: {at: -1..0, missing: zero, norm: {over: windows}}, act: {at: 0}}",
    ACT "outputs: {extra: {at: 0, missing: zero}, act: {at: -1..0, norm: {over: windows}}}",
    ARM "outputs: {pos: {at: 0}, heading: {at: 0}, quat: {at: 0}}",
    ARM
    "outputs: {pos: {at: -1..1, role: action, norm: {over: windows}}, heading: {at: -1..0, "
    "range_low: 0, norm: {over: windows}}, quat: {at: 0..2, role: action, norm: {over: windows}}}",
    ARM "bad_rows: keep, outputs: {pos: {at: -3..0, max_gap: 60ms, norm: {over: windows}}, act: "
        "{at: -100ms..50ms @ 40, role: action, norm: {over: windows}}}",
    ARM "rate: 30, outputs: {pos: {at: -2..2, role: action, norm: {over: windows}}, act: {at: "
        "-1..0, lookahead: 20ms}}",
    ARM "rate: 30, outputs: {pos: {at: 0, kind: nearest}, force: {at: 0}, image: {at: 0}}",
    "anchor: {rate: 12.5}, outputs: {pos: {at: 0}, act: {at: -1..1, role: action, norm: {over: "
    "windows}}}",
    "anchor: {clock: cam}, outputs: {image: {at: 0, norm: {over: windows}}, pos: {at: 0}, act: "
    "{at: 0}}",
    "anchor: {clock: cam}, outputs: {extra: {at: 0..1, role: action, max_age: 1s, missing: zero, "
    "norm: {over: windows}}, image: {at: 0}}",
    "anchor: {rate: 100/3}, outputs: {act: {at: 0}}",
    "anchor: {rate: 100}, outputs: {act: {at: 0}}",
    ACT "filter: some, outputs: {act: {at: 0}, large: {at: 0}}",
    ACT "split: 0.2..0.7, order: sequential, outputs: {act: {at: -1..0, norm: {over: windows}}}",
    ACT "episodes: [0..1, ep_7], tail: short, outputs: {act: {at: 0}}",
};

static void put_statistics(FILE *out, const char *name, const struct trajd_statistics *statistics)
{
    fprintf(out, "  %s: source %d, %llu items, %llu steps, %llu valid\n", name, statistics->source,
            (unsigned long long)statistics->item_count, (unsigned long long)statistics->step_count,
            (unsigned long long)statistics->valid_count);
    for (uint32_t d = 0; d < statistics->feature_count; d++) {
        const struct trajd_feature_statistics *feature = &statistics->features[d];
        fprintf(out, "    %llu, nan %llu, infinite %llu, mean %.6g std %.6g min %.9g max %.9g",
                (unsigned long long)feature->count, (unsigned long long)feature->nan,
                (unsigned long long)feature->infinite, feature->mean, feature->std, feature->min,
                feature->max);
        for (int q = 0; q < TRAJD_STATISTICS_QUANTILES; q++)
            fprintf(out, " %.7g", feature->quantiles[q]);
        fputs("\n", out);
    }
}

static struct trajd_window_plan *make_feed(struct trajd_dataset *dataset, const char *keys,
                                           struct trajd_window_spec **spec)
{
    struct trajd_window_plan *plan = NULL;
    struct trajd_yaml *yaml;
    struct trajd_error error;
    char text[1024];

    snprintf(text, sizeof text, "{dataset: stats, global_batch: 7, %s}", keys);
    if (trajd_yaml_parse("test", text, strlen(text), &yaml, &error) ||
        trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "feed", 1, spec, &error) ||
        trajd_window_plan_create(*spec, dataset, &plan, &error))
        fail_msg("%s: %s", keys, error.message);
    trajd_yaml_destroy(&yaml);
    return plan;
}

/* Writes the statistics of all outputs of a feed, computed in the same sweeps. */
static void put_feed(FILE *out, struct trajd_dataset *dataset, struct trajd_pool *pool,
                     const char *keys)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(dataset, keys, &spec);
    struct trajd_stats_heartbeat heartbeat = {0};
    const struct trajd_statistics_request request = {plan, pool, &heartbeat};
    struct trajd_statistics *results[8];
    uint32_t outputs[8];
    struct trajd_error error;

    fprintf(out, "%s\n", keys);
    for (uint32_t o = 0; o < plan->rules.output_count; o++)
        outputs[o] = o;
    if (trajd_statistics_of_outputs(&request, outputs, plan->rules.output_count, results, &error)) {
        fprintf(out, "  %s\n", error.message);
    } else {
        assert_int_equal(heartbeat.permille, 1000);
        for (uint32_t o = 0; o < plan->rules.output_count; o++) {
            put_statistics(out, spec->outputs[o].name, results[o]);
            free(results[o]);
        }
    }
    trajd_window_plan_destroy(&plan);
    trajd_window_spec_destroy(&spec);
}

/* Writes the statistics of all streams' rows as recorded. */
static void put_streams(FILE *out, struct trajd_dataset *dataset, struct trajd_pool *pool,
                        const char *keys)
{
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan = make_feed(dataset, keys, &spec);
    const struct trajd_statistics_request request = {plan, pool, NULL};

    fprintf(out, "streams: %s\n", keys);
    for (uint32_t s = 0; s < dataset->index->stream_count; s++) {
        struct trajd_statistics *result;
        struct trajd_error error;
        if (trajd_statistics_of_stream(&request, s, &result, &error)) {
            fprintf(out, "  %s\n", error.message);
            continue;
        }
        put_statistics(out, dataset->index->streams[s].name, result);
        free(result);
    }
    trajd_window_plan_destroy(&plan);
    trajd_window_spec_destroy(&spec);
}

static struct trajd_dataset *open_stats(uint64_t cache_budget_bytes)
{
    char data[128], layout[128];
    struct trajd_dataset_options options = {
        .name = "stats", .cache_budget_bytes = cache_budget_bytes, .reader_count = 2};
    struct trajd_dataset *dataset;
    struct trajd_error error;

    snprintf(data, sizeof data, "%s/stats.hdf5", index_folder);
    snprintf(layout, sizeof layout, "%s/stats.yaml", index_folder);
    options.index = options_for(data, layout);
    if (trajd_dataset_open(&options, &dataset, &error))
        fail_msg("%s", error.message);
    return dataset;
}

static void write_figures(const char *path, uint64_t cache_budget_bytes, struct trajd_pool *pool)
{
    struct trajd_dataset *dataset = open_stats(cache_budget_bytes);
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    for (size_t k = 0; k < ARRAY_LEN(feeds); k++)
        put_feed(out, dataset, pool, feeds[k]);
    put_streams(out, dataset, pool, ACT "outputs: {act: {at: 0}}");
    put_streams(out, dataset, pool, ARM "filter: some, outputs: {pos: {at: -1..0}}");
    trajd_dataset_destroy(&dataset);
    fclose(out);
}

static void figures_are_as_recorded(void **state)
{
    /* bytes of rows: all of them; those of few episodes */
    static const uint64_t budgets[] = {1 << 20, 4000};

    (void)state;
    for (size_t b = 0; b < ARRAY_LEN(budgets); b++) {
        struct trajd_pool *pool = NULL;
        struct trajd_error error;
        char path[128];
        snprintf(path, sizeof path, "%s/figures.txt", index_folder);
        if (b)
            assert_int_equal(trajd_pool_create(2, "test", &pool, &error), TRAJD_OK);
        write_figures(path, budgets[b], pool);
        trajd_pool_destroy(&pool);
        if (recorded_folder && !b)
            shell("cp %s %s", path, recorded_folder);
        shell("diff -u %s/tests/golden/stats/figures.txt %s", TRAJD_SOURCE_DIR, path);
    }
}

/* Anchors at other rates are other windows, also where only the denominator differs. */
static void fingerprints_tell_rates_apart(void **state)
{
    static const char *const rates[] = {"100", "50", "100/3", "100/7", "50/3"};
    struct trajd_dataset *dataset = open_stats(1 << 20);
    uint64_t fingerprints[ARRAY_LEN(rates)];

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(rates); k++) {
        struct trajd_window_spec *spec;
        struct trajd_window_plan *plan;
        char keys[128];
        snprintf(keys, sizeof keys, "anchor: {rate: %s}, outputs: {act: {at: 0}}", rates[k]);
        plan = make_feed(dataset, keys, &spec);
        fingerprints[k] = trajd_statistics_output_fingerprint(plan, 0);
        for (size_t i = 0; i < k; i++)
            assert_true(fingerprints[i] != fingerprints[k]);
        trajd_window_plan_destroy(&plan);
        trajd_window_spec_destroy(&spec);
    }
    trajd_dataset_destroy(&dataset);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_as_recorded),
        cmocka_unit_test(fingerprints_tell_rates_apart),
    };

    recorded_folder = argc > 1 ? argv[1] : NULL;
    if (!index_files_choose("make_stats_files.py"))
        return INDEX_FILES_SKIPPED;
    return cmocka_run_group_tests(tests, index_files_make, index_files_remove);
}
