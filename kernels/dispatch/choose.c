/* Counts the work of a problem, and chooses the variant, the threads and the slices for it. */
#include "kernels/dispatch/choose.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/run.h"
#include "kernels/quaternion.h"
#include "proto/array_len.h"

/* Costs of one thread in ns. They only decide the number of slices. Origin: bench_cpu 1 on an AMD
 * EPYC (Zen 3, 2.4 GHz). */
#define FIND_NS 9.0    /* one target searched */
#define MOVE_NS 8.0    /* one step of a stream, for any D */
#define FEATURE_NS 0.5 /* one feature of linear, previous or nearest */
#define ANGLE_NS 7.0   /* one feature of angle */
#define MEAN_NS 45.0   /* one feature of mean, over 50 rows */
#define TOTAL_NS 250.0 /* one feature of a total, over some hundred rows */
#define QUATERNION_NS 26.0
#define COPY_NS_PER_BYTE 0.035
/* one window of a stream that is copied as a run of rows, in addition to its bytes */
#define RUN_NS 18.0

/* The least work of a slice that is worth another thread. Waking and joining a thread costs 3 us on
 * that machine, and 5 to 10 us when it is busy. */
#define SLICE_NS 25000.0
#define SLICES_PER_THREAD 4u /* several, so that one slow thread delays the others less */

/* One way to run a problem. The table is ordered best first. Its last row with `is_automatic`
 * serves every problem. */
struct row {
    const char *variant;
    bool is_automatic;    /* false: chosen only by name */
    uint32_t min_threads; /* least threads of the pool */
    double min_cpu_ns;    /* least estimate for one thread */
    const char *why;
    trajd_run_windows *run; /* NULL: on a GPU */
    int cuda_style;         /* that the name forces, or TRAJD_CUDA_ANY_STYLE */
};

/* The least compute capability that the kernels are built for. */
#define COMPUTE_CAPABILITY_MIN 80

static const char by_name[] = "requested by name";

static const struct row table[] = {
    /* bench_resample on an H200: the policy batch takes 4 us, and 92 us with cpu_rows. cuda/shape.c
     * chooses the shape of the launch. */
    {"cuda", true, 0, 0, "on the GPU", NULL, TRAJD_CUDA_ANY_STYLE},
    {"cuda_steps", false, 0, 0, by_name, NULL, TRAJD_CUDA_STEPS},
    {"cuda_walk", false, 0, 0, by_name, NULL, TRAJD_CUDA_WALK},
    {"cuda_direct", false, 0, 0, by_name, NULL, TRAJD_CUDA_DIRECT},
    {"cuda_narrow", false, 0, 0, by_name, NULL, TRAJD_CUDA_NARROW},
    {"cuda_batch", false, 0, 0, by_name, NULL, TRAJD_CUDA_BATCH},
    {"cuda_tile", false, 0, 0, by_name, NULL, TRAJD_CUDA_TILE},
    {"cuda_side", false, 0, 0, by_name, NULL, TRAJD_CUDA_SIDE},
    /* bench_cpu 2 against bench_cpu 1: long and narrow 570 us instead of 1103, mean 671 instead of
     * 1161, wide scaled 364 instead of 666. */
    {"cpu_rows", true, 2, 2 * SLICE_NS, "enough for several threads", trajd_resample_cpu, 0},
    /* bench_cpu 1: the policy batch takes 92 us (rows) and 166 us (three clocks). Images run at the
     * speed of memcpy. */
    {"cpu_rows", true, 1, 0, "on one thread", trajd_resample_cpu, 0},
    /* At least twice as slow as cpu_rows on every shape of bench_cpu. */
    {"reference", false, 1, 0, by_name, trajd_resample_reference, 0},
};

static bool is_copied(const struct trajd_stream *stream)
{
    return (stream->kind == TRAJD_KIND_PREVIOUS || stream->kind == TRAJD_KIND_NEAREST) &&
           !stream->scale && !stream->total && stream->source_type == stream->output_type;
}

/* Estimates the ns of one step of a stream. */
static double step_cost(const struct trajd_stream *stream, const struct trajd_grid *grid)
{
    double count = stream->feature_count;

    if (grid->unit == TRAJD_GRID_ROWS && trajd_cpu_stream_runs(grid, stream))
        return RUN_NS / grid->step_count +
               count * trajd_dtype_size(stream->source_type) * COPY_NS_PER_BYTE;
    if (is_copied(stream))
        return MOVE_NS + count * trajd_dtype_size(stream->source_type) * COPY_NS_PER_BYTE;
    if (trajd_kind_is_slerp(stream->kind))
        return MOVE_NS + count / 4 * QUATERNION_NS;
    if (stream->kind == TRAJD_KIND_ANGLE)
        return MOVE_NS + count * ANGLE_NS;
    if (stream->total)
        return MOVE_NS + count * TOTAL_NS;
    return MOVE_NS + count * (stream->kind == TRAJD_KIND_MEAN ? MEAN_NS : FEATURE_NS);
}

