#include "daemon/producer/producer_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/feed/core.h"
#include "daemon/producer/producer_gpu.h"
#include "daemon/producer/gpu.h"
#include "kernels/dispatch/plan.h"
#include "proto/ring_layout.h"

#define TAKE_TIMEOUT_MS 500
#define SLOTS 4u
#define GPU_SLOTS 16u
#define GPU_RING_BYTES ((uint64_t)64 << 20)
#define MIB ((uint64_t)1 << 20)
#define NOTHING_THERE 1 /* in place of a digest of 0, which means unknown in OPENED */

static const struct trajd_counter counters_at_start[TRAJD_PRODUCER_COUNTERS] = {
    [TRAJD_PRODUCER_BATCHES] = {"batches", "Batches made", "batches", TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_PRODUCER_WINDOWS] = {"windows", "Windows made", "windows", TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_PRODUCER_FAILED] = {"failed_batches", "Batches that carry an error instead of rows",
                               "batches", TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_PRODUCER_WAIT_NS] = {"wait_ns", "Time without a free slot or a job", "ns",
                                TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_PRODUCER_LOAD_NS] = {"load_ns", "Time waiting for rows from the row cache", "ns",
                                TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_PRODUCER_FRAMES_NS] = {"frames_ns", "Time waiting for decoded pictures", "ns",
                                  TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_PRODUCER_RESAMPLE_NS] =
        {"resample_ns",
         "Time in the kernels; on a GPU, time of two threads that prepare and launch", "ns",
         TRAJD_COUNTER_TOTAL, 0},
};

struct trajd_feed *trajd_producer_feed(const struct trajd_producer *producer)
{
    return producer->feed;
}

const struct trajd_mixture_plan *trajd_producer_plan(const struct trajd_producer *producer)
{
    return producer->plan;
}

struct trajd_stats_service *trajd_producer_stats_service(const struct trajd_producer *producer)
{
    return producer->stats_service;
}

const char *trajd_producer_name(const struct trajd_producer *producer)
{
    return producer->name;
}

struct trajd_window_spec *trajd_producer_spec(const struct trajd_producer *producer)
{
    return producer->spec;
}

const char *trajd_producer_text(const struct trajd_producer *producer)
{
    return producer->text;
}

uint64_t trajd_producer_ring_bytes(const struct trajd_producer *producer)
{
    uint64_t bytes;

    if (producer->gpu)
        return producer->pinned_bytes;
    if (__builtin_mul_overflow(producer->schema.slot_size_bytes, producer->slot_count, &bytes) ||
        __builtin_add_overflow(bytes, TRAJD_RING_ALIGNMENT, &bytes))
        return UINT64_MAX;
    return bytes;
}

struct trajd_gpu *trajd_producer_gpu(const struct trajd_producer *producer)
{
    return producer->gpu;
}

bool trajd_producer_is_unfinished(const struct trajd_producer *producer)
{
    return producer->is_unfinished;
}

const struct trajd_heartbeat *trajd_producer_heartbeat(const struct trajd_producer *producer)
{
    return &producer->heartbeat;
}

/* ---- the thread ---- */

static void make_batch(struct trajd_producer *producer, const struct trajd_fill *fill)
{
    enum trajd_status status = TRAJD_OK;
    struct trajd_error error;

    trajd_mixture_batch_look_up(producer->batch, fill->epoch, fill->position, fill->row_count);
    trajd_producer_prefetch(producer, fill);
    trajd_producer_want_pictures(producer, fill);
    for (uint32_t r = 0; r < fill->range_count && !status; r++)
        status = trajd_producer_make_rows(producer, fill, fill->ranges[r], &error);
    if (status == TRAJD_ERR_CLOSED && __atomic_load_n(&producer->stop, __ATOMIC_RELAXED))
        return; /* the producer is being destroyed: no worker waits for the slot */
    trajd_producer_write_ids(producer, fill);
    trajd_producer_publish(producer, fill, status ? &error : NULL);
}

