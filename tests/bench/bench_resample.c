// libs: trajd_kernels
/* bench_resample budget|grid|tune: the CUDA kernels over shapes and launch shapes, against floors and
 * ceilings of the same run. tune writes a table of the best, too (kernels/tuning.h); grid with a table
 * chooses by it, so that a table of one run is judged by another.
 *
 * Cold: every launch works on another set of buffers, stamps and rows and outputs, so many that they are
 * several times the L2. Hot: the same set each time. Both as one graph of many launches, replayed; the time
 * is that of a replay over its launches. Single: launches given one by one. Stamps are int64 with jitter on
 * every row, targets int64 per window, a mask is written. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/trials.h"
#include "kernels/device.h"

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))
#define POOL_BYTES (256ull << 20) /* of source values that are no NaN */
#define SETS_BYTES (1200ull << 20)
#define COLD_BYTES (400ull << 20) /* what a rotation covers: more than six times an L2 of 60 MiB */
#define SETS_MAX 400u
#define SAMPLES 9
#define SAMPLE_US 700.0 /* of device time at least */
#define STEP_NS 10000000
#define TRIALS_MAX 1024u

enum layout {
    LAYOUT_DENSE,   /* the dense entry: stamps and targets of every window */
    LAYOUT_OFFSETS, /* a request: windows of episodes, offsets around anchors, stamps */
    LAYOUT_REGULAR, /* the same on a regular clock */
    LAYOUT_ROWS,    /* row steps */
    LAYOUT_POLICY,  /* the batch of a policy: five streams, three clocks */
};

static const char *const layout_names[] = {"dense", "offsets", "regular", "rows", "policy"};

struct shape {
    uint32_t B, S, T, D;
    enum trajd_dtype source, output;
    enum trajd_kind kind;
    enum layout layout;
    double budget_us; /* 0: none */
};

/* One set of a rotation: a dense problem or a batch of a policy, ready to launch. */
struct set {
    bool is_batch;
    struct trajd_dense_problem dense;
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
    struct set sets[SETS_MAX];
    uint32_t set_count;
    uint64_t output_bytes, moved_bytes;
    FILE *out, *table;
    bool any_written;
    bool wide; /* all candidates, and more of them at length */
    uint64_t random;
};

struct sample {
    double us[SAMPLES];
    double median_us;
};

static struct trajd_error bench_error;

static void must(enum trajd_status status)
{
    if (status == TRAJD_OK)
        return;
    fprintf(stderr, "bench_resample: %s: %s\n", trajd_status_name(status), bench_error.message);
    exit(1);
}

static uint64_t draw(struct bench *b, uint64_t limit)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (b->random >> 33) % limit;
}

static void *take(struct bench *b, uint64_t bytes)
{
    char *memory = b->sets_memory + b->used_bytes;

    b->used_bytes += (bytes + 255) / 256 * 256;
    if (b->used_bytes > SETS_BYTES) {
        fprintf(stderr, "bench_resample: a shape needs more than %llu MiB\n", SETS_BYTES >> 20);
        exit(1);
    }
    return memory;
}

static void *take_copy(struct bench *b, const void *from, uint64_t bytes)
{
    void *memory = take(b, bytes);

    must(trajd_device_copy_async(memory, from, bytes, b->stream, &bench_error));
    must(trajd_device_stream_wait(b->stream, &bench_error));
    return memory;
}

static void *take_rows(struct bench *b, uint64_t bytes)
{
    char *memory = take(b, bytes);

    for (uint64_t at = 0; at < bytes; at += POOL_BYTES)
        must(trajd_device_copy_async(memory + at, b->pool, bytes - at < POOL_BYTES ? bytes - at : POOL_BYTES,
                                     b->stream, &bench_error));
    return memory;
}

/* Row s at s steps and some jitter; B episodes. */
static int64_t *draw_stamps(struct bench *b, uint64_t episodes, uint32_t rows)
{
    int64_t *stamps = (int64_t *)b->host;

    for (uint64_t e = 0; e < episodes; e++)
        for (uint32_t s = 0; s < rows; s++)
            stamps[e * rows + s] = (int64_t)s * STEP_NS + (int64_t)draw(b, STEP_NS / 2);
    return stamps;
}

