/* The state of the core (feeds, slots, parts, jobs, sessions), and the functions that its files call of
 * each other. Only this folder includes it.
 *
 * Calls go one way. A file calls only files on lines below its own:
 *
 *     core.c                         public calls
 *     core_feeds.c, job_open.c, job_timeout.c
 *     job_verdict.c
 *     jobs.c                         epochs
 *     job_resume.c, leases.c
 *     production.c
 *     stall_time.c
 *     feed_state.c
 *     journal.c, checkpoint_token.c
 *
 * When the last part of an epoch becomes DONE, the function that marks it only counts
 * job.parts_remaining down to 0. trajd_feed_advance, at the end of every public call, sees that and
 * ends the epoch. */
#ifndef TRAJD_FEED_FEED_INTERNAL_H
#define TRAJD_FEED_FEED_INTERNAL_H

#include "daemon/base/arena.h"
#include "daemon/feed/core.h"
#include "daemon/feed/journal.h"

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY };
/* PENDING: waits for a session. VOID: no longer needed, and was not given back. */
enum part_state { PART_PENDING, PART_LEASED, PART_DONE, PART_RELEASED, PART_VOID };

struct part {
    enum part_state state;
    /* The part is LEASED, and its session has opened another epoch since. A release gives the part
     * back undone. */
    bool abandoned;
    uint64_t session; /* while LEASED or DONE */
    uint64_t seq;     /* of the BATCH that leased it */
};

/* The parts of a slot that belong to one job. */
struct job_parts {
    uint64_t
        run_id; /* job.run_id when the job got the slot; parts of an earlier run do not count */
    uint32_t part_count, part_room;
    struct part *parts; /* queue: one; shard: one for each rank */
};

struct slot {
    enum slot_state state;
    bool published; /* FILLING, and waits only until the slots taken before it are READY */
    bool failed;
    uint64_t generation; /* counts the uses of the slot, from 1 */
    uint64_t run_id, epoch, position;
    uint32_t row_count;
    struct job_parts *job_parts; /* options.job_count of them, by job.index */
    uint32_t range_count, range_room;
    struct trajd_rows *ranges; /* the rows that are produced */
    uint64_t ready_ns;
    char failure[TRAJD_WIRE_MAX_REASON];
};

/* Slots in the order of their takes. */
struct slot_queue {
    uint32_t count;
    uint32_t slots[TRAJD_CORE_MAX_SLOTS];
};

struct rank {
    struct session *session; /* NULL: the rank is away */
    uint64_t next;           /* the rank's parts before this position count as RELEASED */
    bool fresh;
    bool is_remote; /* on another node: its parts count as RELEASED, and no rank waits for it */
    uint64_t away_since_ns; /* while it has no session */
    bool is_missed;         /* the other ranks were told that it is away */
};

enum job_phase {
    JOB_NONE,      /* the entry is free: no job yet, or the job was dropped */
    JOB_GATHERING, /* shard: not all ranks have opened the epoch */
    JOB_RUNNING,
    JOB_ENDED, /* every part is DONE; the next epoch may be produced ahead */
};

/* A batch below job.high that is neither DONE nor in a slot. */
struct todo {
    uint64_t position;
    /* The session that holds the batch since before the daemon's return: it is not produced again
     * as long as that session lives. 0: none. */
    uint64_t holder;
};

