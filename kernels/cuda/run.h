/* Runs a request on a GPU: checks, packs, shapes and launches it. Plain C. Pointers in the request
 * are device memory. */
#ifndef TRAJD_KERNELS_CUDA_RUN_H
#define TRAJD_KERNELS_CUDA_RUN_H

#include "kernels/cuda/problem.h"
#include "kernels/device.h"
#include "kernels/resample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Chooses a launch shape for this problem on this device. The shape never needs more shared memory
 * than a block has. Pure. row_count is the estimated rows of a window; 0: not known, or
 * those of a dense bracket. A problem without
 * streams or steps gets no shape: all its members are 0. */
struct trajd_cuda_shape trajd_cuda_shape_of(const struct trajd_cuda_problem *problem,
                                            const struct trajd_device_facts *facts,
                                            uint64_t row_count);

#define TRAJD_CUDA_ANY_STYLE (-1)

/* The same with a given style, if that is not TRAJD_CUDA_ANY_STYLE. */
struct trajd_cuda_shape trajd_cuda_styled_shape_of(const struct trajd_cuda_problem *problem,
                                                   const struct trajd_device_facts *facts,
                                                   uint64_t row_count, int style);

/* Returns whether a shape is within the limits of a launch, and so can be used. For tuners and
 * tests. */
int trajd_cuda_shape_fits(const struct trajd_cuda_problem *problem,
                          const struct trajd_cuda_shape *shape);

/* Launches the request on the stream (a cudaStream_t) and returns. The results are complete when
 * the stream has passed the launch. `shape` NULL: by trajd_cuda_shape_of. On TRAJD_ERR_ARGUMENT and
 * TRAJD_ERR_UNSUPPORTED nothing was launched. */
enum trajd_status trajd_cuda_run(const struct trajd_resample_request *request,
                                 const struct trajd_device_facts *facts,
                                 const struct trajd_cuda_shape *shape, void *stream,
                                 struct trajd_error *error);
enum trajd_status trajd_cuda_run_style(const struct trajd_resample_request *request,
                                       const struct trajd_device_facts *facts, int style,
                                       void *stream, struct trajd_error *error);
/* Describes the shape of the first launch for a request of this shape, and in a few words why it is
 * chosen. Its pointers may be NULL. */
void trajd_cuda_describe(const struct trajd_resample_request *shape,
                         const struct trajd_device_facts *facts, int style,
                         struct trajd_cuda_shape *cut, char *why, uint32_t why_size);

#ifdef __cplusplus
}
#endif
#endif
