#include "daemon/producer/producer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/thread.h"
#include "daemon/window/window_report.h"
#include "daemon/producer/producer_gpu.h"
#include "daemon/producer/gpu.h"
#include "kernels/dispatch/plan.h"
#include "proto/ring_layout.h"

#define TAKE_TIMEOUT_MS 500
#define SLOTS 4u
#define GPU_SLOTS 16u
#define GPU_RING_BYTES ((uint64_t)64 << 20)

static const struct trajd_counter counters_at_start[TRAJD_FEEDER_COUNTERS] = {
    [TRAJD_FEEDER_BATCHES] = {"batches", "Batches made", "batches", TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_FEEDER_WINDOWS] = {"windows", "Windows made", "windows", TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_FEEDER_FAILED] = {"failed_batches", "Batches that carry an error instead of rows",
                             "batches", TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_FEEDER_WAIT_NS] = {"wait_ns", "Time without a free slot or a job", "ns",
                              TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_FEEDER_LOAD_NS] = {"load_ns", "Time waiting for rows from the store", "ns",
                              TRAJD_COUNTER_TOTAL, 0},
    [TRAJD_FEEDER_RESAMPLE_NS] =
        {"resample_ns", "Time in the kernels; on a GPU of preparing and launching, by two threads",
         "ns", TRAJD_COUNTER_TOTAL, 0},
};

struct trajd_feed *trajd_feeder_feed(const struct trajd_feeder *feeder)
{
    return feeder->feed;
}

const struct trajd_mixture_plan *trajd_feeder_plan(const struct trajd_feeder *feeder)
{
    return feeder->plan;
}

struct trajd_statistician *trajd_feeder_statistician(const struct trajd_feeder *feeder)
{
    return feeder->statistician;
}

const char *trajd_feeder_name(const struct trajd_feeder *feeder)
{
    return feeder->name;
}

struct trajd_window_spec *trajd_feeder_spec(const struct trajd_feeder *feeder)
{
    return feeder->spec;
}

const char *trajd_feeder_text(const struct trajd_feeder *feeder)
{
    return feeder->text;
}

uint64_t trajd_feeder_ring_bytes(const struct trajd_feeder *feeder)
{
    uint64_t bytes;

    if (feeder->where)
        return feeder->pinned_bytes;
    if (__builtin_mul_overflow(feeder->schema.slot_size_bytes, feeder->slot_count, &bytes) ||
        __builtin_add_overflow(bytes, TRAJD_RING_ALIGNMENT, &bytes))
        return UINT64_MAX;
    return bytes;
}

struct trajd_gpu *trajd_feeder_gpu(const struct trajd_feeder *feeder)
{
    return feeder->where;
}

const struct trajd_watch *trajd_feeder_watch(const struct trajd_feeder *feeder)
{
    return &feeder->watch;
}

/* ---- the thread ---- */

static void make_batch(struct trajd_feeder *feeder, const struct trajd_fill *fill)
{
    enum trajd_status status = TRAJD_OK;
    struct trajd_error error;

    trajd_mixture_plan_look_up(feeder->plan, fill->epoch, fill->position, fill->row_count);
    trajd_feeder_announce(feeder, fill);
    for (uint32_t r = 0; r < fill->range_count && !status; r++)
        status = trajd_feeder_make_rows(feeder, fill, fill->ranges[r], &error);
    if (status == TRAJD_ERR_CLOSED && __atomic_load_n(&feeder->stop, __ATOMIC_RELAXED))
        return; /* it is being destroyed: nobody waits for the slot */
    trajd_feeder_write_ids(feeder, fill);
    if (status) {
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_FAILED], 1);
        LOG(feeder->log, WARNING, "feed %s: epoch %llu, position %llu: %s", feeder->name,
            (unsigned long long)fill->epoch, (unsigned long long)fill->position, error.message);
    }
    trajd_counter_add(&feeder->counters[TRAJD_FEEDER_BATCHES], 1);
    for (uint32_t r = 0; r < fill->range_count; r++)
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_WINDOWS], fill->ranges[r].count);
    trajd_feed_publish(feeder->feed, fill, status ? &error : NULL);
}

