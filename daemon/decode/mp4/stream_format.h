/* What a video's sequence headers say: the size of its frames, their sampling and their colours. The
 * bytes are untrusted. */
#ifndef TRAJD_DECODE_MP4_STREAM_FORMAT_H
#define TRAJD_DECODE_MP4_STREAM_FORMAT_H

#include <stddef.h>

#include "daemon/layout/video.h"
#include "proto/error.h"

/* The bytes of one parameter set or sequence header at most. */
#define TRAJD_PARAMETER_SET_MAX 4096u

enum trajd_chroma { TRAJD_CHROMA_NONE, TRAJD_CHROMA_420, TRAJD_CHROMA_422, TRAJD_CHROMA_444 };

struct trajd_stream_format {
    uint32_t height, width; /* of shown frames: after cropping */
    enum trajd_chroma chroma;
    uint32_t bits; /* of a value */
    enum trajd_video_matrix matrix;
    enum trajd_video_range range;
};

/* Read a sequence parameter set behind the header of its NAL unit, and the payload of an AV1
 * sequence header. *id: its number. TRAJD_ERR_DATA: it is damaged. TRAJD_ERR_UNSUPPORTED: no decoder
 * of trajd takes it, such as interlaced video. */
enum trajd_status trajd_stream_format_h264(const uint8_t *bytes, size_t size, uint32_t *id,
                                           struct trajd_stream_format *format,
                                           struct trajd_error *error);
enum trajd_status trajd_stream_format_hevc(const uint8_t *bytes, size_t size, uint32_t *id,
                                           struct trajd_stream_format *format,
                                           struct trajd_error *error);
enum trajd_status trajd_stream_format_av1(const uint8_t *bytes, size_t size,
                                          struct trajd_stream_format *format,
                                          struct trajd_error *error);

/* Reads the number of an H.264 or HEVC picture parameter set. False where it is damaged. */
bool trajd_stream_picture_set_id(const uint8_t *bytes, size_t size, uint32_t *id);

/* Translates the number of a colour matrix (ITU-T H.273). TRAJD_ERR_UNSUPPORTED for others than those
 * of trajd_video_matrix. */
enum trajd_status trajd_stream_matrix(uint32_t number, enum trajd_video_matrix *matrix,
                                      struct trajd_error *error);

#define TRAJD_PIXEL_FORMAT_SIZE 16

/* Writes FFmpeg's name of the pixels that a decoder of this codec gives: "yuv420p", "yuvj420p",
 * "gray10le". */
const char *trajd_stream_pixel_format(enum trajd_video_codec codec,
                                      const struct trajd_stream_format *format,
                                      char text[TRAJD_PIXEL_FORMAT_SIZE]);

#endif
