/* Makes, shows and removes feeds. */
#include "daemon/feed/feed_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- feeds ---- */

void trajd_feed_free(struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        for (uint32_t j = 0; j < feed->options.job_count; j++)
            free(feed->slots[i].job_parts[j].parts);
        free(feed->slots[i].ranges);
    }
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        trajd_journal_close(&feed->jobs[j].journal);
        free(feed->jobs[j].ranks);
    }
    trajd_arena_free(&feed->arena);
    free(feed);
}

static enum trajd_status check_options(const struct trajd_core_feed_options *options,
                                       struct trajd_error *error)
{
    if (!options->name || !options->name[0] || strlen(options->name) > TRAJD_WIRE_MAX_NAME)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "feed: the name must have 1 to %u bytes", TRAJD_WIRE_MAX_NAME);
    if (options->slot_count < 3 || options->slot_count > TRAJD_CORE_MAX_SLOTS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "feed %s: slots: %u, must be 3 to %u",
                               options->name, options->slot_count, TRAJD_CORE_MAX_SLOTS);
    if (options->max_credit < 2)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "feed %s: credit: %u, must be at least 2", options->name,
                               options->max_credit);
    if (options->global_batch < 1 || options->epoch_length > INT64_MAX)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "feed %s: cannot deliver batches of %u from an epoch of %llu windows", options->name,
            options->global_batch, (unsigned long long)options->epoch_length);
    if (options->job_count > TRAJD_CORE_MAX_JOBS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "feed %s: fan_out: %u jobs, must be at most %u", options->name,
                               options->job_count, TRAJD_CORE_MAX_JOBS);
    if (options->tensor_count > TRAJD_WIRE_MAX_TENSORS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "feed %s: %u tensors, must be at most %u", options->name,
                               options->tensor_count, TRAJD_WIRE_MAX_TENSORS);
    return TRAJD_OK;
}

static const char *copy(struct trajd_core_feed *feed, const char *text)
{
    return text ? trajd_arena_copy(&feed->arena, text, strlen(text)) : NULL;
}

/* Fills the tables and texts of the feed. Returns false if there is no memory. */
static bool make_tables(struct trajd_core_feed *feed, uint32_t max_sessions)
{
    struct trajd_core_feed_options *options = &feed->options;

    options->job_count = options->job_count ? options->job_count : 1;
    options->name = copy(feed, options->name);
    options->instance_of = copy(feed, options->instance_of);
    options->journal_directory = copy(feed, options->journal_directory);
    feed->members = trajd_arena_array(&feed->arena, max_sessions, sizeof *feed->members);
    feed->slots = trajd_arena_array(&feed->arena, options->slot_count, sizeof *feed->slots);
    feed->jobs = trajd_arena_array(&feed->arena, options->job_count, sizeof *feed->jobs);
    for (uint32_t j = 0; feed->jobs && j < options->job_count; j++) {
        feed->jobs[j].feed = feed;
        feed->jobs[j].index = j;
        feed->jobs[j].run_id = ++feed->last_run_id;
    }
    for (uint32_t i = 0; feed->slots && i < options->slot_count; i++)
        feed->slots[i].job_parts =
            trajd_arena_array(&feed->arena, options->job_count, sizeof *feed->slots[i].job_parts);
    return !feed->arena.is_starved;
}

enum trajd_status trajd_core_add_feed(struct trajd_core *core,
                                      const struct trajd_core_feed_options *options,
                                      struct trajd_core_feed **feed, struct trajd_error *error)
{
    enum trajd_status status = check_options(options, error);
    struct trajd_core_feed *made;

    if (status)
        return status;
    if (!options->is_hidden && trajd_core_find_feed(core, trajd_wire_text(options->name)))
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "feed %s exists already", options->name);
    made = calloc(1, sizeof *made);
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: no memory", options->name);
    made->arena.limit_bytes = SIZE_MAX;
    made->options = *options;
    if (!make_tables(made, core->options.max_sessions)) {
        trajd_arena_free(&made->arena);
        free(made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: no memory", options->name);
    }
    made->core = core;
    made->id = ++core->last_feed_id;
    made->next = core->feeds;
    core->feeds = made;
    *feed = made;
    return TRAJD_OK;
}

static void drop_leases(struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->ready.count; i++)
        for (uint32_t j = 0; j < feed->options.job_count; j++) {
            const struct job_parts *job_parts = &feed->slots[feed->ready.slots[i]].job_parts[j];
            for (uint32_t p = 0; p < job_parts->part_count; p++)
                if (job_parts->parts[p].state == PART_LEASED ||
                    job_parts->parts[p].state == PART_DONE)
                    trajd_session_find(feed->core, job_parts->parts[p].session)->held--;
        }
}

