/* The core as a whole: making and ending it, its feeds, the account of stalls, what status shows. */
#include "daemon/feed/core.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/feed/state.h"

enum trajd_status trajd_core_create(const struct trajd_core_options *options, struct trajd_core **core,
                                    struct trajd_error *error)
{
    struct trajd_core *made;

    if (!options->max_sessions || !options->send || !options->wake)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "core: max_sessions, send and wake are needed");
    made = calloc(1, sizeof *made);
    if (made)
        made->sessions = calloc(options->max_sessions, sizeof *made->sessions);
    if (!made || !made->sessions) {
        free(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for %u sessions",
                               options->max_sessions);
    }
    made->options = *options;
    *core = made;
    return TRAJD_OK;
}

static void free_feed(struct trajd_core_feed *feed)
{
    trajd_journal_close(&feed->journal);
    if (feed->slots)
        for (uint32_t i = 0; i < feed->options.slot_count; i++) {
            free(feed->slots[i].parts);
            free(feed->slots[i].ranges);
        }
    free(feed->slots);
    free(feed->members);
    free(feed->job.ranks);
    free((char *)feed->options.name);
    free((char *)feed->options.instance_of);
    free((char *)feed->options.journal_directory);
    free(feed);
}

void trajd_core_destroy(struct trajd_core **core)
{
    struct trajd_core *closing = *core;

    *core = NULL;
    if (!closing)
        return;
    while (closing->feeds) {
        struct trajd_core_feed *feed = closing->feeds;
        closing->feeds = feed->next;
        free_feed(feed);
    }
    free(closing->sessions);
    free(closing);
}

/* ---- feeds ---- */

static enum trajd_status check_options(const struct trajd_core_feed_options *options,
                                       struct trajd_error *error)
{
    if (!options->name || !options->name[0] || strlen(options->name) > TRAJD_WIRE_MAX_NAME)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "feed: a name of 1 to %u bytes",
                               TRAJD_WIRE_MAX_NAME);
    if (options->slot_count < 3 || options->slot_count > TRAJD_CORE_MAX_SLOTS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "feed %s: slots: %u (3 to %u)", options->name,
                               options->slot_count, TRAJD_CORE_MAX_SLOTS);
    if (options->max_credit < 2)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "feed %s: credit: %u (at least 2)",
                               options->name, options->max_credit);
    if (options->global_batch < 1 || options->epoch_length > INT64_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "feed %s: batch of %u, epoch of %llu windows",
                               options->name, options->global_batch,
                               (unsigned long long)options->epoch_length);
    if (options->tensor_count > TRAJD_WIRE_MAX_TENSORS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "feed %s: %u tensors (at most %u)",
                               options->name, options->tensor_count, TRAJD_WIRE_MAX_TENSORS);
    return TRAJD_OK;
}

enum trajd_status trajd_core_add_feed(struct trajd_core *core, const struct trajd_core_feed_options *options,
                                      struct trajd_core_feed **feed, struct trajd_error *error)
{
    enum trajd_status status = check_options(options, error);
    struct trajd_core_feed *made;

    if (status)
        return status;
    if (trajd_core_find_feed(core, trajd_wire_text(options->name)))
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feed %s is there already", options->name);
    made = calloc(1, sizeof *made);
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: no memory", options->name);
    made->options = *options;
    made->options.name = strdup(options->name);
    made->options.instance_of = options->instance_of ? strdup(options->instance_of) : NULL;
    made->options.journal_directory = options->journal_directory ? strdup(options->journal_directory) : NULL;
    made->slots = calloc(options->slot_count, sizeof *made->slots);
    made->members = calloc(core->options.max_sessions, sizeof *made->members);
    if (!made->options.name || !made->slots || !made->members ||
        (options->instance_of && !made->options.instance_of) ||
        (options->journal_directory && !made->options.journal_directory)) {
        free_feed(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: no memory", options->name);
    }
    if (made->options.max_credit > TRAJD_WIRE_MAX_LEASES)
        made->options.max_credit = TRAJD_WIRE_MAX_LEASES;
    made->core = core;
    made->id = ++core->last_feed_id;
    made->next = core->feeds;
    core->feeds = made;
    *feed = made;
    return TRAJD_OK;
}

static void drop_leases(struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->ready.count; i++) {
        const struct slot *slot = &feed->slots[feed->ready.slots[i]];
        for (uint32_t p = 0; p < slot->part_count; p++)
            if (slot->parts[p].state == PART_LEASED || slot->parts[p].state == PART_DONE)
                trajd_session_find(feed->core, slot->parts[p].session)->held--;
    }
}

void trajd_core_remove_feed(struct trajd_core *core, struct trajd_core_feed **feed, uint64_t now_ns)
{
    struct trajd_core_feed *removed = *feed;
    struct trajd_core_feed **link = &core->feeds;

    *feed = NULL;
    drop_leases(removed);
    while (removed->member_count) {
        struct session *member = removed->members[0];
        trajd_job_leave(removed, member, now_ns);
        trajd_session_refuse(core, member, 0, TRAJD_ERR_CLOSED, "feed %s is closed", removed->options.name);
    }
    while (*link != removed)
        link = &(*link)->next;
    *link = removed->next;
    free_feed(removed);
}

uint32_t trajd_core_feed_id(const struct trajd_core_feed *feed)
{
    return feed->id;
}

const char *trajd_core_feed_name(const struct trajd_core_feed *feed)
{
    return feed->options.name;
}

const char *trajd_core_family(const struct trajd_core_feed *feed)
{
    return feed->options.instance_of ? feed->options.instance_of : feed->options.name;
}

