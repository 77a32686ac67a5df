/* One resize, and the finish, in one launch: the sums along both axes are matrix products.
 *
 * Math      image.h: sums along x, then along y, then rounding to a level and finishing.
 * Shapes    u8 of 3 channels, rows of a multiple of 16 pixels, any filter that does not round between
 *           the axes, padding by 0, any layout and type. image_matrix_cut.c says how far it enlarges
 *           and reduces.
 * Requires  sources at multiples of 16 bytes (bulk loads), sm_90.
 * Moves     each source row from device memory once, but for the rows that two items of a frame share
 *           and the columns that two bands share; the output once.
 * Threads   a persistent block has one thread that loads and warps that sum. It brings
 *           blocks of 8 source rows into a ring in shared memory. A summing warp has some output
 *           columns for itself, from the first source row to the last one, so it waits for the
 *           loading thread alone. 4 pixels are a tile of 16 sums along x: 3 channels each, and 4
 *           unused sums. Its weights stay in registers; those along y are in shared memory.
 *           For each block of 8 source rows and each tile: [weights 16 x bytes] * [bytes x 8 rows]; the
 *           result, as float16, is the left operand of [16 x 8 rows] * [weights 8 rows x 8 output rows].
 *           Nothing goes through shared memory between the axes. A finished tile of 8 output rows goes
 *           through shared memory of the warp, so that stores are of 16 bytes.
 * Numerics  two bytes become two float16 by one permutation: byte * 2^-24, below the normal numbers,
 *           exact. Weights are rounded to float16, and so are the sums between the axes: 3 times 0.06
 *           levels at most. The products add up in float32.
 * Chosen    for raw frames of 256 columns and more, many in a launch (image_choose.c). */
#include "kernels/image/cuda/matrix_sums.cuh"

__device__ __forceinline__ matrix_item matrix_item_of(const matrix_problem &problem,
                                                      uint32_t number)
{
    const struct trajd_image_matrix &m = problem.matrix;
    const uint32_t *spans = problem.tables + m.row_spans;
    matrix_item made = part_of(m, number);

    made.block = spans[2 * made.tile];
    made.end_block = spans[2 * made.end_tile - 1];
    made.first_byte = problem.tables[m.band_spans + 2 * made.band];
    made.bytes = problem.tables[m.band_spans + 2 * made.band + 1];
    return made;
}

/* Opens the columns of a group: their weights, and where their bytes are in a block of rows. */
template <int TILES, int STEPS, int LIVE>
__device__ __forceinline__ void open_columns(const matrix_problem &problem, uint32_t first,
                                             uint32_t group, columns<TILES, STEPS, LIVE> &c)
{
    const struct trajd_image_matrix &m = problem.matrix;
    const uint32_t lane = threadIdx.x % 32;
    const uint4 *weights = (const uint4 *)(problem.tables + m.columns) + lane;

#pragma unroll
    for (int q = 0; q < TILES; q++) {
        const uint32_t tile = group * TILES + q;
        c.from[q] =
            problem.tables[m.column_firsts + tile] - first + lane % 8 * m.pitch + lane / 8 * 16;
#pragma unroll
        for (int i = 0; i < 2 * STEPS; i++)
            c.weights[q][i] = weights[(tile * 2 * STEPS + i) * 32];
    }
#pragma unroll
    for (int l = 0; l < LIVE; l++)
        clear(c.sums[l]);
}

