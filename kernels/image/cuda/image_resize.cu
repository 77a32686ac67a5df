/* One resize that reduces, and the finish, in one launch.
 *
 * Math      image.h: sums along y, then along x, then rounding to a level and finishing.
 * Shapes    u8 of 3 channels, rows of a multiple of 16 pixels, any filter that does not round between
 *           the axes, padding by 0, any layout and type.
 * Requires  sources at multiples of 16 bytes (bulk loads), sm_90.
 * Moves     each source row from device memory once, but for the rows that two items of a frame share;
 *           the output once. Between the axes float16 in shared memory.
 * Threads   a persistent block has one warp that loads and several that sum. The loading warp brings
 *           source rows, 4 a chunk, into a ring in shared memory by bulk copies: those of the next rows,
 *           and of the next frame, while the others work. 8 rows of the output are a tile. A unit of the
 *           sums along y is 8 source pixels of an output row. The sums along x of a tile are matrix
 *           products: weights times [source pixels x rows], 16 output pixels a warp.
 * Numerics  a byte b becomes the float 2^15 + b by one permutation, without a conversion. Weights
 *           along y are multiples of 2^-15 that add up to 1, so a sum is 2^15 + value, within 0.01
 *           levels; it is rounded to float16 (0.06 levels), and so are the weights along x (0.06); the
 *           products add up in float32.
 * Chosen    for raw frames where image_matrix.cu is slower: few frames, or narrow ones. */
#include "kernels/image/cuda/image_launch.h"
#include "kernels/image/cuda/instructions.cuh"
#include "kernels/image/cuda/image_out.cuh"

#define HEAD_BYTES 1024
#define CHUNK_ROWS 4
#define LIFTED 32768.0F
#define CONSUMERS_BARRIER 1
#define ROW_HEAD 3 /* words of a row's entry: start, length, end */
#define TILE_ROWS 8

struct resize_problem {
    struct trajd_image_program program;
    struct trajd_image_resize resize;
    const char *records;
    const uint32_t *tables;
    uint32_t record_bytes, item_count;
};

/* An item of work: some tiles of a frame. */
struct item {
    uint32_t frame, first_row, end_row; /* of the output */
    uint32_t first_source, end_source;  /* the source rows that it needs */
    uint32_t chunk_count;
};

struct resize_head {
    uint64_t full[TRAJD_IMAGE_CHUNKS_MAX], empty[TRAJD_IMAGE_CHUNKS_MAX];
};

__device__ __forceinline__ const uint32_t *row_entry(const resize_problem &problem, uint32_t row)
{
    return problem.tables + row * (ROW_HEAD + problem.resize.row_stride);
}

__device__ __forceinline__ item item_of(const resize_problem &problem, uint32_t number)
{
    const struct trajd_image_resize &r = problem.resize;
    const uint32_t strip = number % r.strips, rows = r.strip_tiles * TILE_ROWS;
    item made;

    made.frame = number / r.strips;
    made.first_row = strip * rows;
    made.end_row = min(made.first_row + rows, problem.program.height);
    made.first_source = row_entry(problem, made.first_row)[0];
    made.end_source = row_entry(problem, made.end_row - 1)[2];
    made.chunk_count = (made.end_source - made.first_source - 1) / CHUNK_ROWS + 1;
    return made;
}

__device__ __forceinline__ const struct trajd_image_record *record_of(const resize_problem &problem,
                                                                      uint32_t frame)
{
    return (const struct trajd_image_record *)(problem.records +
                                               (uint64_t)frame * problem.record_bytes);
}

/* Loads the rows of all items of this block into the ring, one chunk after the other. */
__device__ void load_items(const resize_problem &problem, resize_head *head, char *ring)
{
    const uint32_t pitch = problem.resize.pitch;
    uint32_t slot = 0, round = 0;

    for (uint32_t number = blockIdx.x; number < problem.item_count; number += gridDim.x) {
        const item it = item_of(problem, number);
        const char *source = (const char *)record_of(problem, it.frame)->source;
        for (uint32_t c = 0; c < it.chunk_count; c++) {
            const uint32_t row = it.first_source + c * CHUNK_ROWS;
            const uint32_t bytes = min(it.end_source - row, (uint32_t)CHUNK_ROWS) * pitch;
            if (round > 0)
                barrier_wait(&head->empty[slot], (round - 1) & 1);
            barrier_arrive_expecting(&head->full[slot], bytes);
            bulk_load(ring + slot * CHUNK_ROWS * pitch, source + (uint64_t)row * pitch, bytes,
                      &head->full[slot]);
            if (++slot == problem.resize.chunks) {
                slot = 0;
                round++;
            }
        }
    }
}

