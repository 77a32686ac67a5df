/* Chooses how a launch is cut: a pure function of problem and device. The numbers here change only
 * speed, never a result. */
#include <stdbool.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/run.h"
#include "kernels/cuda/tuning.h"

#define WARP 32u
#define THREADS 128u
/* the kernel divides numbers below this limit by an exact multiplication */
#define DIRECT_VECTORS_MAX (1u << 16)

/* Origin of all numbers below: bench_resample on an NVIDIA H200; the table is in
 * kernels/README.md. */
#define STAGE_ROWS 1024u /* 8 KB of stamps per window cost less than another trip to memory */
#define VECTORS_PER_THREAD 2u
#define TILE_STEPS_MIN 16u
#define TILE_STEPS_MAX 64u
#define SMALL_TILE_STEPS 4u
#define BLOCKS_WANTED 384u
#define SECTOR_BYTES 32u
#define PREFETCH_BYTES_MIN (128u << 10) /* below, a prefetch costs more than it hides */
#define PREFETCH_BYTES_MAX (4u << 20)
#define NARROW_STEPS_MIN 128u
#define NARROW_TARGETS_MIN 50000u
/* two targets per thread from here on; below, multiprocessors would be idle */
#define TWO_TARGETS_MIN 262144u
#define ANGLE_TARGETS_MIN 50000u
#define SEVERAL_VECTORS 131072u /* from here on a thread of the direct kernel serves several */
#define STEPS_VECTORS 524287u   /* from here on tiles serve steps of 256 bytes and more */
#define STEPS_VECTORS_LONG 262143u
#define WIDE_VECTORS 16u
#define RUN_STEPS_PER_ROW 4u /* targets per row from which on a walk pays */
#define WIDE_LOAD_BYTES 8u   /* least vector of a walk */
#define WALK_OUTPUT_BYTES (32u << 20)
#define SOURCE_BYTES_MAX (24u << 20) /* stays in the L2 cache while the output is written */
#define ALONE_TASKS_MAX 16u
#define BATCH_TASKS_MAX 64u
#define BATCH_STEPS_MAX 32u
#define SIDE_STEPS_MIN 16u /* with 2 steps `batch` is 0.3 us faster */

static bool contiguous_steps(const struct trajd_cuda_stream *stream)
{
    return stream->step_stride_bytes == (uint64_t)stream->feature_count *
                                            trajd_dtype_size((enum trajd_dtype)stream->output_type);
}

/* Returns whether the pair of types was measured. Only such pairs have kernels of every family. */
static bool measured_path(const struct trajd_cuda_stream *stream)
{
    return stream->path == TRAJD_CUDA_BF16 || stream->path == TRAJD_CUDA_F32 ||
           stream->path == TRAJD_CUDA_F32_BF16;
}

/* Returns whether each block can serve one of the streams: several, on clocks of stamps, of one
 * measured pair of types, each with a mask of its own. */
static bool side_serves(const struct trajd_cuda_problem *problem)
{
    uint32_t masks = 0;

    for (uint32_t s = 0; s < problem->stream_count; s++) {
        const struct trajd_cuda_stream *stream = &problem->streams[s];
        const struct trajd_cuda_bracket *bracket = &problem->brackets[stream->bracket_index];

        masks += stream->mask_slot != TRAJD_CUDA_NO_MASK;
        if (!measured_path(stream) || stream->path != problem->streams[0].path ||
            !bracket->stamps_ns || bracket->unit != TRAJD_GRID_NS ||
            stream->step_stride_bytes > UINT32_MAX ||
            stream->feature_count / stream->widest_vector >= DIRECT_VECTORS_MAX)
            return false;
    }
    return problem->stream_count > 1 && masks == problem->mask_count &&
           problem->window_count <= TRAJD_CUDA_GRID_HEIGHT_MAX &&
           problem->step_count_max <= INT32_MAX / TRAJD_CUDA_STREAMS_MAX;
}

/* Returns whether the kernel can serve the problem at all. */
static bool style_serves(const struct trajd_cuda_problem *problem,
                         const struct trajd_cuda_shape *shape)
{
    const struct trajd_cuda_stream *stream = &problem->streams[0];

    switch (shape->style) {
    case TRAJD_CUDA_STEPS:
    case TRAJD_CUDA_WALK:
        return problem->lean;
    case TRAJD_CUDA_DIRECT:
        return problem->lean && measured_path(stream) &&
               (shape->vectors < 4 || stream->vector_width < 8);
    case TRAJD_CUDA_NARROW:
        return problem->lean && measured_path(stream) && contiguous_steps(stream) &&
               stream->step_stride_bytes <= TRAJD_CUDA_NARROW_BYTES &&
               stream->row_stride_bytes <= TRAJD_CUDA_NARROW_BYTES;
    case TRAJD_CUDA_BATCH:
        return problem->task_count > 0 && problem->window_count <= INT32_MAX &&
               (problem->task_count - 1) / (shape->thread_count / WARP) <
                   TRAJD_CUDA_GRID_HEIGHT_MAX;
    case TRAJD_CUDA_SIDE:
        return side_serves(problem) && !(shape->prefetch & TRAJD_CUDA_STAGE_ROWS);
    default:
        return shape->style == TRAJD_CUDA_TILE;
    }
}

