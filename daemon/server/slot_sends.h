/* A ring with counts of the sends in flight of each slot. The transport sends the bytes of slots to
 * remote workers without a copy, so ZeroMQ may read a slot after its lease has ended: frames for a
 * worker that died, was cut off or reads slowly wait in ZeroMQ's queues. Each send reference stands
 * for one send that may still read the slot. A slot is filled again only when it is FREE *and* has
 * no send reference. The memory outlives its feed until the last send reference is returned. So a
 * worker always gets the bytes of the batch that its message describes.
 *
 *     record in the outbox   holds one send reference from the core's BATCH until the transport has
 *                            queued all frames
 *     frame in a queue       holds one send reference until ZeroMQ calls back: the frame was sent,
 *                            or dropped with its connection
 *
 * Threads: a thread acquires a reference under the server's mutex or send lock. Any thread may
 * return one, without a lock. */
#ifndef TRAJD_SERVER_SLOT_SENDS_H
#define TRAJD_SERVER_SLOT_SENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/server/ring.h"
#include "proto/wire.h"

/* Alignment of each tensor in a payload, in bytes (PROTOCOL.md, "Over tcp"). */
#define TRAJD_PAYLOAD_ALIGNMENT 64u

struct trajd_slot_sends {
    struct trajd_server_ring ring;
    struct trajd_wire_tensor *tensors; /* a copy; their texts are valid while the feed lives */
    uint32_t tensor_count;
    /* an eventfd, written when the last send reference of a slot was returned while `awaited` */
    int wake_fd;
    uint32_t references; /* atomic: one of the feed, and one for each send reference */
    bool awaited;        /* atomic: a taker found a slot that is FREE but has send references */
    bool returned;       /* atomic: the last send reference of a slot was returned since */
    uint32_t *sends;     /* [slot_count], atomic: the send references of each slot */
};

/* Copies the tensors, and on success takes ownership of *ring, which is freed with the last
 * reference. wake_fd must stay open until all send references are returned. Returns NULL
 * if there is no memory. */
struct trajd_slot_sends *trajd_slot_sends_create(struct trajd_server_ring *ring,
                                                 const struct trajd_wire_tensor *tensors,
                                                 uint32_t tensor_count, int wake_fd);
/* Drops the feed's reference and clears the pointer, which may be NULL already. */
void trajd_slot_sends_drop(struct trajd_slot_sends **slot_sends);

/* Adds a send reference. The caller has the slot's lease, or another send reference of it. */
void trajd_slot_sends_acquire(struct trajd_slot_sends *slot_sends, uint32_t slot);
/* Returns a send reference. Any thread. */
void trajd_slot_sends_return(struct trajd_slot_sends *slot_sends, uint32_t slot);
/* Returns the send reference of the slot in which `data` lies. ZeroMQ calls this when it has sent
 * or dropped a frame, on any of its threads. */
void trajd_slot_sends_release(void *data, void *slot_sends);
/* Returns true if the slot has send references. When the last one is returned, wake_fd is written,
 * and trajd_slot_sends_take_returned returns true. The caller holds the server's mutex. */
bool trajd_slot_sends_is_in_use(struct trajd_slot_sends *slot_sends, uint32_t slot);
/* Returns true, once, after a slot that was found in use has lost its last send reference. */
bool trajd_slot_sends_take_returned(struct trajd_slot_sends *slot_sends);
/* Returns the number of slots that have send references. */
uint32_t trajd_slot_sends_count(const struct trajd_slot_sends *slot_sends);

/* Bytes of a slot to be sent, and the number of zeros behind them, which is less than
 * TRAJD_PAYLOAD_ALIGNMENT. */
struct trajd_payload_segment {
    unsigned char *data;
    size_t size_bytes, zeros;
};

/* Lists rows [row_begin, row_begin + row_count) of every tensor in the order of the schema, each
 * padded with zeros to TRAJD_PAYLOAD_ALIGNMENT. `segments` has room for tensor_count. Returns the
 * number of segments; none of them is empty. */
uint32_t trajd_slot_sends_payload(const struct trajd_slot_sends *slot_sends, uint32_t slot,
                                  uint32_t row_begin, uint32_t row_count,
                                  struct trajd_payload_segment *segments);

#endif
