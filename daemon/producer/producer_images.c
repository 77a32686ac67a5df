/* The images of a batch: finds the frame of each step, has the frames made, augments and finishes
 * each of them on the threads of the pool, and writes them to the slot. Where the worker finishes
 * them, augmented frames are copied. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/producer/gpu_frames.h"
#include "daemon/producer/producer_gpu.h"
#include "daemon/producer/producer_images.h"
#include "kernels/clones.h"
#include "kernels/pool.h"
#include "kernels/resample_resolve.h"

#define SLICE_BYTES 262144u /* that one turn of a thread writes */
#define FETCHED_BYTES 4096u /* of the next frame */
#define LINE 64u            /* bytes of a cache line */

/* ---- opening ---- */

static enum trajd_status no_memory(const struct trajd_producer *producer, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the images of feed %s",
                           producer->name);
}

static enum trajd_status no_memory_to_augment(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory to augment images");
}

/* Makes what the threads of the pool need to augment the output's frames. */
static enum trajd_status make_workers(struct trajd_producer *producer,
                                      const struct trajd_plan_output *output,
                                      struct trajd_producer_image *image, struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &image->plan->preparation;
    const struct trajd_image_finish *finish = &image->plan->written;
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    enum trajd_status status = TRAJD_OK;

    if (!output->augment)
        return TRAJD_OK;
    image->worker_count = trajd_pool_thread_count(producer->options.pool);
    image->workers =
        trajd_arena_array(&producer->arena, image->worker_count, sizeof *image->workers);
    if (!image->workers)
        return no_memory_to_augment(error);
    for (uint32_t i = 0; i < image->worker_count && !status; i++) {
        struct image_worker *worker = &image->workers[i];
        status = trajd_augment_plan_create(output->augment, &frame, &worker->augment, error);
        worker->frame = trajd_arena_array(
            &producer->arena, (uint64_t)finish->height * finish->width * finish->channels,
            trajd_dtype_size(finish->source));
        if (!status && !worker->frame)
            status = no_memory_to_augment(error);
    }
    return status;
}

/* Makes the frame of steps without an image. */
static enum trajd_status make_padding(struct trajd_producer *producer,
                                      struct trajd_producer_image *image, struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &image->plan->preparation;
    const struct trajd_image_finish *finish = &image->plan->written;
    const uint64_t count = (uint64_t)finish->height * finish->width * finish->channels;
    void *frame = malloc(count * trajd_dtype_size(preparation->type));

    image->padding = trajd_arena_array(&producer->arena, trajd_image_finish_bytes(finish), 1);
    if (!frame || !image->padding) {
        free(frame);
        return no_memory(producer, error);
    }
    trajd_image_fill(preparation, frame, count);
    trajd_image_finish_frame(finish, frame, image->padding);
    free(frame);
    return TRAJD_OK;
}

static enum trajd_status open_image(struct trajd_producer *producer,
                                    const struct trajd_producer_member *member, uint32_t p,
                                    struct trajd_error *error)
{
    const struct trajd_window_plan *plan = member->plan;
    struct trajd_producer_image *image = &member->images[p];
    const struct trajd_plan_target *target = &plan->rules.targets[plan->rules.row_target_count + p];
    const uint32_t steps = plan->rules.outputs[target->output_index].step_count;
    enum trajd_status status;

    image->plan = &plan->rules.images[p];
    image->target_index = plan->rules.row_target_count + p;
    image->steps = trajd_arena_array(
        &producer->arena, (uint64_t)producer->spec->global_batch * steps, sizeof *image->steps);
    image->uses = trajd_arena_array(
        &producer->arena, (uint64_t)producer->spec->global_batch * steps, sizeof *image->uses);
    if (producer->arena.is_starved)
        return no_memory(producer, error);
    status = make_padding(producer, image, error);
    if (!status)
        status = make_workers(producer, &plan->rules.outputs[target->output_index], image, error);
    if (status || target->stream_index == TRAJD_PLAN_ABSENT)
        return status;
    if (!member->dataset->frames)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "feed %s: trajd-decoder, which decodes images, was found neither "
                               "beside this program nor in its installation",
                               producer->name);
    status = trajd_frames_open_view(
        member->dataset->frames, target->stream_index, &image->plan->preparation, steps,
        producer->spec->order != TRAJD_ORDER_GLOBAL, &image->view, error);
    if (status)
        trajd_error_prefix(error, "feed %s: outputs.%s", producer->name,
                           plan->rules.outputs[target->output_index].name);
    return status;
}