/* Jobs of one feed read the same production. Each batch is made once, for all jobs that need it. */
struct job {
    struct trajd_core_feed *feed;
    uint32_t index, member_count;
    char name[TRAJD_WIRE_MAX_NAME + 1];
    enum trajd_wire_mode mode;
    uint32_t world;
    enum job_phase phase;
    uint64_t epoch;
    uint64_t requested;            /* `next` of the OPEN that began the epoch */
    uint64_t begin;                /* position of the epoch's batch 0 */
    uint64_t parts_remaining;      /* parts of the epoch that are not DONE */
    uint64_t token_check;          /* of the checkpoint that the epoch began from, or 0 */
    uint64_t past_token_check;     /* the same for the epoch before */
    struct trajd_wire_ranks local; /* shard: the ranks on this node; none listed: all */
    struct rank *ranks;            /* shard: `world` of them */
    uint64_t owner;                /* of the session that began the epoch */
    struct trajd_journal *journal;
    char journal_job[TRAJD_WIRE_MAX_NAME + 1];
    char journal_failure[TRAJD_WIRE_MAX_REASON]; /* why it is not written; empty: it is */
    /* queue: numbers the job's pass through the epoch. A pass that goes on after the daemon's
     * return keeps its number. 0: a pass that trajd 0.1.0 began. */
    uint64_t pass;
    /* Sessions of before the daemon's return that are not back yet. Any of them may hold batches of
     * todo: no session gets one until all are back, or the wait is over (trajd_job_end_return). */
    uint32_t awaited;
    uint64_t awaited_since_ns;
    struct trajd_journal_wait earlier_wait; /* of earlier daemons */

    uint64_t
        run_id; /* changes whenever the job begins elsewhere; its older parts do not count then */
    /* The job is attached to the production: it gets each batch of its epoch from position
     * attached_from on. */
    bool is_attached;
    uint64_t attached_from;
    uint64_t high;       /* position after the last batch of the epoch that the job has got */
    uint32_t todo_count; /* those without a holder are produced first */
    struct todo todo[TRAJD_JOURNAL_MAX_UNDONE];

    bool sent_bye;        /* its last session ended with BYE */
    uint64_t blocking_ns; /* how long it has kept other jobs waiting without a break */
    uint64_t stalled_ns, absent_ns;
    uint32_t absent_rank;
};

/* Where production stands. Batches below this position that jobs still need are produced first. */
struct cursor {
    bool active;
    uint64_t run_id;
    uint64_t epoch;
    uint64_t begin;    /* position of the epoch's batch 0 */
    uint64_t position; /* of the next new batch */
};

