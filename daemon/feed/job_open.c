/* Handles OPEN: checks its fields, and makes the session a member of its job. */
#include <string.h>

#include "daemon/base/defaults.h"
#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"
#include "proto/plural.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t trajd_core_credit(uint32_t asked, uint32_t max_credit, uint32_t slot_count)
{
    const uint32_t most = asked == TRAJD_WIRE_ANY_CREDIT ? trajd_default_credit(slot_count) : asked;

    return least(least(most, slot_count), least(max_credit, TRAJD_WIRE_MAX_LEASES));
}

static void add_member(struct job *job, struct session *session, const struct trajd_wire_open *open)
{
    struct trajd_core_feed *feed = job->feed;

    if (session->maps_rings) {
        feed->is_mapped = true;
        feed->user = session->owner;
    }
    session->feed = feed;
    session->job = job;
    session->request = open->request;
    session->epoch = open->epoch;
    session->is_over = false;
    session->rank = open->rank;
    session->credit =
        trajd_core_credit(open->credit, feed->options.max_credit, feed->options.slot_count);
    feed->members[feed->member_count++] = session;
    job->member_count++;
    feed->idle_since_ns = 0;
    trajd_job_note_sessions(job);
}

/* Sets the rank's position to `next`, which its OPEN reports. Its parts before that are not needed
 * any more. */
static void skip_to(struct job *job, uint32_t rank, uint64_t next)
{
    struct trajd_core_feed *feed = job->feed;
    /* the first part that is neither in a slot nor passed */
    const uint64_t before = job->ranks[rank].next, from = job->high > before ? job->high : before;

    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        const struct job_parts *job_parts = trajd_slot_job_parts(&feed->slots[i], job);
        job->parts_remaining -= job_parts && feed->slots[i].position < next &&
                                job_parts->parts[rank].state == PART_PENDING;
    }
    if (from < next)
        job->parts_remaining -= trajd_batches_from(feed, from) - trajd_batches_from(feed, next);
    trajd_rank_skip(job, rank, next);
    job->ranks[rank].next = next;
}

static void join(struct session *session, const struct trajd_wire_open *open)
{
    struct job *job = session->job;

    session->joined = true;
    if (job->mode != TRAJD_WIRE_SHARD)
        return;
    job->ranks[open->rank].session = session;
    job->ranks[open->rank].fresh = open->fresh;
    if (job->phase == JOB_GATHERING)
        job->ranks[open->rank].next = open->next;
    else if (job->phase == JOB_RUNNING && open->next > trajd_rank_position(job, open->rank))
        skip_to(job, open->rank, open->next);
}

/* Returns a feed where the same job reads this feed's data on another device (host memory or a
 * GPU), or NULL. Each device produces whole epochs, so a job on two devices would get every window
 * twice, or wait for ranks that are on the other device. Ranks whose OPEN lists the local ranks are
 * on several devices on purpose. */
static const struct trajd_core_feed *find_other_device(const struct trajd_core_feed *here,
                                                       const struct session *session,
                                                       const struct trajd_wire_open *open)
{
    for (const struct trajd_core_feed *feed = here->core->feeds; feed; feed = feed->next) {
        const struct job *job = strcmp(trajd_core_family(feed), trajd_core_family(here)) != 0 &&
                                        trajd_core_is_same_feed(feed, here)
                                    ? trajd_job_find(feed, open->job)
                                    : NULL;
        if (job && trajd_job_count_others(job, session) && !(open->local.count && job->local.count))
            return feed;
    }
    return NULL;
}

/* Checks that a feed that is opened again scales its values as before. */
static bool check_norm(struct trajd_core_feed *feed, struct session *session,
                       const struct trajd_wire_open *open)
{
    const struct trajd_core_feed_options *options = &feed->options;

    if (open->norm && open->norm != options->norm_digest)
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "norm: the job was opened with values scaled as %016llx, but feed %s "
                             "now has %016llx: its `norm:` or the statistics changed. Change them "
                             "back, or start the "
                             "job again",
                             (unsigned long long)open->norm, options->name,
                             (unsigned long long)options->norm_digest);
    else if (!open->norm && !open->fresh && options->changed_norm)
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "norm: the job was opened with trajd 0.1.0 (daemon or libtrajd), "
                             "whose statistics weigh windows, but output %s of feed %s weighs rows "
                             "or has min_std: write `norm: {by: RULE, over: windows}` there, or "
                             "start the job again",
                             options->changed_norm, options->name);
    else
        return true;
    return false;
}

