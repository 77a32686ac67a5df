/* One stream on one bracket whose steps are a few dozen bytes: a thread serves a target with all
 * its features.
 *
 * Math      resample.h.
 * Shapes    steps of at most TRAJD_CUDA_NARROW_BYTES bytes that follow each other in the output;
 *           otherwise as tile.cu.
 * Requires  addresses aligned to their elements.
 * Moves     what tile.cu moves. With TRAJD_CUDA_STAGE_ROWS, all rows of the window, loaded
 *           before it is known which are used: this saves a trip to memory.
 * Threads   all threads stage stamps (and rows) in shared memory. Then a thread finds its target
 *           and forms its step there. Then all threads write the tile, 16 bytes at a time, for
 *           any output address and any D. All threads pass all barriers.
 * Numerics  a from exact integer differences, float, one rounding at the store.
 * Chosen    by shape.c, for narrow steps: one search serves all features, and stores are whole
 *           sectors. */
#include "kernels/cuda/lean_entry.cuh"

#define VECTORS_IN_FLIGHT 4u

/* Forms one step. Returns whether it may not be finite. */
template <typename S, typename O, int V>
__device__ __forceinline__ bool form_step(const lean_problem &problem, const entry &made, char *to)
{
    bool suspect = false;

#pragma unroll 1
    for (uint32_t first = 0; first < problem.vector_count; first += VECTORS_IN_FLIGHT) {
        vector_of<S, V> low[VECTORS_IN_FLIGHT], high[VECTORS_IN_FLIGHT];
#pragma unroll
        for (uint32_t k = 0; k < VECTORS_IN_FLIGHT; k++) {
            low[k].raw = high[k].raw = {};
            if (made.row && first + k < problem.vector_count) {
                low[k] = load_any<S, V>(made.row + (first + k) * (uint32_t)(V * sizeof(S)));
                high[k] = load_any<S, V>(made.row + (first + k) * (uint32_t)(V * sizeof(S)) +
                                         made.next_bytes);
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < VECTORS_IN_FLIGHT; k++) {
            if (first + k >= problem.vector_count)
                break;
            const vector_of<O, V> value =
                blend<S, O, V>(problem, made.a, low[k], high[k], (first + k) * V);
            store_vector<O, V>(to + (first + k) * (uint32_t)(V * sizeof(O)), value);
            suspect |= may_be_lost(value);
        }
    }
    return suspect || (!made.row && problem.edge == TRAJD_EDGE_NAN);
}

/* Writes `size_bytes` bytes of elements of at least two bytes. They are in `stage` with the same
 * offset within a 16-byte granule as in memory. */
__device__ __forceinline__ void write_bytes(const char *stage, char *to, uint32_t size_bytes)
{
    const uint32_t shift = (uint32_t)(uintptr_t)to & 15u, end = shift + size_bytes;

    to -= shift;
    for (uint32_t at = threadIdx.x * 16u; at < end; at += blockDim.x * 16u) {
        if (at >= shift && at + 16u <= end) {
            *(uint4 *)(to + at) = *(const uint4 *)(stage + at);
        } else {
            for (uint32_t k = max(at, shift); k < min(at + 16u, end); k += 2u)
                *(uint16_t *)(to + k) = *(const uint16_t *)(stage + k);
        }
    }
}

template <typename S, typename O, int V, bool STAGED>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_BLOCKS_MIN)
    resample_narrow(const __grid_constant__ struct lean_problem problem)
{
    extern __shared__ __align__(16) char memory[];
    const lean_tile tile = tile_at(problem, blockIdx.x);
    const uint32_t step_bytes = problem.step_stride_bytes;
    char *results = memory + lean_stage_bytes(problem.stage_rows);
    bool suspect = false;

    touch_parameters(problem);
    wait_for_earlier_launches();
    int64_t offset = threadIdx.x < tile.step_count
                         ? load_offset(problem, blockIdx.y, tile.first_step + threadIdx.x)
                         : 0;
    lean_window window = open_window(problem, blockIdx.y, memory);
    const lean_output out = output_here(problem, window, tile.first_step);
    const int64_t *stamps =
        STAGED ? (const int64_t *)(memory + window.stage_shift) : window.stamps_ns;

    if (STAGED && (problem.prefetch & TRAJD_CUDA_STAGE_ROWS)) {
        char *rows = results;
        results += lean_rows_bytes(problem.stage_rows, problem.row_stride_bytes);
        if (window.plain)
            window.rows = stage_bytes(rows, window.rows,
                                      (uint32_t)window.row_count * problem.row_stride_bytes);
    }
    stage_wait(window);
    /* the same for all threads of the block, as is the condition above */
    if (!window.plain || !window.aligned) {
        write_slowly<S, O>(problem, tile.first_step, tile.step_count);
        return;
    }
    char *first = results + ((uint32_t)(uintptr_t)out.first & 15u);
#pragma unroll 1
    for (uint32_t step = threadIdx.x; step < tile.step_count; step += blockDim.x) {
        uint32_t code;
        if (step >= blockDim.x)
            offset = load_offset(problem, blockIdx.y, tile.first_step + step);
        const entry made = make_plain_entry<STAGED>(problem, window, stamps, offset, 0, code);
        suspect |= form_step<S, O, V>(problem, made, first + step * step_bytes);
        if (out.mask.steps)
            write_code(problem, out.mask.steps + step, code);
    }
    if (__syncthreads_or(suspect))
        write_slowly<S, O>(problem, tile.first_step, tile.step_count);
    else
        write_bytes(results, out.first, tile.step_count * step_bytes);
}

struct narrow_pick {
    bool is_staged;

    template <typename S, typename O, int V> lean_kernel *kernel() const
    {
        return is_staged ? resample_narrow<S, O, V, true> : resample_narrow<S, O, V, false>;
    }
};

extern "C" int trajd_cuda_launch_narrow(const struct trajd_cuda_problem *problem, void *stream)
{
    const narrow_pick pick = {problem->shape.stage_rows > 0};

    return launch_tiles(kernel_of_path(pick, problem->streams[0]), problem,
                        lean_of(problem, &problem->streams[0]), stream);
}
