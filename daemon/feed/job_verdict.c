/* Decides whether an OPEN joins the epoch of its job, begins another one, or is refused. */
#include <stdio.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"
#include "proto/plural.h"

#define RANKS_SHOWN 3 /* of a job, in an error */

/* Returns true if the rank's position agrees with those of the other ranks: fresh ranks have to be
 * at the same position, others a whole number of batches apart. If other jobs read the same slots,
 * the positions must also fit the batches that the job has there. */
static bool agrees(const struct job *job, const struct session *session,
                   const struct trajd_wire_open *open)
{
    uint64_t length = job->feed->options.epoch_length, batch = job->feed->options.global_batch;

    if (job->is_attached && trajd_job_has_neighbours(job) && open->next != length &&
        (open->next < job->attached_from || (open->next - job->attached_from) % batch))
        return false;
    for (uint32_t r = 0; r < job->world; r++) {
        const struct rank *other = &job->ranks[r];
        uint64_t distance =
            other->next > open->next ? other->next - open->next : open->next - other->next;
        if (!other->session || other->session == session)
            continue;
        if (open->fresh && other->fresh && distance)
            return false;
        if (distance % batch && open->next != length && other->next != length)
            return false;
    }
    return true;
}

/* Refuses the OPEN of a rank that is elsewhere than the other ranks, and says where those are.
 * BUSY: the rank may try again. What to do comes first: a text that is too long loses its end. */
static void refuse_rank(const struct job *job, struct session *session,
                        const struct trajd_wire_open *open, enum trajd_status status)
{
    char others[384] = "";
    uint32_t count = 0;
    size_t length = 0;

    for (uint32_t r = 0; r < job->world; r++) {
        if (!job->ranks[r].session || job->ranks[r].session == session || ++count > RANKS_SHOWN)
            continue;
        length += (size_t)snprintf(
            others + length, sizeof others - length, "%s rank %u is at window %llu of epoch %llu",
            count > 1 ? "," : ":", r, (unsigned long long)trajd_rank_position(job, r),
            (unsigned long long)job->epoch);
    }
    if (count > RANKS_SHOWN)
        snprintf(others + length, sizeof others - length, ", and %u more ranks are there",
                 count - RANKS_SHOWN);
    trajd_session_refuse(
        job->feed->core, session, open->request, status,
        "%s: rank %u asks for window %llu of epoch %llu, but job \"%s\" is in epoch %llu%s. %s "
        "all ranks and restart them from one checkpoint (the same epoch and position)%s",
        status == TRAJD_ERR_BUSY ? "epoch" : "next", open->rank, (unsigned long long)open->next,
        (unsigned long long)open->epoch, job->name, (unsigned long long)job->epoch,
        status == TRAJD_ERR_BUSY ? " and not all of its sessions have seen the end" : "",
        status == TRAJD_ERR_BUSY ? "If this lasts, stop" : "Stop", others);
}

static enum verdict validate_join(const struct job *job, struct session *session,
                                  const struct trajd_wire_open *open, bool is_alone)
{
    const struct trajd_core_feed *feed = job->feed;

    if (job->mode == TRAJD_WIRE_QUEUE) {
        if (open->next == 0 || open->next == job->requested || open->next == job->begin)
            return VERDICT_JOIN;
        if (is_alone)
            return VERDICT_BEGIN;
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "next: %llu was requested, but epoch %llu of the job began at %llu",
                             (unsigned long long)open->next, (unsigned long long)job->epoch,
                             (unsigned long long)job->requested);
        return VERDICT_REFUSED;
    }
    if (job->ranks[open->rank].session && job->ranks[open->rank].session != session) {
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_BUSY,
                             "rank: rank %u of job \"%s\" is in use by session %llu (pid %llu)",
                             open->rank, job->name,
                             (unsigned long long)job->ranks[open->rank].session->id,
                             (unsigned long long)job->ranks[open->rank].session->pid);
        return VERDICT_REFUSED;
    }
    if (is_alone && job->phase == JOB_RUNNING && open->next < trajd_rank_position(job, open->rank))
        return VERDICT_BEGIN; /* no other rank is there that could disagree */
    if ((job->phase == JOB_GATHERING && !agrees(job, session, open)) ||
        (job->phase == JOB_RUNNING && open->next > job->begin &&
         open->next != feed->options.epoch_length &&
         (open->next - job->begin) % feed->options.global_batch)) {
        refuse_rank(job, session, open, TRAJD_ERR_ARGUMENT);
        return VERDICT_REFUSED;
    }
    return VERDICT_JOIN;
}

