/* The state machine that hands batches to workers: feeds, slots, parts, leases, sessions, jobs,
 * epochs. It has no thread, no socket and no clock: the caller passes the time as now_ns
 * (CLOCK_MONOTONIC), and messages leave through one callback. The same source files run in the
 * server and in the model test.
 *
 * Threads: the caller holds one mutex around every call. Callbacks run inside the call, on its
 * thread, and must not call the core.
 *
 * Memory: trajd_core_create and trajd_core_add_feed allocate what the options ask for. OPEN may
 * allocate parts for a larger world and read a journal (a few milliseconds of file work).
 * trajd_core_take may allocate room for parts and row ranges in its slot. Nothing else allocates,
 * and nothing blocks.
 *
 * Ownership: a FREE slot belongs to the core. From take to publish (FILLING) it belongs to the
 * producer. While it is READY, until every part is RELEASED or VOID, its memory belongs to the
 * sessions that hold leases. Sessions and feeds belong to the core. Ids are never used twice. */
#ifndef TRAJD_FEED_CORE_H
#define TRAJD_FEED_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/wire.h"

#define TRAJD_CORE_MAX_SLOTS 480u /* so that a journal's record fits one page */
/* The most ranks of a shard job. The parts of job j are numbered from j times this number. */
#define TRAJD_CORE_MAX_WORLD 65536u
#define TRAJD_CORE_MAX_JOBS 16u /* jobs that read the same slots */

struct trajd_core;
struct trajd_core_feed;

struct trajd_core_options {
    uint64_t instance_id;
    uint32_t max_sessions;
    const char *version; /* for WELCOME; borrowed as long as the core lives */
    /* For WELCOME, which lists the first TRAJD_WIRE_MAX_FEEDS. NULL-terminated. Borrowed as long as
     * the core lives. */
    const char *const *feed_names;
    /* Sends a message to a session's peer. `user` is the value that the last HELLO set. The message
     * is valid only during the call. There is no error: a peer that cannot be reached either comes
     * back with its token, and then gets again what it missed, or its session ends. */
    void (*send)(void *context, uint64_t session, void *user,
                 const struct trajd_wire_message *message);
    /* Called when trajd_core_take may succeed again: a slot became FREE, or a job needs batches. */
    void (*wake)(void *context, struct trajd_core_feed *feed);
    /* Returns true if the bytes of a FREE slot are still being sent, so that it must not be filled
     * yet. Only trajd_core_take calls it. The callee causes another take when the bytes have left.
     * NULL: no slot is ever in flight. */
    bool (*is_in_flight)(void *context, struct trajd_core_feed *feed, uint32_t slot);
    /* Gets a text for the log about a job: its earlier run ends unfinished, or its journal cannot
     * be written. NULL: none. */
    void (*report)(void *context, const char *text);
    void *context;
};

enum trajd_status trajd_core_create(const struct trajd_core_options *options,
                                    struct trajd_core **core, struct trajd_error *error);
/* Frees all feeds and sessions. Sends nothing, and leaves the journal files. */
void trajd_core_destroy(struct trajd_core **core);

/* ---- feeds ---- */

/* What the feed leaves out of its datasets, for its workers (OPENED). */
struct trajd_feed_data {
    uint32_t found_count, kept_count, used_count; /* episodes */
    /* the first reasons why episodes are quarantined, and the first warnings; borrowed as long as
     * the feed lives */
    struct trajd_wire_texts quarantined, warnings;
};

