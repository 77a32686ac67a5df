/* A simulated GPU: what the daemon's fake (device_host.c) and the workers' fake (libcuda.c) agree
 * on. With both, batches pass through GPU memory on a machine without a GPU. "Device memory" is a
 * memfd of the daemon. A handle names it as /proc/PID/fd/FD, which a process of the same user can
 * open. */
#ifndef TRAJD_TESTS_FAKE_GPU_DRIVER_H
#define TRAJD_TESTS_FAKE_GPU_DRIVER_H

#include <stdint.h>

#define FAKE_GPUS_MAX 4
#define FAKE_GPU_MAGIC UINT64_C(0x5550474b4146)
/* The UUID of GPU 0. The last byte of each further GPU is one less. */
#define FAKE_GPU_UUID_BEGIN "GPU-00112233-4455-6677-8899-aabbccddee"
#define FAKE_GPU_UUID_BYTES                                                                        \
    {                                                                                              \
        0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee,  \
            0xff                                                                                   \
    }

struct fake_gpu_handle {
    uint64_t magic;
    uint64_t size_bytes;
    int64_t pid;
    int32_t fd;
    uint32_t gpu;
    uint32_t reserved[8];
};

_Static_assert(sizeof(struct fake_gpu_handle) == 64, "as CUDA's");

#endif
