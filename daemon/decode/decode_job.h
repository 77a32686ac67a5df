/* The parent's side of decode_protocol.h. Nothing that a child sends is trusted. */
#ifndef TRAJD_DECODE_DECODE_JOB_H
#define TRAJD_DECODE_DECODE_JOB_H

#include <stdbool.h>

#include "daemon/decode/decode_protocol.h"
#include "daemon/decode/decoder.h"

/* Memory that the child shares. */
struct trajd_decode_memory {
    int fd;
    uint8_t *bytes;
    uint64_t size;
};

/* What the parent needs to talk to a child. */
struct trajd_decode_link {
    int socket;
    uint32_t timeout_ms;
    struct trajd_decode_setup setup;
    struct trajd_decode_memory input, output;
    uint64_t largest_frame_bytes;
};

/* Sends the setup and waits until the child is ready. False where the child died, hung or broke the
 * protocol. has_memory: the child has the memory from an earlier setup. */
bool trajd_decode_link_open(const struct trajd_decode_link *link, bool has_memory);

/* Sends frames to the child and takes their pixels. As many frames as the memory holds, none of
 * more than largest_frame_bytes. False where the child died, hung, or broke the protocol; the
 * frames are then unchanged. */
bool trajd_decode_job_run(const struct trajd_decode_link *link, struct trajd_decoder_frame *frames,
                          uint32_t count);

/* The packets of a unit whose frames are wanted and not made yet. */
struct trajd_decode_wanted {
    bool of_packet[TRAJD_UNIT_PACKETS_MAX];
    uint32_t packet_count; /* of the unit, as far as it is decoded */
    uint32_t count;        /* of the wanted ones */
};

/* Has the child decode the unit, which fits into the input memory, from its first packet on, and
 * takes what is wanted into the frames. False where the child died, hung, or broke the protocol;
 * `wanted` then has what is missing. */
bool trajd_decode_unit_take(const struct trajd_decode_link *link,
                            const struct trajd_decoder_unit *unit,
                            struct trajd_decode_wanted *wanted, struct trajd_decoder_frame *frames,
                            uint32_t count);

#endif