static void make_dense(struct bench *b, const struct shape *shape, struct set *set)
{
    uint64_t rows = (uint64_t)shape->B * shape->S, targets = (uint64_t)shape->B * shape->T;
    const struct trajd_dense_problem *first = &b->sets[0].dense;
    uint64_t source_bytes = rows * shape->D * trajd_dtype_size(shape->source);
    int64_t *stamps, *offsets;

    if (set == &b->sets[0]) {
        stamps = take_copy(b, draw_stamps(b, shape->B, shape->S), rows * 8);
        offsets = (int64_t *)b->host;
        for (uint64_t i = 0; i < targets; i++)
            offsets[i] =
                (int64_t)(i % shape->T) * (shape->S - 1) * STEP_NS / shape->T + (int64_t)draw(b, STEP_NS / 4);
        offsets = take_copy(b, offsets, targets * 8);
    } else {
        stamps = take_copy(b, first->stamps_ns, rows * 8);
        offsets = take_copy(b, first->targets_ns, targets * 8);
    }
    b->output_bytes = targets * shape->D * trajd_dtype_size(shape->output);
    /* read once: the rows that are used, stamps, targets; written once: output, mask */
    b->moved_bytes = (2ull * shape->T < shape->S ? source_bytes / shape->S * 2 * shape->T : source_bytes) +
                     rows * 8 + targets * 9 + b->output_bytes;
    *set = (struct set){.dense = {shape->B, shape->S, shape->T, shape->D, stamps, offsets, shape->kind,
                                  shape->source, shape->output, TRAJD_EDGE_HOLD, take_rows(b, source_bytes),
                                  take(b, b->output_bytes), take(b, targets)}};
}

/* What a policy asks of 256 windows: position, quaternion, gripper and joints of now and before, and a chunk
 * of actions. */
static void make_batch(struct bench *b, struct set *set)
{
    enum { B = 256, EPISODES = 200, ROWS = 400 };
    static const struct {
        uint32_t bracket, features;
        enum trajd_kind kind;
    } parts[] = {{0, 3, TRAJD_KIND_LINEAR},
                 {0, 4, TRAJD_KIND_SLERP_XYZW},
                 {1, 2, TRAJD_KIND_PREVIOUS},
                 {1, 7, TRAJD_KIND_LINEAR},
                 {2, 7, TRAJD_KIND_LINEAR}};
    static const uint32_t steps[] = {2, 16};
    int64_t begin[B], count[3][B], anchor[B], offsets[16];

    *set = (struct set){.is_batch = true};
    for (uint32_t w = 0; w < B; w++) {
        int64_t row = (int64_t)draw(b, ROWS - 20) + 2;
        begin[w] = (int64_t)draw(b, EPISODES) * ROWS;
        anchor[w] = row * STEP_NS + STEP_NS / 2;
        count[0][w] = count[1][w] = row + 1;
        count[2][w] = ROWS;
    }
    for (uint32_t t = 0; t < 16; t++)
        offsets[t] = ((int64_t)t - 1) * STEP_NS * 2 / 3;
    for (uint32_t g = 0; g < 2; g++)
        set->grids[g] = (struct trajd_grid){TRAJD_GRID_NS, steps[g], take_copy(b, offsets, steps[g] * 8), 0};
    for (uint32_t c = 0; c < 3; c++) {
        set->clocks[c].stamps_ns = take_copy(b, draw_stamps(b, EPISODES, ROWS), EPISODES * ROWS * 8);
        set->brackets[c] =
            (struct trajd_bracket){c, c == 2, take_copy(b, begin, sizeof begin),
                                   take_copy(b, count[c], sizeof begin), take_copy(b, anchor, sizeof anchor)};
    }
    b->output_bytes = b->moved_bytes = 0;
    for (uint32_t s = 0; s < ARRAY_LEN(parts); s++) {
        uint32_t T = steps[parts[s].bracket == 2], D = parts[s].features;
        set->streams[s] = (struct trajd_stream){
            .bracket_index = parts[s].bracket,
            .kind = parts[s].kind,
            .source_type = TRAJD_BF16,
            .output_type = TRAJD_BF16,
            .feature_count = D,
            .row_stride_bytes = D * 2,
            .base = take_rows(b, EPISODES * ROWS * D * 2),
            .max_gap_ns = 5ll * STEP_NS,
            .max_age_ns = -1,
            .output = take(b, (uint64_t)B * T * D * 2),
            .window_stride_bytes = (uint64_t)T * D * 2,
            .step_stride_bytes = D * 2,
            .mask = take(b, B * T),
            .mask_window_stride_bytes = T,
        };
        b->output_bytes += (uint64_t)B * T * D * 2;
        b->moved_bytes += (uint64_t)B * T * D * 6;
    }
    set->request = (struct trajd_resample_request){
        B, 3, 2, 3, 5, set->clocks, set->grids, set->brackets, set->streams, NULL, 0};
}

