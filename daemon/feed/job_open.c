/* OPEN: who may begin an epoch, who joins, who is refused. */
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"

/* Sessions of the job that are not the one that opens. */
static uint32_t count_others(const struct job *job, const struct session *session)
{
    return job->member_count - (session->job == job);
}

enum verdict {
    VERDICT_JOIN,
    VERDICT_BEGIN,
    /* the epoch is over, the others are in the next one: the session has missed the end */
    VERDICT_PAST,
    VERDICT_REFUSED,
    VERDICT_ELSEWHERE, /* others read the feed, and it is not where they are */
};

/* Ranks must agree: fresh ones on the position, others on the grid of batches that it lies on.
 * Where other jobs read the same slots, that is settled by the first of them. */
static bool agrees(const struct job *job, const struct session *session,
                   const struct trajd_wire_open *open)
{
    uint64_t length = job->feed->options.epoch_length, batch = job->feed->options.global_batch;

    if (job->claims && trajd_job_has_rivals(job) && open->next != length &&
        (open->next < job->claim_begin || (open->next - job->claim_begin) % batch))
        return false;
    for (uint32_t r = 0; r < job->world; r++) {
        const struct rank *other = &job->ranks[r];
        uint64_t apart =
            other->next > open->next ? other->next - open->next : open->next - other->next;
        if (!other->session || other->session == session)
            continue;
        if (open->fresh && other->fresh && apart)
            return false;
        if (apart % batch && open->next != length && other->next != length)
            return false;
    }
    return true;
}

static enum verdict validate_join(const struct job *job, struct session *session,
                                  const struct trajd_wire_open *open, bool is_alone)
{
    const struct trajd_core_feed *feed = job->feed;

    if (job->mode == TRAJD_WIRE_QUEUE) {
        if (open->next == 0 || open->next == job->asked || open->next == job->begin)
            return VERDICT_JOIN;
        if (is_alone)
            return VERDICT_BEGIN;
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "next: %llu, but the job's epoch %llu began at %llu",
                             (unsigned long long)open->next, (unsigned long long)job->epoch,
                             (unsigned long long)job->asked);
        return VERDICT_REFUSED;
    }
    if (job->ranks[open->rank].session && job->ranks[open->rank].session != session) {
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_BUSY,
                             "rank: %u of job \"%s\" is session %llu (pid %llu)", open->rank,
                             job->name, (unsigned long long)job->ranks[open->rank].session->id,
                             (unsigned long long)job->ranks[open->rank].session->pid);
        return VERDICT_REFUSED;
    }
    if (is_alone && job->phase == JOB_RUNNING && open->next < trajd_rank_position(job, open->rank))
        return VERDICT_BEGIN; /* nobody is left to disagree with where the rank stands */
    if ((job->phase == JOB_GATHERING && !agrees(job, session, open)) ||
        (job->phase == JOB_RUNNING && open->next > job->begin &&
         open->next != feed->options.epoch_length &&
         (open->next - job->begin) % feed->options.global_batch)) {
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "next: %llu, which the other ranks do not agree with",
                             (unsigned long long)open->next);
        return VERDICT_REFUSED;
    }
    return VERDICT_JOIN;
}

/* An OPEN that does not fit the job which the others have: says what differs. */
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
            "local: %u ranks (%u first), but the other ranks of job \"%s\" say %u (%u first)",
            open->local.count, open->local.count ? open->local.list[0] : 0, job->name,
            job->local.count, job->local.count ? job->local.list[0] : 0);
}

/* From a checkpoint everything begins anew, for a whole job: others of it come with the same one.
 */
static enum verdict validate_resume(const struct job *job, struct session *session,
                                    const struct trajd_wire_open *open, bool is_alone)
{
    const uint64_t check = trajd_checkpoint_token_check(open->resume.data, open->resume.size);

    if (is_alone)
        return VERDICT_BEGIN;
    if (open->epoch == job->epoch && job->token_check == check)
        return VERDICT_JOIN;
    if (open->epoch + 1 == job->epoch && job->past_token == check)
        return VERDICT_PAST; /* the others had little left to do */
    trajd_session_refuse(
        job->feed->core, session, open->request, TRAJD_ERR_BUSY,
        "resume: job \"%s\" is in epoch %llu, which did not begin from this checkpoint; its other "
        "sessions have to leave first",
        job->name, (unsigned long long)job->epoch);
    return VERDICT_REFUSED;
}

/* Ranks gather again after the daemon's death, and those here have nothing left of the epoch: it
 * was over. Only a rank that was told so can ask for the next one. */
