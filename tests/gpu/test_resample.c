/* The CUDA variants against the reference in double. `test_gpu_resample [PROBLEMS]` sets the number
 * of random problems; use fewer with a sanitizer. Exits with 77 (skipped) without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device_arena.h"
#include "kernels/cuda/pack.h"
#include "kernels/device.h"
#include "kernels/dispatch/plan.h"
#include "proto/array_len.h"
#include "support/dense_request.h"

#define ARENA_BYTES (32u << 20)
#define SKIPPED 77

struct fixture {
    struct trajd_device *device;
    struct trajd_device_stream *stream;
    struct trajd_device_facts facts;
    char *memory, *result, *on_device;
    uint64_t problem_count;
    uint32_t shape_count[TRAJD_CUDA_STYLE_COUNT];
};

static void must(enum trajd_status status, const struct trajd_error *error)
{
    if (status)
        fail_msg("%s: %s", trajd_status_name(status), error->message);
}

static void upload(struct fixture *f, const struct arena *arena)
{
    struct trajd_error error;

    must(trajd_device_copy_async(f->on_device, arena->memory, arena->used_bytes, f->stream, &error),
         &error);
    must(trajd_device_stream_wait(f->stream, &error), &error);
}

static void download(struct fixture *f, const struct arena *arena)
{
    struct trajd_error error;

    must(trajd_device_copy_async(f->result, f->on_device, arena->used_bytes, f->stream, &error),
         &error);
    must(trajd_device_stream_wait(f->stream, &error), &error);
}

/* Runs one problem with one shape (NULL: the chosen one) and compares everything. */
static void check_problem(struct fixture *f, const struct arena_spec *spec,
                          const struct trajd_cuda_shape *shape)
{
    struct trajd_error error = {0};
    struct arena_view view;
    struct arena arena;
    char what[256], name[128];

    arena_create(&arena, spec, f->memory, ARENA_BYTES, f->on_device);
    arena_view(&arena, f->on_device, &view);
    upload(f, &arena);
    must(trajd_cuda_run(&view.request, &f->facts, shape, trajd_device_stream_handle(f->stream),
                        &error),
         &error);
    download(f, &arena);
    trajd_resample_reference(&arena.request, 0, arena.spec.windows);
    if (!arena_matches(&arena, f->result, what, sizeof what))
        fail_msg("%s: %s", arena_name(&arena, name, sizeof name), what);
}

static const struct arena_spec any = {.kind = -1, .stamps = -1, .unit = -1};

static void test_every_kind_and_pair_of_types(void **state)
{
    static const uint32_t sizes[] = {1, 7, 33};
    struct fixture *f = *state;
    uint64_t seed = 1;

    for (int kind = 0; kind < TRAJD_KIND_COUNT; kind++)
        for (int source = TRAJD_F16; source < TRAJD_DTYPE_COUNT; source++)
            for (int output = TRAJD_F16; output < TRAJD_DTYPE_COUNT; output++)
                for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                    bool floats = output <= TRAJD_F64,
                         copies = kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST;
                    struct arena_spec spec = {.seed = ++seed,
                                              .windows = 3,
                                              .rows = 1 + (uint32_t)(seed % 37),
                                              .features = sizes[i],
                                              .streams = 1,
                                              .brackets = 1,
                                              .kind = kind,
                                              .source = (enum trajd_dtype)source,
                                              .output = (enum trajd_dtype)output,
                                              .stamps = -1,
                                              .unit = -1};
                    if (floats ? output != TRAJD_F64 || source == TRAJD_F64
                               : output == source && copies)
                        check_problem(f, &spec, NULL);
                }
}

static void test_random_requests(void **state)
{
    struct fixture *f = *state;

    for (uint64_t i = 0; i < f->problem_count; i++) {
        struct arena_spec spec = any;
        spec.seed = 1000003 * (i + 1);
        spec.window_rows = i % 3 == 0;
        check_problem(f, &spec, NULL);
    }
}

