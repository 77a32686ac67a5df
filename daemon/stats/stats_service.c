#include "daemon/stats/stats_service.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"

/* in memory; the oldest is dropped, and comes from the cache directory again */
#define MAX_KNOWN 256
#define MAX_JOBS 64

struct job {
    const struct trajd_window_plan *plan;
    enum trajd_statistics_subject subject;
    uint32_t index;
    uint64_t fingerprint;
};

struct trajd_statistician {
    struct trajd_statistician_options options;
    pthread_t thread;
    bool running;
    struct trajd_watch own; /* the thread's */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool stop;
    uint32_t known_next;
    struct trajd_statistics *known[MAX_KNOWN];
    uint32_t job_count; /* jobs[0] is under way while `busy` */
    struct job jobs[MAX_JOBS];
    bool busy;
    struct trajd_statistics_watch watch; /* of jobs[0] */
    uint64_t failed_fingerprint;         /* of the last job that failed; 0: told, or none */
    struct trajd_error failure;
};

static struct trajd_statistics *copy_of(const struct trajd_statistics *statistics)
{
    const size_t size =
        sizeof *statistics + statistics->feature_count * sizeof statistics->features[0];
    struct trajd_statistics *copy = malloc(size);

    return copy ? memcpy(copy, statistics, size) : NULL;
}

static struct trajd_statistics *find_known(struct trajd_statistician *statistician,
                                           uint64_t fingerprint)
{
    struct trajd_statistics *found = NULL;

    pthread_mutex_lock(&statistician->mutex);
    for (uint32_t k = 0; k < MAX_KNOWN && !found; k++)
        if (statistician->known[k] && statistician->known[k]->fingerprint == fingerprint)
            found = copy_of(statistician->known[k]);
    pthread_mutex_unlock(&statistician->mutex);
    return found;
}

/* Keeps a copy. */
static void remember(struct trajd_statistician *statistician,
                     const struct trajd_statistics *statistics)
{
    struct trajd_statistics *copy = copy_of(statistics),
                            *known = find_known(statistician, statistics->fingerprint);

    if (copy && !known) {
        pthread_mutex_lock(&statistician->mutex);
        free(statistician->known[statistician->known_next]);
        statistician->known[statistician->known_next] = copy;
        statistician->known_next = (statistician->known_next + 1) % MAX_KNOWN;
        pthread_mutex_unlock(&statistician->mutex);
        copy = NULL;
    }
    free(copy);
    free(known);
}

/* From memory or the cache directory; NULL: to be computed. */
static struct trajd_statistics *look_up(struct trajd_statistician *statistician,
                                        uint64_t fingerprint)
{
    struct trajd_statistics *found = find_known(statistician, fingerprint);

    if (!found &&
        (found = trajd_statistics_load(statistician->options.cache_directory, fingerprint)))
        remember(statistician, found);
    return found;
}

static void keep(struct trajd_statistician *statistician, const struct trajd_statistics *statistics)
{
    remember(statistician, statistics);
    trajd_statistics_save(statistician->options.cache_directory, statistics);
}

/* ---- callers that wait ---- */

const struct trajd_watch *trajd_statistician_watch(const struct trajd_statistician *statistician)
{
    return &statistician->own;
}

bool trajd_statistician_knows(struct trajd_statistician *statistician,
                              const struct trajd_window_plan *plan, uint32_t output_index)
{
    struct trajd_statistics *found =
        look_up(statistician, trajd_statistics_output_fingerprint(plan, output_index));
    const bool known = found != NULL;

    free(found);
    return known;
}

/* Computes those of the outputs that results lacks. */
static enum trajd_status
compute_missing(struct trajd_statistician *statistician, const struct trajd_window_plan *plan,
                struct trajd_statistics_watch *watch, const uint32_t *outputs, uint32_t count,
                struct trajd_statistics **results, struct trajd_error *error)
{
    const struct trajd_statistics_request request = {plan, statistician->options.pool, watch};
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
        keep(statistician, made[i]);
    }
    if (!status)
        LOG(statistician->options.log, INFO,
            "feed %s: statistics of %u outputs over %llu windows in %.1f s", plan->spec->feed_name,
            missing_count, (unsigned long long)made[0]->item_count,
            (double)(trajd_now_ns() - begin_ns) / 1e9);
    return status;
}

