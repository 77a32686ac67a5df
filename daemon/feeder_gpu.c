#include "daemon/feeder_gpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gpu/gpu_request.h"
#include "kernels/plan.h"
#include "proto/ring_layout.h"

#define TAKE_TIMEOUT_MS 500
#define MAX_FLIGHTS 8
#define SPIN_NS 50000      /* a batch of low-dimensional windows is over before that */
#define PAUSE_NS 20000
#define TURN_MS 500

/* A batch between its launch and its end. */
struct flight {
    struct trajd_fill fill;
    struct trajd_error error; /* of a batch that could not be made; OK: none */
    uint8_t *staging;         /* pinned: the block of arrays, and the ids behind it */
    uint8_t *block;           /* the block on the GPU */
    struct trajd_device_event *over;
};

/* One dataset of the feed. */
struct gpu_part {
    struct trajd_gpu_request *request;
    const void **rows; /* [index episodes][pieces], on the GPU */
    bool *unreadable;  /* [index episodes] */
    bool holds_rows;
};

struct trajd_feeder_gpu {
    struct trajd_gpu *gpu;
    struct trajd_device_stream *stream;
    void *slab;
    uint64_t slab_bytes;
    uint8_t handle[TRAJD_DEVICE_HANDLE_SIZE];
    struct trajd_feed_memory memory;
    struct gpu_part *parts; /* [plan->part_count] */
    uint64_t block_bytes, ids_offset, ids_bytes;
    uint32_t depth; /* of flights in use */
    struct flight flights[MAX_FLIGHTS];
    /* between the thread that launches and the one that publishes */
    pthread_t publisher;
    pthread_mutex_t mutex; /* of the rest */
    pthread_cond_t changed;
    uint64_t launched, published; /* flight n is flights[n % depth] */
    bool over;   /* no more will be launched */
    bool failed; /* the GPU has, and `failure` says how */
    struct trajd_error failure;
};

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
    status = trajd_gpu_take_ring(own->gpu, own->slab_bytes, &own->slab, error);
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

static enum trajd_status make_part(struct trajd_feeder *feeder, struct trajd_feeder_gpu *own, uint32_t p, struct trajd_error *error)
{
    const struct trajd_window_plan *plan = feeder->plan->parts[p];
    struct trajd_dataset *dataset = feeder->parts[p].dataset;
    struct gpu_part *part = &own->parts[p];
    enum trajd_status status;

    if (!trajd_plan_is_cuda(feeder->parts[p].kernel_plan))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0, "feed %s: %s: its batches lie in host memory", feeder->name,
                               plan->window_rows ? "a mixture is made on the CPU" : trajd_plan_describe(feeder->parts[p].kernel_plan));
    part->rows = calloc((size_t)dataset->index->episode_count * plan->selection.dataset_count + 1, sizeof *part->rows);
    part->unreadable = calloc(dataset->index->episode_count + 1, sizeof *part->unreadable);
    if (!part->rows || !part->unreadable)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of feed %s", feeder->name);
    status = trajd_gpu_hold_rows(own->gpu, dataset, &plan->selection, part->rows, part->unreadable, error);
    part->holds_rows = !status;
    return status ? status : trajd_gpu_request_create(trajd_gpu_device(own->gpu), own->stream, plan, &part->request, error);
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
    own->depth = feeder->spec->slot_count - 1 < MAX_FLIGHTS ? feeder->spec->slot_count - 1 : MAX_FLIGHTS;
}

static enum trajd_status make_flights(struct trajd_feeder_gpu *own, struct trajd_error *error)
{
    struct trajd_device *device = trajd_gpu_device(own->gpu);
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < own->depth && !status; i++) {
        struct flight *flight = &own->flights[i];
        status = trajd_device_host_alloc(device, own->block_bytes + own->ids_bytes, (void **)&flight->staging, error);
        if (!status)
            status = trajd_device_alloc(device, own->block_bytes, (void **)&flight->block, error);
        if (!status)
            status = trajd_device_event_create(device, &flight->over, error);
        if (!status)
            memset(flight->staging, 0, own->block_bytes + own->ids_bytes);
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
        status = make_ring(feeder, own, error);
    for (uint32_t p = 0; p < feeder->plan->part_count && !status; p++)
        status = make_part(feeder, own, p, error);
    if (status)
        return status;
    measure(feeder, own);
    return make_flights(own, error);
}

