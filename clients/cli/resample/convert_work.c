/* Writes one file: threads make rows in blocks of shared memory, and the calling thread passes the
 * blocks to the helper program, reports progress and checks for cancellation. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"
#include "clients/cli/resample/convert_structure.h"
#include "daemon/base/clock.h"
#include "daemon/base/memory.h"

enum { WAIT_MS = 50, BLOCKS_AHEAD = 2 };

static const int64_t progress_pause_ns = 250000000;
static const uint64_t block_bytes_usual = UINT64_C(4) << 20, memory_bytes_max = UINT64_C(512) << 20;

struct work {
    struct conversion *r;
    struct convert_writer writer;
    struct convert_structure structure;
    int fd, wake; /* the output; an eventfd that threads write to */
    /* Shared by the threads. `lock` protects the members from here on. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t segment_count, next; /* next: is to be made */
    struct convert_segment *segments;
    uint64_t *remaining; /* [episode_count]: segments that are not finished */
    struct convert_block *ready[CONVERT_BLOCKS_MAX], *free[CONVERT_BLOCKS_MAX];
    uint32_t ready_count, free_count, running;
    bool stop;
    enum trajd_status status; /* of the thread that failed first */
    struct trajd_error error;
};

/* ---- progress ---- */

void convert_report_progress(struct conversion *r, enum trajd_convert_phase phase)
{
    const struct trajd_convert_progress progress = {
        .phase = phase,
        .episode_count = r->report->episode_count,
        .byte_count = r->report->byte_count,
        .episodes_done = __atomic_load_n(&r->report->episodes_written, __ATOMIC_RELAXED),
        .bytes_done = __atomic_load_n(&r->report->bytes_written, __ATOMIC_RELAXED)};

    if (r->options->on_progress)
        r->options->on_progress(r->options->context, &progress);
}

/* ---- threads ---- */

/* Gives a filled block to the calling thread. The caller holds the lock. */
static void give(struct work *w, struct convert_block *block)
{
    w->ready[w->ready_count++] = block;
    eventfd_write(w->wake, 1);
}

static struct convert_block *exchange(void *context, struct convert_block *block)
{
    struct work *w = context;

    pthread_mutex_lock(&w->lock);
    if (block)
        give(w, block);
    while (!w->free_count && !w->stop)
        pthread_cond_wait(&w->changed, &w->lock);
    block = w->stop ? NULL : w->free[--w->free_count];
    pthread_mutex_unlock(&w->lock);
    return block;
}

static void *make_rows(void *context)
{
    struct work *w = context;
    struct conversion *r = w->r;
    struct trajd_error error;
    struct convert_worker worker = {.plan = &r->plan,
                                    .sink = {.exchange = exchange, .context = w},
                                    .report = r->report,
                                    .error = &error,
                                    .engine.backend = &r->backend};
    enum trajd_status status = TRAJD_OK;

    convert_worker_begin(&worker);
    pthread_mutex_lock(&w->lock);
    while (!status && !w->stop && w->next < w->segment_count) {
        const struct convert_segment *segment = &w->segments[w->next++];
        pthread_mutex_unlock(&w->lock);
        status = convert_worker_run(&worker, segment);
        pthread_mutex_lock(&w->lock);
        if (!status && --w->remaining[segment->episode] == 0)
            __atomic_fetch_add(&r->report->episodes_written, 1, __ATOMIC_RELAXED);
    }
    if (worker.block)
        give(w, worker.block);
    if (status && !w->stop) {
        w->status = status;
        w->error = error;
        w->stop = true;
        pthread_cond_broadcast(&w->changed);
    }
    w->running--;
    eventfd_write(w->wake, 1);
    pthread_mutex_unlock(&w->lock);
    convert_worker_end(&worker);
    return NULL;
}

/* ---- the calling thread ---- */

/* Sends a block, after the episodes that its rows belong to. */
static enum trajd_status send_block(struct work *w, struct convert_block *block)
{
    uint32_t episode = 0;
    enum trajd_status status;

    for (uint32_t i = 0; i < block->count; i++)
        episode = block->rows[i].episode > episode ? block->rows[i].episode : episode;
    status = convert_structure_reach(&w->structure, episode);
    return status ? status : convert_writer_send_block(&w->writer, block);
}

/* Waits until the helper answers or a thread has something, and takes one answer. */
static enum trajd_status wait_for_event(struct work *w, bool is_busy)
{
    struct pollfd polled[2] = {{.fd = w->writer.socket, .events = POLLIN},
                               {.fd = w->wake, .events = POLLIN}};
    eventfd_t count;

    if (poll(polled, 2, is_busy ? 0 : WAIT_MS) <= 0)
        return TRAJD_OK;
    if (polled[1].revents)
        eventfd_read(w->wake, &count);
    if (!polled[0].revents)
        return TRAJD_OK;
    /* lets the disk begin, so that the last sync does not wait for all rows */
    sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return convert_writer_receive(&w->writer);
}

/* Exchanges blocks between the helper and the threads. *block: one to send, or NULL. Returns
 * whether threads still work, or blocks wait. */
static bool exchange_blocks(struct work *w, struct convert_block **block, enum trajd_status *status)
{
    bool goes_on;

    pthread_mutex_lock(&w->lock);
    if (w->writer.free_count) {
        memcpy(w->free + w->free_count, w->writer.free, w->writer.free_count * sizeof *w->free);
        w->free_count += w->writer.free_count;
        w->writer.free_count = 0;
        pthread_cond_broadcast(&w->changed);
    }
    goes_on = w->running || w->ready_count;
    *block = w->ready_count ? w->ready[0] : NULL;
    if (*block)
        memmove(w->ready, w->ready + 1, --w->ready_count * sizeof *w->ready);
    if (w->status) {
        *status = w->status;
        *w->r->error = w->error;
    }
    pthread_mutex_unlock(&w->lock);
    return goes_on;
}