static void *produce(void *context)
{
    struct trajd_producer *producer = context;
    enum trajd_status status;

    trajd_heartbeat_begin(&producer->heartbeat);
    if (producer->on_gpu) {
        trajd_producer_gpu_produce(producer);
        return NULL;
    }
    do {
        struct trajd_fill fill;
        const int64_t begin_ns = trajd_now_ns();
        trajd_heartbeat_turn();
        status = trajd_feed_take(producer->feed, TAKE_TIMEOUT_MS, &fill);
        trajd_counter_add(&producer->counters[TRAJD_PRODUCER_WAIT_NS],
                          (uint64_t)(trajd_now_ns() - begin_ns));
        if (!status)
            make_batch(producer, &fill);
    } while (!status || status == TRAJD_ERR_TIMEOUT);
    return NULL;
}

static enum trajd_status start_thread(struct trajd_producer *producer, struct trajd_error *error)
{
    const int failed = trajd_thread_start(&producer->thread, "trajd-feed", produce, producer);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "thread of feed %s: %s",
                               producer->name, strerror(failed));
    producer->running = true;
    return TRAJD_OK;
}

/* Returns an error for outputs that no kernel forms on a GPU. The worker then gets its batches in
 * host memory, with this reason. */
static enum trajd_status refuse_shape(const struct trajd_producer *producer,
                                      const struct trajd_resample_request *shape,
                                      struct trajd_error *error)
{
    if (!shape->stream_count)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "feed %s: all outputs are pictures, so batches lie in host memory: "
                               "with an output of numbers they can lie on a GPU",
                               producer->name);
    return TRAJD_OK;
}

/* Estimates the time that the transforms of a batch take on one thread. */
static double transform_ns(const struct trajd_window_plan *plan)
{
    double ns = 0;

    for (uint32_t o = 0; o < plan->visible_count; o++)
        if (plan->outputs[o].transform)
            ns += (double)plan->spec->global_batch * plan->outputs[o].step_count *
                  trajd_transform_step_ns(plan->outputs[o].transform);
    return ns;
}

static enum trajd_status make_members(struct trajd_producer *producer,
                                      const struct trajd_producer_options *options,
                                      struct trajd_error *error)
{
    struct trajd_device_facts facts = {.cpu_threads = trajd_pool_thread_count(producer->pool),
                                       .tuning = options->tuning};
    const char *variant = producer->spec->variant;
    enum trajd_status status = TRAJD_OK;

    if (producer->gpu) {
        trajd_device_facts(trajd_gpu_device(producer->gpu), &facts);
        /* a kernel that is named for the CPU does not apply on a GPU */
        variant = variant && strncmp(variant, "cuda", 4) == 0 ? variant : NULL;
    }
    producer->members = calloc(producer->plan->member_count, sizeof *producer->members);
    if (!producer->members)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", producer->name);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++) {
        struct trajd_producer_member *member = &producer->members[p];
        struct trajd_resample_request shape;

        member->dataset = options->datasets[p];
        member->plan = producer->plan->members[p];
        member->batch = producer->batch->members[p];
        member->selection = &member->plan->selection;
        shape = member->batch->request;
        shape.window_count = producer->spec->global_batch;
        if (producer->gpu && (status = refuse_shape(producer, &shape, error)))
            return status;
        status = trajd_plan_create_then(&shape, transform_ns(member->plan), &facts, variant,
                                        &member->kernel_plan, error);
    }
    return status;
}

static_assert(TRAJD_SPEC_MAX_SLOTS == TRAJD_CORE_MAX_SLOTS,
              "a feed has the slots that it asks for");

/* Returns the number of slots. On a GPU a worker returns half of its slots at once, so more slots
 * help, and small ones cost little memory. */
static uint32_t choose_slot_count(const struct trajd_producer *producer)
{
    const uint64_t fitting = GPU_RING_BYTES / producer->schema.slot_size_bytes;

    if (producer->spec->slot_count)
        return producer->spec->slot_count;
    if (!producer->gpu || fitting < SLOTS)
        return SLOTS;
    return fitting < GPU_SLOTS ? (uint32_t)fitting : GPU_SLOTS;
}

