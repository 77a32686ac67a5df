/* The workers of the model: the steps of libtrajd and a training program together. */
#include "model.h"

#include <string.h>

static void push(struct model *model, uint32_t index, const struct trajd_wire_message *message)
{
    if (!queue_push(&model->workers[index].to_daemon, message))
        model_fail(model, "worker %u cannot send op %d", index, message->op);
}

static void push_ack(struct model *model, uint32_t index, const struct trajd_wire_ack *ack)
{
    struct trajd_wire_message message = {.op = TRAJD_WIRE_ACK};
    struct worker *worker = &model->workers[index];

    if (!ack->done.count && !ack->released.count && !ack->positions.count)
        return;
    message.ack = *ack;
    /* worker_ack_wild repeats this ACK. Not with abandoned leases: an abandoned part may come again
     * to the same session, under the same lease. */
    if (worker->may_hold_abandoned)
        memset(&worker->last_ack, 0, sizeof worker->last_ack);
    else
        worker->last_ack = *ack;
    push(model, index, &message);
}

static void add_lease(struct trajd_wire_leases *leases, const struct trajd_wire_lease *lease)
{
    leases->list[leases->count++] = *lease;
}

/* Starts a process. Its supervisor knows the job's epoch. */
void worker_start(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    uint32_t credit = 2 + (uint32_t)model_random(model, model->world->options.max_credit - 1);
    uint64_t ends = worker->ends;

    model_trace(model, "worker %s%u starts", model->name, index);
    memset(worker, 0, sizeof *worker);
    worker->credit = credit;
    worker->ends = ends;
    worker->resumes = model->returns;
    worker->is_remote = !model_random(model, 4);
    worker->state = WORKER_HELLO;
}

void worker_connect(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_message message = {.op = TRAJD_WIRE_HELLO};
    struct trajd_wire_hello *hello = &message.hello;

    hello->client = trajd_wire_text("model");
    hello->has_token = worker->has_token;
    hello->instance = worker->instance;
    hello->received = worker->received;
    memcpy(hello->token, worker->token, sizeof hello->token);
    for (uint32_t i = 0; i < worker->held_count; i++) {
        if (worker->held[i].carried)
            continue;
        add_lease(&hello->held, &worker->held[i].lease);
        if (worker->held[i].done)
            add_lease(&hello->done, &worker->held[i].lease);
    }
    memset(&worker->last_ack, 0, sizeof worker->last_ack);
    worker->state = WORKER_GREETED;
    push(model, index, &message);
}

static void drop_held(struct worker *worker, uint32_t which)
{
    memmove(&worker->held[which], &worker->held[which + 1],
            (worker->held_count - which - 1) * sizeof worker->held[0]);
    worker->held_count--;
}

/* Gives back undone the abandoned parts that the program has not seen. It keeps what it reads. */
static void give_back_untaken(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_ack ack = {.done.count = 0};

    for (uint32_t i = worker->held_count; i-- > 0;)
        if (worker->held[i].abandoned && !worker->held[i].taken) {
            add_lease(&ack.released, &worker->held[i].lease);
            drop_held(worker, i);
        }
    push_ack(model, index, &ack);
}

static void note_done(struct model *model, struct worker *worker, const struct held *held)
{
    struct trajd_wire_positions *done = &worker->done;

    if (model->mode != TRAJD_WIRE_QUEUE)
        return;
    if (done->count == TRAJD_WIRE_MAX_LEASES)
        memmove(done->list, done->list + 1, --done->count * sizeof done->list[0]);
    done->list[done->count++] = held->position;
}

static bool has_position(const struct trajd_wire_positions *positions, uint64_t position)
{
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->list[i] == position)
            return true;
    return false;
}

/* Sends DONE for the carried batches that it has finished since its return. */
static void push_carried_done(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_ack ack = {.done.count = 0};

    for (uint32_t i = 0; i < worker->kept.count; i++)
        if (has_position(&worker->done, worker->kept.list[i]))
            ack.positions.list[ack.positions.count++] = worker->kept.list[i];
    push_ack(model, index, &ack);
}

/* Forgets what it had of an epoch, or what the daemon has given to another worker. */
static void drop_carried(struct worker *worker, const struct trajd_wire_positions *kept)
{
    for (uint32_t i = worker->held_count; i-- > 0;)
        if (worker->held[i].carried && !(kept && has_position(kept, worker->held[i].position)))
            drop_held(worker, i);
    if (!kept)
        worker->done.count = worker->kept.count = worker->pass = 0;
}

static void choose_epoch(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    bool waits =
        model->has_run && (model->epoch == worker->epoch + 1 || worker->epoch == model->epoch + 1);

    if (worker->refusals > 3 && !waits && model_random(model, 2))
        worker->knows_epoch = worker->joined = false;
    if (worker->knows_epoch)
        return;
    worker->epoch = model->has_run ? model->epoch : 0;
}