static void *produce(void *context)
{
    struct trajd_feeder *feeder = context;
    enum trajd_status status;

    trajd_watch_begin(&feeder->watch);
    if (feeder->gpu) {
        trajd_feeder_gpu_produce(feeder);
        return NULL;
    }
    do {
        struct trajd_fill fill;
        const int64_t begin_ns = trajd_now_ns();
        trajd_watch_turn();
        status = trajd_feed_take(feeder->feed, TAKE_TIMEOUT_MS, &fill);
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_WAIT_NS],
                          (uint64_t)(trajd_now_ns() - begin_ns));
        if (!status)
            make_batch(feeder, &fill);
    } while (!status || status == TRAJD_ERR_TIMEOUT);
    return NULL;
}

static enum trajd_status start_thread(struct trajd_feeder *feeder, struct trajd_error *error)
{
    const int failed = trajd_thread_start(&feeder->thread, "trajd-feed", produce, feeder);

    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "thread of feed %s: %s",
                               feeder->name, strerror(failed));
    feeder->running = true;
    return TRAJD_OK;
}

static enum trajd_status make_parts(struct trajd_feeder *feeder,
                                    const struct trajd_feeder_options *options,
                                    struct trajd_error *error)
{
    struct trajd_device_facts facts = {.cpu_threads = trajd_pool_thread_count(feeder->pool),
                                       .tuning = options->tuning};
    const char *variant = feeder->spec->variant;
    enum trajd_status status = TRAJD_OK;

    if (feeder->where) {
        trajd_device_facts(trajd_gpu_device(feeder->where), &facts);
        /* one that is named for the CPU is for the CPU */
        variant = variant && strncmp(variant, "cuda", 4) == 0 ? variant : NULL;
    }
    feeder->parts = calloc(feeder->plan->part_count, sizeof *feeder->parts);
    if (!feeder->parts)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", feeder->name);
    for (uint32_t p = 0; p < feeder->plan->part_count && !status; p++) {
        struct trajd_feeder_part *part = &feeder->parts[p];
        struct trajd_resample_request shape;

        part->dataset = options->datasets[p];
        part->plan = feeder->plan->parts[p];
        part->selection = &part->plan->selection;
        shape = part->plan->request;
        shape.window_count = feeder->spec->global_batch;
        status = trajd_plan_create(&shape, &facts, variant, &part->kernel_plan, error);
    }
    return status;
}

/* On a GPU a worker gives slots back in lots, half of what it may hold: small ones cost nothing
 * there. */
static uint32_t choose_slot_count(const struct trajd_feeder *feeder)
{
    const uint64_t fitting = GPU_RING_BYTES / feeder->schema.slot_size_bytes;

    if (feeder->spec->slot_count)
        return feeder->spec->slot_count;
    if (!feeder->where || fitting < SLOTS)
        return SLOTS;
    return fitting < GPU_SLOTS ? (uint32_t)fitting : GPU_SLOTS;
}

static enum trajd_status check_ring(const struct trajd_feeder *feeder,
                                    const struct trajd_feeder_options *options,
                                    struct trajd_error *error)
{
    if (trajd_feeder_ring_bytes(feeder) > options->rings_left_bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: a ring of %u slots of %llu bytes is over what "
                               "memory.rings leaves (%llu bytes)",
                               feeder->name, feeder->slot_count,
                               (unsigned long long)feeder->schema.slot_size_bytes,
                               (unsigned long long)options->rings_left_bytes);
    return TRAJD_OK;
}

