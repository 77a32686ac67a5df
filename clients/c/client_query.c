/* STATUS and ASK: one query at a time, answered by a JSON document. */
#include "clients/c/session/session.h"

#define ANSWER_TIMEOUT_MS 10000u

/* An ASK about the open feed waits until the feed is open again after a reconnect, because its
 * number changes. */
static bool can_send(const struct trajd_client *client, const struct trajd_wire_message *message)
{
    const bool of_feed = message->op == TRAJD_WIRE_ASK && message->ask.feed_id == 0;
    return !client->session.is_resuming && trajd_link_is_attached(&client->link) &&
           client->session.phase >= (of_feed ? TRAJD_PHASE_MAPPING : TRAJD_PHASE_READY);
}

static void send_query(struct trajd_client *client, const struct trajd_wire_message *query)
{
    struct trajd_wire_message message = *query;
    if (message.op == TRAJD_WIRE_ASK) {
        message.ask.request = client->query.request;
        message.ask.feed_id = message.ask.feed_id > 0 ? message.ask.feed_id : client->feed.id;
    } else {
        message.status.request = client->query.request;
    }
    trajd_session_send(client, &message);
}

/* The query is sent once in each session: after a reconnect the daemon does not know it. */
static enum trajd_status await_answer(struct trajd_client *client,
                                      const struct trajd_wire_message *query, uint64_t deadline_ns,
                                      struct trajd_error *error)
{
    uint64_t sent_incarnation = 0;
    while (!client->query.is_answered) {
        if (client->session.phase == TRAJD_PHASE_FAILED && !trajd_link_is_attached(&client->link)) {
            *error = client->session.failure;
            return error->status;
        }
        if (sent_incarnation != client->incarnation && can_send(client, query)) {
            sent_incarnation = client->incarnation;
            send_query(client, query);
        }
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "interrupted");
        if (trajd_client_now_ns() >= deadline_ns)
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                                   "the daemon at %s did not answer in time", client->endpoint);
        trajd_session_wait(client, deadline_ns);
    }
    if (!client->query.json)
        *error = client->query.error;
    return !client->query.json ? error->status : TRAJD_OK;
}

static enum trajd_status run_query(struct trajd_client *client,
                                   const struct trajd_wire_message *query, uint32_t timeout_ms,
                                   char **json, struct trajd_error *error)
{
    const uint32_t wait_ms = timeout_ms > 0 ? timeout_ms : ANSWER_TIMEOUT_MS;
    const uint64_t deadline_ns = trajd_client_deadline_ns(wait_ms);
    client->query.request = ++client->session.last_request;
    client->query.is_answered = false;
    trajd_session_begin_call(client);
    enum trajd_status status = await_answer(client, query, deadline_ns, error);
    *json = client->query.json;
    client->query.json = NULL;
    client->query.request = 0;
    return status;
}

enum trajd_status trajd_client_status(struct trajd_client *client, uint32_t timeout_ms, char **json,
                                      struct trajd_error *error)
{
    const struct trajd_wire_message query = {.op = TRAJD_WIRE_STATUS};
    struct trajd_error own;
    error = error ? error : &own;
    *json = NULL;
    enum trajd_status status = trajd_client_check_process(client, error);
    if (status)
        return status;
    pthread_mutex_lock(&client->io_lock);
    status = run_query(client, &query, timeout_ms, json, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}

static enum trajd_status check_question(const struct trajd_client *client,
                                        const struct trajd_question *query,
                                        struct trajd_error *error)
{
    if (!query->what || query->what[0] == '\0')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ask: `what` is missing: name a question");
    enum trajd_status status =
        trajd_client_check_text("ask", query->what, TRAJD_WIRE_MAX_NAME, error);
    if (!status)
        status = trajd_client_check_text("ask: name", query->name, TRAJD_WIRE_MAX_NAME, error);
    if (status)
        return status;
    if (query->feed_id == 0 && !client->feed.is_granted)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ask: open a feed first, or give its number (feed_id)");
    return TRAJD_OK;
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
    error = error ? error : &own;
    *json = NULL;
    enum trajd_status status = trajd_client_check_process(client, error);
    if (status)
        return status;
    pthread_mutex_lock(&client->io_lock);
    status = check_question(client, query, error);
    if (!status)
        status = run_query(client, &message, timeout_ms, json, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}
