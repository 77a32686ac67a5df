/* Makes plans, checks that requests fit them, and runs them. */
#include "kernels/dispatch/plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch/choose.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/tuning.h"
#include "kernels/device.h"
#include "kernels/pool.h"
#include "proto/plural.h"

/* The numbers of a stream that every run must repeat, without pointers and without padding. */
struct stream_shape {
    enum trajd_kind kind;
    enum trajd_dtype source_type, output_type;
    enum trajd_grid_unit unit;
    uint32_t bracket_index;
    uint32_t feature_count;
    uint32_t step_count;
};
_Static_assert(sizeof(struct stream_shape) == 7 * sizeof(uint32_t), "shapes are compared as bytes");

struct trajd_plan {
    struct trajd_choice choice;
    struct trajd_device_facts facts;
    char description[448];
    uint32_t window_count;
    uint32_t bracket_count;
    uint32_t stream_count;
    bool has_window_rows;
    struct stream_shape streams[];
};

struct run {
    const struct trajd_plan *plan;
    const struct trajd_resample_request *request;
    void (*then)(void *context, uint32_t begin, uint32_t end); /* or NULL */
    void *context;
};

static struct stream_shape shape_of(const struct trajd_resample_request *request, uint32_t index)
{
    const struct trajd_stream *stream = &request->streams[index];
    const struct trajd_grid *grid =
        &request->grids[request->brackets[stream->bracket_index].grid_index];

    return (struct stream_shape){
        .kind = stream->kind,
        .source_type = stream->source_type,
        .output_type = stream->output_type,
        .unit = grid->unit,
        .bracket_index = stream->bracket_index,
        .feature_count = stream->feature_count,
        .step_count = grid->step_count,
    };
}

static void describe_cuda(struct trajd_plan *plan, const struct trajd_resample_request *shape)
{
    const uint32_t launches = trajd_cuda_launch_count(shape);
    struct trajd_cuda_shape cut;
    char why[128];

    trajd_cuda_describe(shape, &plan->facts, plan->choice.cuda_style, &cut, why, sizeof why);
    snprintf(plan->description, sizeof plan->description,
             "%s: %u window%s x %u stream%s, %u launch%s, %s of %u steps, %u threads, %s; %s",
             plan->choice.variant, shape->window_count, trajd_plural(shape->window_count),
             shape->stream_count, trajd_plural(shape->stream_count), launches,
             launches == 1 ? "" : "es", trajd_cuda_style_name(cut.style), cut.tile_steps,
             cut.thread_count, why, plan->choice.reason);
}

static void describe(struct trajd_plan *plan, const struct trajd_problem *problem)
{
    snprintf(plan->description, sizeof plan->description,
             "%s: %u window%s x %u stream%s (%u copied), %u thread%s, %s", plan->choice.variant,
             problem->window_count, trajd_plural(problem->window_count), problem->stream_count,
             trajd_plural(problem->stream_count), problem->copied_count, plan->choice.thread_count,
             trajd_plural(plan->choice.thread_count), plan->choice.reason);
}

enum trajd_status trajd_plan_create_then(const struct trajd_resample_request *shape, double then_ns,
                                         const struct trajd_device_facts *facts,
                                         const char *variant, struct trajd_plan **out,
                                         struct trajd_error *error)
{
    enum trajd_status status = trajd_resample_check_shape(shape, error);
    struct trajd_problem problem;
    struct trajd_choice choice;
    struct trajd_plan *plan;

    *out = NULL;
    if (status)
        return status;
    if (shape->window_count == 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "plan: window_count is 0 (at least one window)");
    trajd_problem_of(shape, &problem);
    problem.cpu_ns += then_ns;
    status = trajd_choose(&problem, facts, variant, &choice, error);
    if (status)
        return status;
    plan = calloc(1, sizeof *plan + shape->stream_count * sizeof plan->streams[0]);
    if (!plan)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "plan: no memory");
    plan->choice = choice;
    plan->facts = *facts;
    plan->window_count = shape->window_count;
    plan->bracket_count = shape->bracket_count;
    plan->stream_count = shape->stream_count;
    plan->has_window_rows = shape->window_rows != NULL;
    for (uint32_t s = 0; s < shape->stream_count; s++)
        plan->streams[s] = shape_of(shape, s);
    if (plan->choice.run)
        describe(plan, &problem);
    else
        describe_cuda(plan, shape);
    *out = plan;
    return TRAJD_OK;
}

