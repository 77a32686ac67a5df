/* The threads that make rows, and the calling thread, which reports progress, writes the journal
 * and checks for cancellation. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"
#include "daemon/base/clock.h"

enum { THREADS_MAX = 64, WAIT_MS = 50 };

static const int64_t progress_pause_ns = 250000000, commit_pause_ns = 1000000000;
static const uint64_t commit_bytes = UINT64_C(16) << 20;

static bool is_cancelled(const struct conversion *r)
{
    return r->options->cancel && __atomic_load_n(r->options->cancel, __ATOMIC_RELAXED);
}

static void finish_segment(struct conversion *r, const struct convert_segment *segment)
{
    if (--r->remaining[segment->episode] == 0) {
        r->finished[r->finished_count++] = segment->episode;
        pthread_cond_signal(&r->changed);
    }
}

static void *work(void *context)
{
    struct conversion *r = context;
    struct convert_worker *worker = NULL;
    struct convert_segment segment;
    struct trajd_error error;
    enum trajd_status status =
        convert_worker_create(&r->plan, r->groups, r->fd, r->has_spool ? &r->spool : NULL,
                              &r->backend, r->nan_steps, &r->counts, &worker, &error);

    pthread_mutex_lock(&r->lock);
    while (!status && !r->stop && convert_cursor_next(&r->cursor, &segment)) {
        pthread_mutex_unlock(&r->lock);
        status = convert_worker_run(worker, &segment, &error);
        pthread_mutex_lock(&r->lock);
        if (!status)
            finish_segment(r, &segment);
    }
    if (status && !r->status) {
        r->status = status;
        r->worker_error = error;
    }
    r->stop = r->stop || status;
    r->running--;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    convert_worker_destroy(&worker);
    return NULL;
}

/* Appends finished episodes to the journal, after their rows are on the disk. The caller holds the
 * lock; it is released during the writes. */
enum trajd_status convert_commit(struct conversion *r)
{
    const uint32_t until = r->finished_count;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_unlock(&r->lock);
    if (fdatasync(r->fd) || (r->has_spool && fdatasync(r->spool_fd)))
        status = convert_io_error(r, r->partial);
    for (uint32_t i = r->committed_count; i < until && !status; i++)
        status =
            convert_journal_append(r->journal_fd, &r->plan, r->finished[i],
                                   r->has_spool ? r->spool.chunks[r->finished[i]] : NULL, r->error);
    if (!status && fdatasync(r->journal_fd))
        status = convert_io_error(r, r->journal_path);
    pthread_mutex_lock(&r->lock);
    if (!status)
        r->committed_count = until;
    return status;
}

/* Sends a note if the backend has failed. Only the calling thread sends notes. */
static void note_backend_failure(struct conversion *r)
{
    /* acquire: `failure` was filled before */
    if (r->noted_backend_failure || !__atomic_load_n(&r->backend.has_failed, __ATOMIC_ACQUIRE))
        return;
    r->noted_backend_failure = true;
    convert_note(r->options, "%s: the CPU continues", r->backend.failure.message);
}

/* Waits for the workers. Meanwhile reports progress, writes the journal, and checks for
 * cancellation. */
static enum trajd_status supervise(struct conversion *r)
{
    int64_t progress_ns = trajd_now_ns(), committed_ns = progress_ns;
    uint64_t committed_bytes = 0;
    enum trajd_status status = TRAJD_OK;

    pthread_mutex_lock(&r->lock);
    while (r->running) {
        const uint64_t bytes = __atomic_load_n(&r->counts.bytes_written, __ATOMIC_RELAXED);
        struct timespec until;
        if (is_cancelled(r) && !r->stop) {
            r->stop = true;
            status = trajd_error_set(r->error, TRAJD_ERR_CLOSED, 0, "interrupted");
        }
        if (!r->stop && r->finished_count > r->committed_count &&
            (trajd_now_ns() - committed_ns >= commit_pause_ns ||
             bytes - committed_bytes >= commit_bytes)) {
            status = convert_commit(r);
            r->stop = r->stop || status;
            committed_ns = trajd_now_ns();
            committed_bytes = bytes;
        }
        if (trajd_now_ns() - progress_ns >= progress_pause_ns) {
            progress_ns = trajd_now_ns();
            convert_report_progress(r, TRAJD_CONVERT_RUNNING);
            note_backend_failure(r);
        }
        until = trajd_deadline(WAIT_MS);
        if (r->running)
            pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    note_backend_failure(r);
    if (r->status) {
        status = r->status;
        *r->error = r->worker_error;
    }
    if (r->finished_count > r->committed_count &&
        (status == TRAJD_ERR_CLOSED || status == TRAJD_ERR_DATA || status == TRAJD_ERR_DEVICE)) {
        struct trajd_error kept = *r->error;
        convert_commit(r);
        *r->error = kept;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

uint32_t convert_thread_count(const struct conversion *r)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t count = r->options->thread_count ? r->options->thread_count
                           : processors > 0         ? (uint32_t)processors
                                                    : 1;

    return count > THREADS_MAX ? THREADS_MAX : count;
}

enum trajd_status convert_write_rows(struct conversion *r)
{
    uint32_t count = convert_backend_threads(&r->backend, convert_thread_count(r));
    int code = 0;
    pthread_t threads[THREADS_MAX];
    enum trajd_status status;
    sigset_t all, before;

    for (uint32_t e = 0; e < r->plan.episode_count; e++)
        r->remaining[e] = convert_segment_count(&r->plan, r->groups, r->group_count, e);
    r->cursor = (struct convert_cursor){
        .plan = &r->plan, .group_count = r->group_count, .groups = r->groups, .done = r->done};
    r->began_rows = true;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_mutex_lock(&r->lock);
    while (r->running < count && !(code = pthread_create(&threads[r->running], NULL, work, r)))
        r->running++;
    count = r->running;
    pthread_mutex_unlock(&r->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!count)
        return trajd_error_set(r->error, TRAJD_ERR_SYSTEM, code, "cannot start a thread: %s",
                               strerror(code));
    status = supervise(r);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return status;
}
