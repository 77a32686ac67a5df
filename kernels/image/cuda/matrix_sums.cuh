/* What the kernels that sum by matrix products share: items of work, the ring of source rows, sums, and
 * tensors. image_matrix.cu explains them. */
#ifndef TRAJD_KERNELS_IMAGE_CUDA_MATRIX_SUMS_CUH
#define TRAJD_KERNELS_IMAGE_CUDA_MATRIX_SUMS_CUH

#include "kernels/image/cuda/image_launch.h"
#include "kernels/image/cuda/instructions.cuh"
#include "kernels/image/cuda/image_out.cuh"

#define HEAD_BYTES 1024
#define BLOCK_ROWS 8 /* source rows of a product */
#define TILE_ROWS 8  /* output rows of a product */
#define TILE_PIXELS 4
#define BLOCKS 2 /* of a multiprocessor */

struct matrix_problem {
    struct trajd_image_program program;
    struct trajd_image_matrix matrix;
    const char *records;
    const uint32_t *tables; /* of the plan, or of all frames */
    uint32_t record_bytes, item_count;
};

struct matrix_head {
    uint64_t full[TRAJD_IMAGE_CHUNKS_MAX], empty[TRAJD_IMAGE_CHUNKS_MAX];
};

/* An item of work: row tiles [tile, end_tile) of a band of a frame, made of `bytes` bytes from
 * `first_byte` on of the rows of source blocks [block, end_block). */
struct matrix_item {
    uint32_t frame, band, tile, end_tile, block, end_block, first_byte, bytes;
};

/* The part of an item that does not depend on the frame. */
__device__ __forceinline__ matrix_item part_of(const struct trajd_image_matrix &m, uint32_t number)
{
    const uint32_t strips = number / m.bands, strip = strips % m.strips;
    matrix_item made = {};

    made.band = number - strips * m.bands;
    made.frame = strips / m.strips;
    made.tile = strip * m.strip_tiles;
    made.end_tile = min(made.tile + m.strip_tiles, m.row_tiles);
    return made;
}

__device__ __forceinline__ const struct trajd_image_record *record_of(const matrix_problem &problem,
                                                                      uint32_t frame)
{
    return (const struct trajd_image_record *)(problem.records +
                                               (uint64_t)frame * problem.record_bytes);
}

/* A place in the ring. */
struct ring_place {
    uint32_t slot, parity;
};

__device__ __forceinline__ void step_on(ring_place &at, uint32_t chunks)
{
    if (++at.slot == chunks) {
        at.slot = 0;
        at.parity ^= 1;
    }
}

__device__ __forceinline__ const char *source_of(const matrix_problem &problem,
                                                 const matrix_item &it, uint32_t row_bytes)
{
    return (const char *)record_of(problem, it.frame)->source + it.first_byte +
           (uint64_t)(it.block * BLOCK_ROWS) * row_bytes;
}

typedef matrix_item item_maker(const matrix_problem &problem, uint32_t number);

/* One thread loads the rows of all items of this block into the ring. Each row is a bulk copy: the rows
 * in shared memory are shifted against each other. */
template <item_maker ITEM_OF>
__device__ void load_items(const matrix_problem &problem, matrix_head *head, char *ring)
{
    const struct trajd_image_matrix &m = problem.matrix;
    const uint32_t row_bytes = problem.program.from_width * 3;
    ring_place at = {0, 1}; /* the phase before the first one is over */

    for (uint32_t number = blockIdx.x; number < problem.item_count; number += gridDim.x) {
        const matrix_item it = ITEM_OF(problem, number);
        const char *from = source_of(problem, it, row_bytes);
        for (uint32_t block = it.block; block < it.end_block; block++) {
            const uint32_t rows =
                min(problem.program.from_height - block * BLOCK_ROWS, (uint32_t)BLOCK_ROWS);
            char *to = ring + at.slot * BLOCK_ROWS * m.pitch;
            barrier_wait(&head->empty[at.slot], at.parity);
            barrier_arrive_expecting(&head->full[at.slot], rows * it.bytes);
#pragma unroll
            for (uint32_t row = 0; row < BLOCK_ROWS; row++)
                if (row < rows)
                    bulk_load(to + row * m.pitch, from + row * row_bytes, it.bytes,
                              &head->full[at.slot]);
            from += (uint64_t)BLOCK_ROWS * row_bytes;
            step_on(at, m.chunks);
        }
    }
}

