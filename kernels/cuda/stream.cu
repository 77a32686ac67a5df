/* One stream whose output is hundreds of megabytes: some warps find and load while others compute
 * and store.
 *
 * Math      resample.h.
 * Shapes    steps that follow each other in the output, rows and steps of 16-byte vectors, bf16
 *           or f32 as they are stored.
 * Requires  sm_90.
 * Moves     what tile.cu moves.
 * Threads   a persistent grid; blocks take tiles in turn. shape.producers of a block's eight
 *           warps find the targets of a tile, each warp a tile of its own. They write the
 *           entries to one of shape.stages stages, and start one bulk load of the rows from the
 *           first to the last, which completes on the stage's barrier. The other warps wait for
 *           that barrier. Each forms a share of the steps, a chunk at a time, in one of two
 *           buffers, and sends each chunk off with a bulk store. A second barrier hands stages
 *           back. Rows that do not fit a stage are read from memory.
 * Numerics  a from exact integer differences, float, one rounding at the store.
 * Chosen    only by a table: kernels/README.md says what it loses to. */
#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/lean_entry.cuh"

#define WARPS 8u

struct stream_problem {
    struct lean_problem lean;
    uint64_t tile_count; /* over all windows */
    uint32_t tiles_per_window;
    uint32_t producers;
    uint32_t stages;
    uint32_t stage_row_bytes;
    uint32_t chunk_steps;
};

/* The head of a stage, for its consumers. */
struct stage_head {
    const char *staged_from; /* global address of the first staged byte */
    char *output;            /* output of the tile's first step */
    uint8_t *mask;
    uint32_t step_count;
    uint16_t staged;
    uint16_t aligned;
};

struct stage_view {
    stage_head *head;
    entry *entries;
    char *rows;
};

__device__ __forceinline__ stage_view stage_at(const stream_problem &problem, char *memory,
                                               uint32_t stage)
{
    const uint32_t entries = problem.lean.tile_steps * (uint32_t)sizeof(entry);
    char *at = memory + stage * (entries + problem.stage_row_bytes + TRAJD_CUDA_STAGE_HEAD_BYTES);

    return {(stage_head *)at, (entry *)(at + TRAJD_CUDA_STAGE_HEAD_BYTES),
            at + TRAJD_CUDA_STAGE_HEAD_BYTES + entries};
}

/* The next stage of the ring, and how often the ring was passed, modulo 2. */
struct ring_place {
    uint32_t stage;
    uint32_t phase;
};

__device__ __forceinline__ void advance(ring_place &place, uint32_t stages)
{
    if (++place.stage == stages) {
        place.stage = 0;
        place.phase ^= 1;
    }
}

/* Fills a stage with one tile: writes its entries and head, and starts loading its rows. Called by
 * one warp. */
__device__ __forceinline__ void fill_stage(const stream_problem &problem, uint64_t number,
                                           const stage_view &stage, uint64_t *full)
{
    const lean_problem &lean = problem.lean;
    const uint32_t window_index = (uint32_t)(number / problem.tiles_per_window),
                   lane = threadIdx.x % 32;
    const lean_tile tile =
        tile_at(lean, (uint32_t)(number - (uint64_t)window_index * problem.tiles_per_window));
    int64_t offset =
        lane < tile.step_count ? load_offset(lean, window_index, tile.first_step + lane) : 0;
    lean_window window = open_window(lean, window_index, NULL);
    uint32_t lowest = UINT32_MAX, highest = 0;
    bool all_near = window.aligned && window.rows;
    const lean_output out = output_here(lean, window, tile.first_step);

    set_rate(window);
    for (uint32_t step = lane; step < tile.step_count; step += 32) {
        uint32_t code;
        if (step >= 32)
            offset = load_offset(lean, window_index, tile.first_step + step);
        const entry made = make_entry(lean, window, NULL, window_index, offset, code);
        stage.entries[step] = made;
        if (out.mask.steps)
            write_code(lean, out.mask.steps + step, code);
        const uint64_t begin = (uint64_t)(made.row - window.rows) / 16u;
        all_near &= made.row != NULL && begin >> 31 == 0;
        lowest = min(lowest, (uint32_t)begin);
        highest = max(highest, (uint32_t)begin + made.next_bytes / 16u + lean.vector_count);
    }
    lowest = __reduce_min_sync(0xffffffffu, lowest);
    highest = __reduce_max_sync(0xffffffffu, highest);
    all_near = __all_sync(0xffffffffu, all_near) &&
               (uint64_t)(highest - lowest) * 16u <= problem.stage_row_bytes;
    if (lane == 0)
        *stage.head = {window.rows + (uint64_t)lowest * 16u,
                       out.first,
                       out.mask.steps,
                       tile.step_count,
                       all_near,
                       window.aligned};
    if (lane == 0 && all_near) {
        barrier_arrive_expecting(full, (highest - lowest) * 16u);
        bulk_load(stage.rows, window.rows + (uint64_t)lowest * 16u, (highest - lowest) * 16u, full);
    } else {
        barrier_arrive(full);
    }
}

