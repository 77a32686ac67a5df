/* The books: which session has which part, according to the messages; and the rules of a job. */
#include "model.h"

#include <string.h>

/* Returns the position where an epoch begins. All ranks compute the same one. */
uint64_t model_epoch_begin(const struct model *model, uint64_t epoch)
{
    uint64_t mixed = (model->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + epoch * 77;

    mixed ^= mixed >> 29;
    return mixed % 3 ? 0 : mixed / 3 % (model->world->options.epoch_length + 1);
}

static uint64_t batch_count(const struct model *model)
{
    uint64_t remaining = model->world->options.epoch_length - model->begin,
             batch = model->world->options.global_batch;

    return remaining / batch + (model->world->options.tail_short && remaining % batch);
}

static uint64_t batch_of(const struct model *model, uint64_t position)
{
    return (position - model->begin) / model->world->options.global_batch;
}

uint64_t model_frontier(const struct model *model, uint32_t rank)
{
    uint64_t batch = 0, position;

    while (batch < batch_count(model) && model->done[rank][batch])
        batch++;
    position = model->begin + batch * model->world->options.global_batch;
    return position < model->world->options.epoch_length ? position
                                                         : model->world->options.epoch_length;
}

uint32_t model_rank(const struct model *model, uint32_t index)
{
    return model->mode == TRAJD_WIRE_SHARD && model->has_remote ? 2 * index + 1 : index;
}

/* Returns the book of a lease, or NULL if the lease is impossible. */
static struct book *book_at(struct model *model, const struct trajd_wire_lease *lease)
{
    const uint32_t entry = lease->part / TRAJD_CORE_MAX_WORLD,
                   rank = lease->part % TRAJD_CORE_MAX_WORLD;

    for (uint32_t f = 0; f < model->world->feed_count; f++)
        for (uint32_t p = 0; p < model->parts; p++)
            if (trajd_core_feed_id(model->world->feeds[f]) == lease->ring &&
                model_rank(model, p) == rank && lease->slot < model->world->options.slot_count &&
                entry < MODEL_JOBS)
                return &model->books[f][lease->slot][entry][p];
    return NULL;
}

/* Returns the next book of the job, or NULL after the last. Begin with NULL. */
static struct book *next_book(struct model *model, struct book *book)
{
    struct book *first = &model->books[0][0][0][0],
                *end = first + sizeof model->books / sizeof *first;

    book = book ? book + 1 : first;
    return book < end ? book : NULL;
}

void books_note_batch(struct model *model, uint32_t index, const struct trajd_wire_batch *batch)
{
    struct worker *worker = &model->workers[index];
    const struct trajd_wire_lease lease = {batch->ring, batch->slot, batch->generation,
                                           batch->part};
    struct book *book = book_at(model, &lease);
    uint32_t feed = 0;

    if (!book) {
        model_fail(model, "BATCH for worker %u names slot %u part %u", index, batch->slot,
                   batch->part);
        return;
    }
    while (trajd_core_feed_id(model->world->feeds[feed]) != batch->ring)
        feed++;
    if (batch->generation != model->world->generations[feed][batch->slot])
        model_fail(model, "BATCH of generation %llu, slot %u is at %llu",
                   (unsigned long long)batch->generation, batch->slot,
                   (unsigned long long)model->world->generations[feed][batch->slot]);
    if (book->open && book->seq == batch->seq && book->session == worker->session)
        return; /* sent again to a resumed session */
    if (book->open)
        model_fail(model, "slot %u part %u is leased twice", batch->slot, batch->part);
    if (batch->seq != worker->seq_sent + 1)
        model_fail(model, "seq %llu after %llu", (unsigned long long)batch->seq,
                   (unsigned long long)worker->seq_sent);
    worker->seq_sent = batch->seq;
    if (batch->epoch == model->epoch)
        books_check_repeat(model, batch->position);
    *book = (struct book){
        .open = true,
        .part =
            (uint32_t)(book - model->books[feed][batch->slot][batch->part / TRAJD_CORE_MAX_WORLD]),
        .session = worker->session,
        .seq = batch->seq,
        .epoch = batch->epoch,
        .position = batch->position,
        .lease = lease,
    };
}

static void drop_holder(struct model *model, uint64_t session)
{
    for (uint32_t b = 0; b < MODEL_BATCHES; b++)
        if (model->holders[b] == session)
            model->holders[b] = 0;
}

void books_close(struct model *model, const struct worker *worker)
{
    for (struct book *book = NULL; (book = next_book(model, book));)
        if (book->open && book->session == worker->session)
            book->open = false;
    drop_holder(model, worker->session);
}

/* Notes that the worker's parts that are not DONE go to others when it gives them back. */
void books_abandon(struct model *model, const struct worker *worker, uint64_t up_to)
{
    for (struct book *book = NULL; (book = next_book(model, book));)
        if (book->open && book->session == worker->session && book->seq <= up_to && !book->done)
            book->abandoned = true;
    drop_holder(model, worker->session);
}

bool books_is_over(const struct model *model)
{
    for (uint64_t b = 0; b < batch_count(model); b++)
        if (!model->done[0][b])
            return false;
    return true;
}

/* Returns true if a batch of the run is not DONE, and no session has it. */
static bool is_free(struct model *model, uint64_t position)
{
    const uint64_t batch = batch_of(model, position);

    if (position < model->begin || batch >= batch_count(model) ||
        (position - model->begin) % model->world->options.global_batch || model->done[0][batch] ||
        model->holders[batch])
        return false;
    for (struct book *book = NULL; (book = next_book(model, book));)
        if (book->open && !book->done && book->position == position && book->epoch == model->epoch)
            return false;
    return true;
}

static void count_done(struct model *model, uint64_t position)
{
    const uint64_t batch = batch_of(model, position);

    model->world->done_total++;
    model->has_journal = true;
    model->holders[batch] = 0;
    if (model->done[0][batch]++)
        model_fail(model, "batch %llu is DONE twice", (unsigned long long)batch);
}

static bool has_position(const struct trajd_wire_positions *positions, uint64_t position)
{
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->list[i] == position)
            return true;
    return false;
}

