/* Slots: their states FREE -> FILLING -> READY -> FREE, and the parts that jobs have of them. */
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
