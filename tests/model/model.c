/* The daemon's side of the model: callbacks, sessions, OPEN. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY (UINT64_C(1) << 63) /* and the job: the owner of its remote sessions */

void model_trace(struct model *model, const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof model->world->trace - model->world->trace_length;
    int length;

    if (room < 256)
        return;
    va_start(arguments, format);
    length =
        vsnprintf(model->world->trace + model->world->trace_length, room - 1, format, arguments);
    va_end(arguments);
    model->world->trace_length += (size_t)length < room - 1 ? (size_t)length : room - 2;
    model->world->trace[model->world->trace_length++] = '\n';
    model->world->trace[model->world->trace_length] = '\0';
}

void model_fail(struct model *model, const char *format, ...)
{
    char message[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!model->world->failed)
        fprintf(stderr, "%s\n", message);
    model->world->failed = true;
}

uint64_t world_random(struct world *world, uint64_t limit)
{
    uint64_t value = world->random += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return (value ^ value >> 31) % limit;
}

uint64_t model_random(struct model *model, uint64_t limit)
{
    return world_random(model->world, limit);
}

bool queue_push(struct queue *queue, const struct trajd_wire_message *message)
{
    struct packet *packet = &queue->packets[(queue->head + queue->count) % MODEL_QUEUE];

    if (queue->count == MODEL_QUEUE ||
        trajd_wire_encode(message, packet->bytes, MODEL_PACKET, &packet->size, NULL))
        return false;
    queue->count++;
    return true;
}

struct packet *queue_pop(struct queue *queue)
{
    struct packet *packet = &queue->packets[queue->head];

    if (!queue->count)
        return NULL;
    queue->head = (queue->head + 1) % MODEL_QUEUE;
    queue->count--;
    return packet;
}

static uint32_t feed_of_ring(const struct world *world, uint32_t ring)
{
    uint32_t feed = 0;

    while (feed < world->feed_count && trajd_core_feed_id(world->feeds[feed]) != ring)
        feed++;
    return feed;
}

static void add_send(struct world *world, const struct trajd_wire_batch *batch)
{
    const uint32_t feed = feed_of_ring(world, batch->ring);

    if (feed == world->feed_count || batch->slot >= MODEL_SLOTS)
        return; /* the books report this error */
    world->sends[feed][batch->slot]++;
    world->send_count++;
}

static void on_send(void *context, uint64_t session, void *user,
                    const struct trajd_wire_message *message)
{
    struct world *world = context;
    uint32_t index = (uint32_t)(uintptr_t)user % MODEL_WORKERS;
    struct model *model = &world->jobs[(uintptr_t)user / MODEL_WORKERS];
    struct worker *worker = &model->workers[index];

    worker->session = session;
    if (message->op == TRAJD_WIRE_CHECKPOINTED) {
        books_note_checkpoint(model, &message->checkpointed);
        return;
    }
    if (message->op == TRAJD_WIRE_BATCH)
        books_note_batch(model, index, &message->batch);
    if (message->op == TRAJD_WIRE_BATCH && worker->is_remote)
        add_send(world, &message->batch);
    if (message->op == TRAJD_WIRE_OPENED)
        worker->opened = message->opened;
    if (message->op == TRAJD_WIRE_ERROR &&
        message->error.request == 0) { /* removed from its feed */
        model->was_removed = true;
        worker->member = false;
        books_abandon(model, worker, UINT64_MAX);
    }
    if (message->op == TRAJD_WIRE_EPOCH_END && model->ends_to_check < MODEL_QUEUE) {
        model->ends[model->ends_to_check].worker = index;
        model->ends[model->ends_to_check++].end = message->epoch_end;
    }
    if (!worker->unreachable && !queue_push(&worker->to_worker, message))
        model_fail(model, "cannot send op %d to worker %u", message->op, index);
}

static bool on_is_in_flight(void *context, struct trajd_core_feed *feed, uint32_t slot)
{
    const struct world *world = context;

    return world->sends[feed_of_ring(world, trajd_core_feed_id(feed))][slot] > 0;
}

void world_finish_send(struct world *world)
{
    uint64_t which = world->send_count ? world_random(world, world->send_count) : 0;

    if (!world->send_count)
        return;
    for (uint32_t f = 0; f < world->feed_count; f++)
        for (uint32_t s = 0; s < MODEL_SLOTS; s++) {
            if (which < world->sends[f][s]) {
                world->sends[f][s]--;
                world->send_count--;
                return;
            }
            which -= world->sends[f][s];
        }
}

