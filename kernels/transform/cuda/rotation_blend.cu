/* Blends rotations that the kernels of a request have blended number by number.
 *
 * Math      the rotation on the shortest arc between the two rows of a target, by slerp, for kinds
 *           linear and angle. Targets at a row, outside the rows or without rows stay as they are.
 * Shapes    any; one rotation of a row.
 * Requires  addresses aligned to their elements.
 * Moves     two rotations a target, and the blended one.
 * Threads   one a target, which it searches itself.
 * Numerics  double; sine and arctangent are CUDA's.
 * Chosen    for the rotations of transforms that are not on the anchor's own rows. Rare: recordings
 *           with quaternions take kind slerp, which needs none of this. */
#include "kernels/cuda/windows.cuh"
#include "kernels/transform/cuda/transform_launch.h"
#include "kernels/transform/rotation_numbers.h"

#define THREADS 128u
#define BLOCKS_MAX 65535u

__device__ __forceinline__ struct trajd_rotation
load_rotation(const struct trajd_blend_launch &launch, const char *row)
{
    double n[TRAJD_ROTATION_MAX_WIDTH];

    for (uint32_t d = 0; d < TRAJD_ROTATION_MAX_WIDTH; d++)
        n[d] = d < launch.width
                   ? load_element<double>(launch.stream.source_type, row, launch.column + d)
                   : 0;
    return trajd_rotation_of_numbers((enum trajd_rotation_form)launch.form, n);
}

__device__ __forceinline__ void store_rotation(const struct trajd_blend_launch &launch,
                                               struct trajd_rotation q, char *output)
{
    double n[TRAJD_ROTATION_MAX_WIDTH];

    trajd_rotation_to_numbers((enum trajd_rotation_form)launch.form, q, n);
    for (uint32_t d = 0; d < TRAJD_ROTATION_MAX_WIDTH; d++)
        if (d < launch.width)
            store_element<double>(launch.stream.output_type, output, launch.column + d, n[d]);
}

/* Blends the rotations of a row and the next one. */
__device__ __forceinline__ void blend(const struct trajd_blend_launch &launch, const char *row,
                                      double share, char *output)
{
    const struct trajd_rotation before = load_rotation(launch, row),
                                after = load_rotation(launch, row + launch.stream.row_stride_bytes);
    const double p[4] = {before.x, before.y, before.z, before.w},
                 q[4] = {after.x, after.y, after.z, after.w};
    double found[4];

    slerp<double>(p, q, share, found);
    store_rotation(launch, {found[0], found[1], found[2], found[3]}, output);
}

__device__ __forceinline__ void blend_step(const struct trajd_blend_launch &launch, uint32_t window,
                                           uint32_t step)
{
    const trajd_cuda_stream &stream = launch.stream;
    const uint32_t place = launch.window_rows ? __ldg(launch.window_rows + window) : window;
    const window_view view = open_alone(launch.bracket, window);
    const target target = find_target(
        view, __ldg(launch.bracket.offsets + window * launch.bracket.offsets_per_window + step));
    const char *rows = rows_alone(stream, view, window);

    if (rows && target.searched && target.place == PLACE_INSIDE && target.past > 0 &&
        target.past < target.width)
        blend(launch, rows + target.row * (int64_t)stream.row_stride_bytes,
              (double)target.past / (double)target.width,
              stream.output + place * stream.window_stride_bytes + step * stream.step_stride_bytes);
}

__global__ void __launch_bounds__(THREADS)
    blend_rotations(const __grid_constant__ struct trajd_blend_launch launch)
{
    const uint32_t steps = launch.bracket.step_count;
    const uint64_t count = (uint64_t)launch.window_count * steps;

    wait_for_earlier_launches();
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * THREADS)
        blend_step(launch, (uint32_t)(i / steps), (uint32_t)(i % steps));
}

extern "C" int trajd_blend_launch(const struct trajd_blend_launch *launch, bool overlaps,
                                  void *stream)
{
    const uint64_t blocks =
        ((uint64_t)launch->window_count * launch->bracket.step_count + THREADS - 1) / THREADS;

    return launch_kernel(blend_rotations, *launch,
                         dim3((uint32_t)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX)), THREADS, 0,
                         overlaps, stream);
}
