/* From a checked request to the problems of one launch each. Pure C, no GPU needed. */
#ifndef TRAJD_KERNELS_CUDA_PACK_H
#define TRAJD_KERNELS_CUDA_PACK_H

#include "kernels/cuda/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills *problem (all but its shape) with streams [first, returned) of the request: as many as one
 * launch takes, at least one. */
uint32_t trajd_cuda_pack(const struct trajd_resample_request *request, uint32_t first,
                         struct trajd_cuda_problem *problem);

/* The same for a dense problem, checked by the rules of requests: TRAJD_ERR_ARGUMENT,
 * TRAJD_ERR_UNSUPPORTED. */
enum trajd_status trajd_cuda_pack_dense(const struct trajd_dense_problem *dense,
                                        struct trajd_cuda_problem *problem,
                                        struct trajd_error *error);

/* How many launches a request of this shape takes. */
uint32_t trajd_cuda_launch_count(const struct trajd_resample_request *request);

#ifdef __cplusplus
}
#endif
#endif
