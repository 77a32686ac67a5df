/* libtrajd's inside. client.c connects and closes, session.c speaks the protocol, feed.c opens and
 * hands out, batch.c is what was handed out, client_query.c asks, io_thread.c is the library's own
 * thread, tensors.c and mapping.c check what the daemon says of its memory.
 *
 * Locks: `io_lock` is the baton for link and protocol; whoever holds it moves messages (next(),
 * else the I/O thread). `state` guards what release and done touch from any thread; it is taken
 * inside `io_lock`, for moments. A client lives until it is closed and its last batch is released.
 */
#ifndef TRAJD_C_CLIENT_INTERNAL_H
#define TRAJD_C_CLIENT_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "clients/c/buffers.h"
#include "clients/c/link.h"
#include "clients/c/mapping.h"
#include "clients/c/tensors.h"
#include "clients/c/trajd.h"
#include "proto/ring_layout.h"
#include "proto/wire.h"

#define TRAJD_CLIENT_MAX_RINGS 16u
#define TRAJD_CLIENT_QUEUE TRAJD_WIRE_MAX_LEASES
#define TRAJD_BATCH_MAX_STREAMS 8u

enum trajd_client_phase {
    TRAJD_PHASE_DOWN,     /* HELLO goes out as soon as somebody is connected */
    TRAJD_PHASE_HELLO,    /* WELCOME is awaited */
    TRAJD_PHASE_GREETING, /* the token is shown on fd.sock */
    TRAJD_PHASE_READY,    /* a session without feed */
    TRAJD_PHASE_OPENING,  /* OPENED is awaited */
    TRAJD_PHASE_MAPPING,  /* OPENED came, its ring's descriptor is awaited */
    TRAJD_PHASE_OPEN,
    TRAJD_PHASE_FAILED, /* `failure` says why */
};

/* A BATCH that came and was not asked for yet. */
struct trajd_delivery {
    struct trajd_wire_lease lease;
    uint64_t epoch, position, ready_ns, sequence;
    uint32_t row_begin, row_count;
    char *failure;          /* NULL: the batch is good */
    unsigned char *payload; /* of the client's buffers: its bytes, if they travelled; else NULL */
};

struct trajd_batch {
    struct trajd_client *client;
    struct trajd_mapping *mapping; /* NULL: `payload` holds the tensors */
    struct trajd_buffers *buffers; /* where that goes back to */
    unsigned char *payload;
    struct trajd_schema *schema;
    struct trajd_wire_lease lease;
    uint64_t incarnation; /* the session that leased it: no word goes to another */
    bool done;
    bool left;      /* its epoch was left by an OPEN since: DONE can no longer be said */
    bool abandoned; /* on a GPU: nothing is said of it when its streams have passed */
    uint32_t held_index;
    /* on a GPU: streams that read it, once it is released those that are not known to have passed
     */
    uint32_t stream_count;
    uintptr_t streams[TRAJD_BATCH_MAX_STREAMS];
    /* behind their work, once it is released; NULL: not to be had yet */
    void *events[TRAJD_BATCH_MAX_STREAMS];
    uint64_t named_by; /* the default stream of a thread: whose */
    bool is_untracked; /* one of them takes no event: only the whole context tells */
    bool is_settled;   /* the context is asked right now */
    struct trajd_batch *next_deferred;
    struct trajd_batch_info info;
    struct trajd_tensor tensors[]; /* as the schema, for the rows of this batch */
};

/* Owned copies of what open() was given. */
struct trajd_open_terms {
    char *feed, *spec, *job, *gpu;
    enum trajd_mode mode;
    uint32_t rank, world, credit;
    uint64_t epoch, next, fingerprint;
    struct trajd_wire_ranks local, on_gpu;
    void *resume;
    uint32_t resume_size;
};

/* A CHECKPOINT under way. */
struct trajd_checkpoint {
    uint64_t request; /* 0: none */
    bool over;
    void *token;
    size_t size_bytes;
    struct trajd_error error;
};

struct trajd_client {
    pid_t pid;
    uint32_t references; /* atomic: the user's, and one a batch */
    char *directory, *name;
    uint32_t timeout_ms;
    bool reconnect, explicit_done;
    bool (*ask_user)(void *context); /* true: the wait ends; NULL: nobody asks */
    void *context;
    bool cancelled;    /* it said so in this call */
    uint64_t asked_ns; /* when it was asked last */
    int wake_fd;       /* wakes next() */
    int io_thread_fd;  /* wakes the I/O thread */
    int notify_fd;     /* what the user polls */
    pthread_t io_thread;
    bool io_thread_runs;