void *trajd_core_feed_user(const struct trajd_core_feed *feed)
{
    return feed->options.user;
}

struct trajd_core_feed *trajd_core_find_feed(struct trajd_core *core, struct trajd_wire_text name)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        if (trajd_wire_text_equals(name, feed->options.name))
            return feed;
    return NULL;
}

bool trajd_feed_wants(const struct trajd_core_feed *feed)
{
    const struct cursor *cursor = &feed->cursor;
    const struct job *job = &feed->job;

    if (feed->core->going_away || !cursor->active || !feed->member_count)
        return false;
    if (job->phase != JOB_RUNNING && job->phase != JOB_ENDED)
        return false;
    if (cursor->todo_next < cursor->todo_count)
        return true;
    if (cursor->epoch == job->epoch && cursor->position < trajd_job_end(feed, job->begin))
        return true;
    return (cursor->epoch == job->epoch ? 0 : cursor->position) < trajd_job_end(feed, 0);
}

void trajd_feed_wake(struct trajd_core_feed *feed)
{
    if (feed->filling.count + feed->ready.count < feed->options.slot_count && trajd_feed_wants(feed))
        feed->core->options.wake(feed->core->options.context, feed);
}

/* ---- who holds production up ---- */

/* Every slot is READY and an epoch runs that has batches to come: consumers are waited for. */
static bool is_stalled(const struct trajd_core_feed *feed)
{
    return feed->ready.count == feed->options.slot_count && feed->job.phase == JOB_RUNNING &&
           feed->cursor.epoch == feed->job.epoch && trajd_feed_wants(feed);
}

static void blame_part(struct trajd_core_feed *feed, const struct slot *slot, uint32_t index,
                       uint64_t elapsed_ns)
{
    const struct part *part = &slot->parts[index];
    struct session *session = NULL;

    if (part->state == PART_RELEASED || part->state == PART_VOID)
        return;
    if (part->state != PART_PENDING) {
        session = trajd_session_find(feed->core, part->session);
    } else if (feed->job.mode == TRAJD_WIRE_SHARD && slot->life == feed->cursor.life) {
        session = feed->job.ranks[index].session;
        if (!session) {
            feed->absent_ns += elapsed_ns;
            feed->absent_rank = index;
        }
    } else {
        for (uint32_t i = 0; i < feed->member_count; i++) /* share: nobody has credit left */
            feed->members[i]->stalled_ns += elapsed_ns;
    }
    if (session)
        session->stalled_ns += elapsed_ns;
}

void trajd_feed_account(struct trajd_core_feed *feed, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns > feed->accounted_ns ? now_ns - feed->accounted_ns : 0;

    feed->accounted_ns = now_ns;
    if (!elapsed_ns || !is_stalled(feed))
        return;
    feed->stalled_ns += elapsed_ns;
    for (uint32_t p = 0; p < feed->slots[feed->ready.slots[0]].part_count; p++)
        blame_part(feed, &feed->slots[feed->ready.slots[0]], p, elapsed_ns);
}

void trajd_core_tick(struct trajd_core *core, uint64_t now_ns)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next) {
        trajd_feed_account(feed, now_ns);
        trajd_feed_expire(feed, now_ns);
        if (!feed->member_count && !feed->idle_since_ns)
            feed->idle_since_ns = now_ns;
        if (feed->journal)
            trajd_journal_flush(feed->journal);
    }
}

/* ---- status ---- */

uint32_t trajd_core_lease_count(const struct trajd_core *core)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].id)
            count += core->sessions[i].held;
    return count;
}

void trajd_core_get_stats(const struct trajd_core *core, struct trajd_core_stats *stats)
{
    *stats = core->stats;
    stats->sessions = core->session_count;
    for (const struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        stats->feeds++;
}

bool trajd_core_session_info(const struct trajd_core *core, uint32_t index,
                             struct trajd_core_session_info *info)
{
    for (uint32_t i = 0; i < core->options.max_sessions; i++) {
        const struct session *session = &core->sessions[i];
        if (!session->id || index--)
            continue;
        *info = (struct trajd_core_session_info){
            .session = session->id,
            .pid = session->pid,
            .feed_id = session->feed ? session->feed->id : 0,
            .rank = session->rank,
            .credit = session->credit,
            .held = session->held,
            .batches_sent = session->batches_sent,
            .batches_done = session->batches_done,
            .stalled_ns = session->stalled_ns,
            .last_message_ns = session->last_message_ns,
        };
        memcpy(info->client, session->client, sizeof info->client);
        return true;
    }
    return false;
}

void trajd_core_feed_info(const struct trajd_core_feed *feed, struct trajd_core_feed_info *info)
{
    const struct job *job = &feed->job;

    *info = (struct trajd_core_feed_info){
        .feed_id = feed->id,
        .name = feed->options.name,
        .job = job->name,
        .mode = job->mode,
        .world = job->world,
        .members = feed->member_count,
        .running = job->phase == JOB_RUNNING,
        .epoch = job->epoch,
        .epoch_length = feed->options.epoch_length,
        .produced_epoch = feed->cursor.epoch,
        .cursor = feed->cursor.position,
        .batches = trajd_batches_from(feed, job->begin) * trajd_job_reader_count(job),
        .batches_left = job->parts_left,
        .slots_free = feed->options.slot_count - feed->filling.count - feed->ready.count,
        .slots_filling = feed->filling.count,
        .slots_ready = feed->ready.count,
        .stalled_ns = feed->stalled_ns,
        .absent_ns = feed->absent_ns,
        .absent_rank = feed->absent_rank,
        .idle_since_ns = feed->idle_since_ns,
    };
}