/* One stream: B windows, each an episode of S rows seen from its middle. */
static void make_single(struct bench *b, const struct shape *shape, struct set *set)
{
    uint64_t rows = (uint64_t)shape->B * shape->S, targets = (uint64_t)shape->B * shape->T;
    uint64_t row_bytes = (uint64_t)shape->D * trajd_dtype_size(shape->source);
    uint64_t step_bytes = (uint64_t)shape->D * trajd_dtype_size(shape->output);
    bool by_rows = shape->layout == LAYOUT_ROWS;
    int64_t unit = by_rows ? 1 : STEP_NS, *host = (int64_t *)b->host;

    *set = (struct set){.is_batch = true};
    if (shape->layout == LAYOUT_REGULAR)
        set->clocks[0].rate = (struct trajd_rate){30000, 301};
    else if (!by_rows)
        set->clocks[0].stamps_ns = take_copy(b, draw_stamps(b, shape->B, shape->S), rows * 8);
    for (uint32_t t = 0; t < shape->T; t++)
        host[t] = ((int64_t)t - shape->T / 2) * unit * shape->S / shape->T + (by_rows ? 0 : STEP_NS / 3);
    set->grids[0] = (struct trajd_grid){by_rows ? TRAJD_GRID_ROWS : TRAJD_GRID_NS, shape->T,
                                        take_copy(b, host, shape->T * 8ull), 0};
    for (uint32_t w = 0; w < shape->B; w++) {
        host[w] = (int64_t)w * shape->S;
        host[shape->B + w] = shape->S;
        host[2 * shape->B + w] = shape->S / 2 * unit + (by_rows ? 0 : (int64_t)draw(b, STEP_NS));
    }
    host = take_copy(b, host, 24ull * shape->B);
    set->brackets[0] = (struct trajd_bracket){0, 0, host, host + shape->B, host + 2 * shape->B};
    set->streams[0] = (struct trajd_stream){
        .kind = shape->kind,
        .source_type = shape->source,
        .output_type = shape->output,
        .feature_count = shape->D,
        .row_stride_bytes = row_bytes,
        .base = take_rows(b, rows * row_bytes),
        .max_gap_ns = -1,
        .max_age_ns = -1,
        .mean_width = by_rows ? 8 : (int64_t)STEP_NS * 8,
        .angle_period = 6.283185307179586,
        .angle_low = NAN,
        .output = take(b, targets * step_bytes),
        .window_stride_bytes = step_bytes * shape->T,
        .step_stride_bytes = step_bytes,
        .mask = take(b, targets),
        .mask_window_stride_bytes = shape->T,
    };
    b->output_bytes = targets * step_bytes;
    b->moved_bytes = (2ull * shape->T < shape->S ? 2ull * targets * row_bytes : rows * row_bytes) + targets +
                     (set->clocks[0].stamps_ns ? rows * 8 : 0) + b->output_bytes;
    set->request = (struct trajd_resample_request){
        .window_count = shape->B, .clock_count = 1, .grid_count = 1, .bracket_count = 1, .stream_count = 1};
}

static void make_sets(struct bench *b, const struct shape *shape)
{
    uint64_t one;

    b->used_bytes = b->set_count = 0;
    do {
        struct set *set = &b->sets[b->set_count++];
        if (shape->layout == LAYOUT_DENSE)
            make_dense(b, shape, set);
        else if (shape->layout == LAYOUT_POLICY)
            make_batch(b, set);
        else
            make_single(b, shape, set);
        if (set->is_batch) { /* the lists lie in the set */
            set->request.clocks = set->clocks;
            set->request.grids = set->grids;
            set->request.brackets = set->brackets;
            set->request.streams = set->streams;
        }
        one = b->used_bytes / b->set_count;
    } while ((b->used_bytes < COLD_BYTES || b->set_count < 2) && b->set_count < SETS_MAX &&
             b->used_bytes + one + (1 << 20) < SETS_BYTES);
    must(trajd_device_stream_wait(b->stream, &bench_error));
}

