#include "clients/cli/frames/frame_show.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/frames/frame_png.h"
#include "daemon/base/paths.h"
#include "daemon/decode/decode_upright.h"
#include "daemon/decode/decoder.h"
#include "daemon/index/rows/encoded.h"

enum { GAP = 8, DECODE_TIMEOUT_MS = 20000, NAME_SIZE = 1024, PATH_SIZE = 4096 };

/* The frame that is shown. */
struct frame {
    const struct trajd_index_stream *stream;
    const struct trajd_episode *episode;
    const struct trajd_array *array;
    uint64_t row;
    struct trajd_layout_image image; /* with the size of the frame */
    uint8_t *bytes;                  /* as in the file; owned */
    uint64_t size;
};

/* One side of the picture: height x width x 3 bytes, owned. */
struct side {
    uint8_t *pixels;
    uint32_t height, width;
};

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the frame");
}

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

/* Reads "STREAM:ROW" and finds both. */
static enum trajd_status find_frame(const struct trajd_index *index,
                                    const struct frame_request *request, struct frame *frame,
                                    struct trajd_error *error)
{
    const char *colon = strrchr(request->frame, ':');
    char name[NAME_SIZE], *end = NULL;
    int64_t stream;

    frame->row = colon ? strtoull(colon + 1, &end, 10) : 0;
    if (!colon || end == colon + 1 || *end || colon[1] == '-')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--frame %s: expected STREAM:ROW, like observations/images/top:120",
                               request->frame);
    snprintf(name, sizeof name, "%.*s", (int)(colon - request->frame), request->frame);
    stream = trajd_index_find_stream(index, name);
    if (stream < 0)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "there is no stream %s", name);
    frame->stream = &index->streams[stream];
    frame->image = frame->stream->image;
    if (!frame->image.is_present)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: the layout does not say that it has pictures (key image)",
                               name);
    frame->episode = find_episode(index, request->episode, frame->stream->array_index);
    if (!frame->episode)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0, "no kept episode%s%s has %s",
                               request->episode ? " " : "",
                               request->episode ? request->episode : "", name);
    frame->array = &frame->episode->extents[frame->stream->array_index];
    if (frame->row >= trajd_array_row_count(frame->array))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "%s has %" PRIu64 " rows in %s", name,
                               trajd_array_row_count(frame->array), frame->episode->id);
    frame->image.height = (uint32_t)frame->stream->shape[0];
    frame->image.width = (uint32_t)frame->stream->shape[1];
    return TRAJD_OK;
}

static enum trajd_status read_plain(struct frame *frame, int fd, struct trajd_error *error)
{
    struct trajd_array_reader *reader;
    enum trajd_status status = trajd_array_reader_create(&reader, error);

    frame->size = trajd_array_row_bytes(frame->array);
    frame->bytes = malloc(frame->size);
    if (!status)
        status = frame->bytes ? trajd_array_read(reader, fd, frame->array, frame->row, 1,
                                                 frame->bytes, error)
                              : no_memory(error);
    trajd_array_reader_destroy(&reader);
    return status;
}

static enum trajd_status read_encoded(struct frame *frame, int fd, uint64_t file_size,
                                      struct trajd_error *error)
{
    struct trajd_encoded_reader *reader;
    const struct trajd_row_bytes *rows;
    enum trajd_status status = trajd_encoded_reader_create(&reader, error);
    uint64_t done;

    if (!status)
        status = trajd_encoded_read(reader, fd, file_size, frame->array, frame->row, 1, &rows,
                                    &done, error);
    if (!status) {
        frame->size = rows->size;
        frame->bytes = malloc(rows->size + 1);
        if (frame->bytes)
            memcpy(frame->bytes, rows->data, rows->size);
        else
            status = no_memory(error);
    }
    trajd_encoded_reader_destroy(&reader);
    return status;
}

static enum trajd_status read_frame(const struct trajd_index *index, struct frame *frame,
                                    struct trajd_error *error)
{
    const struct trajd_index_file *file = &index->files[frame->episode->file_index];
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    enum trajd_status status;

