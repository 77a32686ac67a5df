/* The server's inside, shared by server.c (life), server_feed.c (feeds, producers), server_loop.c
 * (the thread), server_messages.c (what workers say), server_queries.c (questions) and
 * server_status.c.
 *
 * Two locks. `mutex` guards the core and all that its callbacks touch: outbox, peers, feeds,
 * requests. `send_lock` is for the transport and what goes with sending; it is taken before
 * `mutex`. The thread holds the send lock for each of its turns, never while it sleeps. A producer
 * that has something to tell sends it itself, which saves a change of threads, if the send lock is
 * free; else whoever has it sends that too: see trajd_server_flush. The fd socket belongs to the
 * thread alone. */
#ifndef TRAJD_SERVER_SERVER_INTERNAL_H
#define TRAJD_SERVER_SERVER_INTERNAL_H

#include <pthread.h>

#include "daemon/feed/core.h"
#include "daemon/server/fdsock.h"
#include "daemon/server/slot_sends.h"
#include "daemon/server/peers.h"
#include "daemon/server/ring.h"
#include "daemon/server/server.h"
#include "daemon/server/transport.h"
#include "proto/wire.h"

#define TRAJD_SERVER_MAX_REQUESTS 64u
#define TRAJD_SERVER_MAX_QUERIES 64u
#define TRAJD_LATENCY_BUCKETS 40u

struct trajd_feed {
    struct trajd_server *server;
    struct trajd_feed *next;
    struct trajd_core_feed *core;
    struct trajd_slot_sends *slot_sends; /* its ring and tensors */
    pthread_cond_t wanted;               /* a take may succeed, or the feed is closed */
    bool is_wanted; /* whoever has called the core signals it when all is sent */
    bool closed;
    bool idle_told;
    uint32_t users; /* threads in take, or the callback feed_idle: removal waits for them */
};

/* Encoded messages in the order that the core said them: each a trajd_outgoing_record and its frame
 * behind it. */
struct trajd_outbox {
    unsigned char *bytes;
    size_t size, room;
};

struct trajd_outgoing_record {
    uint64_t ready_ns; /* of a BATCH, else 0 */
    /* a part whose bytes follow the frame, with a send reference of its slot; NULL: none */
    struct trajd_slot_sends *slot_sends;
    uint32_t slot, row_begin, row_count;
    uint32_t length; /* of the frame */
    struct trajd_route route;
};

/* An OPEN that waits for the producer. */
struct trajd_request {
    uint64_t id; /* 0: free */
    /* the id that the producer knows: of several sessions of a job that want an instance the
     * first's */
    uint64_t asked;
    char family[TRAJD_WIRE_MAX_NAME + 1]; /* of the instance that is wanted; "": of none */
    uint64_t session;                     /* 0: it has said another OPEN since */
    struct trajd_wire_open open;
    char job[TRAJD_WIRE_MAX_NAME + 1];
    uint8_t resume[TRAJD_WIRE_MAX_CHECKPOINT];
    bool unasked; /* the thread's own: the producer is still to be asked for an instance */
    bool answered;
    struct trajd_feed *feed; /* of the answer, or */
    struct trajd_error error;
};

/* An ASK that waits for its answer. */
struct trajd_pending_query {
    struct trajd_query question; /* id 0: free */
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
    uint64_t dropped_frames; /* atomic: that were not from a peer of ours */

    pthread_mutex_t mutex;
    pthread_cond_t changed; /* leases came back, a feed lost a user */
    struct trajd_core *core;
    struct trajd_feed *feeds;
    struct trajd_peers peers;
    uint64_t last_end_ns; /* of a session; at first of nobody: when the server began */
    struct trajd_outbox outbox;
    bool woken; /* the thread has been woken and has not looked yet */
    bool draining;
    struct trajd_request requests[TRAJD_SERVER_MAX_REQUESTS];
    uint64_t last_request;
    struct trajd_pending_query queries[TRAJD_SERVER_MAX_QUERIES];
    pthread_cond_t asked; /* an ASK came, or no more will */
    uint64_t last_query;
    bool queries_closed;

    pthread_mutex_t send_lock;
    struct trajd_transport *transport;
    struct trajd_outbox sending;
    uint64_t unsent;                         /* messages to peers that were gone or did not read */
    uint64_t latency[TRAJD_LATENCY_BUCKETS]; /* READY to sent: bucket k counts below 2^k ns */

    /* the thread's own */
    struct trajd_fdsock *fdsock;
    unsigned char *frame;     /* TRAJD_WIRE_MAX_FRAME: of direct answers */
    char *status;             /* TRAJD_WIRE_MAX_STATUS */
    uint64_t silent_sessions; /* remote ones that were given up */
    uint64_t tick_at_ns, rate_since_ns;
    uint64_t rate_base_batches, rate_base_windows;
    double batch_rate_hz, window_rate_hz;
};

/* The thread: until trajd_server.stop. */
void *trajd_server_run(void *server);
/* Makes the thread look. Any thread; the mutex is held. */
void trajd_server_wake(struct trajd_server *server);

/* Sends what is in the outbox, unless another thread is at it, which then sends it. Any thread; no
 * lock is held. */
void trajd_server_flush(struct trajd_server *server);
/* Takers of feeds that the core said may be taken from. The mutex is held. */
void trajd_server_wake_takers(struct trajd_server *server);

/* A message arrived. Takes the mutex itself. */
void trajd_server_handle(struct trajd_server *server, const struct trajd_incoming *incoming,
                         uint64_t now_ns);
/* OPENs whose feed the producer has answered. The mutex is held. */
void trajd_server_finish_requests(struct trajd_server *server, uint64_t now_ns);
/* Asks the producer for the instances that are wanted. The thread; no mutex is held: the producer
 * may answer at once. */
void trajd_server_ask_instances(struct trajd_server *server);
/* Puts a message for a session's peer into the outbox. The mutex is held. */
void trajd_server_send(struct trajd_server *server, const struct trajd_peer *peer,
                       const struct trajd_wire_message *message);
/* Queues the ASK of a session. TRAJD_ERR_BUSY: too many wait. The mutex is held. */
enum trajd_status trajd_server_note_query(struct trajd_server *server,
                                          const struct trajd_peer *peer,
                                          const struct trajd_wire_ask *query,
                                          struct trajd_error *error);
/* The session is over: BYE, death, or never attached. The mutex is held. */
void trajd_server_end_session(struct trajd_server *server, struct trajd_peer *peer,
                              uint64_t now_ns);

/* Writes the status document; its length. The thread's; takes the mutex itself. */
size_t trajd_server_write_status(struct trajd_server *server, char *json, size_t room,
                                 uint64_t now_ns);

#endif