static void launch(struct bench *b, const struct set *set, const struct trajd_cuda_shape *shape)
{
    void *stream = trajd_device_stream_handle(b->stream);

    if (set->is_batch)
        must(trajd_cuda_run(&set->request, &b->facts, shape, stream, &bench_error));
    else
        must(trajd_cuda_run_dense(&set->dense, &b->facts, shape, stream, &bench_error));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void set_median(struct sample *sample)
{
    double sorted[SAMPLES];

    memcpy(sorted, sample->us, sizeof sorted);
    qsort(sorted, SAMPLES, sizeof sorted[0], by_value);
    sample->median_us = sorted[SAMPLES / 2];
}

/* Replays a graph of `count` launches often enough for a sample, SAMPLES times. */
static void time_graph(struct bench *b, struct trajd_device_graph *graph, uint32_t count,
                       struct sample *sample)
{
    float elapsed_us = 0;
    uint32_t replays = 1;

    for (int i = -2; i < SAMPLES; i++) {
        must(trajd_device_timer_start(b->stream, &bench_error));
        for (uint32_t r = 0; r < replays; r++)
            must(trajd_device_graph_replay_async(graph, b->stream, &bench_error));
        must(trajd_device_timer_stop(b->stream, &elapsed_us, &bench_error));
        if (i == -2)
            replays = elapsed_us < SAMPLE_US ? (uint32_t)(SAMPLE_US / (double)elapsed_us) + 1 : 1;
        if (i >= 0)
            sample->us[i] = (double)elapsed_us / replays / count;
    }
    set_median(sample);
}

enum temperature { COLD, HOT };

static void time_shape(struct bench *b, const struct trajd_cuda_shape *shape, enum temperature temperature,
                       struct sample *sample)
{
    struct trajd_device_graph *graph;
    uint32_t count = b->set_count < 50 && temperature == HOT ? 50 : b->set_count;

    must(trajd_device_graph_begin(b->stream, &bench_error));
    for (uint32_t i = 0; i < count; i++)
        launch(b, &b->sets[temperature == HOT ? 0 : i], shape);
    must(trajd_device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, count, sample);
    trajd_device_graph_destroy(&graph);
}

static void time_single(struct bench *b, const struct trajd_cuda_shape *shape, struct sample *sample)
{
    float elapsed_us;

    for (int i = 0; i < SAMPLES; i++) {
        must(trajd_device_timer_start(b->stream, &bench_error));
        for (uint32_t k = 0; k < b->set_count; k++)
            launch(b, &b->sets[k], shape);
        must(trajd_device_timer_stop(b->stream, &elapsed_us, &bench_error));
        sample->us[i] = (double)elapsed_us / b->set_count;
    }
    set_median(sample);
}

/* A pure write of the same outputs, in turn. */
static void time_write(struct bench *b, struct sample *sample)
{
    struct trajd_device_graph *graph;

    must(trajd_device_graph_begin(b->stream, &bench_error));
    for (uint32_t k = 0; k < b->set_count; k++) {
        const struct set *set = &b->sets[k];
        void *output = set->is_batch ? set->streams[0].output : set->dense.output;
        must(trajd_device_fill_async(output, 1, b->output_bytes, b->stream, &bench_error));
    }
    must(trajd_device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, b->set_count, sample);
    trajd_device_graph_destroy(&graph);
}

static double time_copy_gb_s(struct bench *b)
{
    const uint64_t half = SETS_BYTES / 2;
    struct trajd_device_graph *graph;
    struct sample sample;

    must(trajd_device_graph_begin(b->stream, &bench_error));
    must(trajd_device_copy_async(b->sets_memory, b->sets_memory + half, half, b->stream, &bench_error));
    must(trajd_device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, 1, &sample);
    trajd_device_graph_destroy(&graph);
    return 2.0 * (double)half / sample.median_us / 1000;
}

static double time_nothing_us(struct bench *b, int overlaps)
{
    struct trajd_device_graph *graph;
    struct sample sample;

    must(trajd_device_graph_begin(b->stream, &bench_error));
    for (uint32_t i = 0; i < 100; i++)
        must(trajd_cuda_run_nothing(overlaps, trajd_device_stream_handle(b->stream), &bench_error));
    must(trajd_device_graph_end(b->stream, &graph, &bench_error));
    time_graph(b, graph, 100, &sample);
    trajd_device_graph_destroy(&graph);
    return sample.median_us;
}

static void print_sample(struct bench *b, const char *name, const struct sample *sample)
{
    fprintf(b->out, "\"%s\":[", name);
    for (int i = 0; i < SAMPLES; i++)
        fprintf(b->out, "%s%.4f", i ? "," : "", sample->us[i]);
    fprintf(b->out, "]");
}

static void print_launch_shape(struct bench *b, const struct trajd_cuda_shape *shape)
{
    fprintf(
        b->out,
        "\"style\":%u,\"tile\":%u,\"threads\":%u,\"tiles\":%u,\"stage\":%u,\"prefetch\":%u,\"vectors\":%u,"
        "\"producers\":%u,\"stages\":%u,\"overlaps\":%u",
        shape->style, shape->tile_steps, shape->thread_count, shape->tiles_per_block, shape->stage_rows,
        shape->prefetch, shape->vectors, shape->producers, shape->stages, shape->overlaps);
}

static void pack_set(const struct set *set, struct trajd_cuda_problem *problem)
{
    if (set->is_batch)
        trajd_cuda_pack(&set->request, 0, problem);
    else
        must(trajd_cuda_pack_dense(&set->dense, problem, &bench_error));
}

static double quick_us(struct bench *b, const struct trajd_cuda_shape *shape)
{
    struct trajd_device_graph *graph;
    float elapsed_us = 0;

    must(trajd_device_graph_begin(b->stream, &bench_error));
    for (uint32_t i = 0; i < b->set_count; i++)
        launch(b, &b->sets[i], shape);
    must(trajd_device_graph_end(b->stream, &graph, &bench_error));
    for (int i = 0; i < 2; i++) {
        must(trajd_device_timer_start(b->stream, &bench_error));
        must(trajd_device_graph_replay_async(graph, b->stream, &bench_error));
        must(trajd_device_timer_stop(b->stream, &elapsed_us, &bench_error));
    }
    trajd_device_graph_destroy(&graph);
    return (double)elapsed_us / b->set_count;
}

static int by_us(const void *a, const void *b)
{
    return by_value(&((const struct trajd_tuning_trial *)a)->us, &((const struct trajd_tuning_trial *)b)->us);
}

/* All candidates once, the best of them at length. Returns the number of those. */
static uint32_t time_candidates(struct bench *b, const struct shape *shape, uint32_t keep,
                                struct trajd_tuning_trial *trials, struct sample *samples)
{
    struct trajd_cuda_problem problem;
    uint32_t count;

    pack_set(&b->sets[0], &problem);
    count = trajd_tuning_candidates(&problem, &b->facts, shape->layout == LAYOUT_DENSE ? shape->S : 0,
                                    b->wide, trials, TRIALS_MAX);
    for (uint32_t i = 0; i < count; i++)
        trials[i].us = quick_us(b, &trials[i].shape);
    qsort(trials, count, sizeof *trials, by_us);
    if (keep > count)
        keep = count;
    for (uint32_t i = 0; i < keep; i++)
        time_shape(b, &trials[i].shape, COLD, &samples[i]);
    return keep;
}

static struct trajd_cuda_shape chosen_shape(struct bench *b, const struct shape *shape);

static void print_shape(const struct trajd_cuda_shape *shape)
{
    printf("style %u t%u/%u*%u s%u p%u v%u %u:%u ", shape->style, shape->tile_steps, shape->thread_count,
           shape->tiles_per_block, shape->stage_rows, shape->prefetch, shape->vectors, shape->producers,
           shape->stages);
}

static void print_trials(struct bench *b, const struct trajd_tuning_trial *trials,
                         const struct sample *samples, uint32_t count)
{
    fprintf(b->out, ",\"candidates\":[");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(b->out, "%s\n {", i ? "," : "");
        print_launch_shape(b, &trials[i].shape);
        fprintf(b->out, ",");
        print_sample(b, "cold_us", &samples[i]);
        fprintf(b->out, "}");
    }
    fprintf(b->out, "]");
}

