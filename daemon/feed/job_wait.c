/* Holds back the fresh OPEN of a queue job whose epoch an earlier daemon left unfinished. Workers
 * of that run may return, and the OPEN would end their epoch. */
#include <stdio.h>

#include "daemon/feed/feed_internal.h"

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

/* Returns since when OPENs of that job are held back. */
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
    session->wait_until_ns = session->wait_since_ns + feed->options.rejoin_wait_ns;
    if (feed->accounted_ns < session->wait_until_ns) {
        send_busy(feed, session, open, state);
        return true;
    }
    snprintf(
        feed->core->report, sizeof feed->core->report,
        "job \"%s\" of feed %s begins epoch %llu anew: %llu of %llu batches of epoch %llu were "
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
