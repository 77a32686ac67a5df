/* Parses the frames of ZMTP 3, without their bodies. */
#include "daemon/server/transport/zmtp.h"

#include <string.h>

#include "proto/array_len.h"

enum { GREETING_BYTES = 64, MORE = 1, LONG = 2, COMMAND = 4 };
/* READY has 41 bytes, INITIATE of CURVE about 300. libzmq keeps each property of a longer one. */
#define MAX_COMMAND_BYTES 512u

uint64_t trajd_zmtp_cost(uint64_t body_bytes)
{
    return TRAJD_ZMTP_FRAME_BYTES + body_bytes;
}

void trajd_zmtp_begin(struct trajd_zmtp *zmtp)
{
    *zmtp = (struct trajd_zmtp){.remaining = GREETING_BYTES};
}

/* Begins a command or the frame of a message when its header is complete. */
static bool begin_body(struct trajd_zmtp *zmtp)
{
    zmtp->remaining = zmtp->length;
    zmtp->has_name = false;
    zmtp->matched = 0;
    if (zmtp->flags & COMMAND)
        return zmtp->length <= MAX_COMMAND_BYTES;
    zmtp->cost += trajd_zmtp_cost(zmtp->length);
    return zmtp->length <= UINT32_MAX && (zmtp->flags & MORE) == 0;
}

static bool read_header(struct trajd_zmtp *zmtp, uint8_t byte)
{
    if (zmtp->length_remaining == 0) {
        zmtp->flags = byte;
        zmtp->length_remaining = byte & LONG ? 8 : 1;
        zmtp->length = 0;
        return true;
    }
    zmtp->length = zmtp->length << 8 | byte;
    return --zmtp->length_remaining > 0 || begin_body(zmtp);
}

/* Returns true for the first byte of PING, PONG, READY, ERROR, HELLO and INITIATE, which is the
 * length of the name. libzmq gives SUBSCRIBE and CANCEL to the server. */
static bool is_length_of_name(uint8_t byte)
{
    return byte == 4 || byte == 5 || byte == 8;
}

/* Looks for an identity in a command of the handshake. Returns false unless it is empty.
 *
 * libzmq's ROUTER keeps a connection with the identity of another one for ever, also after its end,
 * and aborts where it gives a connection an identity that another one has chosen. */
static bool is_anonymous(struct trajd_zmtp *zmtp, uint8_t byte)
{
    static const char empty[] = "\bIdentity\0\0\0"; /* the last 4 bytes are the length */
    const size_t name_bytes = strlen(empty);
    if (byte == (uint8_t)empty[zmtp->matched])
        zmtp->matched = (uint8_t)((zmtp->matched + 1u) % ARRAY_LEN(empty));
    else if (zmtp->matched < name_bytes)
        zmtp->matched = byte == (uint8_t)empty[0];
    else
        return false;
    return true;
}

static bool read_command(struct trajd_zmtp *zmtp, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if ((!zmtp->has_name && !is_length_of_name(bytes[i])) || !is_anonymous(zmtp, bytes[i]))
            return false;
        zmtp->has_name = true;
    }
    return true;
}

bool trajd_zmtp_read(struct trajd_zmtp *zmtp, const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        if (zmtp->remaining == 0) {
            if (!read_header(zmtp, bytes[at++]))
                return false;
            continue;
        }
        const size_t left = size - at;
        const size_t part = zmtp->remaining < left ? (size_t)zmtp->remaining : left;
        if ((zmtp->flags & COMMAND) && !read_command(zmtp, bytes + at, part))
            return false;
        zmtp->remaining -= part;
        at += part;
    }
    return true;
}
