/* Which session gets a READY part, and what happens to the part after it was LEASED: it becomes DONE,
 * RELEASED, PENDING again, or VOID. */
#include <stdlib.h>

#include "daemon/feed/feed_internal.h"

/* ---- delivery ---- */

/* Sends the BATCH of a leased part. */
static void send_part(const struct place *place, struct session *session)
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

static void lend_part(struct job *job, uint32_t index, uint32_t part_index, struct session *session)
{
    struct slot *slot = &job->feed->slots[index];
    struct part *part = &slot->job_parts[job->index].parts[part_index];
    const struct place place = {job->feed, index, slot, job, part_index, part};

    *part = (struct part){PART_LEASED, false, session->id, ++session->seq};
    session->held++;
    session->batches_sent++;
    session->turn = ++job->feed->core->turn;
    job->feed->core->stats.batches_sent++;
    send_part(&place, session);
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
        lend_part(job, feed->ready.slots[i], rank, session);
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
        lend_part(job, feed->ready.slots[i], 0, session);
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

/* ---- from LEASED on ---- */

/* Takes back a part that is not DONE. It is PENDING again while its epoch runs. It is VOID after
 * the epoch, and if its rank has moved past it. is_dead: its session did not give it back. */
static void give_back(const struct place *place, bool is_dead)
{
    struct job *job = place->job;
    bool is_current = trajd_slot_job_parts(place->slot, job) != NULL;
    bool is_passed = is_current && job->mode == TRAJD_WIRE_SHARD &&
                     place->slot->position < job->ranks[place->part_index].next;

    *place->part = (struct part){.state = is_current && !is_passed ? PART_PENDING : PART_VOID};
    place->feed->core->stats.handed_again += is_dead && is_current && !is_passed;
    job->parts_remaining -= is_passed;
}

void trajd_job_count_done(struct job *job, struct session *session, uint64_t position,
                          uint32_t row_count)
{
    struct trajd_core_feed *feed = job->feed;

    feed->core->stats.batches_done++;
    feed->core->stats.windows_done += row_count;
    session->batches_done++;
    job->parts_remaining--;
    if (job->journal && job->mode == TRAJD_WIRE_QUEUE)
        trajd_journal_done(job->journal, (position - job->begin) / feed->options.global_batch);
}

/* Moves the part from LEASED to DONE, and counts it. */
static void finish_part(const struct place *place, struct session *session)
{
    uint32_t begin, count;

    place->part->state = PART_DONE;
    trajd_part_rows(place->job, place->slot->row_count, place->part_index, &begin, &count);
    trajd_job_count_done(place->job, session, place->slot->position, count);
}

/* Takes the part back from its session. An abandoned part becomes PENDING (or VOID); any other part
 * becomes RELEASED and counts as DONE. */
static void release_part(const struct place *place, struct session *session)
{
    session->held--;
    if (place->part->state == PART_LEASED && place->part->abandoned) {
        give_back(place, false);
    } else {
        if (place->part->state == PART_LEASED)
            finish_part(place, session);
        place->part->state = PART_RELEASED;
    }
    trajd_slot_free_unneeded(place->feed, place->index);
}

static struct slot *find_slot(struct trajd_core *core, const struct trajd_wire_lease *lease,
                              struct trajd_core_feed **feed)
{
    for (*feed = core->feeds; *feed; *feed = (*feed)->next)
        if ((*feed)->id == lease->ring)
            break;
    if (!*feed || lease->slot >= (*feed)->options.slot_count)
        return NULL;
    return &(*feed)->slots[lease->slot];
}

/* Finds the part that the session holds under that lease. Returns false if it holds none. */
static bool find_part(struct trajd_core *core, const struct session *session,
                      const struct trajd_wire_lease *lease, struct place *place)
{
    const uint32_t job_index = lease->part / TRAJD_CORE_MAX_WORLD;

    *place = (struct place){.index = lease->slot, .part_index = lease->part % TRAJD_CORE_MAX_WORLD};
    place->slot = find_slot(core, lease, &place->feed);
    if (!place->slot || place->slot->state != SLOT_READY ||
        place->slot->generation != lease->generation ||
        job_index >= place->feed->options.job_count ||
        place->part_index >= place->slot->job_parts[job_index].part_count)
        return false;
    place->job = &place->feed->jobs[job_index];
    place->part = &place->slot->job_parts[job_index].parts[place->part_index];
    return (place->part->state == PART_LEASED || place->part->state == PART_DONE) &&
           place->part->session == session->id;
}

/* Moves `place` to the next part that the session holds on the feed. Returns false after the last.
 * Begin with a place that has only the feed set. The caller may free the slot of the part between
 * calls. */
static bool next_held(struct place *place, const struct session *session)
{
    struct trajd_core_feed *feed = place->feed;
    uint32_t index = place->index, j = place->job ? place->job->index : 0,
             part = place->job ? place->part_index + 1 : 0;

    for (; index < feed->options.slot_count; index++, j = part = 0)
        for (; feed->slots[index].state == SLOT_READY && j < feed->options.job_count; j++, part = 0)
            for (; part < feed->slots[index].job_parts[j].part_count; part++) {
                struct part *found = &feed->slots[index].job_parts[j].parts[part];
                if (found->session != session->id ||
                    (found->state != PART_LEASED && found->state != PART_DONE))
                    continue;
                *place =
                    (struct place){feed, index, &feed->slots[index], &feed->jobs[j], part, found};
                return true;
            }
    return false;
}

void trajd_lease_ack_done(struct trajd_core *core, struct session *session,
                          const struct trajd_wire_lease *lease)
{
    struct place place;

    if (find_part(core, session, lease, &place) && place.part->state == PART_LEASED &&
        !place.part->abandoned)
        finish_part(&place, session);
    else
        core->stats.late_acks++;
}

void trajd_lease_ack_released(struct trajd_core *core, struct session *session,
                              const struct trajd_wire_lease *lease)
{
    struct place place;

    if (find_part(core, session, lease, &place))
        release_part(&place, session);
    else
        core->stats.late_acks++;
}

bool trajd_leases_has_undone(const struct trajd_core *core, const struct session *session)
{
    for (const struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        for (uint32_t i = 0; i < feed->ready.count; i++) {
            const struct slot *slot = &feed->slots[feed->ready.slots[i]];
            for (uint32_t j = 0; j < feed->options.job_count; j++)
                for (uint32_t p = 0; p < slot->job_parts[j].part_count; p++)
                    if (slot->job_parts[j].parts[p].state == PART_LEASED &&
                        slot->job_parts[j].parts[p].session == session->id)
                        return true;
        }
    return false;
}

void trajd_leases_abandon(struct trajd_core_feed *feed, const struct session *session)
{
    struct place place = {.feed = feed};

    while (next_held(&place, session))
        if (place.part->state == PART_LEASED)
            place.part->abandoned = true;
}

void trajd_leases_void(struct trajd_core *core, struct session *session, bool is_dead)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next) {
        struct place place = {.feed = feed};
        while (next_held(&place, session)) {
            if (place.part->state == PART_LEASED)
                give_back(&place, is_dead);
            else
                *place.part = (struct part){.state = PART_VOID};
            trajd_slot_free_unneeded(feed, place.index);
        }
    }
    session->held = 0;
}

