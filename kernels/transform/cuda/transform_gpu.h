/* Transforms on a GPU, behind the resampling: what transform.h defines, with its bits.
 *
 *   request --kernels/cuda--> rows --blend--> rows --run--> outputs and masks
 *
 * Plain C: a stream is a cudaStream_t as a void pointer, and arrays are device memory. Calls launch
 * and return. They allocate nothing, so they can be captured in a graph. In a build without CUDA
 * they fail with TRAJD_ERR_UNSUPPORTED. Thread-safe; launches on one stream run in order. */
#ifndef TRAJD_KERNELS_TRANSFORM_CUDA_TRANSFORM_GPU_H
#define TRAJD_KERNELS_TRANSFORM_CUDA_TRANSFORM_GPU_H

#include "kernels/cuda/problem.h"
#include "kernels/device.h"
#include "kernels/transform/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One output. Steps run side by side, so masks are not changed in place: `source_mask` [rows, T] is
 * that of the source, and job.mask becomes that of the output. job.transform is host memory, and
 * must not change before the call returns. job.window_rows is that of all outputs of a run. */
struct trajd_transform_gpu_job {
    struct trajd_transform_job job;
    const uint8_t *source_mask;
};

/* Transforms windows [0, window_count) of the jobs: one launch for up to 6 outputs. NaN have the
 * bits of the GPU. */
enum trajd_status trajd_transform_gpu_run(const struct trajd_transform_gpu_job *jobs,
                                          uint32_t count, uint32_t window_count,
                                          const struct trajd_device_facts *facts, void *stream,
                                          struct trajd_error *error);

/* As trajd_transform_blend, for all windows, behind the run of the request. Within 1e-12 of it,
 * before it is rounded to the type of the rows. */
enum trajd_status trajd_transform_gpu_blend(const struct trajd_resample_request *request,
                                            uint32_t stream_index, uint32_t column,
                                            enum trajd_rotation_form form,
                                            const struct trajd_device_facts *facts, void *stream,
                                            struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
