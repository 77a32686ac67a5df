/* Images of frames for people: both sides of one frame, or a strip of many, as a PNG file. */
#include "clients/cli/frames/frame_show.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

#include "daemon/base/memory.h"
#include "daemon/index/rows/packed_video.h"
#include "daemon/decode/decoder.h"
#include "proto/plural.h"

enum { SIDES_GAP = 8, STRIP_GAP = 4, PER_LINE = 10, WHITE = 0xff, GREY = 0x80, NAME_SIZE = 1024 };
enum { RGB_8_BIT = 2, LEVEL = 6 }; /* of PNG */
#define PIXELS_MAX UINT64_C(100000000)

/* ---- the file ---- */

static void put_be32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Writes a chunk: length, kind, content, checksum. */
static void write_chunk(FILE *out, const char *kind, const uint8_t *content, size_t size)
{
    uint8_t length[4], checksum[4];

    put_be32(length, (uint32_t)size);
    put_be32(checksum, libdeflate_crc32(libdeflate_crc32(0, kind, 4), content, size));
    fwrite(length, 1, 4, out);
    fwrite(kind, 1, 4, out);
    fwrite(content, 1, size, out);
    fwrite(checksum, 1, 4, out);
}

/* Returns the compressed rows, each with a filter byte 0 in front. The caller frees. */
static uint8_t *compress(const struct frame_side *image, size_t *size)
{
    const size_t row = (size_t)image->width * 3, total = (row + 1) * image->height;
    struct libdeflate_compressor *compressor =
        trajd_memory_or_exit(libdeflate_alloc_compressor(LEVEL));
    const size_t room = libdeflate_zlib_compress_bound(compressor, total);
    uint8_t *rows = trajd_memory_or_exit(calloc(1, total)),
            *out = trajd_memory_or_exit(malloc(room));

    for (uint32_t y = 0; y < image->height; y++)
        memcpy(rows + y * (row + 1) + 1, image->pixels + y * row, row);
    *size = libdeflate_zlib_compress(compressor, rows, total, out, room);
    libdeflate_free_compressor(compressor);
    free(rows);
    return out;
}

/* Writes the image as a new file. */
static enum trajd_status write_png(const char *path, const struct frame_side *image,
                                   struct trajd_error *error)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t header[13] = {[8] = 8, [9] = RGB_8_BIT};
    size_t size;
    uint8_t *content = compress(image, &size);
    FILE *out = fopen(path, "wxe");
    bool is_bad = !out;

    put_be32(header, image->width);
    put_be32(header + 4, image->height);
    if (out) {
        fwrite(signature, 1, sizeof signature, out);
        write_chunk(out, "IHDR", header, sizeof header);
        write_chunk(out, "IDAT", content, size);
        write_chunk(out, "IEND", header, 0);
        is_bad = fflush(out) || ferror(out);
        is_bad |= fclose(out) != 0;
    }
    if (is_bad)
        trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", path, strerror(errno));
    free(content);
    return is_bad ? TRAJD_ERR_IO : TRAJD_OK;
}

/* Returns a white image. */
static struct frame_side make_image(uint32_t height, uint32_t width)
{
    const size_t size = (size_t)height * width * 3;
    struct frame_side image = {trajd_memory_or_exit(malloc(size)), height, width};

    memset(image.pixels, WHITE, size);
    return image;
}

/* Puts a side into the image. Without pixels it becomes a grey box. */
static void put_side(struct frame_side *image, uint32_t top, uint32_t left,
                     const struct frame_side *side)
{
    const size_t row = (size_t)side->width * 3;

    for (uint32_t y = 0; y < side->height; y++) {
        uint8_t *to = image->pixels + ((size_t)(top + y) * image->width + left) * 3;
        if (side->pixels)
            memcpy(to, side->pixels + y * row, row);
        else
            memset(to, GREY, row);
    }
}

/* ---- one frame ---- */

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
static enum trajd_status make_sides(const struct trajd_index *index, struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    struct frame_side *left, struct frame_side *right,
                                    struct trajd_error *error)
{
    struct trajd_layout_image image = frame->image;
    uint8_t *pixels = NULL;
    enum trajd_status status = frame_decode(index, frame, &pixels, error);

    if (image.color == TRAJD_COLOR_UNDECIDED)
        image.color = TRAJD_COLOR_BGR;
    if (!status) {
        *left = frame_make_side(frame, pixels, frame->image.height, frame->image.width);
        status = frame_prepare(frame, pixels, &image, preparation, right, error);
    }
    free(pixels);
    return status;
}