/* Reads rows from a stage or from global memory, and writes steps into a warp's buffer. */
template <typename O, int V> struct stage_writer {
    char *first; /* the vector's place in the tile's first step, if that were in the buffer */
    uint32_t step_stride_bytes;
    int64_t shift; /* from a row to its copy */

    template <typename S> __device__ __forceinline__ vector_of<S, V> load(const char *from) const
    {
        return load_any<S, V>(from + shift);
    }
    __device__ __forceinline__ char *at(uint32_t step) const
    {
        return first + step * step_stride_bytes;
    }
    __device__ __forceinline__ void store(uint32_t step, const vector_of<O, V> &vector) const
    {
        store_vector<O, V>(at(step), vector);
    }
};

/* Forms steps [begin, end) of a tile in shared memory. Called by one warp. */
template <typename S, typename O, int V>
__device__ __forceinline__ void form_chunk(const lean_problem &lean, const stage_view &stage,
                                           uint32_t vector_count, uint32_t begin, uint32_t end,
                                           char *buffer)
{
    const lane_place lane = place_lane({threadIdx.x % 32, 32}, vector_count);
    const stage_head head = *stage.head;
    const step_run part = run_of(lane, vector_count, end - begin);
    const step_run run = {begin + part.first, part.stride, part.count};
    char *tile = buffer - begin * lean.step_stride_bytes;

#pragma unroll 1
    for (uint32_t vector = lane.vector; vector < vector_count; vector += lane.vector_step) {
        const stage_writer<O, V> writer = {tile + vector * (uint32_t)(V * sizeof(O)),
                                           lean.step_stride_bytes,
                                           head.staged ? stage.rows - head.staged_from : 0};
        if (!walk_run<S, O, V>(lean, stage.entries, run, vector, writer))
            continue;
#pragma unroll 1
        for (uint32_t i = 0, t = run.first; i < run.count; i++, t += run.stride)
            if (look_closer<S, O, V>(lean.scale, lean.offset, lean.edge, stage.entries[t], vector,
                                     writer.at(t)))
                own_mask{head.mask}.mark(t);
    }
}

/* Serves a consumer's share of a tile. `turn` counts its chunks over all tiles. */
template <typename S, typename O, int V>
__device__ __forceinline__ void serve_stage(const stream_problem &problem, const stage_view &stage,
                                            uint32_t consumer, char *buffers, uint32_t &turn)
{
    const lean_problem &lean = problem.lean;
    const uint32_t count = stage.head->step_count, consumers = WARPS - problem.producers;
    const uint32_t share = (count + consumers - 1) / consumers,
                   end = min(count, (consumer + 1) * share);
    const uint32_t chunk_bytes = problem.chunk_steps * lean.step_stride_bytes;

    for (uint32_t begin = consumer * share; begin < end; begin += problem.chunk_steps, turn++) {
        const uint32_t stop = min(end, begin + problem.chunk_steps);
        char *buffer = buffers + (turn & 1) * chunk_bytes;
        if (threadIdx.x % 32 == 0)
            bulk_wait_but_one();
        __syncwarp();
        if (stage.head->aligned)
            form_chunk<S, O, V>(lean, stage, lean.vector_count, begin, stop, buffer);
        else
            form_chunk<S, O, 1>(lean, stage, lean.feature_count, begin, stop, buffer);
        bulk_fence();
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            bulk_store(stage.head->output + (uint64_t)begin * lean.step_stride_bytes, buffer,
                       (stop - begin) * lean.step_stride_bytes);
    }
}

