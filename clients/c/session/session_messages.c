/* Handles the daemon's messages about the session itself: WELCOME, ERROR, GOAWAY and the
 * answers to questions. */
#include <stdlib.h>
#include <string.h>

#include "clients/c/session/session.h"

#define DEFAULT_SILENCE_NS (10000 * UINT64_C(1000000))
#define BUSY_RETRY_NS (20 * UINT64_C(1000000))
#define WAIT_RETRY_NS (100 * UINT64_C(1000000))
#define WAIT_MARGIN_NS (1000 * UINT64_C(1000000))

/* ---- WELCOME, ERROR ---- */

static void handle_welcome(struct trajd_client *client, const struct trajd_wire_welcome *welcome)
{
    if (client->session.is_resuming && welcome->resumed) {
        client->session.is_resuming = false;
        client->query.request = 0; /* it may be lost with the connection */
        trajd_carried_report_done(client);
        trajd_session_resend_open(client);
        return;
    }
    if (!client->session.is_resuming && client->session.phase != TRAJD_PHASE_HELLO)
        return; /* a second reply, to a repeated HELLO */
    if (client->session.is_resuming) {
        trajd_session_end(client);
        /* the daemon no longer knows the session: start a new one, where `reconnect` allows it */
        return;
    }
    /* a local daemon that lives writes to the memory of a session that has ended */
    if (!client->link.remote && client->session.instance == welcome->instance)
        trajd_carried_drop_batches(client);
    client->session.instance = welcome->instance;
    client->session.id = welcome->session;
    memcpy(client->session.token, welcome->token, sizeof client->session.token);
    client->link.silence_timeout_ns =
        welcome->silence_ms > 0 ? welcome->silence_ms * UINT64_C(1000000) : DEFAULT_SILENCE_NS;
    if (client->link.remote && client->link.silence_timeout_ns / 4 < client->session.ping_ns)
        client->session.ping_ns = client->link.silence_timeout_ns / 4;
    client->session.phase = TRAJD_PHASE_GREETING;
    client->session.retry_at_ns = 0;
}

static bool is_about_gpu(const struct trajd_client *client, const struct trajd_error *error)
{
    return client->open.terms.gpu && client->open.terms.gpu[0] != '\0' &&
           !client->open.gpu_refused &&
           (error->status == TRAJD_ERR_UNSUPPORTED || error->status == TRAJD_ERR_MEMORY ||
            error->status == TRAJD_ERR_DEVICE);
}

/* BUSY: other workers have not seen the end of their epoch, or have not reconnected yet; with
 * wait_ms, the daemon holds the OPEN back for so long. CLOSED: the daemon is about to end, and with
 * `reconnect` the client waits for its return. */
static void handle_open_error(struct trajd_client *client, const struct trajd_error *error,
                              uint32_t wait_ms)
{
    const uint64_t now_ns = trajd_client_now_ns();
    client->open.request = 0;
    client->feed.mapping = NULL;
    trajd_session_return_queue(client);
    client->session.phase = TRAJD_PHASE_READY;
    if (is_about_gpu(client, error)) {
        trajd_session_fall_back_to_host(client, error);
    } else if (error->status == TRAJD_ERR_BUSY ||
               (error->status == TRAJD_ERR_CLOSED && client->reconnect)) {
        client->session.retry_at_ns = now_ns + (wait_ms > 0 ? WAIT_RETRY_NS : BUSY_RETRY_NS);
        client->open.wait_until_ns =
            wait_ms > 0 ? now_ns + wait_ms * UINT64_C(1000000) + WAIT_MARGIN_NS : 0;
        client->session.failure = *error;
    } else if (client->open.is_fresh) {
        client->open.is_refused = true;
        client->session.failure = *error;
    } else {
        trajd_session_fail(client, error);
    }
}

/* Returns true for an ERROR about the feed that was open before the OPEN under way. The daemon
 * closes a session's feed with these statuses and without a request number. An ERROR about the OPEN
 * itself has the number of that request. */
static bool is_of_previous_feed(const struct trajd_client *client,
                                const struct trajd_wire_error *message)
{
    return client->session.phase == TRAJD_PHASE_OPENING && message->request == 0 &&
           (message->status == TRAJD_ERR_DEVICE || message->status == TRAJD_ERR_CLOSED ||
            message->status == TRAJD_ERR_TIMEOUT);
}

static bool is_awaited(const struct trajd_client *client, uint64_t request)
{
    return request != 0 && request == client->query.request && !client->query.is_answered;
}

/* A daemon that ends may have closed the feed before it reads a query about it. With `reconnect`
 * the next daemon answers. */
static void fail_query(struct trajd_client *client, const struct trajd_error *error)
{
    if (client->session.is_ending && client->reconnect)
        return;
    client->query.error = *error;
    client->query.is_answered = true;
}

