/* Hands out READY parts: chooses the session, leases the part to it, sends the BATCH. */
#include "daemon/feed/feed_internal.h"

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
