/* The tile kernel for any request: all streams in one launch, a block per window and tile of
 * targets.
 *
 * Math      resample.h.
 * Shapes    any. A window's targets are cut into tiles of shape.tile_steps. A block serves one
 *           tile of one window, for all brackets and streams. If there are more windows than a
 *           grid is high, it goes on to window + gridDim.y.
 * Requires  addresses aligned to their elements; nothing else about alignment, D or the order of
 *           targets.
 * Moves     what the block's targets need: counts, anchors and offsets; stamps; two rows per
 *           target; output and mask once.
 * Threads   find: warps share the brackets and stage their stamps; then a thread serves a
 *           target. values: a thread keeps a vector of features and goes from target to target.
 *           All threads pass all barriers.
 * Numerics  a from exact integer differences; float or double, one rounding at the store.
 * Chosen    by shape.c, if tile.cu does not serve. */
#include "kernels/cuda/windows.cuh"

/* The block's shared memory, cut from one dynamic allocation. trajd_cuda_shared_bytes must
 * agree. */
struct tile_shared {
    entry *entries;      /* [stream][tile] */
    full_entry *fulls;   /* [stream][tile] */
    int64_t *stage;      /* [bracket][stage_rows] */
    uint32_t *unaligned; /* [stream]: 1 if vectors cannot be loaded from its rows */
    uint32_t *masks;     /* [mask][tile] */
};

template <typename P>
__device__ __forceinline__ tile_shared cut_shared(const P &problem, char *memory)
{
    uint32_t slots = problem.stream_count * problem.shape.tile_steps;
    tile_shared shared;

    shared.entries = (entry *)memory;
    memory += slots * sizeof(entry);
    shared.fulls = (full_entry *)memory;
    memory += slots * sizeof(full_entry);
    shared.stage = (int64_t *)memory;
    memory += problem.bracket_count * problem.shape.stage_rows * sizeof(int64_t);
    shared.unaligned = (uint32_t *)memory;
    shared.masks = shared.unaligned + problem.stream_count;
    return shared;
}

/* Serves one target of one bracket: finds it once, then resolves it for each stream. */
template <typename P>
__device__ __forceinline__ void serve_target(const P &problem, uint32_t bracket_index,
                                             uint32_t window, uint32_t step, int64_t offset,
                                             const tile_shared &shared, const found_window &found)
{
    window_view view = view_of(problem, bracket_index, found, shared.stage);
    target target = find_target(view, offset);

#pragma unroll 1
    for (uint32_t s = 0; s < problem.stream_count; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        if (stream.bracket_index != bracket_index)
            continue;
        uint32_t slot = s * problem.shape.tile_steps + step;
        const char *rows = rows_alone(stream, view, window);
        entry entry;
        uint32_t code = resolve_entry(stream, view.clock.row_count, target, rows, entry);
        if (stream.path == TRAJD_CUDA_FULL)
            resolve_full(stream, view, target, entry, shared.fulls[slot]);
        else if ((uintptr_t)rows & (stream.load_bytes - 1u))
            shared.unaligned[s] = 1; /* every thread of the stream writes the same value */
        shared.entries[slot] = entry;
        if (code != TRAJD_MASK_VALID && stream.mask_slot != TRAJD_CUDA_NO_MASK)
            atomicMax(shared.masks + stream.mask_slot * problem.shape.tile_steps + step, code);
    }
}

/* Finds the bracket and the step of the tile for a target number. Returns false beyond the last. */
template <typename P>
__device__ __forceinline__ bool locate_target(const P &problem, uint64_t first_step,
                                              uint32_t number, uint32_t &bracket_index,
                                              uint32_t &step)
{
    step = number;
#pragma unroll 1
    for (bracket_index = 0; bracket_index < problem.bracket_count; bracket_index++) {
        uint32_t here = steps_here(problem.brackets[bracket_index].step_count, first_step,
                                   problem.shape.tile_steps);
        if (step < here)
            return true;
        step -= here;
    }
    return false;
}

/* Serves the streams side by side, each by the warps that the host gave it, so that their loads are
 * in flight together. */
