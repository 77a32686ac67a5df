/* The state of the core, and the functions that its files call of each other. Only the files of
 * this folder include it.
 *
 * Calls go one way. From top to bottom (a file calls only files on lines below its own):
 *
 *     core.c, core_status.c     the public calls that change the state; what status shows
 *     core_feeds.c, job_open.c, job_timeout.c
 *     job_verdict.c
 *     job_choice.c
 *     jobs.c                    epochs
 *     sessions.c, production.c
 *     job_resume.c, job_cursor.c, leases.c
 *     delivery.c, slots.c, stall_time.c
 *     feed_state.c
 *     journal.c, checkpoint_token.c
 *
 * A low file that ends an epoch, because the last part is DONE, does not call up: it only counts
 * down job.parts_left. trajd_feed_advance looks at that number at the end of every public call. */
#ifndef TRAJD_FEED_FEED_INTERNAL_H
#define TRAJD_FEED_FEED_INTERNAL_H

#include "daemon/feed/core.h"
#include "daemon/feed/journal.h"

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY };
enum part_state { PART_PENDING, PART_LEASED, PART_DONE, PART_RELEASED, PART_VOID };

struct part {
    enum part_state state;
    /* LEASED, and its session has opened something else since: a release gives it back undone */
    bool abandoned;
    uint64_t session; /* of LEASED and DONE */
    uint64_t seq;     /* of the BATCH that leased it */
};

/* What one job has of a slot. */
struct job_parts {
    /* of the job when the slot became its: parts of another run count for nothing any more */
    uint64_t run_id;
    uint32_t part_count, part_room;
    struct part *parts; /* share: one; shard: one a rank */
};

struct slot {
    enum slot_state state;
    bool published; /* FILLING, and only waits for earlier ones to be READY */
    bool failed;
    uint64_t generation; /* of this use, from 1 */
    uint64_t run_id, epoch, position;
    uint32_t row_count;
    struct job_parts *job_parts; /* by the jobs' indexes */
    uint32_t range_count, range_room;
    struct trajd_rows *ranges; /* that are produced */
    uint64_t ready_ns;
    char failure[TRAJD_WIRE_MAX_REASON];
};

/* Slots in the order of their takes. */
struct slot_queue {
    uint32_t count;
    uint32_t slots[TRAJD_CORE_MAX_SLOTS];
};

struct rank {
    struct session *session; /* NULL: away */
    uint64_t next;           /* parts below are RELEASED from the start */
    bool fresh;
    /* on another node: its parts are RELEASED from the start, nobody waits for it */
    bool is_remote;
    uint64_t away_since_ns; /* while it has no session */
};

enum job_phase {
    JOB_NONE,      /* no epoch yet, or not on the feed any more: the entry is free */
    JOB_GATHERING, /* shard: not all ranks have opened the epoch */
    JOB_RUNNING,
    JOB_ENDED, /* every part is DONE; the next epoch may be produced ahead */
};

/* Jobs read the same production: what it takes into slots is claimed for those that need it. */
struct job {
    struct trajd_core_feed *feed;
    uint32_t index, member_count;
    char name[TRAJD_WIRE_MAX_NAME + 1];
    enum trajd_wire_mode mode;
    uint32_t world;
    enum job_phase phase;
    uint64_t epoch;
    uint64_t requested;            /* `next` of the OPEN that began the epoch */
    uint64_t begin;                /* where batches are counted from */
    uint64_t parts_remaining;      /* not DONE */
    uint64_t token_check;          /* of the checkpoint that the epoch began from, 0: of none */
    uint64_t past_token_check;     /* the same of the epoch before */
    struct trajd_wire_ranks local; /* shard: those on this node; none: all */
    struct rank *ranks;            /* shard: world of them */
    struct trajd_journal *journal;
    char journal_job[TRAJD_WIRE_MAX_NAME + 1];

