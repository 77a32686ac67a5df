/* struct trajd_client with its parts, and functions on its lists, locks and references
 * (client_state.c).
 *
 * A file calls only files that stand above it in this list:
 *
 *     client_clock.h                     the time
 *     buffers, cuda, mapping, tensors    memory of batches: buffers, GPUs, mapped rings, schemas
 *     link/                              sockets: link_remote, then link
 *     client_state                       this header: locks, wake-ups, references, bursts of releases
 *     session/                           the protocol (session.h has the order of its files)
 *     batch, batch_streams               one batch; the GPU streams that read it
 *     batch_release                      done and release; batches that GPU streams still read
 *     io_thread                          the end of a session; the library's own thread
 *     client, feed_open, feed_next, client_query    the calls of trajd.h
 *
 * Locks: the caller of any function of link/ and session/ holds io_lock. next() and the other calls
 * take it, and the I/O thread takes it while no call has it. state_lock protects what release and
 * done change from any thread. It is taken inside io_lock, and held only for moments.
 *
 * Lifetime: the user holds one reference to a client, and each batch holds one. The last reference
 * frees the client. */
#ifndef TRAJD_C_CLIENT_INTERNAL_H
#define TRAJD_C_CLIENT_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "clients/c/buffers.h"
#include "clients/c/client_clock.h"
#include "clients/c/link/link.h"
#include "clients/c/mapping.h"
#include "clients/c/tensors.h"
#include "clients/c/trajd.h"
#include "proto/ring_layout.h"
#include "proto/wire.h"

#define TRAJD_CLIENT_MAX_RINGS 16u
#define TRAJD_CLIENT_QUEUE TRAJD_WIRE_MAX_LEASES

/* The order matters: from READY on a session exists. */
enum trajd_client_phase {
    TRAJD_PHASE_DOWN,     /* HELLO is sent as soon as the socket is connected */
    TRAJD_PHASE_HELLO,    /* waits for WELCOME */
    TRAJD_PHASE_GREETING, /* sends the token to fd.sock */
    TRAJD_PHASE_READY,    /* a session without a feed */
    TRAJD_PHASE_OPENING,  /* waits for OPENED */
    TRAJD_PHASE_MAPPING,  /* waits for the descriptor of the ring that OPENED named */
    TRAJD_PHASE_OPEN,
    TRAJD_PHASE_FAILED, /* session.failure holds the error */
};

/* A BATCH message that next() has not returned yet. */
struct trajd_delivery {
    struct trajd_wire_lease lease;
    uint64_t epoch, position, ready_ns, sequence;
    uint32_t row_begin, row_count;
    char *failure;          /* why the batch could not be made; NULL: it is good */
    unsigned char *payload; /* remote: its bytes, one of feed.buffers; else NULL */
    /* The session that leased it is lost, and its daemon perhaps, too. These replace the members of
     * client->feed: one reference to each of the first two, and the owner of `payload`. */
    bool is_carried;
    struct trajd_mapping *mapping;
    struct trajd_schema *schema;
    struct trajd_buffers *buffers;
};

/* session/session.c: the callback by which the user ends a wait. */
struct trajd_client_cancel {
    bool (*callback)(void *context); /* NULL: none */
    void *context;
    bool is_requested;   /* the callback returned true during this call */
    uint64_t checked_ns; /* the time of its last call */
};

/* The NOTICE that came last. */
struct trajd_client_notice {
    void (*callback)(void *context, const char *text, uint32_t wait_ms); /* NULL: none */
    bool is_new; /* next() is to pass it on */
    uint32_t wait_ms;
    char text[TRAJD_WIRE_MAX_REASON + 1];
};

/* session/: the connection as the protocol sees it. */
struct trajd_client_session {
    enum trajd_client_phase phase;
    struct trajd_error failure; /* why phase is FAILED, or why the last OPEN was refused */
    bool was_ready;   /* a session existed; a later daemon is accepted only with `reconnect` */
    bool is_resuming; /* a HELLO with our token is under way */
    bool is_ending;   /* GOAWAY came */
    uint64_t lost_ns; /* when it was lost, until the feed is open again; 0: it is not */
    bool has_sent;    /* since the last receive: sending may consume the socket's readiness */
    uint64_t ping_ns; /* a PING is sent after this time without a message to the daemon */
    uint64_t retry_at_ns, hello_sent_ns, last_sent_ns, last_received_ns;
    uint64_t instance, id;      /* of the daemon; of the session */
    uint64_t received_sequence; /* of the last BATCH */
    uint64_t last_request;      /* numbers OPEN, STATUS, ASK and CHECKPOINT */
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    unsigned char *frame;              /* scratch of TRAJD_WIRE_MAX_FRAME bytes */
    struct trajd_wire_tensor *tensors; /* scratch of TRAJD_WIRE_MAX_TENSORS */
};

