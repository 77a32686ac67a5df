/* Frames. A pushing thread prepares a frame and cuts its centre out, where the training draws a place;
 * the observing thread finishes it. So an observation takes as long as the norm of its frames. */
#include <string.h>

#include "clients/live/live_state.h"
#include "kernels/image/image.h"
#include "kernels/resample_resolve.h"

static uint64_t source_pixels(const struct trajd_image_preparation *preparation)
{
    return (uint64_t)preparation->source_height * preparation->source_width;
}

static enum trajd_status open_plans(struct trajd_live_picture *picture, struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &picture->rules->preparation;
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    enum trajd_status status = TRAJD_OK;

    if (!trajd_image_is_source(preparation))
        status = trajd_image_plan_create(preparation, &picture->plan, error);
    if (!status && picture->rules->augment.count) {
        trajd_augment_center(&picture->rules->augment, preparation->height, preparation->width,
                             &picture->centre);
        status = trajd_augment_plan_create(&picture->rules->augment, &frame, &picture->augment_plan,
                                           error);
    }
    return status;
}

/* Makes the value of steps without a frame. */
static void make_padding(struct trajd_live_picture *picture)
{
    trajd_image_fill(&picture->rules->preparation, picture->frame,
                     picture->frame_bytes / trajd_dtype_size(picture->rules->preparation.type));
    trajd_image_finish_frame(&picture->rules->finish, picture->frame, picture->padding);
}

static uint64_t frame_bytes_of(const struct trajd_image_finish *finish)
{
    return (uint64_t)finish->height * finish->width * finish->channels *
           trajd_dtype_size(finish->source);
}

enum trajd_status trajd_live_picture_open(struct trajd_live *live,
                                          struct trajd_live_picture *picture,
                                          struct trajd_error *error)
{
    const struct trajd_image_finish *finish = &picture->rules->finish;
    const struct trajd_image_preparation *preparation = &picture->rules->preparation;
    const struct {
        uint8_t **memory;
        uint64_t bytes;
        bool is_needed;
    } buffers[] = {
        {&picture->frame, frame_bytes_of(finish), true},
        {&picture->padding, trajd_image_finish_bytes(finish), true},
        {&picture->swapped, trajd_image_source_bytes(preparation), preparation->is_bgr},
        {&picture->prepared, trajd_image_bytes(preparation), !trajd_image_is_source(preparation)},
        {&picture->cut, frame_bytes_of(finish), picture->rules->augment.count}};
    enum trajd_status status;

    picture->frame_bytes = frame_bytes_of(finish);
    picture->frame_words = (picture->frame_bytes + 7) / 8;
    picture->frames = trajd_live_alloc(live, live->inputs[picture->input].ring.capacity,
                                       picture->frame_words * sizeof *picture->frames, error);
    if (!picture->frames)
        return TRAJD_ERR_MEMORY;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i].is_needed &&
            !(*buffers[i].memory = trajd_live_alloc(live, buffers[i].bytes, 1, error)))
            return TRAJD_ERR_MEMORY;
    status = open_plans(picture, error);
    if (!status)
        make_padding(picture);
    return status;
}

void trajd_live_picture_close(struct trajd_live_picture *picture)
{
    trajd_image_plan_destroy(&picture->plan);
    trajd_augment_plan_destroy(&picture->augment_plan);
}

/* ---- a frame comes ---- */

static void swap_colours(const uint8_t *from, uint8_t *to, uint64_t pixels)
{
    for (uint64_t i = 0; i < 3 * pixels; i += 3) {
        to[i] = from[i + 2];
        to[i + 1] = from[i + 1];
        to[i + 2] = from[i];
    }
}

static enum trajd_status take(struct trajd_live_picture *picture, uint64_t slot, const void *pixels,
                              struct trajd_error *error)
{
    if (picture->swapped) {
        swap_colours(pixels, picture->swapped, source_pixels(&picture->rules->preparation));
        pixels = picture->swapped;
    }
    if (picture->plan) {
        trajd_image_prepare(picture->plan, pixels, picture->prepared);
        pixels = picture->prepared;
    }
    if (picture->augment_plan) {
        if (trajd_augment_apply(picture->augment_plan, &picture->centre, pixels, picture->cut))
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to cut a frame");
        pixels = picture->cut;
    }
    trajd_live_words_store(picture->frames + slot * picture->frame_words, pixels,
                           picture->frame_bytes);
    return TRAJD_OK;
}

enum trajd_status trajd_live_picture_take(const struct trajd_live *live, uint32_t input,
                                          uint64_t row, const void *pixels,
                                          struct trajd_error *error)
{
    const uint64_t slot = row & (live->inputs[input].ring.capacity - 1);
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < live->rules.picture_count && !status; p++)
        if (live->pictures[p].input == input)
            status = take(&live->pictures[p], slot, pixels, error);
    return status;
}

/* ---- frames are observed ---- */

void trajd_live_picture_write(const struct trajd_live *live,
                              const struct trajd_live_picture *picture, uint8_t *out)
{
    const struct trajd_binding_output *place = &live->batch->outputs[picture->output];
    const uint32_t steps = live->rules.outputs[picture->output].step_count,
                   target = live->rules.row_target_count + (uint32_t)(picture - live->pictures);
    const struct trajd_live_input *input = &live->inputs[picture->input];
    const uint64_t bytes = trajd_image_finish_bytes(&picture->rules->finish);

    for (uint32_t t = 0; t < steps; t++) {
        uint8_t *to = out + place->offset_bytes + t * bytes;
        struct trajd_resample_step step;
        trajd_resample_resolve(&live->batch->request, target, 0, t, &step);
        out[place->mask_offset_bytes + t] = (uint8_t)step.mask;
        if (!step.has_row) {
            memcpy(to, picture->padding, bytes);
            continue;
        }
        trajd_live_words_load(
            picture->frames + ((input->first + (uint64_t)step.row) & (input->ring.capacity - 1)) *
                                  picture->frame_words,
            picture->frame, picture->frame_bytes);
        trajd_image_finish_frame(&picture->rules->finish, picture->frame, to);
    }
}