/* Numbers and quaternions at the ends of float's range have the reference's values and masks. */
static void test_huge_numbers(void **state)
{
    struct fixture *f = *state;

    for (uint64_t i = 0; i < f->problem_count / 4; i++) {
        struct arena_spec spec = any;
        spec.seed = 500009 * (i + 1);
        spec.huge = true;
        spec.kind = i % 2 ? TRAJD_KIND_LINEAR : -1;
        spec.source = i % 4 == 0 ? TRAJD_F32 : i % 4 == 1 ? TRAJD_BF16 : TRAJD_DTYPE_NONE;
        spec.output = i % 3 == 0 ? TRAJD_F32 : TRAJD_DTYPE_NONE;
        check_problem(f, &spec, NULL);
    }
}

/* Sums of rows: over steps of time, and over the rest of the rows. */
static void test_totals(void **state)
{
    struct fixture *f = *state;

    for (uint64_t seed = 1; seed <= f->problem_count / 4; seed++) {
        struct arena_spec spec = {.seed = seed,
                                  .kind = TRAJD_KIND_PREVIOUS,
                                  .source = seed % 3 ? TRAJD_DTYPE_NONE : TRAJD_F64,
                                  .output = seed % 3 ? TRAJD_F32 : TRAJD_F64,
                                  .stamps = seed % 7 == 0 ? ARENA_WILD : -1,
                                  .unit = -1,
                                  .window_rows = seed % 4 == 0,
                                  .totals = true};
        check_problem(f, &spec, NULL);
    }
}

static void test_sizes_around_vectors_and_tiles(void **state)
{
    static const uint32_t sizes[] = {1, 2, 7, 14, 31, 32, 33, 128, 1000};
    static const enum trajd_dtype types[] = {TRAJD_BF16, TRAJD_F32, TRAJD_F16};
    struct fixture *f = *state;

    for (size_t d = 0; d < ARRAY_LEN(sizes); d++)
        for (size_t t = 0; t < ARRAY_LEN(sizes); t++)
            for (size_t type = 0; type < 3; type++) {
                struct arena_spec spec = {.seed = 7919 * (d * 100 + t * 10 + type + 1),
                                          .windows = 2,
                                          .rows = sizes[(d + t) % 9],
                                          .steps = sizes[t],
                                          .features = sizes[d],
                                          .streams = 1,
                                          .brackets = 1,
                                          .kind = TRAJD_KIND_LINEAR,
                                          .source = types[type],
                                          .output = types[(type + d) % 2 ? type : 0],
                                          .stamps = -1,
                                          .unit = TRAJD_GRID_NS};
                check_problem(f, &spec, NULL);
            }
}

static void test_stamps_that_are_not_ascending(void **state)
{
    struct fixture *f = *state;

    for (uint64_t i = 0; i < f->problem_count / 5 + 1; i++) {
        struct arena_spec spec = any;
        spec.seed = 77003 * (i + 1);
        spec.stamps = i % 2 ? ARENA_REVERSED : ARENA_WILD;
        check_problem(f, &spec, NULL);
    }
}

/* More streams and brackets than a launch can serve, with masks joined across launches. */
static void test_many_streams(void **state)
{
    struct fixture *f = *state;

    for (uint64_t i = 0; i < 20; i++) {
        struct arena_spec spec = any;
        spec.seed = 31 * (i + 1);
        spec.window_rows = i % 2;
        spec.streams = ARENA_STREAMS_MAX - (uint32_t)(i % 5);
        spec.brackets = 1 + (uint32_t)(i % ARENA_BRACKETS_MAX);
        spec.rows = 40;
        spec.steps = 20;
        check_problem(f, &spec, NULL);
    }
}

