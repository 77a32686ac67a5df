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

static enum trajd_status open_plans(struct trajd_live_image *image, struct trajd_error *error)
{
    const struct trajd_image_preparation *preparation = &image->rules->preparation;
    const struct trajd_augment_frame frame = {preparation->height, preparation->width,
                                              preparation->channels, preparation->type};
    enum trajd_status status = TRAJD_OK;

    if (!trajd_image_is_source(preparation))
        status = trajd_image_plan_create(preparation, &image->plan, error);
    if (!status && image->rules->augment.count) {
        trajd_augment_center(&image->rules->augment, preparation->height, preparation->width,
                             &image->centre);
        status =
            trajd_augment_plan_create(&image->rules->augment, &frame, &image->augment_plan, error);
    }
    return status;
}

/* Makes the value of steps without a frame. */
static void make_padding(struct trajd_live_image *image)
{
    trajd_image_fill(&image->rules->preparation, image->frame,
                     image->frame_bytes / trajd_dtype_size(image->rules->preparation.type));
    trajd_image_finish_frame(&image->rules->finish, image->frame, image->padding);
}

static uint64_t frame_bytes_of(const struct trajd_image_finish *finish)
{
    return (uint64_t)finish->height * finish->width * finish->channels *
           trajd_dtype_size(finish->source);
}

enum trajd_status trajd_live_image_open(struct trajd_live *live, struct trajd_live_image *image,
                                        struct trajd_error *error)
{
    const struct trajd_image_finish *finish = &image->rules->finish;
    const struct trajd_image_preparation *preparation = &image->rules->preparation;
    const struct {
        uint8_t **memory;
        uint64_t bytes;
        bool is_needed;
    } buffers[] = {
        {&image->frame, frame_bytes_of(finish), true},
        {&image->padding, trajd_image_finish_bytes(finish), true},
        {&image->swapped, trajd_image_source_bytes(preparation), preparation->is_bgr},
        {&image->prepared, trajd_image_bytes(preparation), !trajd_image_is_source(preparation)},
        {&image->cut, frame_bytes_of(finish), image->rules->augment.count}};
    enum trajd_status status;

    image->frame_bytes = frame_bytes_of(finish);
    image->frame_words = (image->frame_bytes + 7) / 8;
    image->frames = trajd_live_alloc(live, live->inputs[image->input].ring.capacity,
                                     image->frame_words * sizeof *image->frames, error);
    if (!image->frames)
        return TRAJD_ERR_MEMORY;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        if (buffers[i].is_needed &&
            !(*buffers[i].memory = trajd_live_alloc(live, buffers[i].bytes, 1, error)))
            return TRAJD_ERR_MEMORY;
    status = open_plans(image, error);
    if (!status)
        make_padding(image);
    return status;
}

void trajd_live_image_close(struct trajd_live_image *image)
{
    trajd_image_plan_destroy(&image->plan);
    trajd_augment_plan_destroy(&image->augment_plan);
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

static enum trajd_status take(struct trajd_live_image *image, uint64_t slot, const void *pixels,
                              struct trajd_error *error)
{
    if (image->swapped) {
        swap_colours(pixels, image->swapped, source_pixels(&image->rules->preparation));
        pixels = image->swapped;
    }
    if (image->plan) {
        trajd_image_prepare(image->plan, pixels, image->prepared);
        pixels = image->prepared;
    }
    if (image->augment_plan) {
        if (trajd_augment_apply(image->augment_plan, &image->centre, pixels, image->cut))
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to cut a frame");
        pixels = image->cut;
    }
    trajd_live_words_store(image->frames + slot * image->frame_words, pixels, image->frame_bytes);
    return TRAJD_OK;
}

enum trajd_status trajd_live_image_take(const struct trajd_live *live, uint32_t input, uint64_t row,
                                        const void *pixels, struct trajd_error *error)
{
    const uint64_t slot = row & (live->inputs[input].ring.capacity - 1);
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < live->rules.image_count && !status; p++)
        if (live->images[p].input == input)
            status = take(&live->images[p], slot, pixels, error);
    return status;
}

/* ---- frames are observed ---- */

void trajd_live_image_write(const struct trajd_live *live, const struct trajd_live_image *image,
                            uint8_t *out)
{
    const struct trajd_binding_output *place = &live->batch->outputs[image->output];
    const uint32_t steps = live->rules.outputs[image->output].step_count,
                   target = live->rules.row_target_count + (uint32_t)(image - live->images);
    const struct trajd_live_input *input = &live->inputs[image->input];
    const uint64_t bytes = trajd_image_finish_bytes(&image->rules->finish);

    for (uint32_t t = 0; t < steps; t++) {
        uint8_t *to = out + place->offset_bytes + t * bytes;
        struct trajd_resample_step step;
        trajd_resample_resolve(&live->batch->request, target, 0, t, &step);
        out[place->mask_offset_bytes + t] = (uint8_t)step.mask;
        if (!step.has_row) {
            memcpy(to, image->padding, bytes);
            continue;
        }
        trajd_live_words_load(
            image->frames + ((input->first + (uint64_t)step.row) & (input->ring.capacity - 1)) *
                                image->frame_words,
            image->frame, image->frame_bytes);
        trajd_image_finish_frame(&image->rules->finish, image->frame, to);
    }
}
