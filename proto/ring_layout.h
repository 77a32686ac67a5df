/* The layout of a ring's memory, which daemon and workers share. Compiles as C11, C++17 and CUDA.
 * Fixed for major version 1 of the protocol.
 *
 * A ring is one sealed memfd: the ring header in the first 4096 bytes, then slot_count slots of
 * slot_size_bytes, each beginning on a 4096-byte boundary. A slot begins with a slot header of 64
 * bytes. Its tensors stand at the offsets in OPENED. The daemon writes both headers and never reads
 * them. A worker checks them to detect an error of the protocol, and trusts them for nothing else.
 * The states of the slots are not in this memory: only the daemon has them (PROTOCOL.md, "Slots and
 * parts"). */
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
    uint64_t instance_id;     /* of the daemon process that made the ring */
    uint32_t ring_id;
    uint32_t reserved[7]; /* zero */
};

struct trajd_slot_header {
    uint64_t generation; /* written before BATCH is sent; equals `generation` of BATCH */
    uint64_t epoch;
    uint64_t position;    /* of the batch's first window, in the epoch */
    uint32_t row_count;   /* windows in the batch: G, or fewer in a short tail */
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