    pthread_mutex_t io_lock;
    struct trajd_link link;
    enum trajd_client_phase phase;
    bool was_up;   /* there has been a session: another daemon's life needs `reconnect` */
    bool resuming; /* HELLO with our token is under way */
    bool goaway;
    bool open_fresh;
    bool spoke; /* since messages were looked for: sending may swallow the sign that one came */
    uint64_t retry_at_ns, hello_sent_ns, last_sent_ns, last_heard_ns;
    uint64_t instance, session, received;
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    uint64_t last_request, open_request;
    uint64_t question_request; /* of the STATUS or ASK that waits; 0: none does */
    bool answered;
    char *answer_json; /* or */
    struct trajd_error answer_error;
    struct trajd_checkpoint checkpoint;
    struct trajd_error failure;
    bool refused; /* ERROR to our OPEN; `failure` says why */
    struct trajd_open_terms wanted;
    bool has_feed;          /* `wanted` was granted once: it is opened again after a reconnect */
    uint64_t next_position; /* behind the last batch that was returned */
    struct trajd_feed_info info;
    uint32_t feed_id;
    struct trajd_ring_terms ring_terms;
    char gpu[TRAJD_WIRE_MAX_GPU + 1]; /* where the open feed's batches lie */
    bool gpu_refused; /* the feed is opened in host memory, though a GPU was asked for */
    char gpu_refusal[TRAJD_ERROR_MESSAGE_SIZE];
    struct trajd_schema *schema;
    struct trajd_mapping *mapping; /* of the open feed; remote: NULL */
    struct trajd_buffers *buffers; /* remote: for parts of the open feed */
    uint32_t row_limit;            /* remote: of a part */
    uint64_t ping_ns;              /* between two signs of life */
    struct trajd_mapping *rings[TRAJD_CLIENT_MAX_RINGS];
    struct trajd_link_ring
        arrived[TRAJD_CLIENT_MAX_RINGS]; /* descriptors whose OPENED is awaited; fd 0: none */
    uint32_t ring_count, arrived_count;
    unsigned char *frame;              /* TRAJD_WIRE_MAX_FRAME */
    struct trajd_wire_tensor *tensors; /* TRAJD_WIRE_MAX_TENSORS */

    pthread_mutex_t state;
    struct trajd_delivery queue[TRAJD_CLIENT_QUEUE];
    uint32_t queue_first, queue_count;
    struct trajd_batch *held[TRAJD_CLIENT_QUEUE]; /* with the caller, of this life */
    uint32_t held_count;
    struct trajd_batch *previous; /* returned last, its DONE unsaid */
    /* released, their streams not known to have passed */
    struct trajd_batch *deferred, **deferred_end;
    uint64_t deferred_since_ns; /* when the last of them came or went */
    struct trajd_wire_ack pending;
    /* when the first of the releases that are pending came, on a GPU; 0: they do not wait for
     * others */
    uint64_t burst_since_ns;
    uint64_t burst_sequence; /* of that batch, as its session counts them */
    uint64_t incarnation;    /* counts sessions */
    bool ended;              /* the epoch */
    bool over;               /* next() would fail: for the poll descriptor */
    bool notify_wanted, notified;
    bool waiting; /* next() sleeps on wake_fd */
    bool napping; /* the I/O thread is about to flush */
    bool stop;
    /* the user has closed, and still holds batches: the I/O thread ends it all after the last */
    bool closing;
    bool finished;    /* nobody looks after `deferred` any more: whoever releases waits */
    bool interrupted; /* atomic */
};

/* session.c; `io_lock` is held */
/* moves what can be moved without waiting */
void trajd_session_turn(struct trajd_client *client);
void trajd_session_exchange(struct trajd_client *client); /* the same, but for fd.sock */
int trajd_session_timeout_ms(struct trajd_client *client, uint64_t now_ns);
void trajd_session_flush(struct trajd_client *client);
/* flush would say something; `state` is held */
bool trajd_session_has_to_say(const struct trajd_client *client);
void trajd_session_open(struct trajd_client *client); /* says OPEN with what is wanted */
/* before that: what is DONE is said now or never */
void trajd_session_leave(struct trajd_client *client);
void trajd_session_repeat_open(struct trajd_client *client); /* it may have been lost */
void trajd_session_say(struct trajd_client *client, const struct trajd_wire_message *message);
/* One wait for anything, at most until the deadline; then a turn. */
void trajd_session_wait(struct trajd_client *client, uint64_t deadline_ns);
/* Each call that waits begins with the first; the second is true once the user wants it to end. */
void trajd_session_begin(struct trajd_client *client);
bool trajd_session_is_cancelled(const struct trajd_client *client);

