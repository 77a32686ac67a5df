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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_chains_have_the_cpus_bits),
        cmocka_unit_test(test_outputs_are_divided_among_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
