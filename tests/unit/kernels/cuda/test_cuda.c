/* The decisions of the host side of CUDA, tested without a GPU: which streams share a launch, which
 * path each takes, and how launches are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/dispatch/choose.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "support/dense_request.h"

enum { STREAMS = 40, BRACKETS = 20 };

static const struct trajd_device_facts h200 = {
    .cpu_threads = 2, .sm_count = 132, .compute_capability = 90, .l2_size_bytes = 60 << 20};

static char memory[64] __attribute__((aligned(64)));
static const int64_t numbers[1];

struct fixture {
    struct trajd_clock clock;
    struct trajd_grid grids[BRACKETS];
    struct trajd_bracket brackets[BRACKETS];
    struct trajd_stream streams[STREAMS];
    struct trajd_resample_request request;
};

/* Makes linear bf16 streams with D = 8, which take the brackets in turn. */
static void fill(struct fixture *f, uint32_t streams, uint32_t brackets, uint32_t steps)
{
    *f = (struct fixture){.clock = {.stamps_ns = numbers}};
    for (uint32_t b = 0; b < brackets; b++) {
        f->grids[b] =
            (struct trajd_grid){.unit = TRAJD_GRID_NS, .step_count = steps, .offsets = numbers};
        f->brackets[b] = (struct trajd_bracket){.clock_index = 0,
                                                .grid_index = b,
                                                .row_begin = numbers,
                                                .row_count = numbers,
                                                .anchor = numbers};
    }
    for (uint32_t s = 0; s < streams; s++)
        f->streams[s] = (struct trajd_stream){.bracket_index = s % brackets,
                                              .kind = TRAJD_KIND_LINEAR,
                                              .source_type = TRAJD_BF16,
                                              .output_type = TRAJD_BF16,
                                              .feature_count = 8,
                                              .row_stride_bytes = 16,
                                              .base = memory,
                                              .output = memory,
                                              .step_stride_bytes = 16,
                                              .window_stride_bytes = 16ull * steps,
                                              .max_gap_ns = -1,
                                              .max_age_ns = -1};
    f->request = (struct trajd_resample_request){.window_count = 64,
                                                 .clock_count = 1,
                                                 .grid_count = brackets,
                                                 .bracket_count = brackets,
                                                 .stream_count = streams,
                                                 .clocks = &f->clock,
                                                 .grids = f->grids,
                                                 .brackets = f->brackets,
                                                 .streams = f->streams};
}

static struct trajd_cuda_problem pack(const struct fixture *f)
{
    struct trajd_cuda_problem problem;

    trajd_cuda_pack(&f->request, 0, &problem);
    return problem;
}

static void test_streams_are_divided_among_launches(void **state)
{
    struct trajd_cuda_problem problem;
    struct fixture f;
    uint32_t streams = 0, launches = 0;

    (void)state;
    fill(&f, STREAMS, BRACKETS, 16);
    for (uint32_t s = 0; s < STREAMS; launches++) {
        s = trajd_cuda_pack(&f.request, s, &problem);
        streams += problem.stream_count;
        assert_in_range(problem.stream_count, 1, TRAJD_CUDA_STREAMS_MAX);
        assert_in_range(problem.bracket_count, 1, TRAJD_CUDA_BRACKETS_MAX);
    }
    assert_int_equal(streams, STREAMS);
    assert_int_equal(launches, trajd_cuda_launch_count(&f.request));
    fill(&f, 5, 3, 16);
    assert_int_equal(trajd_cuda_launch_count(&f.request), 1);
}

static void test_masks_are_joined_over_launches(void **state)
{
    struct trajd_cuda_problem problem;
    struct fixture f;
    uint32_t next;

    (void)state;
    fill(&f, STREAMS, 1, 16);
    for (uint32_t s = 0; s < STREAMS; s++) {
        f.streams[s].mask = (uint8_t *)memory;
        f.streams[s].mask_joins_previous = s > 0;
    }
    next = trajd_cuda_pack(&f.request, 0, &problem);
    assert_int_equal(problem.mask_count, 1);
    assert_int_equal(problem.streams[0].mask_continues, 0);
    trajd_cuda_pack(&f.request, next, &problem);
    assert_int_equal(problem.mask_count, 1);
    assert_int_equal(problem.streams[0].mask_continues, 1);
}