    uint64_t run_id; /* of its claims; ends when it begins elsewhere */
    /* it is on the production: from claim_begin of its epoch on every batch is claimed */
    bool is_attached;
    uint64_t attached_from;
    uint64_t high;       /* position behind all that was claimed of the epoch */
    uint32_t todo_count; /* below high, neither DONE nor in a slot: come before anything new */
    uint64_t todo[TRAJD_JOURNAL_MAX_UNDONE];

    bool sent_bye;        /* its last session has gone in good order */
    uint64_t blocking_ns; /* it has kept others waiting for so long now */
    uint64_t stalled_ns, absent_ns;
    uint32_t absent_rank;
};

/* Where production stands. What jobs have to do below it comes first. */
struct cursor {
    bool active;
    uint64_t run_id;
    uint64_t epoch;
    uint64_t begin;    /* where the epoch's batches are counted from */
    uint64_t position; /* of the next new batch */
};

struct trajd_core_feed {
    struct trajd_core *core;
    struct trajd_core_feed *next;
    struct trajd_core_feed_options options; /* the texts are owned */
    uint32_t id;
    struct job *jobs; /* options.job_count */
    uint64_t last_run_id;
    struct cursor cursor;
    uint32_t member_count;
    struct session **members; /* room for max_sessions */
    struct slot *slots;
    struct slot_queue filling, ready;
    struct trajd_error failure; /* OK: none */
    uint64_t idle_since_ns;
    uint64_t accounted_ns; /* stalls are accounted up to here */
    uint64_t stalled_ns;
};

/* A part, and where it is. */
struct place {
    struct trajd_core_feed *feed;
    uint32_t index; /* of the slot */
    struct slot *slot;
    struct job *job;
    uint32_t part_index;
    struct part *part;
};

/* Where a job's epoch is to begin: batches below high are DONE, but for those to do. */
struct start {
    uint64_t requested, begin, high; /* positions */
    uint32_t todo_count;
    uint64_t todo[TRAJD_JOURNAL_MAX_UNDONE];
};

struct session {
    uint64_t id; /* 0: free */
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    void *user;
    char client[TRAJD_WIRE_MAX_CLIENT + 1];
    uint64_t pid;
    struct trajd_core_feed *feed; /* the one it opened last, or NULL */
    struct job *job;              /* there */
    bool joined;                  /* it has opened the epoch that the job is in */
    /* and that epoch, or the one it asked for, is over: `end` was sent */
    bool is_over;
    struct trajd_wire_epoch_end end;
    /* why it is on no feed any more, until it opens one: said again if it is resumed */
    struct trajd_error removal;
    uint64_t request; /* of its last OPEN that was granted */
    uint64_t epoch;   /* that it named */
    uint32_t rank;
    uint32_t credit, held;
    uint64_t seq;  /* of the last BATCH */
    uint64_t turn; /* when it was last served, for fairness */
    uint64_t batches_sent, batches_done, stalled_ns, last_message_ns;
};

struct trajd_core {
    struct trajd_core_options options;
    bool going_away;
    uint32_t last_feed_id;
    uint64_t serial;
    uint64_t turn;
    uint32_t session_count;
    struct session *sessions; /* max_sessions; session i's ids are i modulo that */
    struct trajd_core_feed *feeds;
    struct trajd_core_stats stats;
    /* room for one OPEN's work, too large for a stack */
    struct trajd_journal_state from_journal, from_checkpoint, progress;
    struct start start;
};

/* ---- feed_state.c: lookups, counts, and the way out for messages ---- */

/* Sends a message to the session's peer, through the callback of the options. */
void trajd_core_send(struct session *session, const struct trajd_core *core,
                     const struct trajd_wire_message *message);
/* Returns NULL if no session with that id lives. */
struct session *trajd_session_find(const struct trajd_core *core, uint64_t id);
/* In family names, the text after this mark is the place of production (trajd_feed_gpu_name). */
#define TRAJD_PLACE_MARK '@'
/* Copies the name that all productions of a feed have in common, in host memory and on GPUs.
 * Journals are named by it. */
