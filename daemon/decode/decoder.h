/* Decodes images and video with the helper program trajd-decoder. A crash in a library costs the
 * frames that it was decoding and never the caller. */
#ifndef TRAJD_DECODE_DECODER_H
#define TRAJD_DECODE_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/layout/layout_image.h"
#include "daemon/layout/video.h"
#include "kernels/image/image.h"
#include "proto/error.h"

/* An encoded frame of a stream that is larger than its pixels by more than this is bad. */
#define TRAJD_DECODER_HEADER_BYTES 65536u

struct trajd_decoder_options {
    const char *program; /* the path of trajd-decoder */
    /* of the stream, with the size of its frames */
    struct trajd_layout_image image;
    uint32_t bits; /* of a value of a frame: 8, or 16 or 32 for depth */
    /* true: frames are turned upright, and red comes first. false: as they are stored */
    bool upright;
    const struct trajd_image_preparation *preparation; /* NULL: none */
    /* 1 to 100: frames of 8 bits, with a preparation that changes them, become JPEGs without
     * subsampling; 0: pixels */
    uint32_t jpeg_quality;
    /* codec TRAJD_VIDEO_NONE: frames are images. Else red comes first, and bits is 8 */
    struct trajd_video_format video;
    /* of images, encoded; larger frames are bad. 512 MiB at most */
    uint64_t largest_frame_bytes;
    /* of a video: the packets of a unit and its extradata; larger units are bad */
    uint64_t largest_unit_bytes;
    uint32_t timeout_ms; /* for a job of up to 32 frames, or 32 packets of a unit */
    /* true: the child gets a tenth of a core that others want. Only trajd_decoder_create reads it */
    bool yields;
};

/* A frame to decode. Of a video only `pixels` and `packet` are set. */
struct trajd_decoder_frame {
    const uint8_t *bytes; /* borrowed */
    uint64_t size;
    uint64_t room;    /* of a padded row; else `size` */
    void *pixels;     /* room for trajd_decoder_frame_bytes */
    char reason[160]; /* "": the frame is good; else why it is bad, and `pixels` is unchanged */
    uint32_t packet;  /* of a video: the packet of the unit whose frame this is */
    /* set for a good frame: what `pixels` has; 0: its JPEG needs more than there is room for */
    uint64_t made_bytes;
};

/* A decode unit of a video, from its first packet on. All of it is borrowed. */
struct trajd_decoder_unit {
    const uint8_t *extradata; /* as in an MP4: the payload of av1C, avcC or hvcC */
    uint64_t extradata_size;
    const uint8_t *bytes;  /* all packets, one after another */
    const uint64_t *sizes; /* of the packets, in decode order */
    uint32_t packet_count; /* at most TRAJD_UNIT_PACKETS_MAX */
};

/* One child process, for one thread at a time. */
struct trajd_decoder;

/* Starts a child. The caller destroys the decoder. TRAJD_ERR_SYSTEM where the program does not
 * start; TRAJD_ERR_ARGUMENT where the options do not fit together. */
enum trajd_status trajd_decoder_create(const struct trajd_decoder_options *options,
                                       struct trajd_decoder **decoder, struct trajd_error *error);
void trajd_decoder_destroy(struct trajd_decoder **decoder);

/* Returns whether the decoder was made or changed for these options; the program does not count. */
bool trajd_decoder_fits(const struct trajd_decoder *decoder,
                        const struct trajd_decoder_options *options);
/* Makes the decoder one for other options of the same program. Its child stays. After an error it
 * can only be destroyed. */
enum trajd_status trajd_decoder_change(struct trajd_decoder *decoder,
                                       const struct trajd_decoder_options *options,
                                       struct trajd_error *error);

/* Returns the bytes of a decoded, or prepared, frame; of a JPEG the most, which are those of its
 * pixels and TRAJD_DECODER_HEADER_BYTES. */
uint64_t trajd_decoder_frame_bytes(const struct trajd_decoder *decoder);

/* Decodes the frames. Blocks. If the child dies or hangs, its frames are decoded again one by one
 * in a new child; a frame on which that one dies, too, is bad. TRAJD_ERR_SYSTEM where no child can
 * be started, or where something outside kills that one, too; then some frames are not decoded. */
enum trajd_status trajd_decoder_run(struct trajd_decoder *decoder,
                                    struct trajd_decoder_frame *frames, uint32_t count,
                                    struct trajd_error *error);

/* Decodes the unit once and makes the frames of some of its packets, in any order; two frames may be
 * of one packet. Packets after the last of them are not decoded. Blocks. A frame is bad where the
 * codec finds a fault in its packet or in one before it, or gives no frame for the packet. If the
 * child dies or hangs, a new one decodes the unit again; if that one dies, too, the frames that
 * were not made are bad. Errors as of trajd_decoder_run; TRAJD_ERR_ARGUMENT where a frame's packet
 * is outside the unit. */
enum trajd_status trajd_decoder_run_unit(struct trajd_decoder *decoder,
                                         const struct trajd_decoder_unit *unit,
                                         struct trajd_decoder_frame *frames, uint32_t count,
                                         struct trajd_error *error);

/* Turns a frame upright and puts red first, in place. `image` has the size of the frame; `bits`: of
 * a value. */
void trajd_decode_upright(const struct trajd_layout_image *image, uint32_t bits, uint8_t *pixels);

#endif