static void test_totals_have_launches_of_their_own(void **state)
{
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape cut;
    struct fixture f;
    char why[128];

    (void)state;
    fill(&f, 5, 1, 16);
    for (uint32_t s = 0; s < 5; s++) {
        f.streams[s].kind = TRAJD_KIND_PREVIOUS;
        f.streams[s].mask = (uint8_t *)memory;
        f.streams[s].mask_joins_previous = s > 0;
    }
    f.streams[1].total = f.streams[2].total = TRAJD_TOTAL_STEP;
    f.streams[1].total_width = 7;
    assert_int_equal(trajd_cuda_launch_count(&f.request), 3);
    assert_int_equal(trajd_cuda_pack(&f.request, 0, &problem), 1);
    assert_int_equal(problem.totals, 0);
    assert_int_equal(trajd_cuda_pack(&f.request, 1, &problem), 3);
    assert_int_equal(problem.totals, 1);
    assert_int_equal(problem.lean, 0);
    assert_int_equal(problem.streams[0].mask_continues, 1);
    assert_int_equal(problem.streams[0].total_width, 7);
    assert_true(problem.streams[0].total_gamma == 1);
    assert_int_equal(trajd_cuda_pack(&f.request, 3, &problem), 5);
    assert_int_equal(problem.totals, 0);
    trajd_cuda_describe(&f.request, &h200, TRAJD_CUDA_ANY_STYLE, &cut, why, sizeof why);
    assert_string_equal(why, "by rule");
    f.request.stream_count = 1;
    f.streams[0].total = TRAJD_TOTAL_REST;
    f.streams[0].total_gamma = 0.5;
    trajd_cuda_describe(&f.request, &h200, TRAJD_CUDA_ANY_STYLE, &cut, why, sizeof why);
    assert_string_equal(why, "sums of rows");
    assert_true(pack(&f).streams[0].total_gamma == 0.5);
}

static void test_paths(void **state)
{
    struct fixture f;

    (void)state;
    fill(&f, 1, 1, 16);
    assert_int_equal(pack(&f).streams[0].path, TRAJD_CUDA_BF16);
    assert_int_equal(pack(&f).lean, 1);
    f.streams[0].kind = TRAJD_KIND_MEAN;
    assert_int_equal(pack(&f).streams[0].path, TRAJD_CUDA_FULL);
    assert_int_equal(pack(&f).lean, 0);
    f.streams[0].kind = TRAJD_KIND_PREVIOUS;
    f.streams[0].source_type = f.streams[0].output_type = TRAJD_U8;
    assert_int_equal(pack(&f).streams[0].path, TRAJD_CUDA_COPY);
    f.streams[0].output_type = TRAJD_F32;
    assert_int_equal(pack(&f).streams[0].path, TRAJD_CUDA_FULL);
    f.streams[0].source_type = TRAJD_F32;
    f.streams[0].output_type = TRAJD_BF16;
    assert_int_equal(pack(&f).streams[0].path, TRAJD_CUDA_F32_BF16);
    f.streams[0].row_stride_bytes = UINT64_C(1) << 33;
    assert_int_equal(pack(&f).streams[0].path, TRAJD_CUDA_FULL);
}

/* A vector divides D and all distances of rows and steps, in source and output. */
static void test_vectors(void **state)
{
    struct fixture f;

    (void)state;
    fill(&f, 1, 1, 16);
    assert_int_equal(pack(&f).streams[0].vector_width, 8);
    f.streams[0].output = memory + 2;
    assert_int_equal(pack(&f).streams[0].vector_width, 1);
    f.streams[0].output = memory + 8;
    assert_int_equal(pack(&f).streams[0].vector_width, 4);
    f.streams[0].output = memory;
    f.streams[0].base = memory + 4;
    assert_int_equal(pack(&f).streams[0].vector_width, 2);
    f.streams[0].base = memory;
    f.streams[0].feature_count = 7;
    assert_int_equal(pack(&f).streams[0].vector_width, 1);
    assert_int_equal(pack(&f).streams[0].vector_count, 7);
    f.streams[0].feature_count = 6;
    f.streams[0].row_stride_bytes = f.streams[0].step_stride_bytes = 12;
    f.streams[0].window_stride_bytes = 12 * 16;
    assert_int_equal(pack(&f).streams[0].vector_width, 2);
    assert_int_equal(pack(&f).streams[0].vector_count, 3);
}