struct trajd_core_feed_options {
    const char *name; /* copied; <= TRAJD_WIRE_MAX_NAME */
    /* Copied. Not NULL: this feed is another production, with a ring of its own, of the feed with
     * that name. */
    const char *instance_of;
    /* The feed is not found by its name until trajd_core_show_feed. Another may have the same
     * name. */
    bool is_hidden;
    uint32_t slot_count;   /* 3 to TRAJD_CORE_MAX_SLOTS */
    uint32_t max_credit;   /* >= 2; larger values mean TRAJD_WIRE_MAX_LEASES */
    uint32_t global_batch; /* G >= 1 */
    uint64_t fingerprint, seed;
    uint64_t norm_digest, values_digest; /* of OPENED; 0: not known */
    /* name of an output that is normalised otherwise than by trajd 0.1.0, or NULL; borrowed as long
     * as the feed lives */
    const char *changed_norm;
    uint64_t window_count, epoch_length, dropped_count;
    /* true: the windows after the last full batch are a short batch; false: they are dropped */
    bool tail_short;
    uint32_t job_count; /* the most jobs that read the same slots; 0 means 1 */
    /* true: a job that keeps others waiting for slow_after_ns is removed; false: they wait */
    bool slow_leaves;
    uint64_t slow_after_ns;
    /* Readers may write to the ring: the sessions that map it must all be of one user. Another user
     * needs another instance of the feed. */
    bool is_for_one_user;
    const char *journal_directory; /* copied; NULL: DONE does not survive the daemon */
    uint64_t rank_timeout_ns; /* shard: how long ranks wait for one that is away; 0: no limit */
    /* queue: how long the workers of a run that an earlier daemon served are waited for: their
     * batches go to no other worker, and a fresh OPEN of their job is held back. 0: not at all. */
    uint64_t rejoin_wait_ns;
    bool has_unfinished; /* workers may finish its images (trajd_core_find_place) */
    /* The core only copies these fields into OPENED. */
    uint64_t ring_size_bytes, slot_size_bytes;
    bool writable;
    struct trajd_wire_text gpu;     /* the GPU that has the ring; empty: host memory */
    struct trajd_wire_bytes handle; /* borrowed as long as the feed lives */
    uint32_t tensor_count;
    const struct trajd_wire_tensor *tensors; /* borrowed as long as the feed lives */
    struct trajd_feed_data data;
    void *user; /* returned by trajd_core_feed_user */
};

/* Adds a feed. Its number is both its feed_id and its ring id. */
enum trajd_status trajd_core_add_feed(struct trajd_core *core,
                                      const struct trajd_core_feed_options *options,
                                      struct trajd_core_feed **feed, struct trajd_error *error);
/* Removes and frees a feed. Its sessions get ERROR `closed`, or the error of trajd_core_fail_feed.
 * Their leases end; ACKs of them are counted as late. The caller must not publish into it later. */
void trajd_core_remove_feed(struct trajd_core *core, struct trajd_core_feed **feed,
                            uint64_t now_ns);
uint32_t trajd_core_feed_id(const struct trajd_core_feed *feed);
void *trajd_core_feed_user(const struct trajd_core_feed *feed);
/* Shows a feed, so that OPENs find it, or hides it. Two feeds that are shown must not have the same
 * name. */
void trajd_core_show_feed(struct trajd_core_feed *feed, bool shown);
/* Replaces feed_names of the options. */
void trajd_core_set_feed_names(struct trajd_core *core, const char *const *names);
/* Returns true if both are productions of the same feed, in host memory or on GPUs. */
bool trajd_core_is_same_feed(const struct trajd_core_feed *a, const struct trajd_core_feed *b);
/* Sets the error that the feed's sessions get when it is removed, instead of `closed`. */
void trajd_core_fail_feed(struct trajd_core_feed *feed, const struct trajd_error *why);
/* Returns the feed that is shown under that name, or NULL. */
struct trajd_core_feed *trajd_core_find_feed(struct trajd_core *core, struct trajd_wire_text name);

/* ---- production ---- */

/* Rows of a global batch: [begin, begin + count). */
struct trajd_rows {
    uint32_t begin, count;
};

