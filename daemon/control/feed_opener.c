#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/feed/journal.h"

#define SWEEP_NS (86400 * INT64_C(1000000000)) /* for old journals */

/* Takes one feed off the list whose GPU has failed, closed and doomed; NULL if there is none. With
 * the mutex held. */
static struct trajd_producer *take_lost(struct trajd_pipeline *pipeline)
{
    struct trajd_error why;

    for (uint32_t f = 0;
         trajd_pipeline_goes_on_without_gpus(pipeline) && f < pipeline->producer_count; f++) {
        struct trajd_producer *producer = pipeline->producers[f];
        if (!trajd_producer_gpu(producer) || producer == pipeline->lent)
            continue;
        trajd_error_set(&why, TRAJD_ERR_DEVICE, 0,
                        "a GPU of the daemon has failed: feed %s goes on in host memory",
                        trajd_producer_name(producer));
        trajd_feed_doom(trajd_producer_feed(producer), &why);
        trajd_feed_close(trajd_producer_feed(producer));
        pipeline->producers[f] = pipeline->producers[--pipeline->producer_count];
        pipeline->is_idle[f] = pipeline->is_idle[pipeline->producer_count];
        return producer;
    }
    return NULL;
}

/* Takes one idle feed that a job sent off the list, closed; NULL if there is none. With the mutex
 * held: no OPEN can be answered with it meanwhile. */
static struct trajd_producer *take_idle(struct trajd_pipeline *pipeline)
{
    for (uint32_t f = 0; f < pipeline->producer_count; f++) {
        struct trajd_producer *producer = pipeline->producers[f];
        if (!pipeline->is_idle[f] || producer == pipeline->lent)
            continue;
        pipeline->is_idle[f] = false;
        if (!trajd_pipeline_may_close(producer) ||
            !trajd_feed_close_if_idle(trajd_producer_feed(producer)))
            continue;
        pipeline->producers[f] = pipeline->producers[--pipeline->producer_count];
        pipeline->is_idle[f] = pipeline->is_idle[pipeline->producer_count];
        return producer;
    }
    return NULL;
}

/* What is made on a GPU is opened by its feed's name and the GPU: a worker that asked for no GPU,
 * or is elsewhere, cannot read it. */
static bool is_of_gpu(const char *name)
{
    return trajd_pipeline_base_length(name) != trajd_pipeline_family_length(name);
}

static void serve_request(struct trajd_pipeline *pipeline, struct trajd_opener_request *request)
{
    struct trajd_producer *producer = NULL;
    struct trajd_error error;
    enum trajd_status status;

    if (!request->spec && request->name && !request->is_instance && !request->gpu &&
        !is_of_gpu(request->name))
        producer = trajd_pipeline_find_producer(
            pipeline, request->name); /* asked for before the feeds of the config were up */
    status =
        producer ? TRAJD_OK
        : request->is_instance
            ? trajd_pipeline_open_instance(pipeline, request->name ? request->name : "", &producer,
                                           &error)
        : request->gpu ? trajd_pipeline_open_on_gpu(pipeline, request->name ? request->name : "",
                                                    request->spec, request->gpu, &producer, &error)
        : request->spec
            ? trajd_pipeline_open_spec(pipeline, request->spec, &producer, &error)
            : trajd_pipeline_unknown_feed(pipeline, request->name ? request->name : "", &error);
    if (request->is_instance && producer)
        LOG(pipeline->log, INFO, "feed %s: opened for a job of its own",
            trajd_producer_name(producer));
    if (request->gpu && producer)
        LOG(pipeline->log, INFO, "feed %s: made on a GPU", trajd_producer_name(producer));
    /* who is told so asks again soon, or later */
    if (status && status != TRAJD_ERR_BUSY && status != TRAJD_ERR_CLOSED)
        LOG(pipeline->log, WARNING, "OPEN: %s", error.message);
    trajd_server_answer(pipeline->server, request->request,
                        producer ? trajd_producer_feed(producer) : NULL, status ? &error : NULL);
}

