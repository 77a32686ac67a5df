/* The two threads of production on a GPU: the producer's thread prepares batches, the launcher
 * launches them and publishes those that the GPU has finished. */
#include "daemon/producer/producer_gpu.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/heartbeat.h"
#include "daemon/producer/gpu_images.h"
#include "kernels/dispatch/plan.h"

#define SPIN_NS 50000 /* a batch of low-dimensional windows is finished before that */
#define LONGEST_PAUSE_NS 200000
#define TURN_MS 500

/* ---- launching and publishing ---- */

static void publish(struct trajd_producer *producer, const struct trajd_gpu_batch *gpu_batch)
{
    const struct trajd_error *failure = gpu_batch->error.status ? &gpu_batch->error : NULL;

    if (failure && failure->status == TRAJD_ERR_CLOSED &&
        __atomic_load_n(&producer->stop, __ATOMIC_RELAXED))
        return; /* the producer is being destroyed: no worker waits for the slot */
    trajd_producer_publish(producer, &gpu_batch->fill, failure);
}

/* Stores why the batch cannot be made; its worker gets the error when the batch is published.
 * Returns TRAJD_ERR_DEVICE where the GPU has failed, else TRAJD_OK. */
static enum trajd_status record_failure(struct trajd_gpu_batch *gpu_batch, enum trajd_status status,
                                        const struct trajd_error *error)
{
    if (status && !gpu_batch->error.status)
        gpu_batch->error = *error;
    return status == TRAJD_ERR_DEVICE ? status : TRAJD_OK;
}

static enum trajd_status launch_batch(struct trajd_producer *producer,
                                      struct trajd_gpu_batch *gpu_batch, struct trajd_error *error)
{
    const struct trajd_producer_gpu *own = producer->on_gpu;
    const enum trajd_status status = trajd_producer_gpu_launch(producer, gpu_batch, error);

    return !status && own->images ? trajd_gpu_images_launch(own->images, gpu_batch, error) : status;
}

/* Launches all prepared batches, one after the other. */
static enum trajd_status launch(struct trajd_producer *producer, uint64_t prepared,
                                struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;

    for (; own->launched < prepared && !status; own->launched++) {
        struct trajd_gpu_batch *gpu_batch = &own->batches[own->launched % own->depth];
        if (!gpu_batch->error.status)
            status = record_failure(gpu_batch, launch_batch(producer, gpu_batch, error), error);
        if (!status)
            status = trajd_device_event_record(gpu_batch->finished, own->stream, error);
    }
    trajd_producer_count_time(producer, TRAJD_PRODUCER_RESAMPLE_NS, begin_ns);
    return status;
}

static struct timespec at(int64_t time_ns)
{
    return (struct timespec){.tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000};
}

/* Pauses until more is prepared, or until the oldest batch may be finished. The longer a batch
 * takes, the more rarely it is polled. */
static void pause_since(struct trajd_producer_gpu *own, uint64_t prepared, int64_t since_ns)
{
    const int64_t now_ns = trajd_now_ns(), waited_ns = now_ns - since_ns;
    const struct timespec until =
        at(now_ns + (waited_ns / 4 < LONGEST_PAUSE_NS ? waited_ns / 4 : LONGEST_PAUSE_NS));

    if (waited_ns < SPIN_NS) {
        sched_yield();
        return;
    }
    pthread_mutex_lock(&own->mutex);
    if (own->prepared == prepared && !own->is_ending)
        pthread_cond_timedwait(&own->changed, &own->mutex, &until);
    pthread_mutex_unlock(&own->mutex);
}

/* Waits until a batch is prepared or under way. Returns false where none will come any more. */
static bool wait_for_work(struct trajd_producer_gpu *own, uint64_t *prepared)
{
    bool found;

    pthread_mutex_lock(&own->mutex);
    while (own->published == own->prepared && !own->is_ending)
        pthread_cond_wait(&own->changed, &own->mutex);
    *prepared = own->prepared;
    found = own->published < own->prepared;
    pthread_mutex_unlock(&own->mutex);
    return found;
}

static void count_published(struct trajd_producer_gpu *own)
{
    pthread_mutex_lock(&own->mutex);
    own->published++;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
}

static enum trajd_status run_all(struct trajd_producer *producer, struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    enum trajd_status status = trajd_device_enter(trajd_gpu_device(own->gpu), error);
    int64_t since_ns = trajd_now_ns();
    uint64_t prepared;

    while (!status && wait_for_work(own, &prepared)) {
        const struct trajd_gpu_batch *oldest = &own->batches[own->published % own->depth];
        bool passed = false;
        if (own->launched < prepared) {
            status = launch(producer, prepared, error);
            since_ns = trajd_now_ns();
        }
        if (!status)
            status = trajd_device_event_poll(oldest->finished, &passed, error);
        if (!status && passed) {
            publish(producer, oldest);
            count_published(own);
            since_ns = trajd_now_ns();
        } else if (!status) {
            pause_since(own, prepared, since_ns);
        }
    }
    return status;
}

