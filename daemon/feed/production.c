/* Production of a feed: the states of its slots, what its jobs need, the next batch with its slot and
 * the jobs that get it, and the result. */
#include "daemon/feed/feed_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots: FREE -> FILLING -> READY -> FREE ---- */

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

/* Allocates in one slot the parts of all jobs and the ranges of rows. Returns false if there is no
 * memory. */
static bool make_room(const struct trajd_core_feed *feed, struct slot *slot)
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

/* Gives the job its parts of the slot: PENDING, or RELEASED for ranks that are past the slot. */
static void begin_parts(const struct job *job, struct slot *slot)
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

/* FREE -> FILLING, with the next generation. */
static void begin_fill(struct trajd_core_feed *feed, uint32_t index)
{
    struct slot *slot = &feed->slots[index];

    slot->generation++;
    slot->state = SLOT_FILLING;
    slot->published = false;
    queue_push(&feed->filling, index);
}

/* FILLING or READY -> FREE. */
static void free_slot(struct trajd_core_feed *feed, uint32_t index)
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
    free_slot(feed, index);
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

/* FILLING -> READY for all published slots, in the order of their takes. */
static void promote(struct trajd_core_feed *feed, uint64_t now_ns)
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

/* Frees the slots that are published and not READY. The run that they belong to is over. */
static void free_published(struct trajd_core_feed *feed)
{
    for (uint32_t i = feed->filling.count; i-- > 0;)
        if (feed->slots[feed->filling.slots[i]].published)
            free_slot(feed, feed->filling.slots[i]);
}

/* ---- what each job needs. An attached job gets its parts of every batch that it needs, when the
 * batch is taken into a slot. A job that attaches later also gets the batches that are in slots
 * already. Batches that it needs and that have left the slots are produced again, if they are few.
 * ---- */

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

/* Returns true if the job needs that batch, and notes that the job gets it. is_new: true: the batch
 * was at the cursor and is made for the first time; false: it is made again. */
static bool take_batch(struct job *job, uint64_t epoch, uint64_t position, bool is_new)
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
            begin_parts(job, slot);
        else
            job->todo[job->todo_count++] = (struct todo){start->todo[i], 0};
    }
    for (uint64_t position = start->high; position < end; position += batch) {
        struct slot *slot = find_slot(job, job->epoch, position);
        if (slot)
            begin_parts(job, slot);
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
    free_published(feed);
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

/* ---- the next batch ---- */

static bool is_in_flight(struct trajd_core_feed *feed, uint32_t slot)
{
    const struct trajd_core_options *options = &feed->core->options;

    return options->is_in_flight && options->is_in_flight(options->context, feed, slot);
}

static uint32_t find_free(struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->options.slot_count; i++)
        if (feed->slots[i].state == SLOT_FREE && !is_in_flight(feed, i))
            return i;
    return UINT32_MAX;
}

/* Returns the job of the slot whose ranks are partly on other nodes, or NULL. Such a job has its
 * slots for itself (trajd_job_can_attach). */
static const struct job *find_local_job(const struct trajd_core_feed *feed, const struct slot *slot)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (slot->job_parts[j].run_id && feed->jobs[j].local.count)
            return &feed->jobs[j];
    return NULL;
}

/* Sets the ranges of rows that are read on this node. */
static void init_ranges(const struct trajd_core_feed *feed, struct slot *slot)
{
    const struct job *job = find_local_job(feed, slot);

    slot->range_count = 0;
    if (!job) {
        slot->ranges[slot->range_count++] = (struct trajd_rows){0, slot->row_count};
        return;
    }
    for (uint32_t i = 0; i < job->local.count; i++) {
        struct trajd_rows rows,
            *last = slot->range_count ? &slot->ranges[slot->range_count - 1] : NULL;
        trajd_part_rows(job, slot->row_count, job->local.list[i], &rows.begin, &rows.count);
        if (last && last->begin + last->count == rows.begin)
            last->count += rows.count;
        else if (rows.count)
            slot->ranges[slot->range_count++] = rows;
    }
}

/* Finds a batch below the cursor that the job still needs. It gets later ones from the cursor. */
static bool find_todo(const struct job *job, uint64_t *position)
{
    const struct cursor *cursor = &job->feed->cursor;

    for (uint32_t i = 0; i < job->todo_count && !job->awaited; i++)
        if (!job->todo[i].holder &&
            (job->epoch < cursor->epoch || job->todo[i].position < cursor->position)) {
            *position = job->todo[i].position;
            return true;
        }
    return false;
}

/* Sets the slot's epoch and position to the next batch. Returns true if the cursor moved, false if
 * the batch is an older one that a job still needs. */
static bool advance_cursor(struct trajd_core_feed *feed, struct slot *slot)
{
    struct cursor *cursor = &feed->cursor;

    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (find_todo(&feed->jobs[j], &slot->position)) {
            slot->epoch = feed->jobs[j].epoch;
            return false;
        }
    if (cursor->position >= trajd_epoch_end(feed, cursor->begin)) {
        cursor->epoch++;
        cursor->position = cursor->begin = 0;
    }
    slot->epoch = cursor->epoch;
    slot->position = cursor->position;
    cursor->position += feed->options.global_batch;
    return true;
}

static void assign_batch(struct trajd_core_feed *feed, struct slot *slot, bool is_new)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        struct job *job = &feed->jobs[j];
        slot->job_parts[j].run_id = slot->job_parts[j].part_count = 0;
        if (!take_batch(job, slot->epoch, slot->position, is_new))
            continue;
        begin_parts(job, slot);
        if (job->journal && job->mode == TRAJD_WIRE_QUEUE && slot->epoch == job->epoch)
            trajd_journal_produce(job->journal,
                                  (slot->position - job->begin) / feed->options.global_batch);
    }
}

enum trajd_status trajd_core_take(struct trajd_core_feed *feed, uint64_t now_ns,
                                  struct trajd_fill *fill)
{
    uint32_t index;
    struct slot *slot;
    uint64_t remaining;
    bool is_new;

    trajd_feed_account(feed, now_ns);
    index = trajd_feed_wants(feed) ? find_free(feed) : UINT32_MAX;
    if (index == UINT32_MAX)
        return TRAJD_ERR_TIMEOUT;
    slot = &feed->slots[index];
    if (!make_room(feed, slot))
        return TRAJD_ERR_MEMORY;
    is_new = advance_cursor(feed, slot);
    slot->run_id = feed->cursor.run_id;
    remaining = feed->options.epoch_length - slot->position;
    slot->row_count =
        remaining < feed->options.global_batch ? (uint32_t)remaining : feed->options.global_batch;
    begin_fill(feed, index);
    assign_batch(feed, slot, is_new);
    init_ranges(feed, slot);
    *fill = (struct trajd_fill){.slot = index,
                                .row_count = slot->row_count,
                                .generation = slot->generation,
                                .run_id = slot->run_id,
                                .epoch = slot->epoch,
                                .position = slot->position,
                                .range_count = slot->range_count,
                                .ranges = slot->ranges};
    return TRAJD_OK;
}

bool trajd_production_publish(struct trajd_core_feed *feed, const struct trajd_fill *fill,
                              const struct trajd_error *failure, uint64_t now_ns)
{
    struct slot *slot = fill->slot < feed->options.slot_count ? &feed->slots[fill->slot] : NULL;

    if (!slot || slot->state != SLOT_FILLING || slot->published ||
        slot->generation != fill->generation) {
        feed->core->stats.late_publishes++;
        return false;
    }
    if (slot->run_id != feed->cursor.run_id) {
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
    return true;
}