/* Shapes    affect only speed: every shape that fits gives the same result. */
static void check_shape(struct fixture *f, const struct arena_spec *spec,
                        const struct trajd_cuda_shape *shape)
{
    struct trajd_cuda_problem problem;
    struct arena arena;

    arena_create(&arena, spec, f->memory, ARENA_BYTES, f->on_device);
    for (uint32_t s = 0; s < arena.spec.streams;) {
        s = trajd_cuda_pack(&arena.request, s, &problem);
        if (!trajd_cuda_shape_fits(&problem, shape))
            return;
    }
    f->shape_count[shape->style]++;
    check_problem(f, spec, shape);
}

static void test_every_shape(void **state)
{
    static const uint32_t tiles[] = {1, 3, 16, 64, 200}, threads[] = {32, 96, 256},
                          stages[] = {0, 16, 700};
    struct fixture *f = *state;
    uint64_t seed = 5;

    for (size_t a = 0; a < 5; a++)
        for (size_t b = 0; b < 3; b++)
            for (size_t c = 0; c < 3; c++)
                for (uint32_t i = 0; i < 8 * TRAJD_CUDA_STYLE_COUNT; i++) {
                    const struct trajd_cuda_shape shape = {
                        .tile_steps = tiles[a],
                        .thread_count = threads[b],
                        .stage_rows = stages[c],
                        .prefetch = (uint8_t)(i % 8 | (seed & 8)),
                        .style = (uint8_t)(i / 8),
                        .vectors = (uint8_t)(1u << seed % 3),
                        .overlaps = f->facts.compute_capability >= 90};
                    struct arena_spec spec = any;
                    spec.seed = ++seed * 104729;
                    spec.streams = 1 + (uint32_t)(seed % 4 == 0);
                    spec.kind = seed % 3 == 0 ? -1 : TRAJD_KIND_LINEAR;
                    spec.unit = seed % 7 == 0 ? -1 : TRAJD_GRID_NS;
                    spec.stamps = (int)(seed % (ARENA_DRIFT + 1));
                    if (shape.style == TRAJD_CUDA_NARROW)
                        spec.features = 1 + (uint32_t)(seed % 20);
                    spec.window_rows = seed % 5 == 0;
                    if (shape.style <= TRAJD_CUDA_NARROW)
                        spec.streams = 1;
                    if (shape.style == TRAJD_CUDA_SIDE) {
                        spec.streams = 2 + (uint32_t)(seed % 4);
                        spec.source = seed % 2 ? TRAJD_BF16 : TRAJD_F32;
                        spec.output = seed % 3 ? TRAJD_BF16 : spec.source;
                        spec.kind = TRAJD_KIND_LINEAR;
                        spec.unit = TRAJD_GRID_NS;
                    }
                    check_shape(f, &spec, &shape);
                }
    for (int style = 0; style < TRAJD_CUDA_STYLE_COUNT; style++)
        assert_true(f->shape_count[style] > 20);
}

static void test_more_windows_than_a_grid_is_high(void **state)
{
    struct fixture *f = *state;
    struct arena_spec spec = {.seed = 4,
                              .windows = 70001,
                              .rows = 3,
                              .steps = 2,
                              .features = 2,
                              .streams = 2,
                              .brackets = 1,
                              .kind = TRAJD_KIND_LINEAR,
                              .source = TRAJD_F32,
                              .output = TRAJD_F32,
                              .stamps = ARENA_JITTER,
                              .unit = TRAJD_GRID_NS};

    check_problem(f, &spec, NULL);
}

static void test_repeats_bit_for_bit(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error = {0};

    for (uint64_t i = 0; i < 20; i++) {
        struct arena_spec spec = any;
        struct arena_view view;
        struct arena arena;
        char *first;

        spec.seed = 65537 * (i + 1);
        arena_create(&arena, &spec, f->memory, ARENA_BYTES, f->on_device);
        arena_view(&arena, f->on_device, &view);
        first = malloc(arena.used_bytes);
        for (int run = 0; run < 2; run++) {
            upload(f, &arena);
            must(trajd_cuda_run(&view.request, &f->facts, NULL,
                                trajd_device_stream_handle(f->stream), &error),
                 &error);
            download(f, &arena);
            if (run == 0)
                memcpy(first, f->result, arena.used_bytes);
        }
        assert_memory_equal(first, f->result, arena.used_bytes);
        free(first);
    }
}

