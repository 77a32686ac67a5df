/* Random resized crops, and the finish, in one launch: image_matrix.cu with taps that each frame has
 * of its own.
 *
 * Math      augment.h: the sums of a box, along x and along y, rounding to a level, finishing.
 * Shapes    u8 of 3 channels, rows of a multiple of 16 pixels, whole boxes and bilinear filters, any
 *           layout and type.
 * Requires  the tables of all boxes (image_general.cu makes them), sources at multiples of 16 bytes,
 *           sm_90.
 * Threads   as image_matrix.cu. A lane makes its weights of the frame's tables: those along x once an
 *           item, those along y for each block of source rows.
 *           A small box becomes a large image: 8 source rows may belong to more tiles of rows than a
 *           warp has sums for. Then the warp adds the block again for the next tiles. Of a box of few
 *           blocks, it keeps all of them and goes from tile to tile.
 * Numerics  as image_matrix.cu.
 * Chosen    for a random resized crop alone. */
#include "kernels/image/cuda/matrix_sums.cuh"

#define TILES 4
#define LIVE 3
#define WARPS 5

/* The taps along one axis of a frame. */
struct frame_taps {
    const uint32_t *words;
    uint32_t stride, count;

    __device__ __forceinline__ const uint32_t *at(uint32_t output) const
    {
        return words + min(output, count - 1) * stride;
    }
    __device__ __forceinline__ uint32_t end(uint32_t output) const
    {
        const uint32_t *entry = at(output);

        return entry[0] + entry[1];
    }
};

__device__ __forceinline__ frame_taps taps_of(const matrix_problem &problem, uint32_t frame,
                                              const struct trajd_image_axis_table &axis)
{
    return {problem.tables + (uint64_t)frame * problem.program.own_table_words + axis.first_word,
            2 + axis.stride, axis.count};
}

__device__ __forceinline__ uint32_t first_block(const frame_taps &rows, uint32_t tile)
{
    return rows.at(tile * TILE_ROWS)[0] / BLOCK_ROWS;
}

__device__ __forceinline__ uint32_t end_block(const frame_taps &rows, uint32_t tile)
{
    return (rows.end(tile * TILE_ROWS + TILE_ROWS - 1) - 1) / BLOCK_ROWS + 1;
}

__device__ __forceinline__ matrix_item crop_item_of(const matrix_problem &problem, uint32_t number)
{
    const struct trajd_image_matrix &m = problem.matrix;
    matrix_item made = part_of(m, number);
    const frame_taps rows = taps_of(problem, made.frame, problem.program.steps[0].y);
    const frame_taps columns = taps_of(problem, made.frame, problem.program.steps[0].x);
    const uint32_t pixels = m.warps * TILES * TILE_PIXELS, end = (made.band + 1) * pixels;

    made.block = first_block(rows, made.tile);
    made.end_block = end_block(rows, made.end_tile - 1);
    made.first_byte = columns.at(made.band * pixels)[0] * 3 & ~15U;
    made.bytes = ((columns.end(end - 1) * 3 + 15) & ~15U) - made.first_byte;
    return made;
}

__device__ __forceinline__ float weight_at(const uint32_t *entry, uint32_t pixel)
{
    const uint32_t k = pixel - entry[0];
    const bool is_inside = k < entry[1];
    const float weight = __uint_as_float(entry[2 + (is_inside ? k : 0)]); /* without a branch */

    return is_inside ? weight : 0;
}

template <int STEPS> __device__ __forceinline__ void clear_all(columns<TILES, STEPS, LIVE> &c)
{
#pragma unroll
    for (int l = 0; l < LIVE; l++)
        clear(c.sums[l]);
}

/* Opens the columns of a group: their weights, and where their bytes are in a block of rows. Rows 0 to 5
 * and 8 to 13 of a tile are pixels 0, 2 and 1, 3 with 3 channels each. */
