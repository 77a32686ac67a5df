/* The first half of tile.cu: from a window and its offsets to the entries of a tile. */
#ifndef TRAJD_KERNELS_CUDA_LEAN_CUH
#define TRAJD_KERNELS_CUDA_LEAN_CUH

#include <cuda_pipeline.h>

#include "kernels/cuda/values.cuh"

/* One bracket and stream: a tenth of a trajd_cuda_problem, since a kernel waits for its parameters too. */
struct lean_problem {
    struct trajd_cuda_bracket bracket;
    struct trajd_cuda_stream stream;
    struct trajd_cuda_shape shape;
};

#define PREFETCH_LINE_BYTES 128u

/* This block's share of some bytes, on their way to the L2 while others are waited for. Beyond 4 GiB nothing is asked. */
__device__ __forceinline__ void ask_for(const char *from, uint64_t size_bytes)
{
    if (size_bytes >> 32)
        return;
    uint32_t lines = ((uint32_t)size_bytes + PREFETCH_LINE_BYTES - 1) / PREFETCH_LINE_BYTES;
    uint32_t share = (lines + gridDim.x - 1) / gridDim.x, begin = share * blockIdx.x;

    for (uint32_t line = begin + threadIdx.x; line < min(begin + share, lines); line += blockDim.x)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + line * PREFETCH_LINE_BYTES));
}

__device__ __forceinline__ void find_entries(const lean_problem &problem, uint32_t window, uint32_t first_step,
                                             uint32_t here, entry *entries, int64_t *stage)
{
    const trajd_cuda_bracket &bracket = problem.bracket;
    const trajd_cuda_stream &stream = problem.stream;
    const bool serves = threadIdx.x < here;
    const char *rows = stream.base;
    window_view view;
    int64_t offset = 0;

    if (serves)
        offset = __ldg(bracket.offsets + window * bracket.offsets_per_window + first_step + threadIdx.x);
    if (stream.bases)
        rows = (const char *)__ldg((const unsigned long long *)stream.bases + window);
    view.unit = bracket.unit;
    view.anchor = 0;
    view.row_begin = window * bracket.dense_rows;
    view.clock.row_count = bracket.dense_rows;
    if (bracket.row_begin) {
        view.row_begin = __ldg(bracket.row_begin + window);
        view.clock.row_count = __ldg(bracket.row_count + window);
        view.anchor = __ldg(bracket.anchor + window);
    }
    view.clock.rate = bracket.rate;
    view.clock.stamps_ns = NULL;
    if (bracket.stamps_ns && bracket.unit == TRAJD_GRID_NS && view.clock.row_count > 0) {
        view.clock.stamps_ns = bracket.stamps_ns + view.row_begin;
        if (view.clock.row_count <= problem.shape.stage_rows) {
            for (uint32_t i = threadIdx.x; i < (uint32_t)view.clock.row_count; i += blockDim.x)
                __pipeline_memcpy_async(stage + i, view.clock.stamps_ns + i, sizeof *stage);
            view.clock.stamps_ns = stage;
        } else if (serves) {
            view.clock.first_ns = __ldg(view.clock.stamps_ns);
            view.clock.last_ns = __ldg(view.clock.stamps_ns + view.clock.row_count - 1);
        }
    }
    if (!stream.bases)
        rows += view.row_begin * (int64_t)stream.row_stride_bytes;
    else
        rows = rows ? rows + stream.first_column_bytes : NULL;
    if (problem.shape.prefetch && view.clock.row_count > 0) {
        if (view.clock.stamps_ns && view.clock.stamps_ns != stage)
            ask_for((const char *)view.clock.stamps_ns, view.clock.row_count * sizeof(int64_t));
        if (rows)
            ask_for(rows, view.clock.row_count * stream.row_stride_bytes);
    }
    if (view.clock.stamps_ns == stage) { /* the same for all threads */
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        view.clock.first_ns = stage[0];
        view.clock.last_ns = stage[view.clock.row_count - 1];
    }
    if (!serves)
        return;
    entry entry;
    uint32_t code = resolve_entry(stream, view, find_target(view, offset), rows, entry);
    if (((uintptr_t)entry.row | stream.row_stride_bytes) % stream.load_bytes != 0)
        entry.flags |= ENTRY_UNALIGNED;
    entry.flags |= code << ENTRY_CODE_SHIFT;
    entries[threadIdx.x] = entry;
    if (stream.mask)
        stream.mask[window * stream.mask_window_stride_bytes + first_step + threadIdx.x] = (uint8_t)code;
}

#endif
