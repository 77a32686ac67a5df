/* The helper program's side of decode_protocol.h. */
#ifndef TRAJD_DECODE_DECODE_CHILD_H
#define TRAJD_DECODE_DECODE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/decode/decode_library.h"
#include "daemon/decode/decode_protocol.h"
#include "daemon/index/rows/image_header.h"

/* Receives the setup and then jobs, until the end of the socket. False where the parent breaks the
 * protocol, or where memory is missing. */
bool trajd_decode_serve(int socket);

/* ---- decode_frame.c: header check, decoding, colour, flip, preparation ---- */

/* The decode unit that is under way. */
struct trajd_decode_video {
    const struct trajd_video_library *library;
    void *codec;                                                /* NULL: there is none */
    struct trajd_decode_packet packets[TRAJD_UNIT_PACKETS_MAX]; /* is_wanted: and not yet made */
    bool is_given[TRAJD_UNIT_PACKETS_MAX];                      /* the codec gave its frame */
    uint32_t packet_count, sent_count, wanted_count;
    const uint8_t *next;                   /* the packet to send, in the input memory */
    bool is_drained;                       /* the codec knows that there are no more packets */
    uint32_t damaged_from;                 /* frames of this packet and later ones are bad */
    char reason[TRAJD_DECODE_REASON_SIZE]; /* of them */
};

/* What a child keeps between frames. */
struct trajd_decode_state {
    struct trajd_decode_setup setup;
    struct trajd_image_plan *plan; /* NULL: frames are not prepared */
    bool takes_video;              /* the plan takes frames of video as the codec gives them */
    uint8_t *pixels;               /* of one whole frame, if they are prepared */
    uint8_t *prepared;             /* of one prepared frame, if it becomes a JPEG */
    uint32_t jpeg_bytes;           /* of the frame that was made last; 0: there is no room for it */
    struct trajd_decode_video video;
};

/* Checks the setup and makes the plan. False where a number does not fit the others, or memory ran
 * out. */
bool trajd_decode_state_make(const struct trajd_decode_setup *setup,
                             struct trajd_decode_state *state);
void trajd_decode_state_free(struct trajd_decode_state *state);

/* Decodes one frame into `output`, which has room for setup.frame_bytes. Returns false with the
 * reason where the frame is bad. */
bool trajd_decode_frame(struct trajd_decode_state *state, const uint8_t *bytes, uint64_t size,
                        uint64_t room, uint8_t *output, char *reason, size_t reason_size);

/* Turns the whole frame upright, prepares and encodes it, as the setup says. `pixels`:
 * state->pixels, or `output` where nothing is prepared. False with the reason where the encoder
 * fails. */
bool trajd_decode_finish(struct trajd_decode_state *state, uint8_t *pixels, uint8_t *output,
                         char *reason, size_t reason_size);

/* ---- decode_video.c: decode units, whatever the codec ---- */

/* Loads the module that has H.264 and HEVC. Before the sandbox closes; without it, or where the
 * library is not installed, frames of these codecs are bad for a reason that names the package. */
void trajd_decode_load_avcodec(void);

/* Prints a line with the libraries' versions, or why a library is missing. */
void trajd_decode_print_codecs(void);

/* Begins a unit, which is in the input memory. False where it does not fit there. */
bool trajd_decode_unit_begin(struct trajd_decode_state *state, const uint8_t *input,
                             uint64_t input_bytes, const struct trajd_decode_unit *unit);

/* Makes up to `room` of the frames that are wanted and tells of them in the reply, after at most
 * TRAJD_DECODE_PACKETS_MAX packets. False if out of memory. */
bool trajd_decode_unit_run(struct trajd_decode_state *state, uint8_t *output, uint32_t room,
                           struct trajd_decode_reply *reply);

void trajd_decode_unit_end(struct trajd_decode_video *video);

/* ---- decode_jpeg.c, decode_png.c: encoded bytes to pixels. The caller has examined the header, so
 * the size is known ---- */

/* Write height x width x channels values, rows without gaps: red first, 16 bits little-endian.
 * False where the frame is bad, with the library's words in `reason`: a warning of the library
 * makes a frame bad, too. A JPEG may have up to 100 scans, and no orientation but the first. */
bool trajd_decode_jpeg(const uint8_t *bytes, size_t size, const struct trajd_image_header *header,
                       uint8_t *pixels, char *reason, size_t reason_size);
/* Writes pixels as a baseline JPEG without subsampling. *size becomes its bytes, 0 where it needs
 * more than `room`. False with the library's words in `reason`. */
bool trajd_encode_jpeg(const struct trajd_image_preparation *frame, uint8_t quality,
                       const uint8_t *pixels, uint8_t *bytes, uint64_t room, uint32_t *size,
                       char *reason, size_t reason_size);
bool trajd_decode_png(const uint8_t *bytes, size_t size, const struct trajd_image_header *header,
                      uint8_t *pixels, char *reason, size_t reason_size);

#endif