int trajd_cuda_shape_fits(const struct trajd_cuda_problem *problem,
                          const struct trajd_cuda_shape *shape)
{
    struct trajd_cuda_problem shaped = *problem;
    uint64_t tiles;

    if (problem->step_count_max == 0 || shape->thread_count < WARP ||
        shape->thread_count > TRAJD_CUDA_THREADS_MAX || shape->thread_count % WARP != 0 ||
        shape->tile_steps == 0 || shape->tile_steps > 4096 || shape->stage_rows > 4096 ||
        !style_serves(problem, shape))
        return false;
    if (shape->style == TRAJD_CUDA_DIRECT &&
        ((shape->vectors != 1 && shape->vectors != 2 && shape->vectors != 4) ||
         (uint64_t)shape->tile_steps * problem->streams[0].vector_count > DIRECT_VECTORS_MAX))
        return false;
    shaped.shape = *shape;
    tiles = (problem->step_count_max - 1) / shape->tile_steps + 1;
    return tiles <= INT32_MAX && trajd_cuda_shared_bytes(&shaped) <= TRAJD_CUDA_SHARED_BYTES_MAX;
}

/* Returns the vectors of a step over all streams, as a measure of its work. */
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

/* Returns the largest power of two up to value. Such tiles divide evenly among threads. */
static uint32_t power_of_two(uint32_t value)
{
    uint32_t power = 1;

    while (power <= value / 2)
        power *= 2;
    return power;
}

/* Returns whether to prefetch all rows before it is known which are needed: if most sectors of the
 * rows are used anyway, or if all rows together are small. */
static bool wants_prefetch(const struct trajd_cuda_problem *problem, uint64_t row_count)
{
    uint64_t row_bytes = problem->streams[0].row_stride_bytes;
    uint64_t bytes = problem->window_count * row_count * row_bytes;
    uint64_t used = problem->step_count_max * (2 * row_bytes + SECTOR_BYTES);

    return row_count > 0 && (4 * used >= 3 * row_count * row_bytes ||
                             (bytes >= PREFETCH_BYTES_MIN && bytes <= PREFETCH_BYTES_MAX));
}

/* Returns whether to walk: a large output, and vectors that can walk. */
static bool wants_walk(const struct trajd_cuda_problem *problem)
{
    const struct trajd_cuda_stream *stream = &problem->streams[0];
    uint64_t targets = (uint64_t)problem->window_count * problem->step_count_max;

    return stream->load_bytes >= WIDE_LOAD_BYTES &&
           targets * stream->vector_count * 16 >= WALK_OUTPUT_BYTES;
}

static uint64_t target_count(const struct trajd_cuda_problem *problem)
{
    return (uint64_t)problem->window_count * problem->step_count_max;
}

/* Returns whether to use the narrow kernel: many narrow steps that are not made of 16-byte vectors,
 * so that one search serves a step and stores are whole sectors. */
static bool wants_narrow(const struct trajd_cuda_problem *problem)
{
    const struct trajd_cuda_stream *stream = &problem->streams[0];

    return stream->vector_count > 1 && stream->load_bytes < 16 &&
           problem->step_count_max >= NARROW_STEPS_MIN &&
           target_count(problem) >= NARROW_TARGETS_MIN;
}

/* Returns whether a tile's entries in shared memory are worth a barrier: wide rows of two-byte
 * elements, or long clocks. */
static bool wants_tiles(const struct trajd_cuda_problem *problem, uint64_t row_count)
{
    const struct trajd_cuda_stream *stream = &problem->streams[0];
    uint64_t vectors = target_count(problem) * stream->vector_count;

    return (stream->vector_width == 8 && stream->vector_count >= WIDE_VECTORS &&
            vectors > STEPS_VECTORS) ||
           (row_count > STAGE_ROWS && stream->load_bytes == 16 && stream->vector_count >= 4 &&
            vectors > STEPS_VECTORS_LONG);
}