/* Refuses an OPEN whose mode, world or local ranks differ from those of the job's other
 * sessions. */
static void refuse_other_job(const struct job *job, struct session *session,
                             const struct trajd_wire_open *open)
{
    const struct trajd_core_feed *feed = job->feed;

    if (open->mode != job->mode || open->world != job->world)
        trajd_session_refuse(
            feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
            "mode, world: %s with world %u, but job \"%s\" runs as %s with world %u",
            open->mode == TRAJD_WIRE_SHARD ? "shard" : "queue", open->world, job->name,
            job->mode == TRAJD_WIRE_SHARD ? "shard" : "queue", job->world);
    else
        trajd_session_refuse(
            feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
            "local: %u rank%s (%u first), but the other ranks of job \"%s\" list %u (%u first)",
            open->local.count, trajd_plural(open->local.count),
            open->local.count ? open->local.list[0] : 0, job->name, job->local.count,
            job->local.count ? job->local.list[0] : 0);
}

/* A checkpoint begins an epoch for the whole job. All sessions of the job have to open with the
 * same checkpoint. */
static enum verdict validate_resume(const struct job *job, struct session *session,
                                    const struct trajd_wire_open *open, bool is_alone)
{
    const uint64_t check = trajd_checkpoint_token_check(open->resume.data, open->resume.size);

    if (is_alone)
        return VERDICT_BEGIN;
    if (open->epoch == job->epoch && job->token_check == check)
        return VERDICT_JOIN;
    if (open->epoch + 1 == job->epoch && job->past_token_check == check)
        return VERDICT_PAST; /* the others have finished that epoch already */
    trajd_session_refuse(
        job->feed->core, session, open->request, TRAJD_ERR_BUSY,
        "resume: job \"%s\" is in epoch %llu, which did not begin from this checkpoint; its other "
        "sessions must leave first",
        job->name, (unsigned long long)job->epoch);
    return VERDICT_REFUSED;
}

/* Returns true if the ranks gather after a restart of the daemon, and those that are here have
 * finished the epoch. In that case a rank that requests the next epoch has already received
 * EPOCH_END of this one. */
static bool are_ranks_at_end(const struct job *job)
{
    if (job->phase != JOB_GATHERING)
        return false;
    for (uint32_t r = 0; r < job->world; r++)
        if (job->ranks[r].session && trajd_batches_from(job->feed, job->ranks[r].next))
            return false;
    return true;
}

static enum verdict validate_epoch(const struct job *job, struct session *session,
                                   const struct trajd_wire_open *open)
{
    bool is_alone = trajd_job_count_others(job, session) == 0;

    if (!is_alone && !trajd_job_matches(job, open)) {
        refuse_other_job(job, session, open);
        return VERDICT_REFUSED;
    }
    if (open->resume.size)
        return validate_resume(job, session, open, is_alone);
    if (trajd_job_matches(job, open) && open->epoch == job->epoch)
        return is_alone && open->fresh ? VERDICT_BEGIN
                                       : validate_join(job, session, open, is_alone);
    if (!is_alone && open->epoch + 1 == job->epoch &&
        (job->mode == TRAJD_WIRE_QUEUE || !trajd_batches_from(job->feed, open->next)))
        return VERDICT_PAST;
    if (is_alone || job->phase == JOB_ENDED ||
        (open->epoch == job->epoch + 1 && are_ranks_at_end(job)))
        return VERDICT_BEGIN;
    if (job->mode == TRAJD_WIRE_SHARD) {
        refuse_rank(job, session, open, TRAJD_ERR_BUSY);
        return VERDICT_REFUSED;
    }
    trajd_session_refuse(
        job->feed->core, session, open->request, TRAJD_ERR_BUSY,
        "epoch: %llu was requested, but job \"%s\" is in epoch %llu and not all of its sessions "
        "have seen the end",
        (unsigned long long)open->epoch, job->name, (unsigned long long)job->epoch);
    return VERDICT_REFUSED;
}

enum verdict trajd_job_validate(const struct job *job, struct session *session,
                                const struct trajd_wire_open *open, const struct start *start)
{
    enum verdict verdict = VERDICT_ELSEWHERE;

    if (job)
        verdict = validate_epoch(job, session, open);
    return verdict == VERDICT_BEGIN && !trajd_job_has_place(job, open, start) ? VERDICT_ELSEWHERE
                                                                              : verdict;
}
