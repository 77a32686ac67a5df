/* How every kernel is launched, and begins. */
#ifndef TRAJD_KERNELS_CUDA_LAUNCH_CUH
#define TRAJD_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/launch.h"

/* From sm_90 on a launch may be made ready while the one before it in the stream runs: nothing in
 * global memory is touched before all of that one has been written. The first statement of every
 * kernel. */
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