void worker_open(struct model *model, uint32_t index, bool wild)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_message message = {.op = TRAJD_WIRE_OPEN};
    struct trajd_wire_open *open = &message.open;
    bool is_shard = model->mode == TRAJD_WIRE_SHARD;

    if (wild) {
        worker->epoch = model->epoch + 2 + model_random(model, 5);
        worker->knows_epoch = true;
        worker->joined = false;
    } else {
        choose_epoch(model, index);
    }
    *open = (struct trajd_wire_open){
        .request = ++worker->request,
        .feed = trajd_wire_text("feed"),
        .job = trajd_wire_text(model->name),
        .mode = model->mode,
        .rank = is_shard ? model_rank(model, index) : 0,
        .world = is_shard ? model->ranks : 1,
        .credit = worker->credit,
        .epoch = worker->epoch,
        .next = model_epoch_begin(model, worker->epoch),
        .fresh = worker->knows_epoch ? !worker->joined : !model->has_run,
    };
    /* a process that has been restarted knows nothing of its epoch */
    if (!is_shard && !worker->knows_epoch)
        open->fresh = true;
    if (!worker->joined || !worker->is_lost) /* libtrajd reports only after a daemon's death */
        drop_carried(worker, NULL);
    if (is_shard && !open->fresh)
        open->next = worker->knows_epoch ? worker->next : model_frontier(model, index);
    else if (!is_shard && !open->fresh && model_random(model, 2))
        open->next = 0;
    for (uint32_t i = 0; is_shard && model->has_remote && i < model->worker_count; i++)
        open->local.list[open->local.count++] = model_rank(model, i);
    /* after several refusals it joins the others without the checkpoint */
    worker->resumes = worker->resumes && worker->refusals < 4;
    if (worker->resumes && !wild && !worker->joined) {
        open->epoch = worker->epoch = model->token_epoch;
        open->next = 0;
        open->fresh = true;
        open->resume = (struct trajd_wire_bytes){model->token, model->token_size};
    }
    open->pass = open->fresh ? 0 : worker->pass;
    open->batch = open->pass ? model->world->options.global_batch : 0;
    if (open->pass)
        open->done = worker->done;
    for (uint32_t i = 0; i < worker->held_count; i++)
        if (worker->held[i].carried)
            open->held.list[open->held.count++] = worker->held[i].position;
        else
            worker->held[i].abandoned = true;
    worker->kept.count = 0;
    worker->next = open->next;
    worker->last_open = *open;
    worker->state = WORKER_OPENING;
    worker->may_hold_abandoned = worker->held_count != 0 || worker->to_worker.count != 0;
    memset(&worker->last_ack, 0, sizeof worker->last_ack);
    model_trace(model, "worker %s%u opens epoch %llu from %llu%s", model->name, index,
                (unsigned long long)open->epoch, (unsigned long long)open->next,
                open->fresh ? " fresh" : "");
    push(model, index, &message);
}

static void on_welcome(struct model *model, uint32_t index,
                       const struct trajd_wire_welcome *welcome)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_message message = {.op = TRAJD_WIRE_OPEN};

    memcpy(worker->token, welcome->token, sizeof worker->token);
    worker->has_token = true;
    worker->instance = welcome->instance;
    worker->state = WORKER_IDLE;
    if (!welcome->resumed) {
        for (uint32_t i = worker->held_count; i-- > 0;)
            if (!worker->held[i].carried)
                drop_held(worker, i);
        worker->received = 0;
        return;
    }
    worker->state = worker->resumes_as;
    push_carried_done(model, index);
    if (worker->state != WORKER_OPENING)
        return;
    message.open = worker->last_open; /* the OPEN or its reply was lost */
    push(model, index, &message);
}

static void on_opened(struct model *model, uint32_t index, const struct trajd_wire_opened *opened)
{
    struct worker *worker = &model->workers[index];

    if (worker->state != WORKER_OPENING || opened->request != worker->request)
        return;
    if (opened->epoch != worker->epoch)
        model_fail(model, "worker %u asked for epoch %llu and gets %llu", index,
                   (unsigned long long)worker->epoch, (unsigned long long)opened->epoch);
    worker->state = WORKER_RUNNING;
    worker->resumes = false;
    worker->knows_epoch = worker->joined = true;
    worker->refusals = 0;
    /* Not before OPENED: if the OPEN was lost, the daemon would count these parts as DONE. */
    give_back_untaken(model, index);
    if (model->mode == TRAJD_WIRE_SHARD)
        worker->next = opened->next;
    if (opened->pass != worker->pass)
        drop_carried(worker, NULL);
    drop_carried(worker, &opened->held);
    worker->pass = opened->pass;
    worker->kept = opened->held;
    worker->is_lost = false;
    push_carried_done(model, index);
}

