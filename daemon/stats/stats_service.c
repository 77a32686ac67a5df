/* Keeps computed statistics, answers queries about them, and computes missing ones in its
 * thread. */
#include "daemon/stats/stats_service.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/progress/progress.h"
#include "daemon/base/heartbeat.h"
#include "proto/plural.h"

/* in memory; the oldest is dropped, and the cache directory still has it */
#define MAX_KNOWN 256
#define MAX_JOBS 64

struct job {
    const struct trajd_window_plan *plan;
    enum trajd_statistics_subject subject;
    uint32_t index;
    uint64_t fingerprint;
};

struct trajd_stats_service {
    struct trajd_stats_service_options options;
    pthread_t thread;
    bool running;
    struct trajd_heartbeat own; /* of this service's thread */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool stop;
    uint32_t known_next;
    struct trajd_statistics *known[MAX_KNOWN];
    uint32_t job_count; /* jobs[0] is being computed while `busy` */
    struct job jobs[MAX_JOBS];
    bool busy;
    struct trajd_stats_heartbeat heartbeat; /* of jobs[0] */
    uint64_t failed_fingerprint; /* of the last job that failed; 0: none, or already reported */
    struct trajd_error failure;
};

static struct trajd_statistics *copy_of(const struct trajd_statistics *statistics)
{
    const size_t size =
        sizeof *statistics + statistics->feature_count * sizeof statistics->features[0];
    struct trajd_statistics *copy = malloc(size);

    return copy ? memcpy(copy, statistics, size) : NULL;
}

static struct trajd_statistics *find_known(struct trajd_stats_service *stats_service,
                                           uint64_t fingerprint)
{
    struct trajd_statistics *found = NULL;

    pthread_mutex_lock(&stats_service->mutex);
    for (uint32_t k = 0; k < MAX_KNOWN && !found; k++)
        if (stats_service->known[k] && stats_service->known[k]->fingerprint == fingerprint)
            found = copy_of(stats_service->known[k]);
    pthread_mutex_unlock(&stats_service->mutex);
    return found;
}

/* Keeps a copy in memory. */
static void remember(struct trajd_stats_service *stats_service,
                     const struct trajd_statistics *statistics)
{
    struct trajd_statistics *copy = copy_of(statistics),
                            *known = find_known(stats_service, statistics->fingerprint);

    if (copy && !known) {
        pthread_mutex_lock(&stats_service->mutex);
        free(stats_service->known[stats_service->known_next]);
        stats_service->known[stats_service->known_next] = copy;
        stats_service->known_next = (stats_service->known_next + 1) % MAX_KNOWN;
        pthread_mutex_unlock(&stats_service->mutex);
        copy = NULL;
    }
    free(copy);
    free(known);
}

/* Returns statistics from memory or the cache directory. NULL: they must be computed. */
static struct trajd_statistics *look_up(struct trajd_stats_service *stats_service,
                                        uint64_t fingerprint)
{
    struct trajd_statistics *found = find_known(stats_service, fingerprint);

    if (!found &&
        (found = trajd_statistics_load(stats_service->options.cache_directory, fingerprint)))
        remember(stats_service, found);
    return found;
}

static void remember_and_save(struct trajd_stats_service *stats_service,
                              const struct trajd_statistics *statistics)
{
    remember(stats_service, statistics);
    trajd_statistics_save(stats_service->options.cache_directory, statistics);
}

/* ---- callers that wait ---- */

const struct trajd_heartbeat *
trajd_stats_service_heartbeat(const struct trajd_stats_service *stats_service)
{
    return &stats_service->own;
}

bool trajd_stats_service_knows(struct trajd_stats_service *stats_service,
                               const struct trajd_window_plan *plan, uint32_t output_index)
{
    struct trajd_statistics *found =
        look_up(stats_service, trajd_statistics_output_fingerprint(plan, output_index));
    const bool known = found != NULL;

    free(found);
    return known;
}

/* Computes the outputs whose results are NULL. */
static enum trajd_status
compute_missing(struct trajd_stats_service *stats_service, const struct trajd_window_plan *plan,
                struct trajd_stats_heartbeat *heartbeat, const uint32_t *outputs, uint32_t count,
                struct trajd_statistics **results, struct trajd_error *error)
{
    const struct trajd_statistics_request request = {plan, stats_service->options.pool, heartbeat};
    uint32_t missing[TRAJD_SPEC_MAX_OUTPUTS], places[TRAJD_SPEC_MAX_OUTPUTS], missing_count = 0;
    struct trajd_statistics *made[TRAJD_SPEC_MAX_OUTPUTS];
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        if (!results[i]) {
            places[missing_count] = i;
            missing[missing_count++] = outputs[i];
        }
    if (!missing_count)
        return TRAJD_OK;
    status = trajd_statistics_of_outputs(&request, missing, missing_count, made, error);
    for (uint32_t i = 0; i < missing_count && !status; i++) {
        results[places[i]] = made[i];
        remember_and_save(stats_service, made[i]);
    }
    if (!status)
        LOG(stats_service->options.log, INFO,
            "feed %s: statistics of %u output%s over %llu %s%s in %.1f s", plan->spec->feed_name,
            missing_count, trajd_plural(missing_count), (unsigned long long)made[0]->item_count,
            made[0]->source == TRAJD_STATISTICS_ROWS ? "row" : "window",
            trajd_plural(made[0]->item_count), (double)(trajd_now_ns() - begin_ns) / 1e9);
    return status;
}

