/* The parameters of the kernels of one stream, and how they open a window: reading its place,
 * staging its stamps, and prefetching. */
#ifndef TRAJD_KERNELS_CUDA_LEAN_CUH
#define TRAJD_KERNELS_CUDA_LEAN_CUH

#include <cuda_pipeline.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

/* About as many blocks as run first, on current GPUs. */
#define ASKING_BLOCKS 1024u

/* One bracket and one stream. The fields are in the order of use, because a kernel waits for its
 * parameters too. */
struct lean_problem {
    const int64_t *offsets;
    uint64_t offsets_per_window;
    const int64_t *stamps_ns; /* NULL: a regular clock, or stamps are not needed */
    const int64_t *row_begin; /* NULL: the dense problem */
    const int64_t *row_count;
    const int64_t *anchor;
    const char *base;
    const void *const *bases;
    const uint32_t *window_rows;
    int64_t dense_rows;
    uint32_t row_stride_bytes;
    uint32_t step_count;
    uint32_t tile_steps;
    uint32_t stage_rows;
    uint32_t vector_count;
    /* direct kernel: threads that share a target, and 2^32 / lanes rounded up */
    uint32_t lanes;
    uint32_t lanes_reciprocal;
    uint8_t unit;
    uint8_t kind;
    uint8_t edge;
    uint8_t prefetch;
    uint8_t load_bytes;
    uint8_t mask_continues;
    uint8_t searches; /* targets are searched in stamps */
    uint32_t zero;    /* 0, for lane_zero */
    uint32_t window_count;
    /* number of first blocks that prefetch all that the launch reads; 0: none */
    uint32_t asking_blocks;
    uint64_t max_gap_width; /* a wider interval is a gap */
    char *output;
    uint64_t window_stride_bytes;
    uint8_t *mask;
    uint64_t mask_window_stride_bytes;
    uint32_t step_stride_bytes;
    uint32_t feature_count;
    const float *scale;
    const float *offset;
    int64_t max_gap_ns;
    int64_t max_age_ns;
    uint64_t first_column_bytes;
    struct trajd_rate rate;
};

static inline struct lean_problem lean_of(const struct trajd_cuda_problem *problem,
                                          const struct trajd_cuda_stream *stream)
{
    const struct trajd_cuda_bracket *bracket = &problem->brackets[stream->bracket_index];
    struct lean_problem lean = {};

    lean.offsets = bracket->offsets;
    lean.offsets_per_window = bracket->offsets_per_window;
    lean.stamps_ns = bracket->stamps_ns;
    lean.row_begin = bracket->row_begin;
    lean.row_count = bracket->row_count;
    lean.anchor = bracket->anchor;
    lean.base = stream->base;
    lean.bases = stream->bases;
    lean.window_rows = problem->window_rows;
    lean.dense_rows = bracket->dense_rows;
    lean.row_stride_bytes = (uint32_t)stream->row_stride_bytes;
    lean.step_count = bracket->step_count;
    lean.tile_steps = problem->shape.tile_steps;
    lean.stage_rows = problem->shape.stage_rows;
    lean.vector_count = stream->vector_count;
    lean.unit = (uint8_t)bracket->unit;
    lean.kind = stream->kind;
    lean.edge = stream->edge;
    lean.prefetch = problem->shape.prefetch;
    lean.load_bytes = stream->load_bytes;
    lean.mask_continues = stream->mask_continues;
    lean.window_count = problem->window_count;
    lean.asking_blocks = problem->shape.prefetch & TRAJD_CUDA_PREFETCH_ALL ? ASKING_BLOCKS : 0;
    lean.searches = bracket->stamps_ns && bracket->unit == TRAJD_GRID_NS;
    lean.max_gap_width = stream->max_gap_ns < 0 ? UINT64_MAX : (uint64_t)stream->max_gap_ns;
    lean.output = stream->output;
    lean.window_stride_bytes = stream->window_stride_bytes;
    lean.mask = stream->mask;
    lean.mask_window_stride_bytes = stream->mask_window_stride_bytes;
    lean.step_stride_bytes = (uint32_t)stream->step_stride_bytes;
    lean.feature_count = stream->feature_count;
    lean.scale = stream->scale;
    lean.offset = stream->offset;
    lean.max_gap_ns = stream->max_gap_ns;
    lean.max_age_ns = stream->max_age_ns;
    lean.first_column_bytes = stream->first_column_bytes;
    lean.rate = bracket->rate;
    return lean;
}