static bool check(struct trajd_core_feed *feed, struct session *session,
                  const struct trajd_wire_open *open)
{
    const struct trajd_core_feed_options *options = &feed->options;
    const struct trajd_core_feed *other = find_other_device(feed, session, open);
    struct trajd_core *core = feed->core;

    if (core->going_away)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_CLOSED,
                             "the daemon is shutting down");
    else if (open->fingerprint && open->fingerprint != options->fingerprint)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "fingerprint: the job needs %016llx, but feed %s has %016llx (another "
                             "dataset, or other windows)",
                             (unsigned long long)open->fingerprint, options->name,
                             (unsigned long long)options->fingerprint);
    else if (open->next > options->epoch_length)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "next: %llu is after the end of the epoch, which has %llu windows",
                             (unsigned long long)open->next,
                             (unsigned long long)options->epoch_length);
    else if (open->world > options->global_batch || open->world > TRAJD_CORE_MAX_WORLD)
        trajd_session_refuse(
            core, session, open->request, TRAJD_ERR_ARGUMENT,
            "world: a batch of %u window%s cannot be split among %u ranks (at most %u ranks)",
            options->global_batch, trajd_plural(options->global_batch), open->world,
            TRAJD_CORE_MAX_WORLD);
    else if (other)
        trajd_session_refuse(
            core, session, open->request, TRAJD_ERR_BUSY,
            "job: other sessions of job \"%.*s\" read feed %s; all sessions of a job must have "
            "their batches in one place, host memory (images finished, or as u8 for "
            "device=\"cuda\" "
            "and other machines) or one GPU, unless "
            "`local` lists the ranks that are together",
            (int)open->job.size, open->job.data ? open->job.data : "", other->options.name);
    else if (!trajd_feed_admits(feed, session, open->job))
        trajd_session_refuse(
            core, session, open->request, TRAJD_ERR_BUSY,
            "job: workers of user %llu read job \"%.*s\" of feed %s, and could write into its "
            "batches; all local workers of a job must be of one user, unless the feed has "
            "`fan_out`: use another name for this job",
            (unsigned long long)feed->user, (int)open->job.size,
            open->job.data ? open->job.data : "", options->name);
    else
        return check_norm(feed, session, open);
    return false;
}

/* Decodes the checkpoint of the OPEN. *checkpoint is NULL if it has none. Returns false if the
 * checkpoint does not fit this feed; then ERROR was sent. */
static bool read_checkpoint(struct trajd_core_feed *feed, struct session *session,
                            const struct trajd_wire_open *open,
                            const struct trajd_journal_state **checkpoint)
{
    struct trajd_journal_state *state = &feed->core->from_checkpoint;
    const struct trajd_core_feed_options *options = &feed->options;
    struct trajd_error error;

    *checkpoint = NULL;
    if (!open->resume.size)
        return true;
    if (trajd_checkpoint_token_decode(open->resume.data, open->resume.size, state, &error))
        trajd_core_send_error(feed->core, session->id, open->request, &error);
    else if (state->key.fingerprint != options->fingerprint)
        trajd_session_refuse(
            feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
            "resume: fingerprint: the checkpoint has %016llx, but feed %s has "
            "%016llx (another dataset, layout or windows, or another `version:` of the "
            "configuration; `version: 1` continues those of trajd 0.1.0)",
            (unsigned long long)state->key.fingerprint, options->name,
            (unsigned long long)options->fingerprint);
    else if (state->key.seed != options->seed)
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "resume: seed: the checkpoint has %llu, but feed %s has %llu",
                             (unsigned long long)state->key.seed, options->name,
                             (unsigned long long)options->seed);
    else if (state->key.epoch != open->epoch)
        trajd_session_refuse(
            feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
            "resume: epoch: the checkpoint is of epoch %llu, but epoch %llu was requested",
            (unsigned long long)state->key.epoch, (unsigned long long)open->epoch);
    else
        *checkpoint = state;
    return *checkpoint != NULL;
}

