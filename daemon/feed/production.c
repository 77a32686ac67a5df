/* Production: chooses the next batch, its slot and the jobs that get it, and takes the result. */
#include "daemon/feed/feed_internal.h"

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
        if (!trajd_job_take_batch(job, slot->epoch, slot->position, is_new))
            continue;
        trajd_job_parts_begin(job, slot);
        if (job->journal && job->mode == TRAJD_WIRE_QUEUE && slot->epoch == job->epoch)
            trajd_journal_produce(job->journal,
                                  (slot->position - job->begin) / feed->options.global_batch);
    }
}

enum trajd_status trajd_production_take(struct trajd_core_feed *feed, struct trajd_core_fill *fill)
{
    uint32_t index = trajd_feed_wants(feed) ? find_free(feed) : UINT32_MAX;
    struct slot *slot;
    uint64_t remaining;
    bool is_new;

    if (index == UINT32_MAX)
        return TRAJD_ERR_TIMEOUT;
    slot = &feed->slots[index];
    if (!trajd_slot_make_room(feed, slot))
        return TRAJD_ERR_MEMORY;
    is_new = advance_cursor(feed, slot);
    slot->run_id = feed->cursor.run_id;
    remaining = feed->options.epoch_length - slot->position;
    slot->row_count =
        remaining < feed->options.global_batch ? (uint32_t)remaining : feed->options.global_batch;
    trajd_slot_begin_fill(feed, index);
    assign_batch(feed, slot, is_new);
    init_ranges(feed, slot);
    *fill = (struct trajd_core_fill){.slot = index,
                                     .row_count = slot->row_count,
                                     .generation = slot->generation,
                                     .run_id = slot->run_id,
                                     .epoch = slot->epoch,
                                     .position = slot->position,
                                     .range_count = slot->range_count,
                                     .ranges = slot->ranges};
    return TRAJD_OK;
}

bool trajd_production_publish(struct trajd_core_feed *feed, const struct trajd_core_fill *fill,
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
        trajd_slot_free(feed, fill->slot);
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
    trajd_slots_promote(feed, now_ns);
    return true;
}
