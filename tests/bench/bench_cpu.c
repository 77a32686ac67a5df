// libs: trajd_kernels
/* Measures resampling on the CPU: a policy's batch, images that pass through, and large shapes,
 * each beside a memcpy of its output in the same run. Usage: bench_cpu [THREADS [NAME]]. Prints the
 * best of many runs: the speed of the machine without other load. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/dispatch/plan.h"
#include "kernels/pool.h"
#include "proto/array_len.h"
#include "proto/dtype.h"

#define RUNS 300
#define RUN_TIME_NS 3e8
#define EPISODE_ROWS 500
#define EPISODE_LIMIT 64
#define SOURCE_LIMIT_BYTES (UINT64_C(128) << 20)
#define STREAM_LIMIT 8

static const char *const kind_names[TRAJD_KIND_COUNT] = {
    "linear", "previous", "nearest", "slerp_xyzw", "slerp_wxyz", "angle", "mean"};

struct bench_stream {
    enum trajd_kind kind;
    enum trajd_dtype source, output;
    uint32_t features;
    uint32_t steps;
    uint64_t source_hz; /* of the clock; 0: a grid of rows */
    uint8_t normalised;
};

struct bench {
    const char *name;
    uint32_t windows;
    uint32_t stream_count;
    struct bench_stream streams[STREAM_LIMIT];
};

static const struct bench benches[] = {
    {"policy, rows",
     256,
     5,
     {{TRAJD_KIND_LINEAR, TRAJD_F64, TRAJD_F32, 3, 2, 0, 0},
      {TRAJD_KIND_SLERP_XYZW, TRAJD_F64, TRAJD_F32, 4, 2, 0, 0},
      {TRAJD_KIND_LINEAR, TRAJD_F64, TRAJD_F32, 2, 2, 0, 0},
      {TRAJD_KIND_LINEAR, TRAJD_F64, TRAJD_F32, 7, 2, 0, 0},
      {TRAJD_KIND_LINEAR, TRAJD_F64, TRAJD_F32, 7, 17, 0, 1}}},
    {"policy, 3 clocks",
     256,
     5,
     {{TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 3, 2, 100, 0},
      {TRAJD_KIND_SLERP_XYZW, TRAJD_F32, TRAJD_F32, 4, 2, 100, 0},
      {TRAJD_KIND_PREVIOUS, TRAJD_F32, TRAJD_F32, 2, 2, 30, 0},
      {TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 7, 2, 500, 1},
      {TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 7, 17, 500, 1}}},
    {"slerp x 16 steps", 256, 1, {{TRAJD_KIND_SLERP_XYZW, TRAJD_F32, TRAJD_F32, 4, 16, 100, 0}}},
    {"mean 1 kHz to 20 Hz", 256, 1, {{TRAJD_KIND_MEAN, TRAJD_F64, TRAJD_F32, 6, 16, 1000, 0}}},
    {"image 84x84x3", 256, 1, {{TRAJD_KIND_PREVIOUS, TRAJD_U8, TRAJD_U8, 84 * 84 * 3, 1, 0, 0}}},
    {"image 84x84x3 x 2",
     256,
     1,
     {{TRAJD_KIND_PREVIOUS, TRAJD_U8, TRAJD_U8, 84 * 84 * 3, 2, 0, 0}}},
    {"image to f32, scaled",
     64,
     1,
     {{TRAJD_KIND_PREVIOUS, TRAJD_U8, TRAJD_F32, 84 * 84 * 3, 1, 0, 1}}},
    {"wide linear", 32, 1, {{TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 128, 256, 100, 0}}},
    {"wide linear, scaled", 32, 1, {{TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 128, 256, 100, 1}}},
    {"wide linear f64", 32, 1, {{TRAJD_KIND_LINEAR, TRAJD_F64, TRAJD_F32, 128, 256, 100, 0}}},
    {"wide linear to f16", 32, 1, {{TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F16, 128, 256, 100, 0}}},
    {"angle", 256, 1, {{TRAJD_KIND_ANGLE, TRAJD_F32, TRAJD_F32, 7, 16, 100, 0}}},
    {"long and narrow", 64, 1, {{TRAJD_KIND_LINEAR, TRAJD_F32, TRAJD_F32, 14, 1024, 500, 0}}},
};

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Returns as many episodes as memory allows. All streams of a batch have the same number. */
static uint32_t episode_count(const struct bench *bench)
{
    uint64_t row_bytes = 1;

    for (uint32_t s = 0; s < bench->stream_count; s++)
        row_bytes +=
            (uint64_t)bench->streams[s].features * trajd_dtype_size(bench->streams[s].source);
    return SOURCE_LIMIT_BYTES / row_bytes / EPISODE_ROWS < EPISODE_LIMIT
               ? (uint32_t)(SOURCE_LIMIT_BYTES / row_bytes / EPISODE_ROWS)
               : EPISODE_LIMIT;
}

static void *allocate(uint64_t bytes)
{
    void *block = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!block)
        abort();
    memset(block, 0, (bytes + 63) / 64 * 64);
    return block;
}