/* What production works on, and what a worker waits for when it has no batch. */
enum trajd_work {
    TRAJD_WORK_ROWS,    /* rows are read into the cache */
    TRAJD_WORK_DECODE,  /* images are decoded */
    TRAJD_WORK_KERNELS, /* rows are resampled */
    TRAJD_WORK_COUNT,
    TRAJD_WAIT_SLOTS = TRAJD_WORK_COUNT, /* other workers or ranks hold all slots */
    TRAJD_WAIT_OTHER,                    /* production did something else, or had just begun */
    TRAJD_WAIT_COUNT
};

/* A global batch that the producer has to write: the batch at `position` of `epoch`. */
struct trajd_fill {
    uint32_t slot;
    uint32_t row_count;  /* rows [0, row_count) of the global batch */
    uint64_t generation; /* for the slot header */
    /* The run of production. If production has moved to another epoch or position before the
     * publish, a new run has begun, and the publish only frees the slot. */
    uint64_t run_id;
    uint64_t epoch, position;
    /* The rows that are read on this node, ascending and with gaps between them: all rows, or those
     * of the ranks on this node. Borrowed until the fill is published. */
    uint32_t range_count;
    const struct trajd_rows *ranges;
    uint64_t work_ns[TRAJD_WORK_COUNT]; /* what the batch took, for publish; take sets zeros */
    /* set by trajd_feed_take of the server: the slot's first byte: the slot header, which publish
     * writes; tensors at the schema's offsets */
    void *memory;
};

/* Moves the next slot to FILLING and describes its batch. TRAJD_ERR_TIMEOUT: no batch is needed, or
 * no slot is FREE; call again after wake. TRAJD_ERR_MEMORY: no memory for the parts of a larger
 * world; call again later. */
enum trajd_status trajd_core_take(struct trajd_core_feed *feed, uint64_t now_ns,
                                  struct trajd_fill *fill);
/* Returns the credit of a session that asks for `asked`. With more credit than slots it could hold
 * all of them and wait forever, because it releases when its credit is used up. */
uint32_t trajd_core_credit(uint32_t asked, uint32_t max_credit, uint32_t slot_count);
/* Publishes a fill. Fills may be published in any order; slots become READY and are sent in the
 * order of takes. `failure` NULL: the batch is good. Returns false for a fill that is not FILLING
 * (published twice, or of another generation), ignores it and counts it. */
bool trajd_core_publish(struct trajd_core_feed *feed, const struct trajd_fill *fill,
                        const struct trajd_error *failure, uint64_t now_ns);

/* ---- sessions ---- */

/* HELLO, first half: finds the session of the token (*resumed is true), or makes one with
 * `fresh_token`, 16 random bytes. Sends nothing: the caller binds peer and session first, and then
 * calls trajd_core_welcome. `user` is passed to the send callback from now on; *replaced is the
 * session's earlier `user` (NULL for a new session). TRAJD_ERR_BUSY: max_sessions sessions exist
 * already. */
enum trajd_status trajd_core_hello(struct trajd_core *core, const struct trajd_wire_hello *hello,
                                   const uint8_t fresh_token[TRAJD_WIRE_TOKEN_SIZE], void *user,
                                   uint64_t now_ns, uint64_t *session, bool *resumed,
                                   void **replaced, struct trajd_error *error);
/* HELLO, second half: sends WELCOME. `hello` is the same as for trajd_core_hello. A resumed session
 * also gets what it has not received (BATCHes with their old seq, the end of its epoch), and its
 * leases are compared with the lists of `hello`. */
void trajd_core_welcome(struct trajd_core *core, uint64_t session,
                        const struct trajd_wire_hello *hello, uint64_t now_ns);
/* Sets the number of the user or key that has the session. Jobs that it begins belong to it.
 * maps_rings: its process maps the rings that it reads; false: their rows are sent to it. */
void trajd_core_set_owner(struct trajd_core *core, uint64_t session, uint64_t owner,
                          bool maps_rings);
/* Returns the session with that token, or 0. For fd.sock. */
uint64_t trajd_core_find_token(const struct trajd_core *core,
                               const uint8_t token[TRAJD_WIRE_TOKEN_SIZE]);