enum trajd_status trajd_stats_service_compute(struct trajd_stats_service *stats_service,
                                              const struct trajd_window_plan *plan,
                                              const uint32_t *outputs, uint32_t count,
                                              struct trajd_statistics **results,
                                              struct trajd_error *error)
{
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        results[i] = look_up(stats_service, trajd_statistics_output_fingerprint(plan, outputs[i]));
    status = compute_missing(stats_service, plan, NULL, outputs, count, results, error);
    for (uint32_t i = 0; i < count && status; i++) {
        free(results[i]);
        results[i] = NULL;
    }
    return status;
}

void trajd_stats_service_stop(struct trajd_stats_service *stats_service)
{
    trajd_heartbeat_cancel(&stats_service->own);
    pthread_mutex_lock(&stats_service->mutex);
    stats_service->stop = true;
    __atomic_store_n(&stats_service->heartbeat.cancel, true, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&stats_service->changed);
    pthread_mutex_unlock(&stats_service->mutex);
}

/* ---- the thread ---- */

/* Computes the requested output, and with it all other outputs of the feed that the dataset has and
 * that are not images: a client that asks for one usually asks for all. */
static enum trajd_status compute_outputs(struct trajd_stats_service *stats_service,
                                         const struct job *job, struct trajd_error *error)
{
    struct trajd_statistics *results[TRAJD_SPEC_MAX_OUTPUTS] = {NULL};
    uint32_t outputs[TRAJD_SPEC_MAX_OUTPUTS], count = 0;
    enum trajd_status status;

    for (uint32_t o = 0; o < job->plan->rules.visible_count; o++) {
        if (o != job->index && !trajd_statistics_are_cheap(job->plan, o))
            continue;
        results[count] = look_up(stats_service, trajd_statistics_output_fingerprint(job->plan, o));
        outputs[count++] = o;
    }
    status = compute_missing(stats_service, job->plan, &stats_service->heartbeat, outputs, count,
                             results, error);
    for (uint32_t i = 0; i < count; i++)
        free(results[i]);
    return status;
}

static enum trajd_status run_job(struct trajd_stats_service *stats_service, const struct job *job,
                                 struct trajd_error *error)
{
    const struct trajd_statistics_request request = {job->plan, stats_service->options.pool,
                                                     &stats_service->heartbeat};
    struct trajd_statistics *result = look_up(stats_service, job->fingerprint);
    enum trajd_status status = TRAJD_OK;

    if (!result && job->subject == TRAJD_SUBJECT_OUTPUT) {
        status = compute_outputs(stats_service, job, error);
    } else if (!result) {
        status = trajd_statistics_of_stream(&request, job->index, &result, error);
        if (!status)
            remember_and_save(stats_service, result);
    }
    free(result);
    return status;
}

static void *run_jobs(void *context)
{
    struct trajd_stats_service *stats_service = context;
    struct trajd_progress progress;

    trajd_heartbeat_begin(&stats_service->own);
    trajd_progress_begin_in_log(&progress, stats_service->options.log);
    pthread_mutex_lock(&stats_service->mutex);
    for (;;) {
        struct trajd_error error;
        enum trajd_status status;
        struct job job;
        while (!stats_service->stop && !stats_service->job_count)
            trajd_heartbeat_wait_for(&stats_service->changed, &stats_service->mutex);
        if (stats_service->stop)
            break;
        job = stats_service->jobs[0];
        stats_service->busy = true;
        stats_service->heartbeat = (struct trajd_stats_heartbeat){0};
        pthread_mutex_unlock(&stats_service->mutex);
        status = run_job(stats_service, &job, &error);
        if (status && status != TRAJD_ERR_CLOSED)
            LOG(stats_service->options.log, WARNING, "feed %s: statistics: %s",
                job.plan->spec->feed_name, error.message);
        pthread_mutex_lock(&stats_service->mutex);
        if (status && status != TRAJD_ERR_CLOSED) {
            stats_service->failed_fingerprint = job.fingerprint;
            stats_service->failure = error;
        }
        stats_service->busy = false;
        memmove(stats_service->jobs, stats_service->jobs + 1,
                --stats_service->job_count * sizeof job);
        pthread_cond_broadcast(&stats_service->changed);
    }
    pthread_mutex_unlock(&stats_service->mutex);
    return NULL;
}

