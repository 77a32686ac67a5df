/* The hand-over side of the daemon: sessions, leases and rings behind one ROUTER thread. Sees slots
 * and bytes, never episodes.
 *
 * A producer (the control; in tests a fake) adds feeds, takes slots to fill, publishes them.
 * Everything else, who has what and what is done, happens on the server's thread; a publish sends
 * what it leads to itself. Functions here are thread-safe unless said; none blocks except take,
 * drain and destroy. */
#ifndef TRAJD_SERVER_SERVER_H
#define TRAJD_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/feed/rows.h"
#include "proto/dtype.h"
#include "proto/error.h"

#define TRAJD_TENSOR_MAX_RANK 8
#define TRAJD_QUERY_MAX_NAME 128
#define TRAJD_QUERY_MAX_ANSWER 61440u

struct trajd_server;
struct trajd_feed;

struct trajd_feed_tensor {
    const char *name;
    const char *role; /* "obs", "action", "ids", "mask" */
    const char *of;   /* of a mask: its output; else NULL */
    enum trajd_dtype dtype;
    uint32_t rank;
    uint64_t shape[TRAJD_TENSOR_MAX_RANK]; /* shape[0] = G */
    uint64_t offset_bytes;                 /* filled by trajd_feed_schema_layout */
};

struct trajd_feed_schema {
    uint32_t global_batch; /* G */
    uint32_t tensor_count;
    struct trajd_feed_tensor *tensors;
    uint64_t slot_size_bytes; /* filled by trajd_feed_schema_layout */
};

/* Places the tensors behind the slot header, each aligned to TRAJD_TENSOR_ALIGNMENT; slot size
 * rounded up to TRAJD_RING_ALIGNMENT. TRAJD_ERR_MEMORY on overflow. */
enum trajd_status trajd_feed_schema_layout(struct trajd_feed_schema *schema,
                                           struct trajd_error *error);

/* A ring in a GPU's memory: the producer's own, until after the feed was removed. */
struct trajd_feed_memory {
    const char *gpu; /* its UUID, as OPEN names it */
    void *memory;    /* slots of the schema's size behind TRAJD_RING_ALIGNMENT bytes, on that GPU */
    const void *handle; /* what a worker opens it by */
    uint32_t handle_size_bytes;
    /* Writes the ring's header to its first bytes, and returns when it is there. */
    enum trajd_status (*write_header)(void *context, const void *header, size_t size_bytes,
                                      struct trajd_error *error);
    void *context;
};

struct trajd_feed_options {
    const char *name; /* as OPEN names it; for a spec that a job sent: "spec:" and its hash */
    /* the feed that this one is another production of, with a ring of its own; or NULL */
    const char *instance_of;
    bool is_hidden; /* no OPEN finds it until trajd_server_change shows it */
    const struct trajd_feed_schema *schema; /* copied */
    uint32_t slot_count;                    /* >= 3 */
    uint32_t max_credit;                    /* a session's, >= 2 */
    uint64_t fingerprint, seed;
    uint64_t window_count, epoch_length, dropped_count; /* of the sampler */
    bool tail_short;                                    /* the last batch may have fewer rows */
    /* NULL: DONE does not survive the daemon (share) */
    const char *journal_directory;
    /* that may read the same slots, 0 is 1; with more the ring is handed over read-only */
    uint32_t job_count;
    /* a job that keeps the others waiting for slow_after_ns leaves the feed; else they wait */
    bool slow_leaves;
    uint64_t slow_after_ns;
    uint64_t rank_timeout_ns; /* shard: how long ranks wait for one that is away; 0: for ever */
    const struct trajd_feed_memory *device; /* NULL: a ring in the host's memory is made */
};

