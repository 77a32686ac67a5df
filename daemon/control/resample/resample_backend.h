/* Resamples one block (kernels/block.h) that a client passed as a descriptor, on the GPU or the
 * CPU. Used by one thread, that of resample_service.c.
 *
 * A descriptor is untrusted. It must be a memory file that is sealed against resizing and whose
 * pages are allocated. A block is copied to private memory before anything in it is read. */
#ifndef TRAJD_CONTROL_RESAMPLE_BACKEND_H
#define TRAJD_CONTROL_RESAMPLE_BACKEND_H

#include <stdint.h>

#include "daemon/control/resample/resample_service.h"
#include "kernels/pool.h"

struct trajd_runner;

struct trajd_resample_backend {
    struct trajd_resample_service_options options;
    /* made when first needed, destroyed by trajd_resample_backend_release */
    struct trajd_runner *on_cpu, *on_gpu;
    struct trajd_pool *pool;     /* of on_cpu */
    struct trajd_device *device; /* of on_gpu */
    int64_t gpu_again_ns;        /* until then the GPU is not tried, after it had no room */
};

/* Returns the GPU that blocks go to now, or NULL where the CPU resamples. */
struct trajd_device *trajd_resample_backend_device(const struct trajd_resample_backend *backend);
/* Resamples the block of size_bytes in the file `fd` in place. *device is NULL where the CPU did
 * it. TRAJD_ERR_ARGUMENT: the descriptor or the block is not usable. Blocks for one segment. */
enum trajd_status trajd_resample_backend_run(struct trajd_resample_backend *backend, int fd,
                                             uint64_t size_bytes, struct trajd_device **device,
                                             struct trajd_error *error);
/* Frees threads, buffers and GPU memory. The backend may be used again. */
void trajd_resample_backend_release(struct trajd_resample_backend *backend);

#endif
