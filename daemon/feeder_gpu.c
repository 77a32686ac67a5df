#include "daemon/feeder_gpu_private.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "kernels/plan.h"
#include "proto/ring_layout.h"

#define TAKE_TIMEOUT_MS 500
#define ROOM_BYTES ((uint64_t)256 << 20) /* of pinned memory for rows that are not resident, unless two batches need more */
#define SPIN_NS 50000      /* a batch of low-dimensional windows is over before that */
#define PAUSE_NS 20000
#define TURN_MS 500

static void *publish_all(void *feeder);

/* ---- making and destroying ---- */

static enum trajd_status write_header(void *context, const void *header, size_t size_bytes, struct trajd_error *error)
{
    const struct trajd_feeder_gpu *own = context;
    enum trajd_status status = trajd_device_fill_async(own->slab, 0, TRAJD_RING_ALIGNMENT, own->stream, error);

    if (!status)
        status = trajd_device_copy_async(own->slab, header, size_bytes, own->stream, error);
    return status ? status : trajd_device_stream_wait(own->stream, error);
}

static enum trajd_status make_ring(struct trajd_feeder *feeder, struct trajd_feeder_gpu *own, struct trajd_error *error)
{
    enum trajd_status status;

    if (__builtin_mul_overflow(feeder->schema.slot_size_bytes, feeder->spec->slot_count, &own->slab_bytes) ||
        __builtin_add_overflow(own->slab_bytes, TRAJD_RING_ALIGNMENT, &own->slab_bytes))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: a ring that no memory holds", feeder->name);
    status = trajd_gpu_take_ring(own->gpu, own->slab_bytes, "a ring", &own->slab, error);
    if (!status)
        status = trajd_device_share(trajd_gpu_device(own->gpu), own->slab, own->handle, error);
    own->memory = (struct trajd_feed_memory){.gpu = trajd_gpu_uuid(own->gpu),
                                             .memory = own->slab,
                                             .handle = own->handle,
                                             .handle_size_bytes = sizeof own->handle,
                                             .write_header = write_header,
                                             .context = own};
    return status;
}

static const struct trajd_selection nothing;

static enum trajd_status make_part(struct trajd_feeder *feeder, struct trajd_feeder_gpu *own, uint32_t p, struct trajd_error *error)
{
    const struct trajd_window_plan *plan = feeder->plan->parts[p];
    struct trajd_dataset *dataset = feeder->parts[p].dataset;
    struct trajd_gpu_part *part = &own->parts[p];
    enum trajd_status status;

    if (!trajd_plan_is_cuda(feeder->parts[p].kernel_plan))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "feed %s: %s: its batches lie in host memory", feeder->name,
                               trajd_plan_describe(feeder->parts[p].kernel_plan));
    part->rows = calloc((size_t)dataset->index->episode_count * plan->selection.dataset_count + 1, sizeof *part->rows);
    part->unreadable = calloc(dataset->index->episode_count + 1, sizeof *part->unreadable);
    part->held = calloc(plan->selection.dataset_count + 1, sizeof *part->held);
    if (!part->rows || !part->unreadable || !part->held)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of feed %s", feeder->name);
    status = trajd_gpu_request_create(own->gpu, own->stream, plan, &part->request, error);
    if (!status)
        status = trajd_gpu_hold_rows(own->gpu, dataset, &plan->selection, part->rows, part->unreadable, part->held, error);
    part->holds_rows = !status;
    if (!status)
        status = trajd_gpu_guests_create(plan, part->held, &part->guests, error);
    feeder->parts[p].selection = part->guests ? trajd_gpu_guests_selection(part->guests) : &nothing;
    return status;
}