/* Returns the vectors of a step that a thread of the direct kernel serves. */
static uint8_t vectors_a_thread(const struct trajd_cuda_problem *problem)
{
    uint32_t vectors = problem->streams[0].vector_count;

    if (vectors < 2 || target_count(problem) * vectors < SEVERAL_VECTORS)
        return 1;
    return (vectors > 4 && vectors < 8) || vectors > WIDE_VECTORS ? 4 : 2;
}

static uint32_t targets_a_thread(const struct trajd_cuda_problem *problem)
{
    return target_count(problem) >= TWO_TARGETS_MIN ? 2 : 1;
}

static void shape_tiles(const struct trajd_cuda_problem *problem, uint64_t row_count,
                        struct trajd_cuda_shape *shape)
{
    uint64_t vectors = problem->streams[0].vector_count, steps = problem->step_count_max;
    /* larger tiles would leave multiprocessors idle */
    uint64_t busy = target_count(problem) / BLOCKS_WANTED;
    uint64_t filled = (VECTORS_PER_THREAD * THREADS + vectors - 1) / vectors;

    shape->style = TRAJD_CUDA_STEPS;
    shape->tile_steps =
        power_of_two(clamp(busy > filled ? busy : filled, TILE_STEPS_MIN, TILE_STEPS_MAX));
    if (row_count > 0 && steps >= RUN_STEPS_PER_ROW * row_count && wants_walk(problem)) {
        shape->style = TRAJD_CUDA_WALK;
        if (problem->window_count * row_count * (problem->streams[0].row_stride_bytes + 8) <=
            SOURCE_BYTES_MAX)
            shape->prefetch = TRAJD_CUDA_PREFETCH_ALL;
    }
}

static struct trajd_cuda_shape lean_shape(const struct trajd_cuda_problem *problem,
                                          uint64_t row_count)
{
    struct trajd_cuda_shape shape = {
        .thread_count = THREADS, .style = TRAJD_CUDA_DIRECT, .vectors = 1};
    uint64_t vectors = problem->streams[0].vector_count;
    bool searches =
        problem->brackets[0].rate.num == 0 && problem->brackets[0].unit == TRAJD_GRID_NS;

    if (row_count > 0 && row_count <= STAGE_ROWS)
        shape.stage_rows = (uint32_t)row_count;
    else
        shape.prefetch = TRAJD_CUDA_PREFETCH_STAMPS;
    if (wants_prefetch(problem, row_count))
        shape.prefetch |= TRAJD_CUDA_PREFETCH_ROWS;
    if (!searches && problem->task_count > 0 && problem->task_count <= ALONE_TASKS_MAX) {
        shape.style = TRAJD_CUDA_BATCH;
        shape.tile_steps = TILE_STEPS_MIN;
    } else if (!searches || wants_tiles(problem, row_count)) {
        shape_tiles(problem, row_count, &shape);
    } else if (wants_narrow(problem)) {
        shape.style = TRAJD_CUDA_NARROW;
        shape.tile_steps = shape.stage_rows ? THREADS * targets_a_thread(problem) : TILE_STEPS_MAX;
        shape.thread_count = shape.stage_rows ? THREADS : TILE_STEPS_MAX;
    } else {
        shape.vectors = vectors_a_thread(problem);
        shape.tile_steps = clamp(THREADS / ((vectors - 1) / shape.vectors + 1), 1, THREADS);
        if (vectors == 1)
            shape.tile_steps = THREADS * targets_a_thread(problem);
    }
    return shape;
}

static bool has_kind(const struct trajd_cuda_problem *problem, enum trajd_kind kind)
{
    for (uint32_t s = 0; s < problem->stream_count; s++)
        if (problem->streams[s].kind == kind)
            return true;
    return false;
}

/* Returns whether tiles of the usual size would leave multiprocessors idle while others have many
 * vectors: few targets of wide streams. */
static bool wants_small_tiles(const struct trajd_cuda_problem *problem)
{
    return problem->stream_count > 1 && vectors_of_step(problem) >= 2 * WIDE_VECTORS &&
           target_count(problem) < (uint64_t)BLOCKS_WANTED * TILE_STEPS_MIN;
}

/* Returns the rows of the longest clock, or 0 if one is too long for the stage or not known. */
static uint32_t rows_to_stage(const struct trajd_cuda_problem *problem)
{
    uint32_t most = 0;

    for (uint32_t b = 0; b < problem->bracket_count; b++) {
        uint64_t rows = (uint64_t)problem->brackets[b].dense_rows;
        if (rows == 0 || rows > STAGE_ROWS)
            return 0;
        most = rows > most ? (uint32_t)rows : most;
    }
    return most;
}

static struct trajd_cuda_shape full_shape(const struct trajd_cuda_problem *problem)
{
    struct trajd_cuda_shape shape = {
        .thread_count = THREADS, .style = TRAJD_CUDA_BATCH, .vectors = 1};
    uint64_t vectors = vectors_of_step(problem), steps = problem->step_count_max;

