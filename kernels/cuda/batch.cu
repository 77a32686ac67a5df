/* The batch kernel: requests of many small streams, as a policy asks for them. Every element finds its own
 * target.
 *
 * Math      resample.h.
 * Shapes    any; meant for few steps and features. A block serves a tile of shape.tile_steps targets of one
 * window, for all brackets and streams. Requires  addresses aligned to their elements. Moves     counts,
 * anchors, offsets; the window's stamps; two rows a target; output and mask once. Threads   warps share out
 * the brackets and stage their stamps; then each stream has warps of its own, and a thread goes from offset
 * to output by itself: four loads in a row, and those of all streams at the same time. Numerics  a from exact
 * integer differences; float or double, one rounding at the store. Chosen    shape.c: where there are no more
 * elements than threads, or few times as many.
 */
#include "kernels/cuda/windows.cuh"

/* One element or quaternion. Returns the mask code of its target as far as this unit knows. */
template <typename P>
__device__ __forceinline__ uint32_t serve_unit(const P &problem, const trajd_cuda_stream &stream,
                                               uint32_t window, const window_view &view, int64_t offset,
                                               uint32_t unit, char *output, float *derivative)
{
    const bool wide = is_wide(stream.source_type);
    const char *rows = stream.base + view.row_begin * (int64_t)stream.row_stride_bytes;
    full_entry full;
    entry entry;
    bool nan;

    if (stream.bases) {
        rows = (const char *)__ldg((const unsigned long long *)stream.bases + window);
        rows = rows ? rows + stream.first_column_bytes : NULL;
    }
    const target target = find_target(view, offset);
    const uint32_t code = resolve_entry(stream, view.clock.row_count, target, rows, entry);
    resolve_full(stream, view, target, entry, full);
    if (picks_rows(stream) && !stream.scale && stream.source_type == stream.output_type)
        nan = copy_unit(stream, entry, element_size(stream.source_type), unit, output);
    else if (wide)
        nan = write_unit<double>(stream, entry, full, unit, output);
    else
        nan = write_unit<float>(stream, entry, full, unit, output);
    if (derivative && wide)
        write_derivative<double>(stream, entry, full, unit, derivative);
    else if (derivative)
        write_derivative<float>(stream, entry, full, unit, derivative);
    return nan ? max(code, (uint32_t)TRAJD_MASK_NAN) : code;
}

template <typename P>
__device__ __forceinline__ void
serve_stream(const P &problem, const trajd_cuda_stream &stream, uint32_t window, uint64_t first_step,
             const team &team, const found_window *found, const int64_t *stages, uint32_t *masks)
{
    const uint32_t here =
        steps_here(problem.brackets[stream.bracket_index].step_count, first_step, problem.shape.tile_steps);
    const uint32_t units = is_slerp(stream.kind) ? stream.feature_count / 4 : stream.feature_count;
    const window_view view = view_of(problem, stream.bracket_index, found[stream.bracket_index], stages);
    char *output =
        stream.output + window * stream.window_stride_bytes + first_step * stream.step_stride_bytes;
    char *slopes = (char *)stream.derivative + window * stream.derivative_window_stride_bytes +
                   first_step * stream.derivative_step_stride_bytes;
    const lane_place lane = place_lane(team, units);

#pragma unroll 1
    for (uint32_t unit = lane.vector; unit < units; unit += lane.vector_step)
#pragma unroll 1
        for (uint32_t t = lane.slot; t < here; t += lane.slots) {
            uint32_t code = serve_unit(
                problem, stream, window, view,
                load_offset(problem, stream.bracket_index, window, first_step + t), unit,
                output + t * stream.step_stride_bytes,
                stream.derivative ? (float *)(slopes + t * stream.derivative_step_stride_bytes) : NULL);
            if (code != TRAJD_MASK_VALID && stream.mask_slot != TRAJD_CUDA_NO_MASK)
                atomicMax(masks + stream.mask_slot * problem.shape.tile_steps + t, code);
        }
}

template <typename P>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_FULL_BLOCKS_MIN)
    resample_batch(const __grid_constant__ P problem)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ found_window found[TRAJD_CUDA_BRACKETS_MAX];
    int64_t *stages = (int64_t *)memory;
    uint32_t *masks = (uint32_t *)(stages + problem.bracket_count * problem.shape.stage_rows);
    const uint64_t first_step = (uint64_t)blockIdx.x * problem.shape.tile_steps;
    const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;

#pragma unroll 1
    for (uint64_t next = blockIdx.y; next < problem.window_count; next += gridDim.y) {
        const uint32_t window = (uint32_t)next;

        for (uint32_t i = threadIdx.x; i < problem.mask_count * problem.shape.tile_steps; i += blockDim.x)
            masks[i] = TRAJD_MASK_VALID;
        open_windows(problem, window, stages, found);
        __syncthreads();
#pragma unroll 1
        for (uint32_t s = 0; s < problem.stream_count; s++) {
            const trajd_cuda_stream &stream = problem.streams[s];
            const uint32_t first_warp = stream.first_warp % warps;
            if (warp >= first_warp && warp < first_warp + stream.warp_count)
                serve_stream(problem, stream, window, first_step,
                             {threadIdx.x - first_warp * 32, stream.warp_count * 32u}, found, stages, masks);
        }
        __syncthreads();
        write_masks(problem, window, first_step, masks);
        __syncthreads();
    }
}

extern "C" int trajd_cuda_launch_batch(const struct trajd_cuda_problem *problem, void *stream)
{
    dim3 grid((problem->step_count_max - 1) / problem->shape.tile_steps + 1,
              problem->window_count < TRAJD_CUDA_GRID_HEIGHT_MAX ? problem->window_count
                                                                 : TRAJD_CUDA_GRID_HEIGHT_MAX);
    uint32_t threads = problem->shape.thread_count, shared = trajd_cuda_shared_bytes(problem);

    if (has_few_streams(problem))
        resample_batch<<<grid, threads, shared, (cudaStream_t)stream>>>(take_few_streams(problem));
    else
        resample_batch<<<grid, threads, shared, (cudaStream_t)stream>>>(*problem);
    return (int)cudaGetLastError();
}
