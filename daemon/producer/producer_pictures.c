/* The pictures of a batch: finds the frame of each step, and has the frames made. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/base/clock.h"
#include "daemon/producer/gpu_pictures/gpu_frames.h"
#include "daemon/producer/picture_write.h"
#include "daemon/producer/producer_gpu_internal.h"
#include "kernels/resample_resolve.h"

/* ---- opening ---- */

static enum trajd_status no_memory(const struct trajd_producer *producer, struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the pictures of feed %s",
                           producer->name);
}

/* Makes the frame of steps without a picture. */
static enum trajd_status make_padding(const struct trajd_producer *producer,
                                      struct trajd_producer_picture *picture,
                                      struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &picture->plan->preparation;
    const struct trajd_image_finish *finish = &picture->plan->written;
    const uint64_t count = (uint64_t)finish->height * finish->width * finish->channels;
    void *frame = malloc(count * trajd_dtype_size(preparation->type));

    picture->padding = malloc(trajd_image_finish_bytes(finish));
    if (!frame || !picture->padding) {
        free(frame);
        return no_memory(producer, error);
    }
    trajd_image_fill(preparation, frame, count);
    trajd_image_finish_frame(finish, frame, picture->padding);
    free(frame);
    return TRAJD_OK;
}

static enum trajd_status open_picture(const struct trajd_producer *producer,
                                      const struct trajd_producer_member *member, uint32_t p,
                                      struct trajd_error *error)
{
    const struct trajd_window_plan *plan = member->plan;
    struct trajd_producer_picture *picture = &member->pictures[p];
    const struct trajd_plan_target *target = &plan->targets[plan->row_target_count + p];
    const uint32_t steps = plan->outputs[target->output_index].step_count;
    enum trajd_status status;

    picture->plan = &plan->pictures[p];
    picture->target_index = plan->row_target_count + p;
    picture->steps = calloc((size_t)producer->spec->global_batch * steps, sizeof *picture->steps);
    picture->uses = calloc((size_t)producer->spec->global_batch * steps, sizeof *picture->uses);
    if (!picture->steps || !picture->uses)
        return no_memory(producer, error);
    status = make_padding(producer, picture, error);
    if (!status)
        status = trajd_picture_make_workers(producer, &plan->outputs[target->output_index], picture,
                                            error);
    if (status || target->stream_index == TRAJD_PLAN_ABSENT)
        return status;
    if (!member->dataset->frames)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "feed %s: trajd-decoder, which decodes pictures, was found neither "
                               "beside this program nor in its installation",
                               producer->name);
    status = trajd_frames_open_view(member->dataset->frames, target->stream_index,
                                    &picture->plan->preparation, steps, &picture->view, error);
    if (status)
        trajd_error_prefix(error, "feed %s: outputs.%s", producer->name,
                           plan->outputs[target->output_index].name);
    return status;
}

enum trajd_status trajd_producer_open_pictures(struct trajd_producer *producer,
                                               struct trajd_producer_member *member,
                                               struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (!member->plan->picture_count)
        return TRAJD_OK;
    member->pictures = calloc(member->plan->picture_count, sizeof *member->pictures);
    if (!member->pictures)
        return no_memory(producer, error);
    if (!producer->ahead_batch)
        status = trajd_mixture_batch_create(producer->plan, &producer->ahead_batch, error);
    for (uint32_t p = 0; p < member->plan->picture_count && !status; p++)
        status = open_picture(producer, member, p, error);
    return status;
}

void trajd_producer_close_pictures(struct trajd_producer_member *member)
{
    for (uint32_t p = 0; member->pictures && p < member->plan->picture_count; p++) {
        struct trajd_producer_picture *picture = &member->pictures[p];
        trajd_frames_close_view(&picture->view);
        free(picture->steps);
        free(picture->uses);
        free(picture->padding);
        trajd_picture_free_workers(picture);
    }
    free(member->pictures);
    member->pictures = NULL;
}

/* ---- which frames ---- */

void trajd_picture_find_frames(const struct trajd_window_batch *batch,
                               struct trajd_producer_picture *picture, uint32_t first,
                               uint32_t count, const struct trajd_fill *fill)
{
    const struct trajd_window_plan *plan = batch->plan;
    const uint32_t t = picture->target_index,
                   steps = plan->outputs[plan->targets[t].output_index].step_count;

    picture->step_count = picture->use_count = 0;
    for (uint32_t w = 0; w < count; w++) {
        const uint32_t row = batch->window_rows ? batch->window_rows[first + w] : first + w;
        for (uint32_t s = 0; s < steps && (!fill || trajd_producer_reads_row(fill, row)); s++) {
            struct trajd_resample_step found;
            trajd_resample_resolve(&batch->request, t, w, s, &found);
            picture->steps[picture->step_count++] =
                (struct picture_step){.window = w,
                                      .step = s,
                                      .code = found.mask,
                                      .use = found.has_row ? picture->use_count : TRAJD_NO_FRAME};
            if (found.has_row)
                picture->uses[picture->use_count++] = (struct trajd_frame_use){
                    .episode_index = batch->windows[first + w].episode_index,
                    .row = (uint32_t)found.row};
        }
    }
}

/* ---- ahead ---- */

/* Returns the rows of an episode, pinned or not: pictures need none. */
static const void *const *any_rows(void *context, uint32_t episode)
{
    const struct trajd_producer_member *member = context;

    return member->rows + (size_t)episode * member->selection->array_count;
}