/* Owned copies of the options of trajd_client_open. */
struct trajd_open_terms {
    char *feed, *spec, *job, *gpu; /* NULL before the first open, then never */
    enum trajd_mode mode;
    uint32_t rank, world, credit;
    uint64_t epoch, next, fingerprint;
    enum trajd_unfinished unfinished;
    struct trajd_wire_ranks local, on_gpu;
    void *resume;
    uint32_t resume_size;
};

/* feed_open.c: the OPEN under way or the last one. */
struct trajd_client_open {
    struct trajd_open_terms terms;
    uint64_t request;       /* 0: none under way */
    bool is_fresh;          /* trajd_client_open sent it; false: it repeats one after a reconnect */
    bool is_refused;        /* session.failure holds the error */
    uint64_t wait_until_ns; /* the daemon holds the OPEN back until then; 0: it does not */
    bool gpu_refused;       /* a GPU was requested, and the feed is opened in host memory */
    char gpu_refusal[TRAJD_ERROR_MESSAGE_SIZE];
};

/* A list of texts that OPENED brought. */
struct trajd_client_texts {
    uint32_t count;
    const char *list[TRAJD_WIRE_MAX_TEXTS];
    char room[TRAJD_WIRE_MAX_TEXTS][TRAJD_WIRE_MAX_WARNING + 1];
};

/* session/session_opened.c: the open feed, as OPENED described it. */
struct trajd_client_feed {
    bool is_granted;             /* OPENED came; after a reconnect the feed is opened again */
    uint32_t id;                 /* 0: the daemon that gave one is gone */
    struct trajd_feed_info info; /* written under state_lock too: release reads its credit */
    struct trajd_client_texts quarantine_reasons, warnings; /* of info */
    uint64_t next_position; /* after the last batch that next() returned */
    struct trajd_ring_terms ring_terms;
    char gpu[TRAJD_WIRE_MAX_GPU + 1]; /* UUID of the GPU that has the batches; "": host memory */
    struct trajd_schema *schema;
    bool is_unfinished;            /* images of the schema are to be finished */
    struct trajd_mapping *mapping; /* NULL: remote, or not mapped yet; borrowed from rings */
    struct trajd_buffers *buffers; /* remote: for payloads */
    uint32_t row_limit;            /* remote: the most rows of one payload */
};

/* session/session_opened.c: rings of this session. Feeds may share one. */
struct trajd_client_rings {
    struct trajd_mapping *mapped[TRAJD_CLIENT_MAX_RINGS];
    struct trajd_link_ring received[TRAJD_CLIENT_MAX_RINGS]; /* descriptors without an OPENED yet */
    uint32_t mapped_count, received_count;
};

/* client_query.c: the STATUS, ASK or CHECKPOINT under way. */
struct trajd_client_query {
    uint64_t request; /* 0: there is none, or it is to be sent: its session was lost */
    bool is_answered;
    char *answer; /* with a 0 byte behind it; NULL: `error` says why */
    size_t size_bytes;
    struct trajd_error error;
};

/* Batches that next() has not returned yet: a circular queue. */
struct trajd_client_queue {
    struct trajd_delivery entries[TRAJD_CLIENT_QUEUE];
    uint32_t first, count;
};

/* Leased batches of this session: with the caller, or released and deferred. */
struct trajd_client_held {
    struct trajd_batch *batches[TRAJD_CLIENT_QUEUE];
    uint32_t count;
    struct trajd_batch *previous; /* the last that next() returned, if its DONE is not sent */
};

/* session/session_end.c: the pass of a queue job through its epoch, which outlives sessions. */
struct trajd_client_carried {
    uint64_t pass;                    /* its number in OPENED; 0: none */
    struct trajd_wire_positions done; /* the last batches that are DONE, oldest first */
    struct trajd_wire_positions kept; /* `held` of OPENED */
    struct trajd_delivery waiting[TRAJD_CLIENT_QUEUE]; /* queued when the session was lost */
    uint32_t waiting_count;
};

/* batch_release.c: released batches that GPU streams may still read, oldest first. */
struct trajd_client_deferred {
    struct trajd_batch *first, **end;
    uint64_t changed_ns; /* when one was last added or removed */
};