static void on_wake(void *context, struct trajd_core_feed *feed)
{
    struct trajd_core_feed_info info;

    trajd_core_feed_info(feed, &info);
    if (!info.slots_free)
        model_fail(&((struct world *)context)->jobs[0], "woken without a FREE slot");
}

/* ---- start and death of the daemon ---- */

static void add_feed(struct world *world, uint32_t feed)
{
    struct trajd_core_feed_options options = world->options;
    struct trajd_error error = {0};
    char name[16];

    snprintf(name, sizeof name, "feed#%u", feed + 1);
    if (feed) {
        options.instance_of = options.name;
        options.name = name;
    }
    if (trajd_core_add_feed(world->core, &options, &world->feeds[feed], &error))
        model_fail(&world->jobs[0], "add_feed: %s", error.message);
    memset(world->generations[feed], 0, sizeof world->generations[feed]);
    world->fill_count[feed] = 0;
    world->mapped_by[feed] = 0;
}

void model_start_daemon(struct world *world)
{
    struct trajd_core_options options = {.instance_id = ++world->instance,
                                         .max_sessions = 2 * MODEL_JOBS * MODEL_WORKERS,
                                         .version = "model",
                                         .send = on_send,
                                         .wake = on_wake,
                                         .is_in_flight = on_is_in_flight,
                                         .context = world};
    struct trajd_error error = {0};

    model_trace(&world->jobs[0], "daemon starts as instance %llu",
                (unsigned long long)world->instance);
    if (trajd_core_create(&options, &world->core, &error))
        model_fail(&world->jobs[0], "start: %s", error.message);
    world->feed_count = 1;
    add_feed(world, 0);
    for (uint32_t j = 0; j < world->job_count; j++)
        memset(world->jobs[j].books, 0, sizeof world->jobs[j].books);
    memset(world->sends, 0, sizeof world->sends);
    world->send_count = 0;
    world->core_done = world->done_total;
    world->started_ns = world->now_ns;
}

/* The worker keeps the batches of its epoch that it has not finished. */
static void carry_held(struct model *model, struct worker *worker)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < worker->held_count; i++) {
        struct held *held = &worker->held[i];
        if (model->mode != TRAJD_WIRE_QUEUE || !worker->joined || held->done || held->abandoned ||
            held->epoch != worker->epoch || worker->state == WORKER_ABSENT)
            continue;
        held->carried = true;
        worker->held[kept++] = *held;
    }
    worker->held_count = kept;
    worker->kept.count = 0;
    worker->is_lost = worker->joined;
}

static void lose_daemon(struct model *model)
{
    memset(model->holders, 0, sizeof model->holders);
    model->continued_ns = UINT64_MAX;
    for (uint32_t i = 0; i < model->worker_count; i++) {
        struct worker *worker = &model->workers[i];
        worker->session = 0;
        worker->member = worker->end_sent = worker->unreachable = false;
        worker->to_daemon.count = worker->to_worker.count = 0;
        if (worker->dying) {
            worker->state = WORKER_ABSENT;
            worker->dying = false;
        }
        carry_held(model, worker);
        if (worker->state != WORKER_ABSENT)
            worker->state = WORKER_HELLO;
        if (model->mode == TRAJD_WIRE_SHARD && worker->state != WORKER_ABSENT &&
            worker->epoch == model->epoch && model->has_run && worker->knows_epoch)
            books_set_rank_position(model, i, worker->next);
    }
}

void model_kill_daemon(struct world *world)
{
    model_trace(&world->jobs[0], "daemon dies");
    trajd_core_destroy(&world->core);
    for (uint32_t j = 0; j < world->job_count; j++)
        lose_daemon(&world->jobs[j]);
}

/* Two of three jobs are of the same user. */
static uint64_t user_of(const struct model *model)
{
    return 1000 + model->index % 2;
}

static void bind_hello(struct model *model, uint32_t index, const struct trajd_wire_hello *hello)
{
    struct worker *worker = &model->workers[index];
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE] = {0};
    void *replaced, *user = (void *)(uintptr_t)(model->index * MODEL_WORKERS + index);
    struct trajd_error error;
    bool resumed;

    worker->unreachable = false;
    model->world->serial++;
    memcpy(token, &model->world->serial, sizeof model->world->serial);
    if (trajd_core_hello(model->world->core, hello, token, user, model->world->now_ns,
                         &worker->session, &resumed, &replaced, &error)) {
        model_fail(model, "HELLO: %s", error.message);
        return;
    }
    if (resumed)
        books_resume(model, worker, hello);
    else
        worker->seq_sent = 0;
    worker->end_sent = false;
    if (!resumed) {
        worker->member = false;
        trajd_core_set_owner(model->world->core, worker->session,
                             worker->is_remote ? KEY | model->index : user_of(model),
                             !worker->is_remote);
    }
    trajd_core_welcome(model->world->core, worker->session, hello, model->world->now_ns);
}

