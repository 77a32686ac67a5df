/* Delivers batches to workers: sessions, leases and rings behind one thread with ZeroMQ ROUTER
 * sockets. The server knows slots and bytes, and nothing of episodes.
 *
 * A producer (daemon/producer, or a fake one in tests) adds its feed. A producer takes free slots,
 * fills them and publishes them. The server's thread does the rest: it handles the workers'
 * messages and keeps account of leases. A publish sends the resulting messages itself.
 *
 * Every function here is thread-safe. These block: add_feed (allocates every page of the ring), the
 * two take functions, drain, remove_feed and destroy. Functions that return a status fill *error,
 * which may be NULL, unless they return TRAJD_OK. */
#ifndef TRAJD_SERVER_SERVER_H
#define TRAJD_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/json.h"
#include "daemon/feed/core.h"
#include "daemon/server/transport/transport.h"

#define TRAJD_QUERY_MAX_NAME 128
#define TRAJD_QUERY_MAX_ANSWER 61440u

struct trajd_server;
struct trajd_feed;

/* Tensors as OPENED has them. Their texts and bytes are borrowed as long as the feed lives. */
struct trajd_feed_schema {
    uint32_t global_batch; /* G */
    uint32_t tensor_count;
    struct trajd_wire_tensor *tensors;
    uint64_t slot_size_bytes; /* set by trajd_feed_schema_layout */
};

/* Sets the offsets of the tensors behind the slot header, each aligned to TRAJD_TENSOR_ALIGNMENT,
 * and the slot size, rounded up to TRAJD_RING_ALIGNMENT. Images of one role, type and shape lie side
 * by side. TRAJD_ERR_ARGUMENT: a tensor's shape or type is invalid. TRAJD_ERR_MEMORY: a size overflows. */
enum trajd_status trajd_feed_schema_layout(struct trajd_feed_schema *schema,
                                           struct trajd_error *error);

/* A ring in a GPU's memory. The producer owns the memory, and frees it after the feed was removed.
 */
struct trajd_feed_memory {
    const char *gpu; /* the GPU's UUID, as in OPEN */
    void *memory;    /* on that GPU: TRAJD_RING_ALIGNMENT bytes, then slots of the schema's size */
    const void *handle; /* the CUDA IPC handle for workers */
    uint32_t handle_size_bytes;
    /* Copies the ring's header to the first bytes of the memory. Returns when the copy is done. */
    enum trajd_status (*write_header)(void *context, const void *header, size_t size_bytes,
                                      struct trajd_error *error);
    void *context;
};

/* The place of a feed's production in host memory whose workers finish the images. */
#define TRAJD_FEED_UNFINISHED "u8"

/* A feed that an OPEN wants, and that control has to make. */
struct trajd_server_wanted {
    uint64_t request; /* for trajd_server_answer */
    const char *name; /* of the feed; NULL: a job sent `spec` */
    const char *spec; /* a text; NULL: none */
    /* the UUID of the GPU whose memory gets the batches, or TRAJD_FEED_UNFINISHED; the feed's name is
     * then that of trajd_feed_place_name. NULL: host memory */
    const char *place;
    /* another instance of the feed `name` (instance_of of its options), because jobs at other
     * positions read its instances, or other users have mapped their rings. The answer may also be a
     * new feed in the place of one with trajd_feed_has_user and no sessions. */
    bool is_instance;
    /* the worker had this feed, in this place, before the daemon's death, and takes no other form */
    bool is_repeated;
};

