/* One stream, moved by vectors: linear, previous, nearest. The lean sibling of full.cu, whose every thread executes a few
 * hundred instructions: where launches take microseconds, time is the chain of dependent instructions and loads.
 *
 * Math      resample.h.
 * Shapes    one stream on one bracket, at most 65535 windows, strides of a row or step below 4 GiB; else full.cu.
 *           A block serves a tile of shape.tile_steps targets of one window; a tile has at most as many targets as threads.
 * Requires  addresses aligned to their elements; nothing else is asked of alignment, D or the order of targets.
 * Moves     counts and anchors (not for dense problems), offsets, stamps, two rows a target; output and mask once.
 * Threads   find: all bring the window's stamps to shared memory (windows of up to stage_rows), then a thread a target.
 *           values: a thread keeps a vector of features and goes from target to target; `walk`: along a run of targets, its two
 *           rows in registers. Two barriers, passed by all.
 * Numerics  a from exact integer differences, float, one rounding at the store.
 * Chosen    shape.c.
 */
#include "kernels/cuda/launch.h"
#include "kernels/cuda/lean.cuh"

typedef tile_output<uint32_t, own_mask> lean_output;

template <typename W>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_BLOCKS_MIN)
    resample_tile(const __grid_constant__ struct lean_problem problem)
{
    extern __shared__ __align__(16) char memory[];
    const trajd_cuda_stream &stream = problem.stream;
    entry *entries = (entry *)memory;
    int64_t *stage = (int64_t *)(entries + problem.shape.tile_steps);
    const uint32_t window = blockIdx.y, first_step = blockIdx.x * problem.shape.tile_steps;
    const uint32_t here = min(problem.bracket.step_count - first_step, problem.shape.tile_steps);
    const lean_output out = {
        stream.output + window * stream.window_stride_bytes + first_step * stream.step_stride_bytes,
        (uint32_t)stream.step_stride_bytes,
        (uint32_t)stream.row_stride_bytes,
        {stream.mask ? stream.mask + window * stream.mask_window_stride_bytes + first_step : NULL}};

    find_entries(problem, window, first_step, here, entries, stage);
    __syncthreads();
    W::write(stream, entries, here, out);
}

template <typename S, typename O, int V> struct step_writer {
    static __device__ __forceinline__ void write(const trajd_cuda_stream &stream, const entry *entries, uint32_t here,
                                                 const lean_output &out)
    {
        write_values<S, O, V>(stream, entries, here, out);
    }
};

template <typename S, typename O, int V> struct walk_writer {
    static __device__ __forceinline__ void write(const trajd_cuda_stream &stream, const entry *entries, uint32_t here,
                                                 const lean_output &out)
    {
        walk_values<S, O, V>(stream, entries, here, out);
    }
};

template <int V> struct copy_writer {
    static __device__ __forceinline__ void write(const trajd_cuda_stream &stream, const entry *entries, uint32_t here,
                                                 const lean_output &out)
    {
        copy_values<V>(stream, entries, here, out);
    }
};

typedef void lean_kernel(const struct lean_problem problem);

template <typename S, typename O, int V> static lean_kernel *walking(bool walk)
{
    return walk ? resample_tile<walk_writer<S, O, V>> : resample_tile<step_writer<S, O, V>>;
}

template <typename S, typename O> static lean_kernel *narrow_kernel(uint32_t vector_width, bool walk)
{
    switch (vector_width) {
    case 4: return walking<S, O, 4>(walk);
    case 2: return walking<S, O, 2>(walk);
    default: return walking<S, O, 1>(walk);
    }
}

static lean_kernel *kernel_of(uint32_t path, uint32_t vector_width, bool walk)
{
    switch (path) {
    case TRAJD_CUDA_BF16:
        return vector_width == 8 ? walking<__nv_bfloat16, __nv_bfloat16, 8>(walk)
                                 : narrow_kernel<__nv_bfloat16, __nv_bfloat16>(vector_width, walk);
    case TRAJD_CUDA_F16:
        return vector_width == 8 ? walking<__half, __half, 8>(walk)
                                 : narrow_kernel<__half, __half>(vector_width, walk);
    case TRAJD_CUDA_F32: return narrow_kernel<float, float>(vector_width, walk);
    case TRAJD_CUDA_F32_BF16: return narrow_kernel<float, __nv_bfloat16>(vector_width, walk);
    case TRAJD_CUDA_BF16_F32: return narrow_kernel<__nv_bfloat16, float>(vector_width, walk);
    case TRAJD_CUDA_COPY:
        return vector_width == 16  ? resample_tile<copy_writer<16>>
               : vector_width == 4 ? resample_tile<copy_writer<4>>
                                   : resample_tile<copy_writer<1>>;
    default: return NULL;
    }
}

extern "C" int trajd_cuda_launch_tile(const struct trajd_cuda_problem *problem, void *stream)
{
    const struct trajd_cuda_stream *only = &problem->streams[0];
    struct lean_problem lean = {problem->brackets[0], *only, problem->shape};
    lean_kernel *kernel = kernel_of(only->path, only->vector_width, problem->shape.walk);
    dim3 grid((problem->step_count_max - 1) / problem->shape.tile_steps + 1, problem->window_count);

    if (!kernel)
        return (int)cudaErrorInvalidValue;
    kernel<<<grid, problem->shape.thread_count, trajd_cuda_shared_bytes(problem), (cudaStream_t)stream>>>(lean);
    return (int)cudaGetLastError();
}