/* For every problem the shape fits, and every warp that is assigned exists. */
static void test_every_shape_fits(void **state)
{
    static const uint32_t sizes[] = {1, 2, 7, 33, 128, 1000, 100000};
    struct fixture f;

    (void)state;
    for (size_t t = 0; t < 7; t++)
        for (size_t d = 0; d < 7; d++)
            for (uint32_t streams = 1; streams <= STREAMS; streams += 13)
                for (int style = TRAJD_CUDA_ANY_STYLE; style < TRAJD_CUDA_STYLE_COUNT; style++) {
                    struct trajd_cuda_problem problem;
                    uint32_t warps;
                    fill(&f, streams, streams % BRACKETS + 1, sizes[t]);
                    for (uint32_t s = 0; s < streams; s++)
                        f.streams[s].feature_count = sizes[d];
                    problem = pack(&f);
                    problem.shape =
                        trajd_cuda_styled_shape_of(&problem, &h200, sizes[(t + d) % 7], style);
                    assert_true(trajd_cuda_shape_fits(&problem, &problem.shape));
                    trajd_cuda_share_warps(&problem);
                    warps = problem.shape.thread_count / 32;
                    for (uint32_t s = 0; s < problem.stream_count; s++)
                        assert_in_range(problem.streams[s].first_warp % warps +
                                            problem.streams[s].warp_count,
                                        1, warps);
                }
}

/* Nothing is launched, so no shape fits. */
static void test_a_request_without_streams(void **state)
{
    struct trajd_cuda_problem problem;
    struct fixture f;

    (void)state;
    fill(&f, 1, 1, 100);
    f.request.stream_count = 0;
    problem = pack(&f);
    for (int style = TRAJD_CUDA_ANY_STYLE; style < TRAJD_CUDA_STYLE_COUNT; style++) {
        problem.shape = trajd_cuda_styled_shape_of(&problem, &h200, 0, style);
        assert_false(trajd_cuda_shape_fits(&problem, &problem.shape));
    }
}

static void test_shapes_that_do_not_fit(void **state)
{
    const struct trajd_cuda_shape good = {.tile_steps = 16,
                                          .thread_count = 128,
                                          .stage_rows = 512,
                                          .style = TRAJD_CUDA_STEPS,
                                          .vectors = 1};
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape bad;
    struct fixture f;

    (void)state;
    fill(&f, 1, 1, 100);
    problem = pack(&f);
    assert_true(trajd_cuda_shape_fits(&problem, &good));
    bad = good, bad.tile_steps = 0;
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
    bad = good, bad.thread_count = 100;
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
    bad = good, bad.thread_count = 2 * TRAJD_CUDA_THREADS_MAX;
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
    bad = good, bad.tile_steps = 4000;
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
    bad = good, bad.style = TRAJD_CUDA_STYLE_COUNT;
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
    bad = good, bad.style = TRAJD_CUDA_DIRECT, bad.vectors = 3;
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
    bad = good, bad.style = TRAJD_CUDA_NARROW;
    assert_true(trajd_cuda_shape_fits(&problem, &bad));
    f.streams[0].step_stride_bytes = 18; /* steps that do not follow each other in memory */
    problem = pack(&f);
    assert_false(trajd_cuda_shape_fits(&problem, &bad));
}

/* Several streams of one pair of types that are too many tasks for warps: a block serves one of them.
 * With an angle among them tiles serve all, small ones, so that all multiprocessors have work. */