enum trajd_status trajd_producer_open_images(struct trajd_producer *producer,
                                             struct trajd_producer_member *member,
                                             struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (!member->plan->rules.image_count)
        return TRAJD_OK;
    member->images = trajd_arena_array(&producer->arena, member->plan->rules.image_count,
                                       sizeof *member->images);
    if (!member->images)
        return no_memory(producer, error);
    if (!producer->ahead_batch)
        status = trajd_mixture_batch_create(producer->plan, &producer->ahead_batch, error);
    for (uint32_t p = 0; p < member->plan->rules.image_count && !status; p++)
        status = open_image(producer, member, p, error);
    return status;
}

void trajd_producer_close_images(struct trajd_producer_member *member)
{
    for (uint32_t p = 0; member->images && p < member->plan->rules.image_count; p++) {
        struct trajd_producer_image *image = &member->images[p];
        trajd_frames_close_view(&image->view);
        for (uint32_t w = 0; image->workers && w < image->worker_count; w++)
            trajd_augment_plan_destroy(&image->workers[w].augment);
    }
    member->images = NULL;
}

/* ---- which frames ---- */

/* Finds the frame of each step of the windows that are bound, the windows [first, first + count) of
 * the batch. fill: only of rows that workers of this node read; NULL: of all. */
static void find_frames(const struct trajd_binding *batch, struct trajd_producer_image *image,
                        uint32_t first, uint32_t count, const struct trajd_fill *fill)
{
    const struct trajd_window_plan *plan = batch->plan;
    const uint32_t t = image->target_index,
                   steps = plan->rules.outputs[plan->rules.targets[t].output_index].step_count;

    image->step_count = image->use_count = 0;
    for (uint32_t w = 0; w < count; w++) {
        const uint32_t row = batch->window_rows ? batch->window_rows[first + w] : first + w;
        for (uint32_t s = 0; s < steps && (!fill || trajd_producer_reads_row(fill, row)); s++) {
            struct trajd_resample_step found;
            trajd_resample_resolve(&batch->request, t, w, s, &found);
            image->steps[image->step_count++] =
                (struct image_step){.window = w,
                                    .step = s,
                                    .code = found.mask,
                                    .use = found.has_row ? image->use_count : TRAJD_NO_FRAME};
            if (found.has_row)
                image->uses[image->use_count++] = (struct trajd_frame_use){
                    .episode_index = batch->windows[first + w].episode_index,
                    .row = (uint32_t)found.row};
        }
    }
}

/* ---- ahead ---- */

/* Returns the rows of an episode, pinned or not: images need none. */
static const void *const *any_rows(void *context, uint32_t episode)
{
    const struct trajd_producer_member *member = context;

    return member->rows + (size_t)episode * member->selection->array_count;
}

void trajd_image_find_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                            uint64_t position, uint32_t count)
{
    trajd_mixture_batch_look_up(producer->ahead_batch, fill->epoch, position, count);
    for (uint32_t m = 0; m < producer->plan->member_count; m++) {
        struct trajd_binding *batch = producer->ahead_batch->members[m];
        if (batch->window_count && producer->on_gpu)
            trajd_bind_windows(batch, 0, batch->window_count, fill->memory, trajd_gpu_member_rows,
                               &producer->on_gpu->members[m]);
        else if (batch->window_count)
            trajd_bind_windows(batch, 0, batch->window_count, fill->memory, any_rows,
                               &producer->members[m]);
        for (uint32_t p = 0; p < batch->plan->rules.image_count; p++)
            find_frames(batch, &producer->members[m].images[p], 0, batch->window_count, fill);
    }
}

bool trajd_producer_want_frames(struct trajd_producer *producer, const struct trajd_fill *fill,
                                uint64_t position, uint32_t count)
{
    /* a batch may be made in halves, each of its ranges on its own */
    const uint64_t pins =
        (position - fill->position) / producer->spec->global_batch * fill->range_count * 2;
    bool has_room = true;

    trajd_image_find_batch(producer, fill, position, count);
    for (uint32_t m = 0; m < producer->plan->member_count; m++)
        for (uint32_t p = 0; p < producer->plan->members[m]->rules.image_count; p++) {
            struct trajd_producer_image *image = &producer->members[m].images[p];
            if (image->on_gpu)
                image->use_count =
                    trajd_gpu_frames_select_absent(image->on_gpu, image->uses, image->use_count);
            if (image->view)
                has_room =
                    trajd_frames_want(image->view, image->uses, image->use_count, pins) && has_room;
        }
    return has_room;
}

void trajd_producer_forget_frames(struct trajd_producer *producer)
{
    for (uint32_t m = 0; m < producer->plan->member_count; m++)
        for (uint32_t p = 0; p < producer->plan->members[m]->rules.image_count; p++)
            if (producer->members[m].images[p].view)
                trajd_frames_forget(producer->members[m].images[p].view);
}