static enum trajd_status write_sides(const char *path, const struct frame_side *left,
                                     const struct frame_side *right, struct trajd_error *error)
{
    struct frame_side image =
        make_image(left->height > right->height ? left->height : right->height,
                   left->width + SIDES_GAP + right->width);
    enum trajd_status status;

    put_side(&image, 0, 0, left);
    put_side(&image, 0, left->width + SIDES_GAP, right);
    status = write_png(path, &image, error);
    free(image.pixels);
    return status;
}

static void describe(const struct frame *frame, const struct frame_request *request,
                     const struct frame_side *right, FILE *out)
{
    const bool is_undecided = frame->image.color == TRAJD_COLOR_UNDECIDED;

    fprintf(out, "%s, %s, row %" PRIu64 ": %ux%u %s, %" PRIu64 " bytes, stored as %s\n",
            frame->stream->name, frame->episode->id, frame->row, frame->image.height,
            frame->image.width, trajd_image_color_name(frame->image.color), frame->size,
            frame->array->form == TRAJD_ROWS_PLAIN ? "raw pixels"
            : frame->array->form == TRAJD_ROWS_VIDEO
                ? trajd_video_codec_name(frame->array->video->format.codec)
                : trajd_image_encoding_name(frame->stream->encoding));
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
        status = make_sides(index, &frame, request->resize.size ? &preparation : NULL, &left,
                            &right, error);
    if (!status)
        status = write_sides(request->output, &left, &right, error);
    if (!status)
        describe(&frame, request, &right, out);
    free(left.pixels);
    free(right.pixels);
    return status;
}

/* ---- many frames ---- */

/* Reads, decodes and prepares a frame. */
static enum trajd_status make_frame(const struct trajd_index *index, struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    struct frame_side *side, struct trajd_error *error)
{
    uint8_t *pixels = NULL;
    enum trajd_status status = frame_decode(index, frame, &pixels, error);

    if (!status)
        status = frame_prepare(frame, pixels, &frame->image, preparation, side, error);
    free(pixels);
    return status;
}

/* Makes the image of all frames. `box`: the size of each one, without pixels. */
static enum trajd_status make_strip(const struct frame_strip_request *request,
                                    const struct frame_side *box, struct frame_side *strip,
                                    struct trajd_error *error)
{
    const uint32_t columns = request->count < PER_LINE ? request->count : PER_LINE,
                   lines = (request->count + PER_LINE - 1) / PER_LINE,
                   height = lines * (box->height + STRIP_GAP) - STRIP_GAP,
                   width = columns * (box->width + STRIP_GAP) - STRIP_GAP;

    if ((uint64_t)height * width > PIXELS_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%u frames of %ux%u are too large for one image: choose --resize, "
                               "or fewer frames",
                               request->count, box->height, box->width);
    *strip = make_image(height, width);
    return TRAJD_OK;
}

enum trajd_status frame_strip(const struct trajd_index *index,
                              const struct frame_strip_request *request, uint32_t *bad_count,
                              struct trajd_error *reason, struct trajd_error *error)
{
    struct trajd_image_preparation made = {0}, *preparation = request->resize.size ? &made : NULL;
    struct frame frame = {0};
    struct frame_side strip = {0}, box = {0};
    enum trajd_status status = frame_find(index, request->stream, request->episode, &frame, error);

    *bad_count = 0;
    if (!status && preparation)
        status = frame_read_resize(&request->resize, &frame, preparation, error);
    box.height = preparation ? made.height : frame.image.height;
    box.width = preparation ? made.width : frame.image.width;
    if (!status)
        status = make_strip(request, &box, &strip, error);
    for (uint32_t i = 0; i < request->count && !status; i++) {
        struct frame_side side = box;
        frame.row = request->rows[i];
        status = make_frame(index, &frame, preparation, &side, error);
        if (status == TRAJD_ERR_DATA) {
            if (!(*bad_count)++)
                *reason = *error;
            status = TRAJD_OK;
        }
        if (!status)
            put_side(&strip, i / PER_LINE * (box.height + STRIP_GAP),
                     i % PER_LINE * (box.width + STRIP_GAP), &side);
        free(side.pixels);
    }
    if (!status)
        status = write_png(request->output, &strip, error);
    free(strip.pixels);
    return status;
}
