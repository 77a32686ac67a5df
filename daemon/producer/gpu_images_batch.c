/* The images of one batch on a GPU: brings frames there, writes records, and launches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/producer/gpu_images.h"

#define PINNED_AT_ONCE 256u

/* One image of the batch that is being made. */
struct making {
    struct trajd_gpu_images *images;
    const struct trajd_gpu_batch *gpu_batch;
    uint32_t number; /* of the batch: which of `depth` */
    uint32_t member;
    struct trajd_producer_image *image;
    struct trajd_gpu_image *own;
    uint8_t *ids; /* the staged tensors behind ids_offset */
    uint32_t streamed_count;
};

/* ---- frames ---- */

static int compare(const void *a, const void *b)
{
    const struct absent_frame *x = a, *y = b;

    return (x->key > y->key) - (x->key < y->key);
}

/* Finds the addresses of all frames that are on the GPU, and lists the uses of the others, those of
 * the same frame side by side. */
static uint32_t list_absent(struct making *making)
{
    const struct trajd_producer_image *image = making->image;
    struct absent_frame *absent = making->images->absent;
    uint32_t count = 0;

    for (uint32_t u = 0; u < image->use_count; u++) {
        const struct trajd_frame_use *use = &image->uses[u];
        making->own->addresses[u] =
            trajd_gpu_frames_find(image->on_gpu, use->episode_index, use->row);
        if (!making->own->addresses[u])
            absent[count++] =
                (struct absent_frame){(uint64_t)use->episode_index << 32 | use->row, u};
    }
    qsort(absent, count, sizeof *absent, compare);
    return count;
}

static bool is_streamed(const struct trajd_gpu_images *images, const void *address)
{
    const uintptr_t begin = (uintptr_t)images->streamed, at = (uintptr_t)address;

    return begin && at >= begin && at - begin < images->depth * images->streamed_bytes;
}

/* Returns memory for a frame: where it stays, or of this batch. NULL: there is none. */
static void *take(struct making *making)
{
    const struct trajd_gpu_images *images = making->images;
    struct trajd_gpu_frames *frames = making->image->on_gpu;
    void *taken = trajd_gpu_frames_take(frames);

    if (taken || trajd_gpu_frames_fit(frames))
        return taken;
    return (uint8_t *)images->streamed + making->number * images->streamed_bytes +
           making->own->streamed_at + making->streamed_count++ * trajd_gpu_frames_stride(frames);
}

/* Finds pinned frames that another feed has brought meanwhile, and starts the copies of the others.
 * found[i] is where frame i is, and taken[i] the memory that it was copied to. */
static enum trajd_status copy_pinned(struct making *making, const struct trajd_frame_use *pinned,
                                     uint32_t count, const void **found, void **taken,
                                     struct trajd_error *error)
{
    const uint64_t bytes = trajd_image_bytes(&making->image->plan->preparation);
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < count && !status; i++) {
        found[i] =
            trajd_gpu_frames_find(making->image->on_gpu, pinned[i].episode_index, pinned[i].row);
        if (found[i] || !pinned[i].pixels)
            continue;
        found[i] = taken[i] = take(making);
        status = taken[i] ? trajd_device_copy_async(taken[i], pinned[i].pixels, bytes,
                                                    making->images->copies, error)
                          : trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM,
                                            "no memory for an image on the GPU");
    }
    return status;
}

/* Adds the copied frames to those that stay; after an error, gives their memory back. */
static enum trajd_status keep_copied(struct making *making, const struct trajd_frame_use *pinned,
                                     uint32_t count, void **taken, enum trajd_status status,
                                     struct trajd_error *error)
{
    struct trajd_gpu_frames *frames = making->image->on_gpu;

    for (uint32_t i = 0; i < count; i++) {
        if (!taken[i] || is_streamed(making->images, taken[i]))
            continue;
        if (status)
            trajd_gpu_frames_give_back(frames, taken[i]);
        else if (!trajd_gpu_frames_add(frames, pinned[i].episode_index, pinned[i].row, taken[i]))
            status = trajd_error_set(error, TRAJD_ERR_MEMORY, ENOMEM, "no memory for images");
    }
    return status;
}

/* Brings pinned frames to the GPU. Waits for their copies, because another feed may read them next,
 * and because they are only pinned until then. */
static enum trajd_status bring_pinned(struct making *making, const struct trajd_frame_use *pinned,
                                      uint32_t count, const void **found, struct trajd_error *error)
{
    struct trajd_gpu_frames *frames = making->image->on_gpu;
    void *taken[PINNED_AT_ONCE] = {0};
    struct trajd_error later;
    enum trajd_status status, waited;

    trajd_gpu_frames_begin_adding(frames);
    status = copy_pinned(making, pinned, count, found, taken, error);
    waited = trajd_device_stream_wait(making->images->copies, status ? &later : error);
    status = keep_copied(making, pinned, count, taken, status ? status : waited, error);
    trajd_gpu_frames_end_adding(frames);
    return status;
}

