/* A ring that is not only mapped by workers but also lent to the transport, which sends slots'
 * bytes to remote workers without copying them. A lease says who may read a slot; a loan says that
 * ZeroMQ still does: frames for a peer that died, was cut off or reads slowly lie in its queues
 * past the end of the lease. A slot is taken to be filled again only when it is FREE *and* no loan
 * of it is out, and the memory outlives the feed until the last loan is back. So what leaves,
 * whenever it leaves, is the batch that was announced.
 *
 *     outbox record  --holds one loan--  from the core's BATCH until the transport has queued all
 *                    frames
 *     queued frame   --holds one loan--  until ZeroMQ calls back: sent, or dropped with its
 *                    connection
 *
 * Threads: borrow under the server's mutex or baton; return from any thread, without any lock. */
#ifndef TRAJD_SERVER_SLOT_SENDS_H
#define TRAJD_SERVER_SLOT_SENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/server/ring.h"
#include "proto/wire.h"

/* So aligned stand the tensors of a part that travels (PROTOCOL.md, "Over tcp"). */
#define TRAJD_PART_ALIGNMENT 64u

struct trajd_lending {
    struct trajd_ring ring;
    struct trajd_wire_tensor *tensors; /* texts stand behind them, in the same allocation */
    uint32_t tensor_count;
    int wake_fd;         /* an eventfd: written when a loan came back that a taker waits for */
    uint32_t references; /* atomic: the feed's, and one a loan */
    bool awaited;        /* atomic: a taker found a slot FREE and lent */
    bool returned;       /* atomic: and one came back since */
    uint32_t *loans;     /* atomic; one a slot */
};

/* Takes over ring (whose slots are counted) and tensors on success; both are freed with the last
 * reference. wake_fd must outlive all loans. NULL: out of memory. */
struct trajd_lending *trajd_lending_create(struct trajd_ring *ring,
                                           struct trajd_wire_tensor *tensors, uint32_t tensor_count,
                                           int wake_fd);
/* The feed's reference; clears the pointer. NULL is fine. */
void trajd_lending_drop(struct trajd_lending **lending);

void trajd_lending_borrow(struct trajd_lending *lending, uint32_t slot);
void trajd_lending_return(struct trajd_lending *lending, uint32_t slot);
/* What ZeroMQ calls when it lets go of a frame: `data` lies in the slot whose loan returns. */
void trajd_lending_let_go(void *data, void *lending);
/* For the taker. If it is, its return writes wake_fd, and then trajd_lending_came_back says so,
 * once. */
bool trajd_lending_is_lent(struct trajd_lending *lending, uint32_t slot);
bool trajd_lending_came_back(struct trajd_lending *lending);
/* Slots that are lent. */
uint32_t trajd_lending_count(const struct trajd_lending *lending);

/* Bytes of a slot that travel, and zeros behind them (fewer than TRAJD_PART_ALIGNMENT). */
struct trajd_piece {
    unsigned char *data;
    size_t size_bytes, zeros;
};

/* Rows [row_begin, row_begin + row_count) of every tensor in their order, each padded with zeros to
 * TRAJD_PART_ALIGNMENT. `pieces` has room for tensor_count; the number of pieces, none of them
 * empty. */
uint32_t trajd_lending_part(const struct trajd_lending *lending, uint32_t slot, uint32_t row_begin,
                            uint32_t row_count, struct trajd_piece *pieces);

#endif