/* Loads 32 * STEPS bytes of 8 rows: each lane gets words of row lane / 4. */
template <int STEPS>
__device__ __forceinline__ void load_bytes(uint32_t (&words)[2 * STEPS], const char *from)
{
#pragma unroll
    for (int i = 0; i < STEPS; i += 2) {
        if (i + 1 < STEPS) {
            uint32_t four[4];
            load_matrices(four, from + i * 32);
            words[2 * i] = four[0];
            words[2 * i + 1] = four[1];
            words[2 * i + 2] = four[2];
            words[2 * i + 3] = four[3];
        } else {
            uint32_t two[2];
            load_matrices(two, from + i * 32);
            words[2 * i] = two[0];
            words[2 * i + 1] = two[1];
        }
    }
}

__device__ __forceinline__ uint32_t pair(float low, float high)
{
    const __half2 both = __floats2half2_rn(low, high);

    return *(const uint32_t *)&both;
}

/* What a summing warp keeps. */
template <int TILES, int STEPS, int LIVE> struct columns {
    uint4 weights[TILES][2 * STEPS];
    uint32_t from[TILES];       /* of a tile's first byte in a block of rows, for this lane */
    float sums[LIVE][TILES][4]; /* of unfinished tiles of rows */
};

/* Adds a block of 8 source rows to the sums. `rows`: weights along y, a word a lane and tile of rows. */
template <int TILES, int STEPS, int LIVE>
__device__ __forceinline__ void add_block(columns<TILES, STEPS, LIVE> &c, const char *block,
                                          const uint32_t (&rows)[LIVE])
{
#pragma unroll
    for (int q = 0; q < TILES; q++) {
        uint32_t words[2 * STEPS];
        float d[4] = {};
        load_bytes<STEPS>(words, block + c.from[q]);
#pragma unroll
        for (int i = 0; i < 2 * STEPS; i++)
            multiply(d, c.weights[q][i], __byte_perm(words[i], 0, 0x4140),
                     __byte_perm(words[i], 0, 0x4342));
        const uint32_t low = pair(d[0], d[1]), high = pair(d[2], d[3]);
#pragma unroll
        for (int l = 0; l < LIVE; l++)
            multiply(c.sums[l][q], low, high, rows[l]);
    }
}