/* Runs the launcher. When the GPU fails, batches under way are not published. Workers get them from
 * the production that replaces this one. */
static void *run_gpu(void *context)
{
    struct trajd_producer *producer = context;
    struct trajd_producer_gpu *own = producer->on_gpu;
    struct trajd_error error;

    if (!run_all(producer, &error))
        return NULL;
    pthread_mutex_lock(&own->mutex);
    own->failed = true;
    own->failure = error;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
    return NULL;
}

static void hand_over(struct trajd_producer_gpu *own, uint32_t prepared, bool is_ending)
{
    pthread_mutex_lock(&own->mutex);
    own->prepared += prepared;
    own->is_ending = is_ending;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
}

enum trajd_status trajd_producer_gpu_start(struct trajd_producer *producer,
                                           struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    const int code = trajd_thread_start(&own->launcher, "trajd-gpu", run_gpu, producer);

    if (code)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "feed %s: launching thread: %s",
                               producer->name, strerror(code));
    own->launcher_runs = true;
    return TRAJD_OK;
}

void trajd_producer_gpu_stop(struct trajd_producer_gpu *own)
{
    if (!own->launcher_runs)
        return;
    hand_over(own, 0, true);
    pthread_join(own->launcher, NULL);
    own->launcher_runs = false;
}

/* ---- preparing ---- */

/* Returns the batch that follows those that are handed over and `more` others; NULL: it is not
 * free, or the GPU has failed. The caller holds the mutex. */
static struct trajd_gpu_batch *free_batch(struct trajd_producer_gpu *own, uint32_t more)
{
    const bool is_free = !own->failed && own->prepared + more - own->published < own->depth;

    return is_free ? &own->batches[(own->prepared + more) % own->depth] : NULL;
}

/* Waits for a free batch. Returns NULL after TURN_MS, or when the GPU has failed. The caller
 * reports a turn to the heartbeat only where a batch was published meanwhile, so the watchdog finds
 * a GPU that hangs. */
static struct trajd_gpu_batch *wait_for_free_batch(struct trajd_producer_gpu *own)
{
    const struct timespec deadline = at(trajd_now_ns() + TURN_MS * INT64_C(1000000));
    struct trajd_gpu_batch *gpu_batch;

    pthread_mutex_lock(&own->mutex);
    while (!(gpu_batch = free_batch(own, 0)) && !own->failed &&
           pthread_cond_timedwait(&own->changed, &own->mutex, &deadline) == 0)
        ;
    pthread_mutex_unlock(&own->mutex);
    return gpu_batch;
}

static struct trajd_gpu_batch *next_free_batch(struct trajd_producer_gpu *own, uint32_t more)
{
    struct trajd_gpu_batch *gpu_batch;

    pthread_mutex_lock(&own->mutex);
    gpu_batch = free_batch(own, more);
    pthread_mutex_unlock(&own->mutex);
    return gpu_batch;
}

static bool has_failed(struct trajd_producer_gpu *own)
{
    bool failed;

    pthread_mutex_lock(&own->mutex);
    failed = own->failed;
    pthread_mutex_unlock(&own->mutex);
    return failed;
}

/* Checks an idle GPU with an event, so that a lost GPU is found before the next worker gets memory
 * of it. One turn later the event has passed, or the GPU hangs. */
static enum trajd_status probe_gpu(struct trajd_producer_gpu *own, struct trajd_error *error)
{
    bool passed = false;
    enum trajd_status status;

    if (own->probe_is_pending) {
        status = trajd_device_event_poll(own->probe, &passed, error);
        own->probe_is_pending = !passed;
    } else {
        status = trajd_device_event_record(own->probe, own->stream, error);
        own->probe_is_pending = true;
    }
    return status;
}

/* Returns true where the GPU has made progress since the last call: a batch was published, or
 * nothing is under way and the probe has passed. */
static bool has_progressed(struct trajd_producer_gpu *own, uint64_t *published)
{
    bool has;

    pthread_mutex_lock(&own->mutex);
    has =
        (own->published == own->prepared && !own->probe_is_pending) || own->published != *published;
    *published = own->published;
    pthread_mutex_unlock(&own->mutex);
    return has;
}