template <int TILES> __device__ __forceinline__ void clip(float (&lifted)[TILES][4])
{
#pragma unroll
    for (int q = 0; q < TILES; q++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            lifted[q][i] = fminf(fmaxf(lifted[q][i], TWO_23), TWO_23 + 255);
}

template <typename T, bool CHW, int TILES, int STEPS, int LIVE>
__device__ __forceinline__ void sum_item(const matrix_problem &problem, const matrix_item &it,
                                         uint32_t group, const matrix_memory &parts, ring_place &at)
{
    const struct trajd_image_matrix &m = problem.matrix;
    const uint32_t *firsts = parts.tables + m.tile_firsts;
    const uint32_t *weights = parts.tables + m.rows;
    const matrix_tensor<T> tensor = open_matrix_tensor<T, CHW, stage<T, CHW, TILES>::CHUNK>(
        problem, record_of(problem, it.frame)->output, group * TILES * TILE_PIXELS);
    const uint32_t chunk_bytes = kept(BLOCK_ROWS * m.pitch);
    columns<TILES, STEPS, LIVE> c;
    uint32_t next = firsts[it.block],
             tile = min(next, it.tile); /* the first that is not finished */

    open_columns(problem, it.first_byte, group, c);
    for (uint32_t block = it.block; block <= it.end_block; block++) {
        uint32_t rows[LIVE];
        for (; tile < min(next, it.end_tile); tile++) { /* those that need no row from here on */
            float lifted[TILES][4];
            lift_live<0>(c, tile % LIVE, lifted);
            if (m.clips)
                clip(lifted);
            if (tile >= it.tile) /* the others belong to the item before */
                finish_tile<T, CHW>(tensor, lifted, parts.staged, tile * TILE_ROWS);
        }
        if (block == it.end_block)
            break;
        next = block + 1 < it.end_block ? firsts[block + 1] : it.end_tile;
#pragma unroll
        for (int l = 0; l < LIVE; l++)
            rows[l] = weights[(block * LIVE + l) * 32 + tensor.lane];
        barrier_wait(&parts.head->full[at.slot], at.parity);
        add_block(c, parts.ring + at.slot * chunk_bytes, rows);
        release(parts.head, at, tensor.lane);
        step_on(at, m.chunks);
    }
}

template <typename T, bool CHW, int TILES, int STEPS, int LIVE, int WARPS>
__global__ void __launch_bounds__((WARPS + 1) * 32, BLOCKS)
    image_matrix(const __grid_constant__ matrix_problem problem)
{
#if __CUDA_ARCH__ >= 900 /* image_choose.c picks it nowhere else */
    extern __shared__ __align__(128) char memory[];
    const struct trajd_image_matrix &m = problem.matrix;
    const matrix_memory parts = open_memory(problem, memory);
    const uint32_t warp = threadIdx.x / 32;
    ring_place at = {0, 0};

    if (warp == m.warps) {
        if (threadIdx.x % 32 == 0)
            load_items<matrix_item_of>(problem, parts.head, parts.ring);
        return;
    }
    for (uint32_t number = blockIdx.x; number < problem.item_count; number += gridDim.x) {
        const matrix_item it = matrix_item_of(problem, number);
        const uint32_t group = it.band * m.warps + warp;
        if (group < m.groups)
            sum_item<T, CHW, TILES, STEPS, LIVE>(problem, it, group, parts, at);
        else
            skip_item(problem, it, parts.head, at);
    }
#endif
}

/* A shape of image_matrix_cut.c. */
template <typename T, bool CHW>
static matrix_kernel *kernel_of(const struct trajd_image_matrix *matrix)
{
    if (matrix->tiles == 2)
        return image_matrix<T, CHW, 2, 4, 3, 5>;
    if (matrix->steps == 1)
        return image_matrix<T, CHW, 4, 1, 3, 7>;
    return matrix->live == 2 ? image_matrix<T, CHW, 4, 2, 2, 5> : image_matrix<T, CHW, 4, 2, 3, 5>;
}

template <typename T>
static matrix_kernel *kernel_of(const struct trajd_image_program *program,
                                const struct trajd_image_matrix *matrix)
{
    return program->layout == TRAJD_IMAGE_CHW ? kernel_of<T, true>(matrix)
                                              : kernel_of<T, false>(matrix);
}

extern "C" int trajd_image_launch_matrix(const struct trajd_image_program *program,
                                         const struct trajd_image_matrix *matrix,
                                         const void *tables,
                                         const struct trajd_image_launch *launch, void *stream)
{
    return launch_matrix(
        kernel_for(program,
                   [&](auto element) { return kernel_of<decltype(element)>(program, matrix); }),
        program, matrix, (const uint32_t *)tables, launch, stream);
}
