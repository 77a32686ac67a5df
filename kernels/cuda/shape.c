/* How a launch is cut: a pure function of problem and device. Every number here changes speed and never a
 * result. */
#include <stdbool.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/run.h"

#define WARP 32u
#define THREADS 128u
#define DIRECT_VECTORS_MAX (1u << 20)

/* Origin of all below: bench_resample on an NVIDIA H200; kernels/README.md has the table. */
#define STAGE_ROWS 1024u /* 8 KB of stamps a window cost less than another trip to memory */
#define VECTORS_PER_THREAD 2u
#define TILE_STEPS_MIN 16u
#define TILE_STEPS_MAX 64u
#define BLOCKS_WANTED 384u
#define SECTOR_BYTES 32u
#define PREFETCH_BYTES_MIN (128u << 10) /* below, asking costs more than it hides */
#define PREFETCH_BYTES_MAX (4u << 20)
#define DIRECT_VECTORS 131071u
#define NARROW_RUN_STEPS_PER_ROW 2u /* from here on, neighbouring targets mostly share their two rows */
#define RUN_STEPS_PER_ROW 4u        /* the same for vectors of 8 bytes and more */
#define WIDE_LOAD_BYTES 8u
#define RUN_TILES 4u
#define RUN_BLOCKS_MIN 768u
#define RUN_VECTORS_MAX 16u
#define WIDE_VECTORS 32u
#define FEW_BLOCKS 528u /* four a multiprocessor */
#define MANY_VECTORS 448u
#define WALK_OUTPUT_BYTES (32u << 20)
#define BATCH_VECTORS_MAX 2048u
#define BATCH_STEPS_MAX 32u

int trajd_cuda_shape_fits(const struct trajd_cuda_problem *problem, const struct trajd_cuda_shape *shape)
{
    struct trajd_cuda_problem shaped = *problem;
    uint64_t tiles;

    if (problem->lean && shape->style == TRAJD_CUDA_DIRECT &&
        (uint64_t)shape->tile_steps * problem->streams[0].vector_count > DIRECT_VECTORS_MAX)
        return false;
    if (shape->tiles_per_block == 0 || shape->tiles_per_block > 4096 ||
        (shape->style == TRAJD_CUDA_DIRECT && shape->tiles_per_block > 1))
        return false;
    if (shape->tile_steps == 0 || shape->tile_steps > 4096 || shape->stage_rows > 4096)
        return false;
    shaped.shape = *shape;
    tiles = (problem->step_count_max - 1) / shape->tile_steps + 1;
    return shape->thread_count >= WARP && shape->thread_count <= TRAJD_CUDA_THREADS_MAX &&
           shape->thread_count % WARP == 0 && shape->style < TRAJD_CUDA_STYLE_COUNT && tiles <= INT32_MAX &&
           trajd_cuda_shared_bytes(&shaped) <= TRAJD_CUDA_SHARED_BYTES_MAX;
}

/* Vectors that a step has over all streams: a step's work. */
static uint64_t vectors_of_step(const struct trajd_cuda_problem *problem)
{
    uint64_t count = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++)
        count += problem->streams[s].vector_count;
    return count;
}

static uint32_t clamp(uint64_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : (uint32_t)value;
}

/* The largest that is not above value: tiles then divide among threads. */
static uint32_t power_of_two(uint32_t value)
{
    uint32_t power = 1;

    while (power <= value / 2)
        power *= 2;
    return power;
}

/* Where most sectors of the rows are used anyhow, or all of them are little, they are asked for before it is
 * known which. */
static bool wants_prefetch(const struct trajd_cuda_problem *problem, uint64_t row_count)
{
    uint64_t row_bytes = problem->streams[0].row_stride_bytes;
    uint64_t bytes = problem->window_count * row_count * row_bytes;
    uint64_t used = problem->step_count_max * (2 * row_bytes + SECTOR_BYTES);

    return row_count > 0 && (4 * used >= 3 * row_count * row_bytes ||
                             (bytes >= PREFETCH_BYTES_MIN && bytes <= PREFETCH_BYTES_MAX));
}

/* Much to write, by vectors that can walk. */
static bool wants_walk(const struct trajd_cuda_problem *problem)
{
    const struct trajd_cuda_stream *stream = &problem->streams[0];
    uint64_t targets = (uint64_t)problem->window_count * problem->step_count_max;

    return stream->load_bytes >= WIDE_LOAD_BYTES && targets * stream->vector_count * 16 >= WALK_OUTPUT_BYTES;
}

static uint64_t run_steps_per_row(const struct trajd_cuda_stream *stream)
{
    return stream->load_bytes >= WIDE_LOAD_BYTES ? RUN_STEPS_PER_ROW : NARROW_RUN_STEPS_PER_ROW;
}

/* A block's threads for so many vectors of a tile. */
static uint32_t threads_for(uint64_t vectors)
{
    return vectors > THREADS ? 2 * THREADS : THREADS;
}

static struct trajd_cuda_shape lean_shape(const struct trajd_cuda_problem *problem, uint64_t row_count)
{
    struct trajd_cuda_shape shape = {0, THREADS, 1, STAGE_ROWS, 0, TRAJD_CUDA_STEPS};
    uint64_t vectors = vectors_of_step(problem), steps = problem->step_count_max;
    uint64_t busy =
        problem->window_count * steps / BLOCKS_WANTED; /* larger tiles leave multiprocessors idle */
    uint64_t filled = (VECTORS_PER_THREAD * THREADS + vectors - 1) / vectors, blocks;

