/* The code of a thread of the GPU's transforms, on the host: random chains have the bits of
 * trajd_transform_windows. Also how jobs are packed into launches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "support/random_chain.h"
#include "kernels/transform/cuda/transform_step.h"

static void run_steps(const struct trajd_transform_gpu_job *jobs, uint32_t count,
                      uint32_t window_count)
{
    struct trajd_step_launch launch;

    for (uint32_t done = 0; done < count;) {
        done = trajd_step_pack(jobs, done, count, window_count, &launch);
        for (uint32_t o = 0; o < launch.output_count; o++)
            for (uint32_t w = 0; w < window_count; w++)
                for (uint32_t t = launch.outputs[o].step_count; t-- > 0;) /* any order will do */
                    trajd_step_run(&launch, o, w, t);
    }
}

static void test_random_chains_have_the_cpus_bits(void **unused)
{
    char text[256];
    (void)unused;

    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct random_chain *chain = random_chain_create(seed);
        struct trajd_transform_gpu_job job = random_chain_gpu_job(chain, NULL);
        run_steps(&job, 1, chain->window_count);
        if (!random_chain_matches(chain, chain->found, text, sizeof text))
            fail_msg("seed %llu: %s", (unsigned long long)seed, text);
        random_chain_destroy(&chain);
    }
}

static void test_outputs_are_divided_among_launches(void **unused)
{
    struct trajd_transform wide = {.part_count = TRAJD_TRANSFORM_MAX_PARTS},
                           narrow = {.part_count = 2};
    struct trajd_transform_gpu_job jobs[20] = {0};
    struct trajd_step_launch launch;
    (void)unused;

    for (int i = 0; i < 20; i++)
        jobs[i].job.transform = i == 1 || i == 2 ? &wide : &narrow;
    assert_int_equal(trajd_step_pack(jobs, 0, 20, 7, &launch), 2);
    assert_int_equal(launch.part_count, TRAJD_TRANSFORM_MAX_PARTS + 2);
    assert_int_equal(launch.outputs[1].part_first, 2);
    assert_int_equal(trajd_step_pack(jobs, 2, 20, 7, &launch), 2 + TRAJD_STEP_OUTPUTS_MAX);
    assert_int_equal(launch.output_count, TRAJD_STEP_OUTPUTS_MAX);
    assert_int_equal(trajd_step_pack(jobs, 18, 20, 7, &launch), 20);
    assert_int_equal(launch.window_count, 7);
}

/* Only rotations that a request blends number by number are blended again. */
static void test_which_rotations_are_blended(void **unused)
{
    static const int64_t numbers[1];
    const struct trajd_clock clock = {.stamps_ns = numbers};
    const struct trajd_bracket bracket = {
        .row_begin = numbers, .row_count = numbers, .anchor = numbers};
    struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = 5, .offsets = numbers};
    struct trajd_stream streams[2] = {{.feature_count = 3},
                                      {.feature_count = 7, .first_column = 2}};
    const struct trajd_resample_request request = {.window_count = 4,
                                                   .clock_count = 1,
                                                   .grid_count = 1,
                                                   .bracket_count = 1,
                                                   .stream_count = 2,
                                                   .clocks = &clock,
                                                   .grids = &grid,
                                                   .brackets = &bracket,
                                                   .streams = streams};
    struct trajd_blend_launch launch;
    (void)unused;

    for (int kind = 0; kind < TRAJD_KIND_COUNT; kind++) {
        streams[1].kind = kind;
        streams[1].source_type = streams[1].output_type = TRAJD_F64;
        assert_int_equal(trajd_blend_pack(&request, 1, 3, TRAJD_ROTATION_ROT6D, &launch),
                         kind == TRAJD_KIND_LINEAR || kind == TRAJD_KIND_ANGLE);
    }
    streams[1].kind = TRAJD_KIND_LINEAR;
    assert_true(trajd_blend_pack(&request, 1, 3, TRAJD_ROTATION_QUAT_WXYZ, &launch));
    assert_int_equal(launch.width, 4);
    assert_int_equal(launch.column, 3);
    assert_int_equal(launch.window_count, 4);
    assert_int_equal(launch.bracket.step_count, 5);
    assert_int_equal(launch.stream.first_column_bytes, 2 * sizeof(double));
    grid.unit = TRAJD_GRID_ROWS;
    assert_false(trajd_blend_pack(&request, 1, 3, TRAJD_ROTATION_QUAT_WXYZ, &launch));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains_have_the_cpus_bits),
        cmocka_unit_test(test_outputs_are_divided_among_launches),
        cmocka_unit_test(test_which_rotations_are_blended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