void trajd_core_remove_feed(struct trajd_core *core, struct trajd_core_feed **feed, uint64_t now_ns)
{
    struct trajd_core_feed *removed = *feed;
    struct trajd_core_feed **link = &core->feeds;
    char reason[TRAJD_WIRE_MAX_NAME + 32];

    *feed = NULL;
    snprintf(reason, sizeof reason, "feed %s is closed", removed->options.name);
    /* when the daemon ends, its sessions stay in the journals: they may return to the next
     * daemon */
    for (uint32_t j = 0; core->going_away && j < removed->options.job_count; j++)
        trajd_journal_close(&removed->jobs[j].journal);
    drop_leases(removed);
    while (removed->member_count) {
        struct session *member = removed->members[0];
        trajd_session_leave(member, now_ns);
        trajd_session_send_removal(
            core, member, removed->failure.status ? removed->failure.status : TRAJD_ERR_CLOSED,
            removed->failure.status ? removed->failure.message : reason);
    }
    while (*link != removed)
        link = &(*link)->next;
    *link = removed->next;
    trajd_feed_free(removed);
}

void trajd_core_fail_feed(struct trajd_core_feed *feed, const struct trajd_error *why)
{
    feed->failure = *why;
}

void trajd_core_show_feed(struct trajd_core_feed *feed, bool shown)
{
    feed->options.is_hidden = !shown;
}

void trajd_core_set_feed_names(struct trajd_core *core, const char *const *names)
{
    core->options.feed_names = names;
}

/* ---- what the status document shows ---- */

uint32_t trajd_core_lease_count(const struct trajd_core *core)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].id)
            count += core->sessions[i].held + core->sessions[i].carried;
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
            .held = session->held + session->carried,
            .wait_until_ns = session->wait_until_ns,
            .batches_sent = session->batches_sent,
            .batches_done = session->batches_done,
            .stalled_ns = session->stalled_ns,
            .last_message_ns = session->last_message_ns,
        };
        memcpy(info->client, session->client, sizeof info->client);
        memcpy(info->waited_ns, session->waited_ns, sizeof info->waited_ns);
        return true;
    }
    return false;
}

/* Returns the job of a feed without fan-out, or the first of several. */
static const struct job *first_job(const struct trajd_core_feed *feed)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++)
        if (feed->jobs[j].phase != JOB_NONE)
            return &feed->jobs[j];
    return &feed->jobs[0];
}

static void fill_job_info(const struct job *job, struct trajd_core_job_info *info)
{
    static const char *const phases[] = {"none", "gathering", "running", "ended"};

    *info = (struct trajd_core_job_info){
        .name = job->name,
        .phase = phases[job->phase],
        .mode = job->mode,
        .world = job->world,
        .members = job->member_count,
        .epoch = job->epoch,
        .batches = trajd_batches_from(job->feed, job->begin) * trajd_job_reader_count(job),
        .batches_remaining = job->parts_remaining,
        .awaited = job->awaited,
        .stalled_ns = job->stalled_ns,
        .absent_ns = job->absent_ns,
        .absent_rank = job->absent_rank,
        .journal_failure = job->mode == TRAJD_WIRE_QUEUE ? job->journal_failure : "",
    };
}

bool trajd_core_job_info(const struct trajd_core_feed *feed, uint32_t index,
                         struct trajd_core_job_info *info)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        if (feed->jobs[j].phase == JOB_NONE || index--)
            continue;
        fill_job_info(&feed->jobs[j], info);
        return true;
    }
    return false;
}

static bool is_any_leased(const struct job_parts *job_parts)
{
    for (uint32_t p = 0; p < job_parts->part_count; p++)
        if (job_parts->parts[p].state == PART_LEASED || job_parts->parts[p].state == PART_DONE)
            return true;
    return false;
}

/* Returns true if a session holds a part of the feed that is LEASED or DONE. */
static bool has_leases(const struct trajd_core_feed *feed)
{
    for (uint32_t i = 0; i < feed->ready.count; i++)
        for (uint32_t j = 0; j < feed->options.job_count; j++)
            if (is_any_leased(&feed->slots[feed->ready.slots[i]].job_parts[j]))
                return true;
    return false;
}

void trajd_core_feed_info(const struct trajd_core_feed *feed, struct trajd_core_feed_info *info)
{
    *info = (struct trajd_core_feed_info){
        .feed_id = feed->id,
        .name = feed->options.name,
        .members = feed->member_count,
        .running = first_job(feed)->phase == JOB_RUNNING,
        .epoch_length = feed->options.epoch_length,
        .produced_epoch = feed->cursor.epoch,
        .cursor = feed->cursor.position,
        .slots_free = feed->options.slot_count - feed->filling.count - feed->ready.count,
        .slots_filling = feed->filling.count,
        .slots_ready = feed->ready.count,
        .stalled_ns = feed->stalled_ns,
        .idle_since_ns = feed->idle_since_ns,
        .has_leases = has_leases(feed),
        .has_user = feed->is_mapped && feed->options.is_for_one_user,
        .user = feed->user,
        .is_hidden = feed->options.is_hidden,
    };
    memcpy(info->waited_ns, feed->waited_ns, sizeof info->waited_ns);
    fill_job_info(first_job(feed), &info->job);
}