template <int TILES> __device__ __forceinline__ void clear(float (&sums)[TILES][4])
{
#pragma unroll
    for (int q = 0; q < TILES; q++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[q][i] = 0;
}

/* Where the elements of a finished tile stand in the warp's shared memory. Rows are shifted against
 * each other, so that lanes write to different banks. */
template <typename T, bool CHW, int TILES> struct stage {
    enum {
        SIZE = (int)sizeof(T),
        PIXELS = TILES * TILE_PIXELS,
        ROW_BYTES = (CHW ? 1 : 3) * PIXELS * SIZE,
        PITCH = (ROW_BYTES + 15) / 16 * 16 + 16,
        PLANE = TILE_ROWS * PITCH + 16,
        CHUNK = ROW_BYTES % 16 ? 8 : 16, /* bytes of a store */
        ROW_CHUNKS = ROW_BYTES / CHUNK,
        CHUNKS = (CHW ? 3 : 1) * TILE_ROWS * ROW_CHUNKS,
    };

    static __device__ __forceinline__ uint32_t place(uint32_t row, uint32_t pixel, uint32_t channel)
    {
        return CHW ? channel * PLANE + row * PITCH + pixel * SIZE
                   : row * PITCH + (pixel * 3 + channel) * SIZE;
    }
};

/* Returns the value, from a register that the compiler keeps: it would load parameters again and again,
 * which takes 30 cycles each time. */
template <typename V> __device__ __forceinline__ V kept(V value)
{
    return __shfl_sync(~0U, value, threadIdx.x % 32);
}

/* A tensor, as a warp writes it. */
template <typename T> struct matrix_tensor {
    float scale, offset; /* of the lane's channel */
    char *elements;
    uint32_t height, width;
    uint32_t x; /* of the warp's first pixel */
    uint32_t lane;
    uint32_t is_whole;
};

template <typename T, bool CHW, int CHUNK>
__device__ __forceinline__ matrix_tensor<T> open_matrix_tensor(const matrix_problem &problem,
                                                               void *output, uint32_t x)
{
    const struct trajd_image_program &p = problem.program;
    const uint32_t channel = threadIdx.x % 32 / 4 % 3;

    return {kept(p.scale[channel]),
            kept(p.offset[channel]),
            (char *)output,
            p.height,
            kept(p.width),
            x,
            kept(threadIdx.x % 32),
            kept((uint32_t)(p.width * (CHW ? 1 : 3) * sizeof(T) % CHUNK == 0 &&
                            (uintptr_t)output % CHUNK == 0))};
}

template <int CHUNK> struct alignas(CHUNK) chunk {
    char bytes[CHUNK];
};

/* Stores the tile of rows that begins at row y. */
template <typename T, bool CHW, int TILES>
__device__ __forceinline__ void store_tile(const matrix_tensor<T> &t, const char *staged,
                                           uint32_t y)
{
    typedef stage<T, CHW, TILES> S;
    typedef chunk<S::CHUNK> C;
    const uint32_t lane = t.lane, plane = t.height * t.width;
    const uint32_t rows = min(t.height - y, (uint32_t)TILE_ROWS), columns = t.width - t.x;

    if (t.is_whole) {
#pragma unroll
        for (int k = 0; k < (S::CHUNKS + 31) / 32; k++) {
            const uint32_t i = lane + 32 * k;
            const uint32_t row = i / S::ROW_CHUNKS % TILE_ROWS, c = i / (S::ROW_CHUNKS * TILE_ROWS),
                           at = i % S::ROW_CHUNKS * S::CHUNK;
            const uint32_t first =
                CHW ? c * plane + (y + row) * t.width + t.x : ((y + row) * t.width + t.x) * 3;
            if (i < (uint32_t)S::CHUNKS && row < rows && at < columns * (CHW ? 1 : 3) * sizeof(T))
                *(C *)(t.elements + (uint64_t)first * sizeof(T) + at) =
                    *(const C *)(staged + c * S::PLANE + row * S::PITCH + at);
        }
        return;
    }
    for (uint32_t i = lane; i < TILE_ROWS * S::PIXELS * 3; i += 32) {
        const uint32_t x = i % S::PIXELS, row = i / S::PIXELS % TILE_ROWS,
                       c = i / (S::PIXELS * TILE_ROWS);
        const uint32_t pixel = (y + row) * t.width + t.x + x;
        if (row < rows && x < columns)
            ((T *)t.elements)[CHW ? c * plane + pixel : pixel * 3 + c] =
                *(const T *)(staged + S::place(row, x, c));
    }
}

/* Makes lifted levels of sums, and clears the sums. */
template <int TILES>
__device__ __forceinline__ void lift_sums(float (&sums)[TILES][4], float (&lifted)[TILES][4])
{
#pragma unroll
    for (int q = 0; q < TILES; q++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            lifted[q][i] = fmaf(sums[q][i], TRAJD_IMAGE_MATRIX_SCALE, TWO_23);
            sums[q][i] = 0;
        }
}

/* Lifts sums number `live`, from L on. Registers have no index: each number has its own code. */
template <int L, int TILES, int STEPS, int LIVE>
__device__ __forceinline__ void lift_live(columns<TILES, STEPS, LIVE> &c, uint32_t live,
                                          float (&lifted)[TILES][4])
{
    if (live == L || L + 1 == LIVE) {
        lift_sums(c.sums[L], lifted);
        keep_apart<L>();
    } else if constexpr (L + 1 < LIVE) {
        lift_live<L + 1>(c, live, lifted);
    }
}

/* Finishes a tile of rows. A lane has, of each tile of columns, 2 pixels side by side of 2 rows in one
 * channel. */
template <typename T, bool CHW, int TILES>
__device__ __forceinline__ void
finish_tile(const matrix_tensor<T> &t, const float (&lifted)[TILES][4], char *staged, uint32_t y)
{
    typedef stage<T, CHW, TILES> S;
    const uint32_t group = t.lane / 4, row = t.lane % 4 * 2;
    const uint32_t channel = group % 3, side = group / 3 * 2;
    const out_channel of = {t.scale, -TWO_23 * t.scale, t.offset};

    __syncwarp(); /* the stores of the tile before have been read */
    if (group < 6)
#pragma unroll
        for (int q = 0; q < TILES; q++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                char *to = staged + S::place(row + i, q * TILE_PIXELS + side, channel);
                bunch<T, 2> two;
#pragma unroll
                for (int k = 0; k < 2; k++)
                    two.v[k] = made<T>(of, lifted[q][2 * k + i]);
                if (CHW)
                    *(bunch<T, 2> *)to = two;
                else {
                    ((T *)to)[0] = two.v[0];
                    ((T *)to)[3] = two.v[1];
                }
            }
    __syncwarp();
    store_tile<T, CHW, TILES>(t, staged, y);
}

/* Gives a block of rows back. */
__device__ __forceinline__ void release(matrix_head *head, const ring_place &at, uint32_t lane)
{
    __syncwarp();
    if (lane == 0)
        barrier_arrive(&head->empty[at.slot]);
}

/* Waits for a block of rows and gives it back at once: for a warp without columns in a band. */
__device__ __forceinline__ void skip_item(const matrix_problem &problem, const matrix_item &it,
                                          matrix_head *head, ring_place &at)
{
    for (uint32_t block = it.block; block < it.end_block; block++) {
        barrier_wait(&head->full[at.slot], at.parity);
        release(head, at, threadIdx.x % 32);
        step_on(at, problem.matrix.chunks);
    }
}

/* The parts of a block's shared memory. */
struct matrix_memory {
    matrix_head *head;
    const uint32_t *tables; /* those that all warps read again and again */
    char *ring, *staged;    /* of the thread's warp */
};

__device__ __forceinline__ matrix_memory open_memory(const matrix_problem &problem, char *memory)
{
    const struct trajd_image_matrix &m = problem.matrix;
    matrix_head *head = (matrix_head *)memory;
    uint32_t *tables = (uint32_t *)(memory + HEAD_BYTES);
    char *ring = memory + HEAD_BYTES + m.table_bytes;

    for (uint32_t i = threadIdx.x; i < m.table_bytes / sizeof *tables; i += blockDim.x)
        tables[i] = problem.tables[i];

    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < m.chunks; i++) {
            barrier_init(&head->full[i], 1);
            barrier_init(&head->empty[i], m.warps);
        }
        bulk_fence();
    }
    __syncthreads();
    return {head, tables, ring,
            ring + m.chunks * BLOCK_ROWS * m.pitch + threadIdx.x / 32 * m.stage_bytes};
}

typedef void matrix_kernel(const matrix_problem);

static inline int launch_matrix(matrix_kernel *kernel, const struct trajd_image_program *program,
                                const struct trajd_image_matrix *matrix, const uint32_t *tables,
                                const struct trajd_image_launch *launch, void *stream)
{
    const matrix_problem problem = {*program,
                                    *matrix,
                                    launch->records,
                                    tables,
                                    launch->record_bytes,
                                    launch->count * matrix->strips * matrix->bands};
    const cudaError_t code = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch->block_shared_bytes);
    cudaLaunchConfig_t config = {};

    config.gridDim =
        dim3(problem.item_count < matrix->grid_blocks ? problem.item_count : matrix->grid_blocks);
    config.blockDim = dim3((matrix->warps + 1) * 32);
    config.dynamicSmemBytes = matrix->shared_bytes;
    config.stream = (cudaStream_t)stream;
    return code ? (int)code : (int)cudaLaunchKernelEx(&config, kernel, problem);
}

#endif