/* ---- writing ---- */

static const struct trajd_plan_output *plan_output(const struct image_writing *writing)
{
    const struct trajd_window_plan *plan = writing->batch->plan;

    return &plan->rules.outputs[plan->rules.targets[writing->image->target_index].output_index];
}

void trajd_image_draw(const struct image_writing *writing, const struct image_step *step,
                      struct trajd_augment_params *params)
{
    const struct trajd_window_plan *plan = writing->batch->plan;

    trajd_window_draw(plan, writing->image->target_index - plan->rules.row_target_count,
                      writing->producer->spec->seed,
                      &writing->batch->windows[writing->first + step->window], step->step, params);
}

/* Returns a worker that no other thread uses. There is one for each thread; NULL: images are not
 * augmented. */
static struct image_worker *take_worker(struct trajd_producer_image *image)
{
    for (uint32_t i = 0; image->workers; i = (i + 1) % image->worker_count) {
        bool is_taken = false;
        if (__atomic_compare_exchange_n(&image->workers[i].is_taken, &is_taken, true, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &image->workers[i];
    }
    return NULL;
}

uint64_t trajd_image_augment_bytes(const struct trajd_plan_output *output)
{
    return output->augment->count * sizeof(float) * TRAJD_AUGMENT_VALUES;
}

/* Returns where the slot has the parameters of a step. */
static void *parameters_of(const struct image_writing *writing, const struct image_step *step,
                           uint64_t row)
{
    const struct trajd_window_plan *plan = writing->batch->plan;
    const uint32_t o = plan->rules.targets[writing->image->target_index].output_index;
    const struct trajd_plan_output *output = &plan->rules.outputs[o];

    return writing->batch->slot + writing->batch->outputs[o].augment_offset_bytes +
           (row * output->step_count + step->step) * trajd_image_augment_bytes(output);
}

/* Augments a frame, writes the parameters to the slot, and finishes it. */
static void write_augmented(struct image_writing *writing, struct image_worker *worker,
                            const struct image_step *step, uint64_t row, const void *pixels,
                            void *output)
{
    const struct trajd_image_finish *finish = &writing->image->plan->written;
    void *frame = trajd_image_finish_is_copy(finish) ? output : worker->frame;
    struct trajd_augment_params params;

    trajd_image_draw(writing, step, &params);
    memcpy(parameters_of(writing, step, row), params.values,
           trajd_image_augment_bytes(plan_output(writing)));
    if (trajd_augment_apply(worker->augment, &params, pixels, frame))
        __atomic_store_n(&writing->is_out_of_memory, true, __ATOMIC_RELAXED);
    else if (frame != output)
        trajd_image_finish_frame(finish, frame, output);
}

/* Writes a step without a frame. */
static void write_padding(const struct image_writing *writing, const struct image_step *step,
                          uint64_t row, void *output)
{
    memcpy(output, writing->image->padding,
           trajd_image_finish_bytes(&writing->image->plan->written));
    if (writing->image->workers)
        memset(parameters_of(writing, step, row), 0,
               trajd_image_augment_bytes(plan_output(writing)));
}

static void write_step(struct image_writing *writing, struct image_worker *worker,
                       const struct image_step *step)
{
    struct trajd_producer_image *image = writing->image;
    const struct trajd_stream *stream = &writing->batch->request_streams[image->target_index];
    const uint64_t row = trajd_window_row(&writing->batch->request, step->window);
    const struct trajd_frame_use *use =
        step->use == TRAJD_NO_FRAME ? NULL : &image->uses[step->use];
    uint8_t *output = (uint8_t *)stream->output + row * stream->window_stride_bytes +
                      step->step * stream->step_stride_bytes;
    const uint64_t slot_row =
        writing->batch->window_rows ? row : writing->first + (uint64_t)step->window;

    stream->mask[row * stream->mask_window_stride_bytes + step->step] =
        (uint8_t)(use && !use->pixels ? TRAJD_MASK_BAD_FRAME : step->code);
    if (!use || !use->pixels)
        write_padding(writing, step, slot_row, output);
    else if (worker)
        write_augmented(writing, worker, step, slot_row, use->pixels, output);
    else
        trajd_image_finish_frame(&image->plan->written, use->pixels, output);
}

/* Fetches the beginning of a step's frame into the caches: frames lie anywhere in memory. Inlined,
 * because gcc 12 leaves out calls of a function that does nothing else. */
TRAJD_INLINE void fetch_frame(const struct trajd_producer_image *image, uint32_t i)
{
    const uint32_t use = i < image->step_count ? image->steps[i].use : TRAJD_NO_FRAME;
    const uint8_t *pixels = use == TRAJD_NO_FRAME ? NULL : image->uses[use].pixels;

    for (uint32_t at = 0; pixels && at < FETCHED_BYTES; at += LINE)
        __builtin_prefetch(pixels + at);
}

/* Takes a worker once for all steps: an atomic exchange waits for everything written before it. With
 * fetch_frame, this makes a batch of 256 frames of 84x84, cropped, 6 % faster. */
static void write_slice(void *context, uint32_t slice)
{
    struct image_writing *writing = context;
    struct image_worker *worker = take_worker(writing->image);
    const uint32_t first = slice * writing->slice_steps,
                   end = first + writing->slice_steps < writing->image->step_count
                             ? first + writing->slice_steps
                             : writing->image->step_count;

    for (uint32_t i = first; i < end; i++) {
        fetch_frame(writing->image, i + 1);
        write_step(writing, worker, &writing->image->steps[i]);
    }
    if (worker)
        __atomic_store_n(&worker->is_taken, false, __ATOMIC_RELEASE);
}

/* Writes all steps of image->steps, whose frames are pinned. TRAJD_ERR_MEMORY. */
static enum trajd_status write_steps(struct image_writing *writing, struct trajd_error *error)
{
    const uint64_t bytes = trajd_image_finish_bytes(&writing->image->plan->written);

    writing->slice_steps = bytes < SLICE_BYTES ? (uint32_t)(SLICE_BYTES / bytes) : 1;
    trajd_pool_run(writing->producer->options.pool,
                   (writing->image->step_count + writing->slice_steps - 1) / writing->slice_steps,
                   write_slice, writing);
    return writing->is_out_of_memory ? no_memory_to_augment(error) : TRAJD_OK;
}

/* ---- making ---- */

enum trajd_status trajd_image_check_frames(struct trajd_producer *producer,
                                           const struct trajd_frame_use *uses, uint32_t count,
                                           struct trajd_error *error)
{
    for (uint32_t u = 0; u < count; u++) {
        const struct trajd_frame_use *use = &uses[u];
        const bool is_machine = use->status == TRAJD_ERR_SYSTEM || use->status == TRAJD_ERR_MEMORY;
        if (!use->status || use->status == TRAJD_ERR_NOT_FOUND)
            continue;
        if (is_machine || !producer->spec->keep_bad_rows)
            return trajd_error_set(
                error, use->status, use->status == TRAJD_ERR_MEMORY ? ENOMEM : 0, "%s%s",
                use->reason, is_machine ? "" : " (`bad_rows: keep` of the feed masks such frames)");
        if (!__atomic_exchange_n(&producer->has_bad_frames, true, __ATOMIC_RELAXED))
            LOG(producer->options.log, WARNING,
                "feed %s: %s. The frame is masked. Further ones are not logged", producer->name,
                use->reason);
    }
    return TRAJD_OK;
}

static enum trajd_status make_image(struct trajd_producer *producer, struct image_writing *writing,
                                    struct trajd_error *error)
{
    struct trajd_producer_image *image = writing->image;
    int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;

    if (image->use_count) /* else the frames of all steps are missing */
        status = trajd_frames_pin(image->view, image->uses, image->use_count, error);
    begin_ns = trajd_producer_count_time(producer, TRAJD_PRODUCER_FRAMES_NS, begin_ns);
    if (status)
        return status;
    status = trajd_image_check_frames(producer, image->uses, image->use_count, error);
    if (!status)
        status = write_steps(writing, error);
    if (image->use_count)
        trajd_frames_unpin(image->view, image->uses, image->use_count);
    trajd_producer_count_time(producer, TRAJD_PRODUCER_RESAMPLE_NS, begin_ns);
    return status;
}

enum trajd_status trajd_producer_make_images(struct trajd_producer *producer,
                                             struct trajd_producer_member *member, uint32_t first,
                                             uint32_t count, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < member->plan->rules.image_count; p++) {
        struct trajd_producer_image *image = &member->images[p];
        find_frames(member->batch, image, first, count, NULL);
        if (image->use_count) /* so that all cameras are decoded at once */
            trajd_frames_want(image->view, image->uses, image->use_count, 0);
    }
    for (uint32_t p = 0; p < member->plan->rules.image_count && !status; p++) {
        struct image_writing writing = {.producer = producer,
                                        .batch = member->batch,
                                        .image = &member->images[p],
                                        .first = first};
        status = make_image(producer, &writing, error);
    }
    return status;
}
