/* A world around the core for the model test: producer, network and workers. Each seed is another
 * schedule of events. After every step the rules are checked against books, which are kept only
 * from the messages. */
#ifndef TRAJD_TESTS_MODEL_H
#define TRAJD_TESTS_MODEL_H

#include "daemon/feed/core.h"

#define MODEL_WORKERS 5
#define MODEL_SLOTS 6
#define MODEL_JOBS 3
#define MODEL_FEEDS 4 /* the feed and its instances */
#define MODEL_BATCHES 64
#define MODEL_QUEUE 160
#define MODEL_PACKET 1024

struct packet {
    size_t size;
    uint8_t bytes[MODEL_PACKET];
};

struct queue {
    uint32_t head, count;
    struct packet packets[MODEL_QUEUE];
};

enum worker_state {
    WORKER_ABSENT,
    WORKER_HELLO,   /* has to send HELLO */
    WORKER_GREETED, /* waits for WELCOME */
    WORKER_IDLE,    /* has to send OPEN */
    WORKER_OPENING, /* waits for OPENED */
    WORKER_RUNNING,
};

struct held {
    struct trajd_wire_lease lease;
    uint64_t epoch, position, seq;
    bool taken, done; /* the program has it; DONE was sent */
    bool abandoned;   /* by an OPEN: it can only be released, and goes back undone */
    bool carried;     /* of a daemon that has died */
};

struct worker {
    enum worker_state state;
    bool dying;   /* killed, but the daemon has not seen the end of file yet */
    bool stopped; /* by SIGSTOP */
    bool unreachable;
    bool is_remote;   /* its batches are sent from the slot itself */
    uint64_t session; /* id in the daemon; 0: none */
    bool has_token;
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    uint64_t instance;
    struct queue to_daemon, to_worker;
    uint32_t held_count;
    struct held held[TRAJD_WIRE_MAX_LEASES];
    uint64_t received, request;
    uint64_t epoch, next;    /* its position; next: for shard */
    bool knows_epoch;        /* it knows the epoch itself, not from its supervisor */
    bool may_hold_abandoned; /* it may hold leases that an OPEN has abandoned */
    bool joined;             /* OPENED has named `epoch` */
    bool resumes;            /* opens from the checkpoint */
    enum worker_state resumes_as;
    struct trajd_wire_open last_open;
    uint64_t ends;
    uint32_t refusals;
    uint32_t credit;
    struct trajd_wire_ack last_ack;
    struct trajd_wire_opened opened;  /* the last that was sent to it */
    bool is_lost;                     /* its daemon has died, and it has not opened again */
    uint64_t pass;                    /* as in OPENED */
    struct trajd_wire_positions done; /* the last DONEs of that pass */
    struct trajd_wire_positions kept; /* as in `held` of OPENED */
    /* what the daemon knows of the worker */
    bool member;
    uint64_t granted, seq_sent, end_epoch;
    bool end_sent;
};

/* One part of a slot, according to the messages. */
struct book {
    bool open, done, abandoned;
    uint32_t part; /* index among the job's ranks on this node */
    uint64_t session, seq, epoch, position;
    struct trajd_wire_lease lease;
};

/* What all jobs have in common: the daemon, its feeds, time. */
struct world {
    uint64_t random;
    uint64_t now_ns, instance, serial, started_ns;
    struct trajd_core *core;
    uint32_t feed_count;
    struct trajd_core_feed *feeds[MODEL_FEEDS];
    struct trajd_core_feed_options options;
    uint32_t fill_count[MODEL_FEEDS];
    struct trajd_fill fills[MODEL_FEEDS][MODEL_SLOTS];
    uint64_t generations[MODEL_FEEDS][MODEL_SLOTS];
    uint32_t sends[MODEL_FEEDS][MODEL_SLOTS]; /* frames of the slot that are being sent */
    uint32_t send_count;
    uint64_t mapped_by[MODEL_FEEDS]; /* the user whose workers have mapped the ring; 0: none */
    uint64_t done_total, core_done;
    uint32_t job_count;
    struct model *jobs; /* MODEL_JOBS */
    bool failed;
    size_t trace_length;
    char trace[1 << 20];
};