static void on_batch(struct model *model, uint32_t index, const struct trajd_wire_batch *batch)
{
    struct worker *worker = &model->workers[index];
    struct held held = {{batch->ring, batch->slot, batch->generation, batch->part},
                        batch->epoch,
                        batch->position,
                        batch->seq,
                        false,
                        false,
                        false,
                        false};

    if (batch->seq <= worker->received)
        model_fail(model, "worker %u gets seq %llu after %llu", index,
                   (unsigned long long)batch->seq, (unsigned long long)worker->received);
    worker->received = batch->seq;
    if (worker->state != WORKER_RUNNING) { /* of the epoch that it left by an OPEN */
        worker->may_hold_abandoned = held.abandoned = true;
        worker->held[worker->held_count++] = held;
        return;
    }
    if (batch->epoch != worker->epoch)
        model_fail(model, "worker %u gets a batch of epoch %llu in %llu", index,
                   (unsigned long long)batch->epoch, (unsigned long long)worker->epoch);
    if (model->mode == TRAJD_WIRE_SHARD && batch->position < worker->next)
        model_fail(model, "worker %u gets position %llu again", index,
                   (unsigned long long)batch->position);
    worker->held[worker->held_count++] = held;
}

static void on_epoch_end(struct model *model, uint32_t index,
                         const struct trajd_wire_epoch_end *end)
{
    struct worker *worker = &model->workers[index];

    if (worker->state != WORKER_RUNNING || end->epoch != worker->epoch)
        return;
    for (uint32_t i = 0; i < worker->held_count; i++)
        if (!worker->held[i].done && !worker->held[i].abandoned &&
            worker->held[i].epoch == end->epoch && !worker->held[i].taken)
            model_fail(model, "worker %u gets the end before it has sent DONE", index);
    for (uint32_t i = 0; i < worker->held_count; i++)
        if (worker->held[i].carried)
            model_fail(model, "worker %u gets the end and still holds position %llu", index,
                       (unsigned long long)worker->held[i].position);
    drop_carried(worker, NULL);
    worker->epoch++;
    worker->next = 0;
    worker->joined = false;
    worker->state = WORKER_IDLE;
    worker->ends++;
}

/* The daemon has removed the worker from its feed. It opens again at its position. */
static void on_removal(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];

    model_trace(model, "worker %s%u is removed from its feed", model->name, index);
    for (uint32_t i = 0; i < worker->held_count; i++)
        worker->held[i].abandoned = !worker->held[i].carried;
    worker->kept.count = 0;
    worker->may_hold_abandoned = true;
    worker->state = WORKER_IDLE;
    memset(&worker->last_ack, 0, sizeof worker->last_ack);
    give_back_untaken(model, index);
}

void worker_receive(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct packet *packet = queue_pop(&worker->to_worker);
    struct trajd_wire_tensor tensors[TRAJD_WIRE_MAX_TENSORS];
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;

    if (!packet)
        return;
    if (trajd_wire_decode(packet->bytes, packet->size, tensors, &message, &request, &error)) {
        model_fail(model, "worker %u cannot decode: %s", index, error.message);
        return;
    }
    switch (message.op) {
    case TRAJD_WIRE_WELCOME:
        on_welcome(model, index, &message.welcome);
        break;
    case TRAJD_WIRE_OPENED:
        on_opened(model, index, &message.opened);
        break;
    case TRAJD_WIRE_BATCH:
        on_batch(model, index, &message.batch);
        break;
    case TRAJD_WIRE_EPOCH_END:
        on_epoch_end(model, index, &message.epoch_end);
        break;
    default:
        if (message.op == TRAJD_WIRE_ERROR && message.error.request == 0 &&
            worker->state == WORKER_RUNNING)
            on_removal(model, index);
        if (message.op != TRAJD_WIRE_ERROR || message.error.request != worker->request)
            break;
        model_trace(model, "worker %s%u is refused: %.*s", model->name, index,
                    (int)message.error.message.size, message.error.message.data);
        worker->refusals++;
        worker->state = WORKER_IDLE;
        give_back_untaken(model, index);
        break;
    }
}

static void mark_done(struct model *model, struct worker *worker, struct held *held,
                      struct trajd_wire_ack *ack)
{
    uint64_t behind = held->position + model->world->options.global_batch;

