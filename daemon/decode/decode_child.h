/* The helper program's side of decode_protocol.h. */
#ifndef TRAJD_DECODE_DECODE_CHILD_H
#define TRAJD_DECODE_DECODE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/decode/decode_protocol.h"
#include "daemon/index/rows/picture_header.h"

/* Receives the setup and then jobs, until the end of the socket. False where the parent breaks the
 * protocol, or memory ran out. */
bool trajd_decode_serve(int socket);

/* ---- decode_frame.c: header check, decoding, colour, flip, preparation ---- */

/* What a child keeps between frames. */
struct trajd_decode_state {
    struct trajd_decode_setup setup;
    struct trajd_image_plan *plan; /* NULL: frames are not prepared */
    uint8_t *pixels;               /* of one whole frame, if they are prepared */
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

/* ---- decode_jpeg.c, decode_png.c: encoded bytes to pixels. The caller has examined the header, so
 * the size is known ---- */

/* The reason where memory ran out. It says nothing of the frame, which is decoded again. */
#define TRAJD_DECODE_NO_MEMORY "no memory"

/* Write height x width x channels values, rows without gaps: red first, 16 bits little-endian.
 * False where the frame is bad, with the library's words in `reason`: a warning of the library
 * makes a frame bad, too. A JPEG may have up to 100 scans, and no orientation but the first. */
bool trajd_decode_jpeg(const uint8_t *bytes, size_t size, const struct trajd_picture *picture,
                       uint8_t *pixels, char *reason, size_t reason_size);
bool trajd_decode_png(const uint8_t *bytes, size_t size, const struct trajd_picture *picture,
                      uint8_t *pixels, char *reason, size_t reason_size);

#endif
