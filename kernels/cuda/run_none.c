/* run.h in a build without CUDA. */
#include "kernels/cuda/run.h"

enum trajd_status trajd_cuda_run(const struct trajd_resample_request *request,
                                 const struct trajd_device_facts *facts,
                                 const struct trajd_cuda_shape *shape, void *stream,
                                 struct trajd_error *error)
{
    (void)request;
    (void)facts;
    (void)shape;
    (void)stream;
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "cuda: built without CUDA");
}

enum trajd_status trajd_cuda_run_style(const struct trajd_resample_request *request,
                                       const struct trajd_device_facts *facts, int style,
                                       void *stream, struct trajd_error *error)
{
    (void)style;
    return trajd_cuda_run(request, facts, NULL, stream, error);
}
