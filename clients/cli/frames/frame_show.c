#include "clients/cli/frames/frame_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/frames/frame_png.h"
#include "daemon/decode/decoder.h"
#include "proto/plural.h"

enum { GAP = 8, NAME_SIZE = 1024 };

/* Reads "STREAM:ROW" and finds both. */
static enum trajd_status find_frame(const struct trajd_index *index,
                                    const struct frame_request *request, struct frame *frame,
                                    struct trajd_error *error)
{
    const char *colon = strrchr(request->frame, ':');
    char name[NAME_SIZE], *end = NULL;
    enum trajd_status status;

    frame->row = colon ? strtoull(colon + 1, &end, 10) : 0;
    if (!colon || end == colon + 1 || *end || colon[1] == '-')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--frame %s: expected STREAM:ROW, like observations/images/top:120",
                               request->frame);
    snprintf(name, sizeof name, "%.*s", (int)(colon - request->frame), request->frame);
    status = frame_find(index, name, request->episode, frame, error);
    if (!status && frame->row >= trajd_array_row_count(frame->array))
        status =
            trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s has %" PRIu64 " row%s in %s", name,
                            trajd_array_row_count(frame->array),
                            trajd_plural(trajd_array_row_count(frame->array)), frame->episode->id);
    return status;
}

/* Decodes the frame and makes both sides. Where red or blue may be first, these are both readings. */
static enum trajd_status make_sides(const struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    struct frame_side *left, struct frame_side *right,
                                    struct trajd_error *error)
{
    struct trajd_layout_image image = frame->image;
    uint8_t *pixels = NULL;
    enum trajd_status status = frame_decode(frame, &pixels, error);

    if (image.color == TRAJD_COLOR_UNDECIDED)
        image.color = TRAJD_COLOR_BGR;

    if (!status)
        status =
            frame_make_side(frame, pixels, frame->image.height, frame->image.width, left, error);
    if (!status) {
        trajd_decode_upright(&image, 8 * trajd_dtype_size(frame->stream->dtype), pixels);
        status = frame_prepare(frame, pixels, preparation, right, error);
    }
    free(pixels);
    return status;
}

/* Writes both sides into one picture. */
static enum trajd_status write_picture(const char *path, const struct frame_side *left,
                                       const struct frame_side *right, struct trajd_error *error)
{
    const uint32_t height = left->height > right->height ? left->height : right->height;
    const uint32_t width = left->width + GAP + right->width;
    uint8_t *pixels = malloc((size_t)height * width * 3);
    enum trajd_status status;

    if (!pixels)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the frame");
    memset(pixels, 0xff, (size_t)height * width * 3);
    for (uint32_t y = 0; y < left->height; y++)
        memcpy(pixels + (size_t)y * width * 3, left->pixels + (size_t)y * left->width * 3,
               (size_t)left->width * 3);
    for (uint32_t y = 0; y < right->height; y++)
        memcpy(pixels + ((size_t)y * width + left->width + GAP) * 3,
               right->pixels + (size_t)y * right->width * 3, (size_t)right->width * 3);
    status = frame_png_write(path, pixels, height, width, error);
    free(pixels);
    return status;
}

static void describe(const struct frame *frame, const struct frame_request *request,
                     const struct frame_side *right, FILE *out)
{
    const bool is_undecided = frame->image.color == TRAJD_COLOR_UNDECIDED;

    fprintf(out, "%s, %s, row %" PRIu64 ": %ux%u %s, %" PRIu64 " bytes, stored as %s\n",
            frame->stream->name, frame->episode->id, frame->row, frame->image.height,
            frame->image.width, trajd_picture_color_name(frame->image.color), frame->size,
            frame->stream->form == TRAJD_ROWS_PLAIN
                ? "raw pixels"
                : trajd_picture_encoding_name(frame->stream->encoding));
    if (is_undecided)
        fprintf(out,
                "%s: left color: rgb, right color: bgr. Write the one that looks right into the "
                "dataset's entry\n",
                request->output);
    else
        fprintf(out,
                "%s: left as a standard decoder gives it, right upright and red first, %ux%u\n",
                request->output, right->height, right->width);
}

enum trajd_status frame_show(const struct trajd_index *index, const struct frame_request *request,
                             FILE *out, struct trajd_error *error)
{
    struct trajd_image_preparation preparation;
    struct frame_side left = {0}, right = {0};
    struct frame frame = {0};
    enum trajd_status status = find_frame(index, request, &frame, error);

    if (!status && request->resize.size)
        status = frame_read_resize(&request->resize, &frame, &preparation, error);
    if (!status)
        status = frame_read(index, &frame, error);
    if (!status)
        status =
            make_sides(&frame, request->resize.size ? &preparation : NULL, &left, &right, error);
    if (!status)
        status = write_picture(request->output, &left, &right, error);
    if (!status)
        describe(&frame, request, &right, out);
    free(frame.bytes);
    free(left.pixels);
    free(right.pixels);
    return status;
}
