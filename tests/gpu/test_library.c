/* libtrajd_kernels on a GPU, against the reference: the caller's memory and the caller's stream.
 * Built twice: for a real GPU, where it exits with 77 (skipped) if there is none, and over the
 * simulated one of tests/fake, which aborts if an array is not in its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device_arena.h"
#include "kernels/device.h"
#include "kernels/library/trajd_kernels.h"

#define ARENA_BYTES (8u << 20)
#define PROBLEMS 60
#define SKIPPED 77

static void must(enum trajd_status status, const struct trajd_error *error)
{
    if (status)
        fail_msg("%s: %s", trajd_status_name(status), error->message);
}

static struct trajd_kernels *open_gpu(void)
{
    struct trajd_kernels *kernels;
    struct trajd_error error;

    must(trajd_kernels_open(&(struct trajd_kernels_options){.place = TRAJD_KERNELS_GPU}, &kernels,
                            &error),
         &error);
    return kernels;
}

static void copy(void *to, const void *from, uint64_t size_bytes,
                 struct trajd_device_stream *stream)
{
    struct trajd_error error;

    must(trajd_device_copy_async(to, from, size_bytes, stream, &error), &error);
    must(trajd_device_stream_wait(stream, &error), &error);
}

static void test_requests_run_on_the_stream(void **state)
{
    struct trajd_kernels *kernels = open_gpu();
    struct trajd_device_stream *stream;
    struct trajd_device *device;
    struct trajd_error error;
    char *memory = malloc(ARENA_BYTES), *result = malloc(ARENA_BYTES);
    void *on_device;

    (void)state;
    must(trajd_device_open(0, &device, &error), &error);
    must(trajd_device_stream_create(device, &stream, &error), &error);
    must(trajd_device_alloc(device, ARENA_BYTES, &on_device, &error), &error);
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        const struct arena_spec spec = {.seed = seed, .kind = -1, .stamps = -1, .unit = -1};
        struct trajd_kernels_plan *plan;
        struct arena_view view;
        struct arena arena;
        char what[400], name[400];
        arena_create(&arena, &spec, memory, ARENA_BYTES, on_device);
        arena_view(&arena, on_device, &view);
        must(trajd_kernels_plan_create(kernels, &view.request, NULL, &plan, &error), &error);
        assert_int_equal(strncmp(trajd_kernels_plan_describe(plan), "cuda: ", 6), 0);
        copy(on_device, memory, arena.used_bytes, stream);
        must(trajd_kernels_run(plan, &view.request, trajd_device_stream_handle(stream), &error),
             &error);
        copy(result, on_device, arena.used_bytes, stream);
        trajd_resample_reference(&arena.request, 0, arena.spec.windows);
        if (!arena_matches(&arena, result, what, sizeof what))
            fail_msg("%s: %s", arena_name(&arena, name, sizeof name), what);
        trajd_kernels_plan_destroy(&plan);
    }
    trajd_device_free(device, on_device);
    trajd_device_stream_destroy(&stream);
    trajd_device_close(&device);
    trajd_kernels_close(&kernels);
    free(memory);
    free(result);
}

static void test_sums_have_a_plan(void **state)
{
    const struct trajd_clock clock = {.rate = {100, 1}};
    const struct trajd_grid grid = {.step_count = 2};
    const struct trajd_bracket bracket = {0};
    const struct trajd_stream stream = {.kind = TRAJD_KIND_PREVIOUS,
                                        .source_type = TRAJD_F32,
                                        .output_type = TRAJD_F32,
                                        .feature_count = 1,
                                        .row_stride_bytes = 4,
                                        .total = TRAJD_TOTAL_STEP,
                                        .total_width = 1,
                                        .window_stride_bytes = 8,
                                        .step_stride_bytes = 4};
    const struct trajd_resample_request shape = {.window_count = 1,
                                                 .clock_count = 1,
                                                 .grid_count = 1,
                                                 .bracket_count = 1,
                                                 .stream_count = 1,
                                                 .clocks = &clock,
                                                 .grids = &grid,
                                                 .brackets = &bracket,
                                                 .streams = &stream};
    struct trajd_kernels *kernels = open_gpu();
    struct trajd_kernels_plan *plan;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_kernels_plan_create(kernels, &shape, NULL, &plan, &error), TRAJD_OK);
    assert_non_null(strstr(trajd_kernels_plan_describe(plan), "sums of rows"));
    trajd_kernels_plan_destroy(&plan);
    trajd_kernels_close(&kernels);
}

/* Sums of windows whose rows follow each other: brackets without arrays. */
static void test_sums_of_dense_rows(void **state)
{
    struct {
        int64_t offsets[2];
        float values[12], sums[2][2];
    } host = {.offsets = {0, 20000000}, .values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
    const float expected[2][2] = {{1 + 2, 3 + 4 + 5}, {7 + 8, 9 + 10 + 11}};
    struct trajd_clock clock = {.rate = {100, 1}};
    struct trajd_grid grid = {.step_count = 2};
    struct trajd_bracket bracket = {.dense_row_count = 6};
    struct trajd_stream sums = {.kind = TRAJD_KIND_PREVIOUS,
                                .source_type = TRAJD_F32,
                                .output_type = TRAJD_F32,
                                .feature_count = 1,
                                .row_stride_bytes = 4,
                                .max_gap_ns = -1,
                                .total = TRAJD_TOTAL_STEP,
                                .total_width = 30000000,
                                .window_stride_bytes = 8,
                                .step_stride_bytes = 4};
    const struct trajd_resample_request request = {.window_count = 2,
                                                   .output_row_count = 2,
                                                   .clock_count = 1,
                                                   .grid_count = 1,
                                                   .bracket_count = 1,
                                                   .stream_count = 1,
                                                   .clocks = &clock,
                                                   .grids = &grid,
                                                   .brackets = &bracket,
                                                   .streams = &sums};
    struct trajd_kernels *kernels = open_gpu();
    struct trajd_kernels_plan *plan;
    struct trajd_device_stream *stream;
    struct trajd_device *device;
    struct trajd_error error;
    void *on_device;

    (void)state;
    must(trajd_device_open(0, &device, &error), &error);
    must(trajd_device_stream_create(device, &stream, &error), &error);
    must(trajd_device_alloc(device, sizeof host, &on_device, &error), &error);
    grid.offsets = (void *)((char *)on_device + offsetof(__typeof__(host), offsets));
    sums.base = (char *)on_device + offsetof(__typeof__(host), values);
    sums.output = (char *)on_device + offsetof(__typeof__(host), sums);
    must(trajd_kernels_plan_create(kernels, &request, NULL, &plan, &error), &error);
    copy(on_device, &host, sizeof host, stream);
    must(trajd_kernels_run(plan, &request, trajd_device_stream_handle(stream), &error), &error);
    copy(&host, on_device, sizeof host, stream);
    assert_memory_equal(host.sums, expected, sizeof expected);
    trajd_kernels_plan_destroy(&plan);
    trajd_device_free(device, on_device);
    trajd_device_stream_destroy(&stream);
    trajd_device_close(&device);
    trajd_kernels_close(&kernels);
}

/* Pieces of all sizes and alignments come whole, and no byte beside them changes. */
static void test_pieces_are_sent_together(void **state)
{
    static const struct {
        uint32_t to, from, size;
    } places[TRAJD_DEVICE_SENDS_MAX] = {
        {8, 0, 1},           {16, 8, 8},          {31, 16, 7},         {64, 33, 4096},
        {8192, 8192, 65536}, {80000, 80000, 9},   {80016, 80016, 16},  {81003, 81001, 1000},
        {90000, 90000, 0},   {90008, 90008, 24},  {91000, 91004, 800}, {95000, 95000, 5000},
        {100001, 100001, 1}, {100008, 100016, 8}, {101000, 101000, 3}, {102000, 102001, 8192}};
    enum { BYTES = 120000, CANARY = 0x5a };
    uint8_t *expected = malloc(BYTES), *result = malloc(BYTES);
    struct trajd_device_send sends[TRAJD_DEVICE_SENDS_MAX];
    struct trajd_device_stream *stream;
    struct trajd_device *device;
    struct trajd_error error;
    uint8_t *pinned;
    void *on_device;

    (void)state;
    must(trajd_device_open(0, &device, &error), &error);
    must(trajd_device_stream_create(device, &stream, &error), &error);
    must(trajd_device_alloc(device, BYTES, &on_device, &error), &error);
    must(trajd_device_host_alloc(device, BYTES, (void **)&pinned, &error), &error);
    for (uint32_t i = 0; i < BYTES; i++)
        pinned[i] = (uint8_t)(i * 7 + i / 256);
    memset(expected, CANARY, BYTES);
    for (uint32_t i = 0; i < TRAJD_DEVICE_SENDS_MAX; i++) {
        sends[i] = (struct trajd_device_send){(uint8_t *)on_device + places[i].to,
                                              pinned + places[i].from, places[i].size};
        memcpy(expected + places[i].to, pinned + places[i].from, places[i].size);
    }
    must(trajd_device_fill_async(on_device, CANARY, BYTES, stream, &error), &error);
    must(trajd_device_send_async(sends, TRAJD_DEVICE_SENDS_MAX, stream, &error), &error);
    copy(result, on_device, BYTES, stream);
    assert_memory_equal(result, expected, BYTES);
    trajd_device_host_free(device, pinned);
    trajd_device_free(device, on_device);
    trajd_device_stream_destroy(&stream);
    trajd_device_close(&device);
    free(expected);
    free(result);
}

static void test_wrong_options_are_refused(void **state)
{
    const struct trajd_kernels_options gpu = {.place = TRAJD_KERNELS_GPU, .gpu_ordinal = 99};
    const struct trajd_kernels_options table = {.place = TRAJD_KERNELS_GPU,
                                                .tuning_path = "/nowhere/table"};
    const struct trajd_kernels_options unknown = {.place = (enum trajd_kernels_place)7};
    const struct trajd_kernels_options threads = {.thread_count = 1025};
    const struct trajd_kernels_options reserved = {.reserved = {[7] = 1}};
    const struct trajd_kernels_options *const all[] = {&gpu, &table, &unknown, &threads, &reserved};
    struct trajd_kernels *kernels;
    struct trajd_error error;

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        error.message[0] = 0;
        assert_int_not_equal(trajd_kernels_open(all[i], &kernels, &error), TRAJD_OK);
        assert_null(kernels);
        assert_int_not_equal(error.message[0], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_run_on_the_stream),
        cmocka_unit_test(test_sums_have_a_plan),
        cmocka_unit_test(test_sums_of_dense_rows),
        cmocka_unit_test(test_pieces_are_sent_together),
        cmocka_unit_test(test_wrong_options_are_refused),
    };

    if (trajd_device_count() == 0) {
        fprintf(stderr, "skipped: no GPU\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