/* Targets at the stamps give the same values back, whatever lies between. */
static void test_same_times_are_the_identity(void **state)
{
    enum { B = 3, S = 200, D = 12 };
    struct fixture *f = *state;
    int64_t *stamps = (int64_t *)f->memory;
    uint16_t *source = (uint16_t *)(stamps + B * S);
    uint64_t output_at = (uint64_t)B * S * (sizeof *stamps + D * sizeof *source),
             rows_bytes = (uint64_t)B * S * D * 2;
    struct dense_problem dense = {B,
                                  S,
                                  S,
                                  D,
                                  (int64_t *)f->on_device,
                                  (int64_t *)f->on_device,
                                  0,
                                  TRAJD_BF16,
                                  TRAJD_BF16,
                                  TRAJD_EDGE_NAN,
                                  f->on_device + B * S * sizeof *stamps,
                                  f->on_device + output_at,
                                  NULL};
    struct dense_request made;
    struct trajd_error error = {0};

    for (uint32_t i = 0; i < B * S; i++)
        stamps[i] = (int64_t)i * 20000001 + i * i % 977;
    for (uint32_t i = 0; i < B * S * D; i++)
        source[i] = (uint16_t)(i * 40503u); /* includes NaN */
    must(trajd_device_copy_async(f->on_device, f->memory, output_at, f->stream, &error), &error);
    must(trajd_device_fill_async(f->on_device + output_at, 0x11, rows_bytes, f->stream, &error),
         &error);
    dense_request_make(&dense, &made);
    must(trajd_cuda_run(&made.request, &f->facts, NULL, trajd_device_stream_handle(f->stream),
                        &error),
         &error);
    must(
        trajd_device_copy_async(f->result, f->on_device + output_at, rows_bytes, f->stream, &error),
        &error);
    must(trajd_device_stream_wait(f->stream, &error), &error);
    assert_memory_equal(f->result, source, rows_bytes);
}