/* The ids are the last tensors of a slot, one behind the other. */
static void measure(const struct trajd_feeder *feeder, struct trajd_feeder_gpu *own)
{
    const struct trajd_feed_tensor *first = &feeder->schema.tensors[2 * feeder->plan->parts[0]->output_count];
    const struct trajd_feed_tensor *last = &feeder->schema.tensors[feeder->schema.tensor_count - 1];

    own->ids_offset = first->offset_bytes;
    own->ids_bytes = last->offset_bytes + feeder->spec->global_batch * trajd_dtype_size(last->dtype) - first->offset_bytes;
    for (uint32_t p = 0; p < feeder->plan->part_count; p++)
        own->block_bytes += trajd_gpu_request_block_bytes(own->parts[p].request, feeder->spec->global_batch);
    own->depth = feeder->spec->slot_count - 1 < TRAJD_GPU_MAX_FLIGHTS ? feeder->spec->slot_count - 1 : TRAJD_GPU_MAX_FLIGHTS;
}

/* Rows that are not resident come from the store as for the CPU, through room of their own in each flight. */
static enum trajd_status make_room(struct trajd_feeder *feeder, struct trajd_feeder_gpu *own, struct trajd_error *error)
{
    struct trajd_device *device = trajd_gpu_device(own->gpu);
    const uint64_t left_bytes = feeder->rings_left_bytes, bound_bytes = left_bytes < ROOM_BYTES ? left_bytes : ROOM_BYTES;
    enum trajd_status status;

    for (uint32_t p = 0; p < feeder->plan->part_count; p++)
        if (own->parts[p].guests)
            own->room_bytes += trajd_feeder_gpu_room(feeder, p);
    if (!own->room_bytes)
        return TRAJD_OK;
    while (own->depth > 2 && own->depth * own->room_bytes > bound_bytes)
        own->depth--;
    feeder->pinned_bytes = own->depth * own->room_bytes;
    if (feeder->pinned_bytes > left_bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: %llu bytes of pinned memory for rows that come along are over what memory.rings leaves (%llu bytes)",
                               feeder->name, (unsigned long long)feeder->pinned_bytes, (unsigned long long)left_bytes);
    status = trajd_gpu_take_ring(own->gpu, own->depth * own->room_bytes, "room for rows that come along", &own->room, error);
    if (!status)
        status = trajd_feeder_load_rows(feeder, error);
    if (!status)
        status = trajd_device_stream_create(device, &own->copies, error);
    if (!status)
        status = trajd_device_host_alloc(device, own->depth * own->room_bytes, (void **)&own->room_pinned, error);
    for (uint32_t i = 0; i < own->depth && !status; i++) {
        own->flights[i].rows_staging = own->room_pinned + i * own->room_bytes;
        own->flights[i].rows_block = (uint8_t *)own->room + i * own->room_bytes;
        status = trajd_device_event_create(device, &own->flights[i].copied, error);
    }
    return status;
}

static enum trajd_status make_flights(struct trajd_feeder_gpu *own, struct trajd_error *error)
{
    struct trajd_device *device = trajd_gpu_device(own->gpu);
    const uint64_t staged_bytes = own->block_bytes + own->ids_bytes;
    enum trajd_status status = trajd_device_host_alloc(device, own->depth * staged_bytes, (void **)&own->staging, error);

    if (!status) {
        memset(own->staging, 0, own->depth * staged_bytes);
        status = trajd_gpu_take_ring(own->gpu, own->depth * own->block_bytes, "room for batches under way", &own->blocks, error);
    }
    for (uint32_t i = 0; i < own->depth && !status; i++) {
        own->flights[i].staging = own->staging + i * staged_bytes;
        own->flights[i].block = (uint8_t *)own->blocks + i * own->block_bytes;
        status = trajd_device_event_create(device, &own->flights[i].over, error);
    }
    return status;
}

static void init_changed(pthread_cond_t *changed)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void tell_publisher(struct trajd_feeder_gpu *own, bool launched, bool over)
{
    pthread_mutex_lock(&own->mutex);
    own->launched += launched;
    own->over = over;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
}

/* What was launched is published first. */
static void stop_publisher(struct trajd_feeder_gpu *own)
{
    if (!own->publishes)
        return;
    tell_publisher(own, false, true);
    pthread_join(own->publisher, NULL);
    own->publishes = false;
}