/* Checks that a run is not begun again as long as workers of the run before may return. */
static void check_waited(struct model *model)
{
    const uint64_t wait_ns = model->world->options.rejoin_wait_ns;

    if (model->mode != TRAJD_WIRE_QUEUE || !model->pass || model->was_removed ||
        !model->has_journal || books_is_over(model) ||
        model->world->now_ns - model->world->started_ns >= wait_ns)
        return;
    for (uint32_t i = 0; i < model->worker_count; i++)
        if (model->workers[i].is_lost && model->workers[i].pass == model->pass &&
            model->workers[i].state != WORKER_ABSENT && !model->workers[i].dying)
            model_fail(model, "epoch %llu is begun again before worker %s%u has returned",
                       (unsigned long long)model->epoch, model->name, i);
}

static void begin_run(struct model *model, const struct trajd_wire_open *open)
{
    model_trace(model, "job %s: run of epoch %llu from %llu%s", model->name,
                (unsigned long long)open->epoch, (unsigned long long)open->next,
                open->resume.size ? ", of the checkpoint" : "");
    if (open->fresh && !open->resume.size && !open->next)
        check_waited(model);
    model->has_run = true;
    model->was_removed = false;
    model->pass = 0;
    model->continued_ns = model->world->now_ns;
    memset(model->holders, 0, sizeof model->holders);
    model->epoch = open->epoch;
    model->begin = open->next;
    memset(model->done, 0, sizeof model->done);
    memset(model->delivered, 0, sizeof model->delivered);
    if (!open->resume.size)
        return;
    model->begin = model->token_begin;
    memcpy(model->done[0], model->token_done, sizeof model->token_done);
}

/* Returns true if a user has mapped the ring of the feed, and no session reads or holds a batch. */
static bool is_used(const struct world *world, uint32_t feed)
{
    struct trajd_core_feed_info info;
    uint32_t sends = 0;

    for (uint32_t s = 0; s < MODEL_SLOTS; s++)
        sends += world->sends[feed][s];
    trajd_core_feed_info(world->feeds[feed], &info);
    return info.has_user && !info.members && !info.has_leases && !sends;
}

/* Makes a feed again that another user has mapped, or another instance. Returns false if there is
 * room for neither. */
static bool make_instance(struct world *world)
{
    uint32_t feed = 0;

    while (feed < world->feed_count && !is_used(world, feed))
        feed++;
    if (feed == MODEL_FEEDS)
        return false;
    if (feed < world->feed_count) {
        model_trace(&world->jobs[0], "feed %u is made again", feed);
        trajd_core_remove_feed(world->core, &world->feeds[feed], world->now_ns);
    } else {
        world->feed_count++;
    }
    add_feed(world, feed);
    return true;
}

static struct trajd_core_feed *choose_feed(struct model *model, uint32_t index,
                                           const struct trajd_wire_open *open)
{
    struct world *world = model->world;
    struct trajd_core_feed *feed =
        trajd_core_choose(world->core, model->workers[index].session, open, world->feeds[0]);

    if (!feed && make_instance(world)) {
        feed = trajd_core_choose(world->core, model->workers[index].session, open, world->feeds[0]);
        if (!feed)
            model_fail(model, "a new instance is not chosen");
    }
    return feed ? feed : world->feeds[0];
}

/* Checks that no ring is read that another user could write to. */
static void note_mapping(struct model *model, const struct worker *worker,
                         const struct trajd_core_feed *feed)
{
    struct world *world = model->world;
    uint64_t *mapped_by = &world->mapped_by[feed_of_ring(world, trajd_core_feed_id(feed))];

    if (!worker->member || !world->options.is_for_one_user)
        return;
    if (*mapped_by && *mapped_by != user_of(model))
        model_fail(model, "job %s reads a ring of user %llu", model->name,
                   (unsigned long long)*mapped_by);
    if (!worker->is_remote)
        *mapped_by = user_of(model);
}

