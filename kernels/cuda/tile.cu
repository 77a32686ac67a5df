/* One stream on a clock of stamps, moved by vectors: linear, previous, nearest. It is the lean
 * version of full.cu, where every thread executes a few hundred instructions. When launches take
 * microseconds, time is the chain of dependent instructions and loads.
 *
 * Math      resample.h.
 * Shapes    at most 65535 windows, strides of a row or step below 4 GiB; otherwise full.cu. A
 *           block serves a tile of shape.tile_steps targets of one window.
 * Requires  addresses aligned to their elements; nothing else about alignment, D or the order of
 *           targets.
 * Moves     counts and anchors (not for dense problems), offsets, stamps, two rows per target;
 *           output and mask once.
 * Threads   all threads stage the window's stamps in shared memory (windows of up to
 *           stage_rows). steps: then a thread per target makes the entries, then a thread keeps
 *           a vector of features and goes from target to target. walk: a thread goes along a run
 *           of targets, with its two rows in registers. All threads pass all barriers.
 * Numerics  a from exact integer differences, float, one rounding at the store.
 * Chosen    by shape.c. */
#include "kernels/cuda/lean_entry.cuh"

/* How the threads write the values once the entries are there. `write` is the fast path, for
 * aligned rows; it returns whether it met a rare value. `write_any` handles everything. */
template <typename S, typename O, int V> struct step_writer {
    static constexpr int BLOCKS_MIN = TRAJD_CUDA_BLOCKS_MIN;
    static constexpr bool ASKS = false;

    static __device__ __forceinline__ bool write(const lean_problem &stream, const entry *entries,
                                                 uint32_t here, const lean_output &out)
    {
        return write_values<S, O, V, false>(whole_block(), stream, stream.vector_count, entries,
                                            here, out);
    }
    static __device__ __forceinline__ void write_any(const lean_problem &stream,
                                                     const entry *entries, uint32_t here,
                                                     bool aligned, const lean_output &out)
    {
        if (aligned)
            write_values<S, O, V, true>(whole_block(), stream, stream.vector_count, entries, here,
                                        out);
        else
            write_values<S, O, 1, true>(whole_block(), stream, stream.feature_count, entries, here,
                                        out);
    }
    static __device__ __forceinline__ void write_again(const lean_problem &problem,
                                                       const lean_tile &tile)
    {
        write_slowly<S, O>(problem, tile.first_step, tile.step_count);
    }
};

template <typename S, typename O, int V> struct walk_writer : step_writer<S, O, V> {
    static constexpr int BLOCKS_MIN = TRAJD_CUDA_WALK_BLOCKS_MIN;
    static constexpr bool ASKS = true;

    static __device__ __forceinline__ bool write(const lean_problem &stream, const entry *entries,
                                                 uint32_t here, const lean_output &out)
    {
        return walk_values<S, O, V>(whole_block(), stream, stream.vector_count, entries, here, out);
    }
};

template <int V> struct copy_writer {
    static constexpr int BLOCKS_MIN = TRAJD_CUDA_BLOCKS_MIN;
    static constexpr bool ASKS = false;

    static __device__ __forceinline__ bool write(const lean_problem &stream, const entry *entries,
                                                 uint32_t here, const lean_output &out)
    {
        copy_values<V>(whole_block(), stream.vector_count, entries, here, out);
        return false;
    }
    static __device__ __forceinline__ void write_any(const lean_problem &stream,
                                                     const entry *entries, uint32_t here,
                                                     bool aligned, const lean_output &out)
    {
        if (aligned)
            copy_values<V>(whole_block(), stream.vector_count, entries, here, out);
        else
            copy_values<1>(whole_block(), stream.vector_count * V, entries, here, out);
    }
    static __device__ __forceinline__ void write_again(const lean_problem &, const lean_tile &)
    {
    }
};

/* Serves windows that are not plain: regular clocks, grids of rows, unaligned rows. A separate
 * function that reads all from memory, so that the fast path keeps its registers. */
