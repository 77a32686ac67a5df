/* A ring that is not only mapped by workers but also lent to the transport, which sends slots'
 * bytes to remote workers without copying them. A lease says who may read a slot; a send reference
 * says that ZeroMQ still does: frames for a peer that died, was cut off or reads slowly lie in its
 * queues past the end of the lease. A slot is taken to be filled again only when it is FREE *and*
 * no send reference of it is out, and the memory outlives the feed until the last send reference is
 * back. So what leaves, whenever it leaves, is the batch that was announced.
 *
 *     outbox record  --holds one send reference--  from the core's BATCH until the transport has
 *                    queued all
 *                    frames
 *     queued frame   --holds one send reference--  until ZeroMQ calls back: sent, or dropped with
 *                    its
 *                    connection
 *
 * Threads: borrow under the server's mutex or send lock; return from any thread, without any lock.
 */
#ifndef TRAJD_SERVER_SLOT_SENDS_H
#define TRAJD_SERVER_SLOT_SENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/server/ring.h"
#include "proto/wire.h"

/* So aligned stand the tensors of a part that travels (PROTOCOL.md, "Over tcp"). */
#define TRAJD_PART_ALIGNMENT 64u

struct trajd_slot_sends {
    struct trajd_server_ring ring;
    struct trajd_wire_tensor *tensors; /* texts stand behind them, in the same allocation */
    uint32_t tensor_count;
    /* an eventfd: written when a send reference came back that a taker waits for */
    int wake_fd;
    uint32_t references; /* atomic: the feed's, and one a send reference */
    bool awaited;        /* atomic: a taker found a slot FREE and lent */
    bool returned;       /* atomic: and one came back since */
    uint32_t *sends;     /* atomic; one a slot */
};

/* Takes over ring (whose slots are counted) and tensors on success; both are freed with the last
 * reference. wake_fd must outlive all send reference. NULL: out of memory. */
struct trajd_slot_sends *trajd_slot_sends_create(struct trajd_server_ring *ring,
                                                 struct trajd_wire_tensor *tensors,
                                                 uint32_t tensor_count, int wake_fd);
/* The feed's reference; clears the pointer. NULL is fine. */
void trajd_slot_sends_drop(struct trajd_slot_sends **slot_sends);

void trajd_slot_sends_acquire(struct trajd_slot_sends *slot_sends, uint32_t slot);
void trajd_slot_sends_return(struct trajd_slot_sends *slot_sends, uint32_t slot);
/* What ZeroMQ calls when it lets go of a frame: `data` lies in the slot whose send reference
 * returns. */
void trajd_slot_sends_release(void *data, void *slot_sends);
/* For the taker. If it is, its return writes wake_fd, and then trajd_slot_sends_take_returned says so,
 * once. */
bool trajd_slot_sends_is_in_use(struct trajd_slot_sends *slot_sends, uint32_t slot);
bool trajd_slot_sends_take_returned(struct trajd_slot_sends *slot_sends);
/* Slots that are lent. */
uint32_t trajd_slot_sends_count(const struct trajd_slot_sends *slot_sends);

/* Bytes of a slot that travel, and zeros behind them (fewer than TRAJD_PART_ALIGNMENT). */
struct trajd_payload_segment {
    unsigned char *data;
    size_t size_bytes, zeros;
};

/* Rows [row_begin, row_begin + row_count) of every tensor in their order, each padded with zeros to
 * TRAJD_PART_ALIGNMENT. `segments` has room for tensor_count; the number of segments, none of them
 * empty. */
uint32_t trajd_slot_sends_payload(const struct trajd_slot_sends *slot_sends, uint32_t slot,
                                  uint32_t row_begin, uint32_t row_count,
                                  struct trajd_payload_segment *segments);

#endif