    shape.prefetch = wants_prefetch(problem, row_count);
    if (row_count > STAGE_ROWS)
        shape.stage_rows = 0;
    if (vectors >= WIDE_VECTORS && steps <= row_count && row_count <= STAGE_ROWS)
        busy = 0; /* wide rows that are hardly shared: small tiles */
    shape.tile_steps = power_of_two(clamp(busy > filled ? busy : filled, TILE_STEPS_MIN, TILE_STEPS_MAX));
    blocks = problem->window_count * ((steps - 1) / shape.tile_steps + 1);
    if (vectors == 1 || (problem->window_count * steps * vectors <= DIRECT_VECTORS && vectors <= THREADS)) {
        shape.style = TRAJD_CUDA_DIRECT;
        shape.tile_steps = power_of_two(clamp(2 * THREADS / vectors, 1, TILE_STEPS_MAX));
        shape.thread_count = threads_for((steps < shape.tile_steps ? steps : shape.tile_steps) * vectors);
    } else if (row_count > 0 && steps >= run_steps_per_row(&problem->streams[0]) * row_count) {
        if (wants_walk(problem))
            shape.style = TRAJD_CUDA_WALK;
        if (vectors <= RUN_VECTORS_MAX && blocks >= RUN_TILES * RUN_BLOCKS_MIN)
            shape.tiles_per_block = RUN_TILES;
    } else if (blocks <= FEW_BLOCKS && shape.tile_steps * vectors >= MANY_VECTORS) {
        shape.thread_count = 2 * THREADS;
    }
    return shape;
}

static struct trajd_cuda_shape full_shape(const struct trajd_cuda_problem *problem)
{
    struct trajd_cuda_shape shape = {0, TRAJD_CUDA_THREADS_MAX, 1, STAGE_ROWS, 0, TRAJD_CUDA_DIRECT};
    uint64_t vectors = vectors_of_step(problem), steps = problem->step_count_max;

    if (steps * vectors > BATCH_VECTORS_MAX)
        shape.style = TRAJD_CUDA_STEPS;
    shape.tile_steps =
        steps <= BATCH_STEPS_MAX
            ? (uint32_t)steps
            : clamp((VECTORS_PER_THREAD * THREADS + vectors - 1) / vectors, TILE_STEPS_MIN, TILE_STEPS_MAX);
    return shape;
}

static void make_fit(const struct trajd_cuda_problem *problem, struct trajd_cuda_shape *shape)
{
    if (shape->tile_steps > problem->step_count_max)
        shape->tile_steps = problem->step_count_max;
    while (!trajd_cuda_shape_fits(problem, shape)) {
        if (shape->stage_rows > 64)
            shape->stage_rows /= 2;
        else if (shape->tile_steps > 1)
            shape->tile_steps /= 2;
        else if (shape->stage_rows > 0)
            shape->stage_rows = 0;
        else
            shape->style = TRAJD_CUDA_STEPS;
    }
}

struct trajd_cuda_shape trajd_cuda_styled_shape_of(const struct trajd_cuda_problem *problem,
                                                   const struct trajd_device_facts *facts, uint64_t row_count,
                                                   int style)
{
    struct trajd_cuda_shape shape = problem->lean ? lean_shape(problem, row_count) : full_shape(problem);

    (void)facts; /* the numbers above are one device's; nothing in them has shown to depend on it yet */
    if (style != TRAJD_CUDA_ANY_STYLE)
        shape.style = (uint8_t)style;
    make_fit(problem, &shape);
    return shape;
}

struct trajd_cuda_shape trajd_cuda_shape_of(const struct trajd_cuda_problem *problem,
                                            const struct trajd_device_facts *facts, uint64_t row_count)
{
    return trajd_cuda_styled_shape_of(problem, facts, row_count, TRAJD_CUDA_ANY_STYLE);
}

/* What a stream costs in a tile, for the shares only: a quaternion is worth many elements. */
static uint64_t stream_work(const struct trajd_cuda_problem *problem, const struct trajd_cuda_stream *stream)
{
    uint32_t steps = problem->brackets[stream->bracket_index].step_count;
    uint64_t tile = steps < problem->shape.tile_steps ? steps : problem->shape.tile_steps;
    bool is_slerp = stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ;

    return tile * stream->vector_count * (is_slerp ? 8 : stream->path == TRAJD_CUDA_FULL ? 4 : 1);
}

/* One each, then always one to the stream whose warps have most to do. Where there are more streams than
 * warps, one each in turn. */
void trajd_cuda_share_warps(struct trajd_cuda_problem *problem)
{
    uint32_t warps = problem->shape.thread_count / WARP, given = problem->stream_count, first = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++)
        problem->streams[s].warp_count = 1;
    for (; given < warps; given++) {
        struct trajd_cuda_stream *neediest = &problem->streams[0];
        for (uint32_t s = 1; s < problem->stream_count; s++) {
            struct trajd_cuda_stream *other = &problem->streams[s];
            if (stream_work(problem, other) * neediest->warp_count >
                stream_work(problem, neediest) * other->warp_count)
                neediest = other;
        }
        neediest->warp_count++;
    }
    for (uint32_t s = 0; s < problem->stream_count; s++) {
        problem->streams[s].first_warp = (uint8_t)first;
        first += problem->streams[s].warp_count;
    }
}