template <typename P>
__device__ __forceinline__ void write_streams(const P &problem, uint32_t place, uint64_t first_step,
                                              const tile_shared &shared)
{
    const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;

#pragma unroll 1
    for (uint32_t s = 0; s < problem.stream_count; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        if (warp < stream.first_warp % warps ||
            warp >= stream.first_warp % warps + stream.warp_count)
            continue;
        const team team = {threadIdx.x - stream.first_warp % warps * 32, stream.warp_count * 32u};
        uint32_t here = steps_here(problem.brackets[stream.bracket_index].step_count, first_step,
                                   problem.shape.tile_steps);
        char *output = stream.output + place * stream.window_stride_bytes +
                       first_step * stream.step_stride_bytes;
        char *derivative = (char *)stream.derivative +
                           place * stream.derivative_window_stride_bytes +
                           first_step * stream.derivative_step_stride_bytes;
        uint32_t *mask = stream.mask_slot == TRAJD_CUDA_NO_MASK
                             ? NULL
                             : shared.masks + stream.mask_slot * problem.shape.tile_steps;
        const full_output out = {output, stream.step_stride_bytes, {mask}};
        write_stream(team, stream, shared.entries + s * problem.shape.tile_steps,
                     shared.fulls + s * problem.shape.tile_steps, here, !shared.unaligned[s], out,
                     stream.derivative ? (float *)derivative : NULL);
    }
}

template <typename P>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_FULL_BLOCKS_MIN)
    resample_full(const __grid_constant__ P problem)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ found_window found[TRAJD_CUDA_BRACKETS_MAX];
    const tile_shared shared = cut_shared(problem, memory);
    const uint64_t first_step = (uint64_t)blockIdx.x * problem.shape.tile_steps;

    wait_for_earlier_launches();
#pragma unroll 1
    for (uint64_t next = blockIdx.y; next < problem.window_count; next += gridDim.y) {
        const uint32_t window = (uint32_t)next, place = place_of(problem, window);
        uint32_t bracket_index, step;
        bool has_target = locate_target(problem, first_step, threadIdx.x, bracket_index, step);
        int64_t offset =
            has_target ? load_offset(problem, bracket_index, window, first_step + step) : 0;

        for (uint32_t i = threadIdx.x; i < problem.mask_count * problem.shape.tile_steps;
             i += blockDim.x)
            shared.masks[i] = TRAJD_MASK_VALID;
        if (threadIdx.x < problem.stream_count)
            shared.unaligned[threadIdx.x] = 0;
        open_windows(problem, window, shared.stage, found);
        __syncthreads();
#pragma unroll 1
        for (uint32_t number = threadIdx.x; has_target;) {
            serve_target(problem, bracket_index, window, step, offset, shared,
                         found[bracket_index]);
            number += blockDim.x;
            has_target = locate_target(problem, first_step, number, bracket_index, step);
            if (has_target)
                offset = load_offset(problem, bracket_index, window, first_step + step);
        }
        __syncthreads();
        write_streams(problem, place, first_step, shared);
        __syncthreads();
        write_masks(problem, place, first_step, shared.masks);
        __syncthreads();
    }
}

extern "C" int trajd_cuda_launch_full(const struct trajd_cuda_problem *problem, void *stream)
{
    dim3 grid((problem->step_count_max - 1) / problem->shape.tile_steps + 1,
              problem->window_count < TRAJD_CUDA_GRID_HEIGHT_MAX ? problem->window_count
                                                                 : TRAJD_CUDA_GRID_HEIGHT_MAX);
    uint32_t threads = problem->shape.thread_count,
             shared = (uint32_t)trajd_cuda_shared_bytes(problem);

    if (has_few_streams(problem))
        return launch_kernel(resample_full<struct few_streams>, take_few_streams(problem), grid,
                             threads, shared, problem->shape.overlaps, stream);
    return launch_kernel(resample_full<struct trajd_cuda_problem>, *problem, grid, threads, shared,
                         problem->shape.overlaps, stream);
}
