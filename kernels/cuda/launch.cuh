/* How every kernel is launched, and how it begins. */
#ifndef TRAJD_KERNELS_CUDA_LAUNCH_CUH
#define TRAJD_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/launch.h"

/* Waits for the launch before this one. From sm_90 on, the GPU may prepare a launch while the one
 * before it in the stream runs. So no kernel touches global memory before all writes of that launch
 * are done. This must be the first statement of every kernel. */
__device__ __forceinline__ void wait_for_earlier_launches()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename P>
static int launch_kernel(void (*kernel)(const P), const P &problem, dim3 grid, uint32_t threads,
                         uint32_t shared_bytes, bool overlaps, void *stream)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};

    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = overlaps ? 1 : 0;
    return (int)cudaLaunchKernelEx(&config, kernel, problem);
}

#endif
