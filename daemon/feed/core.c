/* The public calls that change the state. Most of them account the stall time up to now, do their
 * work, and then let the feeds advance as far as they can. */
#include <stdlib.h>
#include <string.h>

#include "daemon/feed/checkpoint_token.h"
#include "daemon/feed/feed_internal.h"

enum trajd_status trajd_core_create(const struct trajd_core_options *options,
                                    struct trajd_core **core, struct trajd_error *error)
{
    struct trajd_core *made;

    if (!options->max_sessions || !options->send || !options->wake)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "core: max_sessions, send and wake must be set");
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

void trajd_core_destroy(struct trajd_core **core)
{
    struct trajd_core *closing = *core;

    *core = NULL;
    if (!closing)
        return;
    while (closing->feeds) {
        struct trajd_core_feed *feed = closing->feeds;
        closing->feeds = feed->next;
        trajd_feed_free(feed);
    }
    free(closing->sessions);
    free(closing);
}

static void account_all(struct trajd_core *core, uint64_t now_ns)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_account(feed, now_ns);
}

static void advance_all(struct trajd_core *core)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_advance(feed);
}

/* ---- production ---- */

static void explain_wait(struct session *session, const struct trajd_fill *fill, uint64_t work_ns)
{
    struct trajd_core_feed *feed = session->feed;
    const uint64_t during_ns = session->waiting_ns < work_ns ? session->waiting_ns : work_ns;
    uint64_t rest_ns = session->waiting_ns;

    for (uint32_t w = 0; w < TRAJD_WORK_COUNT && work_ns; w++) {
        const uint64_t share_ns =
            (uint64_t)((double)during_ns * (double)fill->work_ns[w] / (double)work_ns);
        session->waited_ns[w] += share_ns;
        feed->waited_ns[w] += share_ns;
        rest_ns -= share_ns < rest_ns ? share_ns : rest_ns;
    }
    session->waited_ns[TRAJD_WAIT_OTHER] += rest_ns;
    feed->waited_ns[TRAJD_WAIT_OTHER] += rest_ns;
    session->waiting_ns = 0;
}

/* Divides the time that sessions have waited for a batch among the work that the batch took. */
static void explain_waits(struct trajd_core_feed *feed, const struct trajd_fill *fill)
{
    uint64_t work_ns = 0;

    for (uint32_t w = 0; w < TRAJD_WORK_COUNT; w++)
        work_ns += fill->work_ns[w];
    for (uint32_t i = 0; i < feed->member_count; i++)
        if (feed->members[i]->waiting_ns)
            explain_wait(feed->members[i], fill, work_ns);
}

bool trajd_core_publish(struct trajd_core_feed *feed, const struct trajd_fill *fill,
                        const struct trajd_error *failure, uint64_t now_ns)
{
    trajd_feed_account(feed, now_ns);
    explain_waits(feed, fill);
    if (!trajd_production_publish(feed, fill, failure, now_ns))
        return false;
    trajd_feed_advance(feed);
    return true;
}

/* ---- sessions ---- */

/* Returns NULL if there are max_sessions already. */
static struct session *make_session(struct trajd_core *core,
                                    const uint8_t token[TRAJD_WIRE_TOKEN_SIZE])
{
    for (uint32_t i = 0; i < core->options.max_sessions; i++) {
        struct session *session = &core->sessions[i];
        if (session->id)
            continue;
        *session = (struct session){.id = ++core->serial * core->options.max_sessions + i};
        memcpy(session->token, token, TRAJD_WIRE_TOKEN_SIZE);
        core->session_count++;
        return session;
    }
    return NULL;
}

static void send_welcome(const struct trajd_core *core, struct session *session, bool resumed)
{
    struct trajd_wire_message message;
    struct trajd_wire_welcome *welcome = &message.welcome;

    message.op = TRAJD_WIRE_WELCOME;
    *welcome = (struct trajd_wire_welcome){
        .minor = TRAJD_WIRE_MINOR,
        .instance = core->options.instance_id,
        .session = session->id,
        .resumed = resumed,
        .version = trajd_wire_text(core->options.version),
    };
    memcpy(welcome->token, session->token, TRAJD_WIRE_TOKEN_SIZE);
    for (const char *const *name = core->options.feed_names; name && *name; name++)
        if (welcome->feed_count < TRAJD_WIRE_MAX_FEEDS)
            welcome->feeds[welcome->feed_count++] = trajd_wire_text(*name);
    trajd_core_send(session, core, &message);
}

