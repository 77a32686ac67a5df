/* Launches transforms and blends. */
#include "kernels/transform/cuda/transform_gpu.h"

#include "kernels/transform/cuda/transform_launch.h"

#define OVERLAP_CAPABILITY_MIN 90

static enum trajd_status check(int code, const char *what, struct trajd_error *error)
{
    return code == 0 ? TRAJD_OK
                     : trajd_error_set(error, TRAJD_ERR_DEVICE, code,
                                       "cuda: launching %s: CUDA error %d", what, code);
}

enum trajd_status trajd_transform_gpu_run(const struct trajd_transform_gpu_job *jobs,
                                          uint32_t count, uint32_t window_count,
                                          const struct trajd_device_facts *facts, void *stream,
                                          struct trajd_error *error)
{
    const bool overlaps = facts->compute_capability >= OVERLAP_CAPABILITY_MIN;
    struct trajd_step_launch launch;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t done = 0; done < count && window_count > 0 && !status;) {
        done = trajd_step_pack(jobs, done, count, window_count, &launch);
        status = check(trajd_step_launch(&launch, overlaps, stream), "transforms", error);
    }
    return status;
}

enum trajd_status trajd_transform_gpu_blend(const struct trajd_resample_request *request,
                                            uint32_t stream_index, uint32_t column,
                                            enum trajd_rotation_form form,
                                            const struct trajd_device_facts *facts, void *stream,
                                            struct trajd_error *error)
{
    struct trajd_blend_launch launch;

    if (!request->window_count || !trajd_blend_pack(request, stream_index, column, form, &launch))
        return TRAJD_OK;
    return check(
        trajd_blend_launch(&launch, facts->compute_capability >= OVERLAP_CAPABILITY_MIN, stream),
        "blends of rotations", error);
}