/* remote_payload.c: remote; `io_lock` is held */
uint64_t trajd_payload_size(const struct trajd_schema *schema, uint32_t row_count);
enum trajd_status trajd_client_make_buffers(struct trajd_client *client, struct trajd_error *error);
/* The bytes behind a BATCH that was just received. TRAJD_ERR_PROTOCOL: they are not those of such a
 * part. */
enum trajd_status trajd_client_receive_payload(struct trajd_client *client, uint32_t row_count,
                                               unsigned char **payload, struct trajd_error *error);
/* failure and part */
void trajd_delivery_drop(struct trajd_client *client, struct trajd_delivery *delivery);

/* session_messages.c: what the daemon says; `io_lock` is held */
void trajd_session_handle(struct trajd_client *client, const void *frame, size_t size);
void trajd_session_fail(struct trajd_client *client, const struct trajd_error *error);
void trajd_session_map(struct trajd_client *client); /* OPENED and descriptor are here */
void trajd_session_forget(
    struct trajd_client
        *client); /* batches and rings of the session; what the caller holds stays */
/* the session is gone, and all that it had under way */
void trajd_session_lose(struct trajd_client *client);
void trajd_session_note_ring(struct trajd_client *client, const struct trajd_link_ring *ring);

/* feed.c */
void trajd_client_forget_terms(struct trajd_client *client);

/* checkpoint.c; `io_lock` is held */
void trajd_checkpoint_note(struct trajd_client *client,
                           const struct trajd_wire_checkpointed *checkpointed);
void trajd_checkpoint_fail(struct trajd_client *client, const struct trajd_error *error);

/* client.c */
/* BYE, and the end; `io_lock` is free, the I/O thread gone */
void trajd_client_finish(struct trajd_client *client);
uint64_t trajd_client_now_ns(void);
bool trajd_client_is_foreign(const struct trajd_client *client); /* in a child made by fork */
/* A text that can be said in a message: no longer than `limit` bytes, UTF-8 without NUL. NULL is
 * fine. `what` names it. */
enum trajd_status trajd_client_check_text(const char *what, const char *text, size_t limit,
                                          struct trajd_error *error);
void trajd_client_drop(struct trajd_client *client);
void trajd_client_kick(int event_fd);
void trajd_client_notify(
    struct trajd_client *client); /* sets the poll descriptor by the state; `state` is held */

/* batch.c */
void trajd_leases_append(struct trajd_wire_leases *leases, const struct trajd_wire_lease *lease);
struct trajd_batch *trajd_batch_create(struct trajd_client *client,
                                       const struct trajd_delivery *delivery);
void trajd_batch_say_done(struct trajd_batch *batch);  /* `state` is held */
void trajd_batch_give_back(struct trajd_batch *batch); /* `state` is held */
void trajd_batch_free(struct trajd_batch *batch);
/* Somebody sends what is pending: next() at once, the I/O thread after a moment in which more may
 * come. `state` is held. */
void trajd_client_wake_sender(struct trajd_client *client);

/* deferred_release.c */
/* events behind its streams' work; false: nothing is to be waited for */
bool trajd_batch_mark(struct trajd_batch *batch);
/* `state` is held */
void trajd_deferred_add(struct trajd_client *client, struct trajd_batch *batch);
/* until they are worth a question again; `state` is held */
uint64_t trajd_deferred_pause_ns(const struct trajd_client *client);
/* gives back what its streams have passed; true if some is left */
bool trajd_deferred_collect(struct trajd_client *client);
/* waits for the context of one that is untracked */
void trajd_deferred_settle(struct trajd_client *client);
/* of those that credit counts; `state` is held */
uint32_t trajd_deferred_count(const struct trajd_client *client);
/* until what is released is to be said; 0: now. `state` is held */
uint64_t trajd_deferred_burst_ns(const struct trajd_client *client);

/* Marked, of a client that is finished: until its streams have passed. False: that cannot be known,
 * as a graph is being captured. */
bool trajd_deferred_await(struct trajd_batch *batch);
void trajd_deferred_end(struct trajd_client *client); /* the session's end: waits for what leaves */

/* io_thread.c */
void *trajd_io_thread_run(void *client);

#endif
