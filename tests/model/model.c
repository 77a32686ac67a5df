/* The daemon's side of the model, and the books that say what must hold. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void model_trace(struct model *model, const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof model->trace - model->trace_length;
    int length;

    if (room < 256)
        return;
    va_start(arguments, format);
    length = vsnprintf(model->trace + model->trace_length, room - 1, format, arguments);
    va_end(arguments);
    model->trace_length += (size_t)length < room - 1 ? (size_t)length : room - 2;
    model->trace[model->trace_length++] = '\n';
    model->trace[model->trace_length] = '\0';
}

void model_fail(struct model *model, const char *format, ...)
{
    char message[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!model->failed)
        model_trace(model, "FAILED: %s", message);
    model->failed = true;
}

uint64_t model_random(struct model *model, uint64_t limit)
{
    uint64_t value = model->random += UINT64_C(0x9e3779b97f4a7c15);

    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return (value ^ value >> 31) % limit;
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

/* Any epoch begins somewhere; all ranks know where. */
uint64_t model_epoch_begin(const struct model *model, uint64_t epoch)
{
    uint64_t mixed = (model->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + epoch * 77;

    mixed ^= mixed >> 29;
    return mixed % 3 ? 0 : mixed / 3 % (model->options.epoch_length + 1);
}

static uint64_t batch_count(const struct model *model)
{
    uint64_t rest = model->options.epoch_length - model->begin, batch = model->options.global_batch;

    return rest / batch + (model->options.tail_short && rest % batch);
}

static uint64_t batch_of(const struct model *model, uint64_t position)
{
    return (position - model->begin) / model->options.global_batch;
}

uint64_t model_frontier(const struct model *model, uint32_t rank)
{
    uint64_t batch = 0, position;

    while (batch < batch_count(model) && model->done[rank][batch])
        batch++;
    position = model->begin + batch * model->options.global_batch;
    return position < model->options.epoch_length ? position : model->options.epoch_length;
}

/* ---- what the core sends ---- */

static void note_batch(struct model *model, uint32_t index, const struct trajd_wire_batch *batch)
{
    struct worker *worker = &model->workers[index];
    struct book *book;

    if (batch->slot >= model->options.slot_count || batch->part >= model->parts) {
        model_fail(model, "BATCH for worker %u names slot %u part %u", index, batch->slot, batch->part);
        return;
    }
    book = &model->books[batch->slot][batch->part];
    if (batch->generation != model->generations[batch->slot])
        model_fail(model, "BATCH of generation %llu, slot %u is at %llu",
                   (unsigned long long)batch->generation, batch->slot,
                   (unsigned long long)model->generations[batch->slot]);
    if (book->open && book->seq == batch->seq && book->session == worker->session)
        return; /* sent again to a resumed session */
    if (book->open)
        model_fail(model, "slot %u part %u is leased twice", batch->slot, batch->part);
    if (batch->seq != worker->seq_sent + 1)
        model_fail(model, "seq %llu after %llu", (unsigned long long)batch->seq,
                   (unsigned long long)worker->seq_sent);
    worker->seq_sent = batch->seq;
    *book = (struct book){true,       false,        false,          index, worker->session, batch->generation,
                          batch->seq, batch->epoch, batch->position};
}

static void on_send(void *context, uint64_t session, void *user, const struct trajd_wire_message *message)
{
    struct model *model = context;
    uint32_t index = (uint32_t)(uintptr_t)user;
    struct worker *worker = &model->workers[index];

    worker->session = session;
    if (message->op == TRAJD_WIRE_BATCH)
        note_batch(model, index, &message->batch);
    if (message->op == TRAJD_WIRE_EPOCH_END && model->ends_to_check < MODEL_QUEUE) {
        model->ends[model->ends_to_check].worker = index;
        model->ends[model->ends_to_check++].end = message->epoch_end;
    }
    if (!worker->unreachable && !queue_push(&worker->to_worker, message))
        model_fail(model, "cannot send op %d to worker %u", message->op, index);
}

static void on_wake(void *context, struct trajd_core_feed *feed)
{
    struct trajd_core_feed_info info;

    trajd_core_feed_info(feed, &info);
    if (!info.slots_free)
        model_fail(context, "woken without a FREE slot");
}

/* ---- the books ---- */

static void book_done(struct model *model, struct book *book, uint32_t part)
{
    uint64_t batch = batch_of(model, book->position);

    book->done = true;
    model->done_total++;
    if (book->epoch != model->epoch || book->position < model->begin || batch >= batch_count(model)) {
        model_fail(model, "DONE for epoch %llu position %llu, which is not of the run",
                   (unsigned long long)book->epoch, (unsigned long long)book->position);
        return;
    }
    if (model->done[part][batch]++)
        model_fail(model, "part %u of batch %llu is DONE twice", part, (unsigned long long)batch);
}

static struct book *find_book(struct model *model, const struct worker *worker,
                              const struct trajd_wire_lease *lease)
{
    struct book *book;

    if (lease->ring != trajd_core_feed_id(model->feed) || lease->slot >= model->options.slot_count ||
        lease->part >= model->parts)
        return NULL;
    book = &model->books[lease->slot][lease->part];
    return book->open && book->session == worker->session && book->generation == lease->generation ? book
                                                                                                   : NULL;
}

static void book_release(struct model *model, struct book *book, uint32_t part)
{
    if (!book->done && !book->abandoned)
        book_done(model, book, part);
    book->open = false;
}

static void book_ack(struct model *model, struct worker *worker, const struct trajd_wire_ack *ack)
{
    for (uint32_t i = 0; i < ack->done.count; i++) {
        struct book *book = find_book(model, worker, &ack->done.list[i]);
        if (book && !book->done && !book->abandoned)
            book_done(model, book, ack->done.list[i].part);
    }
    for (uint32_t i = 0; i < ack->released.count; i++) {
        struct book *book = find_book(model, worker, &ack->released.list[i]);
        if (book)
            book_release(model, book, ack->released.list[i].part);
    }
}

static bool names(const struct trajd_wire_leases *leases, uint32_t slot, const struct book *book)
{
    for (uint32_t i = 0; i < leases->count; i++)
        if (leases->list[i].slot == slot && leases->list[i].generation == book->generation)
            return true;
    return false;
}

static void book_resume(struct model *model, struct worker *worker, const struct trajd_wire_hello *hello)
{
    for (uint32_t s = 0; s < model->options.slot_count; s++)
        for (uint32_t p = 0; p < model->parts; p++) {
            struct book *book = &model->books[s][p];
            if (!book->open || book->session != worker->session)
                continue;
            if (names(&hello->held, s, book)) {
                if (names(&hello->done, s, book) && !book->done && !book->abandoned)
                    book_done(model, book, p);
            } else if (book->seq <= hello->received || book->abandoned) {
                book_release(model, book, p);
            }
        }
}

/* ---- the daemon's life ---- */

void model_start_daemon(struct model *model)
{
    struct trajd_core_options options = {.instance_id = ++model->instance,
                                         .max_sessions = 2 * MODEL_WORKERS,
                                         .version = "model",
                                         .send = on_send,
                                         .wake = on_wake,
                                         .context = model};
    struct trajd_error error = {0};

    model_trace(model, "daemon starts as instance %llu", (unsigned long long)model->instance);
    if (trajd_core_create(&options, &model->core, &error) ||
        trajd_core_add_feed(model->core, &model->options, &model->feed, &error))
        model_fail(model, "start: %s", error.message);
    memset(model->books, 0, sizeof model->books);
    memset(model->generations, 0, sizeof model->generations);
    model->fill_count = 0;
    model->core_done = model->done_total;
}

void model_kill_daemon(struct model *model)
{
    model_trace(model, "daemon dies");
    trajd_core_destroy(&model->core);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        struct worker *worker = &model->workers[i];
        worker->session = 0;
        worker->member = worker->end_sent = worker->unreachable = false;
        worker->to_daemon.count = worker->to_worker.count = 0;
        if (worker->dying) {
            worker->state = WORKER_ABSENT;
            worker->dying = false;
        }
        if (worker->state != WORKER_ABSENT)
            worker->state = WORKER_HELLO;
        /* In shard the worker's word is what counts, also what was on its way. */
        if (model->mode == TRAJD_WIRE_SHARD && worker->state != WORKER_ABSENT &&
            worker->epoch == model->epoch && model->has_run && worker->knows_epoch)
            for (uint64_t b = 0; b < batch_count(model); b++)
                if (model->begin + b * model->options.global_batch < worker->next)
                    model->done[i][b] = 1;
    }
}