static void note_return(struct model *model, struct worker *worker,
                        const struct trajd_wire_open *open)
{
    const struct trajd_wire_opened *opened = &worker->opened;

    /* such a worker, of trajd 0.1.0 or one that was removed, takes the place of one that returns */
    for (uint32_t i = 0; !open->fresh && !open->pass && i < model->worker_count; i++)
        model->was_removed |= model->workers[i].is_lost;
    if (model->continued_ns == UINT64_MAX)
        model->continued_ns = model->world->now_ns;
    if (opened->pass && (!model->pass || !model->has_journal))
        model->pass = opened->pass;
    if (opened->pass && opened->pass != model->pass)
        model_fail(model, "OPENED has pass %llx, the run has %llx",
                   (unsigned long long)opened->pass, (unsigned long long)model->pass);
    books_return(model, worker, open, opened);
}

static void open_feed(struct model *model, uint32_t index, const struct trajd_wire_open *open)
{
    struct worker *worker = &model->workers[index];
    bool is_alone = true, is_same = model->has_run && open->epoch == model->epoch, begins;
    struct trajd_core_feed *feed = choose_feed(model, index, open);
    uint64_t seq_before = worker->seq_sent;

    if (worker->member && worker->granted == open->request) { /* a repeated OPEN changes nothing */
        trajd_core_open(model->world->core, worker->session, open, feed, model->world->now_ns);
        return;
    }
    for (uint32_t i = 0; i < model->worker_count; i++)
        is_alone &= i == index || !model->workers[i].member;
    begins = is_same ? is_alone && open->fresh : is_alone || open->epoch + 1 != model->epoch;
    /* a worker that has not heard of the end of its epoch does not begin that epoch again */
    if (model->mode == TRAJD_WIRE_QUEUE && !open->fresh && open->epoch + 1 == model->epoch)
        begins = false;
    if (is_same && model->mode == TRAJD_WIRE_SHARD)
        begins = model->parts == 1 && is_alone &&
                 open->fresh; /* ranks come back one by one, and each knows its position */
    if (is_same && model->mode == TRAJD_WIRE_SHARD && !open->fresh)
        books_set_rank_position(model, index, open->next);
    worker->member =
        !trajd_core_open(model->world->core, worker->session, open, feed, model->world->now_ns);
    note_mapping(model, worker, feed);
    worker->end_sent = false;
    books_abandon(model, worker, seq_before);
    worker->granted = open->request;
    if (worker->member && (open->resume.size ? is_alone : begins))
        begin_run(model, open);
    if (model->mode == TRAJD_WIRE_QUEUE && worker->member)
        note_return(model, worker, open);
}

void model_acknowledge(struct model *model, uint32_t index, const struct trajd_wire_ack *ack)
{
    books_ack(model, &model->workers[index], ack);
    trajd_core_ack(model->world->core, model->workers[index].session, ack, model->world->now_ns);
}

void model_receive(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct packet *packet = queue_pop(&worker->to_daemon);
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;

    if (!packet)
        return;
    if (trajd_wire_decode(packet->bytes, packet->size, NULL, &message, &request, &error)) {
        model_fail(model, "decode: %s", error.message);
        return;
    }
    model_trace(model, "daemon gets op %d of worker %s%u", message.op, model->name, index);
    switch (message.op) {
    case TRAJD_WIRE_HELLO:
        bind_hello(model, index, &message.hello);
        break;
    case TRAJD_WIRE_OPEN:
        open_feed(model, index, &message.open);
        break;
    case TRAJD_WIRE_ACK:
        model_acknowledge(model, index, &message.ack);
        break;
    default:
        model_end_session(model, index);
        break;
    }
    world_check(model->world);
}

void model_end_session(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];

    model_trace(model, "session of worker %s%u ends", model->name, index);
    books_close(model, worker);
    if (model_random(model, 3))
        trajd_core_end_session(model->world->core, worker->session, model->world->now_ns);
    else
        trajd_core_bye(model->world->core, worker->session, model->world->now_ns);
    worker->session = 0;
    worker->member = worker->dying = worker->stopped = worker->unreachable = false;
    worker->state = WORKER_ABSENT;
    worker->to_daemon.count = worker->to_worker.count = worker->held_count = 0;
}

void model_checkpoint(struct model *model, uint32_t index)
{
    const struct worker *worker = &model->workers[index];

    if (model->mode != TRAJD_WIRE_QUEUE || !worker->member || worker->epoch != model->epoch)
        return;
    model_trace(model, "worker %s%u takes a checkpoint", model->name, index);
    trajd_core_checkpoint(model->world->core, worker->session, 1000000, model->world->now_ns);
}