void books_return(struct model *model, struct worker *worker, const struct trajd_wire_open *open,
                  const struct trajd_wire_opened *opened)
{
    const bool is_valid = open->pass && open->pass == model->pass && open->epoch == model->epoch;
    uint32_t count = 0;

    for (uint32_t i = 0; is_valid && i < open->done.count; i++)
        if (is_free(model, open->done.list[i]))
            count_done(model, open->done.list[i]);
    for (uint32_t i = 0; is_valid && i < open->held.count; i++) {
        if (!is_free(model, open->held.list[i]))
            continue;
        model->holders[batch_of(model, open->held.list[i])] = worker->session;
        count++;
        if (!has_position(&opened->held, open->held.list[i]))
            model_fail(model, "the daemon does not keep position %llu for its holder",
                       (unsigned long long)open->held.list[i]);
    }
    if (count != opened->held.count)
        model_fail(model, "the daemon keeps %u batches, the books %u", opened->held.count, count);
}

void books_check_repeat(struct model *model, uint64_t position)
{
    const uint64_t wait_ns = model->world->options.rejoin_wait_ns;

    if (model->mode != TRAJD_WIRE_QUEUE || !model->pass || model->was_removed)
        return;
    if (model->holders[batch_of(model, position)])
        model_fail(model, "position %llu is delivered while a returned session holds it",
                   (unsigned long long)position);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        const struct worker *worker = &model->workers[i];
        if (worker->state == WORKER_ABSENT || worker->dying || worker->pass != model->pass ||
            (worker->is_lost && model->world->now_ns - model->continued_ns >= wait_ns))
            continue;
        if (worker->is_lost && has_position(&worker->done, position))
            model_fail(model, "worker %s%u has finished position %llu, and it comes again",
                       model->name, i, (unsigned long long)position);
        for (uint32_t h = 0; h < worker->held_count; h++)
            if (worker->held[h].carried && worker->held[h].position == position)
                model_fail(model, "worker %s%u holds position %llu, and it comes again",
                           model->name, i, (unsigned long long)position);
    }
}

void books_note_checkpoint(struct model *model, const struct trajd_wire_checkpointed *checkpointed)
{
    model->token_size = checkpointed->token.size;
    memcpy(model->token, checkpointed->token.data, checkpointed->token.size);
    model->token_epoch = model->epoch;
    model->token_begin = model->begin;
    memcpy(model->token_done, model->done[0], sizeof model->token_done);
}

static void book_done(struct model *model, struct book *book)
{
    uint64_t batch = batch_of(model, book->position);

    book->done = model->has_journal = true;
    model->world->done_total++;
    if (book->epoch != model->epoch || book->position < model->begin ||
        batch >= batch_count(model)) {
        model_fail(model, "DONE for epoch %llu position %llu, which is not of the run",
                   (unsigned long long)book->epoch, (unsigned long long)book->position);
        return;
    }
    if (model->done[book->part][batch]++)
        model_fail(model, "part %u of batch %llu is DONE twice", book->part,
                   (unsigned long long)batch);
}

static struct book *find_book(struct model *model, const struct worker *worker,
                              const struct trajd_wire_lease *lease)
{
    struct book *book = book_at(model, lease);

    return book && book->open && book->session == worker->session &&
                   book->lease.generation == lease->generation
               ? book
               : NULL;
}

static void book_release(struct model *model, struct book *book)
{
    if (!book->done && !book->abandoned)
        book_done(model, book);
    book->open = false;
}