    if (fd < 0)
        return trajd_error_set(error, TRAJD_ERR_IO, errno, "%s: %s", file->path, strerror(errno));
    status = frame->stream->form == TRAJD_ROWS_PLAIN
                 ? read_plain(frame, fd, error)
                 : read_encoded(frame, fd, file->stat.size_bytes, error);
    close(fd);
    return status;
}

/* Finds a name among those of a list of `count` numbers. */
static bool find_name(const char *name, const char *(*name_of)(int), int count, int *number)
{
    for (*number = 0; *number < count; (*number)++)
        if (!strcmp(name, name_of(*number)))
            return true;
    return false;
}

static const char *filter_name(int filter)
{
    return trajd_image_filter_name((enum trajd_image_filter)filter);
}

static const char *fit_name(int fit)
{
    return trajd_image_fit_name((enum trajd_image_fit)fit);
}

/* Reads how the right side is prepared. */
static enum trajd_status read_preparation(const struct frame_request *request,
                                          const struct frame *frame,
                                          struct trajd_image_preparation *preparation,
                                          struct trajd_error *error)
{
    const bool is_depth = frame->image.color == TRAJD_COLOR_DEPTH;
    const char *filter = request->filter ? request->filter
                         : is_depth      ? "nearest"
                                         : "pillow-bilinear";
    uint32_t height, width;
    int filter_number, fit_number, length = 0;

    if (sscanf(request->resize, "%ux%u%n", &height, &width, &length) != 2 ||
        request->resize[length])
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--resize %s: expected HEIGHTxWIDTH, like 224x224", request->resize);
    if (!find_name(filter, filter_name, TRAJD_IMAGE_FILTER_COUNT, &filter_number))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--filter %s: choose pillow-bilinear, pillow-box, pillow-bicubic, "
                               "pillow-lanczos, tf-lanczos3, area, linear or nearest",
                               filter);
    if (!find_name(request->fit ? request->fit : "stretch", fit_name, TRAJD_IMAGE_FIT_COUNT,
                   &fit_number))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--fit %s: choose stretch, pad, pad_topleft or cover", request->fit);
    *preparation =
        (struct trajd_image_preparation){.source_height = frame->image.height,
                                         .source_width = frame->image.width,
                                         .channels = trajd_picture_channels(frame->image.color),
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

/* Writes the pixels as RGB: grey three times, depth from black to white. */
static void write_rgb(const struct frame *frame, const void *pixels, struct side *side)
{
    const uint64_t count = (uint64_t)side->height * side->width;
    const uint8_t *bytes = pixels;
    double furthest = 0;

    if (trajd_picture_channels(frame->image.color) == 3) {
        memcpy(side->pixels, pixels, 3 * count);
        return;
    }
    for (uint64_t i = 0; frame->image.color == TRAJD_COLOR_DEPTH && i < count; i++) {
        const double depth = depth_of(pixels, frame->stream->dtype, i);
        furthest = depth > furthest ? depth : furthest;
    }
    for (uint64_t i = 0; i < count; i++) {
        const double depth =
            furthest > 0 ? depth_of(pixels, frame->stream->dtype, i) / furthest * 255 : 0;
        memset(side->pixels + 3 * i,
               frame->image.color == TRAJD_COLOR_DEPTH ? (int)(depth > 0 ? depth : 0) : bytes[i],
               3);
    }
}

/* Decodes the frame as it is stored. *pixels: the caller frees. */
static enum trajd_status decode(const struct frame *frame, uint8_t **pixels,
                                struct trajd_error *error)
{
    char program[PATH_SIZE];
    const struct trajd_decoder_options options = {.program = program,
                                                  .image = frame->image,
                                                  .bits =
                                                      8 * trajd_dtype_size(frame->stream->dtype),
                                                  .largest_frame_bytes = frame->size + 1,
                                                  .timeout_ms = DECODE_TIMEOUT_MS};
    struct trajd_decoder_frame request = {
        frame->bytes, frame->size, trajd_encoded_row_room(frame->array, frame->size), NULL, ""};
    struct trajd_decoder *decoder;
    enum trajd_status status;

    if (!trajd_paths_decoder(program, sizeof program))
        return trajd_error_set(
            error, TRAJD_ERR_NOT_FOUND, 0,
            "trajd-decoder was found neither beside this program nor in its installation");
    status = trajd_decoder_create(&options, &decoder, error);
    if (status)
        return status;
    request.pixels = *pixels = malloc(trajd_decoder_frame_bytes(decoder));
    status = request.pixels ? trajd_decoder_run(decoder, &request, 1, error) : no_memory(error);
    if (!status && *request.reason)
        status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: row %" PRIu64 ": %s",
                                 frame->stream->name, frame->row, request.reason);
    trajd_decoder_destroy(&decoder);
    return status;
}

