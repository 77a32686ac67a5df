#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/feed/journal.h"

#define SWEEP_NS (86400 * INT64_C(1000000000)) /* for old journals */

/* Takes one feed off the list whose GPU has failed, closed and doomed; NULL if there is none. With
 * the mutex held. */
static struct trajd_producer *take_lost(struct trajd_control *control)
{
    struct trajd_error why;

    for (uint32_t f = 0; trajd_control_goes_on_without_gpus(control) && f < control->producer_count;
         f++) {
        struct trajd_producer *producer = control->producers[f];
        if (!trajd_producer_gpu(producer) || producer == control->lent)
            continue;
        trajd_error_set(&why, TRAJD_ERR_DEVICE, 0,
                        "a GPU of the daemon has failed: feed %s goes on in host memory",
                        trajd_producer_name(producer));
        trajd_feed_fail(trajd_producer_feed(producer), &why);
        trajd_feed_close(trajd_producer_feed(producer));
        control->producers[f] = control->producers[--control->producer_count];
        control->is_idle[f] = control->is_idle[control->producer_count];
        return producer;
    }
    return NULL;
}

/* Takes one idle feed that a job sent off the list, closed; NULL if there is none. With the mutex
 * held: no OPEN can be answered with it meanwhile. */
static struct trajd_producer *take_idle(struct trajd_control *control)
{
    for (uint32_t f = 0; f < control->producer_count; f++) {
        struct trajd_producer *producer = control->producers[f];
        if (!control->is_idle[f] || producer == control->lent)
            continue;
        control->is_idle[f] = false;
        if (!trajd_control_may_close(producer) ||
            !trajd_feed_close_if_idle(trajd_producer_feed(producer)))
            continue;
        control->producers[f] = control->producers[--control->producer_count];
        control->is_idle[f] = control->is_idle[control->producer_count];
        return producer;
    }
    return NULL;
}

/* What is made on a GPU is opened by its feed's name and the GPU: a worker that asked for no GPU,
 * or is elsewhere, cannot read it. */
static bool is_of_gpu(const char *name)
{
    return trajd_control_base_length(name) != trajd_control_family_length(name);
}

static void serve_request(struct trajd_control *control, struct trajd_opener_request *request)
{
    struct trajd_producer *producer = NULL;
    struct trajd_error error;
    enum trajd_status status;

    if (!request->spec && request->name && !request->is_instance && !request->gpu &&
        !is_of_gpu(request->name))
        producer = trajd_control_find_producer(
            control, request->name); /* asked for before the feeds of the config were up */
    status = producer ? TRAJD_OK
             : request->is_instance
                 ? trajd_control_open_instance(control, request->name ? request->name : "",
                                               &producer, &error)
             : request->gpu
                 ? trajd_control_open_on_gpu(control, request->name ? request->name : "",
                                             request->spec, request->gpu, &producer, &error)
             : request->spec
                 ? trajd_control_open_spec(control, request->spec, &producer, &error)
                 : trajd_control_unknown_feed(control, request->name ? request->name : "", &error);
    if (request->is_instance && producer)
        LOG(control->log, INFO, "feed %s: opened for a job of its own",
            trajd_producer_name(producer));
    if (request->gpu && producer)
        LOG(control->log, INFO, "feed %s: made on a GPU", trajd_producer_name(producer));
    /* who is told so asks again soon, or later */
    if (status && status != TRAJD_ERR_BUSY && status != TRAJD_ERR_CLOSED)
        LOG(control->log, WARNING, "OPEN: %s", error.message);
    trajd_server_answer(control->server, request->request,
                        producer ? trajd_producer_feed(producer) : NULL, status ? &error : NULL);
}

static bool is_sweep_due(const struct trajd_control *control)
{
    return trajd_control_state_directory(control) && control->now->config->journal_idle_ns &&
           (!control->swept_ns || trajd_now_ns() - control->swept_ns >= SWEEP_NS);
}

static void sweep(struct trajd_control *control)
{
    const int64_t idle_ns = control->now->config->journal_idle_ns;
    struct trajd_error error;
    uint32_t removed;

    control->swept_ns = trajd_now_ns();
    trajd_heartbeat_wait();
    if (trajd_journal_sweep(trajd_control_state_directory(control), idle_ns, &removed, &error))
        LOG(control->log, WARNING, "old journals: %s", error.message);
    else if (removed)
        LOG(control->log, INFO,
            "%u journals removed that nobody has touched for %g days (journal_idle)", removed,
            (double)idle_ns / 86400e9);
    trajd_heartbeat_resume();
}

static void run_reload(struct trajd_control *control)
{
    char message[sizeof control->reload.message];
    const enum trajd_status status = trajd_reload_run(control, message, sizeof message);

    pthread_mutex_lock(&control->mutex);
    control->reload.is_running = false;
    control->reload.status = status;
    control->reload.count++;
    strcpy(control->reload.message, message);
    pthread_mutex_unlock(&control->mutex);
}