struct trajd_server_options {
    /* for feed.sock, fd.sock and lock; must exist, with mode 0700 or access for its group only */
    const char *runtime_directory;
    uint32_t max_sessions;
    uint64_t instance_id; /* a random number */
    const char *version;
    /* Requests a feed that the server does not have, for the OPEN of a session. The answer is a call
     * of trajd_server_answer, now or later. Called on the server's thread; must not block. NULL: such
     * an OPEN is refused. */
    void (*open_feed)(void *context, const struct trajd_server_wanted *wanted);
    /* open_feed makes feeds in other places; otherwise an OPEN with a GPU is refused with
     * TRAJD_ERR_UNSUPPORTED, and images are finished by the daemon */
    bool has_places;
    /* open_feed makes instances; otherwise such an OPEN is refused with TRAJD_ERR_BUSY */
    bool has_instances;
    /* Reports that no session has been on the feed for feed_idle_ms, so that control may close the
     * feed. Called on the server's thread, once for each idle time. May be NULL. */
    void (*feed_idle)(void *context, struct trajd_feed *feed);
    /* Adds the members of control (datasets, producers, GPUs, reload) to the JSON object of the
     * status document, which is still open. Writes at most `room` bytes. Called on the server's
     * thread. May be NULL. */
    void (*describe)(void *context, struct trajd_json *json, size_t room);
    void *context;
    uint32_t feed_idle_ms;
    bool answers_queries;          /* a thread calls trajd_server_take_query */
    const char *const *feed_names; /* for WELCOME; ends with NULL; borrowed by the server */
    struct trajd_transport_remote remote;
    /* true: sockets have mode 0770, and users in the directory's group may connect; false: only the
     * daemon's own user and root may */
    bool group_access;
};

/* Takes the directory's lock, binds the sockets and starts the thread. TRAJD_ERR_BUSY: another
 * daemon has the lock; the message has its pid. */
enum trajd_status trajd_server_create(const struct trajd_server_options *options,
                                      struct trajd_server **server, struct trajd_error *error);
/* Returns "tcp://ADDRESS:PORT", where remote workers connect, or NULL if there is no such listener.
 * Borrowed from the server. */
const char *trajd_server_remote_endpoint(const struct trajd_server *server);
/* Sends GOAWAY to every session, then waits until all leases are released or timeout_ms is over. */
void trajd_server_drain(struct trajd_server *server, uint32_t timeout_ms);
/* Writes the name of a feed's production in another place, "NAME@PLACE". It cannot be the name of a
 * feed in the configuration, which never has an '@'. */
void trajd_feed_place_name(const char *name, const char *place, char *text, size_t size);
/* Joins the thread, wakes every taker with TRAJD_ERR_CLOSED, frees all feeds, and clears the
 * pointer. */
void trajd_server_destroy(struct trajd_server **server);

/* Adds a feed with its ring: a memfd whose pages are all allocated now, or memory on a GPU. With more
 * than one job, workers can only read a ring in host memory. Of the options, the server sets those of
 * ring and tensors, `writable`, `is_for_one_user` and `user` itself. `device` NULL: host memory. The
 * server owns *feed. */
enum trajd_status trajd_server_add_feed(struct trajd_server *server,
                                        const struct trajd_core_feed_options *options,
                                        const struct trajd_feed_schema *schema,
                                        const struct trajd_feed_memory *device,
                                        struct trajd_feed **feed, struct trajd_error *error);
/* Makes trajd_feed_take return TRAJD_ERR_CLOSED, now and from now on. After it the producer's
 * thread can be joined, and the feed removed. */
void trajd_feed_close(struct trajd_feed *feed);
/* Closes the feed and hides it from OPEN, unless a session is on it or about to be (an OPEN was
 * answered with it), or holds a batch of it in host memory. Returns false if so, and changes
 * nothing. */
bool trajd_feed_close_if_idle(struct trajd_feed *feed);
/* Returns true if a user has mapped the ring and may write to it, so that the feed is not for other
 * users. */
bool trajd_feed_has_user(struct trajd_feed *feed);
/* Returns since when (CLOCK_MONOTONIC, ns) the feed has had no session; 0 while it has one, until
 * the first tick of a new feed, and while a batch of it in host memory is held. */
uint64_t trajd_feed_idle_since_ns(struct trajd_feed *feed);
/* Removes a feed and clears the pointer: takers return TRAJD_ERR_CLOSED, and its sessions get
 * ERROR. Workers keep their mappings of the ring; those of a feed that was closed without sessions
 * are emptied, so that they hold no memory. Waits for threads that are in trajd_feed_take; no
 * thread may enter it afterwards. */