static bool is_sweep_due(const struct trajd_pipeline *pipeline)
{
    return trajd_pipeline_state_directory(pipeline) && pipeline->now->config->journal_idle_ns &&
           (!pipeline->swept_ns || trajd_now_ns() - pipeline->swept_ns >= SWEEP_NS);
}

static void sweep(struct trajd_pipeline *pipeline)
{
    const int64_t idle_ns = pipeline->now->config->journal_idle_ns;
    struct trajd_error error;
    uint32_t removed;

    pipeline->swept_ns = trajd_now_ns();
    trajd_watch_wait();
    if (trajd_journal_sweep(trajd_pipeline_state_directory(pipeline), idle_ns, &removed, &error))
        LOG(pipeline->log, WARNING, "old journals: %s", error.message);
    else if (removed)
        LOG(pipeline->log, INFO,
            "%u journals removed that nobody has touched for %g days (journal_idle)", removed,
            (double)idle_ns / 86400e9);
    trajd_watch_resume();
}

static void run_reload(struct trajd_pipeline *pipeline)
{
    char message[sizeof pipeline->reload.message];
    const enum trajd_status status = trajd_reload_run(pipeline, message, sizeof message);

    pthread_mutex_lock(&pipeline->mutex);
    pipeline->reload.is_running = false;
    pipeline->reload.status = status;
    pipeline->reload.count++;
    strcpy(pipeline->reload.message, message);
    pthread_mutex_unlock(&pipeline->mutex);
}

static void *run_opener(void *context)
{
    struct trajd_pipeline *pipeline = context;

    trajd_watch_begin(&pipeline->opening);
    pthread_mutex_lock(&pipeline->mutex);
    for (;;) {
        struct trajd_opener_request request;
        struct trajd_producer *idle = NULL;
        bool is_due = false;
        while (!pipeline->stop && !(idle = take_lost(pipeline)) && !pipeline->request_count &&
               !pipeline->reload.is_running && !(idle = take_idle(pipeline)) &&
               !(is_due = is_sweep_due(pipeline)))
            trajd_watch_wait_for(&pipeline->asked, &pipeline->mutex);
        if (pipeline->stop && !idle)
            break;
        if (is_due) {
            pthread_mutex_unlock(&pipeline->mutex);
            sweep(pipeline);
            pthread_mutex_lock(&pipeline->mutex);
            continue;
        }
        if (pipeline->reload.is_running && !idle) {
            pthread_mutex_unlock(&pipeline->mutex);
            run_reload(pipeline);
            pthread_mutex_lock(&pipeline->mutex);
            continue;
        }
        if (idle) {
            pthread_mutex_unlock(&pipeline->mutex);
            LOG(pipeline->log, INFO, "feed %s: closed, %s", trajd_producer_name(idle),
                trajd_pipeline_goes_on_without_gpus(pipeline) && trajd_producer_gpu(idle)
                    ? "its GPU has failed"
                    : "nobody has read it for a while");
            trajd_producer_destroy(&idle);
            pthread_mutex_lock(&pipeline->mutex);
            continue;
        }
        request = pipeline->requests[0];
        memmove(pipeline->requests, pipeline->requests + 1,
                --pipeline->request_count * sizeof request);
        pthread_mutex_unlock(&pipeline->mutex);
        serve_request(pipeline, &request);
        free(request.name);
        free(request.spec);
        free(request.gpu);
        pthread_mutex_lock(&pipeline->mutex);
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return NULL;
}

static enum trajd_status ask_opener(struct trajd_pipeline *pipeline,
                                    const struct trajd_opener_request *request,
                                    struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&pipeline->mutex);
    if (pipeline->stop) {
        status = trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending");
    } else if (pipeline->request_count == TRAJD_PIPELINE_MAX_REQUESTS) {
        status = trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%d feeds wait to be opened: try again",
                                 TRAJD_PIPELINE_MAX_REQUESTS);
    } else {
        pipeline->requests[pipeline->request_count++] = *request;
        pthread_cond_signal(&pipeline->asked);
    }
    pthread_mutex_unlock(&pipeline->mutex);
    return status;
}

/* ---- what the server calls, on its thread ---- */