static enum trajd_status add_feed(struct trajd_feeder *feeder,
                                  const struct trajd_feeder_options *options,
                                  struct trajd_error *error)
{
    const struct trajd_feed_options feed = {
        .name = feeder->name,
        .instance_of = options->instance_of,
        .is_hidden = options->is_hidden,
        .schema = &feeder->schema,
        .slot_count = feeder->slot_count,
        .max_credit = options->max_credit,
        .fingerprint = feeder->plan->fingerprint,
        .seed = feeder->spec->seed,
        .window_count = trajd_mixture_plan_window_count(feeder->plan),
        .epoch_length = trajd_mixture_plan_epoch_length(feeder->plan),
        .dropped_count = trajd_mixture_plan_dropped_count(feeder->plan),
        .tail_short = feeder->spec->tail == TRAJD_TAIL_SHORT,
        .journal_directory = options->journal_directory,
        .rank_timeout_ns = (uint64_t)feeder->spec->rank_timeout_ns,
        .job_count = feeder->spec->job_count,
        .slow_leaves = feeder->spec->slow_leaves,
        .slow_after_ns = (uint64_t)feeder->spec->slow_after_ns,
        .device = feeder->gpu ? trajd_feeder_gpu_memory(feeder) : NULL};

    enum trajd_status status;

    if (!options->server)
        return TRAJD_OK;
    trajd_watch_wait(); /* for the pages of its ring */
    status = trajd_server_add_feed(options->server, &feed, &feeder->feed, error);
    trajd_watch_resume();
    return status;
}

static enum trajd_status load_rows(struct trajd_feeder *feeder, struct trajd_error *error)
{
    enum trajd_status status;

    if (!feeder->where)
        return trajd_feeder_load_rows(feeder, error);
    trajd_watch_wait(); /* for the driver */
    status = trajd_feeder_gpu_create(feeder, feeder->where, error);
    if (status == TRAJD_ERR_MEMORY && !feeder->spec->slot_count && feeder->slot_count > SLOTS) {
        trajd_feeder_gpu_destroy(feeder);
        feeder->slot_count = SLOTS;
        status = trajd_feeder_gpu_create(feeder, feeder->where, error);
    }
    trajd_watch_resume();
    return status;
}

enum trajd_status trajd_feeder_create(const struct trajd_feeder_options *options,
                                      struct trajd_feeder **out, struct trajd_error *error)
{
    struct trajd_feeder *feeder = calloc(1, sizeof *feeder);
    enum trajd_status status;

    *out = NULL;
    if (!feeder || !(feeder->name = strdup(options->name)) ||
        (options->text && !(feeder->text = strdup(options->text)))) {
        free(feeder ? feeder->name : NULL);
        free(feeder);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", options->name);
    }
    feeder->spec = options->spec;
    feeder->pool = options->pool;
    feeder->server = options->server;
    feeder->log = options->log;
    feeder->where = options->gpu;
    feeder->rings_left_bytes = options->rings_left_bytes;
    feeder->gpu_lost = options->gpu_lost;
    feeder->lost_context = options->context;
    feeder->statistician = options->statistician;
    memcpy(feeder->counters, counters_at_start, sizeof feeder->counters);
    status = trajd_mixture_plan_create(options->spec, options->datasets, &feeder->plan, error);
    if (!status)
        status = trajd_feeder_normalise(feeder, options, error);
    if (!status)
        status = trajd_feeder_make_schema(feeder, error);
    if (!status) {
        feeder->slot_count = choose_slot_count(feeder);
        status = check_ring(feeder, options, error);
    }
    if (!status)
        status = make_parts(feeder, options, error);
    if (!status && options->server)
        status = load_rows(feeder, error);
    if (!status)
        status = add_feed(feeder, options, error);
    if (!status && options->server)
        status = start_thread(feeder, error);
    if (status)
        trajd_feeder_destroy(&feeder);
    else
        feeder->owns_spec = options->owns_spec;
    *out = feeder;
    return status;
}

void trajd_feeder_stop(struct trajd_feeder *feeder)
{
    /* a flag on its own: the join orders the rest */
    __atomic_store_n(&feeder->stop, true, __ATOMIC_RELAXED);
    trajd_watch_cancel(&feeder->watch);
    if (feeder->feed)
        trajd_feed_close(feeder->feed); /* take returns; publish still may be called */
}