static void bind_hello(struct model *model, uint32_t index, const struct trajd_wire_hello *hello)
{
    struct worker *worker = &model->workers[index];
    uint8_t token[TRAJD_WIRE_TOKEN_SIZE] = {0};
    struct trajd_error error;
    void *replaced;
    bool resumed;

    worker->unreachable = false;
    model->serial++;
    memcpy(token, &model->serial, sizeof model->serial);
    if (trajd_core_hello(model->core, hello, token, (void *)(uintptr_t)index, model->now_ns, &worker->session,
                         &resumed, &replaced, &error)) {
        model_fail(model, "HELLO: %s", error.message);
        return;
    }
    if (resumed)
        book_resume(model, worker, hello);
    else
        worker->seq_sent = 0;
    worker->end_sent = false;
    if (!resumed)
        worker->member = false;
    trajd_core_welcome(model->core, worker->session, hello, model->now_ns);
}

static void begin_run(struct model *model, const struct trajd_wire_open *open)
{
    model_trace(model, "run of epoch %llu from %llu", (unsigned long long)open->epoch,
                (unsigned long long)open->next);
    model->has_run = true;
    model->epoch = open->epoch;
    model->begin = open->next;
    memset(model->done, 0, sizeof model->done);
    memset(model->delivered, 0, sizeof model->delivered);
}