/* A window as all threads of its blocks see it. */
struct lean_window {
    const int64_t *stamps_ns; /* local row 0, in global memory */
    const char *rows;         /* NULL: missing */
    int64_t row_count;
    int64_t anchor;
    int64_t first_ns, last_ns; /* these two and rows_per_ns: only for searchable windows */
    float rows_per_ns;
    uint32_t place;       /* the window's row of the outputs */
    uint32_t stage_shift; /* where the first stamp is in the stage */
    bool staged;
    /* its targets can be searched by a guess and four stamps around it: in the stage, if the kernel
     * has one */
    bool plain;
    /* vectors can be loaded from its rows; with `bases`, only the device knows that */
    bool aligned;
};

#define PREFETCH_LINE_BYTES 128u

/* Reads the parameters that the way to the output needs while the launch before this one still
 * runs. A kernel's first read of a line of parameters is a trip to memory. */
__device__ __forceinline__ void touch_parameters(const lean_problem &problem)
{
    asm volatile("" ::"l"(problem.offsets), "l"(problem.stamps_ns), "l"(problem.base),
                 "r"(problem.row_stride_bytes), "r"(problem.vector_count), "l"(problem.output),
                 "l"(problem.mask), "l"(problem.mask_window_stride_bytes), "l"(problem.scale),
                 "l"(problem.max_age_ns), "l"(problem.max_gap_width));
}

/* Prefetches one of `parts` shares of some bytes into the L2 cache. All threads of the block call
 * it. Does nothing from 4 GiB on. */
__device__ __forceinline__ void ask_for(const char *from, uint64_t size_bytes, uint32_t part,
                                        uint32_t parts)
{
    if (size_bytes >> 32)
        return;
    uint32_t lines = ((uint32_t)size_bytes + PREFETCH_LINE_BYTES - 1) / PREFETCH_LINE_BYTES;

    for (uint32_t line = part * blockDim.x + threadIdx.x; line < lines; line += parts * blockDim.x)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + (uint64_t)line * PREFETCH_LINE_BYTES));
}

/* Prefetches everything that the launch reads, by block `block` of `blocks`. Reads among the writes
 * of large outputs cost the memory several times what they cost before the first write. */
static __device__ __noinline__ void ask_for_all(const lean_problem &problem, uint32_t block,
                                                uint32_t blocks)
{
    const uint32_t parts = max(blocks / problem.window_count, 1u);

    for (uint64_t item = block; item < (uint64_t)problem.window_count * parts; item += blocks) {
        const uint32_t window = (uint32_t)(item / parts),
                       part = (uint32_t)(item - (uint64_t)window * parts);
        int64_t row_begin = window * problem.dense_rows, row_count = problem.dense_rows;
        const char *rows;

        if (problem.row_begin) {
            row_begin = problem.row_begin[window];
            row_count = max(problem.row_count[window], (int64_t)0);
        }
        rows = problem.bases ? (const char *)problem.bases[window]
                             : problem.base + row_begin * (int64_t)problem.row_stride_bytes;
        if (rows)
            ask_for(rows, row_count * problem.row_stride_bytes, part, parts);
        if (problem.searches)
            ask_for((const char *)(problem.stamps_ns + row_begin), row_count * 8, part, parts);
        if (problem.offsets_per_window)
            ask_for((const char *)(problem.offsets + window * problem.offsets_per_window),
                    problem.step_count * 8ull, part, parts);
    }
}

/* Calls ask_for_all in the first blocks, numbered along x, then along windows. */
__device__ __forceinline__ void ask_ahead(const lean_problem &problem)
{
    if (problem.asking_blocks && blockIdx.y * gridDim.x + blockIdx.x < problem.asking_blocks)
        ask_for_all(problem, blockIdx.y * gridDim.x + blockIdx.x,
                    min(gridDim.x * gridDim.y, problem.asking_blocks));
}

__device__ __forceinline__ int64_t load_offset(const lean_problem &problem, uint32_t window,
                                               uint32_t step)
{
    return __ldg(problem.offsets + window * problem.offsets_per_window + step);
}