static bool is_gathered_behind(const struct job *job)
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
    bool is_alone = count_others(job, session) == 0;

    if (!is_alone && !trajd_job_is(job, open)) {
        refuse_other_job(job, session, open);
        return VERDICT_REFUSED;
    }
    if (open->resume.size)
        return validate_resume(job, session, open, is_alone);
    if (trajd_job_is(job, open) && open->epoch == job->epoch)
        return is_alone && open->fresh ? VERDICT_BEGIN
                                       : validate_join(job, session, open, is_alone);
    if (!is_alone && open->epoch + 1 == job->epoch &&
        (job->mode == TRAJD_WIRE_QUEUE || !trajd_batches_from(job->feed, open->next)))
        return VERDICT_PAST;
    if (is_alone || job->phase == JOB_ENDED ||
        (open->epoch == job->epoch + 1 && is_gathered_behind(job)))
        return VERDICT_BEGIN;
    trajd_session_refuse(job->feed->core, session, open->request, TRAJD_ERR_BUSY,
                         "epoch: %llu, but job \"%s\" is in epoch %llu and not all of its sessions "
                         "have seen the end",
                         (unsigned long long)open->epoch, job->name,
                         (unsigned long long)job->epoch);
    return VERDICT_REFUSED;
}

/* The job's epoch can begin there: alone anywhere, beside others only where they are. */
static bool has_place(const struct job *job, const struct trajd_wire_open *open,
                      const struct start *start)
{
    return !trajd_job_has_rivals(job) || trajd_job_goes_on(job, open, start) ||
           trajd_job_can_attach(job, open->epoch, open, start);
}

/* The job of that name, or an entry for it: a free one, or that of a job which nobody is left of
 * where nobody reads. */
static struct job *find_entry(const struct trajd_core_feed *feed, const struct session *session,
                              struct trajd_wire_text name)
{
    struct job *job = trajd_job_find(feed, name), *left = NULL;
    uint32_t others = feed->member_count - (session->feed == feed);

    for (uint32_t j = 0; !job && j < feed->options.job_count; j++) {
        if (feed->jobs[j].phase == JOB_NONE)
            job = &feed->jobs[j];
        else if (!others && !left)
            left = &feed->jobs[j];
    }
    return job ? job : left;
}

static enum verdict validate(const struct job *job, struct session *session,
                             const struct trajd_wire_open *open, const struct start *start)
{
    enum verdict verdict = VERDICT_ELSEWHERE;

    if (job)
        verdict = validate_epoch(job, session, open);
    return verdict == VERDICT_BEGIN && !has_place(job, open, start) ? VERDICT_ELSEWHERE : verdict;
}

/* Nobody holds more parts than there are slots: who has credit for more and holds them all would
 * wait without being told to release one. */
static uint32_t credit_of(const struct trajd_core_feed *feed, uint32_t asked)
{
    const uint32_t most = feed->options.max_credit < feed->options.slot_count
                              ? feed->options.max_credit
                              : feed->options.slot_count;

    return asked < most ? asked : most;
}

static void enter(struct job *job, struct session *session, const struct trajd_wire_open *open)
{
    struct trajd_core_feed *feed = job->feed;

    session->feed = feed;
    session->job = job;
    session->request = open->request;
    session->epoch = open->epoch;
    session->is_over = false;
    session->rank = open->rank;
    session->credit = credit_of(feed, open->credit);
    feed->members[feed->member_count++] = session;
    job->member_count++;
    feed->idle_since_ns = 0;
}

/* A rank that stands further on than the job believes: the parts up to there are nobody's any more.
 */
static void pass(struct job *job, uint32_t rank, uint64_t next)
{
    struct trajd_core_feed *feed = job->feed;
    /* neither in a slot nor passed */
    const uint64_t before = job->ranks[rank].next, from = job->high > before ? job->high : before;

    for (uint32_t i = 0; i < feed->options.slot_count; i++) {
        const struct share *share = trajd_slot_share(&feed->slots[i], job);
        job->parts_left -=
            share && feed->slots[i].position < next && share->parts[rank].state == PART_PENDING;
    }
    if (from < next)
        job->parts_left -= trajd_batches_from(feed, from) - trajd_batches_from(feed, next);
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
        pass(job, open->rank, open->next);
}

/* Each place makes all of an epoch: a job in two of them would get every window twice, or wait for
 * ranks that are in the other. Ranks that say which of them are together are apart on purpose. */