/* Every candidate, measured once. */
static void print_quick(struct bench *b, const struct trajd_tuning_trial *trials, uint32_t count)
{
    fprintf(b->out, ",\"quick\":[");
    for (uint32_t i = 0; i < count; i++) {
        fprintf(b->out, "%s\n {", i ? "," : "");
        print_launch_shape(b, &trials[i].shape);
        fprintf(b->out, ",\"us\":%.3f}", trials[i].us);
    }
    fprintf(b->out, "]");
}

/* The best time of each style, quickly measured: what pictures of crossovers are made of. */
static void print_styles(struct bench *b, const struct trajd_tuning_trial *trials, uint32_t count)
{
    double best[TRAJD_CUDA_STYLE_COUNT] = {0};
    bool any = false;

    for (uint32_t i = 0; i < count; i++)
        if (best[trials[i].shape.style] == 0 || trials[i].us < best[trials[i].shape.style])
            best[trials[i].shape.style] = trials[i].us;
    fprintf(b->out, ",\"styles\":{");
    for (uint32_t k = 0; k < TRAJD_CUDA_STYLE_COUNT; k++)
        if (best[k] > 0) {
            fprintf(b->out, "%s\"%u\":%.4f", any ? "," : "", k, best[k]);
            any = true;
        }
    fprintf(b->out, "}");
}

