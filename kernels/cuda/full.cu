/* The tile kernel for any request: every stream in one launch, a block per window and tile of targets.
 *
 * Math      resample.h.
 * Shapes    any. A window's targets are cut into tiles of shape.tile_steps; a block serves one tile of one window, for all
 *           brackets and streams, and goes on to window + gridDim.y where there are more windows than a grid is high.
 * Requires  addresses aligned to their elements; nothing else is asked of alignment, D or the order of targets.
 * Moves     what the block's targets need: counts, anchors and offsets; stamps; two rows a target; output and mask once.
 * Threads   find: warps share out the brackets and stage their stamps; then a thread a target. values: a thread keeps a
 *           vector of features and goes from target to target. All threads pass all barriers.
 * Numerics  a from exact integer differences; float or double, one rounding at the store.
 * Chosen    shape.c: where tile.cu does not serve.
 */
#include <cuda_pipeline.h>

#include "kernels/cuda/full.cuh"
#include "kernels/cuda/launch.h"

/* A bracket in the block's window, as its warps found it. */
struct found_window {
    int64_t row_begin;
    int64_t row_count;
    int64_t anchor;
    int64_t first_ns;
    int64_t last_ns;
    bool staged;
};

/* The block's shared memory, cut from one dynamic allocation; tile_shared_bytes must agree. */
struct tile_shared {
    entry *entries;       /* [stream][tile] */
    full_entry *fulls;    /* [stream][tile] */
    int64_t *stage;       /* [bracket][stage_rows] */
    uint32_t *unaligned;  /* [stream]: its rows stand where vectors cannot be loaded */
    uint32_t *masks;      /* [mask][tile] */
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

/* What a bracket's warps do in a window: read where it stands, bring its stamps or their ends. */
template <typename P>
__device__ __forceinline__ void open_window(const P &problem, uint32_t bracket_index, uint32_t window,
                                            const tile_shared &shared, found_window &out, uint32_t rank, uint32_t ranks)
{
    const trajd_cuda_bracket &bracket = problem.brackets[bracket_index];
    found_window found;

    if (bracket.row_begin) {
        found.row_begin = __ldg(bracket.row_begin + window);
        found.row_count = __ldg(bracket.row_count + window);
        found.anchor = __ldg(bracket.anchor + window);
    } else {
        found.row_begin = window * bracket.dense_rows;
        found.row_count = bracket.dense_rows;
        found.anchor = 0;
    }
    found.first_ns = found.last_ns = 0;
    found.staged = false;
    if (bracket.stamps_ns && bracket.unit == TRAJD_GRID_NS && found.row_count > 0) {
        const int64_t *stamps = bracket.stamps_ns + found.row_begin;
        found.staged = found.row_count <= problem.shape.stage_rows;
        if (found.staged) {
            int64_t *stage = shared.stage + bracket_index * problem.shape.stage_rows;
#pragma unroll 4
            for (uint32_t i = rank; i < (uint32_t)found.row_count; i += ranks)
                __pipeline_memcpy_async(stage + i, stamps + i, sizeof *stage);
        } else if (rank == 0) {
            found.first_ns = __ldg(stamps);
            found.last_ns = __ldg(stamps + found.row_count - 1);
        }
    }
    if (rank == 0)
        out = found;
    __pipeline_commit();
    __pipeline_wait_prior(0);
}

template <typename P>
__device__ __forceinline__ void open_windows(const P &problem, uint32_t window,
                                             const tile_shared &shared, found_window *found)
{
    uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
    uint32_t teams = min((uint32_t)problem.bracket_count, warps), team = warp % teams;
    uint32_t rank = warp / teams * 32 + threadIdx.x % 32, ranks = (warps - team + teams - 1) / teams * 32;

#pragma unroll 1
    for (uint32_t b = team; b < problem.bracket_count; b += teams)
        open_window(problem, b, window, shared, found[b], rank, ranks);
}

template <typename P>
__device__ __forceinline__ window_view view_of(const P &problem, uint32_t bracket_index,
                                               const found_window &found, const int64_t *stage)
{
    const trajd_cuda_bracket &bracket = problem.brackets[bracket_index];
    window_view view;

    stage += bracket_index * problem.shape.stage_rows;
    view.row_begin = found.row_begin;
    view.anchor = found.anchor;
    view.unit = bracket.unit;
    view.clock.rate = bracket.rate;
    view.clock.row_count = found.row_count;
    view.clock.stamps_ns = found.staged        ? stage
                           : bracket.stamps_ns ? bracket.stamps_ns + found.row_begin
                                               : NULL;
    view.clock.first_ns = found.staged ? stage[0] : found.first_ns;
    view.clock.last_ns = found.staged ? stage[found.row_count - 1] : found.last_ns;
    return view;
}

/* One target of one bracket: found once, then seen by each stream of the bracket. */
template <typename P>
__device__ __forceinline__ void serve_target(const P &problem, uint32_t bracket_index, uint32_t window,
                                             uint32_t step, int64_t offset, const tile_shared &shared,
                                             const found_window &found)
{
    window_view view = view_of(problem, bracket_index, found, shared.stage);
    target target = find_target(view, offset);

#pragma unroll 1
    for (uint32_t s = 0; s < problem.stream_count; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        if (stream.bracket_index != bracket_index)
            continue;
        uint32_t slot = s * problem.shape.tile_steps + step;
        const char *rows = stream.base + view.row_begin * (int64_t)stream.row_stride_bytes;
        if (stream.bases) {
            rows = (const char *)__ldg((const unsigned long long *)stream.bases + window);
            rows = rows ? rows + stream.first_column_bytes : NULL;
        }
        entry entry;
        uint32_t code = resolve_entry(stream, view.clock.row_count, target, rows, entry);
        if (stream.path == TRAJD_CUDA_FULL)
            resolve_full(stream, view, target, entry, shared.fulls[slot]);
        else if ((uintptr_t)rows & (stream.load_bytes - 1u))
            shared.unaligned[s] = 1; /* by every thread that serves the stream, and the same */
        shared.entries[slot] = entry;
        if (code != TRAJD_MASK_VALID && stream.mask_slot != TRAJD_CUDA_NO_MASK)
            atomicMax(shared.masks + stream.mask_slot * problem.shape.tile_steps + step, code);
    }
}

__device__ __forceinline__ uint32_t steps_here(uint32_t step_count, uint64_t first_step, uint32_t tile_steps)
{
    return first_step >= step_count ? 0 : min((uint32_t)(step_count - first_step), tile_steps);
}

/* Which bracket and step of the tile a target number is; false: beyond the last. */
template <typename P>
__device__ __forceinline__ bool locate_target(const P &problem, uint64_t first_step, uint32_t number,
                                              uint32_t &bracket_index, uint32_t &step)
{
    step = number;
#pragma unroll 1
    for (bracket_index = 0; bracket_index < problem.bracket_count; bracket_index++) {
        uint32_t here = steps_here(problem.brackets[bracket_index].step_count, first_step, problem.shape.tile_steps);
        if (step < here)
            return true;
        step -= here;
    }
    return false;
}

template <typename P>
__device__ __forceinline__ int64_t load_offset(const P &problem, uint32_t bracket_index,
                                               uint32_t window, uint64_t step)
{
    const trajd_cuda_bracket &bracket = problem.brackets[bracket_index];

    return __ldg(bracket.offsets + window * bracket.offsets_per_window + step);
}

template <typename P>
__device__ __forceinline__ void write_masks(const P &problem, uint32_t window, uint64_t first_step,
                                            const uint32_t *masks)
{
    uint32_t begun = 0;

#pragma unroll 1
    for (uint32_t s = 0; s < problem.stream_count; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        if (stream.mask_slot == TRAJD_CUDA_NO_MASK || stream.mask_slot < begun)
            continue; /* joined: written with the first of its slot */
        begun = stream.mask_slot + 1u;
        uint32_t here =
            steps_here(problem.brackets[stream.bracket_index].step_count, first_step, problem.shape.tile_steps);
        uint8_t *out = stream.mask + window * stream.mask_window_stride_bytes + first_step;
        for (uint32_t t = threadIdx.x; t < here; t += blockDim.x) {
            uint32_t code = masks[stream.mask_slot * problem.shape.tile_steps + t];
            out[t] = (uint8_t)(stream.mask_continues ? max(code, (uint32_t)out[t]) : code);
        }
    }
}

/* Streams are served side by side, each by the warps that the host gave it, so that their loads are in flight together. */
template <typename P>
__device__ __forceinline__ void write_streams(const P &problem, uint32_t window, uint64_t first_step,
                                              const tile_shared &shared)
{
    const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;

#pragma unroll 1
    for (uint32_t s = 0; s < problem.stream_count; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        if (warp < stream.first_warp % warps || warp >= stream.first_warp % warps + stream.warp_count)
            continue;
        const team team = {threadIdx.x - stream.first_warp % warps * 32, stream.warp_count * 32u};
        uint32_t here =
            steps_here(problem.brackets[stream.bracket_index].step_count, first_step, problem.shape.tile_steps);
        char *output = stream.output + window * stream.window_stride_bytes + first_step * stream.step_stride_bytes;
        char *derivative = (char *)stream.derivative + window * stream.derivative_window_stride_bytes +
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

#pragma unroll 1
    for (uint64_t next = blockIdx.y; next < problem.window_count; next += gridDim.y) {
        const uint32_t window = (uint32_t)next;
        uint32_t bracket_index, step;
        bool has_target = locate_target(problem, first_step, threadIdx.x, bracket_index, step);
        int64_t offset = has_target ? load_offset(problem, bracket_index, window, first_step + step) : 0;

        for (uint32_t i = threadIdx.x; i < problem.mask_count * problem.shape.tile_steps; i += blockDim.x)
            shared.masks[i] = TRAJD_MASK_VALID;
        if (threadIdx.x < problem.stream_count)
            shared.unaligned[threadIdx.x] = 0;
        open_windows(problem, window, shared, found);
        __syncthreads();
#pragma unroll 1
        for (uint32_t number = threadIdx.x; has_target;) {
            serve_target(problem, bracket_index, window, step, offset, shared, found[bracket_index]);
            number += blockDim.x;
            has_target = locate_target(problem, first_step, number, bracket_index, step);
            if (has_target)
                offset = load_offset(problem, bracket_index, window, first_step + step);
        }
        __syncthreads();
        write_streams(problem, window, first_step, shared);
        __syncthreads();
        write_masks(problem, window, first_step, shared.masks);
        __syncthreads();
    }
}

/* Most requests are small, and a kernel waits for its parameters: the same with fewer places. */
struct few_streams {
    uint32_t window_count;
    uint16_t bracket_count;
    uint16_t stream_count;
    uint16_t mask_count;
    struct trajd_cuda_shape shape;
    struct trajd_cuda_bracket brackets[3];
    struct trajd_cuda_stream streams[5];
};

static bool has_few_streams(const struct trajd_cuda_problem *problem)
{
    return problem->bracket_count <= 3 && problem->stream_count <= 5;
}

static struct few_streams take_few_streams(const struct trajd_cuda_problem *problem)
{
    struct few_streams few = {problem->window_count, problem->bracket_count, problem->stream_count,
                              problem->mask_count, problem->shape, {}, {}};

    for (int b = 0; b < problem->bracket_count; b++)
        few.brackets[b] = problem->brackets[b];
    for (int s = 0; s < problem->stream_count; s++)
        few.streams[s] = problem->streams[s];
    return few;
}

extern "C" int trajd_cuda_launch_full(const struct trajd_cuda_problem *problem, void *stream)
{
    dim3 grid((problem->step_count_max - 1) / problem->shape.tile_steps + 1,
              problem->window_count < TRAJD_CUDA_GRID_HEIGHT_MAX ? problem->window_count : TRAJD_CUDA_GRID_HEIGHT_MAX);
    uint32_t threads = problem->shape.thread_count, shared = trajd_cuda_shared_bytes(problem);

    if (has_few_streams(problem))
        resample_full<<<grid, threads, shared, (cudaStream_t)stream>>>(take_few_streams(problem));
    else
        resample_full<<<grid, threads, shared, (cudaStream_t)stream>>>(*problem);
    return (int)cudaGetLastError();
}
