/* Transforms on a GPU against those of the CPU: random chains bit for bit, also as a graph;
 * rotations that are blended between rows. `test_gpu_transforms [CHAINS]` sets the number of
 * chains. Exits with 77 (skipped) without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device_graph.h"
#include "kernels/cuda/run.h"
#include "kernels/element_convert.h"
#include "support/random_chain.h"

#define BLOCK_BYTES (2u << 20)
#define CHAINS_MAX 9u
#define SKIPPED 77

struct fixture {
    struct trajd_device *device;
    struct trajd_device_stream *stream;
    struct trajd_device_facts facts;
    char *on_device, *result;
    uint64_t chain_count;
};

static struct trajd_error error;

static void must(enum trajd_status status)
{
    if (status)
        fail_msg("%s: %s", trajd_status_name(status), error.message);
}

static void upload(struct fixture *f, char *to, const void *from, uint64_t size_bytes)
{
    must(trajd_device_copy_async(to, from, size_bytes, f->stream, &error));
    must(trajd_device_stream_wait(f->stream, &error));
}

static void download(struct fixture *f, const char *from, uint64_t size_bytes)
{
    must(trajd_device_copy_async(f->result, from, size_bytes, f->stream, &error));
    must(trajd_device_stream_wait(f->stream, &error));
}

static void run(struct fixture *f, const struct trajd_transform_gpu_job *jobs, uint32_t count,
                uint32_t window_count)
{
    must(trajd_transform_gpu_run(jobs, count, window_count, &f->facts,
                                 trajd_device_stream_handle(f->stream), &error));
}

static void check(struct fixture *f, const struct random_chain *chain, const char *device,
                  uint64_t seed)
{
    char text[256];

    download(f, device, chain->size_bytes);
    if (!random_chain_matches(chain, f->result, text, sizeof text))
        fail_msg("seed %llu: %s", (unsigned long long)seed, text);
}

static void test_random_chains_have_the_cpus_bits(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 1; seed <= f->chain_count; seed++) {
        struct random_chain *chain = random_chain_create(seed);
        const struct trajd_transform_gpu_job job = random_chain_gpu_job(chain, f->on_device);
        upload(f, f->on_device, chain->found, chain->size_bytes);
        run(f, &job, 1, chain->window_count);
        check(f, chain, f->on_device, seed);
        random_chain_destroy(&chain);
    }
}

/* Makes chains of as many windows each, whose rows are the windows. */
static uint32_t make_alike(struct random_chain **chains, uint64_t *seeds, uint64_t seed)
{
    uint32_t count = 0;

    for (; count < CHAINS_MAX; seed++) {
        struct random_chain *chain = random_chain_create(seed);
        const bool fits = !chain->job.window_rows &&
                          (count == 0 || chain->window_count == chains[0]->window_count);
        seeds[count] = seed;
        if (fits)
            chains[count++] = chain;
        else
            random_chain_destroy(&chain);
    }
    return count;
}

/* Two launches: a launch takes 6 outputs. */
static void test_several_outputs(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 1; seed < 400; seed += 40) {
        struct random_chain *chains[CHAINS_MAX];
        struct trajd_transform_gpu_job jobs[CHAINS_MAX];
        uint64_t seeds[CHAINS_MAX];
        const uint32_t count = make_alike(chains, seeds, seed);
        for (uint32_t i = 0; i < count; i++) {
            jobs[i] = random_chain_gpu_job(chains[i], f->on_device + i * BLOCK_BYTES);
            upload(f, f->on_device + i * BLOCK_BYTES, chains[i]->found, chains[i]->size_bytes);
        }
        run(f, jobs, count, chains[0]->window_count);
        for (uint32_t i = 0; i < count; i++) {
            check(f, chains[i], f->on_device + i * BLOCK_BYTES, seeds[i]);
            random_chain_destroy(&chains[i]);
        }
    }
}

/* A run can be captured, and its graph can be replayed: a run reads its rows and does not change
 * them. */
