/* What the server's files share. From top to bottom, where each file calls only files below it:
 *
 *     server.c           creates, drains and destroys the server; its counters; its thread, which
 *                        receives, sends, and does timed work
 *     server_messages.c  handles one message of a worker; begins and ends sessions
 *     server_open.c      OPEN, and the requests for feeds that the producer has to make
 *     server_feed.c      adds and removes feeds; the producer's take and publish
 *     server_status.c    writes the status document, and answers STATUS; ASK: a queue of queries
 *     outbox.c           messages that wait to be sent; sending, and waking threads
 *
 * Below them stand files that know nothing of struct trajd_server: transport/, fdsock.c, peers.c,
 * slot_sends.c, ring.c, keyring.c and lock.c.
 *
 * Locks: `mutex` guards the core and everything that its callbacks touch (outbox, peers, feeds,
 * requests, queries). `send_lock` guards the transport and what belongs to sending; a thread that
 * needs both takes `send_lock` first. The server's thread holds the send lock during each of its
 * turns, and never while it sleeps. A producer that publishes a batch sends it itself if the send
 * lock is free, which saves a change of threads; otherwise the holder of the lock sends it too (see
 * trajd_server_flush). Only the server's thread uses the fd socket. */
#ifndef TRAJD_SERVER_SERVER_INTERNAL_H
#define TRAJD_SERVER_SERVER_INTERNAL_H

#include <pthread.h>

#include "daemon/feed/core.h"
#include "daemon/server/fdsock.h"
#include "daemon/server/slot_sends.h"
#include "daemon/server/peers.h"
#include "daemon/server/ring.h"
#include "daemon/server/server.h"
#include "daemon/server/transport/connections.h"
#include "daemon/server/transport/transport.h"
#include "proto/wire.h"

#define TRAJD_SERVER_MAX_REQUESTS 64u
#define TRAJD_SERVER_MAX_QUERIES 64u
#define TRAJD_LATENCY_BUCKETS 40u

struct trajd_feed {
    struct trajd_server *server;
    struct trajd_feed *next;
    struct trajd_core_feed *core;
    struct trajd_slot_sends *slot_sends; /* the ring and its tensors */
    pthread_cond_t wanted;               /* a take may succeed, or the feed is closed */
    bool is_wanted;     /* `wanted` is to be signalled once all messages are sent */
    bool closed;        /* takers return TRAJD_ERR_CLOSED */
    bool idle_reported; /* the callback feed_idle has been called for this idle time */
    uint32_t users;     /* threads in take or in the callback feed_idle; removal waits for them */
};

/* Encoded messages in the order in which the core sent them: each a trajd_outgoing_record with its
 * frame behind it. */
struct trajd_outbox {
    unsigned char *bytes;
    size_t size, room;
};

struct trajd_outgoing_record {
    uint64_t ready_ns; /* of a BATCH, else 0 */
    /* of a BATCH whose rows follow the frame: the record holds a send reference of the slot; NULL
     * for any other message */
    struct trajd_slot_sends *slot_sends;
    uint32_t slot, row_begin, row_count;
    uint32_t length; /* of the frame, in bytes */
    struct trajd_route route;
};

/* An OPEN whose feed control (control/feed_opener.c) still has to make. */
struct trajd_request {
    uint64_t id; /* 0: the entry is free */
    /* the request number passed to control; sessions of one job that want the same instance share
     * the number of the first */
    uint64_t producer_request;
    char family[TRAJD_WIRE_MAX_NAME + 1]; /* feed whose new instance is wanted; "": no instance */
    uint64_t session;                     /* 0: the session has sent another OPEN or has ended */
    struct trajd_wire_open open;          /* its texts are empty or point to the copies below */
    char job[TRAJD_WIRE_MAX_NAME + 1];
    uint8_t resume[TRAJD_WIRE_MAX_CHECKPOINT];
    bool is_unsent; /* the thread has still to call open_feed for an instance */
    bool answered;
    struct trajd_feed *feed;  /* the answer; NULL: `error` says why there is none */
    struct trajd_error error; /* valid if feed is NULL */
};

/* An ASK that waits for its answer. */
struct trajd_pending_query {
    struct trajd_query query; /* its id is 0 in a free entry */
    uint64_t session, request;
    bool taken;
};

struct trajd_server {
    struct trajd_server_options options;
    char *version;
    int lock_fd, wake_fd;
    pthread_t thread;
    bool running;
    bool stop;               /* atomic */
    uint64_t last_turn_ns;   /* atomic */
    uint64_t dropped_frames; /* atomic; malformed frames, which no peer of ours sends */

    /* guarded by the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* leases were released, or a feed lost a user */
    struct trajd_core *core;
    struct trajd_feed *feeds;
    struct trajd_peers peers;
    uint64_t
        last_end_ns; /* the end of the last session; before the first one, the server's start */
    struct trajd_outbox outbox;
    bool woken; /* wake_fd was written, and the thread has not read it yet */
    bool draining;
    struct trajd_request requests[TRAJD_SERVER_MAX_REQUESTS];
    uint64_t last_request;
    struct trajd_pending_query queries[TRAJD_SERVER_MAX_QUERIES];
    pthread_cond_t query_added; /* or the queue was closed */
    uint64_t last_query;
    bool queries_closed;

