/* The launchers of the kernels. Each computes a grid, launches and returns the cudaError_t. They do
 * not wait and do not allocate. */
#ifndef TRAJD_KERNELS_CUDA_LAUNCH_H
#define TRAJD_KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRAJD_CUDA_THREADS_MAX 256
/* Blocks with the most threads that a multiprocessor shall hold at once: 64 registers per
 * thread. */
#define TRAJD_CUDA_BLOCKS_MIN 4
/* 80 registers: with 64, the spills of a walk add a third to what it writes. */
#define TRAJD_CUDA_WALK_BLOCKS_MIN 3
#define TRAJD_CUDA_FULL_BLOCKS_MIN 2
/* Shared memory that a block gets without an opt-in. */
#define TRAJD_CUDA_SHARED_BYTES_MAX 48000u
#define TRAJD_CUDA_TOTAL_THREADS 128u
/* The largest step of the narrow kernel, in the source and in the output. */
#define TRAJD_CUDA_NARROW_BYTES 128u

#ifdef __CUDACC__
#define TRAJD_CUDA_HOST_DEVICE __host__ __device__
#else
#define TRAJD_CUDA_HOST_DEVICE
#endif

/* Returns the bytes of staged stamps. Stamps and rows are staged in granules of 16 bytes, at any
 * alignment. */
TRAJD_CUDA_HOST_DEVICE static inline uint32_t lean_stage_bytes(uint32_t stage_rows)
{
    return stage_rows ? (stage_rows * 8u + 31u) / 16u * 16u : 0;
}

TRAJD_CUDA_HOST_DEVICE static inline uint32_t lean_rows_bytes(uint32_t stage_rows,
                                                              uint32_t row_stride_bytes)
{
    return (stage_rows * row_stride_bytes + 47u) / 16u * 16u;
}

/* Returns the shared memory of one block for the problem's shape. 64 bits, because callers also
 * pass shapes that are too large. */
static inline uint64_t trajd_cuda_shared_bytes(const struct trajd_cuda_problem *problem)
{
    const struct trajd_cuda_shape *shape = &problem->shape;
    const struct trajd_cuda_stream *stream = &problem->streams[0];
    uint64_t tile = shape->tile_steps, stage = lean_stage_bytes(shape->stage_rows);
    uint64_t rows = shape->prefetch & TRAJD_CUDA_STAGE_ROWS
                        ? shape->stage_rows * stream->row_stride_bytes + 48u
                        : 0;

    switch (shape->style) {
    case TRAJD_CUDA_STEPS:
    case TRAJD_CUDA_WALK:
        return tile * 16u + stage;
    case TRAJD_CUDA_DIRECT:
        return stage + rows;
    case TRAJD_CUDA_SIDE:
        return stage;
    case TRAJD_CUDA_NARROW:
        return stage + tile * stream->step_stride_bytes + 32u + rows;
    case TRAJD_CUDA_BATCH:
        return 0;
    default:
        return problem->stream_count * (tile * 40u + 4u) +
               problem->bracket_count * shape->stage_rows * 8ull + problem->mask_count * tile * 4u;
    }
}

/* Divides the warps of a block among the streams of a problem, for its shape. */
void trajd_cuda_share_warps(struct trajd_cuda_problem *problem);

/* launch_tile (styles steps and walk), _direct and _narrow need problems with lean = 1 (a single
 * stream, moved by vectors). launch_side needs streams that trajd_cuda_shape_fits allows. launch_batch
 * and launch_full (style tile) serve any problem. */
int trajd_cuda_launch_tile(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_direct(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_narrow(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_side(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_batch(const struct trajd_cuda_problem *problem, void *stream);
int trajd_cuda_launch_full(const struct trajd_cuda_problem *problem, void *stream);
/* Serves problems of totals. Of the shape only `overlaps` counts. */
int trajd_cuda_launch_totals(const struct trajd_cuda_problem *problem, void *stream);

/* The steps of one stream that its bracket calls too old. */
struct trajd_cuda_too_old {
    uint32_t window_count, step_count;
    const uint32_t *begin, *end; /* [window_count] */
    const void *const *bases;    /* NULL: no window lacks the stream */
    const uint32_t *window_rows; /* NULL: window w goes to row w */
    uint8_t *mask;
    uint64_t mask_window_stride_bytes;
};

/* Masks them. Runs behind the launches that write the masks. */
int trajd_cuda_launch_too_old(const struct trajd_cuda_too_old *marks, void *stream);

#ifdef __cplusplus
}
#endif
#endif
