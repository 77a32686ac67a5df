/* How long ranks wait for one that is away. */
#include <stdio.h>

#include "daemon/feed/state.h"

/* The first rank that is missing since long enough, or UINT32_MAX; *count: how many are. */
static uint32_t find_missing(const struct trajd_core_feed *feed, uint64_t now_ns, uint32_t *count)
{
    uint32_t first = UINT32_MAX;

    *count = 0;
    for (uint32_t r = 0; r < feed->job.world; r++) {
        const struct rank *rank = &feed->job.ranks[r];
        if (rank->session || rank->is_remote || now_ns - rank->away_since_ns < feed->options.rank_timeout_ns)
            continue;
        first = first == UINT32_MAX ? r : first;
        ++*count;
    }
    return first;
}

/* More of the epoch is under way, for whoever is here. */
static bool is_coming(const struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->filling.count; i++)
        if (feed->slots[feed->filling.slots[i]].epoch == feed->job.epoch)
            return true;
    return feed->filling.count + feed->ready.count < feed->options.slot_count &&
           feed->cursor.epoch == feed->job.epoch && feed->cursor.position < trajd_job_end(feed, feed->job.begin);
}

/* It has nothing left to read or to say DONE for. */
static bool is_starved(const struct trajd_core_feed *feed, uint32_t rank)
{
    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct slot *slot = &feed->slots[feed->ready.slots[i]];
        if (slot->life == feed->cursor.life && slot->epoch == feed->job.epoch &&
            (slot->parts[rank].state == PART_PENDING || slot->parts[rank].state == PART_LEASED))
            return false;
    }
    return true;
}

static bool somebody_waits(const struct trajd_core_feed *feed)
{
    if (feed->job.phase == JOB_RUNNING && is_coming(feed))
        return false;
    for (uint32_t r = 0; r < feed->job.world; r++)
        if (feed->job.ranks[r].session && (feed->job.phase == JOB_GATHERING || is_starved(feed, r)))
            return true;
    return false;
}

static void describe(const struct trajd_core_feed *feed, uint32_t rank, uint32_t count, uint64_t now_ns, char *text,
                     size_t size)
{
    const struct job *job = &feed->job;
    int length = snprintf(text, size, "rank %u of %u of job \"%s\" ", rank, job->world, job->name);

    if (count > 1)
        length += snprintf(text + length, size - (size_t)length, "and %u others ", count - 1);
    snprintf(text + length, size - (size_t)length, "%s for %.0f s (rank_timeout is %.0f s); open again to go on",
             job->phase == JOB_GATHERING ? "did not come" : "away",
             (double)(now_ns - job->ranks[rank].away_since_ns) * 1e-9, (double)feed->options.rank_timeout_ns * 1e-9);
}

/* All leave the job and hear why. It stays as it is: who opens again goes on, and the wait begins anew. */
void trajd_feed_expire(struct trajd_core_feed *feed, uint64_t now_ns)
{
    const struct job *job = &feed->job;
    char reason[256];
    uint32_t rank, count;

    if (!feed->options.rank_timeout_ns || feed->core->going_away || job->mode != TRAJD_WIRE_SHARD ||
        (job->phase != JOB_GATHERING && job->phase != JOB_RUNNING) || !feed->member_count)
        return;
    rank = find_missing(feed, now_ns, &count);
    if (rank == UINT32_MAX || !somebody_waits(feed))
        return;
    describe(feed, rank, count, now_ns, reason, sizeof reason);
    while (feed->member_count) {
        struct session *member = feed->members[0];
        trajd_job_leave(feed, member, now_ns);
        trajd_session_refuse(feed->core, member, 0, TRAJD_ERR_TIMEOUT, "%s", reason);
    }
    for (uint32_t r = 0; r < job->world; r++)
        job->ranks[r].away_since_ns = now_ns;
    feed->core->stats.rank_timeouts++;
}
