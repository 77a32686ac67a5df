/* Buffers of stamps, rows and outputs for a shape: so many that they are several times the L2. */
#include "tests/bench/resample_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"

#define COLD_BYTES (400ull << 20) /* size of a rotation: more than six times an L2 of 60 MiB */

struct trajd_error bench_error;

void bench_must(enum trajd_status status)
{
    if (!status)
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
    if (b->used_bytes > BENCH_SETS_BYTES) {
        fprintf(stderr, "bench_resample: a shape needs more than %llu MiB\n",
                BENCH_SETS_BYTES >> 20);
        exit(1);
    }
    return memory;
}

static void *take_copy(struct bench *b, const void *from, uint64_t bytes)
{
    void *memory = take(b, bytes);

    bench_must(trajd_device_copy_async(memory, from, bytes, b->stream, &bench_error));
    bench_must(trajd_device_stream_wait(b->stream, &bench_error));
    return memory;
}

static void *take_rows(struct bench *b, uint64_t bytes)
{
    char *memory = take(b, bytes);

    for (uint64_t at = 0; at < bytes; at += BENCH_POOL_BYTES)
        bench_must(trajd_device_copy_async(
            memory + at, b->pool, bytes - at < BENCH_POOL_BYTES ? bytes - at : BENCH_POOL_BYTES,
            b->stream, &bench_error));
    return memory;
}

/* Row s is at s steps plus some jitter, for B episodes. */
static int64_t *draw_stamps(struct bench *b, uint64_t episodes, uint32_t rows)
{
    int64_t *stamps = (int64_t *)b->host;

    for (uint64_t e = 0; e < episodes; e++)
        for (uint32_t s = 0; s < rows; s++)
            stamps[e * rows + s] = (int64_t)s * BENCH_STEP_NS + (int64_t)draw(b, BENCH_STEP_NS / 2);
    return stamps;
}

static void make_dense(struct bench *b, const struct bench_shape *shape, struct bench_set *set)
{
    uint64_t rows = (uint64_t)shape->B * shape->S, targets = (uint64_t)shape->B * shape->T;
    const struct bench_set *first = &b->sets[0];
    struct dense_request made;
    uint64_t source_bytes = rows * shape->D * trajd_dtype_size(shape->source);
    int64_t *stamps, *offsets;

    if (set == &b->sets[0]) {
        stamps = take_copy(b, draw_stamps(b, shape->B, shape->S), rows * 8);
        offsets = (int64_t *)b->host;
        for (uint64_t i = 0; i < targets; i++)
            offsets[i] = (int64_t)(i % shape->T) * (shape->S - 1) * BENCH_STEP_NS / shape->T +
                         (int64_t)draw(b, BENCH_STEP_NS / 4);
        offsets = take_copy(b, offsets, targets * 8);
    } else {
        stamps = take_copy(b, first->clocks[0].stamps_ns, rows * 8);
        offsets = take_copy(b, first->grids[0].offsets, targets * 8);
    }
    b->output_bytes = targets * shape->D * trajd_dtype_size(shape->output);
    /* read once: the rows that are used, stamps, targets; written once: output, mask */
    b->moved_bytes =
        (2ull * shape->T < shape->S ? source_bytes / shape->S * 2 * shape->T : source_bytes) +
        rows * 8 + targets * 9 + b->output_bytes;
    dense_request_make(&(struct dense_problem){shape->B, shape->S, shape->T, shape->D, stamps,
                                               offsets, shape->kind, shape->source, shape->output,
                                               TRAJD_EDGE_HOLD, take_rows(b, source_bytes),
                                               take(b, b->output_bytes), take(b, targets)},
                       &made);
    *set = (struct bench_set){.clocks = {made.clock},
                              .grids = {made.grid},
                              .brackets = {made.bracket},
                              .streams = {made.stream},
                              .request = made.request};
}

/* A policy's request for 256 windows: position, quaternion, gripper and joints of now and before,
 * and a chunk of actions. */
static void make_batch(struct bench *b, struct bench_set *set)
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

    *set = (struct bench_set){0};
    for (uint32_t w = 0; w < B; w++) {
        int64_t row = (int64_t)draw(b, ROWS - 20) + 2;
        begin[w] = (int64_t)draw(b, EPISODES) * ROWS;
        anchor[w] = row * BENCH_STEP_NS + BENCH_STEP_NS / 2;
        count[0][w] = count[1][w] = row + 1;
        count[2][w] = ROWS;
    }
    for (uint32_t t = 0; t < 16; t++)
        offsets[t] = ((int64_t)t - 1) * BENCH_STEP_NS * 2 / 3;
    for (uint32_t g = 0; g < 2; g++)
        set->grids[g] = (struct trajd_grid){.unit = TRAJD_GRID_NS,
                                            .step_count = steps[g],
                                            .offsets = take_copy(b, offsets, steps[g] * 8)};
    for (uint32_t c = 0; c < 3; c++) {
        set->clocks[c].stamps_ns =
            take_copy(b, draw_stamps(b, EPISODES, ROWS), EPISODES * ROWS * 8);
        set->brackets[c] = (struct trajd_bracket){.clock_index = c,
                                                  .grid_index = c == 2,
                                                  .row_begin = take_copy(b, begin, sizeof begin),
                                                  .row_count = take_copy(b, count[c], sizeof begin),
                                                  .anchor = take_copy(b, anchor, sizeof anchor)};
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
            .max_gap_ns = 5ll * BENCH_STEP_NS,
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
    set->request = (struct trajd_resample_request){.window_count = B,
                                                   .clock_count = 3,
                                                   .grid_count = 2,
                                                   .bracket_count = 3,
                                                   .stream_count = 5,
                                                   .clocks = set->clocks,
                                                   .grids = set->grids,
                                                   .brackets = set->brackets,
                                                   .streams = set->streams};
}

