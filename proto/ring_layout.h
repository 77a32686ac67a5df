/* What daemon and workers see in a ring's memory. C11, C++17, CUDA. Fixed for protocol major
 * version 1.
 *
 * A ring is one sealed memfd: this header in the first 4096 bytes, then slot_count slots of
 * slot_size_bytes, each beginning on a 4096-byte boundary. A slot begins with a slot header of 64
 * bytes; tensors stand at the offsets that OPENED tells. The daemon writes both headers and never
 * reads them back; a worker checks them and trusts them for nothing but detecting a protocol error.
 * What a slot's state is only the daemon knows (PROTOCOL.md, "Slots and parts"). */
#ifndef TRAJD_PROTO_RING_LAYOUT_H
#define TRAJD_PROTO_RING_LAYOUT_H

#include <stdint.h>

#define TRAJD_RING_MAGIC UINT64_C(0x31474e49524a5254) /* "TRJRING1" */
#define TRAJD_RING_ALIGNMENT 4096u
#define TRAJD_TENSOR_ALIGNMENT 64u

struct trajd_ring_header {
    uint64_t magic;
    uint32_t version; /* 1 */
    uint32_t slot_count;
    uint64_t slot_size_bytes; /* a multiple of TRAJD_RING_ALIGNMENT */
    uint64_t instance_id;     /* the daemon's life that made the ring */
    uint32_t ring_id;
    uint32_t reserved[7]; /* zero */
};

struct trajd_slot_header {
    uint64_t generation; /* written before the slot's batch is announced; equals the one in BATCH */
    uint64_t epoch;
    uint64_t position;    /* of the batch's first window in the epoch */
    uint32_t row_count;   /* windows in the batch: G, or fewer with tail: short */
    uint32_t reserved[9]; /* zero */
};

#ifdef __cplusplus
#define TRAJD_STATIC_ASSERT static_assert
#else
#define TRAJD_STATIC_ASSERT _Static_assert
#endif
TRAJD_STATIC_ASSERT(sizeof(struct trajd_ring_header) == 64,
                    "the ring header is 64 bytes on every machine");
TRAJD_STATIC_ASSERT(sizeof(struct trajd_slot_header) == 64,
                    "the slot header is 64 bytes on every machine");

#endif