/* A feed that is open already does not wait behind one that is being loaded. */
static bool answer_at_once(struct trajd_pipeline *pipeline, uint64_t request, const char *name)
{
    struct trajd_producer *producer;

    pthread_mutex_lock(&pipeline->mutex);
    producer = trajd_pipeline_find_listed(pipeline, name);
    if (producer)
        trajd_server_answer(pipeline->server, request, trajd_producer_feed(producer), NULL);
    pthread_mutex_unlock(&pipeline->mutex);
    return producer != NULL;
}

void trajd_pipeline_on_open_feed(void *context, uint64_t request_id, const char *name,
                                 const char *spec, size_t spec_length)
{
    struct trajd_pipeline *pipeline = context;
    struct trajd_opener_request request = {.request = request_id,
                                           .name = name ? strdup(name) : NULL,
                                           .spec = spec ? strndup(spec, spec_length) : NULL};
    struct trajd_error error;
    char spec_name[64];

    if (request.spec)
        trajd_pipeline_name_spec(request.spec, spec_name, sizeof spec_name);
    if (!request.spec || !answer_at_once(pipeline, request_id, spec_name)) {
        if (!ask_opener(pipeline, &request, &error))
            return;
        trajd_server_answer(pipeline->server, request_id, NULL, &error);
    }
    free(request.name);
    free(request.spec);
}

void trajd_pipeline_on_open_on_gpu(void *context, uint64_t request_id, const char *name,
                                   const char *spec, const char *gpu)
{
    struct trajd_pipeline *pipeline = context;
    struct trajd_opener_request request = {.request = request_id,
                                           .name = name ? strdup(name) : NULL,
                                           .spec = spec ? strdup(spec) : NULL,
                                           .gpu = strdup(gpu)};
    struct trajd_error error;

    if ((!name || request.name) && (!spec || request.spec) && request.gpu) {
        if (!ask_opener(pipeline, &request, &error))
            return;
    } else {
        trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "OPEN: out of memory");
    }
    trajd_server_answer(pipeline->server, request_id, NULL, &error);
    free(request.name);
    free(request.spec);
    free(request.gpu);
}

void trajd_pipeline_on_open_instance(void *context, uint64_t request_id, const char *name)
{
    struct trajd_pipeline *pipeline = context;
    struct trajd_opener_request request = {
        .request = request_id, .name = strdup(name), .is_instance = true};
    struct trajd_error error;

    if (!ask_opener(pipeline, &request, &error))
        return;
    trajd_server_answer(pipeline->server, request_id, NULL, &error);
    free(request.name);
}

void trajd_pipeline_on_feed_idle(void *context, struct trajd_feed *feed)
{
    struct trajd_pipeline *pipeline = context;

    pthread_mutex_lock(&pipeline->mutex);
    for (uint32_t f = 0; f < pipeline->producer_count; f++)
        if (trajd_producer_feed(pipeline->producers[f]) == feed)
            pipeline->is_idle[f] = true;
    pthread_cond_signal(&pipeline->asked);
    pthread_mutex_unlock(&pipeline->mutex);
}

enum trajd_status trajd_pipeline_start_opener(struct trajd_pipeline *pipeline,
                                              struct trajd_error *error)
{
    const int failed = trajd_thread_start(&pipeline->opener, "trajd-open", run_opener, pipeline);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "opener thread: %s",
                               strerror(failed));
    pipeline->opener_running = true;
    return TRAJD_OK;
}

void trajd_pipeline_stop_opener(struct trajd_pipeline *pipeline)
{
    trajd_watch_cancel(&pipeline->opening);
    pthread_mutex_lock(&pipeline->mutex);
    pipeline->stop = true;
    pthread_cond_signal(&pipeline->asked);
    pthread_mutex_unlock(&pipeline->mutex);
    if (pipeline->opener_running)
        pthread_join(pipeline->opener, NULL);
    for (uint32_t r = 0; r < pipeline->request_count; r++) {
        free(pipeline->requests[r].name);
        free(pipeline->requests[r].spec);
        free(pipeline->requests[r].gpu);
    }
}