enum trajd_status trajd_core_hello(struct trajd_core *core, const struct trajd_wire_hello *hello,
                                   const uint8_t fresh_token[TRAJD_WIRE_TOKEN_SIZE], void *user,
                                   uint64_t now_ns, uint64_t *session_id, bool *resumed,
                                   void **replaced, struct trajd_error *error)
{
    struct session *session = NULL;

    *replaced = NULL;
    if (hello->has_token && hello->instance == core->options.instance_id)
        session = trajd_session_find(core, trajd_core_find_token(core, hello->token));
    *resumed = session != NULL;
    if (session) {
        *replaced = session->user;
        core->stats.resumed_sessions++;
    } else {
        session = make_session(core, fresh_token);
    }
    if (!session)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "all %u sessions are in use; raise limits.sessions to allow more",
                               core->options.max_sessions);
    session->user = user;
    session->pid = hello->pid;
    trajd_wire_text_copy(hello->client, session->client, sizeof session->client);
    session->last_message_ns = now_ns;
    *session_id = session->id;
    return TRAJD_OK;
}

void trajd_core_set_owner(struct trajd_core *core, uint64_t session_id, uint64_t owner,
                          bool maps_rings)
{
    struct session *session = trajd_session_find(core, session_id);

    if (!session)
        return;
    session->owner = owner;
    session->maps_rings = maps_rings;
}

void trajd_core_welcome(struct trajd_core *core, uint64_t session_id,
                        const struct trajd_wire_hello *hello, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);
    bool resumed;

    if (!session)
        return;
    resumed = hello->has_token && hello->instance == core->options.instance_id &&
              memcmp(hello->token, session->token, TRAJD_WIRE_TOKEN_SIZE) == 0;
    send_welcome(core, session, resumed);
    if (!resumed)
        return;
    account_all(core, now_ns);
    if (session->feed)
        trajd_session_send_opened(session);
    trajd_leases_resume(core, session, hello);
    if (session->removal.status)
        trajd_core_send_error(core, session->id, 0, &session->removal);
    if (session->feed && session->is_over)
        trajd_session_send_end(session);
    advance_all(core);
}

static void end_session(struct trajd_core *core, struct session *session, bool sent_bye,
                        uint64_t now_ns)
{
    struct job *job = session->job;

    account_all(core, now_ns);
    trajd_rank_tell_gone(session, sent_bye);
    core->stats.dead_sessions +=
        !sent_bye && (session->carried || trajd_leases_has_undone(core, session));
    core->stats.handed_again += sent_bye ? 0 : session->carried;
    trajd_leases_void(core, session, !sent_bye);
    if (job)
        trajd_session_leave(session, now_ns);
    if (job && !job->member_count)
        job->sent_bye = sent_bye;
    session->id = 0;
    core->session_count--;
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next) {
        trajd_feed_drop_idle_jobs(feed);
        trajd_feed_advance(feed);
    }
}

void trajd_core_end_session(struct trajd_core *core, uint64_t session_id, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (session)
        end_session(core, session, false, now_ns);
}

void trajd_core_bye(struct trajd_core *core, uint64_t session_id, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (session)
        end_session(core, session, true, now_ns);
}

/* ---- messages of sessions ---- */

static bool is_family(const struct trajd_core_feed *a, const struct trajd_core_feed *b)
{
    return strcmp(trajd_core_family(a), trajd_core_family(b)) == 0;
}

static bool has_others(const struct trajd_core_feed *feed, const struct session *session,
                       const struct trajd_wire_open *open)
{
    const struct job *job = trajd_job_find(feed, open->job);

    return job && trajd_job_count_others(job, session);
}

bool trajd_core_has_job(const struct trajd_core *core, uint64_t session_id,
                        const struct trajd_wire_open *open, const struct trajd_core_feed *feed)
{
    const struct session *session = trajd_session_find(core, session_id);

    for (const struct trajd_core_feed *other = core->feeds; other; other = other->next)
        if (is_family(other, feed) && has_others(other, session, open))
            return true;
    return false;
}

bool trajd_core_has_unfinished(const struct trajd_core_feed *feed)
{
    return feed->options.has_unfinished;
}

struct trajd_core_feed *trajd_core_find_place(struct trajd_core *core, uint64_t session_id,
                                              const struct trajd_wire_open *open,
                                              struct trajd_core_feed *feed)
{
    const struct session *session = trajd_session_find(core, session_id);

    for (struct trajd_core_feed *other = core->feeds; open->unfinished && other;
         other = other->next)
        if (!other->options.gpu.size && !other->options.is_hidden && !is_family(other, feed) &&
            trajd_core_is_same_feed(other, feed) && has_others(other, session, open))
            return other;
    return feed;
}

/* Takes the session off its feed. An OPEN does that even if it is refused later: the next epoch can
 * begin only when all sessions have left the current one. */
static void leave(struct session *session, uint64_t now_ns)
{
    struct trajd_core_feed *previous = session->feed;

    if (!previous)
        return;
    trajd_session_leave(session, now_ns);
    trajd_feed_advance(previous);
}

