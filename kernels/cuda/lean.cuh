/* The first half of tile.cu: from a window and its offsets to entries. Stamps only; rows are counted in 32
 * bits. */
#ifndef TRAJD_KERNELS_CUDA_LEAN_CUH
#define TRAJD_KERNELS_CUDA_LEAN_CUH

#include <cuda_pipeline.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"

/* One bracket and stream: a tenth of a trajd_cuda_problem, since a kernel waits for its parameters too. */
struct lean_problem {
    struct trajd_cuda_bracket bracket;
    struct trajd_cuda_stream stream;
    struct trajd_cuda_shape shape;
};

/* A window as all threads of its blocks see it. */
struct lean_window {
    const int64_t *stamps_ns; /* in global memory */
    const char *rows;         /* NULL: missing */
    int64_t row_count;
    int64_t anchor;
    bool staged;
    bool aligned; /* rows stand where vectors can be loaded; of streams with `bases` only the device can tell
                   */
};

#define PREFETCH_LINE_BYTES 128u

/* This block's share of some bytes, on their way to the L2 while others are waited for. Beyond 4 GiB nothing
 * is asked. */
__device__ __forceinline__ void ask_for(const char *from, uint64_t size_bytes)
{
    if (size_bytes >> 32)
        return;
    uint32_t lines = ((uint32_t)size_bytes + PREFETCH_LINE_BYTES - 1) / PREFETCH_LINE_BYTES;

    for (uint32_t line = blockIdx.x * blockDim.x + threadIdx.x; line < lines; line += gridDim.x * blockDim.x)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + (uint64_t)line * PREFETCH_LINE_BYTES));
}

__device__ __forceinline__ int64_t load_offset(const lean_problem &problem, uint32_t window, uint32_t step)
{
    return __ldg(problem.bracket.offsets + window * problem.bracket.offsets_per_window + step);
}

/* Reads where the window stands and sends for its stamps, all of them where they fit. stage_wait must follow.
 */
__device__ __forceinline__ lean_window open_window(const lean_problem &problem, uint32_t window,
                                                   int64_t *stage)
{
    const trajd_cuda_bracket &bracket = problem.bracket;
    const trajd_cuda_stream &stream = problem.stream;
    int64_t row_begin = window * bracket.dense_rows;
    lean_window opened;

    opened.row_count = bracket.dense_rows;
    opened.anchor = 0;
    opened.rows = stream.base;
    if (stream.bases)
        opened.rows = (const char *)__ldg((const unsigned long long *)stream.bases + window);
    if (bracket.row_begin) {
        row_begin = __ldg(bracket.row_begin + window);
        opened.row_count = __ldg(bracket.row_count + window);
        opened.anchor = __ldg(bracket.anchor + window);
    }
    opened.stamps_ns = bracket.stamps_ns + row_begin;
    opened.staged = opened.row_count <= problem.shape.stage_rows;
    if (opened.staged) {
        for (int32_t i = threadIdx.x; i < (int32_t)opened.row_count; i += blockDim.x)
            __pipeline_memcpy_async(stage + i, opened.stamps_ns + i, sizeof *stage);
        if (threadIdx.x < LEAN_STAGE_PADDING)
            stage[max((int32_t)opened.row_count, 0) + threadIdx.x] = INT64_MAX;
    }
    if (!stream.bases)
        opened.rows += row_begin * (int64_t)(uint32_t)stream.row_stride_bytes;
    else if (opened.rows)
        opened.rows += stream.first_column_bytes;
    opened.aligned = ((uintptr_t)opened.rows & (stream.load_bytes - 1u)) == 0;
    if (problem.shape.prefetch) {
        if (!opened.staged)
            ask_for((const char *)opened.stamps_ns, opened.row_count * sizeof(int64_t));
        if (opened.rows)
            ask_for(opened.rows, opened.row_count * (uint32_t)stream.row_stride_bytes);
    }
    return opened;
}

__device__ __forceinline__ void stage_wait(const lean_window &window)
{
    if (window.staged) { /* the same for all threads of the block */
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
    }
}

/* The bracket of first <= x < last, from a guess by the mean rate and four stamps around it. In shared memory
 * a window is followed by stamps beyond all time; in global memory it may be shorter than four. */
template <bool STAGED>
__device__ __forceinline__ bracket_place search_near(const int64_t *stamps, int32_t last, int64_t first_ns,
                                                     int64_t last_ns, int64_t x)
{
    float share = __fdividef((float)((uint64_t)x - (uint64_t)first_ns),
                             (float)((uint64_t)last_ns - (uint64_t)first_ns));
    int32_t start = max(min((int32_t)(share * (float)last) - 1, last - 3), 0);
    int64_t at[4];

#pragma unroll
    for (int k = 0; k < 4; k++)
        at[k] = STAGED ? stamps[start + k] : __ldg(stamps + min(start + k, last));
    if (at[0] <= x && x < at[3]) {
        bool second = at[1] <= x, third = at[2] <= x;
        return {start + second + third,
                third    ? at[2]
                : second ? at[1]
                         : at[0],
                third    ? at[3]
                : second ? at[2]
                         : at[1]};
    }
    return x < at[0] ? search_by_quarters(stamps, 0, start, x)
                     : search_by_quarters(stamps, min(start + 3, last), last, x);
}

template <bool STAGED>
__device__ __forceinline__ target find_near(const int64_t *stamps, int64_t row_count, int64_t x)
{
    target found = {PLACE_BEFORE, true, x, 0, 0, 0};

    if (row_count <= 0)
        return found;
    if (row_count > INT32_MAX) {
        clock_view clock = {stamps, {0, 0}, row_count, stamps[0], stamps[row_count - 1]};
        bracket_place place = search_stamps(clock, x);
        found.place = place.row < 0 ? PLACE_BEFORE : x > clock.last_ns ? PLACE_AFTER : PLACE_INSIDE;
        found.row = place.row;
        found.past = (uint64_t)x - (uint64_t)place.before_ns;
        found.width = (uint64_t)place.after_ns - (uint64_t)place.before_ns;
        return found;
    }
    int32_t last = (int32_t)row_count - 1;
    int64_t first_ns = STAGED ? stamps[0] : __ldg(stamps),
            last_ns = STAGED ? stamps[last] : __ldg(stamps + last);
    if (x >= last_ns && x >= first_ns) {
        found.row = last;
        found.past = (uint64_t)x - (uint64_t)last_ns;
        found.place = found.past > 0 ? PLACE_AFTER : PLACE_INSIDE;
    } else if (x >= first_ns) {
        bracket_place place = search_near<STAGED>(stamps, last, first_ns, last_ns, x);
        found.row = place.row;
        found.past = (uint64_t)x - (uint64_t)place.before_ns;
        found.width = (uint64_t)place.after_ns - (uint64_t)place.before_ns;
        found.place = PLACE_INSIDE;
    }
    return found;
}

/* The entry of one target, and its mask code so far. */
__device__ __forceinline__ entry make_entry(const lean_problem &problem, const lean_window &window,
                                            const int64_t *stage, int64_t offset, uint32_t &code)
{
    const trajd_cuda_stream &stream = problem.stream;
    int64_t x = (int64_t)((uint64_t)window.anchor + (uint64_t)offset);
    target target;
    entry made;

    if (window.staged)
        target = find_near<true>(stage, window.row_count, x);
    else
        target = find_near<false>(window.stamps_ns, window.row_count, x);
    if (offset == TRAJD_NO_TARGET)
        target.place = PLACE_NOWHERE;
    code = resolve_entry(stream, window.row_count, target, window.rows, made);
    return made;
}

#endif