void books_ack(struct model *model, struct worker *worker, const struct trajd_wire_ack *ack)
{
    for (uint32_t i = 0; i < ack->done.count; i++) {
        struct book *book = find_book(model, worker, &ack->done.list[i]);
        if (book && !book->done && !book->abandoned)
            book_done(model, book);
    }
    for (uint32_t i = 0; i < ack->released.count; i++) {
        struct book *book = find_book(model, worker, &ack->released.list[i]);
        if (book)
            book_release(model, book);
    }
    for (uint32_t i = 0; i < ack->positions.count; i++) {
        const uint64_t position = ack->positions.list[i];
        if (position >= model->begin && batch_of(model, position) < batch_count(model) &&
            model->holders[batch_of(model, position)] == worker->session && worker->session)
            count_done(model, position);
    }
}

static bool names(const struct trajd_wire_leases *leases, const struct book *book)
{
    for (uint32_t i = 0; i < leases->count; i++)
        if (leases->list[i].ring == book->lease.ring && leases->list[i].slot == book->lease.slot &&
            leases->list[i].generation == book->lease.generation &&
            leases->list[i].part == book->lease.part)
            return true;
    return false;
}

void books_resume(struct model *model, struct worker *worker, const struct trajd_wire_hello *hello)
{
    for (struct book *book = NULL; (book = next_book(model, book));) {
        if (!book->open || book->session != worker->session)
            continue;
        if (names(&hello->held, book)) {
            if (names(&hello->done, book) && !book->done && !book->abandoned)
                book_done(model, book);
        } else if (book->seq <= hello->received || book->abandoned) {
            book_release(model, book);
        }
    }
}

/* Sets what the rank has DONE from the position that it reports, which also counts messages that
 * were lost. */
void books_set_rank_position(struct model *model, uint32_t index, uint64_t next)
{
    for (uint64_t b = 0; b < batch_count(model); b++)
        if (model->begin + b * model->world->options.global_batch < next)
            model->done[index][b] = 1;
}

/* Checks that nothing reads a slot that is to be filled: no lease is open, and no live worker holds
 * one. */
void books_check_unread(struct model *model, uint32_t feed, uint32_t slot)
{
    const uint32_t ring = trajd_core_feed_id(model->world->feeds[feed]);

    for (struct book *book = NULL; (book = next_book(model, book));)
        if (book->open && book->lease.ring == ring && book->lease.slot == slot)
            model_fail(model, "slot %u is filled again while part %u of job %s is leased", slot,
                       book->part, model->name);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        const struct worker *worker = &model->workers[i];
        for (uint32_t h = 0; h < worker->held_count; h++)
            if (!worker->held[h].carried && worker->held[h].lease.slot == slot &&
                worker->held[h].lease.ring == ring && worker->instance == model->world->instance &&
                worker->session && !worker->dying)
                model_fail(model, "slot %u is filled again while worker %s%u reads it", slot,
                           model->name, i);
    }
}

static void check_end(struct model *model, uint32_t index, const struct trajd_wire_epoch_end *end)
{
    struct worker *worker = &model->workers[index];

    if (worker->end_sent && worker->end_epoch == end->epoch)
        model_fail(model, "worker %s%u gets the end of epoch %llu twice", model->name, index,
                   (unsigned long long)end->epoch);
    worker->end_sent = true;
    worker->end_epoch = end->epoch;
    if (end->epoch != model->epoch)
        return;
    if (model->mode == TRAJD_WIRE_QUEUE ? end->batches != batch_count(model)
                                        : end->batches > batch_count(model))
        model_fail(model, "end after %llu batches of %llu", (unsigned long long)end->batches,
                   (unsigned long long)batch_count(model));
    for (uint32_t p = 0; p < model->parts; p++)
        for (uint64_t b = 0; b < batch_count(model); b++)
            if (model->done[p][b] != 1)
                model_fail(model,
                           "job %s: epoch %llu ends, part %u of batch %llu was DONE %u times",
                           model->name, (unsigned long long)end->epoch, p, (unsigned long long)b,
                           model->done[p][b]);
}

static void check_credit(struct model *model)
{
    struct trajd_core_session_info info;

    for (uint32_t i = 0; trajd_core_session_info(model->world->core, i, &info); i++)
        if (info.held > info.credit)
            model_fail(model, "session %llu holds %u of %u", (unsigned long long)info.session,
                       info.held, info.credit);
    for (uint32_t i = 0; i < model->worker_count; i++) {
        uint32_t held = 0;
        for (struct book *book = NULL; (book = next_book(model, book));)
            held += book->open && model->workers[i].session &&
                    book->session == model->workers[i].session;
        if (held > model->workers[i].credit && model->workers[i].member)
            model_fail(model, "worker %s%u has %u leases with a credit of %u", model->name, i, held,
                       model->workers[i].credit);
    }
}

void books_check(struct model *model)
{
    for (uint32_t i = 0; i < model->ends_to_check; i++)
        check_end(model, model->ends[i].worker, &model->ends[i].end);
    model->ends_to_check = 0;
    if (model->world->core)
        check_credit(model);
}
