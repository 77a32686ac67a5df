/* One frame in the helper program: header check, decoding, colour, flip, preparation. */
#ifndef TRAJD_DECODE_DECODE_FRAME_H
#define TRAJD_DECODE_DECODE_FRAME_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/decode/decode_protocol.h"

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

#endif
