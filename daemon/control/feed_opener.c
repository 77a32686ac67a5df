/* The opener thread: makes feeds for OPEN requests, closes idle feeds, and runs reloads. */
#include "daemon/control/control_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/progress/progress.h"
#include "daemon/base/heartbeat.h"
#include "daemon/feed/journal.h"

#define SWEEP_NS (86400 * INT64_C(1000000000)) /* between two sweeps of old journals */

static void free_request(const struct trajd_server_wanted *wanted)
{
    free((char *)wanted->name);
    free((char *)wanted->spec);
    free((char *)wanted->place);
}

/* ---- what the opener does, without the mutex ---- */

/* Returns a feed for the request. Where there is no room for one whose workers finish the images, it
 * is the one for all workers. A worker that had the first one takes no other: it tries again until
 * there is room. */
static enum trajd_status find_feed(struct trajd_control *control,
                                   const struct trajd_server_wanted *wanted, const char *spec,
                                   struct trajd_producer **producer, struct trajd_error *error)
{
    const char *name = wanted->name ? wanted->name : "";
    enum trajd_status status;

    if (wanted->is_instance)
        return trajd_control_open_instance(control, name, producer, error);
    /* the request may have arrived before the feeds of the configuration were made */
    status = trajd_control_open_feed(control, name, spec, wanted->place, producer, error);
    if (status != TRAJD_ERR_MEMORY || !wanted->place ||
        strcmp(wanted->place, TRAJD_FEED_UNFINISHED) != 0)
        return status;
    if (wanted->is_repeated)
        return error->status = TRAJD_ERR_BUSY;
    LOG(control->log, WARNING, "%s: the daemon finishes the images instead", error->message);
    return trajd_control_open_feed(control, name, spec, NULL, producer, error);
}

/* Opens a feed. A specification with `like:` is completed first: its feed is known by what it says
 * in full, also after the configuration has changed. */
static enum trajd_status open_feed(struct trajd_control *control,
                                   const struct trajd_server_wanted *request,
                                   struct trajd_producer **producer, struct trajd_error *error)
{
    char *expanded = NULL;
    enum trajd_status status =
        request->spec
            ? trajd_config_expand_feed(control->now->config, request->spec, &expanded, error)
            : TRAJD_OK;

    *producer = NULL;
    if (!status)
        status = find_feed(control, request, expanded ? expanded : request->spec, producer, error);
    free(expanded);
    return status;
}

static void serve_request(struct trajd_control *control, const struct trajd_server_wanted *request)
{
    struct trajd_producer *producer;
    struct trajd_error error;
    const enum trajd_status status = open_feed(control, request, &producer, &error);

    if (request->place && producer && producer->options.gpu)
        LOG(control->log, INFO, "feed %s: made on a GPU", producer->name);
    /* BUSY and CLOSED are not logged: the client tries again */
    if (status && status != TRAJD_ERR_BUSY && status != TRAJD_ERR_CLOSED)
        LOG(control->log, WARNING, "OPEN: %s", error.message);
    trajd_server_answer(control->server, request->request, producer ? producer->feed : NULL,
                        status ? &error : NULL);
}

static void close_producer(struct trajd_control *control, struct trajd_producer *producer)
{
    LOG(control->log, INFO, "feed %s: closed: %s", producer->name,
        trajd_control_goes_on_without_gpus(control) && producer->options.gpu
            ? "its GPU has failed"
            : "no worker has read it for feed_idle");
    trajd_producer_destroy(&producer);
}

static bool is_sweep_due(const struct trajd_control *control)
{
    const int64_t swept_ns = control->opener.swept_ns;

    return trajd_control_state_directory(control) && control->now->config->journal_idle_ns &&
           (!swept_ns || trajd_now_ns() - swept_ns >= SWEEP_NS);
}

