/* The interface between the files of bench_resample: sets of buffers to rotate through, and times
 * of launches on them. */
#ifndef TRAJD_TESTS_BENCH_RESAMPLE_H
#define TRAJD_TESTS_BENCH_RESAMPLE_H

#include <stdbool.h>
#include <stdio.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/tuning.h"
#include "kernels/device.h"
#include "tests/gpu/device_graph.h"
#include "tests/support/dense_request.h"

#define BENCH_POOL_BYTES (256ull << 20) /* of source values without NaN */
#define BENCH_SETS_BYTES (1200ull << 20)
#define BENCH_SETS_MAX 400u
#define BENCH_SAMPLES 9
#define BENCH_STEP_NS 10000000

enum bench_layout {
    BENCH_LAYOUT_DENSE,   /* the dense entry: stamps and targets of every window */
    BENCH_LAYOUT_OFFSETS, /* a request: windows of episodes, offsets around anchors, stamps */
    BENCH_LAYOUT_REGULAR, /* the same on a regular clock */
    BENCH_LAYOUT_ROWS,    /* row steps */
    BENCH_LAYOUT_POLICY,  /* a policy's batch: five streams, three clocks */
};

struct bench_shape {
    uint32_t B, S, T, D;
    enum trajd_dtype source, output;
    enum trajd_kind kind;
    enum bench_layout layout;
    double budget_us; /* 0: none */
};

/* One set of a rotation: a dense problem or a policy's batch, ready to launch. */
struct bench_set {
    struct trajd_clock clocks[3];
    struct trajd_grid grids[2];
    struct trajd_bracket brackets[3];
    struct trajd_stream streams[5];
    struct trajd_resample_request request;
};

struct bench {
    struct trajd_device *device;
    struct trajd_device_stream *stream;
    struct trajd_device_facts facts;
    char *pool, *sets_memory, *host;
    uint64_t used_bytes;
    struct bench_set sets[BENCH_SETS_MAX];
    uint32_t set_count;
    uint64_t output_bytes, moved_bytes;
    FILE *out, *table;
    bool any_written;
    bool wide; /* all candidates, and more of them at length */
    uint64_t random;
};

struct bench_sample {
    double us[BENCH_SAMPLES];
    double median_us;
};

struct bench_trial {
    struct trajd_cuda_shape shape;
    double us;
};

enum bench_temperature { BENCH_COLD, BENCH_HOT };

extern struct trajd_error bench_error;

/* Ends the program with a message after an error. */
void bench_must(enum trajd_status status);

/* resample_bench_sets.c: opens the device, makes source values without NaN, and makes sets. */
void bench_open(struct bench *b);
/* Makes as many sets of the shape as a rotation beyond the L2 takes. */
void bench_make_sets(struct bench *b, const struct bench_shape *shape);

/* resample_bench_trials.c: lists shapes that are worth trying for a problem whose windows see
 * row_count rows. All fit the problem. Writes at most `limit` of them to *trials (NULL: only counts
 * them). `wide` adds finer steps. */
uint32_t bench_list_trials(const struct trajd_cuda_problem *problem,
                           const struct trajd_device_facts *facts, uint64_t row_count, bool wide,
                           struct bench_trial *trials, uint32_t limit);

/* resample_bench_times.c: times are in us per launch. */
void bench_launch(struct bench *b, const struct bench_set *set,
                  const struct trajd_cuda_shape *shape);
void bench_time_shape(struct bench *b, const struct trajd_cuda_shape *shape,
                      enum bench_temperature temperature, struct bench_sample *sample);
void bench_time_single(struct bench *b, const struct trajd_cuda_shape *shape,
                       struct bench_sample *sample);
void bench_time_write(struct bench *b, struct bench_sample *sample);
double bench_time_copy_gb_s(struct bench *b);
double bench_time_nothing_us(struct bench *b, int overlaps);
double bench_quick_us(struct bench *b, const struct trajd_cuda_shape *shape);
int bench_by_value(const void *a, const void *b);

#endif