static void print_row(struct bench *b, const struct shape *shape, const struct trajd_cuda_shape *chosen,
                      const struct sample samples[5])
{
    static const char *const names[] = {"cold_us", "hot_us", "single_us", "alone_us", "write_us"};

    fprintf(b->out,
            "%s\n{\"B\":%u,\"S\":%u,\"T\":%u,\"D\":%u,\"source\":\"%s\",\"output\":\"%s\",\"kind\":%d,"
            "\"layout\":\"%s\",",
            b->any_written ? "," : "", shape->B, shape->S, shape->T, shape->D,
            trajd_dtype_name(shape->source), trajd_dtype_name(shape->output), shape->kind,
            layout_names[shape->layout]);
    b->any_written = true;
    fprintf(b->out, "\"moved_bytes\":%llu,\"output_bytes\":%llu,\"sets\":%u,\"budget_us\":%.1f,\"chosen\":{",
            (unsigned long long)b->moved_bytes, (unsigned long long)b->output_bytes, b->set_count,
            shape->budget_us);
    print_launch_shape(b, chosen);
    fprintf(b->out, "}");
    for (int i = 0; i < 5; i++) {
        fprintf(b->out, ",");
        print_sample(b, names[i], &samples[i]);
    }
}

static void bench_shape(struct bench *b, const struct shape *shape)
{
    static struct trajd_tuning_trial trials[TRIALS_MAX];
    static struct sample kept[TRIALS_MAX];
    struct trajd_cuda_shape chosen, alone, *best;
    struct sample samples[5];
    struct trajd_cuda_problem problem;
    uint32_t count, all, best_at = 0;

    make_sets(b, shape);
    chosen = alone = chosen_shape(b, shape);
    alone.overlaps = 0;
    time_shape(b, &chosen, COLD, &samples[0]);
    time_shape(b, &chosen, HOT, &samples[1]);
    time_single(b, &chosen, &samples[2]);
    time_shape(b, &alone, COLD, &samples[3]);
    time_write(b, &samples[4]);
    print_row(b, shape, &chosen, samples);
    count = time_candidates(b, shape, b->wide ? 12 : 4, trials, kept);
    pack_set(&b->sets[0], &problem);
    all = trajd_tuning_candidates(&problem, &b->facts, shape->layout == LAYOUT_DENSE ? shape->S : 0, b->wide,
                                  NULL, TRIALS_MAX);
    print_trials(b, trials, kept, count);
    print_styles(b, trials, all);
    if (b->wide)
        print_quick(b, trials, all);
    fprintf(b->out, "}");
    for (uint32_t i = 1; i < count; i++)
        if (kept[i].median_us < kept[best_at].median_us)
            best_at = i;
    best = &trials[best_at].shape;
    if (b->table)
        trajd_tuning_print_row(b->table, &problem, shape->S, kept[best_at].median_us, best);
    printf("%5u %5u %5u %5u %5s %-7s %d | %7.2f hot %7.2f single %7.2f alone %7.2f write %7.2f | ", shape->B,
           shape->S, shape->T, shape->D, trajd_dtype_name(shape->source), layout_names[shape->layout],
           shape->kind, samples[0].median_us, samples[1].median_us, samples[2].median_us,
           samples[3].median_us, samples[4].median_us);
    printf("best %7.2f ", kept[best_at].median_us);
    print_shape(best);
    printf("| chosen ");
    print_shape(&chosen);
    printf("| %.2f TB/s\n", (double)b->moved_bytes / samples[0].median_us / 1e6);
    if (b->wide)
        for (uint32_t style = 0; style < TRAJD_CUDA_STYLE_COUNT; style++)
            for (uint32_t i = 0, shown = 0; i < all && shown < 3; i++)
                if (trials[i].shape.style == style) {
                    printf("      quick %7.2f ", trials[i].us);
                    print_shape(&trials[i].shape);
                    printf("\n");
                    shown++;
                }
    fflush(stdout);
}

static struct trajd_cuda_shape chosen_shape(struct bench *b, const struct shape *shape)
{
    const struct set *set = &b->sets[0];
    struct trajd_cuda_shape chosen;

