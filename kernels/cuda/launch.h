/* The kernels' launchers: each computes a grid, launches and returns the cudaError_t; no wait, no allocation.
 */
#ifndef TRAJD_KERNELS_CUDA_LAUNCH_H
#define TRAJD_KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_CUDA_THREADS_MAX 256
/* Blocks of the most threads that a multiprocessor shall hold at once: 64 registers a thread. */
#define TRAJD_CUDA_BLOCKS_MIN 4
#define TRAJD_CUDA_FULL_BLOCKS_MIN 2
/* What a block gets without asking for more. */
#define TRAJD_CUDA_SHARED_BYTES_MAX 48000u

/* Stamps that stand behind a staged window, so that four can be read from anywhere in it. */
#define LEAN_STAGE_PADDING 4u

/* Shared memory of one block, for the problem's shape. */
static inline uint32_t trajd_cuda_shared_bytes(const struct trajd_cuda_problem *problem)
{
    uint32_t tile = problem->shape.tile_steps;
    uint32_t stage = problem->bracket_count * problem->shape.stage_rows * 8u;

    if (problem->lean)
        return tile * 16u + stage + 8u * LEAN_STAGE_PADDING;
    if (problem->shape.style == TRAJD_CUDA_DIRECT)
        return stage + problem->mask_count * tile * 4u;
    return problem->stream_count * (tile * 40u + 4u) + stage + problem->mask_count * tile * 4u;
}

/* Shares the warps of a block out over the streams of a problem, for its shape. */
void trajd_cuda_share_warps(struct trajd_cuda_problem *problem);

/* tile: problems that are lean. batch, full: any. */
int trajd_cuda_launch_tile(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_batch(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_full(const struct trajd_cuda_problem *problem, void *stream);

#ifdef __cplusplus
}
#endif
#endif