struct trajd_server_options {
    /* holds feed.sock, fd.sock, lock; must exist, 0700 or group-only */
    const char *runtime_directory;
    uint32_t max_sessions;
    uint64_t instance_id; /* random, from the caller */
    const char *version;
    /* A session asked for a feed that the server does not have, by name or by specification
     * (NUL-terminated text of spec_length bytes, else NULL). Called on the server's thread: must
     * not block; answered later with trajd_server_answer. */
    void (*open_feed)(void *context, uint64_t request, const char *name, const char *spec,
                      size_t spec_length);
    /* The same for batches in the memory of the GPU with that UUID: a feed whose name is
     * trajd_feed_gpu_name's. NULL: none is served, and the session hears so. */
    void (*open_on_gpu)(void *context, uint64_t request, const char *name, const char *spec,
                        const char *gpu);
    /* A job wants the feed of that name, and jobs that are elsewhere read it and all its instances:
     * add another one (trajd_feed_options.instance_of) and answer with it, or with why not. As
     * open_feed. NULL: the job is told that the feed is busy. */
    void (*open_instance)(void *context, uint64_t request, const char *name);
    /* No session has been on the feed for a while (feed_idle_ms): the producer may close it. Called
     * on the server's thread. */
    void (*feed_idle)(void *context, struct trajd_feed *feed);
    /* Adds the producer's part to the status document: writes at most `size` bytes of JSON members
     * (`"store":{...},...`), returns the length. */
    size_t (*describe)(void *context, char *json, size_t size);
    void *context;
    uint32_t feed_idle_ms;
    bool answers_queries;          /* somebody takes questions with trajd_server_take_query */
    const char *const *feed_names; /* told in WELCOME and in "no such feed"; NULL-ended */
    struct trajd_server_remote {
        /* "ADDRESS:PORT" to listen on for remote workers; NULL: local ones alone */
        const char *address;
        const char *keys;       /* directory of CURVE keys (keyring.h) */
        bool insecure_loopback; /* no CURVE; refused unless the address is 127.0.0.1 or ::1 */
        uint32_t silence_ms;    /* a remote worker that says nothing for so long is dead */
        /* A line for the log: who was refused, and why. On the server's thread. May be NULL. */
        void (*log_line)(void *context, const char *line);
    } remote;
    /* sockets are 0770: whoever is in the directory's group may connect; else our uid and root */
    bool group_access;
};

/* Takes the directory's lock (TRAJD_ERR_BUSY: another daemon has it, its pid in the message), binds
 * both sockets, starts the thread. */
enum trajd_status trajd_server_create(const struct trajd_server_options *options,
                                      struct trajd_server **server, struct trajd_error *error);
/* "tcp://ADDRESS:PORT" that remote workers are served at; NULL: none is. */
const char *trajd_server_remote_endpoint(const struct trajd_server *server);
/* Tells every session GOAWAY, then waits until all leases are back or timeout_ms is over. */
void trajd_server_drain(struct trajd_server *server, uint32_t timeout_ms);
/* The name under which a feed's production for a GPU is added: no name of a configuration has an
 * '@'. */
void trajd_feed_gpu_name(const char *name, const char *gpu, char *text, size_t size);
/* Wakes every taker with TRAJD_ERR_CLOSED, joins the thread, frees all feeds, clears the pointer.
 */
void trajd_server_destroy(struct trajd_server **server);

/* Adds a feed and its ring (memfd, allocated and touched now). */
enum trajd_status trajd_server_add_feed(struct trajd_server *server,
                                        const struct trajd_feed_options *options,
                                        struct trajd_feed **feed, struct trajd_error *error);
/* Takers return TRAJD_ERR_CLOSED, now and from now on: then the producer's thread can be joined,
 * and the feed removed. */
void trajd_feed_close(struct trajd_feed *feed);
/* The same, unless a session is on the feed or about to be (an OPEN was answered with it): then
 * false, and nothing has changed. Nobody finds it any more. */
bool trajd_feed_close_if_idle(struct trajd_feed *feed);
/* Since when (CLOCK_MONOTONIC) nobody is on the feed; 0: somebody is, or nobody ever was. */
uint64_t trajd_feed_idle_since_ns(struct trajd_feed *feed);
/* Ends a feed: takers return TRAJD_ERR_CLOSED, its sessions get ERROR; the ring lives while workers
 * map it. Waits for threads that are in take; none may begin one after. */
