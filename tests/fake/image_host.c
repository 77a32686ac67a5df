/* kernels/image/cuda/image_gpu.h without a GPU: the CPU's augmentation and finish, on the thread of
 * a simulated stream. */
#include <errno.h>
#include <stdlib.h>

#include "fake/device_host.h"
#include "kernels/image/cuda/image_gpu.h"

struct trajd_image_gpu {
    struct trajd_augment_plan *augment; /* NULL: none */
    struct trajd_image_finish finish;
    void *frame; /* augmented */
    uint32_t frames_max;
};

struct record {
    const void *source;
    void *output;
    struct trajd_augment_params params;
};

#define RECORD_BYTES ((sizeof(struct record) + 15) / 16 * 16)

/* A run that waits on a stream. */
struct run {
    const struct trajd_image_gpu *plan;
    const uint8_t *records;
    uint32_t count;
    void *stream;
};

enum trajd_status trajd_image_gpu_create(struct trajd_device *device,
                                         const struct trajd_image_gpu_spec *spec,
                                         uint32_t frames_max, struct trajd_image_gpu **out,
                                         struct trajd_error *error)
{
    struct trajd_image_gpu *plan = calloc(1, sizeof *plan);
    enum trajd_status status = trajd_image_finish_check(&spec->finish, error);

    (void)device;
    *out = plan;
    if (status || !plan || spec->preparation)
        return status ? status : trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "a fake GPU");
    plan->finish = spec->finish;
    plan->frames_max = frames_max;
    plan->frame = malloc((uint64_t)spec->finish.height * spec->finish.width *
                         spec->finish.channels * trajd_dtype_size(spec->finish.source));
    if (!plan->frame)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "a fake GPU's frame");
    return spec->augment
               ? trajd_augment_plan_create(spec->augment, &spec->frame, &plan->augment, error)
               : TRAJD_OK;
}

void trajd_image_gpu_destroy(struct trajd_image_gpu **plan)
{
    if (!*plan)
        return;
    if ((*plan)->augment)
        trajd_augment_plan_destroy(&(*plan)->augment);
    free((*plan)->frame);
    free(*plan);
    *plan = NULL;
}

uint64_t trajd_image_gpu_bytes(const struct trajd_image_gpu *plan)
{
    (void)plan;
    return 4096;
}

const char *trajd_image_gpu_variant(const struct trajd_image_gpu *plan, const char **why)
{
    (void)plan;
    *why = "simulated";
    return "host";
}

uint32_t trajd_image_gpu_record_bytes(const struct trajd_image_gpu *plan)
{
    (void)plan;
    return RECORD_BYTES;
}

enum trajd_status trajd_image_gpu_write_record(const struct trajd_image_gpu *plan,
                                               const void *source, void *output,
                                               const struct trajd_augment_params *params,
                                               void *record, struct trajd_error *error)
{
    struct record *written = record;

    if ((uintptr_t)source % TRAJD_IMAGE_GPU_ALIGNMENT || (uintptr_t)record % 16 ||
        !params != !plan->augment)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "a fake GPU's record");
    written->source = source;
    written->output = output;
    if (params)
        written->params = *params;
    return TRAJD_OK;
}

static void run(void *context)
{
    const struct run *run = context;

    for (uint32_t i = 0; i < run->count; i++) {
        const struct record *record = (const void *)(run->records + i * RECORD_BYTES);
        const void *frame = record->source;
        trajd_fake_need_device(run->stream, record->source, "an image");
        trajd_fake_need_device(run->stream, record->output, "an image's tensor");
        if (run->plan->augment &&
            !trajd_augment_apply(run->plan->augment, &record->params, frame, run->plan->frame))
            frame = run->plan->frame;
        trajd_image_finish_frame(&run->plan->finish, frame, record->output);
    }
}

enum trajd_status trajd_image_gpu_run(struct trajd_image_gpu *plan, const void *records,
                                      uint32_t count, void *stream, struct trajd_error *error)
{
    struct run *made = malloc(sizeof *made);

    if (!made || count > plan->frames_max)
        abort();
    trajd_fake_need_device(stream, records, "records of images");
    *made = (struct run){plan, records, count, stream};
    return trajd_fake_call(stream, run, made, error);
}