static void test_few_targets_of_wide_streams(void **state)
{
    static const uint32_t features[] = {512, 32, 16};
    struct trajd_cuda_problem problem;
    struct fixture f;

    (void)state;
    fill(&f, 3, 3, 50);
    for (uint32_t s = 0; s < 3; s++) {
        f.streams[s].feature_count = features[s];
        f.streams[s].row_stride_bytes = f.streams[s].step_stride_bytes = 2 * features[s];
        f.streams[s].window_stride_bytes = 100ull * features[s];
    }
    f.request.window_count = 32;
    problem = pack(&f);
    problem.shape = trajd_cuda_shape_of(&problem, &h200, 0);
    assert_int_equal(problem.shape.style, TRAJD_CUDA_SIDE);
    f.streams[2].kind = TRAJD_KIND_ANGLE;
    f.streams[2].angle_period = 1;
    problem = pack(&f);
    problem.shape = trajd_cuda_shape_of(&problem, &h200, 0);
    assert_int_equal(problem.shape.style, TRAJD_CUDA_TILE);
    assert_int_equal(problem.shape.tile_steps, 4);
    fill(&f, 3, 3, 50); /* 8 features each */
    problem = pack(&f);
    problem.shape = trajd_cuda_shape_of(&problem, &h200, 0);
    assert_true(problem.shape.tile_steps > 4);
}

/* A task fills a warp with steps, and streams that share a mask are in one task. */
static void test_groups(void **state)
{
    struct trajd_cuda_problem problem;
    struct fixture f;

    (void)state;
    fill(&f, 3, 1, 16);
    problem = pack(&f);
    assert_int_equal(problem.group_count, 3);
    assert_int_equal(problem.groups[0].steps_per_task, 4); /* of 8 units each */
    assert_int_equal(problem.groups[2].first_task, 8);
    assert_int_equal(problem.task_count, 12);
    for (uint32_t s = 0; s < 3; s++) {
        f.streams[s].mask = (uint8_t *)memory;
        f.streams[s].mask_joins_previous = s == 2;
    }
    problem = pack(&f);
    assert_int_equal(problem.group_count, 2);
    assert_int_equal(problem.groups[1].first_stream, 1);
    assert_int_equal(problem.groups[1].unit_count, 16);
    assert_int_equal(problem.task_count, 4 + 8);
    f.streams[0].kind = TRAJD_KIND_SLERP_XYZW;
    assert_int_equal(pack(&f).groups[0].unit_count, 2);
    for (uint32_t units = 1; units <= 40; units++) {
        f.streams[0].kind = TRAJD_KIND_LINEAR;
        f.streams[0].feature_count = units;
        problem = pack(&f);
        for (uint32_t lane = 0; lane < 32; lane++)
            assert_int_equal(lane * problem.groups[0].unit_reciprocal >> 16, lane / units);
    }
}

/* Streams that write megabytes get launches of their own, in order, and continue masks of earlier
 * launches. */
static void test_large_streams_stand_alone(void **state)
{
    struct trajd_cuda_problem problem;
    struct fixture f;

    (void)state;
    fill(&f, 3, 1, 1000);
    f.streams[1].feature_count = 128;
    f.streams[1].row_stride_bytes = f.streams[1].step_stride_bytes = 256;
    f.streams[1].window_stride_bytes = 256000;
    for (uint32_t s = 0; s < 3; s++) {
        f.streams[s].mask = (uint8_t *)memory;
        f.streams[s].mask_joins_previous = s > 0;
    }
    assert_int_equal(trajd_cuda_launch_count(&f.request), 3);
    assert_int_equal(trajd_cuda_pack(&f.request, 0, &problem), 1);
    assert_int_equal(trajd_cuda_pack(&f.request, 1, &problem), 2);
    assert_int_equal(problem.lean, 1);
    assert_int_equal(problem.streams[0].mask_continues, 1);
    assert_int_equal(trajd_cuda_pack(&f.request, 2, &problem), 3);
}

/* Many targets of narrow streams: a launch each costs less than one launch of the general kernels. */
static void test_many_targets_stand_alone(void **state)
{
    struct fixture f;

    (void)state;
    fill(&f, 2, 1, 50);
    f.request.window_count = 256;
    assert_int_equal(trajd_cuda_launch_count(&f.request), 1);
    f.request.window_count = 65535;
    assert_int_equal(trajd_cuda_launch_count(&f.request), 2);
}

