/* A batch inside libtrajd, and how it is handled after its release.
 *
 *     batch.c             makes it from a delivery; reads it; returns its lease
 *     batch_streams.c     the GPU streams that read it, and the events recorded on them
 *     batch_release.c     trajd_batch_done, _release and _abandon; the list of released batches whose
 *                         streams have not finished
 *
 * Lease states: held (by the caller), deferred (released, GPU streams still read it), pending (in
 * client->ack), returned (sent). In host memory a release goes from held to pending at once. */
#ifndef TRAJD_C_BATCH_INTERNAL_H
#define TRAJD_C_BATCH_INTERNAL_H

#include "clients/c/client_internal.h"

#define TRAJD_BATCH_MAX_STREAMS 8u

struct trajd_batch {
    struct trajd_client *client;   /* one reference */
    struct trajd_mapping *mapping; /* one reference; NULL: `payload` holds the tensors */
    struct trajd_buffers *buffers; /* owns `payload` */
    unsigned char *payload;
    struct trajd_schema *schema; /* one reference */
    struct trajd_wire_lease lease;
    uint64_t incarnation; /* of the session that leased it; later sessions are not sent its ACK */
    bool is_done;         /* its DONE is pending or sent */
    bool is_superseded;   /* a later OPEN ended its epoch: its DONE can no longer be sent */
    bool is_carried;      /* of a lost session: it has no lease, only a DONE */
    bool is_abandoned;    /* its lease is not returned */
    uint32_t held_index;  /* in client->held.batches */

    /* on a GPU: the streams that read it; after the release those that may not have finished */
    uint32_t stream_count;
    uintptr_t streams[TRAJD_BATCH_MAX_STREAMS];
    void *events[TRAJD_BATCH_MAX_STREAMS]; /* recorded after that work; NULL: not yet */
    uint64_t default_stream_thread;        /* the thread whose default stream is in `streams` */
    /* an event could not be recorded: the batch counts as finished only after its whole context was
     * synchronized */
    bool is_untracked;
    bool is_awaited; /* trajd_deferred_synchronize waits for its context now */
    struct trajd_batch *next_deferred;

    struct trajd_batch_info info;
    struct trajd_tensor tensors[]; /* as in the schema, with the rows of this batch */
};

/* batch.c */
/* Returns the ring that has the rows of a delivery. Borrowed. NULL: a remote daemon sent them. */
struct trajd_mapping *trajd_delivery_mapping(const struct trajd_client *client,
                                             const struct trajd_delivery *delivery);
/* Makes a batch of the open feed. The caller holds io_lock. NULL: out of memory. */
struct trajd_batch *trajd_batch_create(struct trajd_client *client,
                                       const struct trajd_delivery *delivery);
/* Adds a DONE to the pending ACK, unless one was added or the session is over. The caller holds
 * state_lock. */
void trajd_batch_mark_done(struct trajd_batch *batch);
/* Removes the batch from client->held. The caller holds state_lock. */
void trajd_batch_remove_from_held(struct trajd_batch *batch);
/* Adds the lease to the pending ACK and wakes the thread that sends it. The caller holds
 * state_lock. */
void trajd_batch_return(struct trajd_batch *batch);
/* Frees the batch and its references. The caller holds no lock. */
void trajd_batch_free(struct trajd_batch *batch);

/* batch_streams.c */
/* Records an event on each stream of the batch. Returns false if no work is left to wait for.
 * Called once, at the release. */
bool trajd_batch_record_events(struct trajd_batch *batch);
/* Returns true if all streams have finished with the batch. Does not block. */
bool trajd_batch_query_streams(struct trajd_batch *batch);
/* Destroys the events. Correct once the GPU's context has finished everything. */
void trajd_batch_forget_streams(struct trajd_batch *batch);
/* Waits until all streams have finished with a batch of a finished client. Returns false where that
 * cannot be known, because a graph is being captured. */
bool trajd_batch_await_streams(struct trajd_batch *batch);

/* batch_release.c */
/* Adds a batch whose events are recorded. The caller holds state_lock. */
void trajd_deferred_add(struct trajd_client *client, struct trajd_batch *batch);
/* Returns how long to wait before the streams are queried again. The caller holds state_lock. */
uint64_t trajd_deferred_pause_ns(const struct trajd_client *client);
/* Returns the leases of batches whose streams have finished, oldest first, and frees these batches.
 * Returns true if some batches remain. The caller does not hold state_lock. */
bool trajd_deferred_collect(struct trajd_client *client);
/* Waits for the context of the first untracked batch, if there is one. I/O thread, or after its
 * end; the caller does not hold state_lock. */
void trajd_deferred_synchronize(struct trajd_client *client);
/* Marks the client as finished, and waits until no batch is deferred. */
void trajd_deferred_end(struct trajd_client *client);

#endif