static void *run_opener(void *context)
{
    struct trajd_control *control = context;

    trajd_heartbeat_begin(&control->opening);
    pthread_mutex_lock(&control->mutex);
    for (;;) {
        struct trajd_opener_request request;
        struct trajd_producer *idle = NULL;
        bool is_due = false;
        while (!control->stop && !(idle = take_lost(control)) && !control->request_count &&
               !control->reload.is_running && !(idle = take_idle(control)) &&
               !(is_due = is_sweep_due(control)))
            trajd_heartbeat_wait_for(&control->asked, &control->mutex);
        if (control->stop && !idle)
            break;
        if (is_due) {
            pthread_mutex_unlock(&control->mutex);
            sweep(control);
            pthread_mutex_lock(&control->mutex);
            continue;
        }
        if (control->reload.is_running && !idle) {
            pthread_mutex_unlock(&control->mutex);
            run_reload(control);
            pthread_mutex_lock(&control->mutex);
            continue;
        }
        if (idle) {
            pthread_mutex_unlock(&control->mutex);
            LOG(control->log, INFO, "feed %s: closed, %s", trajd_producer_name(idle),
                trajd_control_goes_on_without_gpus(control) && trajd_producer_gpu(idle)
                    ? "its GPU has failed"
                    : "nobody has read it for a while");
            trajd_producer_destroy(&idle);
            pthread_mutex_lock(&control->mutex);
            continue;
        }
        request = control->requests[0];
        memmove(control->requests, control->requests + 1,
                --control->request_count * sizeof request);
        pthread_mutex_unlock(&control->mutex);
        serve_request(control, &request);
        free(request.name);
        free(request.spec);
        free(request.gpu);
        pthread_mutex_lock(&control->mutex);
    }
    pthread_mutex_unlock(&control->mutex);
    return NULL;
}

static enum trajd_status ask_opener(struct trajd_control *control,
                                    const struct trajd_opener_request *request,
                                    struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&control->mutex);
    if (control->stop) {
        status = trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending");
    } else if (control->request_count == TRAJD_CONTROL_MAX_REQUESTS) {
        status = trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%d feeds wait to be opened: try again",
                                 TRAJD_CONTROL_MAX_REQUESTS);
    } else {
        control->requests[control->request_count++] = *request;
        pthread_cond_signal(&control->asked);
    }
    pthread_mutex_unlock(&control->mutex);
    return status;
}

/* ---- what the server calls, on its thread ---- */

/* A feed that is open already does not wait behind one that is being loaded. */
static bool answer_at_once(struct trajd_control *control, uint64_t request, const char *name)
{
    struct trajd_producer *producer;

    pthread_mutex_lock(&control->mutex);
    producer = trajd_control_find_listed(control, name);
    if (producer)
        trajd_server_answer(control->server, request, trajd_producer_feed(producer), NULL);
    pthread_mutex_unlock(&control->mutex);
    return producer != NULL;
}

void trajd_control_on_open_feed(void *context, uint64_t request_id, const char *name,
                                const char *spec, size_t spec_length)
{
    struct trajd_control *control = context;
    struct trajd_opener_request request = {.request = request_id,
                                           .name = name ? strdup(name) : NULL,
                                           .spec = spec ? strndup(spec, spec_length) : NULL};
    struct trajd_error error;
    char spec_name[64];

    if (request.spec)
        trajd_control_name_spec(request.spec, spec_name, sizeof spec_name);
    if (!request.spec || !answer_at_once(control, request_id, spec_name)) {
        if (!ask_opener(control, &request, &error))
            return;
        trajd_server_answer(control->server, request_id, NULL, &error);
    }
    free(request.name);
    free(request.spec);
}

void trajd_control_on_open_on_gpu(void *context, uint64_t request_id, const char *name,
                                  const char *spec, const char *gpu)
{
    struct trajd_control *control = context;
    struct trajd_opener_request request = {.request = request_id,
                                           .name = name ? strdup(name) : NULL,
                                           .spec = spec ? strdup(spec) : NULL,
                                           .gpu = strdup(gpu)};
    struct trajd_error error;

    if ((!name || request.name) && (!spec || request.spec) && request.gpu) {
        if (!ask_opener(control, &request, &error))
            return;
    } else {
        trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "OPEN: out of memory");
    }
    trajd_server_answer(control->server, request_id, NULL, &error);
    free(request.name);
    free(request.spec);
    free(request.gpu);
}

void trajd_control_on_open_instance(void *context, uint64_t request_id, const char *name)
{
    struct trajd_control *control = context;
    struct trajd_opener_request request = {
        .request = request_id, .name = strdup(name), .is_instance = true};
    struct trajd_error error;

    if (!ask_opener(control, &request, &error))
        return;
    trajd_server_answer(control->server, request_id, NULL, &error);
    free(request.name);
}

void trajd_control_on_feed_idle(void *context, struct trajd_feed *feed)
{
    struct trajd_control *control = context;

    pthread_mutex_lock(&control->mutex);
    for (uint32_t f = 0; f < control->producer_count; f++)
        if (trajd_producer_feed(control->producers[f]) == feed)
            control->is_idle[f] = true;
    pthread_cond_signal(&control->asked);
    pthread_mutex_unlock(&control->mutex);
}

enum trajd_status trajd_control_start_opener(struct trajd_control *control,
                                             struct trajd_error *error)
{
    const int failed = trajd_thread_start(&control->opener, "trajd-open", run_opener, control);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "opener thread: %s",
                               strerror(failed));
    control->opener_running = true;
    return TRAJD_OK;
}

void trajd_control_stop_opener(struct trajd_control *control)
{
    trajd_heartbeat_cancel(&control->opening);
    pthread_mutex_lock(&control->mutex);
    control->stop = true;
    pthread_cond_signal(&control->asked);
    pthread_mutex_unlock(&control->mutex);
    if (control->opener_running)
        pthread_join(control->opener, NULL);
    for (uint32_t r = 0; r < control->request_count; r++) {
        free(control->requests[r].name);
        free(control->requests[r].spec);
        free(control->requests[r].gpu);
    }
}
