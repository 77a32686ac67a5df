/* Connects jobs with the production of their feed. An attached job gets its parts of every batch
 * that it needs, when the batch is taken into a slot. A job that attaches later also gets the
 * batches that are in slots already. Batches that it needs and that have left the slots are
 * produced again, if they are few. */
#include <string.h>

#include "daemon/feed/feed_internal.h"

static void free_unneeded_slots(struct trajd_core_feed *feed)
{
    for (uint32_t i = feed->ready.count; i-- > 0;)
        trajd_slot_free_unneeded(feed, feed->ready.slots[i]);
}

static bool take_todo(struct job *job, uint64_t position)
{
    for (uint32_t i = 0; i < job->todo_count; i++) {
        if (job->todo[i].position != position)
            continue;
        if (job->awaited || job->todo[i].holder)
            return false;
        trajd_job_drop_todo(job, i);
        return true;
    }
    return false;
}

bool trajd_job_take_batch(struct job *job, uint64_t epoch, uint64_t position, bool is_new)
{
    if (!job->is_attached || epoch < job->epoch || (epoch == job->epoch && job->phase == JOB_ENDED))
        return false;
    /* The batch belongs to an epoch after the job's. If it is not new, it is made again for another
     * job, and this job has its parts already. */
    if (epoch > job->epoch)
        return is_new;
    if (take_todo(job, position))
        return true;
    if (position < job->high)
        return false;
    job->high = position + job->feed->options.global_batch;
    return true;
}

/* Returns true if the slot holds a batch of that epoch which no session of the job has leased. */
static bool is_usable(const struct job *job, const struct slot *slot, uint64_t epoch)
{
    const struct job_parts *job_parts = &slot->job_parts[job->index];

    if (slot->state == SLOT_FREE || slot->run_id != job->feed->cursor.run_id ||
        slot->epoch != epoch)
        return false;
    for (uint32_t i = 0; i < job_parts->part_count; i++)
        if (job_parts->parts[i].state == PART_LEASED || job_parts->parts[i].state == PART_DONE)
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

/* Returns how many batches would have to be produced again, or are awaited from their holders. */
static uint64_t count_missing(const struct job *job, uint64_t epoch, const struct start *start)
{
    const struct trajd_core_feed_options *options = &job->feed->options;
    uint64_t end = job->feed->cursor.position, missing = 0;

    if (end > start->high && (end - start->high) / options->global_batch > 2 * TRAJD_CORE_MAX_SLOTS)
        return UINT64_MAX;
    for (uint32_t i = 0; i < start->todo_count; i++)
        missing += start->awaited || !find_slot(job, epoch, start->todo[i]);
    for (uint64_t position = start->high; position < end; position += options->global_batch)
        missing += !find_slot(job, epoch, position);
    return missing;
}

static bool is_after_epoch(const struct trajd_core_feed *feed, uint64_t epoch)
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
        if (feed->jobs[j].is_attached &&
            feed->jobs[j].local.count) /* its slots have only the rows of its ranks */
            return false;
    if (is_after_epoch(feed, epoch))
        return start->begin == 0 && start->high == 0;
    if (epoch != feed->cursor.epoch || start->begin % feed->options.global_batch !=
                                           feed->cursor.begin % feed->options.global_batch)
        return false;
    /* Ranks get their batches in order, so none can be made again; and they must begin together. */
    if (open->mode == TRAJD_WIRE_SHARD)
        return open->fresh && count_missing(job, epoch, start) == 0;
    return count_missing(job, epoch, start) <= (slots < room ? slots : room);
}

void trajd_job_attach(struct job *job, const struct start *start)
{
    const struct trajd_core_feed *feed = job->feed;
    const uint32_t batch = feed->options.global_batch;
    const uint64_t end = feed->cursor.epoch == job->epoch ? feed->cursor.position : 0;

    job->is_attached = true;
    job->attached_from = start->begin;
    job->high = start->high > end ? start->high : end;
    job->todo_count = 0;
    for (uint32_t i = 0; i < start->todo_count; i++) {
        struct slot *slot = start->awaited ? NULL : find_slot(job, job->epoch, start->todo[i]);
        if (slot)
            trajd_job_parts_begin(job, slot);
        else
            job->todo[job->todo_count++] = (struct todo){start->todo[i], 0};
    }
    for (uint64_t position = start->high; position < end; position += batch) {
        struct slot *slot = find_slot(job, job->epoch, position);
        if (slot)
            trajd_job_parts_begin(job, slot);
        else
            job->todo[job->todo_count++] = (struct todo){position, 0};
    }
    free_unneeded_slots(job->feed);
}

void trajd_job_stop_production(struct job *job)
{
    struct trajd_core_feed *feed = job->feed;

    feed->cursor.run_id++;
    feed->cursor.active = false;
    trajd_job_detach(job);
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (&feed->jobs[j] != job && feed->jobs[j].phase != JOB_NONE)
            trajd_job_drop(&feed->jobs[j]);
    trajd_slots_free_published(feed);
}

void trajd_job_move_production(struct job *job, const struct start *start)
{
    struct trajd_core_feed *feed = job->feed;

    trajd_job_stop_production(job);
    feed->cursor.active = true;
    feed->cursor.epoch = job->epoch;
    feed->cursor.begin = start->begin;
    feed->cursor.position = start->high;
    trajd_job_attach(job, start);
}

void trajd_job_continue(struct job *job)
{
    const struct cursor *cursor = &job->feed->cursor;

    job->attached_from = 0;
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
    job->is_attached = false;
    job->todo_count = 0;
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        struct job_parts *job_parts = &feed->slots[i].job_parts[job->index];
        for (uint32_t p = 0; feed->slots[i].state != SLOT_FREE && p < job_parts->part_count; p++) {
            if (job_parts->parts[p].state == PART_PENDING)
                job_parts->parts[p].state = PART_VOID;
            else if (job_parts->parts[p].state == PART_LEASED)
                job_parts->parts[p].abandoned = true;
        }
    }
}

void trajd_job_drop(struct job *job)
{
    trajd_job_detach(job);
    free_unneeded_slots(job->feed);
    trajd_journal_close(&job->journal);
    job->journal_job[0] = '\0';
    job->phase = JOB_NONE;
    job->blocking_ns = 0;
}

void trajd_feed_drop_idle_jobs(struct trajd_core_feed *feed)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        struct job *job = &feed->jobs[j];
        if (job->phase != JOB_NONE && !job->member_count &&
            (job->phase != JOB_RUNNING || job->sent_bye) && trajd_job_has_neighbours(job))
            trajd_job_drop(job);
    }
}