static enum trajd_status make_side(const struct frame *frame, const void *pixels, uint32_t height,
                                   uint32_t width, struct side *side, struct trajd_error *error)
{
    *side = (struct side){malloc((size_t)height * width * 3), height, width};
    if (!side->pixels)
        return no_memory(error);
    write_rgb(frame, pixels, side);
    return TRAJD_OK;
}

/* Makes the right side of an upright frame. `preparation` NULL: none. */
static enum trajd_status prepare(const struct frame *frame, const void *pixels,
                                 const struct trajd_image_preparation *preparation,
                                 struct side *side, struct trajd_error *error)
{
    struct trajd_image_plan *plan;
    enum trajd_status status;
    void *prepared;

    if (!preparation)
        return make_side(frame, pixels, frame->image.height, frame->image.width, side, error);
    status = trajd_image_plan_create(preparation, &plan, error);
    if (status)
        return status;
    prepared = malloc(trajd_image_bytes(preparation));
    if (prepared) {
        trajd_image_prepare(plan, pixels, prepared);
        status = make_side(frame, prepared, preparation->height, preparation->width, side, error);
    } else {
        status = no_memory(error);
    }
    trajd_image_plan_destroy(&plan);
    free(prepared);
    return status;
}

/* Decodes the frame and makes both sides. */
static enum trajd_status make_sides(const struct frame *frame,
                                    const struct trajd_image_preparation *preparation,
                                    struct side *left, struct side *right,
                                    struct trajd_error *error)
{
    uint8_t *pixels = NULL;
    enum trajd_status status = decode(frame, &pixels, error);

    if (!status)
        status = make_side(frame, pixels, frame->image.height, frame->image.width, left, error);
    if (!status) {
        trajd_decode_upright(&frame->image, 8 * trajd_dtype_size(frame->stream->dtype), pixels);
        status = prepare(frame, pixels, preparation, right, error);
    }
    free(pixels);
    return status;
}

/* Writes both sides into one picture. */
static enum trajd_status write_picture(const char *path, const struct side *left,
                                       const struct side *right, struct trajd_error *error)
{
    const uint32_t height = left->height > right->height ? left->height : right->height;
    const uint32_t width = left->width + GAP + right->width;
    uint8_t *pixels = malloc((size_t)height * width * 3);
    enum trajd_status status;

    if (!pixels)
        return no_memory(error);
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
                     const struct side *right)
{
    printf("%s, %s, row %" PRIu64 ": %ux%u %s, %" PRIu64 " bytes, stored as %s\n",
           frame->stream->name, frame->episode->id, frame->row, frame->image.height,
           frame->image.width, trajd_picture_color_name(frame->image.color), frame->size,
           frame->stream->form == TRAJD_ROWS_PLAIN
               ? "raw pixels"
               : trajd_picture_encoding_name(frame->stream->encoding));
    printf("%s: left as a standard decoder gives it, right upright and red first, %ux%u\n",
           request->output, right->height, right->width);
}

enum trajd_status frame_show(const struct trajd_index *index, const struct frame_request *request,
                             struct trajd_error *error)
{
    struct trajd_image_preparation preparation;
    struct side left = {0}, right = {0};
    struct frame frame = {0};
    enum trajd_status status = find_frame(index, request, &frame, error);

    if (!status && request->resize)
        status = read_preparation(request, &frame, &preparation, error);
    if (!status)
        status = read_frame(index, &frame, error);
    if (!status)
        status = make_sides(&frame, request->resize ? &preparation : NULL, &left, &right, error);
    if (!status)
        status = write_picture(request->output, &left, &right, error);
    if (!status)
        describe(&frame, request, &right);
    free(frame.bytes);
    free(left.pixels);
    free(right.pixels);
    return status;
}