void trajd_server_remove_feed(struct trajd_server *server, struct trajd_feed **feed);
/* Feeds that come and go together, in one moment for whoever opens one. */
struct trajd_server_change {
    /* [out_count]: closed as by trajd_feed_close, found by no OPEN any more; to be removed */
    struct trajd_feed *const *out;
    struct trajd_feed *const *in; /* [in_count]: hidden ones, to be shown */
    uint32_t out_count, in_count;
    const char *const *feed_names; /* as in the options, from now on */
    uint32_t feed_idle_ms;
};
/* Makes it, unless a session is on one of those that go, or about to be: then TRAJD_ERR_BUSY, *busy
 * is its index in `out`, and nothing has changed. */
enum trajd_status trajd_server_change(struct trajd_server *server,
                                      const struct trajd_server_change *change, uint32_t *busy);
/* False: a session is on the feed, or about to be. It may be otherwise in the next moment. */
bool trajd_feed_is_idle(struct trajd_feed *feed);
/* What its sessions hear when the feed is removed, in place of `closed`. */
void trajd_feed_fail(struct trajd_feed *feed, const struct trajd_error *why);
/* The answer to open_feed: a feed that was added (again fine), or NULL and why not. */
void trajd_server_answer(struct trajd_server *server, uint64_t request, struct trajd_feed *feed,
                         const struct trajd_error *error);

/* What the producer is to write of the global batch at `position` of `epoch`, which has row_count
 * rows: those that somebody on this node reads. */
struct trajd_fill {
    uint32_t slot;
    uint64_t run_id; /* of the cursor: a publish after the job began elsewhere is discarded by it */
    uint64_t epoch;
    uint64_t position;
    uint32_t row_count;
    /* the slot's first byte (slot header, written by publish); tensors at the schema's offsets */
    void *memory;
    uint64_t generation; /* of the slot; the server's own */
    uint32_t range_count;
    const struct trajd_rows *ranges; /* ascending; the server's, until the publish */
};

/* Waits until a job wants production and a slot is FREE; the slot is FILLING when this returns. One
 * taker per feed at a time may have several fills out; they are published in any order and become
 * READY in the order of positions. TRAJD_ERR_TIMEOUT, TRAJD_ERR_CLOSED. */
enum trajd_status trajd_feed_take(struct trajd_feed *feed, uint32_t timeout_ms,
                                  struct trajd_fill *fill);
/* The slot is READY (or, with failure not NULL, carries that error to whoever takes it). */
void trajd_feed_publish(struct trajd_feed *feed, const struct trajd_fill *fill,
                        const struct trajd_error *failure);

/* A question of a worker about a feed (ASK): what it means is up to who answers. */
struct trajd_query {
    uint64_t id; /* for the answer */
    /* 0: of no feed. It may have been removed meanwhile, and is never another feed's */
    uint32_t feed_id;
    char what[TRAJD_QUERY_MAX_NAME + 1], name[TRAJD_QUERY_MAX_NAME + 1];
    uint64_t window, first;
    uint32_t count;
};

/* Waits for a question; each is given to one taker, in the order in which they came.
 * TRAJD_ERR_TIMEOUT, TRAJD_ERR_CLOSED. */
enum trajd_status trajd_server_take_query(struct trajd_server *server, uint32_t timeout_ms,
                                          struct trajd_query *query);
/* Answers one that was taken, once: with a JSON document of `length` bytes, at most
 * TRAJD_QUERY_MAX_ANSWER, or (json NULL) with the error. Nobody may be there to hear it any more.
 */
void trajd_server_answer_query(struct trajd_server *server, uint64_t id, const char *json,
                               size_t length, const struct trajd_error *error);
/* Takers return TRAJD_ERR_CLOSED, now and from now on, and new questions are refused. */
void trajd_server_close_queries(struct trajd_server *server);

/* As feeds are numbered in status and ASK; never used twice. */
uint32_t trajd_feed_id(const struct trajd_feed *feed);

struct trajd_server_stats {
    uint32_t sessions;
    uint64_t batches_sent, windows_done, late_acks, dropped_messages, dead_sessions;
    uint64_t last_turn_ns; /* CLOCK_MONOTONIC of the thread's last turn, for the watchdog */
    /* of the last session's end, or of the server's beginning; 0: there are sessions */
    uint64_t empty_since_ns;
};
void trajd_server_get_stats(const struct trajd_server *server, struct trajd_server_stats *stats);

#endif
