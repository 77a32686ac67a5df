/* An empty kernel, launched as all others are. */
#include "kernels/cuda/launch.cuh"

static __global__ void do_nothing(const uint32_t)
{
    wait_for_earlier_launches();
}

extern "C" int device_launch_nothing(int overlaps, void *stream)
{
    return launch_kernel(do_nothing, (uint32_t)0, dim3(1), 32, 0, overlaps, stream);
}
