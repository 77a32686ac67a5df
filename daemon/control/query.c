#include "daemon/control/query.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/yaml.h"

#define TAKE_TIMEOUT_MS 1000

static const struct {
    const char *what;
    trajd_query_result answer;
} answers[] = {
    {"episodes", trajd_query_episodes}, {"explain", trajd_query_explain},
    {"live", trajd_query_live},         {"pictures", trajd_query_pictures},
    {"position", trajd_query_position}, {"statistics", trajd_query_statistics},
};

enum { ANSWER_COUNT = sizeof answers / sizeof answers[0] };

struct trajd_query_service {
    struct trajd_query_service_options options;
    struct trajd_heartbeat heartbeat;
    pthread_t thread;
};

static enum trajd_status unknown_question(const char *what, struct trajd_error *error)
{
    const char *names[ANSWER_COUNT], *nearest;
    char list[256];
    size_t used = 0;

    for (int a = 0; a < ANSWER_COUNT; a++) {
        names[a] = answers[a].what;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", a ? ", " : "", names[a]);
    }
    nearest = trajd_yaml_nearest(what, names, ANSWER_COUNT);
    return trajd_error_set(
        error, TRAJD_ERR_ARGUMENT, 0, "ask: unknown question \"%s\" (%s%s%squestions: %s)", what,
        nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "", list);
}

static enum trajd_status answer_feed(struct trajd_query_service *query_service,
                                     trajd_query_result answer, const struct trajd_query *query,
                                     struct trajd_json *json, struct trajd_error *error)
{
    struct trajd_producer *producer;
    enum trajd_status status;

    if (!query->feed_id)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "ask: %s: feed_id is missing",
                               query->what);
    producer =
        query_service->options.acquire_producer(query_service->options.context, query->feed_id);
    if (!producer)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "ask: %s: there is no feed with the number %u (any more)",
                               query->what, query->feed_id);
    status = answer(query, producer, json, error);
    if (status)
        trajd_error_prefix(error, "ask: feed %s: %s", producer->name, query->what);
    query_service->options.return_producer(query_service->options.context, producer);
    return status;
}

static enum trajd_status find_answer(struct trajd_query_service *query_service,
                                     const struct trajd_query *query, struct trajd_json *json,
                                     struct trajd_error *error)
{
    for (int a = 0; a < ANSWER_COUNT; a++)
        if (strcmp(answers[a].what, query->what) == 0)
            return answer_feed(query_service, answers[a].answer, query, json, error);
    return unknown_question(query->what, error);
}

static void answer_query(struct trajd_query_service *query_service, const struct trajd_query *query)
{
    enum trajd_status status = TRAJD_ERR_MEMORY;
    struct trajd_error error;
    char *text = NULL;
    size_t length = 0;
    struct trajd_json json = {.out = open_memstream(&text, &length)};

    trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "ask: %s: out of memory", query->what);
    if (json.out) {
        status = find_answer(query_service, query, &json, &error);
        if (fclose(json.out) != 0 && !status)
            status =
                trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "ask: %s: out of memory", query->what);
    }
    if (!status && length > TRAJD_QUERY_MAX_ANSWER)
        status = trajd_error_set(&error, TRAJD_ERR_MEMORY, 0,
                                 "ask: %s: the answer has %zu bytes, more than the limit of %u",
                                 query->what, length, TRAJD_QUERY_MAX_ANSWER);
    trajd_server_answer_query(query_service->options.server, query->id, status ? NULL : text,
                              length, &error);
    free(text);
}

static void *run_query_service(void *context)
{
    struct trajd_query_service *query_service = context;
    enum trajd_status status;
    struct trajd_query query;

    trajd_heartbeat_begin(&query_service->heartbeat);
    do {
        trajd_heartbeat_turn();
        status = trajd_server_take_query(query_service->options.server, TAKE_TIMEOUT_MS, &query);
        if (!status)
            answer_query(query_service, &query);
    } while (status != TRAJD_ERR_CLOSED);
    return NULL;
}

enum trajd_status trajd_query_service_create(const struct trajd_query_service_options *options,
                                             struct trajd_query_service **out,
                                             struct trajd_error *error)
{
    struct trajd_query_service *query_service = calloc(1, sizeof *query_service);
    int failed;

    *out = NULL;
    if (!query_service)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the query service");
    query_service->options = *options;
    failed =
        trajd_thread_start(&query_service->thread, "trajd-ask", run_query_service, query_service);
    if (failed) {
        free(query_service);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "query service thread: %s",
                               strerror(failed));
    }
    *out = query_service;
    return TRAJD_OK;
}

const struct trajd_heartbeat *
trajd_query_service_heartbeat(const struct trajd_query_service *query_service)
{
    return &query_service->heartbeat;
}

void trajd_query_service_destroy(struct trajd_query_service **out)
{
    struct trajd_query_service *query_service = *out;

    *out = NULL;
    if (!query_service)
        return;
    trajd_heartbeat_cancel(&query_service->heartbeat);
    trajd_server_close_queries(query_service->options.server);
    pthread_join(query_service->thread, NULL);
    free(query_service);
}
