#include "kernels/cuda/run.h"

#include <stddef.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"

static enum trajd_status launch(struct trajd_cuda_problem *problem, const struct trajd_cuda_shape *shape,
                                void *stream, struct trajd_error *error)
{
    int code;

    problem->shape = *shape;
    if (!trajd_cuda_shape_fits(problem, &problem->shape))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "cuda: a shape of %u steps, %u threads and %u staged rows does not fit",
                               problem->shape.tile_steps, problem->shape.thread_count,
                               problem->shape.stage_rows);
    trajd_cuda_share_warps(problem);
    if (problem->lean)
        code = trajd_cuda_launch_tile(problem, stream);
    else if (problem->shape.style == TRAJD_CUDA_DIRECT)
        code = trajd_cuda_launch_batch(problem, stream);
    else
        code = trajd_cuda_launch_full(problem, stream);
    if (code != 0)
        return trajd_error_set(error, TRAJD_ERR_DEVICE, code,
                               "cuda: launching %u windows x %u streams, %u steps at most: CUDA error %d",
                               problem->window_count, problem->stream_count, problem->step_count_max, code);
    return TRAJD_OK;
}

/* Kernels write window w to row w. */
static enum trajd_status refuse_rows(const struct trajd_resample_request *request, struct trajd_error *error)
{
    return request->window_rows ? trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "cuda: window_rows are for the CPU")
                                : TRAJD_OK;
}

enum trajd_status trajd_cuda_run(const struct trajd_resample_request *request,
                                 const struct trajd_device_facts *facts, const struct trajd_cuda_shape *shape,
                                 void *stream, struct trajd_error *error)
{
    enum trajd_status status = trajd_resample_check(request, error);
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape chosen;

    if (status != TRAJD_OK || request->window_count == 0)
        return status;
    status = refuse_rows(request, error);
    for (uint32_t s = 0; s < request->stream_count && status == TRAJD_OK;) {
        s = trajd_cuda_pack(request, s, &problem);
        chosen = shape ? *shape : trajd_cuda_shape_of(&problem, facts, 0);
        status = launch(&problem, &chosen, stream, error);
    }
    return status;
}

enum trajd_status trajd_cuda_run_style(const struct trajd_resample_request *request,
                                       const struct trajd_device_facts *facts, int style, void *stream,
                                       struct trajd_error *error)
{
    enum trajd_status status = refuse_rows(request, error); /* the rest is checked by the plan */
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape shape;

    for (uint32_t s = 0; s < request->stream_count && status == TRAJD_OK;) {
        s = trajd_cuda_pack(request, s, &problem);
        shape = trajd_cuda_styled_shape_of(&problem, facts, 0, style);
        status = launch(&problem, &shape, stream, error);
    }
    return status;
}

enum trajd_status trajd_cuda_run_dense(const struct trajd_dense_problem *dense,
                                       const struct trajd_device_facts *facts,
                                       const struct trajd_cuda_shape *shape, void *stream,
                                       struct trajd_error *error)
{
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape chosen;
    enum trajd_status status = trajd_cuda_pack_dense(dense, &problem, error);

    if (status != TRAJD_OK || dense->window_count == 0)
        return status;
    chosen = shape ? *shape : trajd_cuda_shape_of(&problem, facts, dense->row_count);
    return launch(&problem, &chosen, stream, error);
}