/* The dense problem gives the same result as a request of windows. */
static void test_dense_equals_windows(void **state)
{
    static const uint32_t sizes[][3] = {{1, 1, 1},     {100, 256, 128}, {500, 250, 16},
                                        {300, 50, 14}, {400, 16, 7},    {1000, 33, 1000}};
    struct fixture *f = *state;
    uint32_t shaped_count = 0;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int shaped = 0; shaped < 7; shaped++) {
            struct arena_spec spec = {.seed = i + 11,
                                      .windows = 4,
                                      .rows = sizes[i][0],
                                      .steps = sizes[i][1],
                                      .features = sizes[i][2],
                                      .streams = 1,
                                      .brackets = 1,
                                      .kind = TRAJD_KIND_LINEAR,
                                      .source = TRAJD_BF16,
                                      .output = TRAJD_BF16,
                                      .stamps = ARENA_JITTER,
                                      .unit = TRAJD_GRID_NS};
            struct trajd_cuda_shape shape = {.tile_steps = (uint32_t)(shaped * 17 + 4),
                                             .thread_count = 128,
                                             .stage_rows = shaped % 2 ? 1024 : 0,
                                             .prefetch = (uint8_t)(shaped % 4),
                                             .style = (uint8_t)(shaped % 3),
                                             .vectors = (uint8_t)(1u << shaped % 3)};
            struct trajd_error error = {0};
            struct dense_problem dense;
            struct dense_request made;
            struct trajd_cuda_problem problem;
            struct arena_view view;
            struct arena arena;
            struct trajd_stream *stream = &arena.streams[0];
            int64_t *offsets;
            char what[256];

            arena_create(&arena, &spec, f->memory, ARENA_BYTES / 2, f->on_device);
            stream->first_column = 0;
            stream->row_stride_bytes = spec.features * 2;
            stream->bases = NULL;
            stream->scale = stream->offset = NULL;
            stream->derivative = NULL;
            stream->max_gap_ns = stream->max_age_ns = -1;
            stream->step_stride_bytes = spec.features * 2;
            stream->window_stride_bytes = (uint64_t)spec.steps * spec.features * 2;
            stream->mask = NULL;
            stream->mask_window_stride_bytes = spec.steps;
            offsets = (int64_t *)(f->memory + (arena.used_bytes + 15) / 8 * 8);
            arena.used_bytes += 32 + (uint64_t)spec.windows * spec.steps * 8;
            for (uint32_t k = 0; k < spec.windows * spec.steps; k++)
                offsets[k] =
                    (int64_t)(k % spec.steps + k / spec.steps) * 10000000 * spec.rows / spec.steps -
                    5000000;
            for (uint32_t w = 0; w < spec.windows; w++) {
                ((int64_t *)(uintptr_t)arena.brackets[0].row_count)[w] = spec.rows;
                ((int64_t *)(uintptr_t)arena.brackets[0].anchor)[w] = 0;
            }
            arena.grids[0].offsets = offsets;
            arena.grids[0].offsets_per_window = spec.steps;
            stream->mask = (uint8_t *)f->memory + arena.used_bytes;
            arena.used_bytes += (uint64_t)spec.windows * spec.steps;
            arena_view(&arena, f->on_device, &view);
            dense = (struct dense_problem){spec.windows,
                                           spec.rows,
                                           spec.steps,
                                           spec.features,
                                           view.clocks[0].stamps_ns,
                                           view.grids[0].offsets,
                                           stream->kind,
                                           TRAJD_BF16,
                                           TRAJD_BF16,
                                           stream->edge,
                                           view.streams[0].base,
                                           view.streams[0].output,
                                           view.streams[0].mask};
            upload(f, &arena);
            dense_request_make(&dense, &made);
            trajd_cuda_pack(&made.request, 0, &problem);
            shaped_count += shaped && trajd_cuda_shape_fits(&problem, &shape);
            must(trajd_cuda_run(&made.request, &f->facts,
                                shaped && trajd_cuda_shape_fits(&problem, &shape) ? &shape : NULL,
                                trajd_device_stream_handle(f->stream), &error),
                 &error);
            download(f, &arena);
            trajd_resample_reference(&arena.request, 0, spec.windows);
            if (!arena_matches(&arena, f->result, what, sizeof what))
                fail_msg("dense %u %u %u: %s", spec.rows, spec.steps, spec.features, what);
        }
    assert_in_range(shaped_count, 30, 36);
}

