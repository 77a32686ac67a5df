/* STATUS and ASK: one question at a time, answered by a document. */
#include <stdlib.h>
#include <string.h>

#include "clients/c/client_internal.h"

#define ANSWER_TIMEOUT_MS 10000u

/* ASK of the open feed waits until that is open again after a reconnect: its number is another one
 * then. */
static bool may_say(const struct trajd_client *client, const struct trajd_wire_message *message)
{
    const bool of_feed = message->op == TRAJD_WIRE_ASK && message->ask.feed_id == 0;
    return !client->resuming && trajd_link_is_attached(&client->link) &&
           client->phase >= (of_feed ? TRAJD_PHASE_MAPPING : TRAJD_PHASE_READY);
}

static void say_question(struct trajd_client *client, const struct trajd_wire_message *question)
{
    struct trajd_wire_message message = *question;
    if (message.op == TRAJD_WIRE_ASK) {
        message.ask.request = client->question_request;
        message.ask.feed_id = message.ask.feed_id > 0 ? message.ask.feed_id : client->feed_id;
    } else {
        message.status.request = client->question_request;
    }
    trajd_session_say(client, &message);
}

/* The question is said once a session: what another daemon was asked, this one does not know. */
static enum trajd_status await_answer(struct trajd_client *client,
                                      const struct trajd_wire_message *question,
                                      uint64_t deadline_ns, struct trajd_error *error)
{
    uint64_t said_life = 0;
    while (!client->answered) {
        if (client->phase == TRAJD_PHASE_FAILED && !trajd_link_is_attached(&client->link)) {
            *error = client->failure;
            return error->status;
        }
        if (said_life != client->incarnation && may_say(client, question)) {
            said_life = client->incarnation;
            say_question(client, question);
        }
        if (trajd_session_is_cancelled(client))
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0, "interrupted");
        if (trajd_client_now_ns() >= deadline_ns)
            return trajd_error_set(error, TRAJD_ERR_TIMEOUT, 0,
                                   "no answer from the daemon at %s in time", client->directory);
        trajd_session_wait(client, deadline_ns);
    }
    if (!client->answer_json)
        *error = client->answer_error;
    return !client->answer_json ? error->status : TRAJD_OK;
}

static enum trajd_status ask(struct trajd_client *client, const struct trajd_wire_message *question,
                             uint32_t timeout_ms, char **json, struct trajd_error *error)
{
    const uint64_t wait_ms = timeout_ms > 0 ? timeout_ms : ANSWER_TIMEOUT_MS;
    const uint64_t deadline_ns = trajd_client_now_ns() + wait_ms * UINT64_C(1000000);
    client->question_request = ++client->last_request;
    client->answered = false;
    trajd_session_begin(client);
    enum trajd_status status = await_answer(client, question, deadline_ns, error);
    *json = client->answer_json;
    client->answer_json = NULL;
    client->question_request = 0;
    return status;
}

static enum trajd_status refuse_foreign(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "a client cannot be used in a child made by fork");
}

enum trajd_status trajd_client_status(struct trajd_client *client, uint32_t timeout_ms, char **json,
                                      struct trajd_error *error)
{
    const struct trajd_wire_message question = {.op = TRAJD_WIRE_STATUS};
    struct trajd_error own;
    error = error ? error : &own;
    *json = NULL;
    if (trajd_client_is_foreign(client))
        return refuse_foreign(error);
    pthread_mutex_lock(&client->io_lock);
    enum trajd_status status = ask(client, &question, timeout_ms, json, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}

static enum trajd_status check_question(const struct trajd_client *client,
                                        const struct trajd_question *question,
                                        struct trajd_error *error)
{
    if (!question->what || question->what[0] == '\0')
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "ask: what?");
    enum trajd_status status =
        trajd_client_check_text("ask", question->what, TRAJD_WIRE_MAX_NAME, error);
    if (!status)
        status = trajd_client_check_text("ask: name", question->name, TRAJD_WIRE_MAX_NAME, error);
    if (status)
        return status;
    if (question->feed_id == 0 && !client->has_feed)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ask: open a feed first, or name one by its number");
    return TRAJD_OK;
}

enum trajd_status trajd_client_ask(struct trajd_client *client,
                                   const struct trajd_question *question, uint32_t timeout_ms,
                                   char **json, struct trajd_error *error)
{
    const struct trajd_wire_message message = {.op = TRAJD_WIRE_ASK,
                                               .ask = {.feed_id = question->feed_id,
                                                       .what = trajd_wire_text(question->what),
                                                       .name = trajd_wire_text(question->name),
                                                       .window = question->window,
                                                       .first = question->first,
                                                       .count = question->count}};
    struct trajd_error own;
    error = error ? error : &own;
    *json = NULL;
    if (trajd_client_is_foreign(client))
        return refuse_foreign(error);
    pthread_mutex_lock(&client->io_lock);
    enum trajd_status status = check_question(client, question, error);
    if (!status)
        status = ask(client, &message, timeout_ms, json, error);
    pthread_mutex_unlock(&client->io_lock);
    return status;
}