void trajd_feed_base_name(const struct trajd_core_feed *feed, char name[TRAJD_WIRE_MAX_NAME + 1]);
/* Returns how many batches an epoch has from that position to its end. */
uint64_t trajd_batches_from(const struct trajd_core_feed *feed, uint64_t position);
/* Returns the position after the last batch of an epoch that begins at `begin`. */
uint64_t trajd_epoch_end(const struct trajd_core_feed *feed, uint64_t begin);
/* Returns true if there is a batch to produce. Does not look for a FREE slot. */
bool trajd_feed_wants(const struct trajd_core_feed *feed);
/* Calls the wake callback if there is a batch to produce and a FREE slot for it. */
void trajd_feed_wake(struct trajd_core_feed *feed);
/* Returns the job of that name on the feed, or NULL. */
struct job *trajd_job_find(const struct trajd_core_feed *feed, struct trajd_wire_text name);
/* Returns true if the OPEN names this job and has the same mode, world and local ranks. */
bool trajd_job_matches(const struct job *job, const struct trajd_wire_open *open);
/* Returns true if another job with sessions reads the same feed. */
bool trajd_job_has_neighbours(const struct job *job);
/* Returns how many sessions other than this one the job has. */
uint32_t trajd_job_count_others(const struct job *job, const struct session *session);
/* Returns how many parts of each batch are read on this node. */
uint32_t trajd_job_reader_count(const struct job *job);
/* Returns the job's parts of a slot in use. Returns NULL if the slot is FREE, of another epoch, or
 * of an earlier run of the job. */
struct job_parts *trajd_slot_job_parts(const struct slot *slot, const struct job *job);
/* Computes the rows of a part in a batch of row_count rows. */
void trajd_part_rows(const struct job *job, uint32_t row_count, uint32_t part_index,
                     uint32_t *begin, uint32_t *count);

/* ---- stall_time.c ---- */

/* Adds the time since the last call to the sessions and jobs that held up production. Every public
 * call does this before it changes anything. */
void trajd_feed_account(struct trajd_core_feed *feed, uint64_t now_ns);

/* ---- slots.c: the states of slots, and the parts that jobs have of them ---- */

/* Allocates `count` parts of the job in every slot. Returns false if there is no memory. */
bool trajd_slots_make_room(const struct job *job, uint32_t count);
/* Allocates in one slot the parts of all jobs and the ranges of rows. Returns false if there is no
 * memory. */
bool trajd_slot_make_room(const struct trajd_core_feed *feed, struct slot *slot);
/* Gives the job its parts of the slot: PENDING, or RELEASED for ranks that are past the slot. */
void trajd_job_parts_begin(const struct job *job, struct slot *slot);
/* FREE -> FILLING, with the next generation. */
void trajd_slot_begin_fill(struct trajd_core_feed *feed, uint32_t index);
/* FILLING or READY -> FREE. */
void trajd_slot_free(struct trajd_core_feed *feed, uint32_t index);
/* Frees a READY slot if each of its parts is RELEASED or VOID. */
void trajd_slot_free_unneeded(struct trajd_core_feed *feed, uint32_t index);
/* FILLING -> READY for all published slots, in the order of their takes. */
void trajd_slots_promote(struct trajd_core_feed *feed, uint64_t now_ns);
/* Frees the slots that are published and not READY. The run that they belong to is over. */
void trajd_slots_free_published(struct trajd_core_feed *feed);

/* ---- delivery.c: which session gets which READY part ---- */

/* Sends the BATCH of a leased part. */
void trajd_part_send(const struct place *place, struct session *session);
/* Leases the job's PENDING parts to its sessions, as far as their credit allows. */
void trajd_job_deliver(struct job *job);

/* ---- leases.c: the life of a part from LEASED on ---- */

/* Moves the part from LEASED to DONE, and counts it. */
void trajd_lease_done(const struct place *place, struct session *session);
/* Takes the part back from its session. An abandoned part goes back undone, any other one counts as
 * DONE. */
void trajd_lease_release(const struct place *place, struct session *session);
/* Handle one lease that an ACK lists. A lease that the session does not hold is counted as late. */
void trajd_lease_ack_done(struct trajd_core *core, struct session *session,
                          const struct trajd_wire_lease *lease);
