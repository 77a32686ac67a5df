/* Divides a checked request into problems, one per launch. Pure C, without a GPU. */
#ifndef TRAJD_KERNELS_CUDA_PACK_H
#define TRAJD_KERNELS_CUDA_PACK_H

#include "kernels/cuda/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills *problem, except its shape, with the streams from `first` on: as many as one launch can
 * serve, at least one. Returns the index after the last. */
uint32_t trajd_cuda_pack(const struct trajd_resample_request *request, uint32_t first,
                         struct trajd_cuda_problem *problem);

/* Returns how many launches a request of this shape needs. */
uint32_t trajd_cuda_launch_count(const struct trajd_resample_request *request);

#ifdef __cplusplus
}
#endif
#endif