    (void)shape;
    if (set->is_batch)
        must(trajd_cuda_chosen(&set->request, &b->facts, &chosen, &bench_error));
    else
        must(trajd_cuda_chosen_dense(&set->dense, &b->facts, &chosen, &bench_error));
    return chosen;
}

/* One launch after another by the chosen shape, for profilers. */
static void launch_thrice(struct bench *b, const struct shape *shape)
{
    struct trajd_cuda_shape chosen;

    make_sets(b, shape);
    chosen = chosen_shape(b, shape);
    for (uint32_t i = 0; i < 3; i++) {
        launch(b, &b->sets[i % b->set_count], &chosen);
        must(trajd_device_stream_wait(b->stream, &bench_error));
    }
}

static void bench_budget(struct bench *b, const char *only, bool profile)
{
    static const struct shape shapes[] = {
        {32, 100, 256, 128, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 3.0},
        {32, 500, 256, 128, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 4.0},
        {64, 4096, 1024, 32, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 5.8},
        {256, 500, 250, 16, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 4.0},
        {1024, 300, 50, 14, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 4.5},
        {64, 400, 16, 7, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 2.0},
        {256, 100, 2048, 256, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 66},
        {256, 400, 16, 7, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_POLICY, 4.0},
        {1, 2, 1, 1, TRAJD_BF16, TRAJD_BF16, 0, LAYOUT_DENSE, 0},
    };

    b->wide = true;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (!only || strtoul(only, NULL, 10) == i)
            (profile ? launch_thrice : bench_shape)(b, &shapes[i]);
}

static void bench_dense_grid(struct bench *b)
{
    static const uint32_t windows[] = {4, 32, 256, 1024},
                          lengths[][2] = {{100, 16},  {100, 256},   {500, 50},
                                          {400, 400}, {4096, 1024}, {64, 1024}};
    static const uint32_t features[] = {1, 7, 14, 32, 128};
    static const enum trajd_dtype types[][2] = {
        {TRAJD_BF16, TRAJD_BF16}, {TRAJD_F32, TRAJD_BF16}, {TRAJD_F32, TRAJD_F32}};

    for (size_t w = 0; w < ARRAY_LEN(windows); w++)
        for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
            for (size_t d = 0; d < ARRAY_LEN(features); d++)
                for (size_t t = 0; t < ARRAY_LEN(types); t++) {
                    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_LINEAR,
                                                            TRAJD_KIND_LINEAR, TRAJD_KIND_NEAREST,
                                                            TRAJD_KIND_PREVIOUS};
                    struct shape shape = {windows[w],
                                          lengths[l][0],
                                          lengths[l][1],
                                          features[d],
                                          types[t][0],
                                          types[t][1],
                                          kinds[(w + l + d + t) % 5],
                                          LAYOUT_DENSE,
                                          0};
                    uint64_t bytes = (uint64_t)shape.B * (shape.S + shape.T) * shape.D * 4;
                    if (t == (w + l) % 3 || bytes > (300ull << 20))
                        continue; /* two of the three pairs of types each */
                    bench_shape(b, &shape);
                }
}

/* Requests of one stream: every kind, on stamps, regular clocks and grids of rows. */
static void bench_kinds(struct bench *b)
{
    static const enum trajd_kind kinds[] = {TRAJD_KIND_LINEAR, TRAJD_KIND_PREVIOUS, TRAJD_KIND_SLERP_XYZW,
                                            TRAJD_KIND_ANGLE, TRAJD_KIND_MEAN};
    static const uint32_t windows[] = {32, 256}, lengths[][2] = {{400, 16}, {500, 250}};

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        for (size_t w = 0; w < ARRAY_LEN(windows); w++)
            for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
                for (enum layout layout = LAYOUT_OFFSETS; layout <= LAYOUT_ROWS; layout++) {
                    enum trajd_dtype type = (w + l) % 2 ? TRAJD_F32 : TRAJD_BF16;
                    bench_shape(b, &(struct shape){windows[w], lengths[l][0], lengths[l][1], 8, type, type,
                                                   kinds[k], layout, 0});
                }
}

