/* Checks and launches a request on a GPU. */
#include "kernels/cuda/run.h"

#include <stddef.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

#define OVERLAP_CAPABILITY_MIN 90

static int launch_styled(struct trajd_cuda_problem *problem, void *stream)
{
    switch (problem->shape.style) {
    case TRAJD_CUDA_DIRECT:
        return trajd_cuda_launch_direct(problem, stream);
    case TRAJD_CUDA_NARROW:
        return trajd_cuda_launch_narrow(problem, stream);
    case TRAJD_CUDA_SIDE:
        return trajd_cuda_launch_side(problem, stream);
    case TRAJD_CUDA_BATCH:
        return trajd_cuda_launch_batch(problem, stream);
    case TRAJD_CUDA_TILE:
        trajd_cuda_share_warps(problem);
        return trajd_cuda_launch_full(problem, stream);
    default:
        return trajd_cuda_launch_tile(problem, stream);
    }
}

static enum trajd_status launch(struct trajd_cuda_problem *problem,
                                const struct trajd_device_facts *facts,
                                const struct trajd_cuda_shape *shape, void *stream,
                                struct trajd_error *error)
{
    int code;

    problem->shape = *shape;
    if (problem->totals) { /* have a kernel of one shape */
        problem->shape.overlaps = facts->compute_capability >= OVERLAP_CAPABILITY_MIN;
        code = trajd_cuda_launch_totals(problem, stream);
    } else if (!trajd_cuda_shape_fits(problem, shape) ||
               (shape->overlaps && facts->compute_capability < OVERLAP_CAPABILITY_MIN))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "cuda: style %u with %u steps, %u threads and %u staged rows does not fit",
            shape->style, shape->tile_steps, shape->thread_count, shape->stage_rows);
    else
        code = launch_styled(problem, stream);
    if (code != 0)
        return trajd_error_set(
            error, TRAJD_ERR_DEVICE, code,
            "cuda: launching %u windows x %u streams, %u steps at most: CUDA error %d",
            problem->window_count, problem->stream_count, problem->step_count_max, code);
    return TRAJD_OK;
}

/* Masks the steps that brackets call too old. Few batches have any. */
static enum trajd_status mark_too_old(const struct trajd_resample_request *request, void *stream,
                                      struct trajd_error *error)
{
    int code = 0;

    for (uint32_t s = 0; s < request->stream_count && code == 0; s++) {
        const struct trajd_stream *marked = &request->streams[s];
        const struct trajd_bracket *bracket = &request->brackets[marked->bracket_index];
        const struct trajd_cuda_too_old marks = {
            .window_count = request->window_count,
            .step_count = request->grids[bracket->grid_index].step_count,
            .begin = bracket->too_old_begin,
            .end = bracket->too_old_end,
            .bases = marked->bases,
            .window_rows = request->window_rows,
            .mask = marked->mask,
            .mask_window_stride_bytes = marked->mask_window_stride_bytes};
        if (bracket->too_old_begin && marked->mask)
            code = trajd_cuda_launch_too_old(&marks, stream);
    }
    if (code == 0)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DEVICE, code,
                           "cuda: masking the steps of %u windows: CUDA error %d",
                           request->window_count, code);
}

enum trajd_status trajd_cuda_run(const struct trajd_resample_request *request,
                                 const struct trajd_device_facts *facts,
                                 const struct trajd_cuda_shape *shape, void *stream,
                                 struct trajd_error *error)
{
    enum trajd_status status = trajd_resample_check(request, error);
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape chosen;

    if (status || request->window_count == 0)
        return status;
    for (uint32_t s = 0; s < request->stream_count && !status;) {
        s = trajd_cuda_pack(request, s, &problem);
        chosen = shape ? *shape : trajd_cuda_shape_of(&problem, facts, 0);
        status = launch(&problem, facts, &chosen, stream, error);
    }
    return status ? status : mark_too_old(request, stream, error);
}

enum trajd_status trajd_cuda_run_style(const struct trajd_resample_request *request,
                                       const struct trajd_device_facts *facts, int style,
                                       void *stream, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK; /* the plan has checked the request */
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape shape;

    for (uint32_t s = 0; s < request->stream_count && !status;) {
        s = trajd_cuda_pack(request, s, &problem);
        shape = trajd_cuda_styled_shape_of(&problem, facts, 0, style);
        status = launch(&problem, facts, &shape, stream, error);
    }
    return status ? status : mark_too_old(request, stream, error);
}
