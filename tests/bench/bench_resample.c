// libs: trajd_kernels
/* bench_resample budget|grid [OUT.json [ROW]]: the CUDA kernels over shapes and launch shapes, against
 * ceilings of the same run.
 *
 * Cold: every launch works on another set of buffers, stamps and rows and outputs, so many that they are
 * several times the L2. Hot: the same set each time. Both as one graph of many launches, replayed; the time
 * is that of a replay over its launches. Single: launches given one by one. Stamps are int64 with jitter on
 * every row, targets int64 per window, a mask is written. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/run.h"
#include "kernels/device.h"

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))
#define POOL_BYTES (256ull << 20) /* of source values that are no NaN */
#define SETS_BYTES (1200ull << 20)
#define COLD_BYTES (400ull << 20) /* what a rotation covers: more than six times an L2 of 60 MiB */
#define SETS_MAX 400u
#define SAMPLES 9
#define SAMPLE_US 700.0 /* of device time at least */
#define STEP_NS 10000000

struct shape {
    uint32_t B, S, T, D;
    enum trajd_dtype source, output;
    enum trajd_kind kind;
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
    FILE *out;
    bool any_written;
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
    set->request =
        (struct trajd_resample_request){B, 3, 2, 3, 5, set->clocks, set->grids, set->brackets, set->streams, NULL, 0};
}