template <typename S, typename O, int V>
__global__ void __launch_bounds__(WARPS * 32, 3)
    resample_stream(const __grid_constant__ struct stream_problem problem)
{
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    __shared__ uint64_t full[TRAJD_CUDA_STAGES_MAX], empty[TRAJD_CUDA_STAGES_MAX];
    const uint32_t warp = threadIdx.x / 32;
    /* blocks that run side by side write side by side: tiles in turn are 3% faster than a run of
     * tiles per block */
    const uint32_t count = (uint32_t)((problem.tile_count - 1 - blockIdx.x) / gridDim.x + 1);

    if (threadIdx.x < problem.stages) {
        /* every lane arrives for what it wrote or read itself */
        barrier_init(&full[threadIdx.x], 32);
        barrier_init(&empty[threadIdx.x], (WARPS - problem.producers) * 32);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    wait_for_earlier_launches();
    if (problem.lean.asking_blocks)
        ask_for_all(problem.lean, blockIdx.x, gridDim.x);
    ring_place place = {0, 0};
    if (warp < problem.producers) {
        for (uint32_t k = 0; k < count; k++) {
            /* wait for the tiles of other warps too: a barrier's phases can be told apart only by a
             * thread that waited for each of them */
            barrier_wait(&empty[place.stage], place.phase ^ 1);
            if (k % problem.producers == warp)
                fill_stage(problem, blockIdx.x + (uint64_t)k * gridDim.x,
                           stage_at(problem, memory, place.stage), &full[place.stage]);
            advance(place, problem.stages);
        }
    } else {
        const uint32_t consumer = warp - problem.producers;
        char *buffers = (char *)stage_at(problem, memory, problem.stages).head +
                        consumer * 2 * problem.chunk_steps * problem.lean.step_stride_bytes;
        uint32_t turn = 0;
        for (uint32_t k = 0; k < count; k++) {
            barrier_wait(&full[place.stage], place.phase);
            serve_stage<S, O, V>(problem, stage_at(problem, memory, place.stage), consumer, buffers,
                                 turn);
            barrier_arrive(&empty[place.stage]);
            advance(place, problem.stages);
        }
        if (threadIdx.x % 32 == 0)
            bulk_wait_all();
    }
#endif
}

extern "C" int trajd_cuda_launch_stream(const struct trajd_cuda_problem *problem, uint32_t sm_count,
                                        void *stream)
{
    const struct trajd_cuda_shape *shape = &problem->shape;
    void (*kernel)(const struct stream_problem) =
        problem->streams[0].path == TRAJD_CUDA_BF16
            ? resample_stream<__nv_bfloat16, __nv_bfloat16, 8>
            : resample_stream<float, float, 4>;
    uint32_t shared_bytes = (uint32_t)trajd_cuda_shared_bytes(problem);
    struct stream_problem whole = {};
    uint64_t blocks = (uint64_t)sm_count * shape->tiles_per_block;
    cudaError_t code;

    whole.lean = lean_of(problem);
    whole.lean.stage_rows = 0; /* no staged stamps: they are read from global memory */
    whole.tiles_per_window = (problem->step_count_max - 1) / shape->tile_steps + 1;
    whole.tile_count = (uint64_t)whole.tiles_per_window * problem->window_count;
    whole.producers = shape->producers;
    whole.stages = shape->stages;
    whole.stage_row_bytes = shape->stage_rows * whole.lean.row_stride_bytes;
    whole.chunk_steps = trajd_cuda_chunk_steps(problem);
    /* it is set for the kernel as a whole, so all threads that launch must set the same */
    code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                TRAJD_CUDA_STREAM_BYTES_MAX);
    if (code != cudaSuccess)
        return (int)code;
    return launch_kernel(kernel, whole,
                         dim3((uint32_t)(blocks < whole.tile_count ? blocks : whole.tile_count)),
                         WARPS * 32, shared_bytes, shape->overlaps, stream);
}