/* Prepares a batch. The time of waiting for frames has its own counter. */
static enum trajd_status prepare(struct trajd_producer *producer, struct trajd_gpu_batch *gpu_batch,
                                 const struct trajd_fill *fill, struct trajd_error *error)
{
    const uint64_t *frames_ns = &producer->counters[TRAJD_PRODUCER_FRAMES_NS];
    const uint64_t frames_before_ns = trajd_counter_read(frames_ns);
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status;

    gpu_batch->fill = *fill;
    gpu_batch->error.status = TRAJD_OK;
    status =
        record_failure(gpu_batch, trajd_producer_gpu_prepare(producer, gpu_batch, error), error);
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_RESAMPLE_NS],
                      (uint64_t)(trajd_now_ns() - begin_ns) -
                          (trajd_counter_read(frames_ns) - frames_before_ns));
    return status;
}

static bool has_brought_frames(const struct trajd_producer_gpu *own)
{
    return own->images && own->images->has_brought;
}

/* Prepares one batch, or a burst; *count says how many. A burst follows a wait for a slot, because
 * workers then return several slots at once, and fills all free slots. One by one these batches
 * would take as many time slices on a GPU that other processes use, since each kernel waits for the
 * copies before it. Batches that wait for streamed rows or for frames go one by one, because these
 * may take long to load. */
static enum trajd_status prepare_burst(struct trajd_producer *producer,
                                       struct trajd_gpu_batch *gpu_batch, int64_t begin_ns,
                                       uint32_t *count, struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    struct trajd_fill fill;
    enum trajd_status status = trajd_feed_take(producer->feed, 0, &fill);
    const bool waits = status == TRAJD_ERR_TIMEOUT, is_burst = waits && !own->copies;

    if (waits)
        status = trajd_feed_take(producer->feed, TURN_MS, &fill);
    trajd_producer_count_time(producer, TRAJD_PRODUCER_WAIT_NS, begin_ns);
    for (*count = 0; !status;) {
        status = prepare(producer, gpu_batch, &fill, error);
        if (status)
            return status;
        ++*count;
        gpu_batch = is_burst && !has_brought_frames(own) ? next_free_batch(own, *count) : NULL;
        if (!gpu_batch)
            return TRAJD_OK;
        status = trajd_feed_take(producer->feed, 0, &fill);
    }
    return status == TRAJD_ERR_TIMEOUT && *count ? TRAJD_OK : status;
}

static enum trajd_status prepare_all(struct trajd_producer *producer, struct trajd_error *error)
{
    struct trajd_producer_gpu *own = producer->on_gpu;
    enum trajd_status status = trajd_device_enter(trajd_gpu_device(own->gpu), error);
    uint64_t published = 0;

    while (!status && !has_failed(own)) {
        uint32_t count;
        const int64_t begin_ns = trajd_now_ns();
        struct trajd_gpu_batch *gpu_batch = wait_for_free_batch(own);
        if (!gpu_batch) {
            trajd_producer_count_time(producer, TRAJD_PRODUCER_WAIT_NS, begin_ns);
            continue;
        }
        if (has_progressed(own, &published))
            trajd_heartbeat_turn();
        status = prepare_burst(producer, gpu_batch, begin_ns, &count, error);
        /* also when closed: only events show when the copies under way have ended */
        if ((!status || status == TRAJD_ERR_CLOSED) && count)
            hand_over(own, count, false);
        if (status == TRAJD_ERR_CLOSED)
            return TRAJD_OK;
        if (status == TRAJD_ERR_TIMEOUT)
            status = probe_gpu(own, error);
    }
    return status;
}

static void report_lost_gpu(struct trajd_producer *producer, struct trajd_error *error)
{
    trajd_error_prefix(error, "GPU %s: feed %s: %s", trajd_gpu_id(producer->on_gpu->gpu),
                       producer->name, trajd_plan_describe(producer->members[0].kernel_plan));
    LOG(producer->options.log, ERROR, "%s", error->message);
    if (producer->options.gpu_lost)
        producer->options.gpu_lost(producer->options.context);
}

void *trajd_producer_gpu_run(void *context)
{
    struct trajd_producer *producer = context;
    struct trajd_producer_gpu *own = producer->on_gpu;
    struct trajd_error error;
    enum trajd_status status;

    trajd_heartbeat_begin(&producer->heartbeat);
    status = prepare_all(producer, &error);
    if (status)
        report_lost_gpu(
            producer,
            /* first: the other thread may be in a call of the driver that does not come back */
            &error);
    trajd_producer_gpu_stop(own);
    if (!status && own->failed) {
        error = own->failure;
        report_lost_gpu(producer, &error);
    }
    return NULL;
}
