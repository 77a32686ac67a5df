/* Collects what the status document shows. */
#include <string.h>

#include "daemon/feed/feed_internal.h"

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
        .has_leases = trajd_feed_has_leases(feed),
        .has_user = feed->is_mapped && feed->options.is_for_one_user,
        .user = feed->user,
        .is_hidden = feed->options.is_hidden,
    };
    memcpy(info->waited_ns, feed->waited_ns, sizeof info->waited_ns);
    fill_job_info(first_job(feed), &info->job);
}
