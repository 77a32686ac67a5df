/* The functions that the files of the core call of each other. Only this folder includes it.
 *
 * Calls go one way. A file calls only files on lines below its own:
 *
 *     core.c                         public calls
 *     core_feeds.c, job_open.c, job_timeout.c
 *     job_verdict.c
 *     jobs.c                         epochs
 *     sessions.c
 *     production.c, job_resume.c, leases.c
 *     slots.c, stall_time.c
 *     feed_state.c
 *     journal.c, checkpoint_token.c
 *
 * When the last part of an epoch becomes DONE, the function that marks it only counts
 * job.parts_remaining down to 0. trajd_feed_advance, at the end of every public call, sees that and
 * ends the epoch. */
#ifndef TRAJD_FEED_FEED_INTERNAL_H
#define TRAJD_FEED_FEED_INTERNAL_H

#include "daemon/feed/feed_state.h"

/* ---- stall_time.c ---- */

/* Adds the time since the last call to the stall times of the sessions and jobs that held up
 * production. Public calls do this before they change what is READY or leased. */
void trajd_feed_account(struct trajd_core_feed *feed, uint64_t now_ns);
/* Divides the time that sessions have waited for a batch among the work that the batch took. A
 * publish does it. */
void trajd_feed_explain_waits(struct trajd_core_feed *feed, const struct trajd_core_fill *fill);

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

/* Delivery: which session gets which READY part. */

/* Sends the BATCH of a leased part. */
void trajd_part_send(const struct place *place, struct session *session);
/* Leases the job's PENDING parts to its sessions, as far as their credit allows. */
void trajd_job_deliver(struct job *job);

/* ---- leases.c: the life of a part from LEASED on ---- */

/* Counts a batch of that many rows as DONE, also in the journal of a queue job. */
void trajd_job_count_done(struct job *job, struct session *session, uint64_t position,
                          uint32_t row_count);
/* Moves the part from LEASED to DONE, and counts it. */
void trajd_lease_done(const struct place *place, struct session *session);
/* Takes the part back from its session. An abandoned part becomes PENDING (or VOID); any other part
 * becomes RELEASED and counts as DONE. */
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
/* Compares the session's parts with the lists of its HELLO: takes back the parts that it does not
 * hold any more, and sends the BATCHes again that it has not received. */
void trajd_leases_resume(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_hello *hello);

/* ---- production.c: what each job needs, and the next batch ---- */

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
/* Returns true if the job needs that batch, and notes that the job gets it. is_new: true: the batch
 * was at the cursor and is made for the first time; false: it is made again. */
bool trajd_job_take_batch(struct job *job, uint64_t epoch, uint64_t position, bool is_new);
/* Frees the entry of a job that has no sessions. */
void trajd_job_drop(struct job *job);
/* Drops jobs without sessions while another job reads the feed: those that are not within an epoch,
 * and those whose last session sent BYE. */
void trajd_feed_drop_idle_jobs(struct trajd_core_feed *feed);

/* Do the work of trajd_core_take and trajd_core_publish. */
enum trajd_status trajd_production_take(struct trajd_core_feed *feed, struct trajd_core_fill *fill);
bool trajd_production_publish(struct trajd_core_feed *feed, const struct trajd_core_fill *fill,
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

/* Writes to the journal how many sessions the job has, with those that may still return. */
void trajd_job_note_sessions(const struct job *job);
/* Takes over what a session reports that has returned after the daemon's death (an OPEN that is not
 * fresh), after it has joined its job. */
void trajd_session_return(struct session *session, const struct trajd_wire_open *open);
/* Counts a batch as DONE that the session holds since before the daemon's return. Returns false if
 * it holds no such batch. */
bool trajd_session_finish_carried(struct session *session, uint64_t position);
/* Gives up all such batches of the session: other sessions get them. */
void trajd_session_drop_carried(struct session *session);
/* Ends the wait for sessions that have not returned, once rejoin_wait is over. */
void trajd_job_end_return(struct job *job, uint64_t now_ns);

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

/* Returns true if the job's epoch can begin on its feed: anywhere if no other job reads the feed,
 * else only where the others are. */
bool trajd_job_has_place(const struct job *job, const struct trajd_wire_open *open,
                         const struct start *start);
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
/* Does the work of trajd_core_choose. */
struct trajd_core_feed *trajd_feed_choose(struct trajd_core *core, const struct session *session,
                                          const struct trajd_wire_open *open,
                                          struct trajd_core_feed *feed);

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
 * epoch anew. */
void trajd_job_end_wait(const struct trajd_core_feed *feed, struct session *session);

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
