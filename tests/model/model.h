/* A world around the core for the model test: producer, network, workers; each seed is another schedule of
 * what can happen. What must hold is checked after every step against books that are kept here, from messages
 * alone. */
#ifndef TRAJD_TESTS_MODEL_H
#define TRAJD_TESTS_MODEL_H

#include "daemon/feed/core.h"

#define MODEL_WORKERS 5
#define MODEL_SLOTS 6
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
    WORKER_HELLO,   /* has to say HELLO */
    WORKER_GREETED, /* waits for WELCOME */
    WORKER_IDLE,    /* has to OPEN */
    WORKER_OPENING, /* waits for OPENED */
    WORKER_RUNNING,
};

struct held {
    struct trajd_wire_lease lease;
    uint64_t epoch, position, seq;
    bool taken, done; /* the program has it; has said DONE */
    bool left;        /* by an OPEN: only a release can be said of it, and gives it back undone */
};

struct worker {
    enum worker_state state;
    bool dying;   /* killed, its end of file not noticed yet */
    bool stopped; /* SIGSTOP */
    bool unreachable;
    uint64_t session; /* the daemon's, 0: none bound */
    bool has_token;
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE];
    uint64_t instance;
    struct queue to_daemon, to_worker;
    uint32_t held_count;
    struct held held[TRAJD_WIRE_MAX_LEASES];
    uint64_t received, request;
    uint64_t epoch, next; /* where it stands; next: of shard */
    bool knows_epoch;     /* by itself, not from its supervisor */
    bool has_left;        /* it may hold leases that an OPEN left */
    bool joined;          /* OPENED has named `epoch` */
    enum worker_state resumes_as;
    struct trajd_wire_open last_open;
    uint64_t ends;
    uint32_t refusals;
    uint32_t credit;
    struct trajd_wire_ack last_ack;
    /* the daemon's side of the books */
    bool member;
    uint64_t granted, seq_sent, end_epoch;
    bool end_sent;
};

/* Who has what, by what was sent. */
struct book {
    bool open, done, abandoned;
    uint32_t worker;
    uint64_t session, generation, seq, epoch, position;
};

struct model {
    uint64_t seed, random;
    uint64_t now_ns, instance, serial;
    struct trajd_core *core;
    struct trajd_core_feed *feed;
    struct trajd_core_feed_options options;
    enum trajd_wire_mode mode;
    uint32_t worker_count, parts;
    struct worker workers[MODEL_WORKERS];
    uint32_t fill_count;
    struct trajd_core_fill fills[MODEL_SLOTS];
    uint64_t generations[MODEL_SLOTS];
    struct book books[MODEL_SLOTS][MODEL_WORKERS];
    /* the run: one passage through an epoch */
    bool has_run;
    uint64_t epoch, begin;
    uint8_t done[MODEL_WORKERS][MODEL_BATCHES], delivered[MODEL_WORKERS][MODEL_BATCHES];
    uint64_t done_total, core_done;
    uint32_t ends_to_check;
    struct {
        uint32_t worker;
        struct trajd_wire_epoch_end end;
    } ends[MODEL_QUEUE];
    bool failed;
    size_t trace_length;
    char trace[1 << 20];
};

/* model.c: the daemon's side and the books */
void model_fail(struct model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
void model_trace(struct model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t model_random(struct model *model, uint64_t limit);
void model_start_daemon(struct model *model);
void model_kill_daemon(struct model *model);
void model_receive(struct model *model, uint32_t index); /* the daemon takes one message of worker index */
void model_acknowledge(struct model *model, uint32_t index, const struct trajd_wire_ack *ack);
void model_end_session(struct model *model, uint32_t index);
void model_take(struct model *model);
void model_publish(struct model *model);
void model_tick(struct model *model);
void model_check(struct model *model);
uint64_t model_frontier(const struct model *model, uint32_t rank); /* first position that is not DONE */
uint64_t model_epoch_begin(const struct model *model, uint64_t epoch);
bool queue_push(struct queue *queue, const struct trajd_wire_message *message);
struct packet *queue_pop(struct queue *queue);

/* workers.c */
void worker_start(struct model *model, uint32_t index);
void worker_connect(struct model *model, uint32_t index);
void worker_open(struct model *model, uint32_t index, bool wild);
void worker_receive(struct model *model, uint32_t index);
void worker_act(struct model *model, uint32_t index);
void worker_finish(struct model *model, uint32_t index); /* fair: take and give back all there is */
void worker_ack_wild(struct model *model, uint32_t index);
void worker_disconnect(struct model *model, uint32_t index);

#endif
