/* Ends waits that are too long: of ranks for a rank that is away, of jobs for a slow job. Tells the
 * ranks whom they wait for. */
#include <stdio.h>

#include "daemon/feed/feed_internal.h"
#include "proto/plural.h"

#define TELL_AFTER_NS UINT64_C(10000000000) /* of a rank that has not opened the epoch */

/* ---- what is reported to ranks ---- */

static void report(const struct trajd_core_feed *feed, const char *text)
{
    const struct trajd_core_options *options = &feed->core->options;
    char line[TRAJD_WIRE_MAX_REASON + TRAJD_WIRE_MAX_NAME + 16];

    snprintf(line, sizeof line, "feed %s: %s", feed->options.name, text);
    if (options->report)
        options->report(options->context, line);
}

/* Sends NOTICE to the job's sessions other than `except`, and reports it. */
static void tell(const struct job *job, const struct session *except, uint64_t wait_ns,
                 const char *text)
{
    const struct trajd_core_feed *feed = job->feed;
    struct trajd_wire_message message;

    message.op = TRAJD_WIRE_NOTICE;
    message.notice.message = trajd_wire_text(text);
    message.notice.wait_ms = (uint32_t)(wait_ns / 1000000);
    for (uint32_t i = 0; i < feed->member_count; i++)
        if (feed->members[i]->job == job && feed->members[i] != except)
            trajd_core_send(feed->members[i], feed->core, &message);
    report(feed, text);
}

bool trajd_core_tell_waiting(const struct trajd_core_feed *feed, uint64_t waited_ns,
                             const char *text)
{
    bool has_waited = false;

    for (uint32_t i = 0; i < feed->member_count; i++)
        has_waited = has_waited || feed->members[i]->waiting_ns >= waited_ns;
    for (uint32_t j = 0; j < feed->options.job_count && has_waited; j++)
        if (feed->jobs[j].member_count)
            tell(&feed->jobs[j], NULL, 0, text);
    return has_waited;
}

/* Appends for how long the ranks wait. */
static void append_wait(const struct job *job, uint64_t away_ns, char *text, size_t size)
{
    const uint64_t limit_ns = job->feed->options.rank_timeout_ns;

    if (limit_ns)
        snprintf(text, size, ": the other ranks wait for another %.0f s (rank_timeout is %.0f s)",
                 (double)(limit_ns > away_ns ? limit_ns - away_ns : 0) * 1e-9,
                 (double)limit_ns * 1e-9);
    else
        snprintf(text, size, ": the other ranks wait without a limit (rank_timeout is 0)");
}

static bool runs_epoch(const struct job *job)
{
    return job->mode == TRAJD_WIRE_SHARD &&
           (job->phase == JOB_GATHERING || job->phase == JOB_RUNNING);
}

void trajd_rank_tell_gone(const struct session *session, bool sent_bye)
{
    struct job *job = session->job;
    char text[TRAJD_WIRE_MAX_REASON];
    int length;

    if (!job || !runs_epoch(job) || !session->joined || job->member_count < 2 ||
        !trajd_batches_from(job->feed, trajd_rank_position(job, session->rank)))
        return;
    length = snprintf(text, sizeof text, "rank %u of %u of job \"%s\" (%s, process %llu) %s",
                      session->rank, job->world, job->name, session->client,
                      (unsigned long long)session->pid,
                      sent_bye ? "closed its feed within the epoch" : "died");
    append_wait(job, 0, text + length, sizeof text - (size_t)length);
    tell(job, session, job->feed->options.rank_timeout_ns, text);
    job->ranks[session->rank].is_missed = true;
}

void trajd_rank_tell_back(const struct session *session)
{
    struct job *job = session->job;
    char text[TRAJD_WIRE_MAX_REASON];

    if (!runs_epoch(job) || !session->joined || !job->ranks[session->rank].is_missed)
        return;
    job->ranks[session->rank].is_missed = false;
    snprintf(text, sizeof text, "rank %u of %u of job \"%s\" is back", session->rank, job->world,
             job->name);
    tell(job, session, 0, text);
}