static void free_parts(struct trajd_feeder *feeder)
{
    trajd_feeder_drop_rows(feeder);
    for (uint32_t p = 0; p < feeder->plan->part_count; p++)
        trajd_plan_destroy(&feeder->parts[p].kernel_plan);
    free(feeder->parts);
}

void trajd_feeder_destroy(struct trajd_feeder **out)
{
    struct trajd_feeder *feeder = *out;

    *out = NULL;
    if (!feeder)
        return;
    trajd_feeder_stop(feeder);
    if (feeder->running)
        pthread_join(feeder->thread, NULL);
    if (feeder->feed)
        trajd_server_remove_feed(feeder->server, &feeder->feed);
    for (uint32_t p = 0; feeder->plan && p < feeder->plan->part_count; p++)
        trajd_statistician_forget(feeder->statistician, feeder->plan->parts[p]);
    trajd_feeder_gpu_destroy(feeder);
    if (feeder->parts)
        free_parts(feeder);
    trajd_mixture_plan_destroy(&feeder->plan);
    if (feeder->owns_spec)
        trajd_window_spec_destroy(&feeder->spec);
    free(feeder->schema.tensors);
    free(feeder->mask_names);
    free(feeder->name);
    free(feeder->text);
    free(feeder);
}

/* Each dataset's windows and its share of them, as it is said and as it came. */
static void describe_parts(const struct trajd_feeder *feeder, FILE *out)
{
    const struct trajd_mixture *mixture = feeder->plan->mixture;

    fprintf(out, ",\"datasets\":[");
    for (uint32_t p = 0; p < feeder->plan->part_count; p++) {
        const struct trajd_feeder_part *part = &feeder->parts[p];
        fprintf(out, "%s{\"name\":", p ? "," : "");
        trajd_json_text(out, part->dataset->name);
        fprintf(out,
                ",\"weight\":%llu,\"of\":%llu,\"windows\":%llu,\"episodes\":%u,\"resident\":%s,"
                "\"made\":%llu}",
                mixture ? (unsigned long long)trajd_mixture_weight(mixture, p) : 1,
                mixture ? (unsigned long long)trajd_mixture_weight_sum(mixture) : 1,
                (unsigned long long)trajd_sampler_window_count(part->plan->sampler),
                part->plan->episode_count, part->resident ? "true" : "false",
                (unsigned long long)trajd_counter_read(&part->windows));
    }
    fputc(']', out);
}

void trajd_feeder_describe(const struct trajd_feeder *feeder, FILE *out, bool json)
{
    uint32_t resident_count = 0, episode_count = 0;

    for (uint32_t p = 0; p < feeder->plan->part_count; p++) {
        resident_count += feeder->parts[p].resident;
        episode_count += feeder->parts[p].plan->episode_count;
    }
    if (!json) {
        trajd_window_report(feeder->plan, out);
        trajd_feeder_describe_norm(feeder, out);
        fprintf(out, "  %u slots of %llu bytes, kernels: %s\n", feeder->slot_count,
                (unsigned long long)feeder->schema.slot_size_bytes,
                trajd_plan_describe(feeder->parts[0].kernel_plan));
        return;
    }
    fprintf(out, "{\"name\":");
    trajd_json_text(out, feeder->name);
    fprintf(out, ",\"resident\":%s,\"episodes\":%u,\"plan\":",
            resident_count == feeder->plan->part_count ? "true" : "false", episode_count);
    trajd_json_text(out, trajd_plan_describe(feeder->parts[0].kernel_plan));
    if (feeder->where) {
        fprintf(out, ",\"gpu\":");
        trajd_json_text(out, trajd_gpu_uuid(feeder->where));
    }
    fprintf(out, ",\"norm_digest\":\"%016llx\"",
            (unsigned long long)trajd_mixture_plan_norm_digest(feeder->plan));
    describe_parts(feeder, out);
    for (int c = 0; c < TRAJD_FEEDER_COUNTERS; c++)
        fprintf(out, ",\"%s\":%llu", feeder->counters[c].name,
                (unsigned long long)trajd_counter_read(&feeder->counters[c]));
    fputc('}', out);
}