/* Makes some frames in host memory and brings them to the GPU. */
static enum trajd_status bring(struct making *making, struct trajd_frame_use *pinned,
                               uint32_t count, const void **found, struct trajd_error *error)
{
    struct trajd_frame_view *view = making->image->view;
    enum trajd_status status = trajd_frames_pin(view, pinned, count, error);

    if (status)
        return status;
    status = trajd_image_check_frames(making->images->producer, pinned, count, error);
    if (!status)
        status = bring_pinned(making, pinned, count, found, error);
    trajd_frames_unpin(view, pinned, count);
    return status;
}

/* Brings frames to the GPU, some at once: as many as have room in host memory. Where there is no
 * room for one, waits until other feeds have unpinned theirs. */
static enum trajd_status bring_all(struct making *making, struct trajd_frame_use *pinned,
                                   uint32_t count, const void **found, struct trajd_error *error)
{
    uint32_t most = PINNED_AT_ONCE;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t done = 0; done < count && !status;) {
        const uint32_t some = count - done < most ? count - done : most;
        status = bring(making, pinned + done, some, found + done, error);
        if (!status)
            done += some;
        else if (status == TRAJD_ERR_MEMORY &&
                 (some > 1 || trajd_producer_pause_for_room(making->images->producer, error))) {
            most = some > 1 ? some / 2 : 1;
            status = TRAJD_OK;
        }
    }
    return status;
}

/* Sets the address of each use. */
static enum trajd_status place_frames(struct making *making, struct trajd_error *error)
{
    struct trajd_gpu_images *images = making->images;
    struct trajd_frame_use *pinned = images->pinned;
    const uint32_t count = list_absent(making);
    const void **found = calloc(count + 1, sizeof *found);
    uint32_t distinct = 0;
    enum trajd_status status;

    images->has_brought = images->has_brought || count;
    for (uint32_t i = 0; i < count; i++)
        if (!i || images->absent[i].key != images->absent[i - 1].key)
            pinned[distinct++] = making->image->uses[images->absent[i].use];
    status = found ? bring_all(making, pinned, distinct, found, error)
                   : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for images");
    for (uint32_t i = 0, d = 0; i < count && !status; i++) {
        d += i && images->absent[i].key != images->absent[i - 1].key;
        making->own->addresses[images->absent[i].use] = found[d];
    }
    free(found);
    return status;
}

/* ---- steps ---- */

static enum trajd_status write_record(struct making *making, const struct image_writing *writing,
                                      const struct image_step *step, const void *frame,
                                      void *output, void *parameters, struct trajd_error *error)
{
    struct trajd_gpu_images *images = making->images;
    const struct trajd_gpu_image_group *group = &images->groups[making->own->group];
    uint32_t *count =
        &images->record_count[making->number * images->group_count + making->own->group];
    uint8_t *record = images->staging + making->number * images->staged_bytes + group->records_at +
                      (uint64_t)*count * group->record_bytes;
    struct trajd_augment_params params;
    const bool is_augmented = parameters != NULL;

    if (is_augmented) {
        trajd_image_draw(writing, step, &params);
        memcpy(parameters, params.values,
               making->image->plan->augment.count * sizeof(float) * TRAJD_AUGMENT_VALUES);
    }
    ++*count;
    return trajd_image_gpu_write_record(group->plan, frame, output, is_augmented ? &params : NULL,
                                        record, error);
}

static bool is_float(enum trajd_dtype type)
{
    return type == TRAJD_F32 || type == TRAJD_F16 || type == TRAJD_BF16;
}

/* Makes a step of the image: its mask, its draw, and its record or a copy of the padding. */
static enum trajd_status make_step(struct making *making, const struct image_step *step,
                                   struct trajd_error *error)
{
    struct trajd_producer *producer = making->images->producer;
    const struct trajd_producer_gpu *on_gpu = producer->on_gpu;
    const struct trajd_binding *batch = producer->ahead_batch->members[making->member];
    const struct trajd_binding_output *places = producer->batch->members[making->member]->outputs;
    const uint32_t o = batch->plan->rules.targets[making->image->target_index].output_index;
    const struct trajd_plan_output *output = &batch->plan->rules.outputs[o];
    const uint64_t bytes = trajd_image_finish_bytes(&making->image->plan->finish),
                   row = batch->window_rows ? batch->window_rows[step->window] : step->window,
                   at = row * output->step_count + step->step;
    const struct image_writing writing = {
        .producer = producer, .batch = batch, .image = making->image};
    const void *frame = step->use == TRAJD_NO_FRAME ? NULL : making->own->addresses[step->use];
    uint8_t *slot = making->gpu_batch->fill.memory,
            *target = slot + places[o].offset_bytes + at * bytes;
    uint8_t *parameters =
        output->augment ? making->ids + (places[o].augment_offset_bytes - on_gpu->ids_offset) +
                              at * trajd_image_augment_bytes(output)
                        : NULL;