/* Refuses a ring for which memory.rings has no room. The message has the number to set, because a
 * user does not know the size of a slot. */
static enum trajd_status check_ring(const struct trajd_producer *producer,
                                    const struct trajd_producer_options *options,
                                    struct trajd_error *error)
{
    const uint64_t ring_bytes = trajd_producer_ring_bytes(producer);

    if (ring_bytes <= producer->rings_remaining_bytes)
        return TRAJD_OK;
    return trajd_error_set(
        error, TRAJD_ERR_MEMORY, 0,
        "feed %s: its ring of %u slots needs %llu bytes, and other feeds use %llu, but "
        "memory.rings "
        "allows %llu: set memory.rings to %lluMiB or more, or lower global_batch, slots, or the "
        "number or size of the steps",
        producer->name, producer->slot_count, (unsigned long long)ring_bytes,
        (unsigned long long)options->rings_used_bytes,
        (unsigned long long)options->rings_limit_bytes,
        (unsigned long long)((ring_bytes / MIB) + (options->rings_used_bytes / MIB) + 2));
}

/* Checks the quarantined episodes against quarantine.at_most of each dataset. */
static enum trajd_status check_quarantine(const struct trajd_producer *producer,
                                          const struct trajd_producer_options *options,
                                          struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    if (options->quarantine_at_most)
        status =
            trajd_mixture_plan_check_quarantine(producer->plan, options->quarantine_at_most, error);
    if (status && options->is_refused)
        *options->is_refused = true;
    return status;
}

static enum trajd_status add_feed(struct trajd_producer *producer,
                                  const struct trajd_producer_options *options,
                                  struct trajd_error *error)
{
    const uint64_t norm_digest = trajd_mixture_plan_norm_digest(producer->plan),
                   values_digest = trajd_mixture_plan_values_digest(producer->plan);
    const struct trajd_feed_options feed = {
        .name = producer->name,
        .instance_of = options->instance_of,
        .is_hidden = options->is_hidden,
        .schema = &producer->schema,
        .slot_count = producer->slot_count,
        .max_credit = options->max_credit,
        .fingerprint = producer->plan->fingerprint,
        .seed = producer->spec->seed,
        .norm_digest = norm_digest ? norm_digest : NOTHING_THERE,
        .values_digest = values_digest ? values_digest : NOTHING_THERE,
        .changed_norm = trajd_producer_changed_norm(producer),
        .window_count = trajd_mixture_plan_window_count(producer->plan),
        .epoch_length = trajd_mixture_plan_epoch_length(producer->plan),
        .dropped_count = trajd_mixture_plan_dropped_count(producer->plan),
        .tail_short = producer->spec->tail == TRAJD_TAIL_SHORT,
        .journal_directory = options->journal_directory,
        .rank_timeout_ns = (uint64_t)producer->spec->rank_timeout_ns,
        .rejoin_wait_ns = (uint64_t)producer->spec->rejoin_wait_ns,
        .job_count = producer->spec->job_count,
        .has_unfinished = !producer->is_unfinished && trajd_window_spec_finishes(producer->spec),
        .slow_leaves = producer->spec->slow_leaves,
        .slow_after_ns = (uint64_t)producer->spec->slow_after_ns,
        .data = trajd_producer_data(producer),
        .device = producer->on_gpu ? trajd_producer_gpu_memory(producer) : NULL};

    enum trajd_status status;

    if (!options->server)
        return TRAJD_OK;
    trajd_heartbeat_wait(); /* for the pages of the ring */
    status = trajd_server_add_feed(options->server, &feed, &producer->feed, error);
    trajd_heartbeat_resume();
    return status;
}

static enum trajd_status load_rows(struct trajd_producer *producer, struct trajd_error *error)
{
    enum trajd_status status;

    if (!producer->gpu)
        return trajd_producer_load_rows(producer, error);
    trajd_heartbeat_wait(); /* for the driver */
    status = trajd_producer_gpu_create(producer, producer->gpu, error);
    if (status == TRAJD_ERR_MEMORY && !producer->spec->slot_count && producer->slot_count > SLOTS) {
        trajd_producer_gpu_destroy(producer);
        producer->slot_count = SLOTS;
        status = trajd_producer_gpu_create(producer, producer->gpu, error);
    }
    trajd_heartbeat_resume();
    return status;
}

