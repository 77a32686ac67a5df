// libs: trajd_window
/* Measures what a batch's windows cost before any resampling: looking them up, and binding the
 * request's arrays to them. The daemon's thread does both once per batch. Usage: bench_windows
 * INDEXER DATASET LAYOUT.yaml */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/window/window_batch.h"

#define TURNS 4000u

static const char text[] = "dataset: bench\n"
                           "global_batch: 256\n"
                           "rate: 10\n"
                           "anchor: {clock: pose}\n"
                           "pad: {before: 1, after: any, with: edge}\n"
                           "outputs:\n"
                           "  joints:  {from: joint_pos, at: -1..0}\n"
                           "  pose:    {from: pose_quat, at: -1..0}\n"
                           "  place:   {from: pose_pos, at: -1..0}\n"
                           "  gripper: {from: gripper_cmd, at: -1..0, max_age: 100ms}\n"
                           "  actions: {from: [pose_pos, gripper_cmd], at: 0..15, role: action}\n";

static void check(enum trajd_status status, const struct trajd_error *error)
{
    if (status) {
        fprintf(stderr, "bench_windows: %s\n", error->message);
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double median_us(uint64_t times_ns[TURNS])
{
    qsort(times_ns, TURNS, sizeof *times_ns, compare);
    return (double)times_ns[TURNS / 2] * 1e-3;
}

static const void *const *rows_of(void *context, uint32_t episode)
{
    (void)episode;
    return context;
}

int main(int argc, char **argv)
{
    static const void *rows[64];
    static uint8_t slot[1]; /* outputs are placed, but not written */
    struct trajd_dataset_options options = {.name = "bench",
                                            .index = {.child_count = 1, .file_timeout_ms = 60000},
                                            .cache_budget_bytes = UINT64_C(1) << 30,
                                            .reader_count = 1};
    struct trajd_dataset *dataset;
    struct trajd_window_spec *spec;
    struct trajd_window_plan *plan;
    struct trajd_binding *batch;
    struct trajd_yaml *yaml;
    struct trajd_error error;
    static uint64_t look_up_ns[TURNS], bind_ns[TURNS];
    uint64_t position = 0;

    if (argc != 4) {
        fprintf(stderr, "bench_windows INDEXER DATASET LAYOUT.yaml\n");
        return 2;
    }
    options.index.helper_path = argv[1];
    options.index.path = argv[2];
    options.index.layout = argv[3]; /* a path */
    check(trajd_dataset_open(&options, &dataset, &error), &error);
    check(trajd_yaml_parse("bench", text, strlen(text), &yaml, &error), &error);
    check(trajd_window_spec_parse(yaml, trajd_yaml_root(yaml), "bench", 2, &spec, &error), &error);
    check(trajd_window_plan_create(spec, dataset, &plan, &error), &error);
    check(trajd_window_batch_create(plan, &batch, &error), &error);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        const uint64_t begin_ns = now_ns();
        trajd_window_batch_look_up(batch, turn, position, 256);
        const uint64_t middle_ns = now_ns();
        trajd_bind_windows(batch, 0, 256, slot, rows_of, rows);
        bind_ns[turn] = now_ns() - middle_ns;
        look_up_ns[turn] = middle_ns - begin_ns;
        position = (position + 256) % 16384;
    }
    printf("batches of 256 windows, %u episodes: looked up in %.1f us, bound in %.1f us\n",
           dataset->index->episode_count, median_us(look_up_ns), median_us(bind_ns));
    trajd_binding_destroy(&batch);
    trajd_window_plan_destroy(&plan);
    trajd_window_spec_destroy(&spec);
    trajd_yaml_destroy(&yaml);
    trajd_dataset_destroy(&dataset);
    return 0;
}
