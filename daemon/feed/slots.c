/* The life of a slot: FREE -> FILLING -> READY -> FREE, and the sending of what is READY. */
#include <stdlib.h>
#include <string.h>

#include "daemon/feed/state.h"

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
        memmove(&queue->slots[i], &queue->slots[i + 1], (queue->count - i) * sizeof queue->slots[0]);
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

/* Parts, and the rows of them: at most as many ranges as parts. */
static bool size_parts(struct slot *slot, uint32_t count)
{
    if (count > slot->range_room) {
        struct trajd_rows *ranges = realloc(slot->ranges, count * sizeof *ranges);
        if (!ranges)
            return false;
        slot->ranges = ranges;
        slot->range_room = count;
    }
    if (count > slot->part_room) {
        struct part *parts = realloc(slot->parts, count * sizeof *parts);
        if (!parts)
            return false;
        slot->parts = parts;
        slot->part_room = count;
    }
    slot->part_count = count;
    return true;
}

/* A rank that stands further on does not need the part. */
static void init_parts(const struct trajd_core_feed *feed, struct slot *slot)
{
    bool is_now = feed->job.phase == JOB_RUNNING && slot->epoch == feed->job.epoch;

    for (uint32_t i = 0; i < slot->part_count; i++) {
        slot->parts[i] = (struct part){.state = PART_PENDING};
        if (feed->job.mode == TRAJD_WIRE_SHARD &&
            (feed->job.ranks[i].is_remote || (is_now && slot->position < feed->job.ranks[i].next)))
            slot->parts[i].state = PART_RELEASED;
    }
}

/* The rows that are read here. */
static void init_ranges(const struct job *job, struct slot *slot)
{
    const struct trajd_wire_ranks *local = &job->local;

    slot->range_count = 0;
    if (!local->count) {
        slot->ranges[slot->range_count++] = (struct trajd_rows){0, slot->row_count};
        return;
    }
    for (uint32_t i = 0; i < local->count; i++) {
        struct trajd_rows rows, *last = slot->range_count ? &slot->ranges[slot->range_count - 1] : NULL;
        trajd_part_rows(job, slot->row_count, local->list[i], &rows.begin, &rows.count);
        if (last && last->begin + last->count == rows.begin)
            last->count += rows.count;
        else if (rows.count)
            slot->ranges[slot->range_count++] = rows;
    }
}

/* Moves on to the batch to produce next. */
static uint64_t advance_cursor(struct trajd_core_feed *feed)
{
    struct cursor *cursor = &feed->cursor;
    uint64_t position;

    if (cursor->todo_next < cursor->todo_count)
        return cursor->todo[cursor->todo_next++];
    if (cursor->epoch == feed->job.epoch && cursor->position >= trajd_job_end(feed, feed->job.begin)) {
        cursor->epoch++;
        cursor->position = 0;
    }
    position = cursor->position;
    cursor->position += feed->options.global_batch;
    return position;
}

enum trajd_status trajd_core_take(struct trajd_core_feed *feed, uint64_t now_ns, struct trajd_core_fill *fill)
{
    uint32_t index = trajd_feed_wants(feed) ? find_free(feed) : UINT32_MAX;
    struct slot *slot;
    uint64_t rest;

    trajd_feed_account(feed, now_ns);
    if (index == UINT32_MAX)
        return TRAJD_ERR_TIMEOUT;
    slot = &feed->slots[index];
    if (!size_parts(slot, feed->job.mode == TRAJD_WIRE_SHARD ? feed->job.world : 1))
        return TRAJD_ERR_MEMORY;
    slot->position = advance_cursor(feed);
    slot->epoch = feed->cursor.epoch;
    slot->life = feed->cursor.life;
    rest = feed->options.epoch_length - slot->position;
    slot->row_count = rest < feed->options.global_batch ? (uint32_t)rest : feed->options.global_batch;
    slot->generation++;
    slot->state = SLOT_FILLING;
    slot->published = false;
    init_parts(feed, slot);
    init_ranges(&feed->job, slot);
    queue_push(&feed->filling, index);
    if (feed->journal && feed->job.mode == TRAJD_WIRE_SHARE && slot->epoch == feed->job.epoch)
        trajd_journal_produce(feed->journal, (slot->position - feed->job.begin) / feed->options.global_batch);
    *fill = (struct trajd_core_fill){index,       slot->row_count, slot->generation,  slot->life,
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
    for (uint32_t i = 0; i < slot->part_count; i++)
        if (slot->parts[i].state != PART_RELEASED && slot->parts[i].state != PART_VOID)
            return;
    free_slot(feed, index);
}

/* The oldest fill of this life; those of earlier ones hold nobody up. */
static uint32_t oldest_filling(const struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->filling.count; i++)
        if (feed->slots[feed->filling.slots[i]].life == feed->cursor.life)
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
    if (!slot || slot->state != SLOT_FILLING || slot->published || slot->generation != fill->generation) {
        feed->core->stats.late_publishes++;
        return false;
    }
    if (slot->life != feed->cursor.life) {
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
    trajd_job_advance(feed);
    return true;
}

void trajd_slots_retire(struct trajd_core_feed *feed)
{
    feed->cursor.life++;
    for (uint32_t i = feed->ready.count; i-- > 0;) {
        uint32_t index = feed->ready.slots[i];
        struct slot *slot = &feed->slots[index];
        for (uint32_t p = 0; p < slot->part_count; p++) {
            if (slot->parts[p].state == PART_PENDING)
                slot->parts[p].state = PART_VOID;
            else if (slot->parts[p].state == PART_LEASED)
                slot->parts[p].abandoned = true;
        }
        trajd_slot_settle(feed, index);
    }
    for (uint32_t i = feed->filling.count; i-- > 0;) /* those published already wait for nobody now */
        if (feed->slots[feed->filling.slots[i]].published)
            free_slot(feed, feed->filling.slots[i]);
}

void trajd_part_rows(const struct job *job, uint32_t row_count, uint32_t part_index, uint32_t *begin,
                     uint32_t *count)
{
    uint64_t world = job->mode == TRAJD_WIRE_SHARD ? job->world : 1;

    *begin = (uint32_t)(row_count * (uint64_t)part_index / world);
    *count = (uint32_t)(row_count * ((uint64_t)part_index + 1) / world) - *begin;
}

void trajd_slot_send(struct trajd_core_feed *feed, uint32_t index, uint32_t part_index,
                     struct session *session)
{
    const struct slot *slot = &feed->slots[index];
    struct trajd_wire_message message;