static enum trajd_status start_publisher(struct trajd_feeder *feeder, struct trajd_error *error)
{
    struct trajd_feeder_gpu *own = feeder->gpu;
    const int code = trajd_thread_start(&own->publisher, "trajd-gpu", publish_all, feeder);

    if (code)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, code, "feed %s: its thread that publishes: %s", feeder->name, strerror(code));
    own->publishes = true;
    return TRAJD_OK;
}

enum trajd_status trajd_feeder_gpu_create(struct trajd_feeder *feeder, struct trajd_gpu *gpu, struct trajd_error *error)
{
    struct trajd_feeder_gpu *own = feeder->gpu = calloc(1, sizeof *own);
    enum trajd_status status = TRAJD_OK;

    if (!own || !(own->parts = calloc(feeder->plan->part_count, sizeof *own->parts)))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", feeder->name);
    own->gpu = gpu;
    pthread_mutex_init(&own->mutex, NULL);
    init_changed(&own->changed);
    status = trajd_device_stream_create(trajd_gpu_device(gpu), &own->stream, error);
    if (!status)
        status = trajd_device_event_create(trajd_gpu_device(gpu), &own->pulse, error);
    if (!status)
        status = make_ring(feeder, own, error);
    for (uint32_t p = 0; p < feeder->plan->part_count && !status; p++)
        status = make_part(feeder, own, p, error);
    if (status)
        return status;
    measure(feeder, own);
    status = make_room(feeder, own, error);
    if (!status)
        status = make_flights(own, error);
    return status ? status : start_publisher(feeder, error);
}

void trajd_feeder_gpu_destroy(struct trajd_feeder *feeder)
{
    struct trajd_feeder_gpu *own = feeder->gpu;

    if (own)
        stop_publisher(own);
    feeder->gpu = NULL;
    if (!own)
        return;
    for (uint32_t i = 0; i < own->depth; i++) {
        trajd_device_event_destroy(&own->flights[i].over);
        trajd_device_event_destroy(&own->flights[i].copied);
    }
    trajd_device_event_destroy(&own->pulse);
    trajd_gpu_return_ring(own->gpu, own->blocks, own->depth * own->block_bytes);
    if (own->staging)
        trajd_device_host_free(trajd_gpu_device(own->gpu), own->staging);
    if (feeder->parts)
        trajd_feeder_unpin_all(feeder); /* of the guests' selection */
    if (own->room_pinned)
        trajd_device_host_free(trajd_gpu_device(own->gpu), own->room_pinned);
    if (own->room)
        trajd_gpu_return_ring(own->gpu, own->room, own->depth * own->room_bytes);
    for (uint32_t p = 0; own->parts && p < feeder->plan->part_count; p++) {
        feeder->parts[p].selection = &feeder->plan->parts[p]->selection;
        trajd_gpu_request_destroy(&own->parts[p].request);
        trajd_gpu_guests_destroy(&own->parts[p].guests);
        if (own->parts[p].holds_rows)
            trajd_gpu_drop_rows(own->gpu, feeder->parts[p].dataset, &feeder->plan->parts[p]->selection, own->parts[p].held);
        free(own->parts[p].held);
        free(own->parts[p].rows);
        free(own->parts[p].unreadable);
    }
    if (own->slab)
        trajd_gpu_return_ring(own->gpu, own->slab, own->slab_bytes);
    if (own->copies)
        trajd_device_stream_destroy(&own->copies);
    if (own->stream)
        trajd_device_stream_destroy(&own->stream);
    if (own->parts) {
        pthread_cond_destroy(&own->changed);
        pthread_mutex_destroy(&own->mutex);
    }
    free(own->parts);
    free(own);
}

const struct trajd_feed_memory *trajd_feeder_gpu_memory(const struct trajd_feeder *feeder)
{
    return &feeder->gpu->memory;
}