static void sweep(struct trajd_control *control)
{
    const int64_t idle_ns = control->now->config->journal_idle_ns;
    struct trajd_error error;
    uint32_t removed;

    control->opener.swept_ns = trajd_now_ns();
    trajd_heartbeat_wait();
    if (trajd_journal_sweep(trajd_control_state_directory(control), idle_ns, &removed, &error))
        LOG(control->log, WARNING, "old journals: %s", error.message);
    else if (removed)
        LOG(control->log, INFO, "removed %u journals that were unused for %g days (journal_idle)",
            removed, (double)idle_ns / 86400e9);
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

/* ---- the thread ---- */

enum task { TASK_CLOSE, TASK_SWEEP, TASK_RELOAD, TASK_OPEN, TASK_STOP };

struct work {
    enum task task;
    struct trajd_producer *producer;    /* of TASK_CLOSE; off the list already */
    struct trajd_server_wanted request; /* of TASK_OPEN */
};

/* Fills *work with the most urgent task; returns false where there is none. The caller holds the
 * mutex. */
static bool find_work(struct trajd_control *control, struct work *work)
{
    struct trajd_opener *opener = &control->opener;

    *work = (struct work){.task = TASK_STOP};
    if (opener->stop)
        return true;
    work->task = TASK_CLOSE;
    if (trajd_control_goes_on_without_gpus(control) &&
        (work->producer = trajd_feed_list_remove_on_gpu(&control->feeds)))
        return true;
    work->task = TASK_RELOAD;
    if (control->reload.is_running)
        return true;
    if (opener->request_count) {
        work->task = TASK_OPEN;
        work->request = opener->requests[0];
        memmove(opener->requests, opener->requests + 1,
                --opener->request_count * sizeof work->request);
        return true;
    }
    work->task = TASK_CLOSE;
    if ((work->producer = trajd_feed_list_remove_idle(&control->feeds)))
        return true;
    work->task = TASK_SWEEP;
    return is_sweep_due(control);
}

static void do_work(struct trajd_control *control, struct work *work)
{
    switch (work->task) {
    case TASK_CLOSE:
        close_producer(control, work->producer);
        break;
    case TASK_SWEEP:
        sweep(control);
        break;
    case TASK_RELOAD:
        run_reload(control);
        break;
    case TASK_OPEN:
        serve_request(control, &work->request);
        free_request(&work->request);
        break;
    case TASK_STOP:
        break;
    }
}

static void *run_opener(void *context)
{
    struct trajd_control *control = context;
    struct work work = {.task = TASK_SWEEP};
    struct trajd_progress progress;

    trajd_heartbeat_begin(&control->opener.heartbeat);
    trajd_progress_begin_in_log(&progress, control->log);
    while (work.task != TASK_STOP) {
        pthread_mutex_lock(&control->mutex);
        while (!find_work(control, &work))
            trajd_heartbeat_wait_for(&control->wake, &control->mutex);
        pthread_mutex_unlock(&control->mutex);
        do_work(control, &work);
    }
    return NULL;
}

static enum trajd_status queue_request(struct trajd_control *control,
                                       const struct trajd_server_wanted *request,
                                       struct trajd_error *error)
{
    struct trajd_opener *opener = &control->opener;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&control->mutex);
    if (opener->stop) {
        status = trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending");
    } else if (opener->request_count == TRAJD_CONTROL_MAX_REQUESTS) {
        status = trajd_error_set(error, TRAJD_ERR_BUSY, 0, "%d feeds wait to be opened: try again",
                                 TRAJD_CONTROL_MAX_REQUESTS);
    } else {
        opener->requests[opener->request_count++] = *request;
        pthread_cond_signal(&control->wake);
    }
    pthread_mutex_unlock(&control->mutex);
    return status;
}

/* ---- callbacks of the server, on its thread ---- */

/* Answers with a feed that is already open, so that the request does not wait for another feed's
 * data to load. Returns false where the feed is not open. */
static bool answer_at_once(struct trajd_control *control, uint64_t request, const char *name)
{
    struct trajd_producer *producer;

    pthread_mutex_lock(&control->mutex);
    producer = trajd_feed_list_find(&control->feeds, name);
    if (producer)
        trajd_server_answer(control->server, request, producer->feed, NULL);
    pthread_mutex_unlock(&control->mutex);
    return producer != NULL;
}

static bool copy_text(const char **text)
{
    return !*text || (*text = strdup(*text));
}

void trajd_control_on_open_feed(void *context, const struct trajd_server_wanted *wanted)
{
    struct trajd_control *control = context;
    struct trajd_server_wanted request = *wanted;
    const bool has_name = copy_text(&request.name), has_spec = copy_text(&request.spec),
               has_place = copy_text(&request.place);
    char spec_name[64];
    struct trajd_error error;

    if (wanted->spec)
        trajd_feed_name_of_text(wanted->spec, spec_name, sizeof spec_name);
    if (!wanted->spec || wanted->place || !answer_at_once(control, wanted->request, spec_name)) {
        if (!has_name || !has_spec || !has_place)
            trajd_error_set(&error, TRAJD_ERR_MEMORY, 0, "OPEN: no memory for the request");
        else if (!queue_request(control, &request, &error))
            return;
        trajd_server_answer(control->server, wanted->request, NULL, &error);
    }
    free_request(&request);
}

void trajd_control_on_feed_idle(void *context, struct trajd_feed *feed)
{
    struct trajd_control *control = context;

    pthread_mutex_lock(&control->mutex);
    trajd_feed_list_mark_idle(&control->feeds, feed);
    pthread_cond_signal(&control->wake);
    pthread_mutex_unlock(&control->mutex);
}

/* ---- start and stop ---- */

enum trajd_status trajd_control_start_opener(struct trajd_control *control,
                                             struct trajd_error *error)
{
    const int failed =
        trajd_thread_start(&control->opener.thread, "trajd-open", run_opener, control);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "opener thread: %s",
                               strerror(failed));
    control->opener.is_running = true;
    return TRAJD_OK;
}

void trajd_control_stop_opener(struct trajd_control *control)
{
    struct trajd_opener *opener = &control->opener;

    trajd_heartbeat_cancel(&opener->heartbeat);
    pthread_mutex_lock(&control->mutex);
    opener->stop = true;
    pthread_cond_signal(&control->wake);
    pthread_mutex_unlock(&control->mutex);
    if (opener->is_running)
        pthread_join(opener->thread, NULL);
    for (uint32_t r = 0; r < opener->request_count; r++)
        free_request(&opener->requests[r]);
}
