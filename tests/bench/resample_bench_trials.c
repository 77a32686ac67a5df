/* Candidate shapes of a launch, for the tuner. */
#include <stdbool.h>
#include <stddef.h>

#include "proto/array_len.h"
#include "tests/bench/resample_bench.h"

#define STAGE_ROWS_MAX 1024u
/* of one stream; beyond, a search of one target by many lanes costs more than a barrier */
#define BATCH_TASKS_MAX 16u

struct list {
    bool large; /* output larger than the L2 cache, source smaller */
    const struct trajd_cuda_problem *problem;
    const struct trajd_device_facts *facts;
    uint64_t row_count;
    bool wide;
    struct bench_trial *trials;
    uint32_t limit, count;
};

static bool is_large(const struct trajd_cuda_problem *problem,
                     const struct trajd_device_facts *facts, uint64_t row_count)
{
    const struct trajd_cuda_stream *stream = &problem->streams[0];
    const double windows = problem->window_count, rows = (double)row_count;

    return windows * problem->step_count_max * (double)stream->step_stride_bytes >
               (double)facts->l2_size_bytes &&
           row_count > 0 &&
           windows * rows * ((double)stream->row_stride_bytes + 8) <
               (double)facts->l2_size_bytes / 2;
}

/* Appends a shape if it fits. Skips tiles of at least twice as many steps as the window has, and
 * cuts other tiles to the window. */
static void try_shape(struct list *list, struct trajd_cuda_shape shape)
{
    const uint32_t steps = list->problem->step_count_max;

    if (shape.tile_steps > steps) {
        if (shape.tile_steps / 2 >= steps)
            return;
        shape.tile_steps = steps;
    }
    shape.overlaps = list->facts->compute_capability >= 90;
    if (!trajd_cuda_shape_fits(list->problem, &shape) || list->count == list->limit)
        return;
    if (list->trials)
        list->trials[list->count] = (struct bench_trial){.shape = shape};
    list->count++;
}

/* Tries the shape with and without staged stamps, and with the useful prefetches. */
static void try_ways(struct list *list, struct trajd_cuda_shape shape)
{
    const bool short_clock = list->row_count > 0 && list->row_count <= STAGE_ROWS_MAX;

    if (short_clock) {
        shape.stage_rows = (uint32_t)list->row_count;
        for (uint8_t rows = 0; rows < 2; rows++) {
            shape.prefetch = rows ? TRAJD_CUDA_PREFETCH_ROWS : 0;
            try_shape(list, shape);
        }
        if (shape.style == TRAJD_CUDA_NARROW || shape.style == TRAJD_CUDA_DIRECT) {
            shape.prefetch = TRAJD_CUDA_STAGE_ROWS;
            try_shape(list, shape);
        }
    }
    if (short_clock && !list->wide)
        return;
    shape.stage_rows = 0;
    for (uint8_t prefetch = 0; prefetch < 4; prefetch++) {
        shape.prefetch = prefetch;
        try_shape(list, shape);
        shape.prefetch = TRAJD_CUDA_PREFETCH_GUESS | TRAJD_CUDA_PREFETCH_STAMPS;
        if (prefetch == TRAJD_CUDA_PREFETCH_STAMPS && shape.style == TRAJD_CUDA_DIRECT)
            try_shape(list, shape);
    }
}

static void try_tiles(struct list *list)
{
    static const uint32_t wide[] = {8, 16, 32, 64, 128, 256}, few[] = {16, 64};
    const uint32_t *tiles = list->wide ? wide : few;
    const size_t count = list->wide ? ARRAY_LEN(wide) : ARRAY_LEN(few);

    for (size_t i = 0; i < count; i++)
        for (uint32_t threads = 128; threads <= 256; threads *= 2) {
            struct trajd_cuda_shape shape = {.tile_steps = tiles[i],
                                             .thread_count = threads,
                                             .style = TRAJD_CUDA_STEPS,
                                             .vectors = 1};
            try_ways(list, shape);
            if (list->problem->step_count_max < 2 * list->row_count || tiles[i] < 32)
                continue;
            shape.style = TRAJD_CUDA_WALK;
            shape.stage_rows = list->row_count <= STAGE_ROWS_MAX ? (uint32_t)list->row_count : 0;
            try_shape(list, shape);
            if (!list->large)
                continue;
            shape.prefetch = TRAJD_CUDA_PREFETCH_ALL;
            try_shape(list, shape);
        }
}