void trajd_lease_ack_released(struct trajd_core *core, struct session *session,
                              const struct trajd_wire_lease *lease);
/* Returns true if the session holds a LEASED part, which has to be handed out again if it dies. */
bool trajd_leases_has_undone(const struct trajd_core *core, const struct session *session);
/* Marks the session's LEASED parts on the feed as abandoned. */
void trajd_leases_abandon(struct trajd_core_feed *feed, const struct session *session);
/* Takes back everything that a dead session holds. */
void trajd_leases_void(struct trajd_core *core, struct session *session);
/* Compares the session's parts with the lists of its HELLO: settles those that it no longer holds,
 * and sends the BATCHes again that it has not received. */
void trajd_leases_resume(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_hello *hello);

/* ---- job_cursor.c: what each job needs of a feed's production ---- */

/* Returns true if the job can read the production from `start` on: what is in slots and what is to
 * come has every batch that the job needs, but for a few that are made again. `job` may be a free
 * entry. */
bool trajd_job_can_attach(const struct job *job, uint64_t epoch, const struct trajd_wire_open *open,
                          const struct start *start);
/* Attaches the job to the production as it stands. */
void trajd_job_attach(struct job *job, const struct start *start);
/* Stops production so that the job can begin elsewhere. The job's parts that are not leased become
 * VOID. The other jobs, which have no sessions, are dropped. */
void trajd_job_stop_production(struct job *job);
/* Begins production at `start`, for this job alone. */
void trajd_job_move_production(struct job *job, const struct start *start);
/* Keeps what was produced ahead: the job begins the epoch after the last one. */
void trajd_job_continue(struct job *job);
/* Detaches the job from the production. It begins a new run: its parts in slots are VOID or
 * abandoned. */
void trajd_job_detach(struct job *job);
/* Returns true if the job needs that batch, and notes that it has it now. is_new: the batch lies at
 * the cursor. */
bool trajd_job_take_batch(struct job *job, uint64_t epoch, uint64_t position, bool is_new);
/* Frees the entry of a job that has no sessions. */
void trajd_job_drop(struct job *job);
/* Drops the jobs without sessions that nothing is kept for, if another job reads the feed. */
void trajd_feed_drop_idle_jobs(struct trajd_core_feed *feed);

/* ---- production.c ---- */

/* Do the work of trajd_core_take and trajd_core_publish. */
enum trajd_status trajd_production_take(struct trajd_core_feed *feed, struct trajd_core_fill *fill);
bool trajd_production_publish(struct trajd_core_feed *feed, const struct trajd_core_fill *fill,
                              const struct trajd_error *failure, uint64_t now_ns);

/* ---- job_resume.c: journals and checkpoints ---- */

/* Computes where an OPEN wants its job to begin: at its `next`, from its checkpoint `token`, or
 * from the job's journal. */
void trajd_job_find_start(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                          const struct trajd_journal_state *token, struct start *start);
/* Opens the job's journal, if it is not open. Counts a failure and goes on without a journal. */
void trajd_job_use_journal(struct job *job);
/* Computes what of a queue job's epoch is DONE, for its journal or a checkpoint. */
void trajd_job_journal_state(const struct job *job, struct trajd_journal_state *state);

/* ---- sessions.c ---- */

/* Returns NULL if there are max_sessions already. */
struct session *trajd_session_make(struct trajd_core *core,
                                   const uint8_t token[TRAJD_WIRE_TOKEN_SIZE]);
void trajd_session_send_welcome(const struct trajd_core *core, struct session *session,
                                bool resumed);
/* Sends CHECKPOINTED or ERROR. */
void trajd_session_send_checkpoint(struct trajd_core *core, struct session *session,
                                   uint64_t request);
