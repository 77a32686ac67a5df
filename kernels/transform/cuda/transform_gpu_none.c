/* transform_gpu.h in a build without CUDA. */
#include "kernels/transform/cuda/transform_gpu.h"

static enum trajd_status refuse(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "cuda: built without CUDA");
}

enum trajd_status trajd_transform_gpu_run(const struct trajd_transform_gpu_job *jobs,
                                          uint32_t count, uint32_t window_count,
                                          const struct trajd_device_facts *facts, void *stream,
                                          struct trajd_error *error)
{
    (void)jobs;
    (void)count;
    (void)window_count;
    (void)facts;
    (void)stream;
    return refuse(error);
}

enum trajd_status trajd_transform_gpu_blend(const struct trajd_resample_request *request,
                                            uint32_t stream_index, uint32_t column,
                                            enum trajd_rotation_form form,
                                            const struct trajd_device_facts *facts, void *stream,
                                            struct trajd_error *error)
{
    (void)request;
    (void)stream_index;
    (void)column;
    (void)form;
    (void)facts;
    (void)stream;
    return refuse(error);
}