static void make_sets(struct bench *b, const struct shape *shape)
{
    uint64_t one;

    b->used_bytes = b->set_count = 0;
    do {
        struct set *set = &b->sets[b->set_count++];
        if (shape->B)
            make_dense(b, shape, set);
        else
            make_batch(b, set);
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

static void print_sample(struct bench *b, const char *name, const struct sample *sample)
{
    fprintf(b->out, "\"%s\":[", name);
    for (int i = 0; i < SAMPLES; i++)
        fprintf(b->out, "%s%.4f", i ? "," : "", sample->us[i]);
    fprintf(b->out, "]");
}

static void print_launch_shape(struct bench *b, const struct trajd_cuda_shape *shape)
{
    fprintf(b->out, "\"tile\":%u,\"threads\":%u,\"tiles\":%u,\"stage\":%u,\"prefetch\":%u,\"style\":%u",
            shape->tile_steps, shape->thread_count, shape->tiles_per_block, shape->stage_rows,
            shape->prefetch, shape->style);
}

/* Tiles beyond the first that holds all targets, and what a family has no use for, are left out. */
static bool is_candidate(const struct shape *shape, const struct trajd_cuda_shape *try, uint32_t smaller_tile)
{
    uint32_t T = shape->B ? shape->T : 16, S = shape->B ? shape->S : 400;

    if ((smaller_tile >= T) || (try->stage_rows && S > 1024))
        return false;
    if (!shape->B)
        return !try->prefetch && try->style != TRAJD_CUDA_WALK && try->tiles_per_block == 1;
    if (try->style == TRAJD_CUDA_WALK)
        return T >= 2 * S && try->tile_steps >= 32;
    if (try->tiles_per_block > 1 || (S <= 1024 && !try->stage_rows && try->thread_count != 64))
        return false; /* short clocks unstaged: never won, and are tried at one size to see so */
    return try->style == TRAJD_CUDA_STEPS || (uint64_t)try->tile_steps * shape->D <= 4096;
}

static uint32_t list_candidates(const struct shape *shape, bool wide, struct trajd_cuda_shape *list,
                                uint32_t limit)
{
    static const uint32_t wide_tiles[] = {4, 8, 16, 32, 64, 128, 256}, wide_threads[] = {64, 128, 256};
    static const uint32_t few_tiles[] = {4, 16, 64}, few_threads[] = {128, 256}, runs[] = {1, 2, 4, 8};
    const uint32_t *tiles = wide ? wide_tiles : few_tiles, *threads = wide ? wide_threads : few_threads;
    uint32_t tile_count = wide ? 7 : 3, thread_count = wide ? 3 : 2, count = 0;

    for (uint32_t i = 0; i < tile_count; i++)
        for (uint32_t k = 0; k < thread_count; k++)
            for (uint32_t flags = 0; flags < 16 * TRAJD_CUDA_STYLE_COUNT; flags++) {
                struct trajd_cuda_shape try = {
                    tiles[i],       threads[k],           runs[flags >> 2 & 3], flags & 1 ? 1024 : 0,
                    flags >> 1 & 1, (uint8_t)(flags >> 4)};
                if (count < limit && is_candidate(shape, &try, i > 0 ? tiles[i - 1] : 0))
                    list[count++] = try;
            }
    return count;
}

static struct trajd_cuda_shape chosen_shape(struct bench *b, const struct shape *shape);

static void bench_shape(struct bench *b, const struct shape *shape, bool wide)
{
    struct trajd_cuda_shape list[512], chosen, best_shape;
    struct sample sample, cold, hot, single, write;
    uint32_t count = list_candidates(shape, wide, list, ARRAY_LEN(list));
    double best_us = 1e30;

    make_sets(b, shape);
    chosen = best_shape = chosen_shape(b, shape);
    time_shape(b, &chosen, COLD, &cold);
    time_shape(b, &chosen, HOT, &hot);
    time_single(b, &chosen, &single);
    time_write(b, &write);
    fprintf(b->out,
            "%s\n{\"B\":%u,\"S\":%u,\"T\":%u,\"D\":%u,\"source\":\"%s\",\"output\":\"%s\",\"kind\":%d,",
            b->any_written ? "," : "", shape->B, shape->S, shape->T, shape->D,
            trajd_dtype_name(shape->source), trajd_dtype_name(shape->output), shape->kind);
    b->any_written = true;
    fprintf(b->out, "\"moved_bytes\":%llu,\"output_bytes\":%llu,\"sets\":%u,\"budget_us\":%.1f,\"chosen\":{",
            (unsigned long long)b->moved_bytes, (unsigned long long)b->output_bytes, b->set_count,
            shape->budget_us);
    print_launch_shape(b, &chosen);
    fprintf(b->out, "},");
    print_sample(b, "cold_us", &cold);
    fprintf(b->out, ",");
    print_sample(b, "hot_us", &hot);
    fprintf(b->out, ",");
    print_sample(b, "single_us", &single);
    fprintf(b->out, ",");
    print_sample(b, "write_us", &write);
    fprintf(b->out, ",\"candidates\":[");
    for (uint32_t i = 0, printed = 0; i < count; i++) {
        struct trajd_cuda_problem fake = {.stream_count = shape->B ? 1 : 5,
                                          .bracket_count = shape->B ? 1 : 3,
                                          .mask_count = shape->B ? 1 : 5,
                                          .lean = shape->B != 0,
                                          .step_count_max = 1};
        if (!trajd_cuda_shape_fits(&fake, &list[i]))
            continue;
        time_shape(b, &list[i], COLD, &sample);
        if (sample.median_us < best_us) {
            best_us = sample.median_us;
            best_shape = list[i];
        }
        fprintf(b->out, "%s\n {", printed++ ? "," : "");
        print_launch_shape(b, &list[i]);
        fprintf(b->out, ",");
        print_sample(b, "cold_us", &sample);
        fprintf(b->out, "}");
    }
    fprintf(b->out, "]}");
    printf("%5u %5u %5u %5u %5s %d | %7.2f hot %7.2f single %7.2f write %7.2f | best %7.2f t%u/%u*%u s%u p%u "
           "%u | chosen "
           "t%u/%u*%u s%u p%u %u | %.2f TB/s\n",
           shape->B, shape->S, shape->T, shape->D, trajd_dtype_name(shape->source), shape->kind,
           cold.median_us, hot.median_us, single.median_us, write.median_us, best_us, best_shape.tile_steps,
           best_shape.thread_count, best_shape.tiles_per_block, best_shape.stage_rows, best_shape.prefetch,
           best_shape.style, chosen.tile_steps, chosen.thread_count, chosen.tiles_per_block,
           chosen.stage_rows, chosen.prefetch, chosen.style, (double)b->moved_bytes / best_us / 1e6);
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

static void bench_budget(struct bench *b, const char *only)
{
    static const struct shape shapes[] = {
        {32, 100, 256, 128, TRAJD_BF16, TRAJD_BF16, 0, 3.0},
        {32, 500, 256, 128, TRAJD_BF16, TRAJD_BF16, 0, 4.0},
        {64, 4096, 1024, 32, TRAJD_BF16, TRAJD_BF16, 0, 5.8},
        {256, 500, 250, 16, TRAJD_BF16, TRAJD_BF16, 0, 4.0},
        {1024, 300, 50, 14, TRAJD_BF16, TRAJD_BF16, 0, 4.5},
        {64, 400, 16, 7, TRAJD_BF16, TRAJD_BF16, 0, 2.0},
        {256, 100, 2048, 256, TRAJD_BF16, TRAJD_BF16, 0, 65},
        {0, 0, 0, 0, TRAJD_BF16, TRAJD_BF16, 0, 4.0},
        {1, 2, 1, 1, TRAJD_BF16, TRAJD_BF16, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        if (!only || strtoul(only, NULL, 10) == i)
            bench_shape(b, &shapes[i], true);
}

static void bench_grid(struct bench *b)
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
                    enum trajd_kind kind = (w + l + d + t) % 5 == 4 ? TRAJD_KIND_NEAREST : TRAJD_KIND_LINEAR;
                    struct shape shape = {windows[w],  lengths[l][0], lengths[l][1], features[d],
                                          types[t][0], types[t][1],   kind,          0};
                    uint64_t bytes = (uint64_t)shape.B * (shape.S + shape.T) * shape.D * 4;
                    if (t == (w + l) % 3 || bytes > (300ull << 20))
                        continue; /* two of the three pairs of types each */
                    bench_shape(b, &shape, false);
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

int main(int argc, char **argv)
{
    static struct bench b = {.random = 1};
    const struct trajd_device_info *info;
    double copy_gb_s;

    if (argc < 2 || (strcmp(argv[1], "budget") != 0 && strcmp(argv[1], "grid") != 0)) {
        fprintf(stderr, "bench_resample budget|grid [OUT.json [ROW]]\n");
        return 2;
    }
    if (trajd_device_count() == 0) {
        fprintf(stderr, "bench_resample: no GPU here, or built without CUDA\n");
        return 77;
    }
    open_bench(&b);
    b.out = fopen(argc > 2 ? argv[2] : "/dev/null", "w");
    if (!b.out) {
        perror(argv[2]);
        return 1;
    }
    info = trajd_device_info(b.device);
    copy_gb_s = time_copy_gb_s(&b);
    printf("%s, CUDA %u, copy %.0f GB/s both ways\n    B     S     T     D  type kind | cold us\n",
           info->name, info->driver_version, copy_gb_s);
    fprintf(b.out,
            "{\"device\":\"%s\",\"driver\":%u,\"sm_count\":%u,\"command\":\"bench_resample "
            "%s\",\"copy_gb_s\":%.0f,\"rows\":[",
            info->name, info->driver_version, info->sm_count, argv[1], copy_gb_s);
    if (strcmp(argv[1], "budget") == 0)
        bench_budget(&b, argc > 3 ? argv[3] : NULL);
    else
        bench_grid(&b);
    fprintf(b.out, "\n]}\n");
    return fclose(b.out) ? 1 : 0;
}