    message.op = TRAJD_WIRE_BATCH;
    message.batch = (struct trajd_wire_batch){
        .seq = slot->parts[part_index].seq,
        .feed_id = feed->id,
        .ring = feed->id,
        .slot = index,
        .generation = slot->generation,
        .part = part_index,
        .epoch = slot->epoch,
        .position = slot->position,
        .ready_ns = slot->ready_ns,
        .error = trajd_wire_text(slot->failed ? slot->failure : NULL),
    };
    trajd_part_rows(&feed->job, slot->row_count, part_index, &message.batch.row_begin,
                    &message.batch.row_count);
    trajd_core_send(session, feed->core, &message);
}

static void lease(struct trajd_core_feed *feed, uint32_t index, uint32_t part_index, struct session *session)
{
    struct part *part = &feed->slots[index].parts[part_index];

    *part = (struct part){PART_LEASED, false, session->id, ++session->seq};
    session->held++;
    session->batches_sent++;
    session->turn = ++feed->core->turn;
    feed->core->stats.batches_sent++;
    trajd_slot_send(feed, index, part_index, session);
}

static bool has_credit(const struct session *session)
{
    return session->joined && session->held < session->credit;
}

/* Whoever holds least; among those, whoever was served longest ago. */
static struct session *pick_session(const struct trajd_core_feed *feed)
{
    struct session *best = NULL;

    for (uint32_t i = 0; i < feed->member_count; i++) {
        struct session *member = feed->members[i];
        if (!has_credit(member))
            continue;
        if (!best || member->held < best->held || (member->held == best->held && member->turn < best->turn))
            best = member;
    }
    return best;
}

/* Each rank gets its parts in order: its position is all that survives the daemon. */
static void deliver_rank(struct trajd_core_feed *feed, uint32_t rank)
{
    struct session *session = feed->job.ranks[rank].session;

    for (uint32_t i = 0; session && i < feed->ready.count; i++) {
        const struct slot *slot = &feed->slots[feed->ready.slots[i]];
        if (slot->life != feed->cursor.life || slot->epoch != feed->job.epoch)
            continue;
        if (slot->parts[rank].state == PART_LEASED && slot->parts[rank].abandoned)
            return; /* it comes again when its session has released it */
        if (slot->parts[rank].state != PART_PENDING)
            continue;
        if (!has_credit(session))
            return;
        lease(feed, feed->ready.slots[i], rank, session);
    }
}

/* The oldest first: what a dead session left goes out before anything new. */
static void deliver_shared(struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct slot *slot = &feed->slots[feed->ready.slots[i]];
        struct session *session;
        if (slot->life != feed->cursor.life || slot->epoch != feed->job.epoch ||
            slot->parts[0].state != PART_PENDING)
            continue;
        session = pick_session(feed);
        if (!session)
            return;
        lease(feed, feed->ready.slots[i], 0, session);
    }
}

void trajd_slots_deliver(struct trajd_core_feed *feed)
{
    if (feed->core->going_away || feed->job.phase != JOB_RUNNING)
        return;
    if (feed->job.mode == TRAJD_WIRE_SHARE) {
        deliver_shared(feed);
        return;
    }
    for (uint32_t r = 0; r < feed->job.world; r++)
        deliver_rank(feed, r);
}
