/* Shared by the kernels of several brackets: opening windows, staging their stamps, and writing
 * joined masks. P is trajd_cuda_problem, or a smaller version of it. */
#ifndef TRAJD_KERNELS_CUDA_WINDOWS_CUH
#define TRAJD_KERNELS_CUDA_WINDOWS_CUH

#include <cuda_pipeline.h>

#include "kernels/cuda/full.cuh"
#include "kernels/cuda/launch.cuh"

/* A bracket in the block's window, as its warps found it. */
struct found_window {
    int64_t row_begin;
    int64_t row_count;
    int64_t anchor;
    int64_t first_ns;
    int64_t last_ns;
    bool staged;
};

/* Opens a window by the warps of a bracket: reads its place, and stages its stamps or loads the
 * first and last. */
template <typename P>
__device__ __forceinline__ void open_window(const P &problem, uint32_t bracket_index,
                                            uint32_t window, int64_t *stages, found_window &out,
                                            uint32_t rank, uint32_t ranks)
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
            int64_t *stage = stages + bracket_index * problem.shape.stage_rows;
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
__device__ __forceinline__ void open_windows(const P &problem, uint32_t window, int64_t *stages,
                                             found_window *found)
{
    uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32;
    uint32_t teams = min((uint32_t)problem.bracket_count, warps), team = warp % teams;
    uint32_t rank = warp / teams * 32 + threadIdx.x % 32,
             ranks = (warps - team + teams - 1) / teams * 32;

#pragma unroll 1
    for (uint32_t b = team; b < problem.bracket_count; b += teams)
        open_window(problem, b, window, stages, found[b], rank, ranks);
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

/* Opens a window by one thread, without a stage. */
__device__ __forceinline__ window_view open_alone(const trajd_cuda_bracket &bracket,
                                                  uint32_t window)
{
    window_view view;

    view.row_begin = window * bracket.dense_rows;
    view.clock.row_count = bracket.dense_rows;
    view.anchor = 0;
    if (bracket.row_begin) {
        view.row_begin = __ldg(bracket.row_begin + window);
        view.clock.row_count = __ldg(bracket.row_count + window);
        view.anchor = __ldg(bracket.anchor + window);
    }
    view.unit = bracket.unit;
    view.clock.rate = bracket.rate;
    view.clock.stamps_ns = bracket.stamps_ns ? bracket.stamps_ns + view.row_begin : NULL;
    view.clock.first_ns = view.clock.last_ns = 0;
    if (view.clock.stamps_ns && view.unit == TRAJD_GRID_NS && view.clock.row_count > 0) {
        view.clock.first_ns = __ldg(view.clock.stamps_ns);
        view.clock.last_ns = __ldg(view.clock.stamps_ns + view.clock.row_count - 1);
    }
    return view;
}

/* Returns the first row of a window at the first column; NULL: it has none. */
__device__ __forceinline__ const char *rows_alone(const trajd_cuda_stream &stream,
                                                  const window_view &view, uint32_t window)
{
    const char *rows = stream.base + view.row_begin * (int64_t)stream.row_stride_bytes;

    if (stream.bases) {
        rows = (const char *)__ldg((const unsigned long long *)stream.bases + window);
        rows = rows ? rows + stream.first_column_bytes : NULL;
    }
    return rows;
}

__device__ __forceinline__ uint32_t steps_here(uint32_t step_count, uint64_t first_step,
                                               uint32_t tile_steps)
{
    return first_step >= step_count ? 0 : min((uint32_t)(step_count - first_step), tile_steps);
}

template <typename P>
__device__ __forceinline__ int64_t load_offset(const P &problem, uint32_t bracket_index,
                                               uint32_t window, uint64_t step)
{
    const trajd_cuda_bracket &bracket = problem.brackets[bracket_index];

    return __ldg(bracket.offsets + window * bracket.offsets_per_window + step);
}

/* Returns the output row of a window. */
template <typename P>
__device__ __forceinline__ uint32_t place_of(const P &problem, uint32_t window)
{
    return problem.window_rows ? __ldg(problem.window_rows + window) : window;
}

template <typename P>
__device__ __forceinline__ void write_masks(const P &problem, uint32_t place, uint64_t first_step,
                                            const uint32_t *masks)
{
    uint32_t begun = 0;

#pragma unroll 1
    for (uint32_t s = 0; s < problem.stream_count; s++) {
        const trajd_cuda_stream &stream = problem.streams[s];
        if (stream.mask_slot == TRAJD_CUDA_NO_MASK || stream.mask_slot < begun)
            continue; /* joined: written with the first stream of its slot */
        begun = stream.mask_slot + 1u;
        uint32_t here = steps_here(problem.brackets[stream.bracket_index].step_count, first_step,
                                   problem.shape.tile_steps);
        uint8_t *out = stream.mask + place * stream.mask_window_stride_bytes + first_step;
        for (uint32_t t = threadIdx.x; t < here; t += blockDim.x) {
            uint32_t code = masks[stream.mask_slot * problem.shape.tile_steps + t];
            out[t] = (uint8_t)(stream.mask_continues ? max(code, (uint32_t)out[t]) : code);
        }
    }
}

/* A problem with room for few streams. Most requests are small, and a kernel waits for its
 * parameters. */
struct few_streams {
    uint32_t window_count;
    uint16_t bracket_count;
    uint16_t stream_count;
    uint16_t mask_count;
    struct trajd_cuda_shape shape;
    uint16_t group_count;
    uint32_t task_count;
    const uint32_t *window_rows;
    struct trajd_cuda_group groups[5];
    struct trajd_cuda_bracket brackets[3];
    struct trajd_cuda_stream streams[5];
};

static inline bool has_few_streams(const struct trajd_cuda_problem *problem)
{
    return problem->bracket_count <= 3 && problem->stream_count <= 5;
}

static inline struct few_streams take_few_streams(const struct trajd_cuda_problem *problem)
{
    struct few_streams few = {};

    few.window_count = problem->window_count;
    few.bracket_count = problem->bracket_count;
    few.stream_count = problem->stream_count;
    few.mask_count = problem->mask_count;
    few.shape = problem->shape;
    few.group_count = problem->group_count;
    few.task_count = problem->task_count;
    few.window_rows = problem->window_rows;
    for (int g = 0; g < problem->group_count; g++)
        few.groups[g] = problem->groups[g];

    for (int b = 0; b < problem->bracket_count; b++)
        few.brackets[b] = problem->brackets[b];
    for (int s = 0; s < problem->stream_count; s++)
        few.streams[s] = problem->streams[s];
    return few;
}

#endif