/* Copies the 16-byte granules that hold some bytes to shared memory. All threads of the block call
 * it. Returns the place of the first byte. The other bytes of the first and last granule are never
 * used. */
__device__ __forceinline__ char *stage_bytes(char *stage, const char *from, uint32_t size_bytes)
{
    const uint32_t shift = (uint32_t)(uintptr_t)from & 15u,
                   granules = (shift + size_bytes + 15u) / 16u;

    from -= shift;
    for (uint32_t i = threadIdx.x; i < granules; i += blockDim.x)
        __pipeline_memcpy_async(stage + i * 16u, from + i * 16u, 16);
    return stage + shift;
}

/* Returns a 0 that the compiler cannot see. A value loaded from an address that contains it stays
 * in a register of each thread. Otherwise the compiler moves the value to a uniform register at
 * once, and so waits for it before it issues the next loads. */
__device__ __forceinline__ uint32_t lane_zero(const lean_problem &problem)
{
    return threadIdx.x & problem.zero;
}

/* Loads a value. The load is issued after all loads that stand before it. */
__device__ __forceinline__ int64_t load_behind(const int64_t *address)
{
    int64_t value;

    asm volatile("ld.global.nc.s64 %0, [%1];" : "=l"(value) : "l"(address));
    return value;
}

/* Reads the place of a window and starts loading its stamps: all of them if they fit into the
 * stage. stage_wait must follow. The block is number `part` of the `parts` that serve the window. */
__device__ __forceinline__ lean_window open_window(const lean_problem &problem, uint32_t window,
                                                   char *stage, uint32_t part = blockIdx.x,
                                                   uint32_t parts = gridDim.x)
{
    int64_t row_begin = window * problem.dense_rows;
    lean_window opened;

    opened.row_count = problem.dense_rows;
    opened.anchor = 0;
    opened.rows = problem.base;
    opened.place = window;
    opened.first_ns = opened.last_ns = 0;
    opened.rows_per_ns = 0;
    if (problem.bases)
        opened.rows = (const char *)__ldg((const unsigned long long *)problem.bases + window +
                                          lane_zero(problem));
    if (problem.window_rows)
        opened.place = __ldg(problem.window_rows + window + lane_zero(problem));
    if (problem.row_begin) {
        row_begin = __ldg(problem.row_begin + window);
        opened.row_count = __ldg(problem.row_count + window);
        opened.anchor = __ldg(problem.anchor + window);
    }
    const int64_t *stamps = problem.stamps_ns + row_begin;
    opened.stamps_ns = stamps;
    opened.plain = problem.searches && opened.row_count > 0 && opened.row_count <= INT32_MAX;
    opened.staged = opened.plain && opened.row_count <= problem.stage_rows;
    opened.stage_shift = (uint32_t)(uintptr_t)stamps & 15u;
    if (opened.staged)
        stage_bytes(stage, (const char *)stamps, (uint32_t)opened.row_count * 8u);
    else if (opened.plain && (problem.prefetch & TRAJD_CUDA_PREFETCH_STAMPS))
        ask_for((const char *)stamps, opened.row_count * sizeof(int64_t), part, parts);
    if (!problem.bases)
        opened.rows += row_begin * (int64_t)problem.row_stride_bytes;
    else if (opened.rows)
        opened.rows += problem.first_column_bytes;
    opened.aligned = ((uintptr_t)opened.rows & (problem.load_bytes - 1u)) == 0;
    if ((problem.prefetch & TRAJD_CUDA_PREFETCH_ROWS) && opened.rows)
        ask_for(opened.rows, opened.row_count * problem.row_stride_bytes, part, parts);
    if (opened.plain) {
        opened.first_ns = load_behind(stamps);
        opened.last_ns = load_behind(stamps + (int32_t)opened.row_count - 1);
    }
    opened.plain = opened.plain && opened.rows != NULL && opened.staged == (problem.stage_rows > 0);
    return opened;
}

__device__ __forceinline__ void stage_wait(lean_window &window)
{
    if (window.plain) /* while the stamps come */
        window.rows_per_ns =
            __fdividef((float)((int32_t)window.row_count - 1),
                       float_of((uint64_t)window.last_ns - (uint64_t)window.first_ns));
    if (window.staged) { /* the same for all threads of the block */
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
    }
}

#endif