const char *trajd_feeder_gpu_uuid(const struct trajd_feeder *feeder)
{
    return feeder->gpu ? trajd_gpu_uuid(feeder->gpu->gpu) : NULL;
}

/* ---- two threads: one launches, one publishes ---- */

/* A batch that cannot be made is told to its worker when its turn comes. TRAJD_ERR_DEVICE: the GPU has failed. */
static enum trajd_status begin_batch(struct trajd_feeder *feeder, struct trajd_gpu_flight *flight, const struct trajd_fill *fill,
                                     struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status;

    flight->fill = *fill;
    flight->error.status = TRAJD_OK;
    status = trajd_feeder_gpu_launch(feeder, flight, error);
    if (status)
        flight->error = *error;
    if (status != TRAJD_ERR_DEVICE)
        status = trajd_device_event_record(flight->over, feeder->gpu->stream, error);
    if (status)
        flight->error = *error;
    trajd_counter_add(&feeder->counters[TRAJD_FEEDER_RESAMPLE_NS], (uint64_t)(trajd_now_ns() - begin_ns));
    return status;
}

static void publish(struct trajd_feeder *feeder, const struct trajd_gpu_flight *flight)
{
    const struct trajd_error *failure = flight->error.status ? &flight->error : NULL;

    if (failure && failure->status == TRAJD_ERR_CLOSED && __atomic_load_n(&feeder->stop, __ATOMIC_RELAXED))
        return; /* it is being destroyed: nobody waits for the slot */
    if (failure) {
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_FAILED], 1);
        LOG(feeder->log, WARNING, "feed %s: epoch %llu, position %llu: %s", feeder->name, (unsigned long long)flight->fill.epoch,
            (unsigned long long)flight->fill.position, failure->message);
    }
    trajd_counter_add(&feeder->counters[TRAJD_FEEDER_BATCHES], 1);
    for (uint32_t r = 0; r < flight->fill.range_count; r++)
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_WINDOWS], flight->fill.ranges[r].count);
    trajd_feed_publish(feeder->feed, &flight->fill, failure);
}

