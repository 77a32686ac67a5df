/* The life of a slot: FREE -> FILLING -> READY -> FREE, and the sending of what is READY. */
#include <stdlib.h>
#include <string.h>

#include "daemon/feed/feed_internal.h"

static void queue_push(struct slot_queue *queue, uint32_t slot)
{
    queue->slots[queue->count++] = slot;
}

static void queue_remove(struct slot_queue *queue, uint32_t slot)
{
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->slots[i] != slot)
            continue;
        queue->count--;
        memmove(&queue->slots[i], &queue->slots[i + 1],
                (queue->count - i) * sizeof queue->slots[0]);
        return;
    }
}

struct slot *trajd_slot_of_lease(struct trajd_core *core, const struct trajd_wire_lease *lease,
                                 struct trajd_core_feed **feed)
{
    for (*feed = core->feeds; *feed; *feed = (*feed)->next)
        if ((*feed)->id == lease->ring)
            break;
    if (!*feed || lease->slot >= (*feed)->options.slot_count)
        return NULL;
    return &(*feed)->slots[lease->slot];
}

static bool is_lent(struct trajd_core_feed *feed, uint32_t slot)
{
    const struct trajd_core_options *options = &feed->core->options;

    return options->is_lent && options->is_lent(options->context, feed, slot);
}

static uint32_t find_free(struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->options.slot_count; i++)
        if (feed->slots[i].state == SLOT_FREE && !is_lent(feed, i))
            return i;
    return UINT32_MAX;
}

static bool size_share(struct share *share, uint32_t count)
{
    if (count > share->part_room) {
        struct part *parts = realloc(share->parts, count * sizeof *parts);
        if (!parts)
            return false;
        share->parts = parts;
        share->part_room = count;
    }
    return true;
}

bool trajd_slots_make_room(const struct job *job, uint32_t count)
{
    for (uint32_t i = 0; i < job->feed->options.slot_count; i++)
        if (!size_share(&job->feed->slots[i].shares[job->index], count))
            return false;
    return true;
}

static uint32_t part_count(const struct job *job)
{
    return job->mode == TRAJD_WIRE_SHARD ? job->world : 1;
}

/* Parts, and the rows of them: at most as many ranges as ranks that are here. */
static bool size_slot(const struct trajd_core_feed *feed, struct slot *slot)
{
    uint32_t range_count = 1;

    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        const struct job *job = &feed->jobs[j];
        if (job->phase == JOB_NONE)
            continue;
        if (!size_share(&slot->shares[j], part_count(job)))
            return false;
        range_count = job->local.count > range_count ? job->local.count : range_count;
    }
    if (range_count > slot->range_room) {
        struct trajd_rows *ranges = realloc(slot->ranges, range_count * sizeof *ranges);
        if (!ranges)
            return false;
        slot->ranges = ranges;
        slot->range_room = range_count;
    }
    return true;
}

struct share *trajd_slot_share(const struct slot *slot, const struct job *job)
{
    struct share *share = &slot->shares[job->index];

    return slot->state != SLOT_FREE && share->run_id == job->run_id && slot->epoch == job->epoch
               ? share
               : NULL;
}

void trajd_share_begin(const struct job *job, struct slot *slot)
{
    struct share *share = &slot->shares[job->index];
    bool is_now = job->phase == JOB_RUNNING && slot->epoch == job->epoch;

    share->run_id = job->run_id;
    share->part_count = part_count(job);
    for (uint32_t i = 0; i < share->part_count; i++) {
        share->parts[i] = (struct part){.state = PART_PENDING};
        if (job->mode == TRAJD_WIRE_SHARD &&
            (job->ranks[i].is_remote || (is_now && slot->position < job->ranks[i].next)))
            share->parts[i].state = PART_RELEASED;
    }
}

/* A job with ranks of this node alone shares its slots with no other: see trajd_job_can_attach. */
static const struct job *find_local_job(const struct trajd_core_feed *feed, const struct slot *slot)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (slot->shares[j].run_id && feed->jobs[j].local.count)
            return &feed->jobs[j];
    return NULL;
}

/* The rows that are read here. */
static void init_ranges(const struct trajd_core_feed *feed, struct slot *slot)
{
    const struct job *job = find_local_job(feed, slot);

    slot->range_count = 0;
    if (!job) {
        slot->ranges[slot->range_count++] = (struct trajd_rows){0, slot->row_count};
        return;
    }
    for (uint32_t i = 0; i < job->local.count; i++) {
        struct trajd_rows rows,
            *last = slot->range_count ? &slot->ranges[slot->range_count - 1] : NULL;
        trajd_part_rows(job, slot->row_count, job->local.list[i], &rows.begin, &rows.count);
        if (last && last->begin + last->count == rows.begin)
            last->count += rows.count;
        else if (rows.count)
            slot->ranges[slot->range_count++] = rows;
    }
}