/* Rows, windows and steps are more than 2^31 elements and 2^32 bytes apart. */
static void test_beyond_32_bits(void **state)
{
    enum { ROWS = 2, STEPS = 2, B = 2 };
    const uint64_t apart = UINT64_C(2400000000); /* in elements */
    struct fixture *f = *state;
    int64_t small[] = {
        0, 1000, /* stamps */ 500, 1000, /* offsets */ 0, 0, /* row_begin */ 2, 2, /* counts */ 0,
        0 /* anchors */};
    struct trajd_clock clock;
    struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = STEPS, .offsets = NULL};
    struct trajd_bracket bracket = {0};
    struct trajd_stream stream = {.kind = TRAJD_KIND_LINEAR,
                                  .source_type = TRAJD_BF16,
                                  .output_type = TRAJD_BF16,
                                  .feature_count = 1,
                                  .row_stride_bytes = apart * 2,
                                  .max_gap_ns = -1,
                                  .max_age_ns = -1,
                                  .step_stride_bytes = 2,
                                  .window_stride_bytes = apart * 2};
    struct trajd_resample_request request = {.window_count = B,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .bracket_count = 1,
                                             .stream_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = &bracket,
                                             .streams = &stream};
    const uint16_t rows[] = {0x3f80, 0x4040}; /* 1, 3 */
    uint16_t got[4] = {0};
    struct trajd_error error = {0};
    void *source, *output;
    int64_t *d = (int64_t *)f->on_device;

    if (trajd_device_info(f->device)->memory_size_bytes < 8 * apart)
        skip();
    must(trajd_device_alloc(f->device, apart * 2 + 64, &source, &error), &error);
    must(trajd_device_alloc(f->device, apart * 2 + 64, &output, &error), &error);
    clock = (struct trajd_clock){.stamps_ns = d};
    grid.offsets = d + 2;
    bracket.row_begin = d + 4;
    bracket.row_count = d + 6;
    bracket.anchor = d + 8;
    stream.base = source;
    stream.output = output;
    must(trajd_device_copy_async(d, small, sizeof small, f->stream, &error), &error);
    for (uint64_t i = 0; i < 2; i++)
        must(
            trajd_device_copy_async((uint16_t *)source + i * apart, &rows[i], 2, f->stream, &error),
            &error);
    must(trajd_cuda_run(&request, &f->facts, NULL, trajd_device_stream_handle(f->stream), &error),
         &error);
    for (uint64_t w = 0; w < B; w++)
        must(trajd_device_copy_async(got + 2 * w, (uint16_t *)output + w * apart, 4, f->stream,
                                     &error),
             &error);
    must(trajd_device_stream_wait(f->stream, &error), &error);
    for (int i = 0; i < 4; i++)
        assert_int_equal(got[i], i % 2 ? 0x4040 : 0x4000);
    trajd_device_free(f->device, source);
    trajd_device_free(f->device, output);
}

/* Runs plans on streams, as the daemon does: the chosen style, and every style by name. */
static void test_plans_run_on_streams(void **state)
{
    static const char *const names[] = {"auto",       "cuda",        "cuda_steps",
                                        "cuda_walk",  "cuda_direct", "cuda_narrow",
                                        "cuda_batch", "cuda_tile",   "cuda_side"};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct arena_spec spec = any;
            struct trajd_error error = {0};
            struct trajd_plan *plan;
            struct arena_view view;
            struct arena arena;
            char what[256];

            spec.seed = seed * 50021;
            spec.streams = seed % 2 ? 1 : 0;
            arena_create(&arena, &spec, f->memory, ARENA_BYTES, f->on_device);
            arena_view(&arena, f->on_device, &view);
            upload(f, &arena);
            must(trajd_plan_create(&view.request, &f->facts, names[i], &plan, &error), &error);
            assert_int_equal(trajd_plan_is_cuda(plan), 1);
            assert_int_equal(trajd_plan_run(plan, &view.request, NULL, &error), TRAJD_ERR_ARGUMENT);
            must(trajd_plan_run_async(plan, &view.request, f->stream, &error), &error);
            download(f, &arena);
            trajd_resample_reference(&arena.request, 0, arena.spec.windows);
            if (!arena_matches(&arena, f->result, what, sizeof what))
                fail_msg("%s: %s", trajd_plan_describe(plan), what);
            trajd_plan_destroy(&plan);
        }
}

