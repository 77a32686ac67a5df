/* The core's insides, shared by core.c, stall_time.c, slots.c, leases.c, job_cursor.c,
 * job_resume.c, jobs.c, job_timeout.c, job_open.c and sessions.c. Nobody else includes this.
 *
 * Calls go one way: sessions, opens, absence -> jobs -> starts, claims -> leases -> slots ->
 * trajd_core_send. What ends an epoch (a part that is DONE) is told upwards by numbers
 * (job.parts_left), looked at by trajd_feed_advance at the end of every public call. */
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
struct share {
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
    struct share *shares; /* by the jobs' indexes */
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
    uint64_t asked;                /* `next` of the OPEN that began the epoch */
    uint64_t begin;                /* where batches are counted from */
    uint64_t parts_left;           /* not DONE */
    uint64_t token_check;          /* of the checkpoint that the epoch began from, 0: of none */
    uint64_t past_token;           /* the same of the epoch before */
    struct trajd_wire_ranks local; /* shard: those on this node; none: all */
    struct rank *ranks;            /* shard: world of them */
    struct trajd_journal *journal;
    char journal_job[TRAJD_WIRE_MAX_NAME + 1];

    uint64_t run_id; /* of its claims; ends when it begins elsewhere */
    /* it is on the production: from claim_begin of its epoch on every batch is claimed */
    bool claims;
    uint64_t claim_begin;
    uint64_t high;       /* position behind all that was claimed of the epoch */
    uint32_t todo_count; /* below high, neither DONE nor in a slot: come before anything new */
    uint64_t todo[TRAJD_JOURNAL_MAX_UNDONE];

    bool said_bye;       /* its last session has gone in good order */
    uint64_t held_up_ns; /* it has kept others waiting for so long now */
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
    uint64_t asked, begin, high; /* positions */
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
    struct trajd_error sent_away;
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
    struct trajd_journal_state recalled, recorded, resumed;
    struct start start;
};

/* sessions.c */
struct session *trajd_session_find(const struct trajd_core *core, uint64_t id);
void trajd_core_send(struct session *session, const struct trajd_core *core,
                     const struct trajd_wire_message *message);