/* Drops the job's entries on other productions of the feed. The job moves here and takes its
 * journal with it. */
static void drop_elsewhere(const struct trajd_core_feed *here, struct trajd_wire_text name)
{
    for (struct trajd_core_feed *feed = here->core->feeds; feed; feed = feed->next) {
        struct job *job = trajd_job_find(feed, name);
        if (feed != here && job && !job->member_count && trajd_core_is_same_feed(feed, here))
            trajd_job_drop(job);
    }
}

static enum trajd_status refuse_elsewhere(struct trajd_core_feed *feed, struct session *session,
                                          const struct trajd_wire_open *open)
{
    const struct job *other = &feed->jobs[0];

    for (uint32_t j = 0; j < feed->options.job_count && !other->member_count; j++)
        other = &feed->jobs[j];
    trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_BUSY,
                         "feed %s is in use by job \"%s\", which reads other batches of it",
                         feed->options.name, other->name);
    return TRAJD_ERR_BUSY;
}

static enum trajd_status begin(struct job *job, struct session *session,
                               const struct trajd_wire_open *open, const struct start *start)
{
    if (!trajd_job_size_ranks(job, open)) {
        trajd_session_refuse(job->feed->core, session, open->request, TRAJD_ERR_MEMORY,
                             "no memory for %u ranks", open->world);
        return TRAJD_ERR_MEMORY;
    }
    /* the ranks that gathered have missed that epoch */
    if (job->phase == JOB_GATHERING && open->epoch != job->epoch) {
        trajd_job_end_epoch(job);
        trajd_job_detach(job);
    }
    job->owner = session->owner;
    trajd_job_begin(job, open, start);
    trajd_job_report_unrecorded(job, open, start);
    return TRAJD_OK;
}

static void admit(struct job *job, struct session *session, const struct trajd_wire_open *open,
                  bool is_past)
{
    const uint64_t past = open->resume.size ? job->feed->core->start.begin : open->next;

    add_member(job, session, open);
    if (!is_past)
        join(session, open);
    trajd_session_return(session, open);
    trajd_session_send_opened(session);
    if (is_past)
        trajd_session_end_epoch(job, session, job->mode == TRAJD_WIRE_QUEUE ? past : 0);
    else if (job->phase == JOB_ENDED)
        trajd_session_end_epoch(job, session, job->begin);
}

enum trajd_status trajd_job_open(struct trajd_core_feed *feed, struct session *session,
                                 const struct trajd_wire_open *open)
{
    const struct trajd_journal_state *checkpoint;
    struct start *start = &feed->core->start;
    const struct trajd_wire_open *begun = open; /* the OPEN that the job is to follow */
    struct trajd_wire_open later;
    enum trajd_status status;
    enum verdict verdict;
    struct job *job;
    bool is_past;

    if (!check(feed, session, open) || !read_checkpoint(feed, session, open, &checkpoint))
        return TRAJD_ERR_ARGUMENT;
    if (trajd_job_hold_back(feed, session, open))
        return TRAJD_ERR_BUSY;
    drop_elsewhere(feed, open->job);
    job = trajd_job_find_entry(feed, session, open->job);
    is_past = !(job && trajd_job_count_others(job, session)) &&
              trajd_job_is_in_next_epoch(feed, open, &later);
    if (is_past)
        begun = &later;
    trajd_job_find_start(feed, begun, checkpoint, start);
    verdict = trajd_job_validate(job, session, begun, start);
    if (verdict == VERDICT_REFUSED)
        return TRAJD_ERR_BUSY;
    if (verdict == VERDICT_ELSEWHERE)
        return refuse_elsewhere(feed, session, open);
    if (verdict == VERDICT_BEGIN && (status = begin(job, session, begun, start)))
        return status;
    admit(job, session, open, is_past || verdict == VERDICT_PAST);
    trajd_job_end_wait(feed, session);
    return TRAJD_OK;
}
