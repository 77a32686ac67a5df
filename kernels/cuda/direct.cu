/* Streams that are moved by vectors, for little work: a thread goes from offset to output by itself.
 * direct: one stream. side: several of one pair of types, each block serves one of them.
 *
 * Math      resample.h.
 * Shapes    those of tile.cu, vectors of two bytes and more.
 * Requires  addresses aligned to their elements.
 * Moves     what tile.cu moves.
 * Threads   all threads stage the window's stamps in shared memory (windows of up to
 *           stage_rows). Then a thread serves shape.vectors vectors of a target, `lanes` apart,
 *           so that neighbouring threads have neighbouring vectors. All loads of a thread are
 *           issued before the first is used. All threads pass all barriers.
 * Numerics  a from exact integer differences, float, one rounding at the store.
 * Chosen    by shape.c, if one more barrier costs more than a search of the same target by
 *           several threads. side: from 16 steps on, and for more tasks
 *           than `batch` takes. */
#include "kernels/cuda/lean_entry.cuh"

/* Serves tile `number` of `tiles` of the block's window. */
template <typename S, typename O, int V, int K, bool STAGED>
__device__ __forceinline__ void serve_tile(const lean_problem &problem, uint32_t number,
                                           uint32_t tiles, char *memory)
{
    const lean_tile tile = tile_at(problem, number);
    const uint32_t count = tile.step_count * problem.lanes;
    uint32_t step =
        problem.lanes == 1 ? threadIdx.x : __umulhi(threadIdx.x, problem.lanes_reciprocal);
    bool suspect = false;
    int64_t offset =
        threadIdx.x < count ? load_offset(problem, blockIdx.y, tile.first_step + step) : 0;
    lean_window window = open_window(problem, blockIdx.y, memory, number, tiles);
    const lean_output out = output_here(problem, window, tile.first_step);
    if (STAGED && (problem.prefetch & TRAJD_CUDA_STAGE_ROWS) && window.plain)
        window.rows = stage_bytes(memory + lean_stage_bytes(problem.stage_rows), window.rows,
                                  (uint32_t)window.row_count * problem.row_stride_bytes);
    const int64_t *stamps =
        STAGED ? (const int64_t *)(memory + window.stage_shift) : window.stamps_ns;

    stage_wait(window);
    /* the same for all threads of the block, as is the condition above */
    if (!window.plain || !window.aligned) {
        write_slowly<S, O>(problem, tile.first_step, tile.step_count);
        return;
    }
#pragma unroll 1
    for (uint32_t item = threadIdx.x; item < count; item += blockDim.x) {
        uint32_t code;
        if (item >= blockDim.x) { /* the first item was begun before the stamps came */
            step = problem.lanes == 1 ? item : __umulhi(item, problem.lanes_reciprocal);
            offset = load_offset(problem, blockIdx.y, tile.first_step + step);
        }
        const uint32_t lane = item - step * problem.lanes;
        entry made = make_plain_entry<STAGED>(problem, window, stamps, offset,
                                              lane * (uint32_t)(V * sizeof(S)), code);
        vector_of<S, V> low[K], high[K];

#pragma unroll
        for (int k = 0; k < K; k++) {
            const uint32_t vector = lane + k * problem.lanes;
            low[k].raw = high[k].raw = {};
            if (made.row && (K == 1 || vector < problem.vector_count)) {
                low[k] = load_any<S, V>(made.row + vector * (uint32_t)(V * sizeof(S)));
                high[k] =
                    load_any<S, V>(made.row + vector * (uint32_t)(V * sizeof(S)) + made.next_bytes);
            }
        }
        if (lane == 0 && out.mask.steps)
            write_code(problem, out.mask.steps + step, code);
        suspect |= !made.row && problem.edge == TRAJD_EDGE_NAN;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const uint32_t vector = lane + k * problem.lanes;
            if (K > 1 && vector >= problem.vector_count)
                break;
            const vector_of<O, V> value =
                blend<S, O, V>(problem, made.a, low[k], high[k], vector * V);
            store_vector<O, V>(out.at(step) + vector * (uint32_t)(V * sizeof(O)), value);
            suspect |= may_be_lost(value);
        }
    }
    if (__syncthreads_or(suspect)) /* after all masks are written */
        write_slowly<S, O>(problem, tile.first_step, tile.step_count);
}

template <typename S, typename O, int V, int K, bool STAGED>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_BLOCKS_MIN)
    resample_direct(const __grid_constant__ struct lean_problem problem)
{
    extern __shared__ __align__(16) char memory[];

    touch_parameters(problem);
    wait_for_earlier_launches();
    serve_tile<S, O, V, K, STAGED>(problem, blockIdx.x, gridDim.x, memory);
}