/* ---- waits that are too long ---- */

/* now_ns can be a little before away_since_ns: a tick has the time at which the thread's turn
 * began, and the death of a session in that turn has the later time of its end of file. */
static uint64_t away_ns(const struct rank *rank, uint64_t now_ns)
{
    return now_ns > rank->away_since_ns ? now_ns - rank->away_since_ns : 0;
}

/* Returns the first rank that is away for longer than rank_timeout, or UINT32_MAX. *count is the
 * number of such ranks. */
static uint32_t find_missing(const struct job *job, uint64_t now_ns, uint32_t *count)
{
    uint32_t first = UINT32_MAX;

    *count = 0;
    for (uint32_t r = 0; r < job->world; r++) {
        const struct rank *rank = &job->ranks[r];
        if (rank->session || rank->is_remote ||
            away_ns(rank, now_ns) < job->feed->options.rank_timeout_ns)
            continue;
        first = first == UINT32_MAX ? r : first;
        ++*count;
    }
    return first;
}

/* Returns true if more batches of the epoch are being produced. */
static bool is_being_produced(const struct job *job)
{
    const struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = 0; i < feed->filling.count; i++)
        if (trajd_slot_job_parts(&feed->slots[feed->filling.slots[i]], job))
            return true;
    return feed->filling.count + feed->ready.count < feed->options.slot_count &&
           feed->cursor.epoch == job->epoch &&
           feed->cursor.position < trajd_epoch_end(feed, job->begin);
}

/* Returns true if the rank has no batch that it still has to read or to report as DONE. */
static bool is_starved(const struct job *job, uint32_t rank)
{
    for (uint32_t i = 0; i < job->feed->ready.count; i++) {
        const struct job_parts *job_parts =
            trajd_slot_job_parts(&job->feed->slots[job->feed->ready.slots[i]], job);
        if (job_parts && (job_parts->parts[rank].state == PART_PENDING ||
                          job_parts->parts[rank].state == PART_LEASED))
            return false;
    }
    return true;
}

static bool has_waiting_session(const struct job *job)
{
    if (job->phase == JOB_RUNNING && is_being_produced(job))
        return false;
    for (uint32_t r = 0; r < job->world; r++)
        if (job->ranks[r].session && (job->phase == JOB_GATHERING || is_starved(job, r)))
            return true;
    return false;
}

static int describe_ranks(const struct job *job, uint32_t rank, uint32_t count, char *text,
                          size_t size)
{
    int length = snprintf(text, size, "rank %u of %u of job \"%s\" ", rank, job->world, job->name);

    if (count > 1)
        length += snprintf(text + length, size - (size_t)length, "and %u other%s ", count - 1,
                           trajd_plural(count - 1));
    return length;
}

static void describe_absence(const struct job *job, uint32_t rank, uint32_t count, uint64_t now_ns,
                             char *text, size_t size)
{
    const int length = describe_ranks(job, rank, count, text, size);

    snprintf(text + length, size - (size_t)length,
             "%s for %.0f s (rank_timeout is %.0f s); open the feed again to go on",
             job->phase == JOB_GATHERING ? "did not open the epoch" : "was away",
             (double)away_ns(&job->ranks[rank], now_ns) * 1e-9,
             (double)job->feed->options.rank_timeout_ns * 1e-9);
}

static void remove_sessions(struct job *job, enum trajd_status status, const char *reason,
                            uint64_t now_ns)
{
    struct trajd_core_feed *feed = job->feed;

    for (uint32_t i = feed->member_count; i-- > 0;) {
        struct session *member = feed->members[i];
        if (member->job != job)
            continue;
        trajd_session_leave(member, now_ns);
        trajd_session_send_removal(feed->core, member, status, reason);
    }
}

