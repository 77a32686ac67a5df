/* STATUS, ASK and CHECKPOINT: one query at a time. An answer that is lost with the session is asked
 * for again in the next one: no query changes anything, so that asking twice does no harm. */
#include <stdlib.h>

#include "clients/c/session/session.h"

#define ANSWER_TIMEOUT_MS 10000u
#define CHECKPOINT_TIMEOUT_MS 5000u

static bool is_about_open_feed(const struct trajd_wire_message *query)
{
    return query->op == TRAJD_WIRE_CHECKPOINT ||
           (query->op == TRAJD_WIRE_ASK && query->ask.feed_id == 0);
}

/* A query about the open feed waits until the feed is open again after a reconnect: its number
 * changes, and a checkpoint needs the DONEs that the OPEN reports. */
static bool can_send(const struct trajd_client *client, const struct trajd_wire_message *query)
{
    return trajd_session_can_ack(client) &&
           (!is_about_open_feed(query) ||
            (client->feed.id > 0 && client->session.phase >= TRAJD_PHASE_MAPPING));
}

static void send_query(struct trajd_client *client, const struct trajd_wire_message *query)
{
    struct trajd_wire_message message = *query;
    client->query.request = ++client->session.last_request;
    if (message.op == TRAJD_WIRE_ASK) {
        message.ask.request = client->query.request;
        message.ask.feed_id = message.ask.feed_id > 0 ? message.ask.feed_id : client->feed.id;
    } else if (message.op == TRAJD_WIRE_CHECKPOINT) {
        message.checkpoint.request = client->query.request;
        trajd_session_send_acks(client); /* the DONEs of this worker go first */
    } else {
        message.status.request = client->query.request;
    }
    trajd_session_send(client, &message);
}

/* Returns true if no daemon will answer: the session has failed, or its feed, which the query is
 * about. */
static bool has_failed(const struct trajd_client *client, const struct trajd_wire_message *query)
{
    return client->session.phase == TRAJD_PHASE_FAILED &&
           (!trajd_link_is_attached(&client->link) || query->op == TRAJD_WIRE_CHECKPOINT ||
            (is_about_open_feed(query) && client->feed.id == 0));
}

static enum trajd_status await_answer(struct trajd_client *client,
                                      const struct trajd_wire_message *query, const char *call,
                                      uint32_t timeout_ms, struct trajd_error *error)
{
    const uint64_t deadline_ns = trajd_client_deadline_ns(timeout_ms);
    while (!client->query.is_answered) {
        if (has_failed(client, query)) {
            *error = client->session.failure;
            return error->status;
        }
        if (client->query.request == 0 && can_send(client, query))
            send_query(client, query);
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "%s: interrupted", call);
        if (trajd_client_now_ns() >= deadline_ns)
            return trajd_session_time_out(client, call, timeout_ms, error);
        trajd_session_wait(client, deadline_ns);
    }
    if (!client->query.answer)
        *error = client->query.error;
    return !client->query.answer ? error->status : TRAJD_OK;
}

static enum trajd_status check_question(const struct trajd_question *query,
                                        struct trajd_error *error)
{
    if (!query->what || query->what[0] == '\0')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ask: `what` is missing: name a question");
    enum trajd_status status =
        trajd_client_check_text("ask", query->what, TRAJD_WIRE_MAX_NAME, error);
    return status ? status
                  : trajd_client_check_text("ask: name", query->name, TRAJD_WIRE_MAX_NAME, error);
}

static enum trajd_status check_feed(const struct trajd_client *client,
                                    const struct trajd_wire_message *query,
                                    struct trajd_error *error)
{
    if (query->op == TRAJD_WIRE_ASK && query->ask.feed_id == 0 && !client->feed.is_granted)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ask: open a feed first, or give its number (feed_id)");
    if (query->op == TRAJD_WIRE_CHECKPOINT && client->session.phase != TRAJD_PHASE_FAILED &&
        !client->feed.is_granted)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "checkpoint: open a feed first");
    return TRAJD_OK;
}

/* The caller frees *answer, which ends with a 0 byte that *size_bytes does not count. `question` is
 * that of an ASK. */
static enum trajd_status run_query(struct trajd_client *client,
                                   const struct trajd_wire_message *query,
                                   const struct trajd_question *question, const char *call,
                                   uint32_t timeout_ms, char **answer, size_t *size_bytes,
                                   struct trajd_error *error)
{
    *answer = NULL;
    *size_bytes = 0;
    enum trajd_status status = trajd_client_check_process(client, error);
    if (!status && question)
        status = check_question(question, error);
    if (status)
        return status;
    pthread_mutex_lock(&client->io_lock);
    status = check_feed(client, query, error);
    if (!status) {
        client->query = (struct trajd_client_query){0};
        trajd_session_begin_call(client);
        status = await_answer(client, query, call, timeout_ms, error);
        if (status) {
            free(client->query.answer);
        } else {
            *answer = client->query.answer;
            *size_bytes = client->query.size_bytes;
        }
        client->query = (struct trajd_client_query){0};
    }
    pthread_mutex_unlock(&client->io_lock);
    return status;
}

enum trajd_status trajd_client_status(struct trajd_client *client, uint32_t timeout_ms, char **json,
                                      struct trajd_error *error)
{
    const struct trajd_wire_message query = {.op = TRAJD_WIRE_STATUS};
    struct trajd_error own;
    size_t size_bytes;
    return run_query(client, &query, NULL, "status",
                     timeout_ms > 0 ? timeout_ms : ANSWER_TIMEOUT_MS, json, &size_bytes,
                     error ? error : &own);
}

enum trajd_status trajd_client_ask(struct trajd_client *client, const struct trajd_question *query,
                                   uint32_t timeout_ms, char **json, struct trajd_error *error)
{
    const struct trajd_wire_message message = {.op = TRAJD_WIRE_ASK,
                                               .ask = {.feed_id = query->feed_id,
                                                       .what = trajd_wire_text(query->what),
                                                       .name = trajd_wire_text(query->name),
                                                       .window = query->window,
                                                       .first = query->first,
                                                       .count = query->count,
                                                       .pass = query->pass}};
    struct trajd_error own;
    size_t size_bytes;
    return run_query(client, &message, query, "ask",
                     timeout_ms > 0 ? timeout_ms : ANSWER_TIMEOUT_MS, json, &size_bytes,
                     error ? error : &own);
}

enum trajd_status trajd_client_checkpoint(struct trajd_client *client, uint32_t timeout_ms,
                                          void **token, size_t *size_bytes,
                                          struct trajd_error *error)
{
    const struct trajd_wire_message query = {.op = TRAJD_WIRE_CHECKPOINT};
    struct trajd_error own;
    char *answer;
    enum trajd_status status = run_query(client, &query, NULL, "checkpoint",
                                         timeout_ms > 0 ? timeout_ms : CHECKPOINT_TIMEOUT_MS,
                                         &answer, size_bytes, error ? error : &own);
    *token = answer;
    return status;
}
