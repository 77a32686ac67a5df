/* The state machine of the hand-over: feeds, slots, parts, leases, sessions, jobs, epochs. No
 * threads, no sockets, no clock: time comes in as now_ns (CLOCK_MONOTONIC), messages go out through
 * one callback. The same source files run under the server, and under a model test's schedules.
 *
 * Threads: none of its own. The caller holds one mutex around every call; callbacks run inside the
 * call, on its thread, and must not call the core. Memory: sized by the options, at create and
 * add_feed; at OPEN parts may be sized for another world, and a journal mapped (a few milliseconds
 * of file work). Nothing else allocates, and nothing blocks.
 *
 * Who owns what: a FREE slot is the core's; from take to publish the producer's (FILLING); READY
 * until every part is RELEASED or VOID, its memory belongs to the sessions that hold leases.
 * Sessions and feeds are the core's; ids are never used twice. */
#ifndef TRAJD_FEED_CORE_H
#define TRAJD_FEED_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/feed/rows.h"
#include "proto/error.h"
#include "proto/wire.h"

#define TRAJD_CORE_MAX_SLOTS 480u /* so that a journal's record fits one page */
/* ranks of a shard job; the j-th job's parts are numbered from j times that */
#define TRAJD_CORE_MAX_WORLD 4096u
#define TRAJD_CORE_MAX_JOBS 16u /* that read the same slots */

struct trajd_core;
struct trajd_core_feed;

struct trajd_core_options {
    uint64_t instance_id;
    uint32_t max_sessions;
    const char *version;           /* told in WELCOME; lives as long as the core */
    const char *const *feed_names; /* the same; NULL-ended, at most TRAJD_WIRE_MAX_FEEDS are told */
    /* Sends a message to a session's peer (`user` is what HELLO bound). Never fails as far as the
     * core is concerned: a peer that cannot be reached is either back with its token (what it
     * missed is sent again) or dies. The message is valid during the call only. */
    void (*send)(void *context, uint64_t session, void *user,
                 const struct trajd_wire_message *message);
    /* trajd_core_take may succeed now where it did not before: a slot became FREE, or a job wants
     * production. */
    void (*wake)(void *context, struct trajd_core_feed *feed);
    /* A FREE slot that must not be taken yet: its bytes are still being sent. Asked by
     * trajd_core_take alone; who says so calls for another take when it is over. NULL: never. */
    bool (*is_in_flight)(void *context, struct trajd_core_feed *feed, uint32_t slot);
    void *context;
};

enum trajd_status trajd_core_create(const struct trajd_core_options *options,
                                    struct trajd_core **core, struct trajd_error *error);
/* Frees all feeds and sessions without a word to anybody; journals stay. */
void trajd_core_destroy(struct trajd_core **core);

/* ---- feeds ---- */

struct trajd_core_feed_options {
    const char *name; /* copied; <= TRAJD_WIRE_MAX_NAME */
    /* copied; the feed that this one is another production of, with a ring of its own; or NULL */
    const char *instance_of;
    /* nobody finds it by its name, which another may have, until trajd_core_show_feed */
    bool is_hidden;
    uint32_t slot_count;   /* 3 to TRAJD_CORE_MAX_SLOTS */
    uint32_t max_credit;   /* >= 2; above TRAJD_WIRE_MAX_LEASES it is that */
    uint32_t global_batch; /* G >= 1 */
    uint64_t fingerprint, seed;
    uint64_t window_count, epoch_length, dropped_count;
    /* what is left behind the last whole batch is a short one, else it is dropped */
    bool tail_short;
    uint32_t job_count; /* that may read the same slots; 0 is 1 */
    /* a job that keeps others waiting for slow_after_ns leaves the feed; else they wait for it */
    bool slow_leaves;
    uint64_t slow_after_ns;
    const char *journal_directory; /* copied; NULL: DONE does not survive the daemon */
    uint64_t rank_timeout_ns; /* shard: how long ranks wait for one that is away; 0: for ever */
    /* Only told in OPENED: */
    uint64_t ring_size_bytes, slot_size_bytes;
    bool writable;
    struct trajd_wire_text gpu;     /* where the ring lies; empty: in the host's memory */
    struct trajd_wire_bytes handle; /* live as long as the feed, like the tensors */
    uint32_t tensor_count;
    const struct trajd_wire_tensor *tensors; /* lives as long as the feed */
    void *user;                              /* the server's own, see trajd_core_feed_user */
};

/* The feed gets a number that serves as feed_id and as ring id. */
enum trajd_status trajd_core_add_feed(struct trajd_core *core,
                                      const struct trajd_core_feed_options *options,
                                      struct trajd_core_feed **feed, struct trajd_error *error);
/* Its sessions get ERROR `closed`; their leases are void, late ACKs counted. Publishing into it
 * afterwards is the caller's mistake. */