struct setup {
    struct trajd_resample_request request;
    struct trajd_clock clocks[STREAM_LIMIT];
    struct trajd_grid grids[STREAM_LIMIT];
    struct trajd_bracket brackets[STREAM_LIMIT];
    struct trajd_stream streams[STREAM_LIMIT];
    uint64_t output_bytes;
    uint32_t episodes;
};

/* Makes stamps with jitter, and anchors all over the episodes. */
static void set_up_bracket(struct setup *setup, uint32_t index, const struct bench_stream *stream,
                           uint32_t windows)
{
    int64_t period = stream->source_hz ? 1000000000 / (int64_t)stream->source_hz : 0;
    int64_t *stamps = allocate((uint64_t)setup->episodes * EPISODE_ROWS * sizeof *stamps);
    int64_t *begin = allocate(windows * sizeof *begin), *count = allocate(windows * sizeof *count);
    int64_t *anchor = allocate(windows * sizeof *anchor),
            *offsets = allocate(stream->steps * sizeof *offsets);

    for (int64_t r = 0; r < (int64_t)setup->episodes * EPISODE_ROWS; r++)
        stamps[r] = r % EPISODE_ROWS * period + (period ? rand() % (period / 4) : 0);
    for (uint32_t w = 0; w < windows; w++) {
        begin[w] = rand() % (int)setup->episodes * EPISODE_ROWS;
        count[w] = EPISODE_ROWS;
        anchor[w] = rand() % EPISODE_ROWS;
        anchor[w] = period ? anchor[w] * period + rand() % period : anchor[w];
    }
    for (uint32_t t = 0; t < stream->steps; t++)
        offsets[t] = ((int64_t)t - 1) *
                     (period ? stream->kind == TRAJD_KIND_MEAN ? 50000000 : period * 7 / 10 : 1);
    setup->clocks[index].stamps_ns = period ? stamps : NULL;
    setup->grids[index] = (struct trajd_grid){.unit = period ? TRAJD_GRID_NS : TRAJD_GRID_ROWS,
                                              .step_count = stream->steps,
                                              .offsets = offsets};
    setup->brackets[index] = (struct trajd_bracket){.clock_index = index,
                                                    .grid_index = index,
                                                    .row_begin = begin,
                                                    .row_count = count,
                                                    .anchor = anchor};
}

static void fill(const struct bench_stream *stream, void *rows, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        double value =
            (double)(rand() % 1000) / 1000 + (i % 4 == 3 ? 9 : 0); /* quaternions near each other */
        if (stream->source == TRAJD_F32)
            ((float *)rows)[i] = (float)value;
        else if (stream->source == TRAJD_F64)
            ((double *)rows)[i] = value;
        else
            ((uint8_t *)rows)[i] = (uint8_t)i;
    }
}

static void set_up_stream(struct setup *setup, uint32_t index, const struct bench_stream *stream,
                          uint32_t windows, uint32_t bracket)
{
    uint64_t size = trajd_dtype_size(stream->output);
    uint64_t elements = (uint64_t)setup->episodes * EPISODE_ROWS * stream->features;
    void *rows = allocate(elements * trajd_dtype_size(stream->source));
    float *factors = allocate(stream->features * sizeof *factors);

    fill(stream, rows, elements);
    setup->streams[index] = (struct trajd_stream){
        .bracket_index = bracket,
        .kind = stream->kind,
        .source_type = stream->source,
        .feature_count = stream->features,
        .row_stride_bytes = (uint64_t)stream->features * trajd_dtype_size(stream->source),
        .base = rows,
        .max_gap_ns = -1,
        .max_age_ns = -1,
        .mean_width = stream->source_hz ? 50000000 : 1,
        .angle_period = 6.283185307179586,
        .angle_low = NAN,
        .scale = stream->normalised ? factors : NULL,
        .offset = stream->normalised ? factors : NULL,
        .output_type = stream->output,
        .output = allocate(windows * stream->steps * stream->features * size),
        .window_stride_bytes = stream->steps * stream->features * size,
        .step_stride_bytes = stream->features * size,
        .mask = allocate((uint64_t)windows * stream->steps),
        .mask_window_stride_bytes = stream->steps,
    };
    setup->output_bytes += windows * stream->steps * stream->features * size;
}

/* Streams of the same rate and steps share a bracket. */
static uint32_t bracket_of(struct setup *setup, const struct bench *bench, uint32_t index)
{
    for (uint32_t s = 0; s < index; s++)
        if (bench->streams[s].source_hz == bench->streams[index].source_hz &&
            bench->streams[s].steps == bench->streams[index].steps)
            return setup->streams[s].bracket_index;
    set_up_bracket(setup, setup->request.bracket_count, &bench->streams[index], bench->windows);
    return setup->request.bracket_count++;
}

