/* image_gpu.h in a build without CUDA: no plan can be made. */
#include <stddef.h>

#include "kernels/image/cuda/image_gpu.h"

static enum trajd_status refuse(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "cuda: built without CUDA");
}

enum trajd_status trajd_image_gpu_create(struct trajd_device *device,
                                         const struct trajd_image_gpu_spec *spec,
                                         uint32_t frames_max, struct trajd_image_gpu **plan,
                                         struct trajd_error *error)
{
    (void)device;
    (void)spec;
    (void)frames_max;
    *plan = NULL;
    return refuse(error);
}

void trajd_image_gpu_destroy(struct trajd_image_gpu **plan)
{
    *plan = NULL;
}

uint64_t trajd_image_gpu_bytes(const struct trajd_image_gpu *plan)
{
    (void)plan;
    return 0;
}

const char *trajd_image_gpu_variant(const struct trajd_image_gpu *plan, const char **why)
{
    (void)plan;
    *why = "built without CUDA";
    return "none";
}

uint32_t trajd_image_gpu_record_bytes(const struct trajd_image_gpu *plan)
{
    (void)plan;
    return 0;
}

enum trajd_status trajd_image_gpu_write_record(const struct trajd_image_gpu *plan,
                                               const void *source, void *output,
                                               const struct trajd_augment_params *params,
                                               void *record, struct trajd_error *error)
{
    (void)plan;
    (void)source;
    (void)output;
    (void)params;
    (void)record;
    return refuse(error);
}

enum trajd_status trajd_image_gpu_run(struct trajd_image_gpu *plan, const void *records,
                                      uint32_t count, void *stream, struct trajd_error *error)
{
    (void)plan;
    (void)records;
    (void)count;
    (void)stream;
    return refuse(error);
}