enum trajd_status trajd_producer_create(const struct trajd_producer_options *options,
                                        struct trajd_producer **out, struct trajd_error *error)
{
    struct trajd_producer *producer = calloc(1, sizeof *producer);
    enum trajd_status status;

    *out = NULL;
    if (!producer || !(producer->name = strdup(options->name)) ||
        (options->text && !(producer->text = strdup(options->text)))) {
        free(producer ? producer->name : NULL);
        free(producer);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", options->name);
    }
    pthread_mutex_init(&producer->last_failure.mutex, NULL);
    producer->spec = options->spec;
    producer->pool = options->pool;
    producer->server = options->server;
    producer->log = options->log;
    producer->gpu = options->gpu;
    producer->is_unfinished = options->is_unfinished;
    if (options->rings_limit_bytes > options->rings_used_bytes)
        producer->rings_remaining_bytes = options->rings_limit_bytes - options->rings_used_bytes;
    producer->gpu_lost = options->gpu_lost;
    producer->lost_context = options->context;
    producer->stats_service = options->stats_service;
    memcpy(producer->counters, counters_at_start, sizeof producer->counters);
    status = trajd_mixture_plan_create(options->spec, options->datasets, &producer->plan, error);
    if (!status)
        status = check_quarantine(producer, options, error);
    for (uint32_t p = 0; !status && options->is_unfinished && p < producer->plan->member_count; p++)
        trajd_window_plan_leave_unfinished(producer->plan->members[p]);
    if (!status)
        status = trajd_producer_normalise(producer, options, error);
    if (!status)
        status = trajd_mixture_batch_create(producer->plan, &producer->batch, error);
    if (!status)
        status = trajd_producer_make_schema(producer, error);
    if (!status) {
        producer->slot_count = choose_slot_count(producer);
        status = check_ring(producer, options, error);
    }
    if (!status)
        status = make_members(producer, options, error);
    if (!status && options->server)
        status = load_rows(producer, error);
    if (!status)
        status = add_feed(producer, options, error);
    if (!status && options->server)
        status = start_thread(producer, error);
    if (status)
        trajd_producer_destroy(&producer);
    else
        producer->owns_spec = options->owns_spec;
    *out = producer;
    return status;
}

void trajd_producer_stop(struct trajd_producer *producer)
{
    /* relaxed: a flag that orders nothing; the join orders the rest */
    __atomic_store_n(&producer->stop, true, __ATOMIC_RELAXED);
    trajd_heartbeat_cancel(&producer->heartbeat);
    if (producer->feed)
        trajd_feed_close(producer->feed); /* ends a waiting take; publish may still be called */
}

static void free_members(struct trajd_producer *producer)
{
    trajd_producer_drop_rows(producer);
    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        trajd_plan_destroy(&producer->members[p].kernel_plan);
    free(producer->members);
}

void trajd_producer_destroy(struct trajd_producer **out)
{
    struct trajd_producer *producer = *out;

    *out = NULL;
    if (!producer)
        return;
    trajd_producer_stop(producer);
    if (producer->running)
        pthread_join(producer->thread, NULL);
    if (producer->feed)
        trajd_server_remove_feed(producer->server, &producer->feed);
    for (uint32_t p = 0; producer->plan && p < producer->plan->member_count; p++)
        trajd_stats_service_forget(producer->stats_service, producer->plan->members[p]);
    trajd_producer_gpu_destroy(producer);
    if (producer->members)
        free_members(producer);
    trajd_mixture_batch_destroy(&producer->batch);
    trajd_mixture_plan_destroy(&producer->plan);
    if (producer->owns_spec)
        trajd_window_spec_destroy(&producer->spec);
    pthread_mutex_destroy(&producer->last_failure.mutex);
    free(producer->schema.tensors);
    free(producer->mask_names);
    free(producer->name);
    free(producer->text);
    free(producer);
}