void trajd_server_remove_feed(struct trajd_server *server, struct trajd_feed **feed);
/* Feeds that are replaced together: each OPEN sees either all old feeds or all new ones. */
struct trajd_server_change {
    /* [out_count]: feeds to be closed as by trajd_feed_close and hidden; the caller removes them */
    struct trajd_feed *const *out;
    struct trajd_feed *const *in; /* [in_count]: hidden feeds to be shown */
    uint32_t out_count, in_count;
    const char *const *feed_names; /* replaces that of the options */
    uint32_t feed_idle_ms;
};
/* Makes the change. TRAJD_ERR_BUSY: a session is on a feed of `out`, or about to be; *busy is the
 * feed's index, and nothing has changed. */
enum trajd_status trajd_server_change(struct trajd_server *server,
                                      const struct trajd_server_change *change, uint32_t *busy);
/* Returns true if no session is on the feed or about to be. The answer may be outdated at once. */
bool trajd_feed_is_idle(struct trajd_feed *feed);
/* Tells the feed's sessions what its production waits for: trajd_core_tell_waiting. */
bool trajd_feed_tell_waiting(struct trajd_feed *feed, uint64_t waited_ns, const char *text);
/* Sets the error that the feed's sessions get when it is removed, instead of TRAJD_ERR_CLOSED. */
void trajd_feed_fail(struct trajd_feed *feed, const struct trajd_error *why);
/* Answers a request of open_feed: with a feed that was added, which
 * may answer several requests, or with NULL and the error. */
void trajd_server_answer(struct trajd_server *server, uint64_t request, struct trajd_feed *feed,
                         const struct trajd_error *error);

/* Waits until a job wants batches and a slot is FREE, and makes the slot FILLING. Only one thread
 * at a time may take from a feed. It may take several fills before it publishes them, in any order;
 * the slots become READY in the order of takes. TRAJD_ERR_TIMEOUT, TRAJD_ERR_CLOSED. */
enum trajd_status trajd_feed_take(struct trajd_feed *feed, uint32_t timeout_ms,
                                  struct trajd_fill *fill);
/* Publishes a filled slot, which becomes READY. If failure is not NULL the batch could not be made,
 * and the workers that get it receive that error. */
void trajd_feed_publish(struct trajd_feed *feed, const struct trajd_fill *fill,
                        const struct trajd_error *failure);

/* A worker's query about a feed (ASK). The server does not interpret `what` and the members behind
 * it: see PROTOCOL.md, "Questions". */
struct trajd_query {
    uint64_t id; /* for trajd_server_answer_query */
    /* 0: about no feed. The feed may have been removed since; its number is not used again */
    uint32_t feed_id;
    char what[TRAJD_QUERY_MAX_NAME + 1], name[TRAJD_QUERY_MAX_NAME + 1];
    uint64_t window, first;
    uint32_t count;
    uint64_t pass;
};

/* Waits for a query. Each query goes to one taker, in the order of arrival. TRAJD_ERR_TIMEOUT,
 * TRAJD_ERR_CLOSED. */
enum trajd_status trajd_server_take_query(struct trajd_server *server, uint32_t timeout_ms,
                                          struct trajd_query *query);
/* Answers a query that was taken. Must be called once for each: with a JSON document of `length`
 * bytes, at most TRAJD_QUERY_MAX_ANSWER, or with json NULL and the error. Does nothing more if the
 * session has ended meanwhile. */
void trajd_server_answer_query(struct trajd_server *server, uint64_t id, const char *json,
                               size_t length, const struct trajd_error *error);
/* Makes trajd_server_take_query return TRAJD_ERR_CLOSED from now on, and refuses new queries. */
void trajd_server_close_queries(struct trajd_server *server);

/* Returns the feed's number, as in the status document and in ASK. No number is used twice. */
uint32_t trajd_feed_id(const struct trajd_feed *feed);

struct trajd_server_stats {
    uint32_t sessions;
    uint64_t batches_sent, windows_done, late_acks, dropped_messages, dead_sessions;
    uint64_t last_turn_ns; /* CLOCK_MONOTONIC, of the thread's last turn; for the watchdog */
    /* CLOCK_MONOTONIC, of the last session's end or the server's start; 0: there are sessions */
    uint64_t empty_since_ns;
};
void trajd_server_get_stats(const struct trajd_server *server, struct trajd_server_stats *stats);

#endif