static void open_feed(struct model *model, uint32_t index, const struct trajd_wire_open *open)
{
    struct worker *worker = &model->workers[index];
    bool is_alone = true, is_same = model->has_run && open->epoch == model->epoch, begins;
    uint64_t seq_before = worker->seq_sent;

    if (worker->member && worker->granted == open->request) { /* asked again: changes nothing */
        trajd_core_open(model->core, worker->session, open, model->feed, model->now_ns);
        return;
    }
    for (uint32_t i = 0; i < model->worker_count; i++)
        is_alone &= i == index || !model->workers[i].member;
    begins = is_same ? is_alone && open->fresh : is_alone || open->epoch + 1 != model->epoch;
    if (is_same && model->parts > 1)
        begins = false; /* ranks come back one by one, each knows where it stands */
    worker->member = !trajd_core_open(model->core, worker->session, open, model->feed, model->now_ns);
    worker->end_sent = false;
    for (uint32_t s = 0; s < model->options.slot_count; s++)
        for (uint32_t p = 0; p < model->parts; p++) {
            struct book *book = &model->books[s][p];
            if (book->open && book->session == worker->session && book->seq <= seq_before && !book->done)
                book->abandoned = true;
        }
    worker->granted = open->request;
    if (worker->member && begins)
        begin_run(model, open);
}

void model_acknowledge(struct model *model, uint32_t index, const struct trajd_wire_ack *ack)
{
    book_ack(model, &model->workers[index], ack);
    trajd_core_ack(model->core, model->workers[index].session, ack, model->now_ns);
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
    model_trace(model, "daemon gets op %d of worker %u", message.op, index);
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
    model_check(model);
}

void model_end_session(struct model *model, uint32_t index)
{
    struct worker *worker = &model->workers[index];

    model_trace(model, "session of worker %u ends", index);
    for (uint32_t s = 0; s < model->options.slot_count; s++)
        for (uint32_t p = 0; p < model->parts; p++)
            if (model->books[s][p].open && model->books[s][p].session == worker->session)
                model->books[s][p].open = false;
    trajd_core_end_session(model->core, worker->session, model->now_ns);
    worker->session = 0;
    worker->member = worker->dying = worker->stopped = worker->unreachable = false;
    worker->state = WORKER_ABSENT;
    worker->to_daemon.count = worker->to_worker.count = worker->held_count = 0;
}

/* Nobody may be reading what is written from now on: no lease is out, no live worker holds one or will learn
 * of one. */
static void check_unread(struct model *model, uint32_t slot)
{
    for (uint32_t p = 0; p < model->parts; p++)
        if (model->books[slot][p].open)
            model_fail(model, "slot %u is filled again while part %u is leased", slot, p);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        const struct worker *worker = &model->workers[i];
        for (uint32_t h = 0; h < worker->held_count; h++)
            if (worker->held[h].lease.slot == slot && worker->instance == model->instance &&
                worker->session && !worker->dying)
                model_fail(model, "slot %u is filled again while worker %u reads it", slot, i);
    }
}