/* A place in the ring. */
struct cursor {
    uint32_t count; /* chunks of the item before it */
    uint32_t slot, parity;
};

/* What a summing thread knows of the ring. */
struct ring_view {
    resize_head *head;
    const char *rows;
    uint32_t chunks;
    cursor ready;    /* behind the chunks that have arrived */
    cursor released; /* behind the chunks that were given back */
};

__device__ __forceinline__ void step_on(cursor &at, uint32_t chunks)
{
    at.count++;
    if (++at.slot == chunks) {
        at.slot = 0;
        at.parity ^= 1;
    }
}

__device__ __forceinline__ void wait_for(ring_view &ring, uint32_t count)
{
    while (ring.ready.count < count) {
        barrier_wait(&ring.head->full[ring.ready.slot], ring.ready.parity);
        step_on(ring.ready, ring.chunks);
    }
}

/* Gives the item's chunks below `count` back, also those between the rows of a tile and the next one. It
 * waits for each: a barrier without a waiting thread could pass two phases, and hang the next wait.
 * Every lane arrives: racecheck does not follow one that arrives for its warp. */
__device__ __forceinline__ void release(ring_view &ring, uint32_t count)
{
    while (ring.released.count < count) {
        wait_for(ring, ring.released.count + 1);
        barrier_arrive(&ring.head->empty[ring.released.slot]);
        step_on(ring.released, ring.chunks);
    }
}

__device__ __forceinline__ void wait_for_consumers(const resize_problem &problem)
{
    wait_for_threads(CONSUMERS_BARRIER, problem.resize.threads);
}

/* Returns 2^15 + byte `Byte` of a word. */
template <int BYTE> __device__ __forceinline__ float lift_15(uint32_t word)
{
    return __uint_as_float(__byte_perm(word, 0x47000000, 0x7404 + BYTE * 16));
}

__device__ __forceinline__ void add_four(float *sums, float weight, uint32_t word)
{
    sums[0] = fmaf(weight, lift_15<0>(word), sums[0]);
    sums[1] = fmaf(weight, lift_15<1>(word), sums[1]);
    sums[2] = fmaf(weight, lift_15<2>(word), sums[2]);
    sums[3] = fmaf(weight, lift_15<3>(word), sums[3]);
}

__device__ __forceinline__ uint32_t pair(float low, float high)
{
    const __half2 both = __floats2half2_rn(low - LIFTED, high - LIFTED);

    return *(const uint32_t *)&both;
}

/* The sums along y of 8 pixels of an output row, stored as a plane a channel. `between`: where the
 * pixels stand in the first plane. */
__device__ __forceinline__ void sum_rows(const resize_problem &problem, const ring_view &ring,
                                         const item &it, const uint32_t *entry, uint32_t group,
                                         __half *between, uint32_t plane)
{
    const uint32_t length = entry[1], pitch = problem.resize.pitch;
    const uint32_t row_count = ring.chunks * CHUNK_ROWS;
    uint32_t place = (ring.released.slot - ring.released.count) * CHUNK_ROWS + entry[0] -
                     it.first_source; /* less than twice around */
    float sums[24];

    place = place >= row_count ? place - row_count : place;
    const char *from = ring.rows + place * pitch + group * 24;
#pragma unroll
    for (int i = 0; i < 24; i++)
        sums[i] = length ? 0 : LIFTED;
#pragma unroll 2
    for (uint32_t k = 0; k < length; k++) {
        const uint2 a = ((const uint2 *)from)[0], b = ((const uint2 *)from)[1],
                    c = ((const uint2 *)from)[2];
        const float weight = __uint_as_float(entry[ROW_HEAD + k]);
        add_four(sums, weight, a.x);
        add_four(sums + 4, weight, a.y);
        add_four(sums + 8, weight, b.x);
        add_four(sums + 12, weight, b.y);
        add_four(sums + 16, weight, c.x);
        add_four(sums + 20, weight, c.y);
        from += pitch;
        if (++place == row_count)
            from -= row_count * pitch;
    }
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const uint4 eight = {pair(sums[c], sums[3 + c]), pair(sums[6 + c], sums[9 + c]),
                             pair(sums[12 + c], sums[15 + c]), pair(sums[18 + c], sums[21 + c])};
        *(uint4 *)(between + c * plane) = eight;
    }
}

