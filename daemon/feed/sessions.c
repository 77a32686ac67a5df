/* Makes sessions and sends them WELCOME, CHECKPOINTED and ERROR. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/feed/feed_internal.h"
#include "daemon/feed/checkpoint_token.h"

void trajd_core_send_error(struct trajd_core *core, uint64_t session_id, uint64_t request,
                           const struct trajd_error *error)
{
    struct session *session = trajd_session_find(core, session_id);
    struct trajd_wire_message message;

    if (!session)
        return;
    message.op = TRAJD_WIRE_ERROR;
    message.error = (struct trajd_wire_error){
        .request = request, .status = error->status, .message = trajd_wire_text(error->message)};
    trajd_core_send(session, core, &message);
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

void trajd_session_send_removal(struct trajd_core *core, struct session *session,
                                enum trajd_status status, const char *reason)
{
    trajd_error_set(&session->removal, status, 0, "%s", reason);
    trajd_core_send_error(core, session->id, 0, &session->removal);
}

struct session *trajd_session_make(struct trajd_core *core,
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

void trajd_session_send_welcome(const struct trajd_core *core, struct session *session,
                                bool resumed)
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

void trajd_session_send_checkpoint(struct trajd_core *core, struct session *session,
                                   uint64_t request)
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