static enum trajd_status start_thread(struct trajd_stats_service *stats_service,
                                      struct trajd_error *error)
{
    const int failed =
        trajd_thread_start(&stats_service->thread, "trajd-stats", run_jobs, stats_service);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed,
                               "cannot start the thread for statistics: %s", strerror(failed));
    stats_service->running = true;
    return TRAJD_OK;
}

enum trajd_status trajd_stats_service_create(const struct trajd_stats_service_options *options,
                                             struct trajd_stats_service **out,
                                             struct trajd_error *error)
{
    struct trajd_stats_service *stats_service = calloc(1, sizeof *stats_service);
    enum trajd_status status;

    *out = NULL;
    if (!stats_service)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
    stats_service->options = *options;
    pthread_mutex_init(&stats_service->mutex, NULL);
    trajd_heartbeat_init_condition(&stats_service->changed);
    status = start_thread(stats_service, error);
    if (status)
        trajd_stats_service_destroy(&stats_service);
    *out = stats_service;
    return status;
}

void trajd_stats_service_destroy(struct trajd_stats_service **out)
{
    struct trajd_stats_service *stats_service = *out;

    *out = NULL;
    if (!stats_service)
        return;
    trajd_stats_service_stop(stats_service);
    if (stats_service->running)
        pthread_join(stats_service->thread, NULL);
    for (uint32_t k = 0; k < MAX_KNOWN; k++)
        free(stats_service->known[k]);
    pthread_cond_destroy(&stats_service->changed);
    pthread_mutex_destroy(&stats_service->mutex);
    free(stats_service);
}

/* ---- callers that do not wait ---- */

/* Adds a job unless it is queued. Returns its progress, or its failure. The caller holds the
 * mutex. */
static enum trajd_status enqueue(struct trajd_stats_service *stats_service, const struct job *job,
                                 uint32_t *permille, struct trajd_error *error)
{
    *permille = 0;
    if (stats_service->failed_fingerprint == job->fingerprint) {
        stats_service->failed_fingerprint = 0;
        *error = stats_service->failure;
        return error->status;
    }
    for (uint32_t j = 0; j < stats_service->job_count; j++)
        if (stats_service->jobs[j].fingerprint == job->fingerprint &&
            stats_service->jobs[j].plan == job->plan) {
            *permille =
                j == 0 ? __atomic_load_n(&stats_service->heartbeat.permille, __ATOMIC_RELAXED) : 0;
            return TRAJD_OK;
        }
    if (stats_service->stop)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending");
    if (stats_service->job_count == MAX_JOBS)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "%d statistics are queued already: try again later", MAX_JOBS);
    stats_service->jobs[stats_service->job_count++] = *job;
    pthread_cond_broadcast(&stats_service->changed);
    return TRAJD_OK;
}

enum trajd_status trajd_stats_service_request(struct trajd_stats_service *stats_service,
                                              const struct trajd_window_plan *plan,
                                              enum trajd_statistics_subject subject, uint32_t index,
                                              struct trajd_statistics **result, uint32_t *permille,
                                              struct trajd_error *error)
{
    const struct job job = {plan, subject, index,
                            subject == TRAJD_SUBJECT_OUTPUT
                                ? trajd_statistics_output_fingerprint(plan, index)
                                : trajd_statistics_stream_fingerprint(plan, index)};
    enum trajd_status status;

    *permille = 1000;
    *result = look_up(stats_service, job.fingerprint);
    if (*result)
        return TRAJD_OK;
    pthread_mutex_lock(&stats_service->mutex);
    status = enqueue(stats_service, &job, permille, error);
    pthread_mutex_unlock(&stats_service->mutex);
    return status;
}

void trajd_stats_service_forget(struct trajd_stats_service *stats_service,
                                const struct trajd_window_plan *plan)
{
    pthread_mutex_lock(&stats_service->mutex);
    for (uint32_t j = stats_service->busy; j < stats_service->job_count;)
        if (stats_service->jobs[j].plan == plan)
            memmove(stats_service->jobs + j, stats_service->jobs + j + 1,
                    (--stats_service->job_count - j) * sizeof stats_service->jobs[0]);
        else
            j++;
    while (stats_service->busy && stats_service->jobs[0].plan == plan) {
        __atomic_store_n(&stats_service->heartbeat.cancel, true, __ATOMIC_RELAXED);
        trajd_heartbeat_wait_for(&stats_service->changed, &stats_service->mutex);
    }
    pthread_mutex_unlock(&stats_service->mutex);
}