void trajd_feeder_gpu_destroy(struct trajd_feeder *feeder)
{
    struct trajd_feeder_gpu *own = feeder->gpu;

    feeder->gpu = NULL;
    if (!own)
        return;
    for (uint32_t i = 0; i < own->depth; i++) {
        trajd_device_event_destroy(&own->flights[i].over);
        if (own->flights[i].block)
            trajd_device_free(trajd_gpu_device(own->gpu), own->flights[i].block);
        if (own->flights[i].staging)
            trajd_device_host_free(trajd_gpu_device(own->gpu), own->flights[i].staging);
    }
    for (uint32_t p = 0; own->parts && p < feeder->plan->part_count; p++) {
        trajd_gpu_request_destroy(&own->parts[p].request);
        if (own->parts[p].holds_rows)
            trajd_gpu_drop_rows(own->gpu, feeder->parts[p].dataset, &feeder->plan->parts[p]->selection);
        free(own->parts[p].rows);
        free(own->parts[p].unreadable);
    }
    if (own->slab)
        trajd_gpu_return_ring(own->gpu, own->slab, own->slab_bytes);
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

/* ---- a batch ---- */

struct rows_of_part {
    const struct gpu_part *part;
    uint32_t piece_count;
};

static const void *const *rows_of(void *context, uint32_t episode)
{
    const struct rows_of_part *of = context;

    return of->part->unreadable[episode] ? NULL : of->part->rows + (size_t)episode * of->piece_count;
}

/* The first episode of these windows whose rows cannot be read, told as whoever reads it from the store is told. */
static enum trajd_status check_readable(struct trajd_feeder *feeder, uint32_t p, uint32_t first, uint32_t count,
                                        struct trajd_error *error)
{
    const struct trajd_window_plan *plan = feeder->plan->parts[p];
    const void **rows;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t w = first; w < first + count && !status && !feeder->spec->keep_bad_rows; w++) {
        const uint32_t episode = plan->windows[w].episode_index;
        if (!feeder->gpu->parts[p].unreadable[episode])
            continue;
        rows = calloc(plan->selection.dataset_count, sizeof *rows);
        status = rows ? trajd_store_pin(feeder->parts[p].dataset->store, &plan->selection, episode, rows, error)
                      : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "feed %s: out of memory", feeder->name);
        if (rows && !status) {
            trajd_store_unpin(feeder->parts[p].dataset->store, &plan->selection, episode);
            status = trajd_error_set(error, TRAJD_ERR_DATA, 0, "%s: its rows could not be read when the GPU was filled",
                                     feeder->parts[p].dataset->index->episodes[episode].id);
        }
        free(rows);
    }
    return status;
}

/* bad_rows: keep. NaN in every floating-point type is all ones. */
static enum trajd_status spoil(const struct trajd_feeder *feeder, uint32_t p, uint8_t *slot, uint32_t first, uint32_t count,
                               struct trajd_error *error)
{
    const struct trajd_window_plan *plan = feeder->plan->parts[p];
    const struct trajd_feeder_gpu *own = feeder->gpu;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t w = first; w < first + count; w++)
        for (uint32_t o = 0; own->parts[p].unreadable[plan->windows[w].episode_index] && o < plan->output_count && !status; o++) {
            const struct trajd_plan_output *output = &plan->outputs[o];
            const uint64_t bytes = output->step_count * output->feature_count * trajd_dtype_size(output->dtype);
            if (output->dtype == TRAJD_F64 || output->dtype == TRAJD_F32 || output->dtype == TRAJD_F16 || output->dtype == TRAJD_BF16)
                status = trajd_device_fill_async(slot + output->offset_bytes + w * bytes, 0xff, bytes, own->stream, error);
        }
    return status;
}