static void set_up(struct setup *setup, const struct bench *bench)
{
    memset(setup, 0, sizeof *setup);
    setup->episodes = episode_count(bench);
    for (uint32_t s = 0; s < bench->stream_count; s++)
        set_up_stream(setup, s, &bench->streams[s], bench->windows, bracket_of(setup, bench, s));
    setup->request.window_count = bench->windows;
    setup->request.stream_count = bench->stream_count;
    setup->request.clock_count = setup->request.grid_count = setup->request.bracket_count;
    setup->request.clocks = setup->clocks;
    setup->request.grids = setup->grids;
    setup->request.brackets = setup->brackets;
    setup->request.streams = setup->streams;
}

static void tear_down(struct setup *setup)
{
    for (uint32_t b = 0; b < setup->request.bracket_count; b++) {
        free((void *)setup->clocks[b].stamps_ns);
        free((void *)setup->grids[b].offsets);
        free((void *)setup->brackets[b].row_begin);
        free((void *)setup->brackets[b].row_count);
        free((void *)setup->brackets[b].anchor);
    }
    for (uint32_t s = 0; s < setup->request.stream_count; s++) {
        free((void *)setup->streams[s].base);
        free((void *)setup->streams[s].scale);
        free(setup->streams[s].output);
        free(setup->streams[s].mask);
    }
}

static double best_plan_ns(const struct setup *setup, const char *variant, uint32_t threads,
                           struct trajd_pool *pool, char *description, size_t size)
{
    struct trajd_device_facts facts = {.cpu_threads = threads};
    struct trajd_error error;
    struct trajd_plan *plan;
    double best = INFINITY, start = now_ns();

    if (trajd_plan_create(&setup->request, &facts, variant, &plan, &error)) {
        fprintf(stderr, "bench_cpu: %s\n", error.message);
        exit(1);
    }
    snprintf(description, size, "%s", trajd_plan_describe(plan));
    for (int run = 0; run < RUNS && now_ns() - start < RUN_TIME_NS; run++) {
        double begin = now_ns(), ns;
        if (trajd_plan_run(plan, &setup->request, pool, &error)) {
            fprintf(stderr, "bench_cpu: %s\n", error.message);
            exit(1);
        }
        ns = now_ns() - begin;
        best = ns < best ? ns : best;
    }
    trajd_plan_destroy(&plan);
    return best;
}

/* Copies as many bytes as the output has, window by window from all over the source, as a program
 * that only copies would. */
static double best_memcpy_ns(const struct setup *setup)
{
    double best = INFINITY, start = now_ns();

    for (int run = 0; run < RUNS && now_ns() - start < RUN_TIME_NS; run++) {
        double begin = now_ns(), ns;
        for (uint32_t s = 0; s < setup->request.stream_count; s++) {
            const struct trajd_stream *stream = &setup->streams[s];
            const struct trajd_bracket *bracket = &setup->brackets[stream->bracket_index];
            uint64_t source_bytes =
                (uint64_t)setup->episodes * EPISODE_ROWS * stream->row_stride_bytes;
            for (uint32_t w = 0; w < setup->request.window_count; w++) {
                uint64_t at =
                    (uint64_t)(bracket->row_begin[w] + bracket->anchor[w] % EPISODE_ROWS) *
                    stream->row_stride_bytes;
                at = at + stream->window_stride_bytes <= source_bytes
                         ? at
                         : source_bytes - stream->window_stride_bytes;
                memcpy((char *)stream->output + w * stream->window_stride_bytes,
                       (const char *)stream->base + at, stream->window_stride_bytes);
            }
        }
        ns = now_ns() - begin;
        best = ns < best ? ns : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    struct trajd_pool *pool = NULL;
    struct trajd_error error;
    char description[256];

    if (trajd_pool_create(threads, "bench", &pool, &error)) {
        fprintf(stderr, "bench_cpu: %s\n", error.message);
        return 1;
    }
    srand(1);
    printf("bench_cpu %u, trajd %s\n%-21s %9s %9s %7s %9s %7s %10s\n", threads, TRAJD_VERSION,
           "batch", "output KB", "us", "GB/s", "memcpy us", "ratio", "reference");
    for (size_t i = 0; i < ARRAY_LEN(benches); i++) {
        struct setup setup;
        double ns, reference_ns, memcpy_ns;

        if (argc > 2 && !strstr(benches[i].name, argv[2]))
            continue;
        set_up(&setup, &benches[i]);
        reference_ns =
            best_plan_ns(&setup, "reference", threads, pool, description, sizeof description);
        memcpy_ns = best_memcpy_ns(&setup);
        ns = best_plan_ns(&setup, "auto", threads, pool, description, sizeof description);
        printf("%-21s %9.0f %9.1f %7.2f %9.1f %6.1fx %9.1fx  %s, %s\n", benches[i].name,
               (double)setup.output_bytes / 1000, ns / 1000, (double)setup.output_bytes / ns,
               memcpy_ns / 1000, ns / memcpy_ns, reference_ns / ns,
               kind_names[setup.streams[0].kind], description);
        fflush(stdout);
        tear_down(&setup);
    }
    trajd_pool_destroy(&pool);
    return 0;
}