/* Until the stream has passed the batch. */
static enum trajd_status await(const struct trajd_gpu_flight *flight, struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const int64_t begin_ns = trajd_now_ns();

    for (;;) {
        bool passed;
        const enum trajd_status status = trajd_device_event_poll(flight->over, &passed, error);
        if (status || passed)
            return status;
        if (trajd_now_ns() - begin_ns < SPIN_NS)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

/* The number of the next flight to publish; false: there will be none. */
static bool next_flight(struct trajd_feeder_gpu *own, uint64_t *number)
{
    bool found;

    pthread_mutex_lock(&own->mutex);
    while (own->published == own->launched && !own->over)
        pthread_cond_wait(&own->changed, &own->mutex);
    *number = own->published;
    found = own->published < own->launched;
    pthread_mutex_unlock(&own->mutex);
    return found;
}

/* When the GPU fails, what is under way is published neither as a batch nor as one that failed: workers get it from whoever goes on. */
static void *publish_all(void *context)
{
    struct trajd_feeder *feeder = context;
    struct trajd_feeder_gpu *own = feeder->gpu;
    struct trajd_error error;
    enum trajd_status status = trajd_device_enter(trajd_gpu_device(own->gpu), &error);
    uint64_t number;

    while (!status && next_flight(own, &number)) {
        const struct trajd_gpu_flight *flight = &own->flights[number % own->depth];
        status = await(flight, &error);
        if (status)
            break;
        publish(feeder, flight);
        pthread_mutex_lock(&own->mutex);
        own->published++;
        pthread_cond_broadcast(&own->changed);
        pthread_mutex_unlock(&own->mutex);
    }
    if (!status)
        return NULL;
    pthread_mutex_lock(&own->mutex);
    own->failed = true;
    own->failure = error;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
    return NULL;
}

/* Waits for a flight that is free: NULL after TURN_MS, or when the GPU has failed. A GPU that hangs is found by the watchdog: it is no turn
 * of the thread to wait here, unless something has been published meanwhile. */
static struct trajd_gpu_flight *free_flight(struct trajd_feeder_gpu *own)
{
    const int64_t at_ns = trajd_now_ns() + TURN_MS * INT64_C(1000000);
    const struct timespec deadline = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
    struct trajd_gpu_flight *flight = NULL;

    pthread_mutex_lock(&own->mutex);
    while (!own->failed && own->launched - own->published == own->depth &&
           pthread_cond_timedwait(&own->changed, &own->mutex, &deadline) == 0)
        ;
    if (!own->failed && own->launched - own->published < own->depth)
        flight = &own->flights[own->launched % own->depth];
    pthread_mutex_unlock(&own->mutex);
    return flight;
}

static bool has_failed(struct trajd_feeder_gpu *own)
{
    bool failed;

    pthread_mutex_lock(&own->mutex);
    failed = own->failed;
    pthread_mutex_unlock(&own->mutex);
    return failed;
}

/* An idle GPU is asked, too: whoever comes next must not be given memory of one that is lost. A turn later it has answered, or hangs. */
static enum trajd_status feel_pulse(struct trajd_feeder_gpu *own, struct trajd_error *error)
{
    bool passed = false;
    enum trajd_status status;

    if (own->pulse_is_asked) {
        status = trajd_device_event_poll(own->pulse, &passed, error);
        own->pulse_is_asked = !passed;
    } else {
        status = trajd_device_event_record(own->pulse, own->stream, error);
        own->pulse_is_asked = true;
    }
    return status;
}

/* Nothing is under way and the pulse has been felt, or something was published since it was asked last. */
static bool has_gone_on(struct trajd_feeder_gpu *own, uint64_t *published)
{
    bool has;

    pthread_mutex_lock(&own->mutex);
    has = (own->published == own->launched && !own->pulse_is_asked) || own->published != *published;
    *published = own->published;
    pthread_mutex_unlock(&own->mutex);
    return has;
}

static enum trajd_status launch_all(struct trajd_feeder *feeder, struct trajd_error *error)
{
    struct trajd_feeder_gpu *own = feeder->gpu;
    enum trajd_status status = trajd_device_enter(trajd_gpu_device(own->gpu), error);
    uint64_t published = 0;

    while (!status && !has_failed(own)) {
        struct trajd_fill fill;
        const int64_t begin_ns = trajd_now_ns();
        struct trajd_gpu_flight *flight = free_flight(own);
        if (!flight)
            continue;
        if (has_gone_on(own, &published))
            trajd_watch_turn();
        status = trajd_feed_take(feeder->feed, TURN_MS, &fill);
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_WAIT_NS], (uint64_t)(trajd_now_ns() - begin_ns));
        if (status == TRAJD_ERR_CLOSED)
            return TRAJD_OK;
        if (!status) {
            status = begin_batch(feeder, flight, &fill, error);
            if (!status)
                tell_publisher(own, true, false);
        } else if (status == TRAJD_ERR_TIMEOUT) {
            status = feel_pulse(own, error);
        }
    }
    return status;
}

static void lose(struct trajd_feeder *feeder, struct trajd_error *error)
{
    trajd_error_prefix(error, "GPU %s: feed %s: %s", trajd_gpu_uuid(feeder->gpu->gpu), feeder->name,
                       trajd_plan_describe(feeder->parts[0].kernel_plan));
    LOG(feeder->log, ERROR, "%s", error->message);
    if (feeder->gpu_lost)
        feeder->gpu_lost(feeder->lost_context);
}

void trajd_feeder_gpu_produce(struct trajd_feeder *feeder)
{
    struct trajd_feeder_gpu *own = feeder->gpu;
    struct trajd_error error;
    enum trajd_status status = launch_all(feeder, &error);

    stop_publisher(own);
    if (!status && own->failed) {
        error = own->failure;
        status = error.status;
    }
    if (status)
        lose(feeder, &error);
}
