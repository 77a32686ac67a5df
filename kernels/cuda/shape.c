/* How a launch is cut: a pure function of problem and device. Every number here changes speed and never a result. */
#include <stdbool.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/run.h"

#define WARP 32u
#define THREADS 128u
#define STAGE_ROWS 512u
#define DIRECT_VECTORS_MAX (1u << 20)

int trajd_cuda_shape_fits(const struct trajd_cuda_problem *problem, const struct trajd_cuda_shape *shape)
{
    struct trajd_cuda_problem shaped = *problem;
    uint64_t tiles;

    if (shape->style == TRAJD_CUDA_DIRECT &&
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

static uint64_t row_bytes(const struct trajd_cuda_problem *problem)
{
    uint64_t bytes = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++)
        bytes += problem->streams[s].row_stride_bytes;
    return bytes;
}

struct trajd_cuda_shape trajd_cuda_shape_of(const struct trajd_cuda_problem *problem,
                                            const struct trajd_device_facts *facts, uint64_t row_count)
{
    struct trajd_cuda_shape shape = {.thread_count = THREADS, .tiles_per_block = 1, .stage_rows = STAGE_ROWS};
    uint64_t vectors = vectors_of_step(problem), steps = problem->step_count_max;
    uint64_t blocks = (uint64_t)facts->sm_count * 8, tile;

    if (!problem->lean)
        shape.thread_count = TRAJD_CUDA_THREADS_MAX;

    /* two vectors a thread, fewer where that leaves multiprocessors without a block */
    tile = (2 * THREADS + vectors - 1) / vectors;
    if (blocks && tile * blocks > problem->window_count * steps)
        tile = problem->window_count * steps / blocks;
    tile = tile < 4 ? 4 : tile > 256 ? 256 : tile;
    if (tile > steps)
        tile = steps;
    shape.tile_steps = (uint32_t)tile;
    shape.prefetch = row_count > 0 && 2 * steps >= row_count && row_bytes(problem) > 0;
    while (!trajd_cuda_shape_fits(problem, &shape)) {
        if (shape.stage_rows > 64)
            shape.stage_rows /= 2;
        else if (shape.tile_steps > 1)
            shape.tile_steps /= 2;
        else
            shape.stage_rows = 0;
    }
    return shape;
}

/* What a stream costs in a tile, for the shares only: a quaternion is worth many elements. */
static uint64_t stream_work(const struct trajd_cuda_problem *problem, const struct trajd_cuda_stream *stream)
{
    uint32_t steps = problem->brackets[stream->bracket_index].step_count;
    uint64_t tile = steps < problem->shape.tile_steps ? steps : problem->shape.tile_steps;
    bool is_slerp = stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ;

    return tile * stream->vector_count * (is_slerp ? 8 : stream->path == TRAJD_CUDA_FULL ? 4 : 1);
}

/* One each, then always one to the stream whose warps have most to do. Where there are more streams than warps, one each in turn. */
void trajd_cuda_share_warps(struct trajd_cuda_problem *problem)
{
    uint32_t warps = problem->shape.thread_count / WARP, given = problem->stream_count, first = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++)
        problem->streams[s].warp_count = 1;
    for (; given < warps; given++) {
        struct trajd_cuda_stream *neediest = &problem->streams[0];
        for (uint32_t s = 1; s < problem->stream_count; s++) {
            struct trajd_cuda_stream *other = &problem->streams[s];
            if (stream_work(problem, other) * neediest->warp_count > stream_work(problem, neediest) * other->warp_count)
                neediest = other;
        }
        neediest->warp_count++;
    }
    for (uint32_t s = 0; s < problem->stream_count; s++) {
        problem->streams[s].first_warp = (uint8_t)first;
        first += problem->streams[s].warp_count;
    }
}
