/* The thread that answers questions about feeds. */
#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/yaml.h"

#define TAKE_TIMEOUT_MS 1000

static const struct {
    const char *what;
    trajd_query_result *answer;
} answers[] = {
    {"episodes", trajd_query_episodes},
    {"explain", trajd_query_explain},
    {"live", trajd_query_live},
    {"plan", trajd_query_plan},
    {"pictures", trajd_query_images},
    {"position", trajd_query_position},
    {"statistics", trajd_query_statistics},
};

enum { ANSWER_COUNT = sizeof answers / sizeof answers[0] };

static enum trajd_status unknown_question(const char *what, struct trajd_error *error)
{
    const char *names[ANSWER_COUNT + 1] = {NULL};
    char list[256];

    for (int a = 0; a < ANSWER_COUNT; a++)
        names[a] = answers[a].what;
    trajd_yaml_join(names, list, sizeof list);
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "ask: unknown question \"%s\" (%squestions: %s)", what,
                           trajd_yaml_suggest("", what, names, ANSWER_COUNT, " ").text, list);
}

static enum trajd_status answer_feed(struct trajd_control *control, trajd_query_result *answer,
                                     const struct trajd_query *query, struct trajd_json *json,
                                     struct trajd_error *error)
{
    struct trajd_producer *producer;
    enum trajd_status status;

    if (!query->feed_id)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "ask: %s: feed_id is missing",
                               query->what);
    producer = trajd_control_acquire_producer(control, query->feed_id);
    if (!producer)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "ask: %s: there is no feed with the number %u (any more)",
                               query->what, query->feed_id);
    status = answer(query, producer, json, error);
    if (status)
        trajd_error_prefix(error, "ask: feed %s: %s", producer->name, query->what);
    trajd_control_return_producer(control);
    return status;
}

static enum trajd_status find_answer(struct trajd_control *control, const struct trajd_query *query,
                                     struct trajd_json *json, struct trajd_error *error)
{
    for (int a = 0; a < ANSWER_COUNT; a++)
        if (strcmp(answers[a].what, query->what) == 0)
            return answer_feed(control, answers[a].answer, query, json, error);
    return unknown_question(query->what, error);
}

static void answer_query(struct trajd_control *control, const struct trajd_query *query)
{
    enum trajd_status status = TRAJD_ERR_MEMORY;
    struct trajd_error error;
    char *text = NULL;
    size_t length = 0;
    struct trajd_json json = {.out = open_memstream(&text, &length)};
    bool is_cut;

    trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "ask: %s: out of memory", query->what);
    if (json.out) {
        status = find_answer(control, query, &json, &error);
        is_cut = ferror(json.out); /* fclose does not tell */
        if ((fclose(json.out) != 0 || is_cut || !text) && !status)
            status =
                trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "ask: %s: out of memory", query->what);
    }
    if (!status && length > TRAJD_QUERY_MAX_ANSWER)
        status = trajd_error_set(&error, TRAJD_ERR_MEMORY, 0,
                                 "ask: %s: the answer has %zu bytes, more than the limit of %u",
                                 query->what, length, TRAJD_QUERY_MAX_ANSWER);
    trajd_server_answer_query(control->server, query->id, status ? NULL : text, length, &error);
    free(text);
}

static void *run_queries(void *context)
{
    struct trajd_control *control = context;
    enum trajd_status status;
    struct trajd_query query;

    trajd_heartbeat_begin(&control->queries.heartbeat);
    do {
        trajd_heartbeat_turn();
        status = trajd_server_take_query(control->server, TAKE_TIMEOUT_MS, &query);
        if (!status)
            answer_query(control, &query);
    } while (status != TRAJD_ERR_CLOSED);
    return NULL;
}

enum trajd_status trajd_control_start_queries(struct trajd_control *control,
                                              struct trajd_error *error)
{
    const int failed =
        trajd_thread_start(&control->queries.thread, "trajd-ask", run_queries, control);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "query service thread: %s",
                               strerror(failed));
    control->queries.is_running = true;
    return TRAJD_OK;
}

void trajd_control_stop_queries(struct trajd_control *control)
{
    if (!control->queries.is_running)
        return;
    trajd_heartbeat_cancel(&control->queries.heartbeat);
    trajd_server_close_queries(control->server);
    pthread_join(control->queries.thread, NULL);
    control->queries.is_running = false;
}