void trajd_core_remove_feed(struct trajd_core *core, struct trajd_core_feed **feed,
                            uint64_t now_ns);
uint32_t trajd_core_feed_id(const struct trajd_core_feed *feed);
const char *trajd_core_feed_name(const struct trajd_core_feed *feed);
void *trajd_core_feed_user(const struct trajd_core_feed *feed);
/* From now on OPENs find it, or (hidden) find it no more. Of feeds that are shown no two have the
 * same name. */
void trajd_core_show_feed(struct trajd_core_feed *feed, bool shown);
/* What WELCOME tells from now on. */
void trajd_core_set_feed_names(struct trajd_core *core, const char *const *names);
/* The same feed, be it another production of it, or in another place: the host's memory, a GPU's.
 */
bool trajd_core_is_same_feed(const struct trajd_core_feed *a, const struct trajd_core_feed *b);
/* Why it will be removed: what its sessions hear then, in place of `closed`. */
void trajd_core_fail_feed(struct trajd_core_feed *feed, const struct trajd_error *why);
/* By name; NULL if there is none. */
struct trajd_core_feed *trajd_core_find_feed(struct trajd_core *core, struct trajd_wire_text name);

/* ---- production ---- */

struct trajd_core_fill {
    uint32_t slot;
    uint32_t row_count;  /* rows [0, row_count) of the global batch */
    uint64_t generation; /* for the slot header */
    /* of the cursor: a publish after the job began elsewhere only frees the slot */
    uint64_t run_id;
    uint64_t epoch, position;
    /* Of them those that somebody here reads, ascending, apart from each other: all, or those of
     * the ranks on this node. The core's, until the fill is published. */
    uint32_t range_count;
    const struct trajd_rows *ranges;
};

/* The next slot to fill, now FILLING. TRAJD_ERR_TIMEOUT: nothing is wanted, or no slot is FREE
 * (wake tells when to ask again); TRAJD_ERR_MEMORY: no memory for the parts of a larger world; ask
 * again. */
enum trajd_status trajd_core_take(struct trajd_core_feed *feed, uint64_t now_ns,
                                  struct trajd_core_fill *fill);
/* In any order; slots become READY and are sent in the order of takes. `failure` NULL: the batch is
 * good. A fill that is not out (published twice, another generation) is ignored and counted: false.
 */
bool trajd_core_publish(struct trajd_core_feed *feed, const struct trajd_core_fill *fill,
                        const struct trajd_error *failure, uint64_t now_ns);

/* ---- sessions ---- */

/* HELLO, first half: finds the session of a known token (resumed) or makes one with `fresh_token`,
 * 16 random bytes. Nothing is sent yet: the caller binds peer and session first, then calls
 * trajd_core_welcome. `user` is the peer from now on; *replaced is the one that the session had
 * before (NULL for a new session). TRAJD_ERR_BUSY: max_sessions. */
enum trajd_status trajd_core_hello(struct trajd_core *core, const struct trajd_wire_hello *hello,
                                   const uint8_t fresh_token[TRAJD_WIRE_TOKEN_SIZE], void *user,
                                   uint64_t now_ns, uint64_t *session, bool *resumed,
                                   void **replaced, struct trajd_error *error);
/* HELLO, second half: sends WELCOME; to a resumed session then all that it has not received
 * (BATCHes with their old seq, the end of its epoch), and settles its leases by the lists of
 * `hello`, which is the one given to trajd_core_hello. */
void trajd_core_welcome(struct trajd_core *core, uint64_t session,
                        const struct trajd_wire_hello *hello, uint64_t now_ns);
/* 0: no session has that token. For fd.sock. */
uint64_t trajd_core_find_token(const struct trajd_core *core,
                               const uint8_t token[TRAJD_WIRE_TOKEN_SIZE]);
/* BYE: the same as below, and nobody waits for its return. */
void trajd_core_bye(struct trajd_core *core, uint64_t session, uint64_t now_ns);
/* The end of file of fd.sock, or a HELLO that was not followed by a connection: the session and its
 * leases are gone, its memory can be written again. An unknown id is fine. */
void trajd_core_end_session(struct trajd_core *core, uint64_t session, uint64_t now_ns);

/* Of `feed` and its instances the one for that OPEN: where its job is, else one that no job reads.
 * NULL: jobs that are elsewhere read them all, so it takes another instance. */
struct trajd_core_feed *trajd_core_choose(struct trajd_core *core, uint64_t session,
                                          const struct trajd_wire_open *open,
                                          struct trajd_core_feed *feed);
/* What all instances of a feed are known by. */
const char *trajd_core_family(const struct trajd_core_feed *feed);
/* OPEN of a feed that exists, as an answer to `open` (whose feed or spec the caller has resolved).
 * Sends OPENED (and BATCHes), or ERROR. TRAJD_OK: the session is on the feed: the caller hands over
 * the ring's descriptor if it has not before. */
