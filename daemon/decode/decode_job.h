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

#endif