static const struct trajd_core_feed *find_other_place(const struct trajd_core_feed *here,
                                                      const struct session *session,
                                                      const struct trajd_wire_open *open)
{
    for (const struct trajd_core_feed *feed = here->core->feeds; feed; feed = feed->next) {
        const struct job *job = strcmp(trajd_core_family(feed), trajd_core_family(here)) != 0 &&
                                        trajd_core_is_same_feed(feed, here)
                                    ? trajd_job_find(feed, open->job)
                                    : NULL;
        if (job && count_others(job, session) && !(open->local.count && job->local.count))
            return feed;
    }
    return NULL;
}

static bool check(struct trajd_core_feed *feed, struct session *session,
                  const struct trajd_wire_open *open)
{
    const struct trajd_core_feed_options *options = &feed->options;
    const struct trajd_core_feed *other = find_other_place(feed, session, open);
    struct trajd_core *core = feed->core;

    if (core->going_away)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_CLOSED,
                             "the daemon is ending");
    else if (open->fingerprint && open->fingerprint != options->fingerprint)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "fingerprint: %016llx is asked for, feed %s is %016llx (another "
                             "dataset, or other windows)",
                             (unsigned long long)open->fingerprint, options->name,
                             (unsigned long long)options->fingerprint);
    else if (open->next > options->epoch_length)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "next: %llu, an epoch has %llu windows",
                             (unsigned long long)open->next,
                             (unsigned long long)options->epoch_length);
    else if (open->world > options->global_batch || open->world > TRAJD_CORE_MAX_WORLD)
        trajd_session_refuse(
            core, session, open->request, TRAJD_ERR_ARGUMENT,
            "world: %u ranks cannot share a batch of %u windows (at most %u ranks)", open->world,
            options->global_batch, TRAJD_CORE_MAX_WORLD);
    else if (other)
        trajd_session_refuse(core, session, open->request, TRAJD_ERR_BUSY,
                             "job: others of job \"%.*s\" read feed %s: all of them have their "
                             "batches in one place, the host's memory or "
                             "one GPU's, unless `local` says which ranks are together",
                             (int)open->job.size, open->job.data ? open->job.data : "",
                             other->options.name);
    else
        return true;
    return false;
}

/* The checkpoint to begin from, if there is one; false: it is not one of this feed's, and that has
 * been said. */
static bool read_token(struct trajd_core_feed *feed, struct session *session,
                       const struct trajd_wire_open *open, const struct trajd_journal_state **token)
{
    struct trajd_journal_state *state = &feed->core->resumed;
    const struct trajd_core_feed_options *options = &feed->options;
    struct trajd_error error;

    *token = NULL;
    if (!open->resume.size)
        return true;
    if (trajd_checkpoint_token_decode(open->resume.data, open->resume.size, state, &error))
        trajd_core_send_error(feed->core, session->id, open->request, &error);
    else if (state->key.fingerprint != options->fingerprint)
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "resume: fingerprint: the checkpoint is of %016llx, feed %s is "
                             "%016llx (another dataset, "
                             "or other windows)",
                             (unsigned long long)state->key.fingerprint, options->name,
                             (unsigned long long)options->fingerprint);
    else if (state->key.seed != options->seed)
        trajd_session_refuse(feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
                             "resume: seed: the checkpoint is of %llu, feed %s has %llu",
                             (unsigned long long)state->key.seed, options->name,
                             (unsigned long long)options->seed);
    else if (state->key.epoch != open->epoch)
        trajd_session_refuse(
            feed->core, session, open->request, TRAJD_ERR_ARGUMENT,
            "resume: epoch: the checkpoint is of epoch %llu, and %llu is asked for",
            (unsigned long long)state->key.epoch, (unsigned long long)open->epoch);
    else
        *token = state;
    return *token != NULL;
}

/* Also if what is asked for is refused: once all have left an epoch, another can begin. */
static void leave(struct session *session, uint64_t now_ns)
{
    struct trajd_core_feed *left = session->feed;

    if (!left)
        return;
    trajd_job_leave(session, now_ns);
    trajd_feed_advance(left);
}

void trajd_core_refuse_open(struct trajd_core *core, uint64_t session_id, uint64_t request,
                            const struct trajd_error *error, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);
    struct trajd_core_feed *left;

    if (!session)
        return;
    left = session->feed;
    leave(session, now_ns);
    if (left)
        trajd_feed_reap(left);
    trajd_core_send_error(core, session_id, request, error);
}