static void add_stream(const struct trajd_stream *stream, const struct trajd_grid *grid,
                       struct trajd_problem *problem)
{
    const double targets = (double)problem->window_count * grid->step_count;

    problem->copied_count += is_copied(stream);
    problem->cpu_ns += targets * step_cost(stream, grid) * (stream->derivative ? 2 : 1);
}

void trajd_problem_of(const struct trajd_resample_request *shape, struct trajd_problem *problem)
{
    *problem = (struct trajd_problem){.window_count = shape->window_count,
                                      .stream_count = shape->stream_count};
    for (uint32_t b = 0; b < shape->bracket_count; b++) {
        const struct trajd_grid *grid = &shape->grids[shape->brackets[b].grid_index];
        if (grid->unit == TRAJD_GRID_NS)
            problem->cpu_ns += (double)shape->window_count * grid->step_count * FIND_NS;
    }
    for (uint32_t s = 0; s < shape->stream_count; s++) {
        const struct trajd_bracket *bracket = &shape->brackets[shape->streams[s].bracket_index];
        add_stream(&shape->streams[s], &shape->grids[bracket->grid_index], problem);
    }
}

static bool serves(const struct row *row, const struct trajd_problem *problem,
                   const struct trajd_device_facts *facts)
{
    if (!row->run)
        return facts->sm_count > 0 && facts->compute_capability >= COMPUTE_CAPABILITY_MIN;
    return facts->cpu_threads >= row->min_threads && problem->cpu_ns >= row->min_cpu_ns;
}

/* Divides the windows into slices: a few per thread, each of whole windows and of enough work. */
static void shape_slices(const struct row *row, const struct trajd_problem *problem,
                         const struct trajd_device_facts *facts, struct trajd_choice *choice)
{
    uint32_t most = facts->cpu_threads <= UINT32_MAX / SLICES_PER_THREAD
                        ? facts->cpu_threads * SLICES_PER_THREAD
                        : UINT32_MAX;
    double worth = problem->cpu_ns / SLICE_NS;
    uint32_t slices = worth < (double)most ? (uint32_t)worth : most;

    if (row->min_threads < 2 || slices < 1)
        slices = 1;
    choice->slice_windows = problem->window_count / slices + (problem->window_count % slices != 0);
    if (choice->slice_windows == 0)
        choice->slice_windows = 1;
    slices = problem->window_count / choice->slice_windows +
             (problem->window_count % choice->slice_windows != 0);
    choice->thread_count = slices < facts->cpu_threads ? slices : facts->cpu_threads;
    if (choice->thread_count == 0)
        choice->thread_count = 1;
}

static void list_serving_names(const struct trajd_problem *problem,
                               const struct trajd_device_facts *facts, char *names, size_t size)
{
    size_t used = 0;

    names[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(table) && used < size; i++)
        if (serves(&table[i], problem, facts) &&
            (i == 0 || strcmp(table[i].variant, table[i - 1].variant) != 0 ||
             !serves(&table[i - 1], problem, facts)))
            used += (size_t)snprintf(names + used, size - used, ", %s", table[i].variant);
}

enum trajd_status trajd_choose(const struct trajd_problem *problem,
                               const struct trajd_device_facts *facts, const char *requested,
                               struct trajd_choice *choice, struct trajd_error *error)
{
    bool is_auto = !requested || strcmp(requested, "auto") == 0;
    char names[128];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct row *row = &table[i];
        if ((is_auto ? !row->is_automatic : strcmp(row->variant, requested) != 0) ||
            !serves(row, problem, facts))
            continue;
        *choice = (struct trajd_choice){
            .variant = row->variant, .run = row->run, .cuda_style = row->cuda_style};
        shape_slices(row, problem, facts, choice);
        snprintf(choice->reason, sizeof choice->reason, "%.0f us of work, %s",
                 problem->cpu_ns / 1000, row->why);
        return TRAJD_OK;
    }
    list_serving_names(problem, facts, names, sizeof names);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "variant %s does not exist or cannot serve this request (use auto%s)",
                           requested ? requested : "auto", names);
}