/* A job: its workers, and the books of its run. */
struct model {
    struct world *world;
    uint32_t index; /* of the job */
    char name[2];
    uint64_t seed;
    enum trajd_wire_mode mode;
    uint32_t worker_count, parts;
    uint32_t ranks;  /* the job's world; `parts` of them are on this node */
    bool has_remote; /* every second rank is on another node */
    struct worker workers[MODEL_WORKERS];
    struct book books[MODEL_FEEDS][MODEL_SLOTS][MODEL_JOBS][MODEL_WORKERS];
    /* the run: one pass through an epoch */
    bool has_run;
    uint64_t epoch, begin, pass;
    bool was_removed;                /* a worker has been removed since the run began */
    bool has_journal;                /* a batch was DONE */
    uint64_t continued_ns;           /* when this daemon has begun or continued it */
    uint64_t holders[MODEL_BATCHES]; /* sessions that hold batches since before its return */
    uint8_t done[MODEL_WORKERS][MODEL_BATCHES], delivered[MODEL_WORKERS][MODEL_BATCHES];
    uint32_t ends_to_check;
    struct {
        uint32_t worker;
        struct trajd_wire_epoch_end end;
    } ends[MODEL_QUEUE];
    /* the last checkpoint; returns: the job was stopped to begin from it */
    bool returns;
    uint32_t token_size;
    uint8_t token[MODEL_PACKET];
    uint64_t token_epoch, token_begin;
    uint8_t token_done[MODEL_BATCHES];
};

/* books.c: keeps the books from the messages, and compares them with the rules */
uint32_t model_rank(const struct model *model, uint32_t index);
/* Returns the rank's first position that is not DONE. */
uint64_t model_frontier(const struct model *model, uint32_t rank);
uint64_t model_epoch_begin(const struct model *model, uint64_t epoch);
void books_note_batch(struct model *model, uint32_t index, const struct trajd_wire_batch *batch);
void books_note_checkpoint(struct model *model, const struct trajd_wire_checkpointed *checkpointed);
/* Takes the report of a session that has returned, and compares it with what OPENED says. */
void books_return(struct model *model, struct worker *worker, const struct trajd_wire_open *open,
                  const struct trajd_wire_opened *opened);
/* Checks that no living worker has the batch, or has finished it. */
void books_check_repeat(struct model *model, uint64_t position);
bool books_is_over(const struct model *model); /* every batch of the run is DONE */
void books_ack(struct model *model, struct worker *worker, const struct trajd_wire_ack *ack);
void books_resume(struct model *model, struct worker *worker, const struct trajd_wire_hello *hello);
void books_abandon(struct model *model, const struct worker *worker,
                   uint64_t up_to);                                 /* up_to: a seq */
void books_close(struct model *model, const struct worker *worker); /* its session is over */
void books_set_rank_position(struct model *model, uint32_t index, uint64_t next);
void books_check_unread(struct model *model, uint32_t feed, uint32_t slot);
void books_check(struct model *model);

/* model.c: the daemon's side */
void model_fail(struct model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
void model_trace(struct model *model, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t model_random(struct model *model, uint64_t limit);
void model_start_daemon(struct world *world);
void model_kill_daemon(struct world *world);
/* The daemon receives one message of the worker. */
void model_receive(struct model *model, uint32_t index);
void model_acknowledge(struct model *model, uint32_t index, const struct trajd_wire_ack *ack);
void model_end_session(struct model *model, uint32_t index);
void model_checkpoint(struct model *model, uint32_t index);
void world_finish_send(struct world *world); /* one of them, at random */
uint64_t world_random(struct world *world, uint64_t limit);
bool queue_push(struct queue *queue, const struct trajd_wire_message *message);
struct packet *queue_pop(struct queue *queue);

/* model_production.c */
void world_take(struct world *world, uint32_t feed);
void world_publish(struct world *world, uint32_t feed);
void world_tick(struct world *world);
void world_check(struct world *world);

/* workers.c */
void worker_start(struct model *model, uint32_t index);
void worker_connect(struct model *model, uint32_t index);
void worker_open(struct model *model, uint32_t index, bool wild);
void worker_receive(struct model *model, uint32_t index);
void worker_act(struct model *model, uint32_t index);
void worker_finish(struct model *model, uint32_t index); /* takes and releases everything */
void worker_ack_wild(struct model *model, uint32_t index);
void worker_disconnect(struct model *model, uint32_t index);

#endif