static enum trajd_status launch_windows(struct trajd_feeder *feeder, struct flight *flight, uint32_t p, uint32_t first, uint32_t count,
                                        uint64_t *used, struct trajd_error *error)
{
    struct trajd_feeder_gpu *own = feeder->gpu;
    struct trajd_window_plan *plan = feeder->plan->parts[p];
    struct rows_of_part of = {&own->parts[p], plan->selection.dataset_count};
    const struct trajd_resample_request *request;
    uint64_t size_bytes;
    enum trajd_status status = check_readable(feeder, p, first, count, error);

    if (!status && *used + trajd_gpu_request_block_bytes(own->parts[p].request, count) > own->block_bytes) {
        status = trajd_device_stream_wait(own->stream, error); /* many ranges of few rows: what was gathered is read first */
        *used = 0;
    }
    if (status)
        return status;
    trajd_window_plan_bind(plan, first, count, flight->fill.memory, rows_of, &of);
    request = trajd_gpu_request_gather(own->parts[p].request, flight->staging + *used, flight->block + *used, &size_bytes);
    status = trajd_device_copy_async(flight->block + *used, flight->staging + *used, size_bytes, own->stream, error);
    if (!status)
        status = trajd_plan_run_async(feeder->parts[p].kernel_plan, request, own->stream, error);
    *used += size_bytes;
    if (!status && feeder->spec->keep_bad_rows)
        status = spoil(feeder, p, flight->fill.memory, first, count, error);
    return status;
}

static enum trajd_status launch_ids(struct trajd_feeder *feeder, struct flight *flight, struct trajd_error *error)
{
    const struct trajd_feeder_gpu *own = feeder->gpu;
    uint8_t *staged = flight->staging + own->block_bytes;
    struct trajd_fill ids = flight->fill;

    ids.memory = (void *)((uintptr_t)staged - own->ids_offset); /* a slot of which only the ids are there */
    trajd_feeder_write_ids(feeder, &ids);
    return trajd_device_copy_async((uint8_t *)flight->fill.memory + own->ids_offset, staged, own->ids_bytes, own->stream, error);
}

static enum trajd_status launch(struct trajd_feeder *feeder, struct flight *flight, struct trajd_error *error)
{
    const struct trajd_fill *fill = &flight->fill;
    enum trajd_status status = TRAJD_OK;
    uint64_t used = 0;

    trajd_mixture_plan_look_up(feeder->plan, fill->epoch, fill->position, fill->row_count);
    for (uint32_t r = 0; r < fill->range_count; r++)
        for (uint32_t p = 0; p < feeder->plan->part_count && !status; p++) {
            uint32_t first, count;
            trajd_mixture_plan_slice(feeder->plan->parts[p], fill->ranges[r].begin, fill->ranges[r].count, &first, &count);
            trajd_counter_add(&feeder->parts[p].windows, count);
            if (count)
                status = launch_windows(feeder, flight, p, first, count, &used, error);
        }
    return status ? status : launch_ids(feeder, flight, error);
}

/* ---- two threads: one launches, one publishes ---- */

/* A batch that cannot be made is told to its worker when its turn comes. TRAJD_ERR_DEVICE: the GPU has failed. */
static enum trajd_status begin_batch(struct trajd_feeder *feeder, struct flight *flight, const struct trajd_fill *fill,
                                     struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status;

    flight->fill = *fill;
    flight->error.status = TRAJD_OK;
    status = launch(feeder, flight, error);
    if (status)
        flight->error = *error;
    if (status != TRAJD_ERR_DEVICE)
        status = trajd_device_event_record(flight->over, feeder->gpu->stream, error);
    if (status)
        flight->error = *error;
    trajd_counter_add(&feeder->counters[TRAJD_FEEDER_RESAMPLE_NS], (uint64_t)(trajd_now_ns() - begin_ns));
    return status;
}

