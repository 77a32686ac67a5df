/* Follows the frames that a peer sends, and counts what libzmq may keep of them.
 *
 * A connection of ZMTP 3 begins with a greeting of 64 bytes. Then come frames: a byte of flags, a
 * length of 1 or 8 bytes, and a body. CURVE encrypts bodies alone, so this holds for both listeners.
 * libzmq refuses peers of older protocols itself, because a ZAP domain is set.
 *
 * libzmq gives the frames of messages to the server, and handles commands itself. */
#ifndef TRAJD_SERVER_ZMTP_H
#define TRAJD_SERVER_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a frame counts, beside its body. libzmq 4.3.4 takes 120 bytes at most: 64 in a pipe, and for
 * a body of more than 33 bytes the header of an allocation: 40 bytes, and 16 of malloc. The rest is
 * for the time to receive it: where a peer is cut, what it has sent is received and discarded. */
#define TRAJD_ZMTP_FRAME_BYTES 512u

struct trajd_zmtp {
    uint64_t cost;      /* of all frames of messages so far, whose headers are complete */
    uint64_t remaining; /* bytes of the greeting or the body that have not arrived */
    uint64_t length;    /* of the body, as far as the header has arrived */
    uint8_t flags;
    uint8_t length_remaining; /* bytes of the length. 0 between frames: the flags come next */
    bool has_name;            /* the first byte of the command has arrived */
    uint8_t matched;          /* bytes of an empty identity in the command */
};

/* Returns what libzmq may keep for a frame. */
uint64_t trajd_zmtp_cost(uint64_t body_bytes);
void trajd_zmtp_begin(struct trajd_zmtp *zmtp);
/* Reads the next bytes of a connection. Returns false for a frame of 4 GiB, for one that is not the
 * last one of its message (CURVE hides that), and for a command that no worker sends: a long one, a
 * subscription, or one that contains an identity. */
bool trajd_zmtp_read(struct trajd_zmtp *zmtp, const uint8_t *bytes, size_t size);

#endif