    if (problem->task_count == 0 || problem->task_count > BATCH_TASKS_MAX ||
        (steps >= THREADS && target_count(problem) >= ANGLE_TARGETS_MIN &&
         has_kind(problem, TRAJD_KIND_ANGLE)))
        shape.style = TRAJD_CUDA_TILE;
    if ((shape.style == TRAJD_CUDA_TILE || steps >= SIDE_STEPS_MIN) && side_serves(problem)) {
        shape.style = TRAJD_CUDA_SIDE;
        shape.stage_rows = rows_to_stage(problem);
        shape.prefetch = shape.stage_rows ? 0 : TRAJD_CUDA_PREFETCH_STAMPS;
    }
    if (shape.style == TRAJD_CUDA_SIDE)
        shape.tile_steps = THREADS;
    else if (wants_small_tiles(problem))
        shape.tile_steps = SMALL_TILE_STEPS;
    else
        shape.tile_steps = steps <= BATCH_STEPS_MAX ? (uint32_t)steps
                           : problem->stream_count == 1
                               ? THREADS
                               : clamp((VECTORS_PER_THREAD * THREADS + vectors - 1) / vectors,
                                       TILE_STEPS_MIN, THREADS);
    return shape;
}

static void use_general_style(const struct trajd_cuda_problem *problem,
                              struct trajd_cuda_shape *shape)
{
    shape->style = problem->lean ? TRAJD_CUDA_STEPS : TRAJD_CUDA_TILE;
}

/* Reduces the shape until its shared memory fits a block. */
static void make_fit(const struct trajd_cuda_problem *problem, struct trajd_cuda_shape *shape)
{
    if (shape->tile_steps > problem->step_count_max)
        shape->tile_steps = problem->step_count_max;
    if (!style_serves(problem, shape))
        use_general_style(problem, shape);
    while (!trajd_cuda_shape_fits(problem, shape)) {
        if (shape->prefetch & TRAJD_CUDA_STAGE_ROWS)
            shape->prefetch &= (uint8_t)~TRAJD_CUDA_STAGE_ROWS;
        else if (shape->stage_rows > 64)
            shape->stage_rows /= 2;
        else if (shape->tile_steps > 1)
            shape->tile_steps /= 2;
        else if (shape->stage_rows > 0)
            shape->stage_rows = 0;
        else
            use_general_style(problem, shape);
    }
}

struct trajd_cuda_shape trajd_cuda_styled_shape_of(const struct trajd_cuda_problem *problem,
                                                   const struct trajd_device_facts *facts,
                                                   uint64_t row_count, int style)
{
    struct trajd_cuda_shape shape = {0};
    struct trajd_tuning_found found;

    if (problem->step_count_max == 0) /* a request without streams: nothing is launched */
        return shape;
    if (row_count == 0)
        row_count = (uint64_t)problem->brackets[0].dense_rows;
    shape = problem->lean ? lean_shape(problem, row_count) : full_shape(problem);
    if (style == TRAJD_CUDA_ANY_STYLE && facts->tuning &&
        trajd_tuning_find(facts->tuning, problem, facts, row_count, &found))
        shape = found.shape;
    if (style != TRAJD_CUDA_ANY_STYLE)
        shape.style = (uint8_t)style;
    shape.overlaps = facts->compute_capability >= 90;
    make_fit(problem, &shape);
    return shape;
}

struct trajd_cuda_shape trajd_cuda_shape_of(const struct trajd_cuda_problem *problem,
                                            const struct trajd_device_facts *facts,
                                            uint64_t row_count)
{
    return trajd_cuda_styled_shape_of(problem, facts, row_count, TRAJD_CUDA_ANY_STYLE);
}

/* Estimates the cost of a stream in a tile, only to divide warps: a quaternion counts as many
 * elements. */
static uint64_t stream_work(const struct trajd_cuda_problem *problem,
                            const struct trajd_cuda_stream *stream)
{
    uint32_t steps = problem->brackets[stream->bracket_index].step_count;
    uint64_t tile = steps < problem->shape.tile_steps ? steps : problem->shape.tile_steps;
    bool is_slerp = stream->kind == TRAJD_KIND_SLERP_XYZW || stream->kind == TRAJD_KIND_SLERP_WXYZ;

    return tile * stream->vector_count * (is_slerp ? 8 : stream->path == TRAJD_CUDA_FULL ? 4 : 1);
}

/* Gives each stream one warp, then each further warp to the stream whose warps have most work. If
 * there are more streams than warps, streams take single warps in turn. */
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
