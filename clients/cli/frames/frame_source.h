/* Reads the rows of an image stream in one episode, whatever their form, and has them decoded: a
 * block of rows at a time, of a video a decode unit at a time. */
#ifndef TRAJD_CLI_FRAMES_FRAME_SOURCE_H
#define TRAJD_CLI_FRAMES_FRAME_SOURCE_H

#include "daemon/decode/decoder.h"
#include "daemon/index/index.h"
#include "daemon/index/rows/packed_video.h"

struct frame_source {
    struct trajd_array array; /* raw pixels of a plain array are read as padded rows */
    bool is_plain;
    uint64_t file_size;
    int fd, media_fd; /* media_fd -1: packets of a video are in the file */
    struct trajd_encoded_reader *reader;
    struct trajd_video_reader *video;
    struct trajd_decoder *decoder;
    uint64_t frame_bytes; /* that a frame has when it is decoded, or most of it as a JPEG */
    /* The rows that were read last, from first_row on. A frame is not decoded where it is masked, or
     * its reason says why it cannot be. */
    uint64_t first_row, count, room;
    struct trajd_decoder_frame *frames; /* bytes and size as in the file */
    bool *is_masked;                    /* of a video: the frame was not recorded */
    uint8_t *pixels;
    struct trajd_unit_bytes unit;
    uint32_t packets[TRAJD_UNIT_PACKETS_MAX];
};

/* Opens the file of an array and starts a decoder. Of `options` the caller sets the image, with the
 * size of its frames, and how they are handled. TRAJD_ERR_NOT_FOUND: no trajd-decoder; else as of
 * trajd_index_open_media and trajd_decoder_create. The source is closed in any case. */
enum trajd_status frame_source_open(struct frame_source *source, const struct trajd_index *index,
                                    uint32_t file_index, const struct trajd_array *array,
                                    const struct trajd_index_stream *stream,
                                    struct trajd_decoder_options options,
                                    struct trajd_error *error);
void frame_source_close(struct frame_source *source);

/* Reads up to `most` rows from a row on, or as many as fit one job. Of a video: all rows of the row's
 * unit, but for `most` 1. Errors are those of index/rows; TRAJD_ERR_UNSUPPORTED: a unit has too many
 * frames. */
enum trajd_status frame_source_read(struct frame_source *source, uint64_t row, uint64_t most,
                                    struct trajd_error *error);
/* Decodes the rows that were read. */
enum trajd_status frame_source_decode(struct frame_source *source, struct trajd_error *error);

/* Returns whether a frame is empty, or has zeros alone, as recorders write where they miss one. */
bool frame_is_zero(const struct trajd_decoder_frame *frame);

#endif