/* Returns the rows of an episode on the GPU; NULL: they cannot be read (bad_rows: keep). */
static const void *const *gpu_rows(void *context, uint32_t episode)
{
    const struct trajd_gpu_member *member = context;

    return trajd_gpu_member_lacks_rows(member, episode)
               ? NULL
               : member->rows + (size_t)episode * member->array_count;
}

void trajd_picture_find_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                              uint64_t position, uint32_t count)
{
    trajd_mixture_batch_look_up(producer->ahead_batch, fill->epoch, position, count);
    for (uint32_t m = 0; m < producer->plan->member_count; m++) {
        struct trajd_window_batch *batch = producer->ahead_batch->members[m];
        if (batch->window_count && producer->on_gpu)
            trajd_window_batch_bind(batch, 0, batch->window_count, fill->memory, gpu_rows,
                                    &producer->on_gpu->members[m]);
        else if (batch->window_count)
            trajd_window_batch_bind(batch, 0, batch->window_count, fill->memory, any_rows,
                                    &producer->members[m]);
        for (uint32_t p = 0; p < batch->plan->picture_count; p++)
            trajd_picture_find_frames(batch, &producer->members[m].pictures[p], 0,
                                      batch->window_count, fill);
    }
}

static void want_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                       uint64_t position, uint32_t count)
{
    trajd_picture_find_batch(producer, fill, position, count);
    for (uint32_t m = 0; m < producer->plan->member_count; m++)
        for (uint32_t p = 0; p < producer->plan->members[m]->picture_count; p++) {
            struct trajd_producer_picture *picture = &producer->members[m].pictures[p];
            if (picture->on_gpu)
                picture->use_count = trajd_gpu_frames_select_absent(picture->on_gpu, picture->uses,
                                                                    picture->use_count);
            if (picture->view)
                trajd_frames_want(picture->view, picture->uses, picture->use_count);
        }
}

void trajd_producer_want_pictures(struct trajd_producer *producer, const struct trajd_fill *fill)
{
    const uint64_t length = trajd_mixture_plan_epoch_length(producer->plan),
                   batch = producer->spec->global_batch, begin = fill->position + fill->row_count;
    uint64_t end = begin + producer->slot_count * batch;

    if (!producer->ahead_batch)
        return;
    if (producer->wanted_run_id != fill->run_id || producer->wanted_epoch != fill->epoch ||
        producer->wanted_until > end || producer->wanted_until < begin) {
        producer->wanted_run_id = fill->run_id;
        producer->wanted_epoch = fill->epoch;
        producer->wanted_until = begin;
    }
    for (end = end < length ? end : length; producer->wanted_until < end;) {
        const uint64_t remaining = end - producer->wanted_until,
                       count = remaining < batch ? remaining : batch;
        want_batch(producer, fill, producer->wanted_until, (uint32_t)count);
        producer->wanted_until += count;
    }
}

/* ---- making ---- */

enum trajd_status trajd_picture_check_frames(const struct trajd_producer *producer,
                                             const struct trajd_frame_use *uses, uint32_t count,
                                             struct trajd_error *error)
{
    for (uint32_t u = 0; u < count; u++) {
        const struct trajd_frame_use *use = &uses[u];
        const bool is_machine = use->status == TRAJD_ERR_SYSTEM || use->status == TRAJD_ERR_MEMORY;
        if (use->status && use->status != TRAJD_ERR_NOT_FOUND &&
            (is_machine || !producer->spec->keep_bad_rows))
            return trajd_error_set(
                error, use->status, use->status == TRAJD_ERR_MEMORY ? ENOMEM : 0, "%s%s",
                use->reason, is_machine ? "" : " (`bad_rows: keep` of the feed masks such frames)");
    }
    return TRAJD_OK;
}

static enum trajd_status make_picture(struct trajd_producer *producer,
                                      struct picture_writing *writing, struct trajd_error *error)
{
    struct trajd_producer_picture *picture = writing->picture;
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;
    int64_t ready_ns;

    if (picture->use_count) /* else the frames of all steps are missing */
        status = trajd_frames_pin(picture->view, picture->uses, picture->use_count, error);
    ready_ns = trajd_now_ns();
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_FRAMES_NS],
                      (uint64_t)(ready_ns - begin_ns));
    if (status)
        return status;
    status = trajd_picture_check_frames(producer, picture->uses, picture->use_count, error);
    if (!status)
        status = trajd_picture_write(writing, error);
    if (picture->use_count)
        trajd_frames_unpin(picture->view, picture->uses, picture->use_count);
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_RESAMPLE_NS],
                      (uint64_t)(trajd_now_ns() - ready_ns));
    return status;
}

enum trajd_status trajd_producer_make_pictures(struct trajd_producer *producer,
                                               struct trajd_producer_member *member,
                                               const struct trajd_fill *fill, uint32_t first,
                                               uint32_t count, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < member->plan->picture_count; p++) {
        struct trajd_producer_picture *picture = &member->pictures[p];
        trajd_picture_find_frames(member->batch, picture, first, count, NULL);
        if (picture->use_count) /* so that all cameras are decoded at once */
            trajd_frames_want(picture->view, picture->uses, picture->use_count);
    }
    for (uint32_t p = 0; p < member->plan->picture_count && !status; p++) {
        struct picture_writing writing = {.producer = producer,
                                          .batch = member->batch,
                                          .picture = &member->pictures[p],
                                          .fill = fill,
                                          .first = first};
        status = make_picture(producer, &writing, error);
    }
    return status;
}