static void open_bench(struct bench *b)
{
    uint16_t *values;

    must(trajd_device_open(0, &b->device, &bench_error));
    must(trajd_device_stream_create(b->device, &b->stream, &bench_error));
    must(trajd_device_alloc(b->device, POOL_BYTES, (void **)&b->pool, &bench_error));
    must(trajd_device_alloc(b->device, SETS_BYTES, (void **)&b->sets_memory, &bench_error));
    must(trajd_device_host_alloc(b->device, POOL_BYTES, (void **)&b->host, &bench_error));
    trajd_device_facts(b->device, &b->facts);
    b->facts.cpu_threads = 1;
    values = (uint16_t *)b->host;
    for (uint64_t i = 0; i < POOL_BYTES / 2; i++) /* 0.5 to 2 in bf16, and no NaN in any type */
        values[i] = (uint16_t)(0x3f00 + draw(b, 256));
    must(trajd_device_copy_async(b->pool, values, POOL_BYTES, b->stream, &bench_error));
    must(trajd_device_stream_wait(b->stream, &bench_error));
}

/* The commit that the bundle was built from; beside the program. */
static void read_commit(const char *program, char *commit, size_t size)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%.*s/commit",
             strrchr(program, '/') ? (int)(strrchr(program, '/') - program) : 1,
             strrchr(program, '/') ? program : ".");
    file = fopen(path, "r");
    if (!file || !fgets(commit, (int)size, file))
        snprintf(commit, size, "unknown");
    commit[strcspn(commit, "\n")] = 0;
    if (file)
        fclose(file);
}

/* Floors and ceilings of this run. */
static void print_head(struct bench *b, const char *program, const char *what)
{
    const struct trajd_device_info *info = trajd_device_info(b->device);
    double copy_gb_s = time_copy_gb_s(b), nothing_us = time_nothing_us(b, 0),
           overlapped_us = time_nothing_us(b, 1);
    char commit[64], date[32];
    time_t now = time(NULL);

    read_commit(program, commit, sizeof commit);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf("%s, CUDA %u, commit %s, copy %.0f GB/s both ways, an empty kernel %.2f us, overlapped %.2f us\n"
           "    B     S     T     D  type kind | cold us\n",
           info->name, info->driver_version, commit, copy_gb_s, nothing_us, overlapped_us);
    fprintf(b->out,
            "{\"device\":\"%s\",\"driver\":%u,\"sm_count\":%u,\"commit\":\"%s\",\"date\":\"%s\",\"command\":"
            "\"bench_resample "
            "%s\",\"copy_gb_s\":%.0f,\"empty_us\":%.3f,\"empty_overlapped_us\":%.3f,\"rows\":[",
            info->name, info->driver_version, info->sm_count, commit, date, what, copy_gb_s, nothing_us,
            overlapped_us);
    if (b->table)
        fprintf(b->table,
                "trajd-tuning 1\norigin compute %u %s, %u multiprocessors, driver %u, %s, commit %s, "
                "bench_resample %s\n",
                info->compute_capability, info->name, info->sm_count, info->driver_version, date, commit,
                what);
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);

    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

int main(int argc, char **argv)
{
    static struct bench b = {.random = 1};
    const char *what = argc > 1 ? argv[1] : "", *last = argc > 3 ? argv[3] : NULL;
    struct trajd_tuning *tuning = NULL;

    if (strcmp(what, "profile") == 0 && argc > 2) {
        open_bench(&b);
        if (last)
            must(trajd_tuning_load(last, &tuning, &bench_error));
        b.facts.tuning = tuning;
        bench_budget(&b, argv[2], true);
        return 0;
    }
    if (strcmp(what, "budget") != 0 && strcmp(what, "grid") != 0 && (strcmp(what, "tune") != 0 || !last)) {
        fprintf(stderr,
                "bench_resample budget [OUT.json [ROW]] | grid [OUT.json [TABLE]] | tune OUT.json TABLE | profile ROW [TABLE]\n");
        return 2;
    }
    if (trajd_device_count() == 0) {
        fprintf(stderr, "bench_resample: no GPU here, or built without CUDA\n");
        return 77;
    }
    open_bench(&b);
    b.out = open_file(argc > 2 ? argv[2] : "/dev/null", "w");
    if (strcmp(what, "tune") == 0)
        b.table = open_file(last, "w");
    else if (strcmp(what, "grid") == 0 && last)
        must(trajd_tuning_load(last, &tuning, &bench_error));
    b.facts.tuning = tuning;
    print_head(&b, argv[0], what);
    if (strcmp(what, "budget") != 0) {
        bench_dense_grid(&b);
        bench_kinds(&b);
    }
    if (strcmp(what, "grid") != 0)
        bench_budget(&b, b.table ? NULL : last, false);
    fprintf(b.out, "\n]}\n");
    trajd_tuning_destroy(&tuning);
    return (b.table && fclose(b.table)) || fclose(b.out) ? 1 : 0;
}
