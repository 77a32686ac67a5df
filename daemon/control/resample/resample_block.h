/* Resamples blocks (kernels/block.h) in files of other programs, on the GPU or on the CPU. */
#ifndef TRAJD_CONTROL_RESAMPLE_BLOCK_H
#define TRAJD_CONTROL_RESAMPLE_BLOCK_H

#include "daemon/control/resample/resample_service.h"
#include "kernels/pool.h"
#include "proto/error.h"

struct trajd_runner;

/* Used by one thread at a time. `options` is given; the rest starts as zero. */
struct trajd_resample_backend {
    const struct trajd_resample_service_options *options;
    /* made when first needed */
    struct trajd_runner *on_cpu, *on_gpu;
    struct trajd_pool *pool; /* of on_cpu */
    int64_t gpu_again_ns;    /* until then the GPU is not tried, after it had no room */
};

/* Returns the GPU that blocks go to now, or NULL: the CPU. */
struct trajd_device *trajd_resample_backend_device(const struct trajd_resample_backend *backend);
/* Resamples the block of size_bytes in the file `fd` in place. *device is NULL where the CPU did
 * it. TRAJD_ERR_ARGUMENT: the descriptor or the block is not usable. */
enum trajd_status trajd_resample_backend_run(struct trajd_resample_backend *backend, int fd,
                                             uint64_t size_bytes, struct trajd_device **device,
                                             struct trajd_error *error);
/* Frees threads, buffers and GPU memory. The backend may be used again. */
void trajd_resample_backend_release(struct trajd_resample_backend *backend);

#endif
