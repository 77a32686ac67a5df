/* Sessions: HELLO, resuming, the end; and the one way out for messages. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"

struct session *trajd_session_find(const struct trajd_core *core, uint64_t id)
{
    struct session *session = &core->sessions[id % core->options.max_sessions];

    return id && session->id == id ? session : NULL;
}

void trajd_core_send(struct session *session, const struct trajd_core *core,
                     const struct trajd_wire_message *message)
{
    core->options.send(core->options.context, session->id, session->user, message);
}

void trajd_session_refuse(struct trajd_core *core, struct session *session, uint64_t request,
                          enum trajd_status status, const char *format, ...)
{
    struct trajd_error error = {.status = status};
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error.message, sizeof error.message, format, arguments);
    va_end(arguments);
    trajd_core_send_error(core, session->id, request, &error);
}

void trajd_core_send_error(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           const struct trajd_error *error)
{
    struct session *session = trajd_session_find(core, session_id);
    struct trajd_wire_message message;

    if (!session)
        return;
    message.op = TRAJD_WIRE_ERROR;
    message.error =
        (struct trajd_wire_error){request, error->status, trajd_wire_text(error->message)};
    trajd_core_send(session, core, &message);
}

void trajd_session_send_away(struct trajd_core *core, struct session *session,
                             enum trajd_status status, const char *reason)
{
    trajd_error_set(&session->sent_away, status, 0, "%s", reason);
    trajd_core_send_error(core, session->id, 0, &session->sent_away);
}

uint64_t trajd_core_find_token(const struct trajd_core *core,
                               const uint8_t token[TRAJD_WIRE_TOKEN_SIZE])
{
    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].id &&
            memcmp(core->sessions[i].token, token, TRAJD_WIRE_TOKEN_SIZE) == 0)
            return core->sessions[i].id;
    return 0;
}

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
                               "%u sessions are here already (limits.sessions)",
                               core->options.max_sessions);
    session->user = user;
    session->pid = hello->pid;
    trajd_wire_text_copy(hello->client, session->client, sizeof session->client);
    session->last_message_ns = now_ns;
    *session_id = session->id;
    return TRAJD_OK;
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
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_account(feed, now_ns);
    if (session->feed)
        trajd_job_send_opened(session);
    trajd_leases_resume(core, session, hello);
    if (session->sent_away.status)
        trajd_core_send_error(core, session->id, 0, &session->sent_away);
    if (session->feed && session->is_over)
        trajd_job_send_end(session);
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_advance(feed);
}

/* Read once per lease that is gone: does anybody have to do work again? */
static bool has_undone(const struct trajd_core *core, const struct session *session)
{
    for (const struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        for (uint32_t i = 0; i < feed->ready.count; i++) {
            const struct slot *slot = &feed->slots[feed->ready.slots[i]];
            for (uint32_t j = 0; j < feed->options.job_count; j++)
                for (uint32_t p = 0; p < slot->shares[j].part_count; p++)
                    if (slot->shares[j].parts[p].state == PART_LEASED &&
                        slot->shares[j].parts[p].session == session->id)
                        return true;
        }
    return false;
}

static void end_session(struct trajd_core *core, struct session *session, bool in_good_order,
                        uint64_t now_ns)
{
    struct job *job = session->job;

    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_account(feed, now_ns);
    core->stats.dead_sessions += session->held && has_undone(core, session);
    trajd_leases_void(core, session);
    if (job)
        trajd_job_leave(session, now_ns);
    if (job && !job->member_count)
        job->said_bye = in_good_order;
    session->id = 0;
    core->session_count--;
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next) {
        trajd_feed_reap(feed);
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

void trajd_core_checkpoint(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);
    uint8_t token[TRAJD_CHECKPOINT_TOKEN_MAX_BYTES];
    struct trajd_wire_message message;

    if (!session)
        return;
    session->last_message_ns = now_ns;
    if (!session->feed || !session->joined) {
        trajd_session_refuse(core, session, request, TRAJD_ERR_ARGUMENT,
                             "checkpoint: no epoch of a feed is open in this session");
        return;
    }
    if (session->job->mode != TRAJD_WIRE_QUEUE) {
        trajd_session_refuse(core, session, request, TRAJD_ERR_ARGUMENT,
                             "checkpoint: of a queue job; under shard epoch and next window are "
                             "all there is to keep");
        return;
    }
    trajd_job_record(session->job, &core->recorded);
    message.op = TRAJD_WIRE_CHECKPOINTED;
    message.checkpointed.request = request;
    message.checkpointed.token.data = token;
    message.checkpointed.token.size =
        (uint32_t)trajd_checkpoint_token_encode(&core->recorded, token);
    trajd_core_send(session, core, &message);
}

void trajd_core_touch(struct trajd_core *core, uint64_t session_id, uint64_t now_ns)
{
    struct session *session = trajd_session_find(core, session_id);

    if (session)
        session->last_message_ns = now_ns;
}

void trajd_core_goaway(struct trajd_core *core, const char *reason, uint64_t now_ns)
{
    struct trajd_wire_message message;

    if (core->going_away)
        return;
    for (struct trajd_core_feed *feed = core->feeds; feed; feed = feed->next)
        trajd_feed_account(feed, now_ns);
    core->going_away = true;
    message.op = TRAJD_WIRE_GOAWAY;
    message.goaway.reason = trajd_wire_text(reason);
    for (uint32_t i = 0; i < core->options.max_sessions; i++)
        if (core->sessions[i].id)
            trajd_core_send(&core->sessions[i], core, &message);
}