/* Passes blocks to the helper until all threads have ended. */
static enum trajd_status supervise(struct work *w)
{
    const bool *cancel = w->r->options->cancel;
    int64_t progress_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;
    struct convert_block *block;

    while (exchange_blocks(w, &block, &status) && !status) {
        if (block)
            status = send_block(w, block);
        if (!status)
            status = wait_for_event(w, block != NULL);
        if (!status && cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED))
            status = trajd_error_set(w->r->error, TRAJD_ERR_CLOSED, 0, "interrupted");
        if (trajd_now_ns() - progress_ns < progress_pause_ns)
            continue;
        progress_ns = trajd_now_ns();
        convert_report_progress(w->r, TRAJD_CONVERT_RUNNING);
    }
    return status;
}

/* Allocates the blocks of rows that are not compressed, so that a disk that is too small is an
 * error at the begin. The helper starts and empties the file while threads make the first rows. */
static enum trajd_status reserve_disk(struct work *w)
{
    const struct convert_plan *plan = &w->r->plan;
    enum trajd_status status = convert_writer_wait_ready(&w->writer);
    uint64_t bytes = 0;

    if (status)
        return status;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t a = 0; a < plan->episodes[e].array_count; a++) {
            const struct convert_dataset *dataset =
                &plan->datasets[plan->episodes[e].arrays[a].dataset];
            if (!dataset->is_compressed)
                bytes += dataset->row_bytes * plan->episodes[e].step_count;
        }
    if (!bytes || !fallocate(w->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) ||
        (errno != ENOSPC && errno != EDQUOT && errno != EFBIG))
        return TRAJD_OK;
    return trajd_error_set(w->r->error, TRAJD_ERR_IO, errno, "%s: %s", w->writer.output,
                           strerror(errno));
}

static enum trajd_status run_threads(struct work *w)
{
    const struct conversion *r = w->r;
    uint32_t wanted = convert_backend_threads(&r->backend);
    uint32_t count = 0;
    int code = 0;
    pthread_t threads[CONVERT_THREADS_MAX];
    enum trajd_status status;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_mutex_lock(&w->lock);
    while (count < wanted && !(code = pthread_create(&threads[count], NULL, make_rows, w)))
        count++;
    w->running = count;
    pthread_mutex_unlock(&w->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!count)
        return trajd_error_set(r->error, TRAJD_ERR_SYSTEM, code, "cannot start a thread: %s",
                               strerror(code));
    status = reserve_disk(w);
    if (!status)
        status = supervise(w);
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return status;
}

/* ---- one file ---- */

/* Shares memory for each thread's block and for those that are being written. */
static enum trajd_status share_memory(struct work *w)
{
    const struct conversion *r = w->r;
    uint64_t bytes, least = convert_segment_bytes(&r->plan),
                    count = convert_backend_threads(&r->backend) + BLOCKS_AHEAD;

    /* deflate can make incompressible rows a little larger */
    least = (least + least / 64 + 8191) / 4096 * 4096;
    /* each array begins at a multiple of 64 bytes */
    bytes = (r->plan.byte_count + 64 * CONVERT_BLOCK_ROWS) / 4096 * 4096;
    bytes = bytes < block_bytes_usual ? bytes : block_bytes_usual;
    bytes = bytes > least ? bytes : least;
    if (count > memory_bytes_max / bytes)
        count = memory_bytes_max / bytes;
    return convert_writer_share(&w->writer, bytes, least, count ? (uint32_t)count : 1);
}

static void note_from_helper(void *context, const char *text)
{
    convert_note(context, "%s", text);
}

/* After an error nothing of the output is left, so nothing counts, however far the threads came. */
static void count_nothing(struct conversion *r)
{
    struct trajd_convert_report *report = r->report;

    report->rows_read = report->rows_written = report->bytes_read = report->bytes_written = 0;
    report->episodes_written = r->backend.segments = r->backend.segments_here = 0;
    for (uint32_t s = 0; s < r->plan.stream_count; s++)
        r->plan.streams[s]->nan_steps = 0;
}

static const char *output_name(const struct trajd_convert_options *options)
{
    return options->output_name ? options->output_name : options->output;
}

enum trajd_status convert_write_file(struct conversion *r, int fd)
{
    struct work w = {.r = r,
                     .writer = {.helper_path = r->options->helper_path,
                                .output = output_name(r->options),
                                .cancel = r->options->cancel,
                                .on_note = note_from_helper,
                                .context = (void *)r->options,
                                .error = r->error,
                                .socket = -1},
                     .fd = fd};
    enum trajd_status status;

    w.structure = (struct convert_structure){.writer = &w.writer, .plan = &r->plan};
    w.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w.remaining = trajd_memory_or_exit(calloc(r->plan.episode_count, sizeof *w.remaining));
    w.segments = convert_segments_list(&r->plan, &w.segment_count);
    for (uint64_t s = 0; s < w.segment_count; s++)
        w.remaining[w.segments[s].episode]++;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    status = convert_structure_begin(&w.structure, fd);
    if (!status)
        status = share_memory(&w);
    if (!status)
        status = run_threads(&w);
    if (!status)
        status = convert_structure_end(&w.structure);
    convert_writer_kill(&w.writer); /* it ends while the disk works */
    if (!status && fsync(fd))
        status = trajd_error_set(r->error, TRAJD_ERR_IO, errno, "%s: %s", output_name(r->options),
                                 strerror(errno));
    if (status)
        count_nothing(r);
    convert_writer_end(&w.writer);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
    close(w.wake);
    free(w.remaining);
    free(w.segments);
    return status;
}