enum trajd_status trajd_statistician_compute(struct trajd_statistician *statistician,
                                             const struct trajd_window_plan *plan,
                                             const uint32_t *outputs, uint32_t count,
                                             struct trajd_statistics **results,
                                             struct trajd_error *error)
{
    enum trajd_status status;

    for (uint32_t i = 0; i < count; i++)
        results[i] = look_up(statistician, trajd_statistics_output_fingerprint(plan, outputs[i]));
    status = compute_missing(statistician, plan, NULL, outputs, count, results, error);
    for (uint32_t i = 0; i < count && status; i++) {
        free(results[i]);
        results[i] = NULL;
    }
    return status;
}

void trajd_statistician_stop(struct trajd_statistician *statistician)
{
    trajd_watch_cancel(&statistician->own);
    pthread_mutex_lock(&statistician->mutex);
    statistician->stop = true;
    __atomic_store_n(&statistician->watch.cancel, true, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&statistician->changed);
    pthread_mutex_unlock(&statistician->mutex);
}

/* ---- the thread ---- */

/* The output asked for, and with it all others of the feed that are not pictures: whoever asks for
 * one asks for the rest. */
static enum trajd_status compute_outputs(struct trajd_statistician *statistician,
                                         const struct job *job, struct trajd_error *error)
{
    struct trajd_statistics *results[TRAJD_SPEC_MAX_OUTPUTS] = {NULL};
    uint32_t outputs[TRAJD_SPEC_MAX_OUTPUTS], count = 0;
    enum trajd_status status;

    for (uint32_t o = 0; o < job->plan->output_count; o++) {
        if (o != job->index &&
            (trajd_statistics_is_picture(job->plan, o) ||
             trajd_statistics_output_features(job->plan, o) > TRAJD_STATISTICS_MAX_FEATURES))
            continue;
        results[count] = look_up(statistician, trajd_statistics_output_fingerprint(job->plan, o));
        outputs[count++] = o;
    }
    status = compute_missing(statistician, job->plan, &statistician->watch, outputs, count, results,
                             error);
    for (uint32_t i = 0; i < count; i++)
        free(results[i]);
    return status;
}

static enum trajd_status run_job(struct trajd_statistician *statistician, const struct job *job,
                                 struct trajd_error *error)
{
    const struct trajd_statistics_request request = {job->plan, statistician->options.pool,
                                                     &statistician->watch};
    struct trajd_statistics *result = look_up(statistician, job->fingerprint);
    enum trajd_status status = TRAJD_OK;

    if (!result && job->subject == TRAJD_SUBJECT_OUTPUT) {
        status = compute_outputs(statistician, job, error);
    } else if (!result) {
        status = trajd_statistics_of_stream(&request, job->index, &result, error);
        if (!status)
            keep(statistician, result);
    }
    free(result);
    return status;
}

static void *run_jobs(void *context)
{
    struct trajd_statistician *statistician = context;

    trajd_watch_begin(&statistician->own);
    pthread_mutex_lock(&statistician->mutex);
    for (;;) {
        struct trajd_error error;
        enum trajd_status status;
        struct job job;
        while (!statistician->stop && !statistician->job_count)
            trajd_watch_wait_for(&statistician->changed, &statistician->mutex);
        if (statistician->stop)
            break;
        job = statistician->jobs[0];
        statistician->busy = true;
        statistician->watch = (struct trajd_statistics_watch){0};
        pthread_mutex_unlock(&statistician->mutex);
        status = run_job(statistician, &job, &error);
        if (status && status != TRAJD_ERR_CLOSED)
            LOG(statistician->options.log, WARNING, "feed %s: statistics: %s",
                job.plan->spec->feed_name, error.message);
        pthread_mutex_lock(&statistician->mutex);
        if (status && status != TRAJD_ERR_CLOSED) {
            statistician->failed_fingerprint = job.fingerprint;
            statistician->failure = error;
        }
        statistician->busy = false;
        memmove(statistician->jobs, statistician->jobs + 1, --statistician->job_count * sizeof job);
        pthread_cond_broadcast(&statistician->changed);
    }
    pthread_mutex_unlock(&statistician->mutex);
    return NULL;
}