    if (held->done || held->abandoned)
        return;
    held->done = true;
    note_done(model, worker, held);
    if (held->carried) {
        if (has_position(&worker->kept, held->position))
            ack->positions.list[ack->positions.count++] = held->position;
        return;
    }
    add_lease(&ack->done, &held->lease);
    if (model->mode == TRAJD_WIRE_SHARD && held->epoch == worker->epoch && worker->joined)
        worker->next = behind < model->world->options.epoch_length
                           ? behind
                           : model->world->options.epoch_length;
}

/* A carried batch has no lease that could be released. */
static void drop_finished(struct worker *worker)
{
    for (uint32_t i = worker->held_count; i-- > 0;)
        if (worker->held[i].carried && worker->held[i].done)
            drop_held(worker, i);
}

/* The program calls next(): DONE for the batches it had, then it takes the oldest one that is
 * here. */
static void act_next(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_ack ack = {.done.count = 0};
    uint32_t i = 0;

    for (; i < worker->held_count && worker->held[i].taken; i++)
        mark_done(model, worker, &worker->held[i], &ack);
    /* a carried batch is not given to the program before the daemon has left it to this worker */
    if (i < worker->held_count && (!worker->held[i].carried || worker->state == WORKER_RUNNING))
        worker->held[i].taken = true;
    drop_finished(worker);
    push_ack(model, index, &ack);
}

static void act_release(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_ack ack = {.done.count = 0};
    uint32_t which;

    if (!worker->held_count)
        return;
    which = (uint32_t)model_random(model, worker->held_count);
    if (!worker->held[which].taken ||
        (which && !worker->held[which - 1].done && !worker->held[which - 1].abandoned))
        return; /* workers here send DONE in order */
    /* if the OPEN was lost, the daemon would count it as DONE, but the rank's position is before
     * it */
    if (worker->held[which].abandoned && worker->state == WORKER_OPENING)
        return;
    mark_done(model, worker, &worker->held[which], &ack);
    if (worker->held[which].carried) {
        drop_held(worker, which);
        push_ack(model, index, &ack);
        return;
    }
    if (model_random(model, 2))
        ack.done.count = 0; /* a release implies DONE */
    add_lease(&ack.released, &worker->held[which].lease);
    drop_held(worker, which);
    push_ack(model, index, &ack);
}

void worker_act(struct model *model, uint32_t index)
{
    if (model_random(model, 2))
        act_next(model, index);
    else
        act_release(model, index);
}

void worker_finish(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];
    struct trajd_wire_ack ack = {.done.count = 0};

    for (uint32_t i = 0; i < worker->held_count; i++) {
        worker->held[i].taken = true;
        mark_done(model, worker, &worker->held[i], &ack);
        if (!worker->held[i].carried)
            add_lease(&ack.released, &worker->held[i].lease);
    }
    worker->held_count = 0;
    push_ack(model, index, &ack);
}

static bool holds(const struct worker *worker, const struct trajd_wire_lease *lease)
{
    for (uint32_t i = 0; i < worker->held_count; i++)
        if (!worker->held[i].carried && worker->held[i].lease.slot == lease->slot &&
            worker->held[i].lease.part == lease->part)
            return true;
    return false;
}

/* Sends a wrong ACK: a repeated one, one of another worker's lease, or nonsense. */
void worker_ack_wild(struct model *model, uint32_t index)
{
    const struct worker *other = &model->workers[model_random(model, model->worker_count)];
    struct trajd_wire_message message = {.op = TRAJD_WIRE_ACK};
    struct trajd_wire_lease lease = {(uint32_t)model_random(model, 3),
                                     (uint32_t)model_random(model, 9),
                                     model_random(model, 4) ? 1000000 + model_random(model, 9) : 0,
                                     (uint32_t)model_random(model, 7)};
    struct worker *worker = &model->workers[index];

    if (worker->state < WORKER_IDLE)
        return;
    if (model_random(model, 2)) {
        message.ack = worker->last_ack;
        push(model, index, &message);
        return;
    }
    if (other->held_count && !other->held[0].carried && model_random(model, 2))
        lease = other->held[model_random(model, other->held_count)].lease;
    if (other == worker || other->instance != worker->instance || holds(worker, &lease))
        return;
    add_lease(model_random(model, 2) ? &message.ack.done : &message.ack.released, &lease);
    model_acknowledge(model, index,
                      &message.ack); /* at once, because later the lease might be its own */
}

/* Breaks the connection; ZeroMQ makes another one. Messages on their way are lost. The process and
 * its fd.sock stay. */
void worker_disconnect(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];

    if (worker->state < WORKER_IDLE)
        return;
    model_trace(model, "worker %s%u is disconnected", model->name, index);
    worker->to_daemon.count = worker->to_worker.count = 0;
    worker->resumes_as = worker->state;
    worker->unreachable = true; /* until the daemon receives its HELLO on the new connection */
    worker->state = WORKER_HELLO;
}
