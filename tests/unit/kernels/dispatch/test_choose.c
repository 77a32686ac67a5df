/* Tests the choice of variants: counted work, costs, threads and slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/dispatch/choose.h"

static const struct trajd_device_facts four_threads = {.cpu_threads = 4};

static struct trajd_problem problem_of(uint32_t windows, uint32_t steps, uint32_t features,
                                       enum trajd_kind kind)
{
    struct trajd_clock clock = {0};
    struct trajd_grid grid = {.unit = TRAJD_GRID_ROWS, .step_count = steps, .offsets = NULL};
    struct trajd_bracket bracket = {0};
    struct trajd_stream stream = {.kind = kind,
                                  .source_type = TRAJD_F32,
                                  .output_type = TRAJD_F32,
                                  .feature_count = features};
    struct trajd_resample_request shape = {.window_count = windows,
                                           .clock_count = 1,
                                           .grid_count = 1,
                                           .bracket_count = 1,
                                           .stream_count = 1,
                                           .clocks = &clock,
                                           .grids = &grid,
                                           .brackets = &bracket,
                                           .streams = &stream};
    struct trajd_problem problem;

    trajd_problem_of(&shape, &problem);
    return problem;
}

static void test_problem_is_counted(void **state)
{
    struct trajd_problem problem = problem_of(256, 17, 7, TRAJD_KIND_PREVIOUS);

    (void)state;
    assert_int_equal(problem.window_count, 256);
    assert_int_equal(problem.stream_count, 1);
    assert_int_equal(problem.copied_count, 1);
    problem = problem_of(UINT32_MAX, UINT32_MAX, 1, TRAJD_KIND_LINEAR);
    assert_true(problem.cpu_ns > 1e19);
}

static double cost_of(const struct trajd_stream *stream, enum trajd_grid_unit unit)
{
    const struct trajd_grid grid = {.unit = unit, .step_count = 10, .offsets = NULL};
    const struct trajd_bracket bracket = {0};
    const struct trajd_clock clock = {0};
    const struct trajd_resample_request shape = {.window_count = 100,
                                                 .clock_count = 1,
                                                 .grid_count = 1,
                                                 .bracket_count = 1,
                                                 .stream_count = 1,
                                                 .clocks = &clock,
                                                 .grids = &grid,
                                                 .brackets = &bracket,
                                                 .streams = stream};
    struct trajd_problem problem;

    trajd_problem_of(&shape, &problem);
    return problem.cpu_ns;
}

/* The order of the costs decides between backends. Each stream costs more than the one before. */
static void test_costs_are_ordered(void **state)
{
    static const float scale[8];
    struct trajd_stream stream = {.kind = TRAJD_KIND_PREVIOUS,
                                  .source_type = TRAJD_U8,
                                  .output_type = TRAJD_U8,
                                  .feature_count = 8};
    double copied, before;

    (void)state;
    copied = before = cost_of(&stream, TRAJD_GRID_NS);
    stream.kind = TRAJD_KIND_NEAREST;
    assert_true(cost_of(&stream, TRAJD_GRID_NS) == copied);
    stream.source_type = stream.output_type = TRAJD_F64; /* more bytes to copy */
    assert_true(cost_of(&stream, TRAJD_GRID_NS) > before);
    before = cost_of(&stream, TRAJD_GRID_NS);
    stream.scale = scale;
    assert_true(cost_of(&stream, TRAJD_GRID_NS) > before);
    before = cost_of(&stream, TRAJD_GRID_NS);
    stream.scale = NULL;
    stream.output_type = TRAJD_F32;
    assert_true(cost_of(&stream, TRAJD_GRID_NS) == before); /* each number is converted */
    stream.kind = TRAJD_KIND_LINEAR;
    assert_true(cost_of(&stream, TRAJD_GRID_NS) == before);
    assert_true(cost_of(&stream, TRAJD_GRID_ROWS) < before); /* rows need not be found */
    stream.kind = TRAJD_KIND_MEAN;
    assert_true(cost_of(&stream, TRAJD_GRID_NS) > before);
    stream.kind = TRAJD_KIND_ANGLE;
    assert_true(cost_of(&stream, TRAJD_GRID_NS) > before);
    stream.kind = TRAJD_KIND_SLERP_WXYZ;
    before = cost_of(&stream, TRAJD_GRID_NS);
    stream.feature_count = 4;
    copied = cost_of(&stream, TRAJD_GRID_NS);
    assert_true(copied < before && copied > before / 2);
    stream.feature_count = 12; /* each quaternion costs the same */
    assert_true(fabs(cost_of(&stream, TRAJD_GRID_NS) - before - (before - copied)) < 1e-6 * before);
    stream.derivative = (float[1]){0};
    assert_true(cost_of(&stream, TRAJD_GRID_ROWS) > before);
}