/* The entries of a tile's rows, and of the row after it, in shared memory. */
struct tile_rows {
    const uint32_t *words;
    uint32_t stride;

    __device__ __forceinline__ const uint32_t *at(uint32_t row) const
    {
        return words + row * stride;
    }
};

__device__ __forceinline__ void load_entries(const resize_problem &problem, uint32_t tile_row,
                                             uint32_t *words)
{
    const uint32_t stride = ROW_HEAD + problem.resize.row_stride;
    const uint32_t count = min(problem.program.height - tile_row, TILE_ROWS + 1U) * stride;
    const uint32_t *from = row_entry(problem, tile_row);

    for (uint32_t i = threadIdx.x; i < count; i += problem.resize.threads)
        words[i] = from[i];
}

/* The sums along y of a tile: in turns of one unit a thread. */
__device__ void sum_tile(const resize_problem &problem, ring_view &ring, const item &it,
                         uint32_t tile_row, const tile_rows &entries, __half *between)
{
    const struct trajd_image_resize &r = problem.resize;
    const uint32_t rows = min(it.end_row - tile_row, (uint32_t)TILE_ROWS);
    const uint32_t plane = TILE_ROWS * r.between_pitch;
    uint32_t row = threadIdx.x / r.column_groups;
    uint32_t group = threadIdx.x - row * r.column_groups;
    uint32_t next_row = 0, next_group = 0; /* where the next turn begins */

    do {
        next_row += r.turn_rows;
        next_group += r.turn_groups;
        if (next_group >= r.column_groups) {
            next_group -= r.column_groups;
            next_row++;
        }
        const uint32_t last = min(next_group ? next_row : next_row - 1, rows - 1);
        wait_for(ring, (entries.at(last)[2] - it.first_source - 1) / CHUNK_ROWS + 1);
        if (row < rows)
            sum_rows(problem, ring, it, entries.at(row), group,
                     between + row * r.between_pitch + group * 8, plane);
        const uint32_t needed = min(next_row, rows);
        release(ring, tile_row + needed < it.end_row
                          ? (entries.at(needed)[0] - it.first_source) / CHUNK_ROWS
                          : it.chunk_count);
        row += r.turn_rows;
        group += r.turn_groups;
        if (group >= r.column_groups) {
            group -= r.column_groups;
            row++;
        }
    } while (next_row < rows);
}

/* The sums along x of a tile, and the finish: 16 output pixels of 8 rows a warp. A lane gets 2 pixels
 * side by side of 2 rows. */
template <typename T, bool CHW>
__device__ void finish_tile(const resize_problem &problem, const item &it, uint32_t tile_row,
                            const __half *between, const out_tensor<T> &tensor)
{
    const struct trajd_image_resize &r = problem.resize;
    const uint32_t lane = threadIdx.x % 32, plane = TILE_ROWS * r.between_pitch;
    const uint32_t row = tile_row + lane % 4 * 2;
    const uint4 *weights = (const uint4 *)(problem.tables + r.weights) + lane;

    between += lane % 8 * r.between_pitch + lane / 8 * 8;
    for (uint32_t tile = threadIdx.x / 32; tile < r.x_tiles; tile += r.threads / 32) {
        const __half *from = between + problem.tables[r.first_columns + tile];
        const uint4 *weight = weights + tile * r.k_steps * 32;
        const uint32_t x = tile * 16 + lane / 4 * 2;
        float d[3][4] = {};
        for (uint32_t step = 0; step < r.k_steps; step += 2, from += 32, weight += 64) {
            const uint4 a0 = weight[0], a1 = weight[32];
#pragma unroll
            for (int c = 0; c < 3; c++) {
                uint32_t b[4];
                load_matrices(b, from + c * plane);
                multiply(d[c], a0, b[0], b[1]);
                multiply(d[c], a1, b[2], b[3]);
            }
        }
        if (x >= tensor.width)
            continue;
        if (r.clips)
#pragma unroll
            for (int i = 0; i < 12; i++)
                d[i / 4][i % 4] = fminf(fmaxf(d[i / 4][i % 4], 0), 255);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float lifted[2][3] = {
                {d[0][i] + TWO_23, d[1][i] + TWO_23, d[2][i] + TWO_23},
                {d[0][2 + i] + TWO_23, d[1][2 + i] + TWO_23, d[2][2 + i] + TWO_23}};
            if (row + i < it.end_row)
                store_pixels<T, CHW, 2>(tensor, row + i, x, lifted);
        }
    }
}

