/* Accounts the time in which production stalls to the sessions and jobs that hold it up, and the
 * time in which sessions have no batch to what production did meanwhile. */
#include "daemon/feed/feed_internal.h"

static bool has_more(const struct job *job)
{
    const struct cursor *cursor = &job->feed->cursor;

    if (job->phase != JOB_RUNNING || !job->is_attached)
        return false;
    return trajd_job_has_todo(job) ||
           (cursor->epoch == job->epoch &&
            cursor->position < trajd_epoch_end(job->feed, cursor->begin));
}

/* Returns true if every slot is READY and a running epoch has more batches: production waits for
 * sessions. */
static bool is_stalled(const struct trajd_core_feed *feed)
{
    if (feed->ready.count != feed->options.slot_count || !trajd_feed_wants(feed))
        return false;
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (has_more(&feed->jobs[j]))
            return true;
    return false;
}

/* Accounts the time to the session or rank that has to work on the part. Returns false if
 * production does not wait for the part. */
static bool blame_part(struct job *job, const struct slot *slot, uint32_t index,
                       uint64_t elapsed_ns)
{
    struct trajd_core_feed *feed = job->feed;
    const struct part *part = &slot->job_parts[job->index].parts[index];
    struct session *session = NULL;

    if (part->state == PART_RELEASED || part->state == PART_VOID)
        return false;
    if (part->state != PART_PENDING) {
        session = trajd_session_find(feed->core, part->session);
    } else if (job->mode == TRAJD_WIRE_SHARD) {
        session = slot->epoch == job->epoch ? job->ranks[index].session : NULL;
        if (!session) {
            job->absent_ns += elapsed_ns;
            job->absent_rank = index;
        }
    } else {
        for (uint32_t i = 0; i < feed->member_count; i++) /* queue: no session has credit left */
            if (feed->members[i]->job == job)
                feed->members[i]->stalled_ns += elapsed_ns;
    }
    if (session)
        session->stalled_ns += elapsed_ns;
    return true;
}

/* Returns true if the job has sessions and more batches to come, and has finished all that is
 * READY. */
static bool is_waiting(const struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;

    if (!job->member_count || !has_more(job))
        return false;
    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct job_parts *job_parts =
            trajd_slot_job_parts(&feed->slots[feed->ready.slots[i]], job);
        for (uint32_t p = 0; job_parts && p < job_parts->part_count; p++)
            if (job_parts->parts[p].state == PART_PENDING ||
                job_parts->parts[p].state == PART_LEASED)
                return false;
    }
    return true;
}

static bool keeps_others_waiting(const struct job *job)
{
    for (uint32_t j = 0; j < job->feed->options.job_count; j++)
        if (&job->feed->jobs[j] != job && is_waiting(&job->feed->jobs[j]))
            return true;
    return false;
}

/* ---- sessions without a batch ---- */

/* Notes which sessions have a batch that they have not finished. */
static void find_working(struct trajd_core_feed *feed, uint64_t now_ns)
{
    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct slot *slot = &feed->slots[feed->ready.slots[i]];
        for (uint32_t j = 0; j < feed->options.job_count; j++)
            for (uint32_t p = 0; p < slot->job_parts[j].part_count; p++) {
                const struct part *part = &slot->job_parts[j].parts[p];
                struct session *session = part->state == PART_LEASED && !part->abandoned
                                              ? trajd_session_find(feed->core, part->session)
                                              : NULL;
                if (session)
                    session->working_at_ns = now_ns;
            }
    }
}

/* Returns true if the session is in a running epoch that has more batches for its job. */
static bool expects_batch(const struct session *session)
{
    return session->joined && !session->is_over &&
           (has_more(session->job) ||
            (session->job->phase == JOB_RUNNING && session->feed->filling.count));
}

static void account_waits(struct trajd_core_feed *feed, uint64_t now_ns, uint64_t elapsed_ns,
                          bool stalled)
{
    if (!feed->member_count)
        return;
    find_working(feed, now_ns);
    for (uint32_t i = 0; i < feed->member_count; i++) {
        struct session *session = feed->members[i];
        if (session->working_at_ns == now_ns || !expects_batch(session))
            continue;
        if (stalled) {
            session->waited_ns[TRAJD_WAIT_SLOTS] += elapsed_ns;
            feed->waited_ns[TRAJD_WAIT_SLOTS] += elapsed_ns;
        } else {
            session->waiting_ns += elapsed_ns;
        }
    }
}

void trajd_feed_account(struct trajd_core_feed *feed, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - feed->accounted_ns;
    bool stalled;

    /* a call that began before another one may get the mutex after it */
    if (now_ns <= feed->accounted_ns)
        return;
    feed->accounted_ns = now_ns;
    stalled = is_stalled(feed);
    feed->stalled_ns += stalled ? elapsed_ns : 0;
    account_waits(feed, now_ns, elapsed_ns, stalled);
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        struct job *job = &feed->jobs[j];
        const struct slot *oldest = stalled ? &feed->slots[feed->ready.slots[0]] : NULL;
        bool is_to_blame = false;
        for (uint32_t p = 0; stalled && p < oldest->job_parts[j].part_count; p++)
            is_to_blame |= blame_part(job, oldest, p, elapsed_ns);
        job->stalled_ns += is_to_blame ? elapsed_ns : 0;
        if (is_to_blame && keeps_others_waiting(job))
            job->blocking_ns += elapsed_ns;
        else
            job->blocking_ns = 0;
    }
}