static void test_little_work_stays_on_one_thread(void **state)
{
    struct trajd_problem little = problem_of(4, 2, 7, TRAJD_KIND_LINEAR),
                         much = problem_of(256, 500, 32, TRAJD_KIND_LINEAR);
    struct trajd_choice choice;

    (void)state;
    assert_int_equal(trajd_choose(&little, &four_threads, NULL, &choice, NULL), TRAJD_OK);
    assert_string_equal(choice.variant, "cpu_rows");
    assert_int_equal(choice.thread_count, 1);
    assert_int_equal(choice.slice_windows, 4);
    assert_int_equal(trajd_choose(&much, &four_threads, "auto", &choice, NULL), TRAJD_OK);
    assert_string_equal(choice.variant, "cpu_rows");
    assert_int_equal(choice.thread_count, 4);
    assert_int_equal(choice.slice_windows, 16);
    assert_non_null(strstr(choice.reason, "us of work"));
}

static void test_slices_cover_the_windows(void **state)
{
    struct trajd_choice choice;

    (void)state;
    for (uint32_t windows = 1; windows < 3000; windows += 7)
        for (uint32_t threads = 1; threads < 40; threads += 13) {
            struct trajd_device_facts facts = {.cpu_threads = threads};
            struct trajd_problem problem = problem_of(windows, 50, 40, TRAJD_KIND_MEAN);
            assert_int_equal(trajd_choose(&problem, &facts, NULL, &choice, NULL), TRAJD_OK);
            assert_true(choice.slice_windows >= 1 && choice.slice_windows <= windows);
            assert_true(choice.thread_count >= 1 && choice.thread_count <= threads);
        }
}

/* Without windows there is still one thread, and a slice of one window. */
static void test_no_windows(void **state)
{
    struct trajd_problem problem = problem_of(0, 50, 40, TRAJD_KIND_MEAN);
    struct trajd_choice choice;

    (void)state;
    assert_int_equal(trajd_choose(&problem, &four_threads, NULL, &choice, NULL), TRAJD_OK);
    assert_int_equal(choice.thread_count, 1);
    assert_int_equal(choice.slice_windows, 1);
}

static void test_names(void **state)
{
    struct trajd_problem problem = problem_of(256, 2, 7, TRAJD_KIND_LINEAR);
    struct trajd_choice choice;
    struct trajd_error error;

    (void)state;
    assert_int_equal(trajd_choose(&problem, &four_threads, "reference", &choice, &error), TRAJD_OK);
    assert_string_equal(choice.variant, "reference");
    assert_int_equal(trajd_choose(&problem, &four_threads, "cuda", &choice, &error),
                     TRAJD_ERR_ARGUMENT);
    assert_string_equal(
        error.message,
        "variant cuda does not exist or cannot serve this request (use auto, cpu_rows, reference)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem_is_counted),
        cmocka_unit_test(test_costs_are_ordered),
        cmocka_unit_test(test_little_work_stays_on_one_thread),
        cmocka_unit_test(test_slices_cover_the_windows),
        cmocka_unit_test(test_no_windows),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
