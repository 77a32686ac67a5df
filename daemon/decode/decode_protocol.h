/* The protocol with trajd-decoder, the helper program that decodes pictures.
 *
 * Parent and child share one socket of packets, descriptor TRAJD_SANDBOX_SOCKET in the child. Each
 * packet is one of the structs below; both ends are of one build.
 *
 *     parent: SETUP with the descriptor of the input memory, OUTPUT with that of the output memory;
 *             then JOB, one at a time. A later SETUP with its OUTPUT takes the place of the
 *             first; without descriptors, the memory stays
 *     child:  one REPLY for OUTPUT, without frames: it is ready. One for each JOB
 *
 * The parent writes encoded frames into the input memory. The child writes the pixels of frame i of
 * a job to i * frame_bytes of the output memory. It exits at the end of the socket. */
#ifndef TRAJD_DECODE_DECODE_PROTOCOL_H
#define TRAJD_DECODE_DECODE_PROTOCOL_H

#include <stdint.h>

#include "daemon/layout/picture.h"
#include "kernels/image/image.h"

enum {
    TRAJD_DECODE_MAGIC = 0x43444a54, /* "TJDC" */
    TRAJD_DECODE_FRAMES_MAX = 32,    /* of a job */
    TRAJD_DECODE_REASON_SIZE = 160,
};

enum trajd_decode_kind {
    TRAJD_DECODE_SETUP = 1,
    TRAJD_DECODE_OUTPUT = 2,
    TRAJD_DECODE_JOB = 3,
    TRAJD_DECODE_REPLY = 4,
};

struct trajd_decode_header {
    uint32_t magic;
    uint32_t kind;
};

/* What all frames of the following jobs have in common. */
struct trajd_decode_setup {
    struct trajd_decode_header header;
    struct trajd_layout_image image; /* of the layout, with the size of the stream's frames */
    uint8_t bits;                    /* of a value of a frame: 8, or 16 or 32 for depth */
    uint8_t upright;     /* 1: turned upright, red first, as policies get it; 0: as stored */
    uint8_t is_prepared; /* 1: crop, resize and pad */
    struct trajd_image_preparation preparation;
    uint64_t input_bytes, output_bytes; /* of the memory */
    uint64_t frame_bytes;               /* of one frame of pixels */
};

struct trajd_decode_job {
    struct trajd_decode_header header;
    uint32_t count; /* up to TRAJD_DECODE_FRAMES_MAX, and as many as the output memory holds */
    struct {
        uint64_t offset, size; /* in the input memory */
        uint64_t room;         /* of a padded row; else `size` */
    } frames[TRAJD_DECODE_FRAMES_MAX];
};

struct trajd_decode_reply {
    struct trajd_decode_header header;
    uint32_t count;
    char reasons[TRAJD_DECODE_FRAMES_MAX][TRAJD_DECODE_REASON_SIZE]; /* "": the frame is good */
};

#endif