/* What the job has to do below the cursor; the rest comes with it. */
static bool find_todo(const struct job *job, uint64_t *position)
{
    const struct cursor *cursor = &job->feed->cursor;

    for (uint32_t i = 0; i < job->todo_count; i++)
        if (job->epoch < cursor->epoch || job->todo[i] < cursor->position) {
            *position = job->todo[i];
            return true;
        }
    return false;
}

/* Moves on to the batch to produce next. True: it is a new one; else it is left from what jobs had
 * to do. */
static bool advance_cursor(struct trajd_core_feed *feed, struct slot *slot)
{
    struct cursor *cursor = &feed->cursor;

    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (find_todo(&feed->jobs[j], &slot->position)) {
            slot->epoch = feed->jobs[j].epoch;
            return false;
        }
    if (cursor->position >= trajd_epoch_end(feed, cursor->begin)) {
        cursor->epoch++;
        cursor->position = cursor->begin = 0;
    }
    slot->epoch = cursor->epoch;
    slot->position = cursor->position;
    cursor->position += feed->options.global_batch;
    return true;
}

static void claim(struct trajd_core_feed *feed, struct slot *slot, bool is_new)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        struct job *job = &feed->jobs[j];
        slot->shares[j].run_id = slot->shares[j].part_count = 0;
        if (!trajd_job_claim(job, slot->epoch, slot->position, is_new))
            continue;
        trajd_share_begin(job, slot);
        if (job->journal && job->mode == TRAJD_WIRE_QUEUE && slot->epoch == job->epoch)
            trajd_journal_produce(job->journal,
                                  (slot->position - job->begin) / feed->options.global_batch);
    }
}

enum trajd_status trajd_core_take(struct trajd_core_feed *feed, uint64_t now_ns,
                                  struct trajd_core_fill *fill)
{
    uint32_t index = trajd_feed_wants(feed) ? find_free(feed) : UINT32_MAX;
    struct slot *slot;
    uint64_t rest;
    bool is_new;

    trajd_feed_account(feed, now_ns);
    if (index == UINT32_MAX)
        return TRAJD_ERR_TIMEOUT;
    slot = &feed->slots[index];
    if (!size_slot(feed, slot))
        return TRAJD_ERR_MEMORY;
    is_new = advance_cursor(feed, slot);
    slot->run_id = feed->cursor.run_id;
    rest = feed->options.epoch_length - slot->position;
    slot->row_count =
        rest < feed->options.global_batch ? (uint32_t)rest : feed->options.global_batch;
    slot->generation++;
    slot->state = SLOT_FILLING;
    slot->published = false;
    claim(feed, slot, is_new);
    init_ranges(feed, slot);
    queue_push(&feed->filling, index);
    *fill = (struct trajd_core_fill){index,       slot->row_count, slot->generation,  slot->run_id,
                                     slot->epoch, slot->position,  slot->range_count, slot->ranges};
    return TRAJD_OK;
}

static void free_slot(struct trajd_core_feed *feed, uint32_t index)
{
    struct slot *slot = &feed->slots[index];

    queue_remove(slot->state == SLOT_FILLING ? &feed->filling : &feed->ready, index);
    slot->state = SLOT_FREE;
    trajd_feed_wake(feed);
}

void trajd_slot_settle(struct trajd_core_feed *feed, uint32_t index)
{
    struct slot *slot = &feed->slots[index];

    if (slot->state != SLOT_READY)
        return;
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        for (uint32_t i = 0; i < slot->shares[j].part_count; i++)
            if (slot->shares[j].parts[i].state != PART_RELEASED &&
                slot->shares[j].parts[i].state != PART_VOID)
                return;
    free_slot(feed, index);
}

/* The oldest fill of this life; those of earlier ones hold nobody up. */
static uint32_t oldest_filling(const struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->filling.count; i++)
        if (feed->slots[feed->filling.slots[i]].run_id == feed->cursor.run_id)
            return feed->filling.slots[i];
    return UINT32_MAX;
}

/* READY in the order of takes. */
static void promote(struct trajd_core_feed *feed, uint64_t now_ns)
{
    uint32_t index;

    while ((index = oldest_filling(feed)) != UINT32_MAX && feed->slots[index].published) {
        queue_remove(&feed->filling, index);
        feed->slots[index].state = SLOT_READY;
        feed->slots[index].ready_ns = now_ns;
        queue_push(&feed->ready, index);
        trajd_slot_settle(feed, index); /* no rank may need it */
    }
}

