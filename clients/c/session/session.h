/* The protocol of a session (proto/PROTOCOL.md), from the worker's side. The caller of each
 * function holds io_lock, and not state_lock unless the function says so.
 *
 * A file calls only files that stand above it in this list:
 *
 *     session_end.c       failure and end of a session; what outlives the daemon: batches, the last DONEs
 *     session_send.c      messages to the daemon: HELLO, OPEN, ACK
 *     session_batches.c   BATCH, EPOCH_END, the rows that a remote daemon sends
 *     session_opened.c    OPENED: schema, ring, buffers
 *     session_messages.c  all other messages of the daemon
 *     session.c           one turn: receive, then send what is due; waiting */
#ifndef TRAJD_C_SESSION_SESSION_H
#define TRAJD_C_SESSION_SESSION_H

#include "clients/c/client_internal.h"

/* session_end.c. Only queue jobs have it, and only with a daemon that numbers its passes. */
/* Notes a DONE. The caller holds state_lock. */
void trajd_carried_note_done(struct trajd_client *client, uint64_t position);
/* Keeps the batches of a session that is lost, for the next OPEN. The others are forgotten. Begins
 * a new incarnation. */
void trajd_carried_keep(struct trajd_client *client);
/* Fills the keys of OPEN that report the state of an earlier session. */
void trajd_carried_list(struct trajd_client *client, struct trajd_wire_open *open);
/* Drops the batches that OPENED does not leave to this worker. next() returns the others. */
void trajd_carried_settle(struct trajd_client *client, const struct trajd_wire_opened *opened);
/* Reports the DONEs of such batches once more, because messages may be lost. */
void trajd_carried_report_done(struct trajd_client *client);
/* Drops the batches of an earlier session. */
void trajd_carried_drop_batches(struct trajd_client *client);
/* Forgets the pass through the epoch, too. */
void trajd_carried_drop(struct trajd_client *client);

/* session_send.c. A message that cannot be sent is dropped: everything that matters is sent again
 * after the next HELLO. */
void trajd_session_send(struct trajd_client *client, const struct trajd_wire_message *message);
void trajd_session_send_hello(struct trajd_client *client, uint64_t now_ns);
/* Sends OPEN for client->open.terms, with a new request number. */
void trajd_session_send_open(struct trajd_client *client);
/* Sends the OPEN under way once more, because it may have been lost. */
void trajd_session_resend_open(struct trajd_client *client);
/* Sends pending DONEs before another OPEN, which makes them invalid: a DONE that cannot be sent now
 * is dropped. */
void trajd_session_end_epoch(struct trajd_client *client);
/* Sends the pending ACK. A failed send leaves it pending. */
void trajd_session_send_acks(struct trajd_client *client);
/* True if trajd_session_send_acks would send something. The caller holds state_lock too. */
bool trajd_session_has_acks(const struct trajd_client *client);
/* True in a session that accepts ACK. */
bool trajd_session_can_ack(const struct trajd_client *client);

/* session_end.c: failure and end */
void trajd_session_fail(struct trajd_client *client, const struct trajd_error *error);
/* Fails with TRAJD_ERR_PROTOCOL. `what` completes "the daemon breaks the protocol: ". */
void trajd_session_fail_protocol(struct trajd_client *client, const char *what);
/* Drops queued batches and pending ACKs, and begins a new incarnation. Batches that the caller
 * holds stay readable; their leases are not returned. */
void trajd_session_clear_batches(struct trajd_client *client);
/* The same, and drops the rings. */
void trajd_session_clear(struct trajd_client *client);
/* Handles the loss of the session: connects again, or fails without `reconnect`. */
void trajd_session_end(struct trajd_client *client);

/* session_batches.c */
/* Makes feed.buffers for the open feed: one for each batch of the credit, and one more. */
enum trajd_status trajd_payload_make_buffers(struct trajd_client *client,
                                             struct trajd_error *error);
void trajd_session_handle_batch(struct trajd_client *client, const struct trajd_wire_batch *batch);
void trajd_session_handle_epoch_end(struct trajd_client *client,
                                    const struct trajd_wire_epoch_end *end);
/* Returns the leases of queued batches without DONE. */
void trajd_session_return_queue(struct trajd_client *client);

/* session_opened.c */
void trajd_session_handle_opened(struct trajd_client *client,
                                 const struct trajd_wire_opened *opened);
/* Takes over a ring's descriptor from fd.sock. */
void trajd_session_add_ring(struct trajd_client *client, const struct trajd_link_ring *ring);
/* Opens the feed in host memory, because the GPU cannot be used: *error says why. Sends the same
 * OPEN at once, without the GPU. */
void trajd_session_fall_back_to_host(struct trajd_client *client, const struct trajd_error *error);

/* session_messages.c */
void trajd_session_handle(struct trajd_client *client, const void *frame, size_t size);

/* session.c */
/* Receives everything that has arrived, and sends everything that is due. Does not block. */
void trajd_session_turn(struct trajd_client *client);
/* The same without fd.sock, which saves a system call. */
void trajd_session_exchange(struct trajd_client *client);
/* Returns the milliseconds until a turn has something to send, at least 1. */
int trajd_session_timeout_ms(struct trajd_client *client, uint64_t now_ns);
/* Waits once, at most until the deadline, for a message, a wake-up or a timer; then does a turn. */
void trajd_session_wait(struct trajd_client *client, uint64_t deadline_ns);
/* Forgets the cancellation of an earlier call. Each call that waits begins with it. */
void trajd_session_begin_call(struct trajd_client *client);
/* True once the user's callback has ended this call. */
bool trajd_session_is_cancelled(const struct trajd_client *client);
/* Fails with TRAJD_ERR_TIMEOUT. The message names `call` and what it has waited for. */
enum trajd_status trajd_session_time_out(const struct trajd_client *client, const char *call,
                                         uint32_t timeout_ms, struct trajd_error *error);

#endif