enum trajd_status trajd_core_open(struct trajd_core *core, uint64_t session,
                                  const struct trajd_wire_open *open, struct trajd_core_feed *feed,
                                  uint64_t now_ns);
/* The same for an OPEN that could not be resolved: the session leaves what it had open, and hears
 * ERROR. An unknown id is fine: the session died meanwhile. */
void trajd_core_refuse_open(struct trajd_core *core, uint64_t session, uint64_t request,
                            const struct trajd_error *error, uint64_t now_ns);
void trajd_core_ack(struct trajd_core *core, uint64_t session, const struct trajd_wire_ack *ack,
                    uint64_t now_ns);
/* CHECKPOINT: answers CHECKPOINTED with a token, or ERROR. */
void trajd_core_checkpoint(struct trajd_core *core, uint64_t session, uint64_t request,
                           uint64_t now_ns);
/* Notes the time of a message that needs no other call (PING, STATUS); the caller answers. */
void trajd_core_touch(struct trajd_core *core, uint64_t session, uint64_t now_ns);

/* ---- the end, and upkeep ---- */

/* GOAWAY to every session; from now on nothing is produced or sent, and OPEN is refused
 * (TRAJD_ERR_CLOSED). */
void trajd_core_goaway(struct trajd_core *core, const char *reason, uint64_t now_ns);
/* Parts that are LEASED or DONE: what a drain waits for. */
uint32_t trajd_core_lease_count(const struct trajd_core *core);
/* About once a second: accounts stalls up to now, ends the wait for ranks that are away too long,
 * and starts the write-back of journals (for the death of the host). */
void trajd_core_tick(struct trajd_core *core, uint64_t now_ns);

/* ---- what status shows ---- */

struct trajd_core_stats {
    uint32_t sessions, feeds;
    uint64_t batches_sent, batches_done, windows_done, batches_failed;
    uint64_t late_acks;      /* leases named in ACK or HELLO that are not the sender's */
    uint64_t late_publishes; /* of an earlier run, or not out */
    uint64_t dead_sessions;  /* that ended holding a LEASED part */
    uint64_t handed_again;   /* parts that went back to PENDING */
    uint64_t resumed_sessions;
    uint64_t damaged_journals; /* ignored: magic, version, size or checksum */
    uint64_t journals_refused; /* could not be made: DONE does not survive (directory, disk) */
    uint64_t rank_timeouts;    /* waits for a rank that were ended */
    uint64_t slow_jobs;        /* dropped because others waited for them */
};
void trajd_core_get_stats(const struct trajd_core *core, struct trajd_core_stats *stats);

struct trajd_core_session_info {
    uint64_t session;
    char client[TRAJD_WIRE_MAX_CLIENT + 1];
    uint64_t pid;
    uint32_t feed_id;            /* 0: none opened */
    uint32_t rank, credit, held; /* held: LEASED or DONE, not RELEASED */
    uint64_t batches_sent, batches_done;
    uint64_t stalled_ns; /* production stood still and this session held it up */
    uint64_t last_message_ns;
};
/* The index-th session of those that live, 0-based; false behind the last. */
bool trajd_core_session_info(const struct trajd_core *core, uint32_t index,
                             struct trajd_core_session_info *info);

struct trajd_core_job_info {
    /* "gathering", "running", "ended"; "none": nobody has opened it yet */
    const char *name, *phase;
    enum trajd_wire_mode mode;
    uint32_t world, members;
    uint64_t epoch;
    /* of the epoch, times the ranks here in shard; left: not DONE */
    uint64_t batches, batches_remaining;
    uint64_t stalled_ns; /* production stood still and parts of this job were waited for */
    /* the part of it for which no live session was to blame but a rank that is away */
    uint64_t absent_ns;
    uint32_t absent_rank; /* the last such rank */
};
/* The index-th job on the feed, 0-based; false behind the last. */
bool trajd_core_job_info(const struct trajd_core_feed *feed, uint32_t index,
                         struct trajd_core_job_info *info);

struct trajd_core_feed_info {
    uint32_t feed_id;
    const char *name;
    uint32_t members;               /* of all jobs */
    struct trajd_core_job_info job; /* the first one */
    bool running;                   /* its epoch has begun and is not over */
    uint64_t epoch_length;
    uint64_t produced_epoch, cursor; /* position of the next fill */
    uint32_t slots_free, slots_filling, slots_ready;
    uint64_t stalled_ns;    /* production was wanted and no slot was FREE */
    uint64_t idle_since_ns; /* no session has been on the feed since; 0: there is one */
    bool is_hidden;
};
void trajd_core_feed_info(const struct trajd_core_feed *feed, struct trajd_core_feed_info *info);

#endif
