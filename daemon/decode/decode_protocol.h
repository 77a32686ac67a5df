/* The protocol with trajd-decoder, the helper program that decodes and encodes images.
 *
 * Parent and child share one socket of packets, descriptor TRAJD_SANDBOX_SOCKET in the child. Each
 * packet is one of the structs below; both ends are of one build.
 *
 *     parent: SETUP with the descriptor of the input memory, OUTPUT with that of the output memory;
 *             then JOB, or UNIT where the setup is of a video, one at a time. A later SETUP with
 *             its OUTPUT takes the place of the first; without descriptors, the memory stays
 *     child:  one REPLY for OUTPUT, without frames: it is ready. One for each JOB and UNIT
 *
 * The parent writes encoded frames into the input memory. The child writes the pixels, or the
 * JPEG, of frame i of a reply to i * frame_bytes of the output memory. It exits at the end of the
 * socket.
 *
 * Of a video the input memory has one trajd_decode_packet for each packet of a decode unit, then the
 * extradata, then the packets. A UNIT makes frames that are wanted, in any order, until the output
 * memory is full or TRAJD_DECODE_PACKETS_MAX packets were decoded. The next UNIT continues, until
 * each frame that is wanted was in one reply. */
#ifndef TRAJD_DECODE_DECODE_PROTOCOL_H
#define TRAJD_DECODE_DECODE_PROTOCOL_H

#include <stdint.h>

#include "daemon/layout/layout_image.h"
#include "daemon/layout/video.h"
#include "kernels/image/image.h"

enum {
    TRAJD_DECODE_MAGIC = 0x43444a54, /* "TJDC" */
    TRAJD_DECODE_FRAMES_MAX = 32,    /* of a job */
    TRAJD_DECODE_PACKETS_MAX = 32,   /* of a unit that are decoded for one reply */
    TRAJD_DECODE_REASON_SIZE = 160,
};

/* The argument of the program that has it load libavcodec, which only some videos need. */
#define TRAJD_DECODE_TASK_AVCODEC "avcodec"

enum trajd_decode_kind {
    TRAJD_DECODE_SETUP = 1,
    TRAJD_DECODE_OUTPUT = 2,
    TRAJD_DECODE_JOB = 3,
    TRAJD_DECODE_REPLY = 4,
    TRAJD_DECODE_UNIT = 5,
};

struct trajd_decode_header {
    uint32_t magic;
    uint32_t kind;
};

/* What all frames of the following jobs have in common. */
struct trajd_decode_setup {
    struct trajd_decode_header header;
    struct trajd_layout_image image; /* of the layout, with the size of the stream's frames */
    struct trajd_video_format video; /* codec TRAJD_VIDEO_NONE: frames are images */
    uint8_t bits;                    /* of a value of a frame: 8, or 16 or 32 for depth */
    uint8_t upright;      /* 1: turned upright, red first, as policies get it; 0: as stored */
    uint8_t is_prepared;  /* 1: crop, resize and pad */
    uint8_t jpeg_quality; /* 1 to 100: frames that are prepared become JPEGs; 0: pixels */
    struct trajd_image_preparation preparation;
    uint64_t input_bytes, output_bytes; /* of the memory */
    uint64_t frame_bytes;               /* of one frame of pixels, or room for its JPEG */
};

struct trajd_decode_job {
    struct trajd_decode_header header;
    uint32_t count; /* up to TRAJD_DECODE_FRAMES_MAX, and as many as the output memory holds */
    struct {
        uint64_t offset, size; /* in the input memory */
        uint64_t room;         /* of a padded row; else `size` */
    } frames[TRAJD_DECODE_FRAMES_MAX];
};

/* A packet of a unit, in the input memory. */
struct trajd_decode_packet {
    uint32_t size;
    uint32_t is_wanted; /* 1: its frame is */
};

struct trajd_decode_unit {
    struct trajd_decode_header header;
    uint32_t packet_count;
    uint32_t is_continued; /* 1: the child goes on in the unit of the job before */
    uint64_t extradata_size;
};

struct trajd_decode_reply {
    struct trajd_decode_header header;
    uint32_t count;
    uint32_t packets[TRAJD_DECODE_FRAMES_MAX]; /* of a unit: whose frames these are */
    uint32_t sizes[TRAJD_DECODE_FRAMES_MAX];   /* of JPEGs; 0: it needs more than frame_bytes */
    char reasons[TRAJD_DECODE_FRAMES_MAX][TRAJD_DECODE_REASON_SIZE]; /* "": the frame is good */
};

#endif
