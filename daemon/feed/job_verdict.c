/* Where an OPEN goes: which production of a feed it gets, and whether it joins the epoch of its
 * job, begins another one, waits or is refused. */
#include "daemon/feed/feed_internal.h"

#include <stdio.h>
#include <string.h>

#include "daemon/feed/checkpoint_token.h"
#include "proto/plural.h"

/* ---- the production and the entry for the job ---- */

/* Returns true if the job's epoch can begin on its feed: anywhere if no other job reads the feed,
 * else only where the others are. */
static bool has_place(const struct job *job, const struct trajd_wire_open *open,
                      const struct start *start)
{
    return !trajd_job_has_neighbours(job) || trajd_job_can_continue(job, open, start) ||
           trajd_job_can_attach(job, open->epoch, open, start);
}

struct job *trajd_job_find_entry(const struct trajd_core_feed *feed, const struct session *session,
                                 struct trajd_wire_text name)
{
    struct job *job = trajd_job_find(feed, name), *reusable = NULL;
    uint32_t others = feed->member_count - (session->feed == feed);

    for (uint32_t j = 0; !job && j < feed->options.job_count; j++) {
        if (feed->jobs[j].phase == JOB_NONE)
            job = &feed->jobs[j];
        else if (!others && !reusable)
            reusable = &feed->jobs[j];
    }
    return job ? job : reusable;
}

bool trajd_feed_admits(const struct trajd_core_feed *feed, const struct session *session,
                       struct trajd_wire_text job_name)
{
    const struct job *job;

    if (!feed->options.is_for_one_user || !feed->is_mapped)
        return true;
    if (session->maps_rings)
        return session->owner == feed->user;
    job = trajd_job_find(feed, job_name);
    return job && (job->member_count || job->owner == session->owner);
}

/* Returns how well a production suits an OPEN:
 *   5  its job has sessions there
 *   4  its job was there last
 *   3  it can read beside the jobs that are there
 *   2  no job is there
 *   1  it can replace a job that has no sessions
 *   0  not at all */
static int rate(struct trajd_core_feed *feed, const struct session *session,
                const struct trajd_wire_open *open, const struct start *start)
{
    const struct job *job = trajd_job_find(feed, open->job),
                     *entry = trajd_job_find_entry(feed, session, open->job);
    uint32_t others = feed->member_count - (session->feed == feed);

    if (job && trajd_job_count_others(job, session))
        return 5;
    if (!trajd_feed_admits(feed, session, open->job))
        return 0;
    if (!others)
        return job ? 4 : feed->jobs[0].phase == JOB_NONE ? 2 : 1;
    if (job && trajd_job_matches(job, open) && open->epoch == job->epoch && !open->fresh &&
        !open->resume.size)
        return 4; /* the job goes on where it stood */
    if (!entry || !has_place(entry, open, start))
        return 0;
    return job ? 4 : 3;
}

bool trajd_open_is_repeated(const struct session *session, const struct trajd_wire_open *open,
                            const struct trajd_core_feed *feed)
{
    return session && session->feed && session->request == open->request &&
           strcmp(trajd_core_family(session->feed), trajd_core_family(feed)) == 0;
}

struct trajd_core_feed *trajd_core_choose(struct trajd_core *core, uint64_t session_id,
                                          const struct trajd_wire_open *open,
                                          struct trajd_core_feed *feed)
{
    const struct session *session = trajd_session_find(core, session_id);
    const struct trajd_journal_state *checkpoint = NULL;
    struct trajd_core_feed *best = NULL;
    int best_rate = 0;

    if (trajd_open_is_repeated(session, open, feed))
        return session->feed;
    if (open->resume.size) {
        if (trajd_checkpoint_token_decode(open->resume.data, open->resume.size,
                                          &core->from_checkpoint, NULL))
            return feed; /* trajd_core_open refuses the checkpoint there */
        checkpoint = &core->from_checkpoint;
    }
    trajd_job_find_start(feed, open, checkpoint, &core->start);
    for (struct trajd_core_feed *other = core->feeds; other; other = other->next) {
        int here = 0;
        if (!other->options.is_hidden &&
            strcmp(trajd_core_family(other), trajd_core_family(feed)) == 0)
            here = rate(other, session, open, &core->start);
        /* among equal productions take the oldest, which is last in the list */
        if (here && here >= best_rate) {
            best = other;
            best_rate = here;
        }
    }
    return best;
}

/* ---- an OPEN that waits: a fresh one of a queue job whose epoch an earlier daemon left
 * unfinished. Workers of that run may return, and the OPEN would end their epoch. ---- */

/* Returns true if this daemon serves the job, and is not waiting for all of its sessions. */
static bool is_served(const struct trajd_core_feed *here, struct trajd_wire_text name)
{
    for (const struct trajd_core_feed *feed = here->core->feeds; feed; feed = feed->next) {
        const struct job *job =
            trajd_core_is_same_feed(feed, here) ? trajd_job_find(feed, name) : NULL;
        if (job && (job->member_count || !job->awaited))
            return true;
    }
    return false;
}

static uint64_t count_batches(const struct trajd_core_feed *feed,
                              const struct trajd_journal_key *key)
{
    const uint64_t windows = key->length - key->begin;

    return windows / key->batch + (feed->options.tail_short && windows % key->batch != 0);
}

/* Returns true if sessions of the run in the job's journal may return to an epoch that is not
 * over. */