static void test_a_graph(void **state)
{
    struct fixture *f = *state;
    struct random_chain *chain = random_chain_create(3);
    const struct trajd_transform_gpu_job job = random_chain_gpu_job(chain, f->on_device);
    struct device_graph *graph;

    upload(f, f->on_device, chain->found, chain->size_bytes);
    must(device_graph_begin(f->stream, &error));
    run(f, &job, 1, chain->window_count);
    must(device_graph_end(f->stream, &graph, &error));
    for (int i = 0; i < 2; i++) {
        must(device_graph_replay_async(graph, f->stream, &error));
        check(f, chain, f->on_device, 3);
    }
    device_graph_destroy(&graph);
    random_chain_destroy(&chain);
}

/* ---- blends ---- */

enum { WINDOWS = 5, ROWS = 12, STEPS = 9, COLUMNS = 12, COLUMN = 2 };

/* A stream of rotations beside other columns, at times between its rows. All arrays are in one
 * block. */
struct blended {
    int64_t stamps[WINDOWS * ROWS], offsets[STEPS], begin[WINDOWS], count[WINDOWS], anchor[WINDOWS];
    double rows[WINDOWS * ROWS * COLUMNS], output[WINDOWS * STEPS * COLUMNS]; /* or floats */
    uint8_t mask[WINDOWS * STEPS];
    const void *bases[WINDOWS]; /* the rows of each window */
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket bracket;
    struct trajd_stream stream;
};

/* `at`: where the block will lie. */
static void fill(struct blended *b, enum trajd_rotation_form form, enum trajd_dtype type,
                 const struct blended *at)
{
    const uint32_t size = trajd_dtype_size(type);

    memset(b, 0x3d, sizeof *b);
    for (uint32_t t = 0; t < STEPS; t++)
        b->offsets[t] = (int64_t)t * 14 - 20;
    for (uint32_t w = 0; w < WINDOWS; w++) {
        b->begin[w] = w * ROWS;
        b->bases[w] = w == 4 ? NULL : (const char *)at->rows + w * ROWS * COLUMNS * size;
        b->count[w] = w == 3 ? 1 : ROWS;
        b->anchor[w] = (int64_t)w * 13;
    }
    for (uint32_t r = 0; r < WINDOWS * ROWS; r++) {
        double turn[3] = {sin(r), 0.2 * r / ROWS, cos(3 * r)}, q[4], numbers[COLUMNS] = {1, 2};
        trajd_rotation_load(TRAJD_ROTATION_AXIS_ANGLE, turn, q);
        trajd_rotation_store(form, q, numbers + COLUMN);
        if (r == 17) /* no rotation */
            memset(numbers + COLUMN, 0, trajd_rotation_width(form) * sizeof *numbers);
        b->stamps[r] = (int64_t)(r % ROWS) * 10;
        for (uint32_t d = 0; d < COLUMNS; d++)
            trajd_element_store(type, (char *)b->rows + (r * COLUMNS + d) * size, numbers[d]);
    }
}

/* Makes the request of the block at `at`, on the host or on a device. */
static struct trajd_resample_request request_of(struct blended *b, enum trajd_dtype type,
                                                const struct blended *at)
{
    const uint32_t size = trajd_dtype_size(type);

    b->clock = (struct trajd_clock){.stamps_ns = at->stamps};
    b->grid =
        (struct trajd_grid){.unit = TRAJD_GRID_NS, .step_count = STEPS, .offsets = at->offsets};
    b->bracket = (struct trajd_bracket){
        .row_begin = at->begin, .row_count = at->count, .anchor = at->anchor};
    b->stream = (struct trajd_stream){.kind = TRAJD_KIND_LINEAR,
                                      .source_type = type,
                                      .feature_count = COLUMNS,
                                      .row_stride_bytes = COLUMNS * size,
                                      .bases = at->bases,
                                      .max_gap_ns = -1,
                                      .max_age_ns = -1,
                                      .output_type = type,
                                      .output = (void *)(uintptr_t)at->output,
                                      .window_stride_bytes = (uint64_t)STEPS * COLUMNS * size,
                                      .step_stride_bytes = COLUMNS * size,
                                      .mask = (uint8_t *)(uintptr_t)at->mask,
                                      .mask_window_stride_bytes = STEPS};
    return (struct trajd_resample_request){.window_count = WINDOWS,
                                           .clock_count = 1,
                                           .grid_count = 1,
                                           .bracket_count = 1,
                                           .stream_count = 1,
                                           .clocks = &b->clock,
                                           .grids = &b->grid,
                                           .brackets = &b->bracket,
                                           .streams = &b->stream};
}