static void handle_error(struct trajd_client *client, const struct trajd_wire_error *message)
{
    struct trajd_error error = {.status = message->status};
    trajd_wire_text_copy(message->message, error.message, sizeof error.message);
    if (is_awaited(client, message->request)) {
        fail_query(client, &error);
    } else if (message->request != 0 && message->request == client->open.request) {
        handle_open_error(client, &error, message->wait_ms);
    } else if (is_of_previous_feed(client, message)) {
        return;
    } else if (message->request == 0 && error.status == TRAJD_ERR_NOT_FOUND &&
               trajd_link_is_attached(&client->link) &&
               client->session.phase >= TRAJD_PHASE_READY) {
        /* The connection was cut, and ZeroMQ made a new one. Every message sent on the old one may
         * get this ERROR; one HELLO is enough. */
        if (!client->session.is_resuming)
            client->session.hello_sent_ns = 0;
        client->session.is_resuming = true;
    } else if (message->request == 0 && error.status == TRAJD_ERR_DEVICE &&
               client->feed.is_granted && is_about_gpu(client, &error)) {
        /* the daemon lost these batches; the memory of batches that the caller holds stays
         * readable */
        trajd_session_clear_batches(client);
        client->feed.mapping = NULL;
        client->query.request = 0; /* if it is about this feed, its answer would be an error */
        client->open.is_fresh = false;
        trajd_session_fall_back_to_host(client, &error);
    } else if (message->request == 0 && error.status == TRAJD_ERR_CLOSED &&
               client->session.is_ending && client->reconnect) {
        return; /* the daemon ends, and its feeds end first: wait for its return */
    } else if (message->request == 0) {
        /* TIMEOUT of next() means that no batch came in time */
        if (error.status == TRAJD_ERR_TIMEOUT)
            error.status = TRAJD_ERR_CLOSED;
        trajd_session_fail(client, &error);
    }
}

/* ---- the rest ---- */

static void handle_answer(struct trajd_client *client, uint64_t request, const void *data,
                          size_t size_bytes)
{
    struct trajd_client_query *query = &client->query;
    if (!is_awaited(client, request))
        return;
    query->is_answered = true;
    query->size_bytes = size_bytes;
    query->answer = calloc(1, size_bytes + 1);
    if (!query->answer)
        trajd_error_set(&query->error, TRAJD_ERR_MEMORY, 0,
                        "out of memory for the daemon's answer");
    else if (size_bytes > 0)
        memcpy(query->answer, data, size_bytes);
}

static void handle_goaway(struct trajd_client *client)
{
    client->session.is_ending = true;
    if (client->reconnect)
        return;
    pthread_mutex_lock(&client->state_lock);
    client->is_over = true;
    trajd_client_update_poll_fd(client);
    pthread_mutex_unlock(&client->state_lock);
}

static void handle_notice(struct trajd_client *client, const struct trajd_wire_notice *notice)
{
    trajd_wire_text_copy(notice->message, client->notice.text, sizeof client->notice.text);
    client->notice.wait_ms = notice->wait_ms;
    client->notice.is_new = client->notice.callback != NULL;
}

void trajd_session_handle(struct trajd_client *client, const void *frame, size_t size)
{
    struct trajd_wire_message message;
    struct trajd_error error;
    uint64_t request;
    enum trajd_status status =
        trajd_wire_decode(frame, size, client->session.tensors, &message, &request, &error);
    if (status == TRAJD_ERR_UNSUPPORTED)
        trajd_session_fail(client, &error);
    if (status || (client->link.has_payload && message.op != TRAJD_WIRE_BATCH))
        return; /* an op of a later version, or a frame that no daemon sends */
    if (message.op == TRAJD_WIRE_BATCH)
        trajd_session_handle_batch(client, &message.batch);
    else if (message.op == TRAJD_WIRE_EPOCH_END)
        trajd_session_handle_epoch_end(client, &message.epoch_end);
    else if (message.op == TRAJD_WIRE_WELCOME)
        handle_welcome(client, &message.welcome);
    else if (message.op == TRAJD_WIRE_OPENED)
        trajd_session_handle_opened(client, &message.opened);
    else if (message.op == TRAJD_WIRE_ERROR)
        handle_error(client, &message.error);
    else if (message.op == TRAJD_WIRE_GOAWAY)
        handle_goaway(client);
    else if (message.op == TRAJD_WIRE_STATE)
        handle_answer(client, message.state.request, message.state.status.data,
                      message.state.status.size);
    else if (message.op == TRAJD_WIRE_NOTICE)
        handle_notice(client, &message.notice);
    else if (message.op == TRAJD_WIRE_CHECKPOINTED)
        handle_answer(client, message.checkpointed.request, message.checkpointed.token.data,
                      message.checkpointed.token.size);
}