    making->images
        ->staging[making->number * making->images->staged_bytes + making->own->mask_at + at] =
        (uint8_t)(step->use != TRAJD_NO_FRAME && !frame ? TRAJD_MASK_BAD_FRAME : step->code);
    if (frame)
        return write_record(making, &writing, step, frame, target, parameters, error);
    if (parameters)
        memset(parameters, 0, trajd_image_augment_bytes(output));
    if (is_float(output->dtype) &&
        trajd_gpu_member_lacks_rows(&on_gpu->members[making->member],
                                    batch->windows[step->window].episode_index))
        return TRAJD_OK; /* rows that cannot be read are NaN (bad_rows: keep) */
    return trajd_device_copy_async(target, making->own->padding, bytes, on_gpu->stream, error);
}

static enum trajd_status make_image(struct making *making, struct trajd_error *error)
{
    struct trajd_producer *producer = making->images->producer;
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = making->image->use_count ? place_frames(making, error) : TRAJD_OK;

    trajd_producer_count_time(producer, TRAJD_PRODUCER_FRAMES_NS, begin_ns);
    for (uint32_t i = 0; i < making->image->step_count && !status; i++)
        status = make_step(making, &making->image->steps[i], error);
    return status;
}

/* ---- the batch ---- */

/* Starts the copies of masks to the slot, and of records. */
static enum trajd_status send(struct trajd_gpu_images *images, struct trajd_gpu_batch *gpu_batch,
                              uint32_t number, struct trajd_error *error)
{
    struct trajd_producer *producer = images->producer;
    const struct trajd_window_plan *plan = producer->plan->members[0];
    struct trajd_device_stream *stream = producer->on_gpu->stream;
    const uint8_t *staging = images->staging + number * images->staged_bytes;
    uint8_t *block = (uint8_t *)images->blocks + number * images->staged_bytes;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < plan->rules.image_count && !status; p++) {
        const uint32_t o = plan->rules.targets[plan->rules.row_target_count + p].output_index;
        status = trajd_gpu_sends_add(
            &gpu_batch->sends,
            (uint8_t *)gpu_batch->fill.memory +
                producer->batch->members[0]->outputs[o].mask_offset_bytes,
            staging + images->members[0][p].mask_at,
            (uint64_t)gpu_batch->fill.row_count * plan->rules.outputs[o].step_count, stream, error);
    }
    for (uint32_t g = 0; g < images->group_count && !status; g++) {
        const struct trajd_gpu_image_group *group = &images->groups[g];
        const uint64_t bytes =
            (uint64_t)images->record_count[number * images->group_count + g] * group->record_bytes;
        if (bytes)
            status = trajd_gpu_sends_add(&gpu_batch->sends, block + group->records_at,
                                         staging + group->records_at, bytes, stream, error);
    }
    return status;
}

enum trajd_status trajd_gpu_images_prepare(struct trajd_gpu_images *images,
                                           struct trajd_gpu_batch *gpu_batch, uint8_t *ids,
                                           struct trajd_error *error)
{
    struct trajd_producer *producer = images->producer;
    const uint32_t number = (uint32_t)(gpu_batch - producer->on_gpu->batches);
    enum trajd_status status = TRAJD_OK;

    images->has_brought = false;
    memset(&images->record_count[number * images->group_count], 0,
           images->group_count * sizeof *images->record_count);
    trajd_image_find_batch(producer, &gpu_batch->fill, gpu_batch->fill.position,
                           gpu_batch->fill.row_count);
    for (uint32_t m = 0; m < producer->plan->member_count; m++)
        for (uint32_t p = 0; p < producer->plan->members[m]->rules.image_count && !status; p++) {
            struct making making = {.images = images,
                                    .gpu_batch = gpu_batch,
                                    .number = number,
                                    .member = m,
                                    .image = &producer->members[m].images[p],
                                    .own = &images->members[m][p],
                                    .ids = ids};
            status = make_image(&making, error);
        }
    if (!status)
        status = send(images, gpu_batch, number, error);
    if (!status)
        trajd_producer_prefetch_frames(producer, &gpu_batch->fill);
    return status;
}

enum trajd_status trajd_gpu_images_launch(struct trajd_gpu_images *images,
                                          const struct trajd_gpu_batch *gpu_batch,
                                          struct trajd_error *error)
{
    const struct trajd_producer_gpu *on_gpu = images->producer->on_gpu;
    const uint32_t number = (uint32_t)(gpu_batch - on_gpu->batches);
    const uint8_t *block = (const uint8_t *)images->blocks + number * images->staged_bytes;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t g = 0; g < images->group_count; g++) {
        struct trajd_gpu_image_group *group = &images->groups[g];
        uint32_t *count = &images->record_count[number * images->group_count + g];
        for (uint32_t done = 0; done < *count && !status;) {
            const uint32_t remaining = *count - done, run = remaining < TRAJD_IMAGE_GPU_FRAMES_MAX
                                                                ? remaining
                                                                : TRAJD_IMAGE_GPU_FRAMES_MAX;
            status = trajd_image_gpu_run(
                group->plan, block + group->records_at + (uint64_t)done * group->record_bytes, run,
                trajd_device_stream_handle(on_gpu->stream), error);
            done += run;
        }
        *count = 0;
    }
    return status;
}
