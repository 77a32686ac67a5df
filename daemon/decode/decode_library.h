/* What a video library does for decode_video.c. Of one decode unit: a codec is opened, gets the
 * packets one by one, and gives the frames of some of them in any order. */
#ifndef TRAJD_DECODE_DECODE_LIBRARY_H
#define TRAJD_DECODE_DECODE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/layout/video.h"
#include "kernels/image/yuv.h"

enum { TRAJD_VIDEO_REASON_SIZE = 120 };

/* The reason if out of memory. It says nothing of the unit, which is decoded again. */
#define TRAJD_DECODE_NO_MEMORY "no memory"

struct trajd_video_stream {
    enum trajd_video_codec codec;
    const uint8_t *extradata; /* borrowed until the codec is open */
    uint64_t extradata_size;
    uint32_t height, width; /* of its frames: larger ones are refused */
};

enum trajd_video_result {
    TRAJD_VIDEO_FRAME,  /* a frame, until the next call */
    TRAJD_VIDEO_EMPTY,  /* none before the next packet */
    TRAJD_VIDEO_DAMAGED /* a fault in a packet: what comes from it and from later ones is made up */
};

/* Where a function fails it writes the reason. */
struct trajd_video_library {
    /* Opens a codec that starts no thread. NULL where it cannot. The caller closes it. */
    void *(*open)(const struct trajd_video_stream *stream, char *reason);
    /* Takes a packet, whose bytes are copied. `bytes` NULL: there are no more. Meant to be called
     * where `receive` has given all it has. */
    bool (*send)(void *codec, const uint8_t *bytes, size_t size, uint32_t packet, char *reason);
    /* *packet: whose frame it is; or the packet with the fault. */
    enum trajd_video_result (*receive)(void *codec, struct trajd_yuv *frame, uint32_t *packet,
                                       char *reason);
    void (*close)(void *codec);
    /* "libavcodec 59.37.100". Static. */
    const char *(*version)(void);
};

/* AV1, by dav1d. */
extern const struct trajd_video_library trajd_video_dav1d;

/* H.264 and HEVC: what the module exports as TRAJD_VIDEO_AVCODEC_SYMBOL. */
extern const struct trajd_video_library trajd_video_avcodec;
#define TRAJD_VIDEO_AVCODEC_SYMBOL "trajd_video_avcodec"

#endif
