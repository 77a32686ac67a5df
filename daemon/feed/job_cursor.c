/* Where jobs stand on the production of a feed, and what they need of it. A job that is on it
 * claims every batch that it needs when the batch is taken; one that comes later claims what is in
 * slots already, and has what is missing there produced again, if that is little. */
#include <string.h>

#include "daemon/feed/feed_internal.h"

static void settle_all(struct trajd_core_feed *feed)
{
    for (uint32_t i = feed->ready.count; i-- > 0;)
        trajd_slot_settle(feed, feed->ready.slots[i]);
}

static bool take_todo(struct job *job, uint64_t position)
{
    for (uint32_t i = 0; i < job->todo_count; i++) {
        if (job->todo[i] != position)
            continue;
        job->todo_count--;
        memmove(&job->todo[i], &job->todo[i + 1], (job->todo_count - i) * sizeof job->todo[0]);
        return true;
    }
    return false;
}

bool trajd_job_claim(struct job *job, uint64_t epoch, uint64_t position, bool is_new)
{
    if (!job->claims || epoch < job->epoch || (epoch == job->epoch && job->phase == JOB_ENDED))
        return false;
    /* produced ahead; what another job has to do there this one has claimed before */
    if (epoch > job->epoch)
        return is_new;
    if (take_todo(job, position))
        return true;
    if (position < job->high)
        return false;
    job->high = position + job->feed->options.global_batch;
    return true;
}

/* The slot can give the job what it holds: nobody of the job has it under an earlier lease. */
static bool is_usable(const struct job *job, const struct slot *slot, uint64_t epoch)
{
    const struct share *share = &slot->shares[job->index];

    if (slot->state == SLOT_FREE || slot->run_id != job->feed->cursor.run_id ||
        slot->epoch != epoch)
        return false;
    for (uint32_t i = 0; i < share->part_count; i++)
        if (share->parts[i].state == PART_LEASED || share->parts[i].state == PART_DONE)
            return false;
    return true;
}

static struct slot *find_slot(const struct job *job, uint64_t epoch, uint64_t position)
{
    for (uint32_t i = 0; i < job->feed->options.slot_count; i++) {
        struct slot *slot = &job->feed->slots[i];
        if (slot->position == position && is_usable(job, slot, epoch))
            return slot;
    }
    return NULL;
}

/* What would have to be produced again. */
static uint64_t count_missing(const struct job *job, uint64_t epoch, const struct start *start)
{
    const struct trajd_core_feed_options *options = &job->feed->options;
    uint64_t end = job->feed->cursor.position, missing = 0;

    if (end > start->high && (end - start->high) / options->global_batch > 2 * TRAJD_CORE_MAX_SLOTS)
        return UINT64_MAX;
    for (uint32_t i = 0; i < start->todo_count; i++)
        missing += !find_slot(job, epoch, start->todo[i]);
    for (uint64_t position = start->high; position < end; position += options->global_batch)
        missing += !find_slot(job, epoch, position);
    return missing;
}

static bool is_behind_the_epoch(const struct trajd_core_feed *feed, uint64_t epoch)
{
    return epoch == feed->cursor.epoch + 1 &&
           feed->cursor.position >= trajd_epoch_end(feed, feed->cursor.begin);
}

bool trajd_job_can_attach(const struct job *job, uint64_t epoch, const struct trajd_wire_open *open,
                          const struct start *start)
{
    const struct trajd_core_feed *feed = job->feed;
    const uint32_t slots = feed->options.slot_count, room = TRAJD_JOURNAL_MAX_UNDONE - slots;

    if (!feed->cursor.active || open->local.count)
        return false;
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (feed->jobs[j].claims &&
            feed->jobs[j].local.count) /* its slots have its own rows alone */
            return false;
    if (is_behind_the_epoch(feed, epoch))
        return start->begin == 0 && start->high == 0;
    if (epoch != feed->cursor.epoch || start->begin % feed->options.global_batch !=
                                           feed->cursor.begin % feed->options.global_batch)
        return false;
    /* ranks get theirs in order, so nothing can come late; and must stand together */
    if (open->mode == TRAJD_WIRE_SHARD)
        return open->fresh && count_missing(job, epoch, start) == 0;
    return count_missing(job, epoch, start) <= (slots < room ? slots : room);
}

void trajd_job_attach(struct job *job, const struct start *start)
{
    const struct trajd_core_feed *feed = job->feed;
    const uint32_t batch = feed->options.global_batch;
    const uint64_t end = feed->cursor.epoch == job->epoch ? feed->cursor.position : 0;

    job->claims = true;
    job->claim_begin = start->begin;
    job->high = start->high > end ? start->high : end;
    job->todo_count = 0;
    for (uint32_t i = 0; i < start->todo_count; i++) {
        struct slot *slot = find_slot(job, job->epoch, start->todo[i]);
        if (slot)
            trajd_share_begin(job, slot);
        else
            job->todo[job->todo_count++] = start->todo[i];
    }
    for (uint64_t position = start->high; position < end; position += batch) {
        struct slot *slot = find_slot(job, job->epoch, position);
        if (slot)
            trajd_share_begin(job, slot);
        else
            job->todo[job->todo_count++] = position;
    }
    settle_all(job->feed);
}

void trajd_job_retire(struct job *job)
{
    struct trajd_core_feed *feed = job->feed;

    feed->cursor.run_id++;
    feed->cursor.active = false;
    trajd_job_detach(job);
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (&feed->jobs[j] != job && feed->jobs[j].phase != JOB_NONE)
            trajd_job_drop(&feed->jobs[j]);
    trajd_slots_forget(feed);
}

void trajd_job_move(struct job *job, const struct start *start)
{
    struct trajd_core_feed *feed = job->feed;

    trajd_job_retire(job);
    feed->cursor.active = true;
    feed->cursor.epoch = job->epoch;
    feed->cursor.begin = start->begin;
    feed->cursor.position = start->high;
    trajd_job_attach(job, start);
}

void trajd_job_keep(struct job *job)
{
    const struct cursor *cursor = &job->feed->cursor;

    job->claim_begin = 0;
    job->todo_count = 0;
    if (cursor->epoch < job->epoch)
        job->high = 0;
    else
        job->high = cursor->epoch == job->epoch ? cursor->position : trajd_epoch_end(job->feed, 0);
}

void trajd_job_detach(struct job *job)
{
    struct trajd_core_feed *feed = job->feed;

    job->run_id = ++feed->last_run_id;
    job->claims = false;
    job->todo_count = 0;
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        struct share *share = &feed->slots[i].shares[job->index];
        for (uint32_t p = 0; feed->slots[i].state != SLOT_FREE && p < share->part_count; p++) {
            if (share->parts[p].state == PART_PENDING)
                share->parts[p].state = PART_VOID;
            else if (share->parts[p].state == PART_LEASED)
                share->parts[p].abandoned = true;
        }
    }
}

void trajd_job_drop(struct job *job)
{
    trajd_job_detach(job);
    settle_all(job->feed);
    trajd_journal_close(&job->journal);
    job->journal_job[0] = '\0';
    job->phase = JOB_NONE;
    job->held_up_ns = 0;
}

void trajd_feed_reap(struct trajd_core_feed *feed)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        struct job *job = &feed->jobs[j];
        if (job->phase != JOB_NONE && !job->member_count &&
            (job->phase != JOB_RUNNING || job->said_bye) && trajd_job_has_rivals(job))
            trajd_job_drop(job);
    }
}