/* BYE: ends the session like trajd_core_end_session. Other jobs do not wait for its return. */
void trajd_core_bye(struct trajd_core *core, uint64_t session, uint64_t now_ns);
/* Ends a session whose fd.sock is closed, or that never connected to it after HELLO. Its leases
 * end, so the memory can be written again. An unknown id is not an error. */
void trajd_core_end_session(struct trajd_core *core, uint64_t session, uint64_t now_ns);

/* Returns true if other sessions of the OPEN's job read an instance of `feed`. */
bool trajd_core_has_job(const struct trajd_core *core, uint64_t session,
                        const struct trajd_wire_open *open, const struct trajd_core_feed *feed);
/* Returns true if workers may finish the feed's images, in another production of it. */
bool trajd_core_has_unfinished(const struct trajd_core_feed *feed);
/* Returns the production in host memory that an OPEN reads, for a session that can finish images:
 * the one where its job is already, finished or not, else `feed`. */
struct trajd_core_feed *trajd_core_find_place(struct trajd_core *core, uint64_t session,
                                              const struct trajd_wire_open *open,
                                              struct trajd_core_feed *feed);
/* Chooses the instance of `feed` for an OPEN: the one where its job is, else one that no job reads.
 * Returns NULL if jobs at other positions read them, or other users have mapped their rings; then a
 * new instance is needed. */
struct trajd_core_feed *trajd_core_choose(struct trajd_core *core, uint64_t session,
                                          const struct trajd_wire_open *open,
                                          struct trajd_core_feed *feed);
/* Returns the name that all instances of a feed have in common. */
const char *trajd_core_family(const struct trajd_core_feed *feed);
/* Handles OPEN. The caller has found `feed` from the feed name or spec of `open`. Sends OPENED (and
 * BATCHes), or ERROR. After TRAJD_OK the session is on the feed: the caller sends it the ring's
 * descriptor if it does not have that yet. */
enum trajd_status trajd_core_open(struct trajd_core *core, uint64_t session,
                                  const struct trajd_wire_open *open, struct trajd_core_feed *feed,
                                  uint64_t now_ns);
/* Refuses an OPEN whose feed could not be found or made: takes the session off the feed that it has
 * open, and sends ERROR. An unknown id is not an error: the session may have ended meanwhile. */
void trajd_core_refuse_open(struct trajd_core *core, uint64_t session, uint64_t request,
                            const struct trajd_error *error, uint64_t now_ns);
/* Handles ACK. Leases that the session does not hold are ignored and counted. */
void trajd_core_ack(struct trajd_core *core, uint64_t session, const struct trajd_wire_ack *ack,
                    uint64_t now_ns);
/* Handles CHECKPOINT: sends CHECKPOINTED with a checkpoint token, or ERROR. */
void trajd_core_checkpoint(struct trajd_core *core, uint64_t session, uint64_t request,
                           uint64_t now_ns);
/* Notes the time of a message that the caller handles itself (PING, STATUS). */
void trajd_core_touch(struct trajd_core *core, uint64_t session, uint64_t now_ns);

/* ---- end and upkeep ---- */

/* Tells the sessions of a feed what its production waits for, once one of them has waited for
 * waited_ns. Returns false until then. */
bool trajd_core_tell_waiting(const struct trajd_core_feed *feed, uint64_t waited_ns,
                             const char *text);

/* Sends GOAWAY to every session. From then on nothing is produced or delivered, and OPEN is refused
 * with TRAJD_ERR_CLOSED. */
void trajd_core_goaway(struct trajd_core *core, const char *reason, uint64_t now_ns);
/* Returns the number of parts that are LEASED or DONE. A drain waits until it is 0. */
uint32_t trajd_core_lease_count(const struct trajd_core *core);
/* Call about once a second. Accounts stalls up to now, ends waits for ranks that are away for too
 * long, and starts the write-back of journals, which matters if the host dies. */
