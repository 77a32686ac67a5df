/* Reads, decodes and prepares single frames, for images that people look at. */
#ifndef TRAJD_CLI_FRAMES_FRAME_READ_H
#define TRAJD_CLI_FRAMES_FRAME_READ_H

#include "daemon/decode/decoder.h"
#include "daemon/index/index.h"
#include "kernels/image/image.h"

/* A frame of a file. */
struct frame {
    const struct trajd_index_stream *stream;
    const struct trajd_episode *episode;
    const struct trajd_array *array;
    uint64_t row;
    struct trajd_layout_image image; /* with the size of the frame */
    uint64_t size;                   /* in the file; known when it is decoded */
};

/* height x width x 3 bytes, red first; the caller frees the pixels. */
struct frame_side {
    uint8_t *pixels;
    uint32_t height, width;
};

/* How the command line asks for another size. A member that was not given is NULL. */
struct frame_resize {
    const char *size;   /* "HEIGHTxWIDTH" */
    const char *filter; /* default: pillow-bilinear, of depth nearest */
    const char *fit;    /* default: stretch */
};

/* Finds the stream, and the episode with that id; NULL: the first kept one with the stream. Sets all
 * but row and what is read. TRAJD_ERR_NOT_FOUND; TRAJD_ERR_ARGUMENT: the stream has no images. */
enum trajd_status frame_find(const struct trajd_index *index, const char *name, const char *episode,
                             struct frame *frame, struct trajd_error *error);
/* Reads how the frame is resized; request->size is given. TRAJD_ERR_ARGUMENT. */
enum trajd_status frame_read_resize(const struct frame_resize *request, const struct frame *frame,
                                    struct trajd_image_preparation *preparation,
                                    struct trajd_error *error);

/* Reads frame->row, which the array has, and decodes it as it is stored. The caller frees *pixels.
 * Blocks: a child process decodes. TRAJD_ERR_DATA: the frame is bad; else as of frame_source.h. */
enum trajd_status frame_decode(const struct trajd_index *index, struct frame *frame,
                               uint8_t **pixels, struct trajd_error *error);
/* Makes an image for people: grey three times, depth from black to white. */
struct frame_side frame_make_side(const struct frame *frame, const void *pixels, uint32_t height,
                                  uint32_t width);
/* The same of the frame as a policy gets it: turns the decoded pixels upright as `image` says, and
 * prepares them. `preparation` NULL: they keep their size. */
enum trajd_status frame_prepare(const struct frame *frame, void *pixels,
                                const struct trajd_layout_image *image,
                                const struct trajd_image_preparation *preparation,
                                struct frame_side *side, struct trajd_error *error);

#endif