/* Tries blocks whose threads have one or two items each. */
static void try_direct(struct list *list)
{
    const uint64_t vectors = list->problem->streams[0].vector_count;

    for (uint8_t k = 1; k <= 4; k *= 2)
        for (uint32_t threads = 64; threads <= (list->wide ? 256 : 128); threads *= 2)
            for (uint32_t items = 1; items <= 2; items++) {
                const uint64_t lanes = (vectors - 1) / k + 1;
                const uint64_t steps = items * threads / lanes;
                if ((k > 1 && vectors < k) || lanes > items * threads ||
                    lanes * 4096 < items * threads)
                    continue;
                if (items > 1 && steps / 2 >= list->problem->step_count_max)
                    continue;
                try_ways(list, (struct trajd_cuda_shape){
                                   .tile_steps = (uint32_t)(steps < list->problem->step_count_max
                                                                ? steps
                                                                : list->problem->step_count_max),
                                   .thread_count = threads,
                                   .style = TRAJD_CUDA_DIRECT,
                                   .vectors = k});
            }
}

static void try_narrow(struct list *list)
{
    for (uint32_t threads = 32; threads <= 256; threads *= 2)
        for (uint32_t items = 1; items <= 2; items++)
            if (threads >= 64 || items * threads >= list->problem->step_count_max)
                try_ways(list, (struct trajd_cuda_shape){.tile_steps = items * threads,
                                                         .thread_count = threads,
                                                         .style = TRAJD_CUDA_NARROW,
                                                         .vectors = 1});
}

/* Tries the kernels for any request. */
static void try_general(struct list *list)
{
    static const uint32_t tiles[] = {8, 16, 32, 64, 128};

    for (uint32_t threads = 64; threads <= 256; threads *= 2) {
        try_shape(list, (struct trajd_cuda_shape){.tile_steps = 16,
                                                  .thread_count = threads,
                                                  .style = TRAJD_CUDA_BATCH,
                                                  .vectors = 1});
        for (size_t i = 0; i < ARRAY_LEN(tiles) && threads > 64; i++)
            for (uint32_t staged = 0; staged <= (list->row_count <= STAGE_ROWS_MAX); staged++)
                try_shape(list, (struct trajd_cuda_shape){
                                    .tile_steps = tiles[i],
                                    .thread_count = threads,
                                    .stage_rows = staged ? (uint32_t)list->row_count : 0,
                                    .style = TRAJD_CUDA_TILE,
                                    .vectors = 1});
    }
}

uint32_t bench_list_trials(const struct trajd_cuda_problem *problem,
                           const struct trajd_device_facts *facts, uint64_t row_count, bool wide,
                           struct bench_trial *trials, uint32_t limit)
{
    struct list list = {
        is_large(problem, facts, row_count), problem, facts, row_count, wide, trials, limit, 0};

    if (problem->lean && problem->task_count > 0 && problem->task_count <= BATCH_TASKS_MAX)
        try_shape(&list, (struct trajd_cuda_shape){.tile_steps = 16,
                                                   .thread_count = 128,
                                                   .style = TRAJD_CUDA_BATCH,
                                                   .vectors = 1});
    if (problem->lean) {
        try_tiles(&list);
        try_direct(&list);
        try_narrow(&list);
    } else {
        try_general(&list);
    }
    return list.count;
}
