/* Writes the pictures of a batch to its slot: augments and finishes each frame, on the threads of
 * the pool. Where the worker finishes them, augmented frames are copied. */
#include "daemon/producer/picture_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/pool.h"

#define SLICE_BYTES 262144u /* that one turn of a thread writes */

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory to augment pictures");
}

enum trajd_status trajd_picture_make_workers(const struct trajd_producer *producer,
                                             const struct trajd_plan_output *output,
                                             struct trajd_producer_picture *picture,
                                             struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &picture->plan->preparation;
    const struct trajd_image_finish *finish = &picture->plan->written;
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    enum trajd_status status = TRAJD_OK;

    if (!output->augment)
        return TRAJD_OK;
    picture->worker_count = trajd_pool_thread_count(producer->pool);
    picture->workers = calloc(picture->worker_count, sizeof *picture->workers);
    if (!picture->workers)
        return no_memory(error);
    for (uint32_t i = 0; i < picture->worker_count && !status; i++) {
        struct picture_worker *worker = &picture->workers[i];
        status = trajd_augment_plan_create(output->augment, &frame, &worker->augment, error);
        worker->frame = malloc((uint64_t)finish->height * finish->width * finish->channels *
                               trajd_dtype_size(finish->source));
        if (!status && !worker->frame)
            status = no_memory(error);
    }
    return status;
}

void trajd_picture_free_workers(struct trajd_producer_picture *picture)
{
    for (uint32_t i = 0; picture->workers && i < picture->worker_count; i++) {
        trajd_augment_plan_destroy(&picture->workers[i].augment);
        free(picture->workers[i].frame);
    }
    free(picture->workers);
}

static const struct trajd_plan_output *plan_output(const struct picture_writing *writing)
{
    const struct trajd_window_plan *plan = writing->batch->plan;

    return &plan->outputs[plan->targets[writing->picture->target_index].output_index];
}

void trajd_picture_draw(const struct picture_writing *writing, const struct picture_step *step,
                        struct trajd_augment_params *params)
{
    const struct trajd_window_plan *plan = writing->batch->plan;

    trajd_window_draw(plan, writing->picture->target_index - plan->row_target_count,
                      writing->producer->spec->seed,
                      &writing->batch->windows[writing->first + step->window], step->step, params);
}

/* Returns a worker that no other thread uses. There is one for each thread. */
static struct picture_worker *take_worker(struct trajd_producer_picture *picture)
{
    for (uint32_t i = 0;; i = (i + 1) % picture->worker_count) {
        bool is_taken = false;
        if (__atomic_compare_exchange_n(&picture->workers[i].is_taken, &is_taken, true, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &picture->workers[i];
    }
}

uint64_t trajd_picture_augment_bytes(const struct trajd_plan_output *output)
{
    return output->augment->count * sizeof(float) * TRAJD_AUGMENT_VALUES;
}

/* Returns where the slot has the parameters of a step. */
static void *parameters_of(const struct picture_writing *writing, const struct picture_step *step,
                           uint64_t row)
{
    const struct trajd_window_plan *plan = writing->batch->plan;
    const uint32_t o = plan->targets[writing->picture->target_index].output_index;
    const struct trajd_plan_output *output = &plan->outputs[o];

    return (uint8_t *)writing->fill->memory + writing->batch->outputs[o].augment_offset_bytes +
           (row * output->step_count + step->step) * trajd_picture_augment_bytes(output);
}

/* Augments a frame, writes the parameters to the slot, and finishes it. */
static void write_augmented(struct picture_writing *writing, const struct picture_step *step,
                            uint64_t row, const void *pixels, void *output)
{
    const struct trajd_image_finish *finish = &writing->picture->plan->written;
    struct picture_worker *worker = take_worker(writing->picture);
    void *frame = trajd_image_finish_is_copy(finish) ? output : worker->frame;
    struct trajd_augment_params params;

    trajd_picture_draw(writing, step, &params);
    memcpy(parameters_of(writing, step, row), params.values,
           trajd_picture_augment_bytes(plan_output(writing)));
    if (trajd_augment_apply(worker->augment, &params, pixels, frame))
        __atomic_store_n(&writing->is_out_of_memory, true, __ATOMIC_RELAXED);
    else if (frame != output)
        trajd_image_finish_frame(finish, frame, output);
    __atomic_store_n(&worker->is_taken, false, __ATOMIC_RELEASE);
}

/* Writes a step without a frame. */
static void write_padding(const struct picture_writing *writing, const struct picture_step *step,
                          uint64_t row, void *output)
{
    memcpy(output, writing->picture->padding,
           trajd_image_finish_bytes(&writing->picture->plan->written));
    if (writing->picture->workers)
        memset(parameters_of(writing, step, row), 0,
               trajd_picture_augment_bytes(plan_output(writing)));
}

static void write_step(struct picture_writing *writing, const struct picture_step *step)
{
    struct trajd_producer_picture *picture = writing->picture;
    const struct trajd_stream *stream = &writing->batch->request_streams[picture->target_index];
    const uint64_t row = trajd_window_row(&writing->batch->request, step->window);
    const struct trajd_frame_use *use =
        step->use == TRAJD_NO_FRAME ? NULL : &picture->uses[step->use];
    uint8_t *output = (uint8_t *)stream->output + row * stream->window_stride_bytes +
                      step->step * stream->step_stride_bytes;
    const uint64_t slot_row =
        writing->batch->window_rows ? row : writing->first + (uint64_t)step->window;

    stream->mask[row * stream->mask_window_stride_bytes + step->step] =
        (uint8_t)(use && !use->pixels ? TRAJD_MASK_BAD_FRAME : step->code);
    if (!use || !use->pixels)
        write_padding(writing, step, slot_row, output);
    else if (picture->workers)
        write_augmented(writing, step, slot_row, use->pixels, output);
    else
        trajd_image_finish_frame(&picture->plan->written, use->pixels, output);
}

static void write_slice(void *context, uint32_t slice)
{
    struct picture_writing *writing = context;
    const uint32_t first = slice * writing->slice_steps,
                   end = first + writing->slice_steps < writing->picture->step_count
                             ? first + writing->slice_steps
                             : writing->picture->step_count;

    for (uint32_t i = first; i < end; i++)
        write_step(writing, &writing->picture->steps[i]);
}

enum trajd_status trajd_picture_write(struct picture_writing *writing, struct trajd_error *error)
{
    const uint64_t bytes = trajd_image_finish_bytes(&writing->picture->plan->written);

    writing->slice_steps = bytes < SLICE_BYTES ? (uint32_t)(SLICE_BYTES / bytes) : 1;
    trajd_pool_run(writing->producer->pool,
                   (writing->picture->step_count + writing->slice_steps - 1) / writing->slice_steps,
                   write_slice, writing);
    return writing->is_out_of_memory
               ? trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory to augment pictures")
               : TRAJD_OK;
}
