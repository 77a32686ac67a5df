/* Slots: their states FREE -> FILLING -> READY -> FREE, the parts that jobs have of them, and which
 * session gets a READY part. */
#include "daemon/feed/feed_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- states ---- */

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

static bool size_job_parts(struct job_parts *job_parts, uint32_t count)
{
    if (count > job_parts->part_room) {
        struct part *parts = realloc(job_parts->parts, count * sizeof *parts);
        if (!parts)
            return false;
        job_parts->parts = parts;
        job_parts->part_room = count;
    }
    return true;
}

bool trajd_slots_make_room(const struct job *job, uint32_t count)
{
    for (uint32_t i = 0; i < job->feed->options.slot_count; i++)
        if (!size_job_parts(&job->feed->slots[i].job_parts[job->index], count))
            return false;
    return true;
}

static uint32_t part_count(const struct job *job)
{
    return job->mode == TRAJD_WIRE_SHARD ? job->world : 1;
}

bool trajd_slot_make_room(const struct trajd_core_feed *feed, struct slot *slot)
{
    uint32_t range_count = 1;

    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        const struct job *job = &feed->jobs[j];
        if (job->phase == JOB_NONE)
            continue;
        if (!size_job_parts(&slot->job_parts[j], part_count(job)))
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

void trajd_job_parts_begin(const struct job *job, struct slot *slot)
{
    struct job_parts *job_parts = &slot->job_parts[job->index];
    bool is_now = job->phase == JOB_RUNNING && slot->epoch == job->epoch;

    job_parts->run_id = job->run_id;
    job_parts->part_count = part_count(job);
    for (uint32_t i = 0; i < job_parts->part_count; i++) {
        job_parts->parts[i] = (struct part){.state = PART_PENDING};
        if (job->mode == TRAJD_WIRE_SHARD &&
            (job->ranks[i].is_remote || (is_now && slot->position < job->ranks[i].next)))
            job_parts->parts[i].state = PART_RELEASED;
    }
}

void trajd_slot_begin_fill(struct trajd_core_feed *feed, uint32_t index)
{
    struct slot *slot = &feed->slots[index];

    slot->generation++;
    slot->state = SLOT_FILLING;
    slot->published = false;
    queue_push(&feed->filling, index);
}

void trajd_slot_free(struct trajd_core_feed *feed, uint32_t index)
{
    struct slot *slot = &feed->slots[index];

    queue_remove(slot->state == SLOT_FILLING ? &feed->filling : &feed->ready, index);
    slot->state = SLOT_FREE;
    trajd_feed_wake(feed);
}

void trajd_slot_free_unneeded(struct trajd_core_feed *feed, uint32_t index)
{
    struct slot *slot = &feed->slots[index];

    if (slot->state != SLOT_READY)
        return;
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        for (uint32_t i = 0; i < slot->job_parts[j].part_count; i++)
            if (slot->job_parts[j].parts[i].state != PART_RELEASED &&
                slot->job_parts[j].parts[i].state != PART_VOID)
                return;
    trajd_slot_free(feed, index);
}

/* Returns the slot that was taken first in this run of production, or UINT32_MAX. Fills of earlier
 * runs delay nothing. */
static uint32_t oldest_filling(const struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->filling.count; i++)
        if (feed->slots[feed->filling.slots[i]].run_id == feed->cursor.run_id)
            return feed->filling.slots[i];
    return UINT32_MAX;
}

void trajd_slots_promote(struct trajd_core_feed *feed, uint64_t now_ns)
{
    uint32_t index;

    while ((index = oldest_filling(feed)) != UINT32_MAX && feed->slots[index].published) {
        queue_remove(&feed->filling, index);
        feed->slots[index].state = SLOT_READY;
        feed->slots[index].ready_ns = now_ns;
        queue_push(&feed->ready, index);
        trajd_slot_free_unneeded(feed, index); /* perhaps no rank needs it */
    }
}

void trajd_slots_free_published(struct trajd_core_feed *feed)
{
    for (uint32_t i = feed->filling.count; i-- > 0;)
        if (feed->slots[feed->filling.slots[i]].published)
            trajd_slot_free(feed, feed->filling.slots[i]);
}

/* ---- delivery ---- */

void trajd_part_send(const struct place *place, struct session *session)
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
    struct part *part = &slot->job_parts[job->index].parts[part_index];
    const struct place place = {job->feed, index, slot, job, part_index, part};

    *part = (struct part){PART_LEASED, false, session->id, ++session->seq};
    session->held++;
    session->batches_sent++;
    session->turn = ++job->feed->core->turn;
    job->feed->core->stats.batches_sent++;
    trajd_part_send(&place, session);
}

static uint32_t count_held(const struct session *session)
{
    return session->held + session->carried;
}

static bool has_credit(const struct session *session)
{
    return session->joined && count_held(session) < session->credit;
}

/* Returns the session with credit that holds the fewest leases. Among equals it is the one that was
 * served longest ago. */
static struct session *pick_session(const struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;
    struct session *best = NULL;

    for (uint32_t i = 0; i < feed->member_count; i++) {
        struct session *member = feed->members[i];
        if (member->job != job || !has_credit(member))
            continue;
        if (!best || count_held(member) < count_held(best) ||
            (count_held(member) == count_held(best) && member->turn < best->turn))
            best = member;
    }
    return best;
}

/* Leases a rank its parts in order of position. The order matters: after a restart of the daemon
 * the rank's position is all that is known. */
static void deliver_rank(struct job *job, uint32_t rank)
{
    const struct trajd_core_feed *feed = job->feed;
    struct session *session = job->ranks[rank].session;

    for (uint32_t i = 0; session && i < feed->ready.count; i++) {
        const struct job_parts *job_parts =
            trajd_slot_job_parts(&feed->slots[feed->ready.slots[i]], job);
        if (!job_parts)
            continue;
        if (job_parts->parts[rank].state == PART_LEASED && job_parts->parts[rank].abandoned)
            return; /* the session must release the part before the part can be sent again */
        if (job_parts->parts[rank].state != PART_PENDING)
            continue;
        if (!has_credit(session))
            return;
        lease(job, feed->ready.slots[i], rank, session);
    }
}

/* Leases the oldest PENDING batches first, so batches of dead sessions come before new ones. */
static void deliver_queue(struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct job_parts *job_parts =
            trajd_slot_job_parts(&feed->slots[feed->ready.slots[i]], job);
        struct session *session;
        if (!job_parts || job_parts->parts[0].state != PART_PENDING)
            continue;
        session = pick_session(job);
        if (!session)
            return;
        lease(job, feed->ready.slots[i], 0, session);
    }
}

void trajd_job_deliver(struct job *job)
{
    if (job->feed->core->going_away || job->phase != JOB_RUNNING)
        return;
    if (job->mode == TRAJD_WIRE_QUEUE) {
        deliver_queue(job);
        return;
    }
    for (uint32_t r = 0; r < job->world; r++)
        deliver_rank(job, r);
}
