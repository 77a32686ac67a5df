/* The state of the core: feeds, slots, parts, jobs, sessions. The functions below look things up in
 * the state, and send messages.
 *
 * feed_internal.h has the functions of the other files. Only this folder includes the two. */
#ifndef TRAJD_FEED_FEED_STATE_H
#define TRAJD_FEED_FEED_STATE_H

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
     * todo: no session gets one until all are back, or awaited_until_ns. */
    uint32_t awaited;
    uint64_t awaited_until_ns;

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
    /* Its fresh OPEN is held back since then, as workers of an earlier run may return. 0: it is
     * not. */
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
    char report[512]; /* why the OPEN under way begins an epoch anew; empty: no reason to tell */
};

/* ---- functions ---- */

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
/* Returns true if a session holds a part of the feed that is LEASED or DONE. */
bool trajd_feed_has_leases(const struct trajd_core_feed *feed);
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

#endif