static bool may_return(struct trajd_core_feed *feed, const struct trajd_wire_open *open,
                       struct trajd_journal_state *state)
{
    if (open->mode != TRAJD_WIRE_QUEUE || !open->fresh || open->next || open->resume.size ||
        !feed->options.rejoin_wait_ns || is_served(feed, open->job) ||
        !trajd_job_load_journal(feed, open->job, state))
        return false;
    return state->sessions && state->key.fingerprint == feed->options.fingerprint &&
           state->key.seed == feed->options.seed &&
           (state->undone_count || state->high < count_batches(feed, &state->key));
}

#define NOTE_WAIT_NS UINT64_C(500000000) /* the journal lacks less of a wait than that */

/* Returns since when OPENs of that job are held back and the journal lacks it. */
static uint64_t find_begin(const struct trajd_core *core, uint64_t number, uint64_t now_ns)
{
    uint64_t begin_ns = now_ns;

    for (uint32_t i = 0; i < core->options.max_sessions; i++) {
        const struct session *session = &core->sessions[i];
        if (session->id && session->wait_since_ns && session->wait_number == number &&
            session->wait_since_ns < begin_ns)
            begin_ns = session->wait_since_ns;
    }
    return begin_ns;
}

/* Has the journal keep the wait so far, so that the daemon's death does not begin it again. */
static void note_wait(struct trajd_core_feed *feed, struct session *session,
                      const struct trajd_wire_open *open, const struct trajd_journal_state *state)
{
    struct trajd_core *core = feed->core;
    const uint64_t elapsed_ns = feed->accounted_ns - session->wait_since_ns;

    if (elapsed_ns < NOTE_WAIT_NS || !trajd_job_note_wait(feed, open->job, state, elapsed_ns))
        return;
    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].wait_since_ns &&
            core->sessions[i].wait_number == session->wait_number)
            core->sessions[i].wait_since_ns = feed->accounted_ns;
}

static void send_busy(const struct trajd_core_feed *feed, struct session *session,
                      const struct trajd_wire_open *open, const struct trajd_journal_state *state)
{
    const uint64_t remaining_ns = session->wait_until_ns - feed->accounted_ns;
    char text[TRAJD_WIRE_MAX_REASON];
    struct trajd_wire_message message;

    snprintf(
        text, sizeof text,
        "open: an earlier daemon ended within epoch %llu of job \"%.*s\" (%llu of %llu batches "
        "were DONE): its workers may return for another %.1f s (rejoin_wait); if none does, "
        "epoch %llu begins",
        (unsigned long long)state->key.epoch, (int)open->job.size,
        open->job.data ? open->job.data : "",
        (unsigned long long)(state->high - state->undone_count),
        (unsigned long long)count_batches(feed, &state->key), (double)remaining_ns * 1e-9,
        (unsigned long long)open->epoch);
    message.op = TRAJD_WIRE_ERROR;
    message.error = (struct trajd_wire_error){.request = open->request,
                                              .status = TRAJD_ERR_BUSY,
                                              .message = trajd_wire_text(text),
                                              .wait_ms = (uint32_t)(remaining_ns / 1000000) + 1};
    trajd_core_send(session, feed->core, &message);
}

bool trajd_job_hold_back(struct trajd_core_feed *feed, struct session *session,
                         const struct trajd_wire_open *open)
{
    struct trajd_journal_state *state = &feed->core->from_journal;
    char name[TRAJD_WIRE_MAX_NAME + 1], base[TRAJD_WIRE_MAX_NAME + 1];
    uint64_t number;

    if (!may_return(feed, open, state)) {
        session->wait_since_ns = session->wait_until_ns = 0;
        return false;
    }
    trajd_wire_text_copy(open->job, name, sizeof name);
    trajd_feed_base_name(feed, base);
    number = trajd_journal_number(base, name);
    if (!session->wait_since_ns || session->wait_number != number)
        session->wait_since_ns = find_begin(feed->core, number, feed->accounted_ns);
    session->wait_number = number;
    session->wait_until_ns =
        session->wait_since_ns + trajd_rejoin_wait_ns(feed, state->sessions, &state->wait);
    if (feed->accounted_ns < session->wait_until_ns) {
        note_wait(feed, session, open, state);
        send_busy(feed, session, open, state);
        return true;
    }
    snprintf(
        feed->core->report, sizeof feed->core->report,
        "job \"%s\" of feed %s begins epoch %llu again: %llu of %llu batches of epoch %llu were "
        "DONE under an earlier daemon, and no worker of that run returned within %g s "
        "(rejoin_wait)",
        name, base, (unsigned long long)open->epoch,
        (unsigned long long)(state->high - state->undone_count),
        (unsigned long long)count_batches(feed, &state->key), (unsigned long long)state->key.epoch,
        (double)feed->options.rejoin_wait_ns * 1e-9);
    return false;
}

void trajd_job_end_wait(const struct trajd_core_feed *feed, struct session *session)
{
    const struct trajd_core_options *options = &feed->core->options;

    if (session->wait_until_ns && feed->core->report[0] && options->report)
        options->report(options->context, feed->core->report);
    session->wait_since_ns = session->wait_until_ns = 0;
    feed->core->report[0] = '\0';
}

/* ---- joins, begins or is refused ---- */

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
    return verdict == VERDICT_BEGIN && !has_place(job, open, start) ? VERDICT_ELSEWHERE : verdict;
}