static void compare(const struct blended *wanted, const struct blended *found,
                    enum trajd_rotation_form form, enum trajd_dtype type)
{
    const double most = type == TRAJD_F64 ? 1e-12 : 1e-6;

    assert_memory_equal(wanted->mask, found->mask, sizeof wanted->mask);
    for (uint32_t i = 0; i < WINDOWS * STEPS * COLUMNS; i++) {
        const uint64_t at = i * (uint64_t)trajd_dtype_size(type);
        const double x = trajd_element_load(type, (const char *)wanted->output + at),
                     y = trajd_element_load(type, (const char *)found->output + at);
        if (x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= most))
            fail_msg("%s, %s: number %u is %.17g, not %.17g", trajd_rotation_name(form),
                     trajd_dtype_name(type), i, y, x);
    }
}

static void test_blends(void **state)
{
    struct fixture *f = *state;
    static struct blended block, wanted;

    for (int form = 1; form < TRAJD_ROTATION_COUNT; form++)
        for (int wide = 0; wide < 2; wide++) {
            const enum trajd_dtype type = wide ? TRAJD_F64 : TRAJD_F32;
            struct trajd_resample_request request;
            fill(&wanted, form, type, &wanted);
            request = request_of(&wanted, type, &wanted);
            trajd_resample_reference(&request, 0, WINDOWS);
            trajd_transform_blend(&request, 0, COLUMN, form, 0, WINDOWS);
            fill(&block, form, type, (const struct blended *)f->on_device);
            upload(f, f->on_device, &block, sizeof block);
            request = request_of(&block, type, (const struct blended *)f->on_device);
            must(trajd_cuda_run(&request, &f->facts, NULL, trajd_device_stream_handle(f->stream),
                                &error));
            must(trajd_transform_gpu_blend(&request, 0, COLUMN, form, &f->facts,
                                           trajd_device_stream_handle(f->stream), &error));
            download(f, f->on_device, sizeof block);
            compare(&wanted, (const struct blended *)f->result, form, type);
        }
}

static int open_fixture(struct fixture *f)
{
    void *memory;

    if (trajd_device_open(0, &f->device, &error) ||
        trajd_device_stream_create(f->device, &f->stream, &error) ||
        trajd_device_alloc(f->device, CHAINS_MAX * BLOCK_BYTES, &memory, &error) ||
        !(f->result = malloc(BLOCK_BYTES))) {
        fprintf(stderr, "test_gpu_transforms: %s\n", error.message);
        return 1;
    }
    trajd_device_facts(f->device, &f->facts);
    f->on_device = memory;
    return 0;
}

int main(int argc, char **argv)
{
    struct fixture f = {.chain_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_random_chains_have_the_cpus_bits, &f),
        cmocka_unit_test_prestate(test_several_outputs, &f),
        cmocka_unit_test_prestate(test_a_graph, &f),
        cmocka_unit_test_prestate(test_blends, &f),
    };
    int failed;

    if (trajd_device_count() == 0) {
        fprintf(stderr, "skipped: no GPU here, or built without CUDA\n");
        return SKIPPED;
    }
    if (open_fixture(&f))
        return 1;
    failed = cmocka_run_group_tests_name("gpu/transforms", tests, NULL, NULL);
    trajd_device_free(f.device, f.on_device);
    trajd_device_stream_destroy(&f.stream);
    trajd_device_close(&f.device);
    free(f.result);
    return failed;
}