void model_take(struct model *model)
{
    struct trajd_core_fill fill;

    if (model->fill_count == MODEL_SLOTS || trajd_core_take(model->feed, model->now_ns, &fill))
        return;
    model_trace(model, "take slot %u epoch %llu position %llu", fill.slot, (unsigned long long)fill.epoch,
                (unsigned long long)fill.position);
    if (fill.generation != ++model->generations[fill.slot])
        model_fail(model, "generation %llu of slot %u", (unsigned long long)fill.generation, fill.slot);
    if (!fill.row_count || fill.position + fill.row_count > model->options.epoch_length)
        model_fail(model, "%u rows at %llu", fill.row_count, (unsigned long long)fill.position);
    check_unread(model, fill.slot);
    model->fills[model->fill_count++] = fill;
}

void model_publish(struct model *model)
{
    struct trajd_error failure = {TRAJD_ERR_DATA, 0, "a file went bad"};
    uint32_t which;

    if (!model->fill_count)
        return;
    which = (uint32_t)model_random(model, model->fill_count);
    model_trace(model, "publish slot %u", model->fills[which].slot);
    if (!trajd_core_publish(model->feed, &model->fills[which], model_random(model, 10) ? NULL : &failure,
                            model->now_ns))
        model_fail(model, "publish of slot %u is refused", model->fills[which].slot);
    if (trajd_core_publish(model->feed, &model->fills[which], NULL, model->now_ns))
        model_fail(model, "slot %u is published twice", model->fills[which].slot);
    model->fills[which] = model->fills[--model->fill_count];
}

void model_tick(struct model *model)
{
    trajd_core_tick(model->core, model->now_ns);
}

/* ---- after every step ---- */

static void check_end(struct model *model, uint32_t index, const struct trajd_wire_epoch_end *end)
{
    struct worker *worker = &model->workers[index];

    if (worker->end_sent && worker->end_epoch == end->epoch)
        model_fail(model, "worker %u is told the end of epoch %llu twice", index,
                   (unsigned long long)end->epoch);
    worker->end_sent = true;
    worker->end_epoch = end->epoch;
    if (end->epoch != model->epoch)
        return;
    if (model->mode == TRAJD_WIRE_SHARE ? end->batches != batch_count(model)
                                        : end->batches > batch_count(model))
        model_fail(model, "end after %llu batches of %llu", (unsigned long long)end->batches,
                   (unsigned long long)batch_count(model));
    for (uint32_t p = 0; p < model->parts; p++)
        for (uint64_t b = 0; b < batch_count(model); b++)
            if (model->done[p][b] != 1)
                model_fail(model, "epoch %llu ends, part %u of batch %llu was DONE %u times",
                           (unsigned long long)end->epoch, p, (unsigned long long)b, model->done[p][b]);
}

static void check_credit(struct model *model)
{
    struct trajd_core_session_info info;

    for (uint32_t i = 0; trajd_core_session_info(model->core, i, &info); i++)
        if (info.held > info.credit)
            model_fail(model, "session %llu holds %u of %u", (unsigned long long)info.session, info.held,
                       info.credit);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        uint32_t held = 0;
        for (uint32_t s = 0; s < model->options.slot_count; s++)
            for (uint32_t p = 0; p < model->parts; p++)
                held += model->books[s][p].open && model->workers[i].session &&
                        model->books[s][p].session == model->workers[i].session;
        if (held > model->workers[i].credit && model->workers[i].member)
            model_fail(model, "worker %u has %u leases with a credit of %u", i, held,
                       model->workers[i].credit);
    }
}

void model_check(struct model *model)
{
    struct trajd_core_feed_info info;
    struct trajd_core_stats stats;

    for (uint32_t i = 0; i < model->ends_to_check; i++)
        check_end(model, model->ends[i].worker, &model->ends[i].end);
    model->ends_to_check = 0;
    if (!model->core)
        return;
    check_credit(model);
    trajd_core_get_stats(model->core, &stats);
    if (stats.batches_done != model->done_total - model->core_done)
        model_fail(model, "the core counts %llu DONE, the books %llu", (unsigned long long)stats.batches_done,
                   (unsigned long long)(model->done_total - model->core_done));
    trajd_core_feed_info(model->feed, &info);
    if (info.slots_free + info.slots_filling + info.slots_ready != model->options.slot_count ||
        info.slots_filling < model->fill_count)
        model_fail(model, "a slot is lost: %u free, %u filling, %u ready, %u fills are out", info.slots_free,
                   info.slots_filling, info.slots_ready, model->fill_count);
}