void trajd_core_tick(struct trajd_core *core, uint64_t now_ns);

/* ---- status ---- */

struct trajd_core_stats {
    uint32_t sessions, feeds;
    uint64_t batches_sent, batches_done, windows_done, batches_failed;
    uint64_t late_acks;      /* leases in ACK or HELLO that the sender does not hold */
    uint64_t late_publishes; /* of an earlier run, or not FILLING */
    uint64_t dead_sessions;  /* sessions that ended with a LEASED part */
    uint64_t handed_again;   /* parts of dead sessions that went back to PENDING */
    uint64_t resumed_sessions;
    uint64_t damaged_journals; /* ignored: magic, version, size or checksum */
    uint64_t journals_refused; /* could not be opened or written: DONE is lost with the daemon */
    uint64_t rank_timeouts;    /* waits for a rank that were ended */
    uint64_t slow_jobs;        /* dropped because other jobs waited for them */
};
void trajd_core_get_stats(const struct trajd_core *core, struct trajd_core_stats *stats);

struct trajd_core_session_info {
    uint64_t session;
    char client[TRAJD_WIRE_MAX_CLIENT + 1];
    uint64_t pid;
    uint32_t feed_id; /* 0: none is open */
    /* LEASED or DONE, not RELEASED; and batches that it holds since before the daemon's return */
    uint32_t rank, credit, held;
    uint64_t wait_until_ns; /* its OPEN is held back until then (rejoin_wait); 0: it is not */
    uint64_t batches_sent, batches_done;
    uint64_t stalled_ns; /* production stalled and this session held it up */
    /* the session had no batch to work on, by what production did then */
    uint64_t waited_ns[TRAJD_WAIT_COUNT];
    uint64_t last_message_ns;
};
/* Describes the session with that index, from 0. Returns false after the last. */
bool trajd_core_session_info(const struct trajd_core *core, uint32_t index,
                             struct trajd_core_session_info *info);

struct trajd_core_job_info {
    /* phase: "gathering", "running", "ended"; "none": no job has opened the feed yet */
    const char *name, *phase;
    enum trajd_wire_mode mode;
    uint32_t world, members;
    uint64_t epoch;
    /* of the epoch; under shard each batch counts once for each rank on this node */
    uint64_t batches, batches_remaining; /* remaining: not DONE */
    uint32_t awaited; /* sessions of before the daemon's return that are not back (rejoin_wait) */
    uint64_t stalled_ns; /* production stalled and waited for parts of this job */
    /* the part of stalled_ns that was caused by an absent rank, not by a session */
    uint64_t absent_ns;
    uint32_t absent_rank;        /* the last such rank */
    const char *journal_failure; /* why its journal cannot be written; empty: it can */
};
/* Describes the job with that index on the feed, from 0. Returns false after the last. */
bool trajd_core_job_info(const struct trajd_core_feed *feed, uint32_t index,
                         struct trajd_core_job_info *info);

struct trajd_core_feed_info {
    uint32_t feed_id;
    const char *name;
    uint32_t members;               /* of all jobs */
    struct trajd_core_job_info job; /* the first one */
    bool running;                   /* the first job's epoch has begun and is not over */
    uint64_t epoch_length;
    uint64_t produced_epoch, cursor; /* position of the next fill */
    uint32_t slots_free, slots_filling, slots_ready;
    uint64_t stalled_ns;                  /* batches were needed and every slot was READY */
    uint64_t waited_ns[TRAJD_WAIT_COUNT]; /* the sum of all sessions, also of those that are gone */
    uint64_t idle_since_ns; /* time since which the feed has had no session; 0: it has one */
    bool has_leases;        /* sessions, perhaps on other feeds, hold batches of it */
    bool has_user; /* a user has mapped the ring, and no other one may; `user` is its number */
    uint64_t user;
    bool is_hidden;
};
void trajd_core_feed_info(const struct trajd_core_feed *feed, struct trajd_core_feed_info *info);

#endif
