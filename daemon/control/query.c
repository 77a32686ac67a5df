#include "daemon/control/query.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/thread.h"
#include "daemon/base/yaml.h"

#define TAKE_TIMEOUT_MS 1000
#define END_ROOM 512 /* of a paged document, for what follows its items */

static const struct {
    const char *what;
    trajd_answer answer;
} answers[] = {
    {"episodes", trajd_answer_episodes},
    {"explain", trajd_answer_explain},
    {"position", trajd_answer_position},
    {"statistics", trajd_answer_statistics},
};

enum { ANSWER_COUNT = sizeof answers / sizeof answers[0] };

struct trajd_asker {
    struct trajd_asker_options options;
    struct trajd_heartbeat heartbeat;
    pthread_t thread;
};

bool trajd_answer_fits(FILE *out, long mark)
{
    if (ftell(out) <= (long)TRAJD_ASK_MAX_ANSWER - END_ROOM)
        return true;
    fseek(out, mark, SEEK_SET);
    return false;
}

void trajd_answer_end_page(FILE *out, uint64_t next, uint64_t total)
{
    if (next < total)
        fprintf(out, "],\"next\":%" PRIu64 "}", next);
    else
        fprintf(out, "],\"next\":null}");
}

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
        error, TRAJD_ERR_ARGUMENT, 0, "ask: no question is called \"%s\" (%s%s%sthere are: %s)",
        what, nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "", list);
}

static enum trajd_status answer_feed(struct trajd_asker *asker, trajd_answer answer,
                                     const struct trajd_ask *ask, FILE *out,
                                     struct trajd_error *error)
{
    struct trajd_producer *producer;
    enum trajd_status status;

    if (!ask->feed_id)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ask: %s: of which feed? (feed_id is missing)", ask->what);
    producer = asker->options.borrow(asker->options.context, ask->feed_id);
    if (!producer)
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "ask: %s: no feed has the number %u, or not any more", ask->what,
                               ask->feed_id);
    status = answer(ask, producer, out, error);
    if (status)
        trajd_error_prefix(error, "ask: feed %s: %s", trajd_producer_name(producer), ask->what);
    asker->options.give_back(asker->options.context, producer);
    return status;
}

static enum trajd_status find_answer(struct trajd_asker *asker, const struct trajd_ask *ask,
                                     FILE *out, struct trajd_error *error)
{
    for (int a = 0; a < ANSWER_COUNT; a++)
        if (strcmp(answers[a].what, ask->what) == 0)
            return answer_feed(asker, answers[a].answer, ask, out, error);
    return unknown_question(ask->what, error);
}

static void answer_ask(struct trajd_asker *asker, const struct trajd_ask *ask)
{
    enum trajd_status status = TRAJD_ERR_MEMORY;
    struct trajd_error error;
    char *json = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&json, &length);

    trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "ask: %s: out of memory", ask->what);
    if (out) {
        status = find_answer(asker, ask, out, &error);
        if (fclose(out) != 0 && !status)
            status =
                trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "ask: %s: out of memory", ask->what);
    }
    if (!status && length > TRAJD_ASK_MAX_ANSWER)
        status = trajd_error_set(&error, TRAJD_ERR_MEMORY, 0,
                                 "ask: %s: the answer would be %zu bytes, and %u is the limit",
                                 ask->what, length, TRAJD_ASK_MAX_ANSWER);
    trajd_server_answer_ask(asker->options.server, ask->id, status ? NULL : json, length, &error);
    free(json);
}

static void *run_asker(void *context)
{
    struct trajd_asker *asker = context;
    enum trajd_status status;
    struct trajd_ask ask;

    trajd_heartbeat_begin(&asker->heartbeat);
    do {
        trajd_heartbeat_turn();
        status = trajd_server_take_ask(asker->options.server, TAKE_TIMEOUT_MS, &ask);
        if (!status)
            answer_ask(asker, &ask);
    } while (status != TRAJD_ERR_CLOSED);
    return NULL;
}

enum trajd_status trajd_asker_create(const struct trajd_asker_options *options,
                                     struct trajd_asker **out, struct trajd_error *error)
{
    struct trajd_asker *asker = calloc(1, sizeof *asker);
    int failed;

    *out = NULL;
    if (!asker)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the asker");
    asker->options = *options;
    failed = trajd_thread_start(&asker->thread, "trajd-ask", run_asker, asker);
    if (failed) {
        free(asker);
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "asker thread: %s",
                               strerror(failed));
    }
    *out = asker;
    return TRAJD_OK;
}

const struct trajd_heartbeat *trajd_asker_heartbeat(const struct trajd_asker *asker)
{
    return &asker->heartbeat;
}

void trajd_asker_destroy(struct trajd_asker **out)
{
    struct trajd_asker *asker = *out;

    *out = NULL;
    if (!asker)
        return;
    trajd_heartbeat_cancel(&asker->heartbeat);
    trajd_server_close_asks(asker->options.server);
    pthread_join(asker->thread, NULL);
    free(asker);
}