/* Sends ERROR. An unknown session is no error. */
void trajd_core_send_error(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           const struct trajd_error *error);
void trajd_session_refuse(struct trajd_core *core, struct session *session, uint64_t request,
                          enum trajd_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Sends the ERROR that says why the core took the session off its feed, and keeps the reason. */
void trajd_session_send_removal(struct trajd_core *core, struct session *session,
                                enum trajd_status status, const char *reason);

/* ---- jobs.c: epochs ---- */

/* Returns the position of the rank's first part that is not DONE. */
uint64_t trajd_rank_position(const struct job *job, uint32_t rank);
/* Releases the rank's parts before position `next`. */
void trajd_rank_skip(struct job *job, uint32_t rank, uint64_t next);
/* Allocates the ranks of the job, and its parts in every slot. Returns false if there is no memory.
 */
bool trajd_job_size_ranks(struct job *job, const struct trajd_wire_open *open);
/* Returns true if the OPEN begins the next epoch exactly where it was produced ahead. */
bool trajd_job_can_continue(const struct job *job, const struct trajd_wire_open *open,
                            const struct start *start);
/* Begins an epoch: under queue it runs at once, under shard the ranks gather first. */
void trajd_job_begin(struct job *job, const struct trajd_wire_open *open,
                     const struct start *start);
/* Ends the job's epoch for all sessions that have joined it. */
void trajd_job_end_epoch(struct job *job);
/* Ends for one session an epoch that began at `begin`: notes it and sends EPOCH_END. */
void trajd_session_end_epoch(const struct job *job, struct session *session, uint64_t begin);
void trajd_session_send_opened(struct session *session);
void trajd_session_send_end(struct session *session); /* session->end */
/* Takes a session off its feed. Its LEASED parts are abandoned, not given back. */
void trajd_session_leave(struct session *session, uint64_t now_ns);
/* Begins and ends epochs and delivers batches, as far as the state allows. Every public call ends
 * with this. */
void trajd_feed_advance(struct trajd_core_feed *feed);

/* ---- job_choice.c: on which production, and in which entry of it, an OPEN belongs ---- */

/* Returns true if the job's epoch can begin on its feed: anywhere if no other job reads the feed,
 * else only where the others are. */
bool trajd_job_has_place(const struct job *job, const struct trajd_wire_open *open,
                         const struct start *start);
/* Returns the job of that name, or an entry for it: a free one, or the entry of a job without
 * sessions if nobody reads the feed. NULL: there is none. */
struct job *trajd_job_find_entry(const struct trajd_core_feed *feed, const struct session *session,
                                 struct trajd_wire_text name);
/* Returns true if the OPEN is the one that was granted last, sent again because the reply was lost.
 */
bool trajd_open_is_repeated(const struct session *session, const struct trajd_wire_open *open,
                            const struct trajd_core_feed *feed);
/* Does the work of trajd_core_choose. */
struct trajd_core_feed *trajd_feed_choose(struct trajd_core *core, const struct session *session,
                                          const struct trajd_wire_open *open,
                                          struct trajd_core_feed *feed);

/* ---- job_verdict.c ---- */

enum verdict {
    VERDICT_JOIN,      /* the session joins the epoch that the job is in */
    VERDICT_BEGIN,     /* the session begins an epoch */
    VERDICT_PAST,      /* the epoch is over and the others are in the next one: send its end */
    VERDICT_REFUSED,   /* ERROR was sent */
    VERDICT_ELSEWHERE, /* other jobs read the feed, and the OPEN does not fit their production */
};

/* Decides what an OPEN does to the job; `job` NULL: the feed has no entry for it. */
enum verdict trajd_job_validate(const struct job *job, struct session *session,
                                const struct trajd_wire_open *open, const struct start *start);

/* ---- job_open.c ---- */

/* Does the work of trajd_core_open for a session that is on no feed. */
enum trajd_status trajd_job_open(struct trajd_core_feed *feed, struct session *session,
                                 const struct trajd_wire_open *open);

/* ---- job_timeout.c ---- */

/* Ends the waits for absent ranks and slow jobs that have lasted too long. */
void trajd_feed_expire(struct trajd_core_feed *feed, uint64_t now_ns);

/* ---- core_feeds.c ---- */

void trajd_feed_free(struct trajd_core_feed *feed);

#endif