    /* guarded by the send lock */
    pthread_mutex_t send_lock;
    struct trajd_transport *transport;
    struct trajd_outbox sending;             /* taken from `outbox`, about to be sent */
    uint64_t unsent;                         /* messages to peers that were gone or did not read */
    uint64_t latency[TRAJD_LATENCY_BUCKETS]; /* READY to sent: bucket k counts below 2^k ns */
    uint64_t latency_sum_ns;

    /* used by the server's thread alone */
    struct trajd_fdsock *fdsock;
    unsigned char *frame;     /* TRAJD_WIRE_MAX_FRAME bytes for direct answers */
    uint64_t silent_sessions; /* remote sessions that ended because nothing was received */
    uint64_t tick_at_ns, rate_since_ns, keys_checked_ns;
    bool is_status_wanted; /* a session waits for the status document */
    uint64_t status_at_ns; /* the earliest time of the next one */
    uint32_t status_next;  /* the peer that may get the next one first, modulo their number */
    uint64_t rate_base_batches, rate_base_windows;
    double batch_rate_hz, window_rate_hz;
};

/* ---- server_messages.c: called by the server's thread ---- */

/* Handles one message that arrived. Takes the mutex itself. */
void trajd_server_handle(struct trajd_server *server, const struct trajd_incoming *incoming,
                         uint64_t now_ns);
/* Ends a session after BYE, its worker's death, or because it never attached. The caller holds the
 * mutex. */
void trajd_server_end_session(struct trajd_server *server, struct trajd_peer *peer,
                              uint64_t now_ns);

/* ---- server_open.c: called by the server's thread ---- */

/* Handles an OPEN. Returns 0, or the number of a request that the caller passes to
 * trajd_server_request_feed after it has released the mutex. The caller holds the mutex. */
uint64_t trajd_server_handle_open(struct trajd_server *server, struct trajd_peer *peer,
                                  const struct trajd_wire_open *open, uint64_t now_ns);
/* Requests the feed of `open` from the producer. The caller does not hold the mutex, because the
 * producer may answer within the call. */
void trajd_server_request_feed(struct trajd_server *server, uint64_t request,
                               const struct trajd_wire_open *open);
/* Requests the instances that are wanted from the producer. The caller does not hold the mutex, as
 * above. */
void trajd_server_request_instances(struct trajd_server *server);
/* Answers the OPENs whose feed the producer has opened or refused. The caller holds the mutex. */
void trajd_server_finish_requests(struct trajd_server *server, uint64_t now_ns);

/* ---- server_feed.c ---- */

/* Returns true if a session holds a batch in the feed's ring, perhaps after it has left the feed. A
 * ring in host memory then stays open, so that the memory is counted. The memory of a ring on a GPU
 * may be left to the workers. The caller holds the mutex. */
bool trajd_feed_is_held(const struct trajd_feed *feed);

/* ---- server_status.c ---- */

/* Queues the ASK of a session. TRAJD_ERR_BUSY: the queue is full, or the session has several in it.
 * The caller holds the mutex. */
enum trajd_status trajd_server_add_query(struct trajd_server *server, const struct trajd_peer *peer,
                                         const struct trajd_wire_ask *ask,
                                         struct trajd_error *error);
/* Removes the queries of a session that ends, but for the one that is being answered. The caller
 * holds the mutex. */
void trajd_server_drop_queries(struct trajd_server *server, uint64_t session);

/* The next two are called by the server's thread. */

/* Notes the STATUS of a session. The caller holds the mutex. */
void trajd_server_want_status(struct trajd_server *server, struct trajd_peer *peer,
                              uint64_t request, uint64_t now_ns);
/* Answers STATUS, every 100 ms at most, with one document for 32 sessions that wait. A session
 * waits longer if it has not read what it got before, a remote one for a second at most. Takes the
 * mutex itself. */
void trajd_server_answer_status(struct trajd_server *server, uint64_t now_ns);

/* ---- outbox.c ---- */

/* Logs a line, if the options say how. `server`: struct trajd_server. */
void trajd_server_log(void *server, const char *line);
/* Encodes a message for a session's peer into the outbox. A remote BATCH without error gets its
 * rows, and its record takes a send reference of the slot. If there is no memory for the message,
 * the session gets no others, so that none is missing between two, and the next tick ends it. The
 * caller holds the mutex. */
void trajd_server_send(struct trajd_server *server, struct trajd_peer *peer,
                       const struct trajd_wire_message *message);
/* Wakes the server's thread. Any thread; the caller holds the mutex. */
void trajd_server_wake(struct trajd_server *server);
/* Wakes the takers of all feeds whose is_wanted is set. The caller holds the mutex. */
void trajd_server_wake_takers(struct trajd_server *server);
/* Sends the messages in the outbox, unless another thread holds the send lock: that thread then
 * sends them. Any thread; the caller holds no lock. */
void trajd_server_flush(struct trajd_server *server);
/* Moves the outbox to `sending`, which must be empty. The caller holds both locks. */
void trajd_server_take_outbox(struct trajd_server *server);
/* Sends the messages in `sending`. Returns true if there was one. The caller holds the send lock.
 */
bool trajd_server_send_taken(struct trajd_server *server);
/* The next two take the mutex themselves. */
bool trajd_server_outbox_is_empty(struct trajd_server *server);
/* Returns true if the messages are to be sent before further ones are received. */
bool trajd_server_outbox_is_full(struct trajd_server *server);
/* Frees the outbox with its unsent messages, and returns their send references. */
void trajd_outbox_drop(struct trajd_outbox *outbox);

#endif