struct trajd_core_feed {
    struct trajd_arena arena; /* owns all tables and texts that do not grow */
    struct trajd_core *core;
    struct trajd_core_feed *next;
    struct trajd_core_feed_options options; /* owns the texts that core.h calls copied */
    uint32_t id;
    struct job *jobs; /* options.job_count */
    uint64_t last_run_id;
    struct cursor cursor;
    uint32_t member_count;
    struct session **members; /* room for max_sessions */
    struct slot *slots;
    struct slot_queue filling, ready;
    struct trajd_error failure; /* TRAJD_OK: none */
    bool is_mapped;             /* by processes of `user` */
    uint64_t user;
    uint64_t idle_since_ns;
    uint64_t accounted_ns; /* stalls are accounted up to this time */
    uint64_t stalled_ns;
    uint64_t waited_ns[TRAJD_WAIT_COUNT];
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

/* Where a job's epoch is to begin: the batches below `high` are DONE, except those in todo. */
struct start {
    uint64_t requested, begin, high; /* positions */
    uint64_t pass;                   /* of the journal; 0: another pass begins */
    uint32_t awaited;                /* sessions that the journal's job had */
    struct trajd_journal_wait wait;  /* of earlier daemons for some of these */
    uint32_t todo_count;
    uint64_t todo[TRAJD_JOURNAL_MAX_UNDONE];
};

struct session {
    uint64_t id; /* 0: the entry is free */
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    void *user;
    char client[TRAJD_WIRE_MAX_CLIENT + 1];
    uint64_t pid, owner;
    bool maps_rings;
    struct trajd_core_feed *feed; /* the feed that is open, or NULL */
    struct job *job;              /* its job on that feed, or NULL */
    bool joined;                  /* it has opened the epoch that the job is in */
    bool is_over;                 /* the epoch that it opened is over, and `end` was sent */
    struct trajd_wire_epoch_end end;
    /* Why the core took it off its feed. It is sent again when the session is resumed. OPEN clears
     * it. */
    struct trajd_error removal;
    uint64_t request; /* of its last OPEN that was granted */
    uint64_t epoch;   /* that this OPEN named */
    uint32_t rank;
    uint32_t credit, held;
    uint32_t carried;     /* batches in its job's todo that it holds */
    uint64_t return_pass; /* the pass to which it has returned; 0: it began here */
    /* Its fresh OPEN is held back, as workers of an earlier run may return: the journal lacks the
     * wait from wait_since_ns on. 0: it is not held back. */
    uint64_t wait_since_ns, wait_until_ns;
    uint64_t wait_number; /* trajd_journal_number of the job */
    uint64_t seq;         /* of the last BATCH */
    uint64_t turn;        /* larger for sessions that were served later */
    uint64_t batches_sent, batches_done, stalled_ns, last_message_ns;
    uint64_t working_at_ns; /* the last time it was seen to have a batch to work on */
    /* how long it has waited since then or since the last publish, for a batch in the making */
    uint64_t waiting_ns;
    uint64_t waited_ns[TRAJD_WAIT_COUNT];
};

struct trajd_core {
    struct trajd_core_options options;
    bool going_away;
    uint32_t last_feed_id;
    uint64_t serial, last_pass;
    uint64_t turn;
    uint32_t session_count;
    struct session *sessions; /* max_sessions; the ids of entry i are i modulo max_sessions */
    struct trajd_core_feed *feeds;
    struct trajd_core_stats stats;
    /* Scratch memory for one OPEN, too large for a stack. */
    struct trajd_journal_state from_journal, from_checkpoint, progress;
    struct start start;
    char report[512]; /* why the OPEN under way begins an epoch again; empty: nothing to report */
};

/* ---- feed_state.c: look-ups, and messages of every file ---- */

/* Sends a message to the session's peer, through the callback of the options. */
void trajd_core_send(struct session *session, const struct trajd_core *core,
                     const struct trajd_wire_message *message);
/* Returns NULL if no session with that id lives. */
struct session *trajd_session_find(const struct trajd_core *core, uint64_t id);
/* In family names, the text after this mark is the place of production (trajd_feed_place_name). */
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
/* Returns true if the job needs a batch of its todo that may be produced now. */
bool trajd_job_has_todo(const struct job *job);
void trajd_job_drop_todo(struct job *job, uint32_t index);
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
/* Sends ERROR. An unknown session is not an error. */
void trajd_core_send_error(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           const struct trajd_error *error);
void trajd_session_refuse(struct trajd_core *core, struct session *session, uint64_t request,
                          enum trajd_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Sends the ERROR that says why the core took the session off its feed, and keeps the reason. */
void trajd_session_send_removal(struct trajd_core *core, struct session *session,
                                enum trajd_status status, const char *reason);

/* ---- stall_time.c ---- */

/* Adds the time since the last call to the stall times of the sessions and jobs that held up
 * production. Public calls do this before they change what is READY or leased. */
void trajd_feed_account(struct trajd_core_feed *feed, uint64_t now_ns);

/* ---- leases.c: which session gets which READY part, and the life of the part from there on ---- */

/* Leases the job's PENDING parts to its sessions, as far as their credit allows. */
void trajd_job_deliver(struct job *job);

/* Counts a batch of that many rows as DONE, also in the journal of a queue job. */
void trajd_job_count_done(struct job *job, struct session *session, uint64_t position,
                          uint32_t row_count);
/* Handle one lease that an ACK lists. A lease that the session does not hold is counted as late. */
void trajd_lease_ack_done(struct trajd_core *core, struct session *session,
                          const struct trajd_wire_lease *lease);
void trajd_lease_ack_released(struct trajd_core *core, struct session *session,
                              const struct trajd_wire_lease *lease);
/* Returns true if the session holds a LEASED part, which has to be handed out again if it dies. */
bool trajd_leases_has_undone(const struct trajd_core *core, const struct session *session);
/* Marks the session's LEASED parts on the feed as abandoned. */
void trajd_leases_abandon(struct trajd_core_feed *feed, const struct session *session);
/* Takes back everything that a session holds which ends. is_dead: it ends without BYE. */
void trajd_leases_void(struct trajd_core *core, struct session *session, bool is_dead);
/* Compares the session's parts with the lists of its HELLO: takes back the parts that it does not
 * hold any more, and sends the BATCHes again that it has not received. */
void trajd_leases_resume(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_hello *hello);

/* ---- production.c: what each job needs, the next batch, and the states of slots ---- */

/* Allocates `count` parts of the job in every slot. Returns false if there is no memory. */
bool trajd_slots_make_room(const struct job *job, uint32_t count);
/* Frees a READY slot if each of its parts is RELEASED or VOID. */
void trajd_slot_free_unneeded(struct trajd_core_feed *feed, uint32_t index);

/* Returns true if the job can read the production from `start` on: the batches in slots and the
 * batches to come are all that it needs, except a few that can be made again. `job` may be a free
 * entry. */
bool trajd_job_can_attach(const struct job *job, uint64_t epoch, const struct trajd_wire_open *open,
                          const struct start *start);
/* Attaches the job to the production as it stands. */
void trajd_job_attach(struct job *job, const struct start *start);
/* Stops production so that the job can begin elsewhere. The job's PENDING parts become VOID. The
 * other jobs are dropped. They must have no sessions. */
void trajd_job_stop_production(struct job *job);
/* Begins production at `start`, for this job alone. */
void trajd_job_move_production(struct job *job, const struct start *start);
/* Keeps the batches that were produced ahead, for a job that begins its next epoch. */
void trajd_job_continue(struct job *job);
/* Detaches the job from the production and begins a new run of it: its PENDING parts become VOID,
 * its LEASED ones abandoned. */
void trajd_job_detach(struct job *job);
/* Frees the entry of a job that has no sessions. */
void trajd_job_drop(struct job *job);
/* Drops jobs without sessions while another job reads the feed: those that are not within an epoch,
 * and those whose last session sent BYE. */
void trajd_feed_drop_idle_jobs(struct trajd_core_feed *feed);

/* Does the work of trajd_core_publish. */
bool trajd_production_publish(struct trajd_core_feed *feed, const struct trajd_fill *fill,
                              const struct trajd_error *failure, uint64_t now_ns);

/* ---- job_resume.c: journals, checkpoints, and sessions that return ---- */

/* Loads the state in the job's journal. Returns false if there is no journal, or it is empty. */
bool trajd_job_load_journal(struct trajd_core_feed *feed, struct trajd_wire_text name,
                            struct trajd_journal_state *state);
/* Returns true if a session returns to an epoch after which the job has begun the next one. *later
 * is then the OPEN of that one. */
bool trajd_job_is_in_next_epoch(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                                struct trajd_wire_open *later);
/* Computes where an OPEN wants its job to begin: at its `next`, from its checkpoint, or from the
 * job's journal. `checkpoint` may be NULL. */
void trajd_job_find_start(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                          const struct trajd_journal_state *checkpoint, struct start *start);
/* Reports that a job which begins there repeats batches: the worker that returns was further, and
 * there is no journal of that. */
void trajd_job_report_unrecorded(const struct job *job, const struct trajd_wire_open *open,
                                 const struct start *start);
/* A pass whose begin could not be written has an odd number: workers that return to it do not
 * continue from an earlier journal. */
#define TRAJD_PASS_UNWRITTEN UINT64_C(1)
/* Opens the job's journal, if it is not open. Reports a failure and goes on without a journal. */
void trajd_job_use_journal(struct job *job);
/* Writes what has changed to the job's journal. Reports the first failure, and the end of it. */
void trajd_job_save_journal(struct job *job);
/* Does what a journal needs once a second. Reports as trajd_job_save_journal. */
void trajd_job_flush_journal(struct job *job);
/* Computes which batches of a queue job's epoch are DONE, for its journal or a checkpoint. */
void trajd_job_journal_state(const struct job *job, struct trajd_journal_state *state);

/* Returns how long sessions are waited for after the daemon's return, after earlier waits for some
 * of them. */
uint64_t trajd_rejoin_wait_ns(const struct trajd_core_feed *feed, uint32_t sessions,
                              const struct trajd_journal_wait *earlier);
/* Writes to the journal how many sessions the job has, with those that may still return, and how
 * long these have been waited for. */
void trajd_job_note_sessions(const struct job *job);
/* Writes to a journal that no production has open how long none of its sessions returned. Returns
 * false if that is not written. */
bool trajd_job_note_wait(const struct trajd_core_feed *feed, struct trajd_wire_text name,
                         const struct trajd_journal_state *state, uint64_t elapsed_ns);
/* Takes over what a session reports that has returned after the daemon's death (an OPEN that is not
 * fresh), after it has joined its job. */
void trajd_session_return(struct session *session, const struct trajd_wire_open *open);
/* Counts a batch as DONE that the session holds since before the daemon's return. Returns false if
 * it holds no such batch. */
bool trajd_session_finish_carried(struct session *session, uint64_t position);
/* Gives up all such batches of the session: other sessions get them. */
void trajd_session_drop_carried(struct session *session);
/* Ends the wait for sessions that have not returned, once rejoin_wait is over. Before that, notes
 * in the journal how long it has lasted. */
void trajd_job_end_return(struct job *job);

/* ---- jobs.c: epochs ---- */

/* Returns the position of the rank's first part that is not DONE. */
uint64_t trajd_rank_position(const struct job *job, uint32_t rank);
/* Moves the rank's PENDING parts before position `next` to RELEASED. */
void trajd_rank_skip(struct job *job, uint32_t rank, uint64_t next);
/* Allocates the ranks of the job, and its parts in every slot. Returns false if there is no memory.
 */
bool trajd_job_size_ranks(struct job *job, const struct trajd_wire_open *open);
/* Returns true if the OPEN begins the job's next epoch, and its batches were produced ahead. */
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
/* Begins and ends epochs and delivers batches, as far as the state allows. Public calls that change
 * jobs, sessions or slots end with this; take, touch and goaway do not. */
void trajd_feed_advance(struct trajd_core_feed *feed);

/* ---- job_verdict.c: where an OPEN goes ---- */

/* Returns the job of that name, or an entry for it: a free one, or the entry of another job if no
 * session reads the feed. NULL: there is none. */
struct job *trajd_job_find_entry(const struct trajd_core_feed *feed, const struct session *session,
                                 struct trajd_wire_text name);
/* Returns true if no user but that of the session can write into the ring. Over tcp that is a ring
 * without a mapping, or that of the session's own job. */
bool trajd_feed_admits(const struct trajd_core_feed *feed, const struct session *session,
                       struct trajd_wire_text job_name);
/* Returns true if the OPEN is the one that was granted last, sent again because the reply was lost.
 */
bool trajd_open_is_repeated(const struct session *session, const struct trajd_wire_open *open,
                            const struct trajd_core_feed *feed);
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

/* Returns true if the OPEN has to wait for workers of an earlier run; ERROR `busy` was sent. */
bool trajd_job_hold_back(struct trajd_core_feed *feed, struct session *session,
                         const struct trajd_wire_open *open);
/* Ends the session's wait after its OPEN has been granted. Reports it if the OPEN has begun an
 * epoch again. */
void trajd_job_end_wait(const struct trajd_core_feed *feed, struct session *session);

/* ---- job_open.c ---- */

/* Does the work of trajd_core_open for a session that is on no feed. */
enum trajd_status trajd_job_open(struct trajd_core_feed *feed, struct session *session,
                                 const struct trajd_wire_open *open);

/* ---- job_timeout.c ---- */

/* Ends the waits for absent ranks and slow jobs that have lasted too long. */
void trajd_feed_expire(struct trajd_core_feed *feed, uint64_t now_ns);
/* Tells the other ranks that a rank is gone which they will wait for. `session` is that of the rank,
 * and still on the feed. Does nothing in queue mode, and after the rank's last part. */
void trajd_rank_tell_gone(const struct session *session, bool sent_bye);
/* Tells the other ranks that the session's rank is back, if they were told that it is gone. */
void trajd_rank_tell_back(const struct session *session);

/* ---- core_feeds.c ---- */

void trajd_feed_free(struct trajd_core_feed *feed);

#endif
