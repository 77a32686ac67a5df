/* kernels/transform/cuda/transform_gpu.h without a GPU: the code of a thread, for all steps in
 * turn, and the CPU's blends, on the thread of a simulated stream. */
#include <stdlib.h>

#include "fake/device_host.h"
#include "kernels/transform/cuda/transform_step.h"

struct steps {
    struct trajd_step_launch launch;
    void *stream;
};

static void need(const struct steps *steps)
{
    trajd_fake_need_device(steps->stream, steps->launch.window_rows, "window_rows");
    for (uint32_t o = 0; o < steps->launch.output_count; o++) {
        const struct trajd_step_output *out = &steps->launch.outputs[o];
        trajd_fake_need_device(steps->stream, out->source, "rows");
        trajd_fake_need_device(steps->stream, out->source_mask, "masks of rows");
        trajd_fake_need_device(steps->stream, out->reference, "a state");
        trajd_fake_need_device(steps->stream, out->reference_mask, "masks of a state");
        trajd_fake_need_device(steps->stream, out->output, "an output");
        trajd_fake_need_device(steps->stream, out->mask, "masks");
        trajd_fake_need_device(steps->stream, out->scale, "scales");
        trajd_fake_need_device(steps->stream, out->offset, "offsets");
    }
}

static void run_steps(void *context)
{
    const struct steps *steps = context;

    for (uint32_t o = 0; o < steps->launch.output_count; o++)
        for (uint32_t w = 0; w < steps->launch.window_count; w++)
            for (uint32_t t = 0; t < steps->launch.outputs[o].step_count; t++)
                trajd_step_run(&steps->launch, o, w, t);
}

enum trajd_status trajd_transform_gpu_run(const struct trajd_transform_gpu_job *jobs,
                                          uint32_t count, uint32_t window_count,
                                          const struct trajd_device_facts *facts, void *stream,
                                          struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    (void)facts;
    for (uint32_t done = 0; done < count && !status;) {
        struct steps *steps = malloc(sizeof *steps);
        if (!steps)
            abort();
        done = trajd_step_pack(jobs, done, count, window_count, &steps->launch);
        steps->stream = stream;
        need(steps);
        status = trajd_fake_call(stream, run_steps, steps, error);
    }
    return status;
}

struct blend {
    struct trajd_resample_request *request; /* owned */
    uint32_t stream_index, column;
    enum trajd_rotation_form form;
};

static void run_blend(void *context)
{
    const struct blend *blend = context;

    trajd_transform_blend(blend->request, blend->stream_index, blend->column, blend->form, 0,
                          blend->request->window_count);
    free(blend->request);
}

enum trajd_status trajd_transform_gpu_blend(const struct trajd_resample_request *request,
                                            uint32_t stream_index, uint32_t column,
                                            enum trajd_rotation_form form,
                                            const struct trajd_device_facts *facts, void *stream,
                                            struct trajd_error *error)
{
    struct trajd_blend_launch launch;
    struct blend *blend;

    (void)facts;
    if (!trajd_blend_pack(request, stream_index, column, form, &launch))
        return TRAJD_OK;
    blend = malloc(sizeof *blend);
    if (!blend)
        abort();
    *blend = (struct blend){trajd_fake_keep(request), stream_index, column, form};
    if (!blend->request)
        abort();
    return trajd_fake_call(stream, run_blend, blend, error);
}