static void test_the_gpu_is_chosen_if_present(void **state)
{
    const struct trajd_device_facts old = {
        .cpu_threads = 2, .sm_count = 80, .compute_capability = 70};
    const struct trajd_device_facts none = {.cpu_threads = 2};
    struct trajd_problem problem;
    struct trajd_choice choice;
    struct trajd_error error;
    struct fixture f;

    (void)state;
    fill(&f, 5, 3, 16);
    trajd_problem_of(&f.request, &problem);
    assert_int_equal(trajd_choose(&problem, &h200, NULL, &choice, &error), TRAJD_OK);
    assert_string_equal(choice.variant, "cuda");
    assert_int_equal(trajd_choose(&problem, &h200, "cuda_walk", &choice, &error), TRAJD_OK);
    assert_string_equal(choice.variant, "cuda_walk");
    assert_int_equal(trajd_choose(&problem, &h200, "cpu_rows", &choice, &error), TRAJD_OK);
    assert_int_equal(trajd_choose(&problem, &old, NULL, &choice, &error), TRAJD_OK);
    assert_string_equal(choice.variant, "cpu_rows");
    assert_int_equal(trajd_choose(&problem, &none, "cuda", &choice, &error), TRAJD_ERR_ARGUMENT);
    assert_null(strstr(error.message, "cuda_"));
}

static void test_plan_describes_the_launch(void **state)
{
    struct trajd_error error;
    struct trajd_plan *plan;
    struct fixture f;

    (void)state;
    fill(&f, 5, 3, 16);
    assert_int_equal(trajd_plan_create(&f.request, &h200, "auto", &plan, &error), TRAJD_OK);
    assert_int_equal(trajd_plan_is_cuda(plan), 1);
    assert_non_null(strstr(trajd_plan_describe(plan), "side of 16 steps, 128 threads, by rule"));
    assert_int_equal(trajd_plan_run(plan, &f.request, NULL, &error), TRAJD_ERR_ARGUMENT);
    trajd_plan_destroy(&plan);
}

static void test_dense_problems_are_checked(void **state)
{
    struct dense_problem dense = {2,
                                  8,
                                  4,
                                  3,
                                  numbers,
                                  numbers,
                                  TRAJD_KIND_LINEAR,
                                  TRAJD_F32,
                                  TRAJD_F32,
                                  TRAJD_EDGE_HOLD,
                                  memory,
                                  memory,
                                  NULL};
    struct trajd_cuda_problem problem;
    struct dense_request made;
    struct trajd_error error;

    (void)state;
    dense_request_make(&dense, &made);
    assert_int_equal(trajd_resample_check(&made.request, &error), TRAJD_OK);
    trajd_cuda_pack(&made.request, 0, &problem);
    assert_null(problem.brackets[0].row_begin);
    assert_int_equal(problem.brackets[0].dense_rows, 8);
    assert_null(problem.brackets[0].row_begin);
    /* the rows of a dense bracket are known, so their stamps are staged */
    assert_int_equal(trajd_cuda_shape_of(&problem, &h200, 0).stage_rows, 8);
    dense.source = NULL;
    dense_request_make(&dense, &made);
    assert_int_equal(trajd_resample_check(&made.request, &error), TRAJD_ERR_ARGUMENT);
    dense.source = memory;
    dense.row_count = 0;
    dense_request_make(&dense, &made);
    assert_int_equal(trajd_resample_check(&made.request, &error), TRAJD_ERR_ARGUMENT);
    dense.row_count = 8;
    dense.kind = TRAJD_KIND_MEAN;
    dense_request_make(&dense, &made);
    assert_int_not_equal(trajd_resample_check(&made.request, &error), TRAJD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_are_divided_among_launches),
        cmocka_unit_test(test_masks_are_joined_over_launches),
        cmocka_unit_test(test_totals_have_launches_of_their_own),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_shape_fits),
        cmocka_unit_test(test_a_request_without_streams),
        cmocka_unit_test(test_shapes_that_do_not_fit),
        cmocka_unit_test(test_few_targets_of_wide_streams),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_large_streams_stand_alone),
        cmocka_unit_test(test_many_targets_stand_alone),
        cmocka_unit_test(test_the_gpu_is_chosen_if_present),
        cmocka_unit_test(test_plan_describes_the_launch),
        cmocka_unit_test(test_dense_problems_are_checked),
    };

    return cmocka_run_group_tests_name("kernels/cuda", tests, NULL, NULL);
}
