/* Finds, reads, decodes and prepares single frames. */
#include "clients/cli/frames/frame_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_source.h"
#include "daemon/base/memory.h"

static const struct trajd_episode *find_episode(const struct trajd_index *index, const char *id,
                                                uint32_t array)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (!episode->quarantine && (!id || !strcmp(episode->id, id)) &&
            trajd_array_row_count(&episode->extents[array]))
            return episode;
    }
    return NULL;
}

/* Names the image stream whose last part is the name, if there is one. */
static enum trajd_status no_stream(const struct trajd_index *index, const char *name,
                                   struct trajd_error *error)
{
    for (uint32_t s = 0; s < index->stream_count; s++) {
        const char *slash = strrchr(index->streams[s].name, '/');
        if (index->streams[s].image.is_present && slash && !strcmp(slash + 1, name))
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "there is no stream %s (did you mean %s?)", name,
                                   index->streams[s].name);
    }
    return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "there is no stream %s", name);
}

enum trajd_status frame_find(const struct trajd_index *index, const char *name, const char *episode,
                             struct frame *frame, struct trajd_error *error)
{
    const int64_t stream = trajd_index_find_stream(index, name);

    if (stream < 0)
        return no_stream(index, name, error);
    frame->stream = &index->streams[stream];
    frame->image = frame->stream->image;
    if (!frame->image.is_present)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: the layout does not say that it has images (key image)", name);
    frame->episode = find_episode(index, episode, frame->stream->array_index);
    if (!frame->episode)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "no kept episode%s%s has %s",
                               episode ? " " : "", episode ? episode : "", name);
    frame->array = &frame->episode->extents[frame->stream->array_index];
    if (frame->stream->form == TRAJD_ROWS_PLAIN)
        frame->image.encoding = TRAJD_ENCODING_RAW;
    frame->image.height = (uint32_t)frame->stream->shape[0];
    frame->image.width = (uint32_t)frame->stream->shape[1];
    return TRAJD_OK;
}

static bool find_name(const char *name, const char *const *names, int *number)
{
    for (*number = 0; names[*number]; (*number)++)
        if (!strcmp(name, names[*number]))
            return true;
    return false;
}

enum trajd_status frame_read_resize(const struct frame_resize *request, const struct frame *frame,
                                    struct trajd_image_preparation *preparation,
                                    struct trajd_error *error)
{
    const bool is_depth = frame->image.color == TRAJD_COLOR_DEPTH;
    const char *filter = request->filter ? request->filter
                         : is_depth      ? "nearest"
                                         : "pillow-bilinear";
    uint32_t height, width;
    int filter_number, fit_number, length = 0;

    if (sscanf(request->size, "%ux%u%n", &height, &width, &length) != 2 || request->size[length])
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--resize %s: expected HEIGHTxWIDTH, like 224x224", request->size);
    if (!find_name(filter, trajd_image_filter_names(), &filter_number))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--filter %s: choose pillow-bilinear, pillow-box, pillow-bicubic, "
                               "pillow-lanczos, tf-lanczos3, area, linear or nearest",
                               filter);
    if (!find_name(request->fit ? request->fit : "stretch", trajd_image_fit_names(), &fit_number))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--fit %s: choose stretch, pad, pad_topleft or cover", request->fit);
    *preparation =
        (struct trajd_image_preparation){.source_height = frame->image.height,
                                         .source_width = frame->image.width,
                                         .channels = trajd_image_channels(frame->image.color),
                                         .type = frame->stream->dtype,
                                         .crop = {0, 0, frame->image.height, frame->image.width},
                                         .filter = (enum trajd_image_filter)filter_number};
    if (height && width && height <= TRAJD_IMAGE_SIDE_MAX && width <= TRAJD_IMAGE_SIDE_MAX)
        trajd_image_place(preparation, (enum trajd_image_fit)fit_number, height, width);
    return trajd_image_check(preparation, error);
}

/* Returns the value of a depth pixel. */
static double depth_of(const void *pixels, enum trajd_dtype type, uint64_t i)
{
    double value = 0;

    trajd_array_to_f64(type, (const uint8_t *)pixels + i * trajd_dtype_size(type), 1, &value);
    return value == value ? value : 0;
}

enum trajd_status frame_decode(const struct trajd_index *index, struct frame *frame,
                               uint8_t **pixels, struct trajd_error *error)
{
    const struct trajd_decoder_options options = {.image = frame->image};
    struct frame_source *source = trajd_memory_or_exit(malloc(sizeof *source));
    enum trajd_status status = frame_source_open(source, index, frame->episode->file_index,
                                                 frame->array, frame->stream, options, error);

    if (!status)
        status = frame_source_read(source, frame->row, 1, error);
    if (!status)
        status = frame_source_decode(source, error);
    if (!status && *source->frames->reason)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: row %" PRIu64 ": %s",
                                 frame->stream->name, frame->row, source->frames->reason);
    if (!status) {
        frame->size = source->frames->size;
        *pixels = source->pixels;
        source->pixels = NULL;
    }
    frame_source_close(source);
    free(source);
    return status;
}

struct frame_side frame_make_side(const struct frame *frame, const void *pixels, uint32_t height,
                                  uint32_t width)
{
    const uint64_t count = (uint64_t)height * width;
    struct frame_side side = {trajd_memory_or_exit(malloc(3 * count)), height, width};
    const bool is_depth = frame->image.color == TRAJD_COLOR_DEPTH;
    const uint8_t *bytes = pixels;
    double furthest = 0;

    if (trajd_image_channels(frame->image.color) == 3) {
        memcpy(side.pixels, pixels, 3 * count);
        return side;
    }
    for (uint64_t i = 0; is_depth && i < count; i++) {
        const double depth = depth_of(pixels, frame->stream->dtype, i);
        furthest = depth > furthest ? depth : furthest;
    }
    for (uint64_t i = 0; i < count; i++) {
        const double depth =
            furthest > 0 ? depth_of(pixels, frame->stream->dtype, i) / furthest * 255 : 0;
        memset(side.pixels + 3 * i, is_depth ? (int)(depth > 0 ? depth : 0) : bytes[i], 3);
    }
    return side;
}

enum trajd_status frame_prepare(const struct frame *frame, void *pixels,
                                const struct trajd_layout_image *image,
                                const struct trajd_image_preparation *preparation,
                                struct frame_side *side, struct trajd_error *error)
{
    struct trajd_image_plan *plan;
    enum trajd_status status;
    void *prepared;

    trajd_decode_upright(image, 8 * trajd_dtype_size(frame->stream->dtype), pixels);
    if (!preparation) {
        *side = frame_make_side(frame, pixels, frame->image.height, frame->image.width);
        return TRAJD_OK;
    }
    status = trajd_image_plan_create(preparation, &plan, error);
    if (status)
        return status;
    prepared = trajd_memory_or_exit(malloc(trajd_image_bytes(preparation)));
    trajd_image_prepare(plan, pixels, prepared);
    *side = frame_make_side(frame, prepared, preparation->height, preparation->width);
    trajd_image_plan_destroy(&plan);
    free(prepared);
    return TRAJD_OK;
}