/* The streams of a launch, and which blocks along x serve each. */
struct side_problem {
    uint32_t stream_count;
    uint32_t first_tile[TRAJD_CUDA_STREAMS_MAX + 1];
    uint8_t vector_width[TRAJD_CUDA_STREAMS_MAX];
    struct lean_problem streams[TRAJD_CUDA_STREAMS_MAX];
};
static_assert(sizeof(side_problem) <= TRAJD_CUDA_PARAMETER_SIZE_MAX, "a kernel parameter");

template <typename S, typename O, bool STAGED>
__global__ void __launch_bounds__(TRAJD_CUDA_THREADS_MAX, TRAJD_CUDA_BLOCKS_MIN)
    resample_side(const __grid_constant__ struct side_problem problem)
{
    extern __shared__ __align__(16) char memory[];
    uint32_t s = 0;

    while (blockIdx.x >= problem.first_tile[s + 1])
        s++;
    const lean_problem &stream = problem.streams[s];
    const uint32_t number = blockIdx.x - problem.first_tile[s],
                   tiles = problem.first_tile[s + 1] - problem.first_tile[s];

    touch_parameters(stream);
    wait_for_earlier_launches();
    switch (problem.vector_width[s]) { /* the same for all threads of the block */
    case 8:
        if constexpr (sizeof(S) == 2 && sizeof(O) == 2)
            serve_tile<S, O, 8, 1, STAGED>(stream, number, tiles, memory);
        break;
    case 4:
        serve_tile<S, O, 4, 1, STAGED>(stream, number, tiles, memory);
        break;
    case 2:
        serve_tile<S, O, 2, 1, STAGED>(stream, number, tiles, memory);
        break;
    default:
        serve_tile<S, O, 1, 1, STAGED>(stream, number, tiles, memory);
    }
}

static void set_lanes(struct lean_problem *lean, uint32_t vectors)
{
    lean->lanes = (lean->vector_count - 1) / vectors + 1;
    /* exact, because items and lanes are below 2^16 */
    lean->lanes_reciprocal =
        lean->lanes > 1 ? (uint32_t)(((UINT64_C(1) << 32) + lean->lanes - 1) / lean->lanes) : 0;
}

struct direct_pick {
    uint32_t vectors;
    bool is_staged;

    template <typename S, typename O, int V, bool STAGED> lean_kernel *several() const
    {
        if constexpr (V < 8)
            if (vectors == 4)
                return resample_direct<S, O, V, 4, STAGED>;
        return vectors == 2 ? resample_direct<S, O, V, 2, STAGED>
                            : resample_direct<S, O, V, 1, STAGED>;
    }
    template <typename S, typename O, int V> lean_kernel *kernel() const
    {
        return is_staged ? several<S, O, V, true>() : several<S, O, V, false>();
    }
};

extern "C" int trajd_cuda_launch_direct(const struct trajd_cuda_problem *problem, void *stream)
{
    struct lean_problem lean = lean_of(problem, &problem->streams[0]);
    const direct_pick pick = {problem->shape.vectors, lean.stage_rows > 0};

    set_lanes(&lean, problem->shape.vectors);
    return launch_tiles(kernel_of_path(pick, problem->streams[0]), problem, lean, stream);
}

template <typename S, typename O>
static int launch_side(const struct trajd_cuda_problem *problem, const side_problem &side,
                       void *stream)
{
    return launch_kernel(problem->shape.stage_rows ? resample_side<S, O, true>
                                                   : resample_side<S, O, false>,
                         side, dim3(side.first_tile[side.stream_count], problem->window_count),
                         problem->shape.thread_count, trajd_cuda_shared_bytes(problem),
                         problem->shape.overlaps, stream);
}

extern "C" int trajd_cuda_launch_side(const struct trajd_cuda_problem *problem, void *stream)
{
    const uint32_t threads = problem->shape.thread_count;
    side_problem side = {};

    side.stream_count = problem->stream_count;
    for (uint32_t s = 0; s < problem->stream_count; s++) {
        const struct trajd_cuda_stream *from = &problem->streams[s];
        struct lean_problem *lean = &side.streams[s];

        *lean = lean_of(problem, from);
        lean->vector_count = from->feature_count / from->widest_vector;
        lean->load_bytes = (uint8_t)(from->load_bytes / from->vector_width * from->widest_vector);
        lean->tile_steps = max(min(threads / lean->vector_count, problem->shape.tile_steps), 1u);
        set_lanes(lean, 1);
        side.vector_width[s] = from->widest_vector;
        side.first_tile[s + 1] = side.first_tile[s] + (lean->step_count - 1) / lean->tile_steps + 1;
    }
    switch (problem->streams[0].path) {
    case TRAJD_CUDA_BF16:
        return launch_side<__nv_bfloat16, __nv_bfloat16>(problem, side, stream);
    case TRAJD_CUDA_F32:
        return launch_side<float, float>(problem, side, stream);
    case TRAJD_CUDA_F32_BF16:
        return launch_side<float, __nv_bfloat16>(problem, side, stream);
    default:
        return (int)cudaErrorInvalidValue;
    }
}