template <typename W>
static __device__ __noinline__ void serve_any(const lean_problem &problem, lean_tile tile,
                                              entry *entries)
{
    char *staged = (char *)(entries + problem.tile_steps);
    lean_window window = open_window(problem, blockIdx.y, staged);
    const lean_output out = output_here(problem, window, tile.first_step);
    uint32_t code;

    stage_wait(window);
#pragma unroll 1
    for (uint32_t step = threadIdx.x; step < tile.step_count; step += blockDim.x) {
        entries[step] =
            make_entry(problem, window, (const int64_t *)(staged + window.stage_shift), blockIdx.y,
                       load_offset(problem, blockIdx.y, tile.first_step + step), code);
        if (out.mask.steps)
            write_code(problem, out.mask.steps + step, code);
    }
    __syncthreads();
    W::write_any(problem, entries, tile.step_count, window.aligned, out);
}

/* Makes the entries and masks of a tile. The first offset of each thread was loaded before. */
template <bool STAGED>
__device__ __forceinline__ void find_entries(const lean_problem &problem, const lean_window &window,
                                             const lean_tile &tile, const int64_t *stamps,
                                             int64_t offset, entry *entries, const lean_output &out)
{
#pragma unroll 1
    for (uint32_t step = threadIdx.x; step < tile.step_count; step += blockDim.x) {
        uint32_t code;
        if (step >= blockDim.x)
            offset = load_offset(problem, blockIdx.y, tile.first_step + step);
        entries[step] = make_plain_entry<STAGED>(problem, window, stamps, offset, 0, code);
        if (out.mask.steps)
            write_code(problem, out.mask.steps + step, code);
    }
}

template <typename W>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, W::BLOCKS_MIN)
    resample_tile(const __grid_constant__ struct lean_problem problem)
{
    extern __shared__ __align__(16) char memory[];
    entry *entries = (entry *)memory;
    const lean_tile tile = tile_at(problem, blockIdx.x);

    touch_parameters(problem);
    wait_for_earlier_launches();
    if (W::ASKS)
        ask_ahead(problem);
    const int64_t offset = threadIdx.x < tile.step_count
                               ? load_offset(problem, blockIdx.y, tile.first_step + threadIdx.x)
                               : 0;
    char *staged = (char *)(entries + problem.tile_steps);
    lean_window window = open_window(problem, blockIdx.y, staged);

    stage_wait(window);
    if (!window.plain || !window.aligned) { /* the same for all threads of the block */
        serve_any<W>(problem, tile, entries);
        return;
    }
    const lean_output out = output_here(problem, window, tile.first_step);
    if (window.staged)
        find_entries<true>(problem, window, tile, (const int64_t *)(staged + window.stage_shift),
                           offset, entries, out);
    else
        find_entries<false>(problem, window, tile, window.stamps_ns, offset, entries, out);
    __syncthreads();
    if (__syncthreads_or(W::write(problem, entries, tile.step_count, out)))
        W::write_again(problem, tile);
}

struct tile_pick {
    uint32_t style;

    /* the widest vectors can also walk */
    template <typename S, typename O, int V> lean_kernel *kernel() const
    {
        if constexpr (V * sizeof(S) == 16 || V * sizeof(O) == 16)
            if (style == TRAJD_CUDA_WALK)
                return resample_tile<walk_writer<S, O, V>>;
        return resample_tile<step_writer<S, O, V>>;
    }
};

static lean_kernel *kernel_of(const struct trajd_cuda_stream &stream, const tile_pick &pick)
{
    switch (stream.path) {
    case TRAJD_CUDA_F16:
        return kernel_of_width<__half, __half>(pick, stream.vector_width);
    case TRAJD_CUDA_BF16_F32:
        return kernel_of_width<__nv_bfloat16, float>(pick, stream.vector_width);
    case TRAJD_CUDA_COPY:
        return stream.vector_width == 16  ? resample_tile<copy_writer<16>>
               : stream.vector_width == 4 ? resample_tile<copy_writer<4>>
                                          : resample_tile<copy_writer<1>>;
    default:
        return kernel_of_path(pick, stream);
    }
}

extern "C" int trajd_cuda_launch_tile(const struct trajd_cuda_problem *problem, void *stream)
{
    return launch_tiles(kernel_of(problem->streams[0], {problem->shape.style}), problem,
                        lean_of(problem, &problem->streams[0]), stream);
}