static enum trajd_status start_thread(struct trajd_statistician *statistician,
                                      struct trajd_error *error)
{
    const int failed =
        trajd_thread_start(&statistician->thread, "trajd-stats", run_jobs, statistician);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "statistics' thread: %s",
                               strerror(failed));
    statistician->running = true;
    return TRAJD_OK;
}

enum trajd_status trajd_statistician_create(const struct trajd_statistician_options *options,
                                            struct trajd_statistician **out,
                                            struct trajd_error *error)
{
    struct trajd_statistician *statistician = calloc(1, sizeof *statistician);
    enum trajd_status status;

    *out = NULL;
    if (!statistician)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
    statistician->options = *options;
    pthread_mutex_init(&statistician->mutex, NULL);
    trajd_watch_init_condition(&statistician->changed);
    status = start_thread(statistician, error);
    if (status)
        trajd_statistician_destroy(&statistician);
    *out = statistician;
    return status;
}

void trajd_statistician_destroy(struct trajd_statistician **out)
{
    struct trajd_statistician *statistician = *out;

    *out = NULL;
    if (!statistician)
        return;
    trajd_statistician_stop(statistician);
    if (statistician->running)
        pthread_join(statistician->thread, NULL);
    for (uint32_t k = 0; k < MAX_KNOWN; k++)
        free(statistician->known[k]);
    pthread_cond_destroy(&statistician->changed);
    pthread_mutex_destroy(&statistician->mutex);
    free(statistician);
}

/* ---- callers that do not wait ---- */

/* Where the job stands, or its failure. With the mutex held. */
static enum trajd_status enqueue(struct trajd_statistician *statistician, const struct job *job,
                                 uint32_t *permille, struct trajd_error *error)
{
    *permille = 0;
    if (statistician->failed_fingerprint == job->fingerprint) {
        statistician->failed_fingerprint = 0;
        *error = statistician->failure;
        return error->status;
    }
    for (uint32_t j = 0; j < statistician->job_count; j++)
        if (statistician->jobs[j].fingerprint == job->fingerprint &&
            statistician->jobs[j].plan == job->plan) {
            *permille =
                j == 0 ? __atomic_load_n(&statistician->watch.permille, __ATOMIC_RELAXED) : 0;
            return TRAJD_OK;
        }
    if (statistician->stop)
        return trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "the daemon is ending");
    if (statistician->job_count == MAX_JOBS)
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0,
                               "%d statistics wait to be computed: try again", MAX_JOBS);
    statistician->jobs[statistician->job_count++] = *job;
    pthread_cond_broadcast(&statistician->changed);
    return TRAJD_OK;
}

enum trajd_status trajd_statistician_ask(struct trajd_statistician *statistician,
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
    *result = look_up(statistician, job.fingerprint);
    if (*result)
        return TRAJD_OK;
    pthread_mutex_lock(&statistician->mutex);
    status = enqueue(statistician, &job, permille, error);
    pthread_mutex_unlock(&statistician->mutex);
    return status;
}

void trajd_statistician_forget(struct trajd_statistician *statistician,
                               const struct trajd_window_plan *plan)
{
    pthread_mutex_lock(&statistician->mutex);
    for (uint32_t j = statistician->busy; j < statistician->job_count;)
        if (statistician->jobs[j].plan == plan)
            memmove(statistician->jobs + j, statistician->jobs + j + 1,
                    (--statistician->job_count - j) * sizeof statistician->jobs[0]);
        else
            j++;
    while (statistician->busy && statistician->jobs[0].plan == plan) {
        __atomic_store_n(&statistician->watch.cancel, true, __ATOMIC_RELAXED);
        trajd_watch_wait_for(&statistician->changed, &statistician->mutex);
    }
    pthread_mutex_unlock(&statistician->mutex);
}
