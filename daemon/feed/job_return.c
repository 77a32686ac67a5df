/* Sessions of a queue job that return after the daemon's death. Each reports which batches it still
 * holds, and which it finished last: the messages about those may have died with the daemon. A
 * batch that a returned session holds stays in job.todo under its name, and is produced again only
 * if that session dies. */
#include "daemon/feed/feed_internal.h"

void trajd_job_note_sessions(const struct job *job)
{
    if (job->journal && job->mode == TRAJD_WIRE_QUEUE)
        trajd_journal_set_sessions(job->journal, job->member_count + job->awaited);
}

/* Takes a batch that is not DONE from job.todo or from its slot. Returns false if a session has it,
 * or it is not of this pass. */
static bool take_undone(struct job *job, uint64_t position)
{
    struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = 0; i < job->todo_count; i++) {
        if (job->todo[i].position != position)
            continue;
        if (job->todo[i].holder)
            return false;
        trajd_job_drop_todo(job, i);
        return true;
    }
    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        struct job_parts *job_parts = trajd_slot_job_parts(&feed->slots[i], job);
        if (!job_parts || feed->slots[i].position != position ||
            job_parts->parts[0].state != PART_PENDING)
            continue;
        job_parts->parts[0].state = PART_VOID;
        trajd_slot_free_unneeded(feed, i);
        return true;
    }
    return false;
}

static void count_done(struct job *job, struct session *session, uint64_t position)
{
    const struct trajd_core_feed_options *options = &job->feed->options;
    const uint64_t remaining = options->epoch_length - position;

    trajd_job_count_done(job, session, position,
                         remaining < options->global_batch ? (uint32_t)remaining
                                                           : options->global_batch);
}

/* Takes over what the session reports. Batches that are DONE, or that another session has, are
 * ignored. */
static void take_report(struct job *job, struct session *session,
                        const struct trajd_wire_open *open)
{
    for (uint32_t i = 0; i < open->done.count; i++)
        if (take_undone(job, open->done.list[i]))
            count_done(job, session, open->done.list[i]);
    for (uint32_t i = 0; i < open->held.count && job->todo_count < TRAJD_JOURNAL_MAX_UNDONE; i++) {
        if (!take_undone(job, open->held.list[i]))
            continue;
        job->todo[job->todo_count++] = (struct todo){open->held.list[i], session->id};
        session->carried++;
    }
}

void trajd_session_return(struct session *session, const struct trajd_wire_open *open)
{
    struct job *job = session->job;

    if (open->fresh || job->mode != TRAJD_WIRE_QUEUE)
        return;
    if (session->joined && job->phase == JOB_RUNNING && open->pass && open->pass == job->pass &&
        open->batch == job->feed->options.global_batch)
        take_report(job, session, open);
    /* trajd 0.1.0 does not know the pass */
    if (job->awaited && session->return_pass != job->pass &&
        (open->pass == job->pass || !open->pass)) {
        job->awaited--;
        trajd_job_note_sessions(job);
    }
    session->return_pass = job->pass;
}

bool trajd_session_finish_carried(struct session *session, uint64_t position)
{
    struct job *job = session->job;

    for (uint32_t i = 0; job && i < job->todo_count; i++) {
        if (job->todo[i].position != position || job->todo[i].holder != session->id)
            continue;
        trajd_job_drop_todo(job, i);
        session->carried--;
        count_done(job, session, position);
        return true;
    }
    return false;
}

void trajd_session_drop_carried(struct session *session)
{
    struct job *job = session->job;

    for (uint32_t i = 0; i < job->todo_count; i++)
        if (job->todo[i].holder == session->id)
            job->todo[i].holder = 0;
    job->feed->core->stats.handed_again += session->carried;
    session->carried = 0;
}

void trajd_job_end_return(struct job *job, uint64_t now_ns)
{
    if (!job->awaited || now_ns < job->awaited_until_ns)
        return;
    job->awaited = 0;
    trajd_job_note_sessions(job);
}