/* One stream: B windows, each in the middle of an episode of S rows. */
static void make_single(struct bench *b, const struct bench_shape *shape, struct bench_set *set)
{
    uint64_t rows = (uint64_t)shape->B * shape->S, targets = (uint64_t)shape->B * shape->T;
    uint64_t row_bytes = (uint64_t)shape->D * trajd_dtype_size(shape->source);
    uint64_t step_bytes = (uint64_t)shape->D * trajd_dtype_size(shape->output);
    bool by_rows = shape->layout == BENCH_LAYOUT_ROWS;
    int64_t unit = by_rows ? 1 : BENCH_STEP_NS, *host = (int64_t *)b->host;

    *set = (struct bench_set){0};
    if (shape->layout == BENCH_LAYOUT_REGULAR)
        set->clocks[0].rate = (struct trajd_rate){30000, 301};
    else if (!by_rows)
        set->clocks[0].stamps_ns = take_copy(b, draw_stamps(b, shape->B, shape->S), rows * 8);
    for (uint32_t t = 0; t < shape->T; t++)
        host[t] = ((int64_t)t - shape->T / 2) * unit * shape->S / shape->T +
                  (by_rows ? 0 : BENCH_STEP_NS / 3);
    set->grids[0] = (struct trajd_grid){.unit = by_rows ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
                                        .step_count = shape->T,
                                        .offsets = take_copy(b, host, shape->T * 8ull)};
    for (uint32_t w = 0; w < shape->B; w++) {
        host[w] = (int64_t)w * shape->S;
        host[shape->B + w] = shape->S;
        host[2 * shape->B + w] =
            shape->S / 2 * unit + (by_rows ? 0 : (int64_t)draw(b, BENCH_STEP_NS));
    }
    host = take_copy(b, host, 24ull * shape->B);
    set->brackets[0] = (struct trajd_bracket){
        .row_begin = host, .row_count = host + shape->B, .anchor = host + 2 * shape->B};
    set->streams[0] = (struct trajd_stream){
        .kind = shape->kind,
        .source_type = shape->source,
        .output_type = shape->output,
        .feature_count = shape->D,
        .row_stride_bytes = row_bytes,
        .base = take_rows(b, rows * row_bytes),
        .max_gap_ns = -1,
        .max_age_ns = -1,
        .mean_width = by_rows ? 8 : (int64_t)BENCH_STEP_NS * 8,
        .angle_period = 6.283185307179586,
        .angle_low = NAN,
        .output = take(b, targets * step_bytes),
        .window_stride_bytes = step_bytes * shape->T,
        .step_stride_bytes = step_bytes,
        .mask = take(b, targets),
        .mask_window_stride_bytes = shape->T,
    };
    b->output_bytes = targets * step_bytes;
    b->moved_bytes = (2ull * shape->T < shape->S ? 2ull * targets * row_bytes : rows * row_bytes) +
                     targets + (set->clocks[0].stamps_ns ? rows * 8 : 0) + b->output_bytes;
    set->request = (struct trajd_resample_request){.window_count = shape->B,
                                                   .clock_count = 1,
                                                   .grid_count = 1,
                                                   .bracket_count = 1,
                                                   .stream_count = 1};
}

void bench_make_sets(struct bench *b, const struct bench_shape *shape)
{
    uint64_t one;

    b->used_bytes = b->set_count = 0;
    do {
        struct bench_set *set = &b->sets[b->set_count++];
        if (shape->layout == BENCH_LAYOUT_DENSE)
            make_dense(b, shape, set);
        else if (shape->layout == BENCH_LAYOUT_POLICY)
            make_batch(b, set);
        else
            make_single(b, shape, set);
        set->request.clocks = set->clocks;
        set->request.grids = set->grids;
        set->request.brackets = set->brackets;
        set->request.streams = set->streams;
        one = b->used_bytes / b->set_count;
    } while ((b->used_bytes < COLD_BYTES || b->set_count < 2) && b->set_count < BENCH_SETS_MAX &&
             b->used_bytes + one + (1 << 20) < BENCH_SETS_BYTES);
    bench_must(trajd_device_stream_wait(b->stream, &bench_error));
}

void bench_open(struct bench *b)
{
    uint16_t *values;

    bench_must(trajd_device_open(0, &b->device, &bench_error));
    bench_must(trajd_device_stream_create(b->device, &b->stream, &bench_error));
    bench_must(trajd_device_alloc(b->device, BENCH_POOL_BYTES, (void **)&b->pool, &bench_error));
    bench_must(
        trajd_device_alloc(b->device, BENCH_SETS_BYTES, (void **)&b->sets_memory, &bench_error));
    bench_must(
        trajd_device_host_alloc(b->device, BENCH_POOL_BYTES, (void **)&b->host, &bench_error));
    trajd_device_facts(b->device, &b->facts);
    b->facts.cpu_threads = 1;
    values = (uint16_t *)b->host;
    /* 0.5 to 2 in bf16, and no NaN in any type */
    for (uint64_t i = 0; i < BENCH_POOL_BYTES / 2; i++)
        values[i] = (uint16_t)(0x3f00 + draw(b, 256));
    bench_must(trajd_device_copy_async(b->pool, values, BENCH_POOL_BYTES, b->stream, &bench_error));
    bench_must(trajd_device_stream_wait(b->stream, &bench_error));
}