static bool is_named(const struct trajd_wire_leases *leases, uint32_t ring, uint32_t index,
                     uint64_t generation, uint32_t part)
{
    for (uint32_t i = 0; i < leases->count; i++)
        if (leases->list[i].ring == ring && leases->list[i].slot == index &&
            leases->list[i].generation == generation && leases->list[i].part == part)
            return true;
    return false;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *left = a, *right = b;

    return left->part->seq < right->part->seq ? -1 : left->part->seq > right->part->seq;
}

/* Settles one part that the core has leased to the resumed session. Returns true if its BATCH has
 * to be sent again. */
static bool resume_part(const struct place *place, struct session *session,
                        const struct trajd_wire_hello *hello)
{
    struct part *part = place->part;
    uint32_t number = place->job->index * TRAJD_CORE_MAX_WORLD + place->part_index;
    bool is_held =
        is_named(&hello->held, place->feed->id, place->index, place->slot->generation, number);

    /* The session has not received this BATCH. What it holds under the lease is from an earlier
     * one. */
    if (part->seq > hello->received) {
        if (part->state == PART_LEASED && !part->abandoned)
            return true;
        release_part(place, session);
        return false;
    }
    if (!is_held) {
        release_part(place, session);
        return false;
    }
    if (part->state == PART_LEASED && !part->abandoned &&
        is_named(&hello->done, place->feed->id, place->index, place->slot->generation, number))
        finish_part(place, session);
    return false;
}

void trajd_leases_resume(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_hello *hello)
{
    struct place resends[TRAJD_WIRE_MAX_LEASES], place; /* no session has more credit */
    uint32_t count = 0;

    for (uint32_t i = 0; i < hello->held.count; i++)
        core->stats.late_acks += !find_part(core, session, &hello->held.list[i], &place);
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next) {
        place = (struct place){.feed = feed};
        while (next_held(&place, session))
            if (resume_part(&place, session, hello) && count < TRAJD_WIRE_MAX_LEASES)
                resends[count++] = place;
    }
    qsort(resends, count, sizeof resends[0], compare_places);
    for (uint32_t i = 0; i < count; i++)
        send_part(&resends[i], session);
}