/* Tells the ranks that gather which one has not come. */
static void tell_missing(struct job *job, uint64_t now_ns)
{
    const uint64_t limit_ns = job->feed->options.rank_timeout_ns;
    char text[TRAJD_WIRE_MAX_REASON];
    uint32_t first = UINT32_MAX, count = 0;
    int length;

    if (job->phase != JOB_GATHERING || !job->member_count)
        return;
    for (uint32_t r = 0; r < job->world; r++) {
        struct rank *rank = &job->ranks[r];
        if (rank->session || rank->is_remote || rank->is_missed ||
            away_ns(rank, now_ns) < TELL_AFTER_NS)
            continue;
        rank->is_missed = true;
        first = first == UINT32_MAX ? r : first;
        count++;
    }
    if (!count)
        return;
    length = describe_ranks(job, first, count, text, sizeof text);
    length +=
        snprintf(text + length, sizeof text - (size_t)length, "did not open the epoch for %.0f s",
                 (double)away_ns(&job->ranks[first], now_ns) * 1e-9);
    append_wait(job, away_ns(&job->ranks[first], now_ns), text + length,
                sizeof text - (size_t)length);
    tell(job, NULL, limit_ns > TELL_AFTER_NS ? limit_ns - TELL_AFTER_NS : 0, text);
}

/* Removes all sessions of a job that waits for a missing rank for too long, with ERROR. The job
 * stays as it is: sessions that open it again go on, and a new wait begins. */
static void expire_ranks(struct job *job, uint64_t now_ns)
{
    const struct trajd_core_feed *feed = job->feed;
    char reason[256];
    uint32_t rank, count;

    if (!feed->options.rank_timeout_ns || job->mode != TRAJD_WIRE_SHARD ||
        (job->phase != JOB_GATHERING && job->phase != JOB_RUNNING) || !job->member_count)
        return;
    rank = find_missing(job, now_ns, &count);
    if (rank == UINT32_MAX || !has_waiting_session(job))
        return;
    describe_absence(job, rank, count, now_ns, reason, sizeof reason);
    report(feed, reason);
    remove_sessions(job, TRAJD_ERR_TIMEOUT, reason, now_ns);
    for (uint32_t r = 0; r < job->world; r++) {
        job->ranks[r].away_since_ns = now_ns;
        job->ranks[r].is_missed = false;
    }
    feed->core->stats.rank_timeouts++;
}

/* Drops a job that has kept other jobs waiting for too long. The limit is slow_after_ns with the
 * policy `slow: leave`, else rank_timeout for a job without sessions. */
static void expire_slow(struct job *job, uint64_t now_ns)
{
    const struct trajd_core_feed_options *options = &job->feed->options;
    const uint64_t limit_ns = options->slow_leaves ? options->slow_after_ns
                              : job->member_count  ? 0
                                                   : options->rank_timeout_ns;
    char reason[256];

    if (job->phase == JOB_NONE || !limit_ns || job->blocking_ns < limit_ns)
        return;
    snprintf(reason, sizeof reason,
             "job \"%s\" was removed from feed %s: it kept the other jobs waiting for %.0f s "
             "(fan_out: slow: "
             "leave)",
             job->name, options->name, (double)job->blocking_ns * 1e-9);
    report(job->feed, reason);
    remove_sessions(job, TRAJD_ERR_CLOSED, reason, now_ns);
    trajd_job_drop(job);
    job->feed->core->stats.slow_jobs++;
}

void trajd_feed_expire(struct trajd_core_feed *feed, uint64_t now_ns)
{
    for (uint32_t j = 0; j < feed->options.job_count; j++) {
        trajd_job_end_return(&feed->jobs[j]);
        tell_missing(&feed->jobs[j], now_ns);
        expire_ranks(&feed->jobs[j], now_ns);
        expire_slow(&feed->jobs[j], now_ns);
    }
}
