/* The words of video: how the frames of a stream are compressed together, and what their colours
 * mean. */
#ifndef TRAJD_LAYOUT_VIDEO_H
#define TRAJD_LAYOUT_VIDEO_H

#include <stdbool.h>
#include <stdint.h>

/* A decode unit begins at a packet before which nothing is needed. Its packets and their bytes at
 * most: */
#define TRAJD_UNIT_PACKETS_MAX 4096u
#define TRAJD_UNIT_BYTES_MAX (UINT64_C(64) << 20)

enum trajd_video_codec {
    TRAJD_VIDEO_NONE = 0, /* images of their own */
    TRAJD_VIDEO_AV1 = 1,
    TRAJD_VIDEO_H264 = 2,
    TRAJD_VIDEO_HEVC = 3
};

/* Makes RGB of luma and chroma. Unspecified is that of BT.601. */
enum trajd_video_matrix {
    TRAJD_MATRIX_UNSPECIFIED = 0,
    TRAJD_MATRIX_BT601 = 1,
    TRAJD_MATRIX_BT709 = 2,
    TRAJD_MATRIX_BT2020 = 3
};

/* Of luma at 8 bits: 16 to 235, or 0 to 255. Unspecified is limited. */
enum trajd_video_range {
    TRAJD_RANGE_UNSPECIFIED = 0,
    TRAJD_RANGE_LIMITED = 1,
    TRAJD_RANGE_FULL = 2
};

struct trajd_video_format {
    enum trajd_video_codec codec;
    enum trajd_video_matrix matrix;
    enum trajd_video_range range;
};

/* Return the word of a file: "av1", "bt709", "limited", "unspecified". */
const char *trajd_video_codec_name(enum trajd_video_codec codec);
const char *trajd_video_matrix_name(enum trajd_video_matrix matrix);
const char *trajd_video_range_name(enum trajd_video_range range);

/* Find what a word means. False where it is another word; *out is then unchanged. */
bool trajd_video_codec_find(const char *name, enum trajd_video_codec *out);
bool trajd_video_matrix_find(const char *name, enum trajd_video_matrix *out);
bool trajd_video_range_find(const char *name, enum trajd_video_range *out);

#endif