static void publish(struct trajd_feeder *feeder, const struct flight *flight, const struct trajd_error *failure)
{
    if (!failure && flight->error.status)
        failure = &flight->error;
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
static enum trajd_status await(const struct flight *flight, struct trajd_error *error)
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

/* After a failure what is under way, and what still comes, carries it. */
static void *publish_all(void *context)
{
    struct trajd_feeder *feeder = context;
    struct trajd_feeder_gpu *own = feeder->gpu;
    struct trajd_error failure = {.status = TRAJD_OK}, error;
    uint64_t number;

    if (trajd_device_enter(trajd_gpu_device(own->gpu), &error))
        failure = error;
    while (next_flight(own, &number)) {
        const struct flight *flight = &own->flights[number % own->depth];
        if (!failure.status && await(flight, &error))
            failure = error;
        publish(feeder, flight, failure.status ? &failure : NULL);
        pthread_mutex_lock(&own->mutex);
        own->published++;
        if (failure.status && !own->failed) {
            own->failed = true;
            own->failure = failure;
        }
        pthread_cond_broadcast(&own->changed);
        pthread_mutex_unlock(&own->mutex);
    }
    return NULL;
}

/* Waits for a flight that is free: NULL after TURN_MS, or when the GPU has failed. A GPU that hangs is found by the watchdog: it is no turn
 * of the thread to wait here, unless something has been published meanwhile. */
static struct flight *free_flight(struct trajd_feeder_gpu *own)
{
    const int64_t at_ns = trajd_now_ns() + TURN_MS * INT64_C(1000000);
    const struct timespec deadline = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
    struct flight *flight = NULL;

    pthread_mutex_lock(&own->mutex);
    while (!own->failed && own->launched - own->published == own->depth &&
           pthread_cond_timedwait(&own->changed, &own->mutex, &deadline) == 0)
        ;
    if (!own->failed && own->launched - own->published < own->depth)
        flight = &own->flights[own->launched % own->depth];
    pthread_mutex_unlock(&own->mutex);
    return flight;
}

static void tell_publisher(struct trajd_feeder_gpu *own, bool launched, bool over)
{
    pthread_mutex_lock(&own->mutex);
    own->launched += launched;
    own->over = over;
    pthread_cond_broadcast(&own->changed);
    pthread_mutex_unlock(&own->mutex);
}

static bool has_failed(struct trajd_feeder_gpu *own)
{
    bool failed;

    pthread_mutex_lock(&own->mutex);
    failed = own->failed;
    pthread_mutex_unlock(&own->mutex);
    return failed;
}

static enum trajd_status launch_all(struct trajd_feeder *feeder, struct trajd_error *error)
{
    struct trajd_feeder_gpu *own = feeder->gpu;
    enum trajd_status status = trajd_device_enter(trajd_gpu_device(own->gpu), error);

    while (!status && !has_failed(own)) {
        struct trajd_fill fill;
        const int64_t begin_ns = trajd_now_ns();
        struct flight *flight = free_flight(own);
        if (!flight)
            continue;
        trajd_watch_turn();
        status = trajd_feed_take(feeder->feed, TURN_MS, &fill);
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_WAIT_NS], (uint64_t)(trajd_now_ns() - begin_ns));
        if (status == TRAJD_ERR_CLOSED)
            return TRAJD_OK;
        if (!status) {
            status = begin_batch(feeder, flight, &fill, error);
            tell_publisher(own, true, false); /* also after a failure: it is published with it */
        } else if (status == TRAJD_ERR_TIMEOUT) {
            status = TRAJD_OK;
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
    enum trajd_status status;
    const int code = pthread_create(&own->publisher, NULL, publish_all, feeder);

    if (!code)
        pthread_setname_np(own->publisher, "trajd-gpu");
    if (code)
        status = trajd_error_set(&error, TRAJD_ERR_SYSTEM, code, "its thread that publishes: %s", strerror(code));
    else
        status = launch_all(feeder, &error);
    tell_publisher(own, false, true);
    if (!code)
        pthread_join(own->publisher, NULL);
    if (!status && own->failed) {
        error = own->failure;
        status = error.status;
    }
    if (status)
        lose(feeder, &error);
}
