// libs: trajd_stats
/* Measures statistics over the cache: of a stream's rows, of an action chunk of 16 over the windows
 * (each row is in 16 windows, but is counted once), and of a chunk that is resampled.
 *
 * usage: bench_statistics FILE [THREADS]. FILE has robomimic's layout with actions [rows,
 * features]. Rows are in memory before the measurement. part_statistics.py writes such a file and
 * compares with numpy. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/base/paths.h"
#include "daemon/stats/stats.h"

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static struct trajd_window_plan *make_plan(struct trajd_dataset *dataset, const char *output,
                                           struct trajd_error *error)
{
    static struct trajd_window_spec *spec; /* lives as long as the program */
    struct trajd_window_plan *plan = NULL;
    struct trajd_yaml *yaml;
    char text[256];

    snprintf(
        text, sizeof text,
        "{dataset: bench, global_batch: 256, anchor: {clock: actions}, outputs: {actions: {%s}}}",
        output);
    if (trajd_yaml_parse("bench", text, strlen(text), &yaml, error))
        return NULL;
    if (!trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "bench", 2, &spec, error))
        trajd_window_plan_create(spec, dataset, &plan, error);
    trajd_yaml_destroy(&yaml);
    return plan;
}

/* Measures rows (stream 0 of the plan's output) or windows, and prints one line. */
static int measure(const char *label, struct trajd_dataset *dataset, struct trajd_pool *pool,
                   const char *output, bool rows)
{
    const uint32_t first = 0;
    struct trajd_statistics *found = NULL;
    struct trajd_statistics_request request = {.pool = pool};
    struct trajd_window_plan *plan;
    struct trajd_error error;
    double begin, cpu;

    plan = make_plan(dataset, output, &error);
    if (!plan)
        return fprintf(stderr, "%s\n", error.message), 1;
    request.plan = plan;
    begin = now_s();
    cpu = cpu_s();
    if (rows ? trajd_statistics_of_stream(&request, plan->rules.targets[0].stream_index, &found,
                                          &error)
             : trajd_statistics_of_outputs(&request, &first, 1, &found, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    printf("%-34s %10.1f ms (%.1f ms of CPU)  %" PRIu64 " of %" PRIu64
           " x %u, mean %.17g std %.17g q01 %.17g q99 %.17g\n",
           label, (now_s() - begin) * 1e3, (cpu_s() - cpu) * 1e3, found->valid_count,
           found->step_count, found->feature_count, found->features[0].mean, found->features[0].std,
           found->features[0].quantiles[0], found->features[0].quantiles[4]);
    free(found);
    trajd_window_plan_destroy(&plan);
    return 0;
}

int main(int argc, char **argv)
{
    char helper[4096], layouts[4096];
    struct trajd_dataset_options options = {.name = "bench",
                                            .cache_budget_bytes = UINT64_C(8) << 30,
                                            .reader_count = 2,
                                            .index = {.path = argc > 1 ? argv[1] : "",
                                                      .layout = "robomimic",
                                                      .helper_path = helper,
                                                      .layout_directory = layouts,
                                                      .child_count = 2,
                                                      .file_timeout_ms = 60000}};
    const uint32_t threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 2;
    struct trajd_dataset *dataset;
    struct trajd_pool *pool;
    struct trajd_error error;
    int failed;

    if (argc < 2 || !trajd_paths_helper(helper, sizeof helper) ||
        !trajd_paths_layouts(layouts, sizeof layouts))
        return fprintf(stderr, "usage: bench_statistics FILE [THREADS]\n"), 2;
    if (trajd_dataset_open(&options, &dataset, &error) ||
        trajd_pool_create(threads, "bench", &pool, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    failed =
        measure("rows, from the file", dataset, pool, "at: 0", true) ||
        measure("rows", dataset, pool, "at: 0", true) ||
        measure("windows of 16 rows", dataset, pool, "at: 0..15, norm: {over: windows}", false) ||
        measure("windows of 1, resampled", dataset, pool, "at: 0..0 @ 10", false);
    trajd_pool_destroy(&pool);
    trajd_dataset_destroy(&dataset);
    return failed;
}