template <typename T, bool CHW>
__device__ void sum_items(const resize_problem &problem, resize_head *head, char *ring_memory,
                          __half *between, uint32_t *entries)
{
    const uint32_t stride = ROW_HEAD + problem.resize.row_stride;
    ring_view ring = {head, ring_memory, problem.resize.chunks, {}, {}};

    for (uint32_t number = blockIdx.x; number < problem.item_count; number += gridDim.x) {
        const item it = item_of(problem, number);
        const out_tensor<T> tensor =
            open_tensor<T, 2>(problem.program, record_of(problem, it.frame)->output);
        ring.ready.count = ring.released.count = 0;
        load_entries(problem, it.first_row, entries);
        wait_for_consumers(problem);
        for (uint32_t row = it.first_row; row < it.end_row; row += TILE_ROWS) {
            sum_tile(problem, ring, it, row, {entries, stride}, between);
            wait_for_consumers(problem);
            if (row + TILE_ROWS < it.end_row)
                load_entries(problem, row + TILE_ROWS, entries);
            finish_tile<T, CHW>(problem, it, row, between, tensor);
            wait_for_consumers(problem); /* before the next tile overwrites this one */
        }
    }
}

/* Two blocks of 288 threads, or one of 544, have up to 96 registers a thread. */
template <typename T, bool CHW>
__global__ void __launch_bounds__(576, 1)
    image_resize(const __grid_constant__ resize_problem problem)
{
#if __CUDA_ARCH__ >= 900 /* image_choose.c picks it nowhere else */
    extern __shared__ __align__(128) char memory[];
    const struct trajd_image_resize &r = problem.resize;
    resize_head *head = (resize_head *)memory;
    __half *between = (__half *)(memory + HEAD_BYTES);
    const uint32_t between_count = TILE_ROWS * 3 * r.between_pitch;
    char *ring = (char *)(between + between_count);
    uint32_t *entries = (uint32_t *)(ring + r.chunks * CHUNK_ROWS * r.pitch);

    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < r.chunks; i++) {
            barrier_init(&head->full[i], 1);
            barrier_init(&head->empty[i], r.threads);
        }
        bulk_fence();
    }
    /* weights beyond a row are 0, but 0 times a chance bit pattern may be NaN */
    for (uint32_t i = threadIdx.x; i < between_count / 8; i += blockDim.x)
        ((uint4 *)between)[i] = {};
    __syncthreads();
    if (threadIdx.x < r.threads)
        sum_items<T, CHW>(problem, head, ring, between, entries);
    else if (threadIdx.x == r.threads)
        load_items(problem, head, ring);
#endif
}

typedef void resize_kernel(const resize_problem);

template <typename T> static resize_kernel *kernel_of(const struct trajd_image_program *program)
{
    return program->layout == TRAJD_IMAGE_CHW ? image_resize<T, true> : image_resize<T, false>;
}

extern "C" int trajd_image_launch_resize(const struct trajd_image_program *program,
                                         const struct trajd_image_resize *resize,
                                         const void *tables,
                                         const struct trajd_image_launch *launch, void *stream)
{
    const resize_problem problem = {*program,
                                    *resize,
                                    launch->records,
                                    (const uint32_t *)tables,
                                    launch->record_bytes,
                                    launch->count * resize->strips};
    resize_kernel *kernel =
        kernel_for(program, [&](auto element) { return kernel_of<decltype(element)>(program); });
    const cudaError_t code = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)launch->block_shared_bytes);
    const uint32_t blocks =
        problem.item_count < resize->grid_blocks ? problem.item_count : resize->grid_blocks;
    cudaLaunchConfig_t config = {};

    config.gridDim = dim3(blocks);
    config.blockDim = dim3(resize->threads + 32);
    config.dynamicSmemBytes = resize->shared_bytes;
    config.stream = (cudaStream_t)stream;
    return code ? (int)code : (int)cudaLaunchKernelEx(&config, kernel, problem);
}