enum trajd_status trajd_core_open(struct trajd_core *core, uint64_t session_id,
                                  const struct trajd_wire_open *open, struct trajd_core_feed *feed,
                                  uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);
    struct trajd_core_feed *previous;
    enum trajd_status status;

    if (!session)
        return TRAJD_ERR_CLOSED;
    session->last_message_ns = now_ns;
    session->removal.status = TRAJD_OK;
    previous = session->feed;
    if (previous == feed && trajd_open_is_repeated(session, open, feed) && !core->going_away) {
        trajd_session_send_opened(session);
        return TRAJD_OK;
    }
    trajd_feed_account(feed, now_ns);
    leave(session, now_ns);
    status = trajd_job_open(feed, session, open);
    if (status)
        return status;
    trajd_rank_tell_back(session);
    if (previous)
        trajd_feed_drop_idle_jobs(previous);
    trajd_feed_drop_idle_jobs(feed);
    trajd_feed_advance(feed);
    trajd_feed_wake(feed);
    return TRAJD_OK;
}

void trajd_core_refuse_open(struct trajd_core *core, uint64_t session_id, uint64_t request,
                            const struct trajd_error *error, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);
    struct trajd_core_feed *previous;

    if (!session)
        return;
    previous = session->feed;
    leave(session, now_ns);
    if (previous)
        trajd_feed_drop_idle_jobs(previous);
    trajd_core_send_error(core, session_id, request, error);
}

void trajd_core_ack(struct trajd_core *core, uint64_t session_id, const struct trajd_wire_ack *ack,
                    uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (!session) {
        core->stats.late_acks += ack->done.count + ack->released.count + ack->positions.count;
        return;
    }
    session->last_message_ns = now_ns;
    account_all(core, now_ns);
    for (uint32_t i = 0; i < ack->done.count; i++)
        trajd_lease_ack_done(core, session, &ack->done.list[i]);
    for (uint32_t i = 0; i < ack->released.count; i++)
        trajd_lease_ack_released(core, session, &ack->released.list[i]);
    for (uint32_t i = 0; i < ack->positions.count; i++)
        core->stats.late_acks += !trajd_session_finish_carried(session, ack->positions.list[i]);
    advance_all(core);
}

/* Sends CHECKPOINTED or ERROR. */
static void send_checkpoint(struct trajd_core *core, struct session *session, uint64_t request)
{
    uint8_t token[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES];
    struct trajd_wire_message message;

    if (!session->feed || !session->joined) {
        trajd_session_refuse(core, session, request, TRAJD_ERR_ARGUMENT,
                             "checkpoint: this session has not opened an epoch of a feed");
        return;
    }
    if (session->job->mode != TRAJD_WIRE_QUEUE) {
        trajd_session_refuse(
            core, session, request, TRAJD_ERR_ARGUMENT,
            "checkpoint: only queue jobs have checkpoints; a shard job goes on from its "
            "epoch and its next window");
        return;
    }
    trajd_job_journal_state(session->job, &core->progress);
    message.op = TRAJD_WIRE_CHECKPOINTED;
    message.checkpointed.request = request;
    message.checkpointed.token.data = token;
    message.checkpointed.token.size =
        (uint32_t)trajd_checkpoint_token_encode(&core->progress, token);
    trajd_core_send(session, core, &message);
}

void trajd_core_checkpoint(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (!session)
        return;
    session->last_message_ns = now_ns;
    send_checkpoint(core, session, request);
}

void trajd_core_touch(struct trajd_core *core, uint64_t session_id, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (session)
        session->last_message_ns = now_ns;
}

/* ---- end and upkeep ---- */

void trajd_core_goaway(struct trajd_core *core, const char *reason, uint64_t now_ns)
{
    struct trajd_wire_message message;

    if (core->going_away)
        return;
    account_all(core, now_ns);
    core->going_away = true;
    message.op = TRAJD_WIRE_GOAWAY;
    message.goaway.reason = trajd_wire_text(reason);
    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].id)
            trajd_core_send(&core->sessions[i], core, &message);
}

void trajd_core_tick(struct trajd_core *core, uint64_t now_ns)
{
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next) {
        trajd_feed_account(feed, now_ns);
        if (!core->going_away) {
            trajd_feed_expire(feed, now_ns);
            trajd_feed_drop_idle_jobs(feed);
            trajd_feed_advance(feed);
            trajd_feed_wake(feed);
        }
        if (!feed->member_count && !feed->idle_since_ns)
            feed->idle_since_ns = now_ns;
        for (uint32_t j = 0; j < feed->options.job_count; j++)
            trajd_job_flush_journal(&feed->jobs[j]);
    }
}
