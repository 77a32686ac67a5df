/* Copies small pieces of pinned host memory to the GPU with one launch.
 *
 * Math      to[i] = from[i], byte for byte.
 * Shapes    up to TRAJD_DEVICE_SENDS_MAX pieces of any size.
 * Requires  pinned host memory, which the GPU reads over PCIe.
 * Moves     each piece once.
 * Threads   BLOCKS blocks serve a piece; a thread takes 8 bytes per turn, or one where an address or
 *           the size is not a multiple of 8.
 * Chosen    for what a batch needs besides its rows: arrays of the request, ids, records of images.
 *           On a GPU that another process uses, a copy by the copy engine and the kernel that waits
 *           for it take a time slice each. A training step on two cameras beside the feed took
 *           1.029 of a step on a constant batch with such copies, and 0.999 with this kernel (H200).
 * Tried and rejected  the copy engine's copies issued just before the launches of a batch: 1.056; those
 *           of a burst of batches before all its launches: 1.029. */
#include "kernels/device.h"

#define THREADS 256u
#define BLOCKS 4u

struct sends {
    struct trajd_device_send send[TRAJD_DEVICE_SENDS_MAX];
};

template <typename T> __device__ void copy(void *to, const void *from, uint64_t count)
{
    for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += BLOCKS * THREADS)
        ((T *)to)[i] = ((const T *)from)[i];
}

__global__ void __launch_bounds__(THREADS) send_pieces(const __grid_constant__ struct sends sends)
{
    const struct trajd_device_send *piece = &sends.send[blockIdx.y];

    if (((uintptr_t)piece->to | (uintptr_t)piece->from | piece->size_bytes) % 8)
        copy<uint8_t>(piece->to, piece->from, piece->size_bytes);
    else
        copy<uint64_t>(piece->to, piece->from, piece->size_bytes / 8);
}

int trajd_device_launch_sends(const struct trajd_device_send *list, uint32_t count, void *stream)
{
    struct sends sends = {};

    for (uint32_t i = 0; i < count; i++)
        sends.send[i] = list[i];
    send_pieces<<<dim3(BLOCKS, count), THREADS, 0, (cudaStream_t)stream>>>(sends);
    return (int)cudaGetLastError();
}
