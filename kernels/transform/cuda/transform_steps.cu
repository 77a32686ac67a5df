/* Transforms the resampled rows of outputs: one launch for the outputs of a batch.
 *
 * Math      transform.h, by transform_step.h.
 * Shapes    any. An output's steps are numbered through its windows.
 * Requires  addresses aligned to their elements.
 * Moves     each row, its origin and its mask once, from the L2 cache, where the resampling has put
 *           them; the output and its mask once.
 * Threads   one a step: it makes all columns, and so the step's mask. Steps share nothing.
 * Numerics  double, without fused multiply-add, and without libm but for sqrt, floor and rint. So the
 *           bits are those of the CPU.
 * Chosen    for every output with a transform. */
#include "kernels/cuda/launch.cuh"
#include "kernels/transform/cuda/transform_step.h"

#define THREADS 128u
#define BLOCKS_MAX 65535u

__global__ void __launch_bounds__(THREADS)
    transform_steps(const __grid_constant__ struct trajd_step_launch launch)
{
    const uint32_t steps = launch.outputs[blockIdx.y].step_count;
    const uint64_t count = (uint64_t)launch.window_count * steps;

    wait_for_earlier_launches();
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * THREADS)
        trajd_step_run(&launch, blockIdx.y, (uint32_t)(i / steps), (uint32_t)(i % steps));
}

extern "C" int trajd_step_launch(const struct trajd_step_launch *launch, bool overlaps,
                                 void *stream)
{
    uint64_t most = 0;

    for (uint32_t o = 0; o < launch->output_count; o++)
        most = launch->outputs[o].step_count > most ? launch->outputs[o].step_count : most;
    const uint64_t blocks = (launch->window_count * most + THREADS - 1) / THREADS;
    const dim3 grid((uint32_t)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), launch->output_count);

    return launch_kernel(transform_steps, *launch, grid, THREADS, 0, overlaps, stream);
}