template <int STEPS>
__device__ __forceinline__ void open_columns(const matrix_problem &problem, const matrix_item &it,
                                             uint32_t group, columns<TILES, STEPS, LIVE> &c)
{
    const frame_taps taps = taps_of(problem, it.frame, problem.program.steps[0].x);
    const uint32_t lane = threadIdx.x % 32, channel = lane / 4 % 3;

#pragma unroll
    for (int q = 0; q < TILES; q++) {
        const uint32_t pixel = (group * TILES + q) * TILE_PIXELS;
        const uint32_t first = taps.at(pixel)[0] * 3 & ~15U;
        c.from[q] = first - it.first_byte + lane % 8 * problem.matrix.pitch + lane / 8 * 16;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const uint32_t output = pixel + lane / 12 * 2 + side;
            const uint32_t *entry = taps.at(output);
            const bool is_used = lane < 24 && output < taps.count;
#pragma unroll
            for (int i = 0; i < 4 * STEPS; i++) { /* 2 bytes each */
                const uint32_t byte = first + i / 2 * 16 + lane % 4 * 4 + i % 2 * 2;
                float two[2];
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const float weight = weight_at(entry, (byte + k) / 3);
                    two[k] = is_used && (byte + k) % 3 == channel
                                 ? weight * (16777216 / TRAJD_IMAGE_MATRIX_SCALE)
                                 : 0;
                }
                uint32_t *words = (uint32_t *)&c.weights[q][i / 2];
                words[i % 2 * 2 + side] = pair(two[0], two[1]);
            }
        }
    }
    clear_all(c);
}

/* The weights of a source block for tiles of rows from `tile` on, but for those below `added`. The sums
 * of a tile are number tile % LIVE. */
__device__ __forceinline__ void weigh_rows(const frame_taps &taps, uint32_t block, uint32_t tile,
                                           uint32_t added, uint32_t (&rows)[LIVE])
{
    const uint32_t lane = threadIdx.x % 32, from = block * BLOCK_ROWS + lane % 4 * 2;

#pragma unroll
    for (int l = 0; l < LIVE; l++) {
        const uint32_t at = tile + (l + LIVE - tile % LIVE) % LIVE;
        const uint32_t output = at * TILE_ROWS + lane / 4;
        const uint32_t *entry = taps.at(output);
        const uint32_t both = pair(weight_at(entry, from), weight_at(entry, from + 1));
        rows[l] = at >= added && output < taps.count ? both : 0;
    }
}

/* What a warp works on. */
template <typename T, int STEPS> struct crop_work {
    matrix_tensor<T> tensor;
    frame_taps rows;
    columns<TILES, STEPS, LIVE> columns_of;
};

template <typename T, bool CHW, int STEPS>
__device__ __forceinline__ void finish(crop_work<T, STEPS> &work, uint32_t tile, char *staged)
{
    float lifted[TILES][4];

    lift_live<0>(work.columns_of, tile % LIVE, lifted);
    finish_tile<T, CHW>(work.tensor, lifted, staged, tile * TILE_ROWS);
}

/* Goes from block to block: each tile is finished after its last one. */
template <typename T, bool CHW, int STEPS>
__device__ __forceinline__ void sum_blocks(const matrix_problem &problem, const matrix_item &it,
                                           const matrix_memory &parts, crop_work<T, STEPS> &work,
                                           ring_place &at)
{
    uint32_t tile = it.tile;

    for (uint32_t block = it.block; block < it.end_block; block++) {
        const char *rows = parts.ring + at.slot * BLOCK_ROWS * problem.matrix.pitch;
        uint32_t added = tile; /* tiles below it have this block */
        barrier_wait(&parts.head->full[at.slot], at.parity);
        do {
            uint32_t weights[LIVE];
            weigh_rows(work.rows, block, tile, added, weights);
            add_block(work.columns_of, rows, weights);
            added = min(tile + LIVE, it.end_tile);
            for (; tile < added && end_block(work.rows, tile) <= block + 1; tile++)
                finish<T, CHW>(work, tile, parts.staged);
        } while (added < it.end_tile && first_block(work.rows, added) <= block);
        release(parts.head, at, work.tensor.lane);
        step_on(at, problem.matrix.chunks);
    }
}

