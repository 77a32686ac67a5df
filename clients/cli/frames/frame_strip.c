#include "clients/cli/frames/frame_strip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_png.h"
#include "daemon/decode/decoder.h"

enum { GAP = 4, PER_LINE = 10, GREY = 0x80 };
#define PIXELS_MAX UINT64_C(100000000)

/* The picture of all frames: height x width x 3 bytes. */
struct strip {
    uint8_t *pixels;
    uint32_t frame_height, frame_width;
    uint32_t height, width;
};

static enum trajd_status make_strip(const struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    uint32_t count, struct strip *strip, struct trajd_error *error)
{
    const uint32_t columns = count < PER_LINE ? count : PER_LINE,
                   lines = (count + PER_LINE - 1) / PER_LINE;
    uint64_t pixels;

    strip->frame_height = preparation ? preparation->height : frame->image.height;
    strip->frame_width = preparation ? preparation->width : frame->image.width;
    strip->height = lines * (strip->frame_height + GAP) - GAP;
    strip->width = columns * (strip->frame_width + GAP) - GAP;
    pixels = (uint64_t)strip->height * strip->width;
    if (pixels > PIXELS_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%u frames of %ux%u are too large for one picture: choose --resize, "
                               "or fewer frames",
                               count, strip->frame_height, strip->frame_width);
    strip->pixels = malloc(3 * pixels);
    if (!strip->pixels)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the frames");
    memset(strip->pixels, 0xff, 3 * pixels);
    return TRAJD_OK;
}

/* Puts a frame to its place. `side` NULL: a grey box. */
static void put_frame(struct strip *strip, uint32_t number, const struct frame_side *side)
{
    const size_t row_bytes = (size_t)strip->frame_width * 3;
    const uint32_t top = number / PER_LINE * (strip->frame_height + GAP),
                   left = number % PER_LINE * (strip->frame_width + GAP);

    for (uint32_t y = 0; y < strip->frame_height; y++) {
        uint8_t *to = strip->pixels + ((size_t)(top + y) * strip->width + left) * 3;
        if (side)
            memcpy(to, side->pixels + y * row_bytes, row_bytes);
        else
            memset(to, GREY, row_bytes);
    }
}

/* Reads, decodes and prepares a frame. */
static enum trajd_status make_frame(const struct trajd_index *index, struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    struct frame_side *side, struct trajd_error *error)
{
    uint8_t *pixels = NULL;
    enum trajd_status status = frame_read(index, frame, error);

    if (!status)
        status = frame_decode(frame, &pixels, error);
    if (!status) {
        trajd_decode_upright(&frame->image, 8 * trajd_dtype_size(frame->stream->dtype), pixels);
        status = frame_prepare(frame, pixels, preparation, side, error);
    }
    free(pixels);
    free(frame->bytes);
    frame->bytes = NULL;
    return status;
}

static enum trajd_status add_frames(const struct trajd_index *index,
                                    const struct frame_strip_request *request, struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    struct strip *strip, uint32_t *bad_count,
                                    struct trajd_error *reason, struct trajd_error *error)
{
    for (uint32_t i = 0; i < request->count; i++) {
        struct frame_side side = {0};
        enum trajd_status status;
        frame->row = request->rows[i];
        status = make_frame(index, frame, preparation, &side, error);
        if (status && status != TRAJD_ERR_DATA)
            return status;
        if (status && !(*bad_count)++)
            *reason = *error;
        put_frame(strip, i, status ? NULL : &side);
        free(side.pixels);
    }
    return TRAJD_OK;
}

enum trajd_status frame_strip(const struct trajd_index *index,
                              const struct frame_strip_request *request, uint32_t *bad_count,
                              struct trajd_error *reason, struct trajd_error *error)
{
    struct trajd_image_preparation made, *preparation = request->resize.size ? &made : NULL;
    struct frame frame = {0};
    struct strip strip = {0};
    enum trajd_status status = frame_find(index, request->stream, request->episode, &frame, error);

    *bad_count = 0;
    if (!status && preparation)
        status = frame_read_resize(&request->resize, &frame, preparation, error);
    if (!status)
        status = make_strip(&frame, preparation, request->count, &strip, error);
    if (!status)
        status = add_frames(index, request, &frame, preparation, &strip, bad_count, reason, error);
    if (!status)
        status = frame_png_write(request->output, strip.pixels, strip.height, strip.width, error);
    free(strip.pixels);
    return status;
}