static void test_wrong_requests_are_refused(void **state)
{
    struct fixture *f = *state;
    struct arena_spec spec = {.seed = 3,
                              .windows = 2,
                              .rows = 8,
                              .steps = 8,
                              .features = 4,
                              .streams = 1,
                              .brackets = 1,
                              .kind = TRAJD_KIND_LINEAR,
                              .source = TRAJD_F32,
                              .output = TRAJD_F32,
                              .stamps = 0,
                              .unit = 0};
    struct trajd_cuda_shape none = {0};
    void *stream = trajd_device_stream_handle(f->stream);
    const struct dense_problem dense = {
        .window_count = 1, .row_count = 1, .step_count = 1, .feature_count = 1};
    struct dense_request made;
    struct trajd_error error = {0};
    struct arena_view view;
    struct arena arena;

    arena_create(&arena, &spec, f->memory, ARENA_BYTES, f->on_device);
    arena_view(&arena, f->on_device, &view);
    assert_int_equal(trajd_cuda_run(NULL, &f->facts, NULL, stream, &error), TRAJD_ERR_ARGUMENT);
    assert_int_equal(trajd_cuda_run(&view.request, &f->facts, &none, stream, &error),
                     TRAJD_ERR_ARGUMENT);
    view.streams[0].output = NULL;
    assert_int_equal(trajd_cuda_run(&view.request, &f->facts, NULL, stream, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "streams[0]"));
    view.streams[0].output = f->on_device;
    view.streams[0].output_type = TRAJD_I32;
    assert_int_equal(trajd_cuda_run(&view.request, &f->facts, NULL, stream, &error),
                     TRAJD_ERR_UNSUPPORTED);
    dense_request_make(&dense, &made);
    assert_int_equal(trajd_cuda_run(&made.request, &f->facts, NULL, stream, &error),
                     TRAJD_ERR_ARGUMENT);
    must(trajd_device_stream_wait(f->stream, &error), &error);
}

static int open_fixture(void **state)
{
    struct fixture *f = *state;
    struct trajd_error error = {0};

    must(trajd_device_open(0, &f->device, &error), &error);
    must(trajd_device_stream_create(f->device, &f->stream, &error), &error);
    must(trajd_device_alloc(f->device, ARENA_BYTES, (void **)&f->on_device, &error), &error);
    f->memory = malloc(ARENA_BYTES);
    f->result = malloc(ARENA_BYTES);
    trajd_device_facts(f->device, &f->facts);
    f->facts.cpu_threads = 1;
    return f->memory && f->result ? 0 : -1;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;

    free(f->memory);
    free(f->result);
    trajd_device_free(f->device, f->on_device);
    trajd_device_stream_destroy(&f->stream);
    trajd_device_close(&f->device);
    return 0;
}

int main(int argc, char **argv)
{
    struct fixture fixture = {.problem_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_every_kind_and_pair_of_types, &fixture),
        cmocka_unit_test_prestate(test_random_requests, &fixture),
        cmocka_unit_test_prestate(test_huge_numbers, &fixture),
        cmocka_unit_test_prestate(test_totals, &fixture),
        cmocka_unit_test_prestate(test_sizes_around_vectors_and_tiles, &fixture),
        cmocka_unit_test_prestate(test_stamps_that_are_not_ascending, &fixture),
        cmocka_unit_test_prestate(test_many_streams, &fixture),
        cmocka_unit_test_prestate(test_every_shape, &fixture),
        cmocka_unit_test_prestate(test_more_windows_than_a_grid_is_high, &fixture),
        cmocka_unit_test_prestate(test_repeats_bit_for_bit, &fixture),
        cmocka_unit_test_prestate(test_same_times_are_the_identity, &fixture),
        cmocka_unit_test_prestate(test_dense_equals_windows, &fixture),
        cmocka_unit_test_prestate(test_beyond_32_bits, &fixture),
        cmocka_unit_test_prestate(test_plans_run_on_streams, &fixture),
        cmocka_unit_test_prestate(test_wrong_requests_are_refused, &fixture),
    };
    void *state = &fixture;
    int failed;

    if (trajd_device_count() == 0) {
        fprintf(stderr, "skipped: no GPU here, or built without CUDA\n");
        return SKIPPED;
    }
    if (open_fixture(&state) != 0)
        return 1;
    failed = cmocka_run_group_tests_name("gpu/resample", tests, NULL, NULL);
    close_fixture(&state);
    return failed;
}