/* Goes from tile to tile, with all blocks in the ring. */
template <typename T, bool CHW, int STEPS>
__device__ __forceinline__ void sum_tiles(const matrix_problem &problem, const matrix_item &it,
                                          const matrix_memory &parts, crop_work<T, STEPS> &work,
                                          ring_place &at)
{
    const struct trajd_image_matrix &m = problem.matrix;
    ring_place arriving = at;

    for (uint32_t block = it.block; block < it.end_block; block++) {
        barrier_wait(&parts.head->full[arriving.slot], arriving.parity);
        step_on(arriving, m.chunks);
    }
    for (uint32_t tile = it.tile; tile < it.end_tile; tile += LIVE) {
        const uint32_t end = min(tile + LIVE, it.end_tile);
        const uint32_t last = end_block(work.rows, end - 1);
        for (uint32_t block = first_block(work.rows, tile); block < last; block++) {
            const uint32_t place = at.slot + block - it.block;
            const uint32_t slot = place < m.chunks ? place : place - m.chunks;
            uint32_t weights[LIVE];
            weigh_rows(work.rows, block, tile, 0, weights);
            add_block(work.columns_of, parts.ring + slot * BLOCK_ROWS * m.pitch, weights);
        }
        for (uint32_t i = tile; i < end; i++)
            finish<T, CHW>(work, i, parts.staged);
        clear_all(work.columns_of); /* sums of tiles behind the item */
    }
    for (uint32_t block = it.block; block < it.end_block; block++) {
        release(parts.head, at, work.tensor.lane);
        step_on(at, m.chunks);
    }
}

template <typename T, bool CHW, int STEPS>
__device__ __forceinline__ void sum_item(const matrix_problem &problem, const matrix_item &it,
                                         uint32_t group, const matrix_memory &parts, ring_place &at)
{
    const uint32_t blocks = it.end_block - it.block;
    crop_work<T, STEPS> work = {
        open_matrix_tensor<T, CHW, stage<T, CHW, TILES>::CHUNK>(
            problem, record_of(problem, it.frame)->output, group * TILES * TILE_PIXELS),
        taps_of(problem, it.frame, problem.program.steps[0].y),
        {}};

    open_columns(problem, it, group, work.columns_of);
    if (blocks <= TRAJD_IMAGE_CROP_BLOCKS || blocks * 3 <= it.end_tile - it.tile)
        sum_tiles<T, CHW>(problem, it, parts, work, at);
    else
        sum_blocks<T, CHW>(problem, it, parts, work, at);
}

template <typename T, bool CHW, int STEPS>
__global__ void __launch_bounds__((WARPS + 1) * 32, BLOCKS)
    image_crop(const __grid_constant__ matrix_problem problem)
{
#if __CUDA_ARCH__ >= 900 /* image_choose.c picks it nowhere else */
    extern __shared__ __align__(128) char memory[];
    const struct trajd_image_matrix &m = problem.matrix;
    const matrix_memory parts = open_memory(problem, memory);
    const uint32_t warp = threadIdx.x / 32;
    ring_place at = {0, 0};

    if (warp == m.warps) {
        if (threadIdx.x % 32 == 0)
            load_items<crop_item_of>(problem, parts.head, parts.ring);
        return;
    }
    for (uint32_t number = blockIdx.x; number < problem.item_count; number += gridDim.x) {
        const matrix_item it = crop_item_of(problem, number);
        const uint32_t group = it.band * m.warps + warp;
        if (group < m.groups)
            sum_item<T, CHW, STEPS>(problem, it, group, parts, at);
        else
            skip_item(problem, it, parts.head, at);
    }
#endif
}

typedef void crop_kernel(const matrix_problem);

template <typename T>
static crop_kernel *kernel_of(const struct trajd_image_program *program, uint32_t steps)
{
    if (program->layout == TRAJD_IMAGE_CHW)
        return steps == 1 ? image_crop<T, true, 1> : image_crop<T, true, 2>;
    return steps == 1 ? image_crop<T, false, 1> : image_crop<T, false, 2>;
}

extern "C" int trajd_image_launch_crop(const struct trajd_image_program *program,
                                       const struct trajd_image_matrix *matrix,
                                       const struct trajd_image_launch *launch, void *stream)
{
    return launch_matrix(kernel_for(program,
                                    [&](auto element) {
                                        return kernel_of<decltype(element)>(program, matrix->steps);
                                    }),
                         program, matrix, launch->own_tables, launch, stream);
}