enum trajd_status trajd_plan_create(const struct trajd_resample_request *shape,
                                    const struct trajd_device_facts *facts, const char *variant,
                                    struct trajd_plan **plan, struct trajd_error *error)
{
    return trajd_plan_create_then(shape, 0, facts, variant, plan, error);
}

const char *trajd_plan_describe(const struct trajd_plan *plan)
{
    return plan->description;
}

static enum trajd_status check_run(const struct trajd_plan *plan,
                                   const struct trajd_resample_request *request,
                                   struct trajd_error *error)
{
    enum trajd_status status = trajd_resample_check(request, error);

    if (status || request->window_count == 0)
        return status;
    if (request->window_count > plan->window_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "run: %u windows, but the plan is for at most %u",
                               request->window_count, plan->window_count);
    if (request->stream_count != plan->stream_count ||
        request->bracket_count != plan->bracket_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "run: number of streams or brackets differs from the plan's");
    if (request->window_rows && !plan->has_window_rows)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "run: has window_rows, but the plan was made without");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        struct stream_shape shape = shape_of(request, s);
        if (memcmp(&shape, &plan->streams[s], sizeof shape) != 0)
            return trajd_error_set(
                error, TRAJD_ERR_ARGUMENT, 0,
                "streams[%u]: kind, types, bracket, grid or size differ from the plan's", s);
    }
    return TRAJD_OK;
}

static void run_slice(void *context, uint32_t index)
{
    const struct run *run = context;
    uint32_t begin = index * run->plan->choice.slice_windows;
    uint32_t remaining = run->request->window_count - begin;
    uint32_t count =
        remaining < run->plan->choice.slice_windows ? remaining : run->plan->choice.slice_windows;

    run->plan->choice.run(run->request, begin, begin + count);
    if (run->then)
        run->then(run->context, begin, begin + count);
}

enum trajd_status trajd_plan_run_then(struct trajd_plan *plan,
                                      const struct trajd_resample_request *request,
                                      void (*then)(void *context, uint32_t begin, uint32_t end),
                                      void *context, struct trajd_pool *pool,
                                      struct trajd_error *error)
{
    enum trajd_status status = check_run(plan, request, error);
    struct run run = {plan, request, then, context};

    if (!status && !plan->choice.run)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "run: variant %s runs only on a GPU stream", plan->choice.variant);
    if (!status)
        status = trajd_resample_check_rows(request, error);
    if (status || request->window_count == 0)
        return status;
    trajd_pool_run(pool, (request->window_count - 1) / plan->choice.slice_windows + 1, run_slice,
                   &run);
    return TRAJD_OK;
}

enum trajd_status trajd_plan_run(struct trajd_plan *plan,
                                 const struct trajd_resample_request *request,
                                 struct trajd_pool *pool, struct trajd_error *error)
{
    return trajd_plan_run_then(plan, request, NULL, NULL, pool, error);
}

int trajd_plan_is_cuda(const struct trajd_plan *plan)
{
    return !plan->choice.run;
}

enum trajd_status trajd_plan_run_on(struct trajd_plan *plan,
                                    const struct trajd_resample_request *request, void *stream,
                                    struct trajd_error *error)
{
    enum trajd_status status = check_run(plan, request, error);

    if (!status && plan->choice.run)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "run: variant %s runs only on the CPU",
                               plan->choice.variant);
    if (status || request->window_count == 0)
        return status;
    return trajd_cuda_run_style(request, &plan->facts, plan->choice.cuda_style, stream, error);
}

enum trajd_status trajd_plan_run_async(struct trajd_plan *plan,
                                       const struct trajd_resample_request *request,
                                       struct trajd_device_stream *stream,
                                       struct trajd_error *error)
{
    return trajd_plan_run_on(plan, request, trajd_device_stream_handle(stream), error);
}

void trajd_plan_destroy(struct trajd_plan **plan)
{
    free(*plan);
    *plan = NULL;
}