bool trajd_core_publish(struct trajd_core_feed *feed, const struct trajd_core_fill *fill,
                        const struct trajd_error *failure, uint64_t now_ns)
{
    struct slot *slot = fill->slot < feed->options.slot_count ? &feed->slots[fill->slot] : NULL;

    trajd_feed_account(feed, now_ns);
    if (!slot || slot->state != SLOT_FILLING || slot->published ||
        slot->generation != fill->generation) {
        feed->core->stats.late_publishes++;
        return false;
    }
    if (slot->run_id != feed->cursor.run_id) {
        feed->core->stats.late_publishes++;
        free_slot(feed, fill->slot);
    } else {
        slot->published = true;
        slot->failed = failure != NULL;
        if (failure) {
            struct trajd_wire_text message =
                trajd_wire_text(failure->message[0] ? failure->message : "no reason given");
            trajd_wire_text_copy(message, slot->failure, sizeof slot->failure);
            feed->core->stats.batches_failed++;
        }
    }
    promote(feed, now_ns);
    trajd_feed_advance(feed);
    return true;
}

void trajd_slots_forget(struct trajd_core_feed *feed)
{
    for (uint32_t i = feed->filling.count; i-- > 0;)
        if (feed->slots[feed->filling.slots[i]].published)
            free_slot(feed, feed->filling.slots[i]);
}

void trajd_part_rows(const struct job *job, uint32_t row_count, uint32_t part_index,
                     uint32_t *begin, uint32_t *count)
{
    uint64_t world = job->mode == TRAJD_WIRE_SHARD ? job->world : 1;

    *begin = (uint32_t)(row_count * (uint64_t)part_index / world);
    *count = (uint32_t)(row_count * ((uint64_t)part_index + 1) / world) - *begin;
}

void trajd_slot_send(const struct place *place, struct session *session)
{
    const struct slot *slot = place->slot;
    struct trajd_wire_message message;

    message.op = TRAJD_WIRE_BATCH;
    message.batch = (struct trajd_wire_batch){
        .seq = place->part->seq,
        .feed_id = place->feed->id,
        .ring = place->feed->id,
        .slot = place->index,
        .generation = slot->generation,
        .part = place->job->index * TRAJD_CORE_MAX_WORLD + place->part_index,
        .epoch = slot->epoch,
        .position = slot->position,
        .ready_ns = slot->ready_ns,
        .error = trajd_wire_text(slot->failed ? slot->failure : NULL),
    };
    trajd_part_rows(place->job, slot->row_count, place->part_index, &message.batch.row_begin,
                    &message.batch.row_count);
    trajd_core_send(session, place->feed->core, &message);
}

static void lease(struct job *job, uint32_t index, uint32_t part_index, struct session *session)
{
    struct slot *slot = &job->feed->slots[index];
    struct part *part = &slot->shares[job->index].parts[part_index];
    const struct place place = {job->feed, index, slot, job, part_index, part};

    *part = (struct part){PART_LEASED, false, session->id, ++session->seq};
    session->held++;
    session->batches_sent++;
    session->turn = ++job->feed->core->turn;
    job->feed->core->stats.batches_sent++;
    trajd_slot_send(&place, session);
}

static bool has_credit(const struct session *session)
{
    return session->joined && session->held < session->credit;
}

/* Whoever holds least; among those, whoever was served longest ago. */
static struct session *pick_session(const struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;
    struct session *best = NULL;

    for (uint32_t i = 0; i < feed->member_count; i++) {
        struct session *member = feed->members[i];
        if (member->job != job || !has_credit(member))
            continue;
        if (!best || member->held < best->held ||
            (member->held == best->held && member->turn < best->turn))
            best = member;
    }
    return best;
}

/* Each rank gets its parts in order: its position is all that survives the daemon. */
static void deliver_rank(struct job *job, uint32_t rank)
{
    const struct trajd_core_feed *feed = job->feed;
    struct session *session = job->ranks[rank].session;

    for (uint32_t i = 0; session && i < feed->ready.count; i++) {
        const struct share *share = trajd_slot_share(&feed->slots[feed->ready.slots[i]], job);
        if (!share)
            continue;
        if (share->parts[rank].state == PART_LEASED && share->parts[rank].abandoned)
            return; /* it comes again when its session has released it */
        if (share->parts[rank].state != PART_PENDING)
            continue;
        if (!has_credit(session))
            return;
        lease(job, feed->ready.slots[i], rank, session);
    }
}

/* The oldest first: what a dead session left goes out before anything new. */
static void deliver_shared(struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct share *share = trajd_slot_share(&feed->slots[feed->ready.slots[i]], job);
        struct session *session;
        if (!share || share->parts[0].state != PART_PENDING)
            continue;
        session = pick_session(job);
        if (!session)
            return;
        lease(job, feed->ready.slots[i], 0, session);
    }
}

void trajd_slots_deliver(struct job *job)
{
    if (job->feed->core->going_away || job->phase != JOB_RUNNING)
        return;
    if (job->mode == TRAJD_WIRE_QUEUE) {
        deliver_shared(job);
        return;
    }
    for (uint32_t r = 0; r < job->world; r++)
        deliver_rank(job, r);
}
