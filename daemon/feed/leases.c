/* What happens to a part from LEASED on: DONE, RELEASED, given back, void. */
#include <stdlib.h>

#include "daemon/feed/state.h"

/* A part that goes back is for somebody else while its epoch runs, and for nobody after, or if its rank has
 * gone past it. */
static void give_back(struct trajd_core_feed *feed, const struct slot *slot, struct part *part)
{
    bool is_current = slot->life == feed->cursor.life && slot->epoch == feed->job.epoch;
    bool is_passed = is_current && feed->job.mode == TRAJD_WIRE_SHARD &&
                     slot->position < feed->job.ranks[part - slot->parts].next;

    *part = (struct part){.state = is_current && !is_passed ? PART_PENDING : PART_VOID};
    feed->core->stats.handed_again += is_current && !is_passed;
    feed->job.parts_left -= is_passed;
}

void trajd_lease_done(struct trajd_core_feed *feed, struct slot *slot, struct part *part,
                      struct session *session)
{
    uint32_t begin, count;

    part->state = PART_DONE;
    trajd_part_rows(&feed->job, slot->row_count, (uint32_t)(part - slot->parts), &begin, &count);
    feed->core->stats.batches_done++;
    feed->core->stats.windows_done += count;
    session->batches_done++;
    feed->job.parts_left--;
    if (feed->journal && feed->job.mode == TRAJD_WIRE_SHARE)
        trajd_journal_done(feed->journal, (slot->position - feed->job.begin) / feed->options.global_batch);
}

void trajd_lease_release(struct trajd_core_feed *feed, uint32_t index, struct part *part,
                         struct session *session)
{
    struct slot *slot = &feed->slots[index];

    session->held--;
    if (part->state == PART_LEASED && part->abandoned) {
        give_back(feed, slot, part);
    } else {
        if (part->state == PART_LEASED)
            trajd_lease_done(feed, slot, part, session);
        part->state = PART_RELEASED;
    }
    trajd_slot_settle(feed, index);
}

/* The part that the session holds under that lease, or NULL. */
static struct part *find_part(struct trajd_core *core, const struct session *session,
                              const struct trajd_wire_lease *lease, struct trajd_core_feed **feed,
                              struct slot **slot)
{
    struct part *part;

    *slot = trajd_slot_of_lease(core, lease, feed);
    if (!*slot || (*slot)->state != SLOT_READY || (*slot)->generation != lease->generation ||
        lease->part >= (*slot)->part_count)
        return NULL;
    part = &(*slot)->parts[lease->part];
    if ((part->state != PART_LEASED && part->state != PART_DONE) || part->session != session->id)
        return NULL;
    return part;
}

static void ack_done(struct trajd_core *core, struct session *session, const struct trajd_wire_lease *lease)
{
    struct trajd_core_feed *feed;
    struct slot *slot;
    struct part *part = find_part(core, session, lease, &feed, &slot);

    if (part && part->state == PART_LEASED && !part->abandoned)
        trajd_lease_done(feed, slot, part, session);
    else
        core->stats.late_acks++;
}

static void ack_released(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_lease *lease)
{
    struct trajd_core_feed *feed;
    struct slot *slot;
    struct part *part = find_part(core, session, lease, &feed, &slot);

    if (part)
        trajd_lease_release(feed, lease->slot, part, session);
    else
        core->stats.late_acks++;
}

void trajd_core_ack(struct trajd_core *core, uint64_t session_id, const struct trajd_wire_ack *ack,
                    uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (!session) {
        core->stats.late_acks += ack->done.count + ack->released.count;
        return;
    }
    session->last_message_ns = now_ns;
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_account(feed, now_ns);
    for (uint32_t i = 0; i < ack->done.count; i++)
        ack_done(core, session, &ack->done.list[i]);
    for (uint32_t i = 0; i < ack->released.count; i++)
        ack_released(core, session, &ack->released.list[i]);
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_job_advance(feed);
}