/* client_state.c: what the next ACK will name. */
struct trajd_client_ack {
    struct trajd_wire_ack pending;
    /* on a GPU: when the oldest pending release was added; 0: send at once */
    uint64_t burst_since_ns;
    uint64_t burst_sequence; /* the sequence of that batch */
};

struct trajd_client {
    /* constant after connect */
    pid_t pid;
    char *endpoint, *name;
    uint32_t timeout_ms;
    uint64_t away_ns; /* with `reconnect`: how long a daemon may be lost */
    bool reconnect, explicit_done;
    int wake_fd;      /* eventfd: wakes next() */
    int io_thread_fd; /* eventfd: wakes the I/O thread */
    int poll_fd;      /* eventfd: the user polls it */
    pthread_t io_thread;
    bool io_thread_runs;

    uint32_t references; /* atomic */
    bool interrupted;    /* atomic */

    pthread_mutex_t io_lock;
    struct trajd_link link;
    struct trajd_client_cancel cancel;
    struct trajd_client_notice notice;
    struct trajd_client_session session;
    struct trajd_client_open open;
    struct trajd_client_feed feed;
    struct trajd_client_rings rings;
    struct trajd_client_query query;

    pthread_mutex_t state_lock;
    struct trajd_client_queue queue;
    struct trajd_client_held held;
    struct trajd_client_carried carried;
    struct trajd_client_deferred deferred;
    struct trajd_client_ack ack;
    uint64_t incarnation; /* counts sessions, from 1 */
    bool epoch_ended;     /* EPOCH_END came */
    bool is_over;         /* next() would return an error: poll_fd is readable */
    bool poll_fd_used, poll_fd_readable;
    bool next_sleeps;     /* next() waits on wake_fd */
    bool flush_scheduled; /* the I/O thread will send the pending ACK within a millisecond */
    bool stop;            /* the I/O thread is to end */
    bool closing;  /* closed while batches are held: the I/O thread finishes after the last one */
    bool finished; /* `deferred` is not collected any more: release waits for the streams itself */
};

/* True in a child made by fork, which has no part in the session. */
bool trajd_client_is_forked(const struct trajd_client *client);
/* TRAJD_ERR_ARGUMENT in a child made by fork. */
enum trajd_status trajd_client_check_process(const struct trajd_client *client,
                                             struct trajd_error *error);
/* Checks that a message can carry the text: UTF-8 of at most limit_bytes bytes. NULL is fine.
 * `what` begins the message of a TRAJD_ERR_ARGUMENT. */
enum trajd_status trajd_client_check_text(const char *what, const char *text, size_t limit_bytes,
                                          struct trajd_error *error);
/* Makes the eventfd readable. Async-signal-safe. */
void trajd_client_signal(int event_fd);
/* Makes poll_fd readable exactly while next(client, 0) would not time out. The caller holds
 * state_lock. */
void trajd_client_update_poll_fd(struct trajd_client *client);
/* Has the pending ACK sent: wakes next() if it sleeps, else the I/O thread, which waits a
 * millisecond for more. The caller holds state_lock. */
void trajd_client_wake_sender(struct trajd_client *client);
/* Releases one reference. The last one frees the client. Any thread; the caller holds no lock. */
void trajd_client_drop(struct trajd_client *client);

/* Appends the lease. A full list drops it; session_batches.c accepts no batch for which that could
 * happen. */
void trajd_leases_append(struct trajd_wire_leases *leases, const struct trajd_wire_lease *lease);
/* Frees the failure text, gives the payload back, and drops the references. */
void trajd_delivery_drop(struct trajd_client *client, struct trajd_delivery *delivery);
/* Frees the copies and sets the terms to zero. */
void trajd_open_terms_free(struct trajd_open_terms *terms);

/* io_thread.c */
/* Waits for deferred batches, sends BYE, closes the link and drops the user's reference. The caller
 * holds no lock, and no other thread uses the client. */
void trajd_client_finish(struct trajd_client *client);
enum trajd_status trajd_io_thread_start(struct trajd_client *client, struct trajd_error *error);
/* Ends the thread and waits for it. Does nothing if it does not run. */
void trajd_io_thread_stop(struct trajd_client *client);

/* client_state.c. The caller holds state_lock for both. */
/* Returns how many deferred batches of this session count against the credit. */
uint32_t trajd_deferred_count(const struct trajd_client *client);
/* Returns the time until pending releases are to be sent. 0: now. */
uint64_t trajd_release_burst_ns(const struct trajd_client *client);

#endif