void trajd_core_send_error(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           const struct trajd_error *error);
void trajd_session_refuse(struct trajd_core *core, struct session *session, uint64_t request,
                          enum trajd_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* It has left its feed, not by its own will: says why. */
void trajd_session_send_away(struct trajd_core *core, struct session *session,
                             enum trajd_status status, const char *reason);

/* slots.c: the life of a slot, and who is sent what */
struct slot *trajd_slot_of_lease(struct trajd_core *core, const struct trajd_wire_lease *lease,
                                 struct trajd_core_feed **feed);
void trajd_slot_settle(struct trajd_core_feed *feed, uint32_t index); /* FREE if nobody needs it */
/* of a run that is over: what is published, and not READY */
void trajd_slots_forget(struct trajd_core_feed *feed);
void trajd_slots_deliver(struct job *job);
void trajd_slot_send(const struct place *place, struct session *session);
void trajd_part_rows(const struct job *job, uint32_t row_count, uint32_t part_index,
                     uint32_t *begin, uint32_t *count);
/* The job's parts of a slot in use that count for its epoch; NULL: it has none. */
struct share *trajd_slot_share(const struct slot *slot, const struct job *job);
/* Parts of a job in every slot, for one that comes to what is there; false without memory. */
bool trajd_slots_make_room(const struct job *job, uint32_t count);
/* PENDING for the job, or RELEASED where a rank stands further on. */
void trajd_share_begin(const struct job *job, struct slot *slot);

/* leases.c: from LEASED on */
void trajd_lease_done(const struct place *place, struct session *session);
void trajd_lease_release(const struct place *place, struct session *session);
void trajd_leases_abandon(struct trajd_core_feed *feed, const struct session *session);
void trajd_leases_void(struct trajd_core *core, struct session *session); /* it is dead */
void trajd_leases_resume(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_hello *hello);

/* job_cursor.c: where jobs stand on the production of a feed, and what they need of it */
uint64_t trajd_batches_from(const struct trajd_core_feed *feed, uint64_t position);
uint64_t trajd_epoch_end(const struct trajd_core_feed *feed,
                         uint64_t begin);         /* position behind the last batch */
bool trajd_job_has_rivals(const struct job *job); /* another job of the feed has sessions */
/* What is in slots, and what is to come, has all that the job needs from there on (of a free entry,
 * too). */
bool trajd_job_can_attach(const struct job *job, uint64_t epoch, const struct trajd_wire_open *open,
                          const struct start *start);
void trajd_job_attach(struct job *job, const struct start *start);
/* Production stops, for this job to move it: what was not leased is void, the others, which nobody
 * is left of, are dropped. */
void trajd_job_retire(struct job *job);
/* production begins there, for it alone */
void trajd_job_move(struct job *job, const struct start *start);
/* The epoch that was produced ahead is the one that begins. */
void trajd_job_keep(struct job *job);
void trajd_job_detach(struct job *job); /* needs nothing any more; a life ends */
/* Does the job need that batch? Notes that it has been claimed. is_new: it lies at the cursor. */
bool trajd_job_claim(struct job *job, uint64_t epoch, uint64_t position, bool is_new);
/* not on the feed any more; it has no members */
void trajd_job_drop(struct job *job);
/* drops jobs that nobody comes back to, where others read */
void trajd_feed_reap(struct trajd_core_feed *feed);

/* job_resume.c: journals and checkpoints */
/* Where an OPEN wants its job to begin: as it says, from its checkpoint, or from what a journal
 * keeps. */
void trajd_job_plan(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                    const struct trajd_journal_state *token, struct start *start);
void trajd_job_use_journal(struct job *job);
/* What of a queue job's epoch is DONE: of its journal, and of a checkpoint. */
void trajd_job_record(const struct job *job, struct trajd_journal_state *state);

/* jobs.c: epochs */
bool trajd_job_is(const struct job *job,
                  const struct trajd_wire_open *open); /* the same name, mode, world, ranks here */
struct job *trajd_job_find(const struct trajd_core_feed *feed, struct trajd_wire_text name);
/* false without memory */
bool trajd_job_size_ranks(struct job *job, const struct trajd_wire_open *open);
/* With what was produced ahead, whose batches are counted from 0. */
bool trajd_job_goes_on(const struct job *job, const struct trajd_wire_open *open,
                       const struct start *start);
void trajd_job_begin(struct job *job, const struct trajd_wire_open *open,
                     const struct start *start);
uint32_t trajd_job_reader_count(const struct job *job); /* parts of a batch that are read here */
void trajd_job_end_epoch(struct job *job);
/* An epoch whose batches were counted from `begin` is over for a session: notes and sends it. */
void trajd_job_tell_end(const struct job *job, struct session *session, uint64_t begin);
/* of its first part that is not DONE */
uint64_t trajd_rank_position(const struct job *job, uint32_t rank);
/* it does not need what lies before */
void trajd_rank_skip(struct job *job, uint32_t rank, uint64_t next);
void trajd_job_leave(struct session *session, uint64_t now_ns);
/* begins, ends, delivers, as far as things stand */
void trajd_feed_advance(struct trajd_core_feed *feed);
void trajd_job_send_opened(struct session *session);
void trajd_job_send_end(struct session *session); /* session->end */

/* job_timeout.c */
/* ends waits that have lasted too long */
void trajd_feed_expire(struct trajd_core_feed *feed, uint64_t now_ns);

/* stall_time.c */
/* stalls, before anything changes */
void trajd_feed_account(struct trajd_core_feed *feed, uint64_t now_ns);

/* core.c */
bool trajd_feed_wants(const struct trajd_core_feed *feed); /* there is something to produce */
void trajd_feed_wake(struct trajd_core_feed *feed);
/* in names of families: what follows says where it is made (trajd_feed_gpu_name) */
#define TRAJD_PLACE_MARK '@'
/* The name that all productions of a feed have in common, wherever they are: journals go by it. */
void trajd_feed_base_name(const struct trajd_core_feed *feed, char name[TRAJD_WIRE_MAX_NAME + 1]);

#endif