void trajd_leases_abandon(struct trajd_core_feed *feed, const struct session *session)
{
    for (uint32_t i = 0; i < feed->ready.count; i++) {
        struct slot *slot = &feed->slots[feed->ready.slots[i]];
        for (uint32_t p = 0; p < slot->part_count; p++)
            if (slot->parts[p].state == PART_LEASED && slot->parts[p].session == session->id)
                slot->parts[p].abandoned = true;
    }
}

static void void_feed(struct trajd_core_feed *feed, const struct session *session)
{
    for (uint32_t i = feed->ready.count; i-- > 0;) {
        uint32_t index = feed->ready.slots[i];
        struct slot *slot = &feed->slots[index];
        for (uint32_t p = 0; p < slot->part_count; p++) {
            struct part *part = &slot->parts[p];
            if (part->session != session->id)
                continue;
            if (part->state == PART_LEASED)
                give_back(feed, slot, part);
            else if (part->state == PART_DONE)
                *part = (struct part){.state = PART_VOID};
        }
        trajd_slot_settle(feed, index);
    }
}

void trajd_leases_void(struct trajd_core *core, struct session *session)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        void_feed(feed, session);
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

struct resend {
    uint64_t seq;
    struct trajd_core_feed *feed;
    uint32_t slot, part;
};

static int compare_resends(const void *a, const void *b)
{
    const struct resend *left = a, *right = b;

    return left->seq < right->seq ? -1 : left->seq > right->seq;
}

/* One part that the daemon believes to be with the session. True if its BATCH has to be sent again. */
static bool resume_part(struct trajd_core_feed *feed, uint32_t index, struct part *part,
                        struct session *session, const struct trajd_wire_hello *hello)
{
    struct slot *slot = &feed->slots[index];
    uint32_t part_index = (uint32_t)(part - slot->parts);
    bool is_held = is_named(&hello->held, feed->id, index, slot->generation, part_index);

    if (part->seq > hello->received) { /* whatever it holds under that lease, it had from an earlier BATCH */
        if (part->state == PART_LEASED && !part->abandoned)
            return true;
        trajd_lease_release(feed, index, part, session);
        return false;
    }
    if (!is_held) {
        trajd_lease_release(feed, index, part, session);
        return false;
    }
    if (part->state == PART_LEASED && !part->abandoned &&
        is_named(&hello->done, feed->id, index, slot->generation, part_index))
        trajd_lease_done(feed, slot, part, session);
    return false;
}

void trajd_leases_resume(struct trajd_core *core, struct session *session,
                         const struct trajd_wire_hello *hello)
{
    struct resend resends[TRAJD_WIRE_MAX_LEASES]; /* no session is granted more credit */
    struct trajd_core_feed *feed;
    struct slot *slot;
    uint32_t count = 0;

    for (uint32_t i = 0; i < hello->held.count; i++)
        core->stats.late_acks += !find_part(core, session, &hello->held.list[i], &feed, &slot);
    for (feed = core->feeds; feed; feed = feed->next)
        for (uint32_t i = feed->ready.count; i-- > 0;) {
            uint32_t index = feed->ready.slots[i];
            slot = &feed->slots[index];
            for (uint32_t p = 0; slot->state == SLOT_READY && p < slot->part_count; p++) {
                struct part *part = &slot->parts[p];
                if (part->session != session->id || (part->state != PART_LEASED && part->state != PART_DONE))
                    continue;
                if (resume_part(feed, index, part, session, hello) && count < TRAJD_WIRE_MAX_LEASES)
                    resends[count++] = (struct resend){part->seq, feed, index, p};
            }
        }
    qsort(resends, count, sizeof resends[0], compare_resends);
    for (uint32_t i = 0; i < count; i++)
        trajd_slot_send(resends[i].feed, resends[i].slot, resends[i].part, session);
}