/* How well an OPEN would do there: 0 not at all, 1 by taking it from a job that nobody is left of,
 * 2 nobody has it, 3 beside the jobs that read it, 4 its job was there last, 5 its job is there. */
static int rate(struct trajd_core_feed *feed, const struct session *session,
                const struct trajd_wire_open *open, const struct start *start)
{
    const struct job *job = trajd_job_find(feed, open->job),
                     *entry = find_entry(feed, session, open->job);
    uint32_t others = feed->member_count - (session->feed == feed);

    if (job && count_others(job, session))
        return 5;
    if (!others)
        return job ? 4 : feed->jobs[0].phase == JOB_NONE ? 2 : 1;
    if (job && trajd_job_is(job, open) && open->epoch == job->epoch && !open->fresh &&
        !open->resume.size)
        return 4; /* goes on where it stood */
    if (!entry || !has_place(entry, open, start))
        return 0;
    return job ? 4 : 3;
}

/* The OPEN that was granted, because the answer was lost. */
static bool asks_again(const struct session *session, const struct trajd_wire_open *open,
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
    const struct trajd_journal_state *token = NULL;
    struct trajd_core_feed *best = NULL;
    int best_rate = 0;

    if (asks_again(session, open, feed))
        return session->feed;
    if (open->resume.size) {
        if (trajd_checkpoint_token_decode(open->resume.data, open->resume.size, &core->resumed,
                                          NULL))
            return feed; /* which says so */
        token = &core->resumed;
    }
    trajd_job_plan(feed, open, token, &core->start);
    for (struct trajd_core_feed *other = core->feeds; other; other = other->next) {
        int here = 0;
        if (!other->options.is_hidden &&
            strcmp(trajd_core_family(other), trajd_core_family(feed)) == 0)
            here = rate(other, session, open, &core->start);
        if (here && here >= best_rate) { /* the oldest of equals: it stands last */
            best = other;
            best_rate = here;
        }
    }
    return best;
}

/* The job is about to be on this feed: nobody comes back to where it was, whose journal it takes
 * along. */
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
                         "feed %s is in use by job \"%s\", which is elsewhere in it",
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
    /* those that gathered have missed it */
    if (job->phase == JOB_GATHERING && open->epoch != job->epoch) {
        trajd_job_end_epoch(job);
        trajd_job_detach(job);
    }
    trajd_job_begin(job, open, start);
    return TRAJD_OK;
}

static void settle_in(struct job *job, struct session *session, const struct trajd_wire_open *open,
                      bool is_past)
{
    const uint64_t past = open->resume.size ? job->feed->core->start.begin : open->next;

    enter(job, session, open);
    if (!is_past)
        join(session, open);
    trajd_job_send_opened(session);
    if (is_past)
        trajd_job_tell_end(job, session, job->mode == TRAJD_WIRE_QUEUE ? past : 0);
    else if (job->phase == JOB_ENDED)
        trajd_job_tell_end(job, session, job->begin);
}

enum trajd_status trajd_core_open(struct trajd_core *core, uint64_t session_id,
                                  const struct trajd_wire_open *open, struct trajd_core_feed *feed,
                                  uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);
    const struct trajd_journal_state *token;
    struct trajd_core_feed *left;
    enum trajd_status status;
    enum verdict verdict;
    struct job *job;

    if (!session)
        return TRAJD_ERR_CLOSED;
    session->last_message_ns = now_ns;
    session->sent_away.status = TRAJD_OK;
    left = session->feed;
    if (left == feed && asks_again(session, open, feed) && !core->going_away) {
        trajd_job_send_opened(session);
        return TRAJD_OK;
    }
    trajd_feed_account(feed, now_ns);
    leave(session, now_ns);
    if (!check(feed, session, open) || !read_token(feed, session, open, &token))
        return TRAJD_ERR_ARGUMENT;
    drop_elsewhere(feed, open->job);
    trajd_job_plan(feed, open, token, &core->start);
    job = find_entry(feed, session, open->job);
    verdict = validate(job, session, open, &core->start);
    if (verdict == VERDICT_REFUSED)
        return TRAJD_ERR_BUSY;
    if (verdict == VERDICT_ELSEWHERE)
        return refuse_elsewhere(feed, session, open);
    if (verdict == VERDICT_BEGIN && (status = begin(job, session, open, &core->start)))
        return status;
    settle_in(job, session, open, verdict == VERDICT_PAST);
    if (left)
        trajd_feed_reap(left);
    trajd_feed_reap(feed);
    trajd_feed_advance(feed);
    trajd_feed_wake(feed);
    return TRAJD_OK;
}
