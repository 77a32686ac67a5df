/* Masks the steps of windows whose rows ended before their recording.
 *
 * Math      mask[w][t] = max(mask[w][t], TOO_OLD) for begin[w] <= t < end[w].
 * Shapes    one stream; any number of windows and steps.
 * Requires  masks that earlier launches of the same stream have written.
 * Moves     two numbers a window, and the masks of these steps.
 * Threads   a warp serves a window.
 * Chosen    for brackets with `too_old_begin`, behind all other launches of the request. */
#include "kernels/cuda/launch.cuh"

#define WARPS 4u

__global__ void __launch_bounds__(WARPS * 32u)
    mark_too_old(const __grid_constant__ struct trajd_cuda_too_old marks)
{
    const uint32_t w = blockIdx.x * WARPS + threadIdx.x / 32u;

    wait_for_earlier_launches();
    if (w >= marks.window_count || (marks.bases && !marks.bases[w]))
        return;
    const uint32_t row = marks.window_rows ? marks.window_rows[w] : w;
    uint8_t *mask = marks.mask + row * marks.mask_window_stride_bytes;
    for (uint32_t t = marks.begin[w] + threadIdx.x % 32u; t < marks.end[w] && t < marks.step_count;
         t += 32u)
        if (mask[t] < TRAJD_MASK_TOO_OLD)
            mask[t] = TRAJD_MASK_TOO_OLD;
}

extern "C" int trajd_cuda_launch_too_old(const struct trajd_cuda_too_old *marks, void *stream)
{
    return launch_kernel(mark_too_old, *marks, dim3((marks->window_count + WARPS - 1) / WARPS),
                         WARPS * 32u, 0, false, stream);
}
