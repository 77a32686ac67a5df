#include "daemon/feeder.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "daemon/base/counter.h"
#include "daemon/base/json.h"
#include "daemon/dataset/window_plan.h"
#include "daemon/dataset/window_report.h"
#include "kernels/plan.h"
#include "proto/ring_layout.h"

#define TAKE_TIMEOUT_MS 500
#define PAUSE_NS 1000000 /* between attempts to get room that other feeds have pinned */
#define ID_COUNT 4

enum { COUNT_BATCHES, COUNT_WINDOWS, COUNT_FAILED, COUNT_WAIT_NS, COUNT_LOAD_NS, COUNT_RESAMPLE_NS, COUNTER_COUNT };

static const struct trajd_counter counters_at_start[COUNTER_COUNT] = {
    [COUNT_BATCHES] = {"batches", "Batches made", "batches", TRAJD_COUNTER_TOTAL, 0},
    [COUNT_WINDOWS] = {"windows", "Windows made", "windows", TRAJD_COUNTER_TOTAL, 0},
    [COUNT_FAILED] = {"failed_batches", "Batches that carry an error instead of rows", "batches", TRAJD_COUNTER_TOTAL, 0},
    [COUNT_WAIT_NS] = {"wait_ns", "Time without a free slot or a job", "ns", TRAJD_COUNTER_TOTAL, 0},
    [COUNT_LOAD_NS] = {"load_ns", "Time waiting for rows from the store", "ns", TRAJD_COUNTER_TOTAL, 0},
    [COUNT_RESAMPLE_NS] = {"resample_ns", "Time in the kernels", "ns", TRAJD_COUNTER_TOTAL, 0},
};

struct trajd_feeder {
    char *name;
    struct trajd_window_spec *spec;
    bool owns_spec;
    struct trajd_dataset *dataset;
    struct trajd_pool *pool;
    struct trajd_server *server;
    const struct trajd_log *log;
    struct trajd_window_plan *plan;
    struct trajd_plan *kernel_plan;
    struct trajd_feed_schema schema;
    char *mask_names;            /* "NAME.mask" of each output, NUL-separated */
    struct trajd_feed *feed;
    pthread_t thread;
    bool running;
    bool stop;                   /* atomic: the thread is to end */
    bool waits_for_rows;         /* atomic: in the store, which may be on dead storage */
    bool resident;               /* every piece stays in the store while the feed lives: nothing is pinned per batch */
    const void **rows;           /* [index episodes][pieces], of the episodes pinned now */
    uint8_t *pinned;             /* [index episodes]: 1 pinned, 2 unreadable (bad_rows: keep) */
    uint32_t *ahead;             /* [G]: episodes announced */
    uint64_t announced_life, announced_until;
    int64_t last_turn_ns;
    struct trajd_counter counters[COUNTER_COUNT];
};

struct trajd_feed *trajd_feeder_feed(const struct trajd_feeder *feeder)
{
    return feeder->feed;
}

const char *trajd_feeder_name(const struct trajd_feeder *feeder)
{
    return feeder->name;
}

uint64_t trajd_feeder_ring_bytes(const struct trajd_feeder *feeder)
{
    uint64_t bytes;

    if (__builtin_mul_overflow(feeder->schema.slot_size_bytes, feeder->spec->slot_count, &bytes) ||
        __builtin_add_overflow(bytes, TRAJD_RING_ALIGNMENT, &bytes))
        return UINT64_MAX;
    return bytes;
}

bool trajd_feeder_waits_for_rows(const struct trajd_feeder *feeder)
{
    return __atomic_load_n(&feeder->waits_for_rows, __ATOMIC_RELAXED); /* a flag on its own: orders nothing */
}

int64_t trajd_feeder_last_turn_ns(const struct trajd_feeder *feeder)
{
    return __atomic_load_n(&feeder->last_turn_ns, __ATOMIC_RELAXED); /* a time on its own: orders nothing */
}

/* ---- the slot's tensors ---- */

static void add_tensor(struct trajd_feeder *feeder, const char *name, const char *role, const char *of,
                       enum trajd_dtype dtype, uint32_t rank, const uint64_t *shape)
{
    struct trajd_feed_tensor *tensor = &feeder->schema.tensors[feeder->schema.tensor_count++];

    *tensor = (struct trajd_feed_tensor){.name = name, .role = role, .of = of, .dtype = dtype, .rank = rank + 1};
    tensor->shape[0] = feeder->spec->global_batch;
    for (uint32_t i = 0; i < rank; i++)
        tensor->shape[i + 1] = shape[i];
}

static void add_output_tensors(struct trajd_feeder *feeder, const struct trajd_plan_output *output, char **mask_name)
{
    const char *role = output->role == TRAJD_ROLE_OBS ? "obs" : "action";
    uint64_t shape[TRAJD_ARRAY_MAX_RANK + 1] = {output->step_count};

    memcpy(shape + 1, output->shape, output->rank * sizeof *shape);
    add_tensor(feeder, output->name, role, NULL, output->dtype, output->rank + 1, shape);
    sprintf(*mask_name, "%s.mask", output->name);
    add_tensor(feeder, *mask_name, "mask", output->name, TRAJD_U8, 1, shape);
    *mask_name += strlen(*mask_name) + 1;
}

/* Tensors: output and mask in turn, then the ids. */
static enum trajd_status make_schema(struct trajd_feeder *feeder, struct trajd_error *error)
{
    static const char *const ids[ID_COUNT] = {"window_id", "dataset_index", "episode_index", "anchor_ns"};
    struct trajd_window_plan *plan = feeder->plan;
    size_t names = 1;
    char *mask_name;
    enum trajd_status status;

    for (uint32_t o = 0; o < plan->output_count; o++)
        names += strlen(plan->outputs[o].name) + sizeof ".mask";
    feeder->schema.global_batch = feeder->spec->global_batch;
    feeder->schema.tensors = calloc(2 * plan->output_count + ID_COUNT + 1, sizeof *feeder->schema.tensors);
    mask_name = feeder->mask_names = malloc(names);
    if (!feeder->schema.tensors || !mask_name)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the schema");
    for (uint32_t o = 0; o < plan->output_count; o++)
        add_output_tensors(feeder, &plan->outputs[o], &mask_name);
    for (int i = 0; i < ID_COUNT; i++)
        add_tensor(feeder, ids[i], "ids", NULL, TRAJD_I64, 0, NULL);
    if (feeder->spec->tail == TRAJD_TAIL_WRAP)
        add_tensor(feeder, "wrapped", "ids", NULL, TRAJD_BOOL, 0, NULL);
    status = trajd_feed_schema_layout(&feeder->schema, error);
    for (uint32_t o = 0; o < plan->output_count && !status; o++) {
        plan->outputs[o].offset_bytes = feeder->schema.tensors[2 * o].offset_bytes;
        plan->outputs[o].mask_offset_bytes = feeder->schema.tensors[2 * o + 1].offset_bytes;
    }
    return status;
}

static void write_ids(const struct trajd_feeder *feeder, const struct trajd_fill *fill)
{
    const struct trajd_feed_tensor *ids = &feeder->schema.tensors[2 * feeder->plan->output_count];
    uint8_t *slot = fill->memory;
    int64_t *columns[ID_COUNT];

    for (int i = 0; i < ID_COUNT; i++)
        columns[i] = (int64_t *)(slot + ids[i].offset_bytes);
    for (uint32_t w = 0; w < fill->row_count; w++) {
        const struct trajd_window *window = &feeder->plan->windows[w];
        const struct trajd_episode *episode = &feeder->dataset->index->episodes[window->episode_index];
        columns[0][w] = (int64_t)window->window_id;
        columns[1][w] = window->dataset_index;
        columns[2][w] = window->episode_index;
        columns[3][w] = episode->origin_ns + feeder->plan->anchor_ns[w];
        if (feeder->spec->tail == TRAJD_TAIL_WRAP)
            slot[ids[ID_COUNT].offset_bytes + w] = window->wrapped;
    }
}

/* ---- rows ---- */

static const void *const *rows_of(void *context, uint32_t episode)
{
    struct trajd_feeder *feeder = context;
    return feeder->pinned[episode] == 1 ? feeder->rows + (size_t)episode * feeder->plan->selection.dataset_count : NULL;
}

static enum trajd_status pin_episode(struct trajd_feeder *feeder, uint32_t episode, struct trajd_error *error)
{
    const struct trajd_selection *selection = &feeder->plan->selection;
    enum trajd_status status;

    if (feeder->pinned[episode])
        return TRAJD_OK;
    __atomic_store_n(&feeder->waits_for_rows, true, __ATOMIC_RELAXED);
    status = trajd_store_pin(feeder->dataset->store, selection, episode,
                             feeder->rows + (size_t)episode * selection->dataset_count, error);
    __atomic_store_n(&feeder->waits_for_rows, false, __ATOMIC_RELAXED);
    __atomic_store_n(&feeder->last_turn_ns, trajd_now_ns(), __ATOMIC_RELAXED);
    if (!status)
        feeder->pinned[episode] = 1;
    else if (status != TRAJD_ERR_MEMORY && feeder->spec->keep_bad_rows) {
        feeder->pinned[episode] = 2;
        return TRAJD_OK;
    }
    return status;
}

static void unpin_windows(struct trajd_feeder *feeder, uint32_t first, uint32_t count)
{
    for (uint32_t w = first; w < first + count && !feeder->resident; w++) {
        const uint32_t episode = feeder->plan->windows[w].episode_index;
        if (feeder->pinned[episode] == 1)
            trajd_store_unpin(feeder->dataset->store, &feeder->plan->selection, episode);
        feeder->pinned[episode] = 0;
    }
}

/* bad_rows: keep. What cannot be read is NaN where the type has one (beside the mask that says MISSING), whatever pads the edges. */
static void spoil_window(const struct trajd_feeder *feeder, uint8_t *slot, uint32_t w)
{
    for (uint32_t o = 0; o < feeder->plan->output_count; o++) {
        const struct trajd_plan_output *output = &feeder->plan->outputs[o];
        const uint64_t count = output->step_count * output->feature_count, size = trajd_dtype_size(output->dtype);
        uint8_t *at = slot + output->offset_bytes + w * count * size;
        const uint64_t nan = output->dtype == TRAJD_F64    ? UINT64_C(0x7ff8000000000000)
                             : output->dtype == TRAJD_F32  ? 0x7fc00000
                             : output->dtype == TRAJD_F16  ? 0x7e00
                             : output->dtype == TRAJD_BF16 ? 0x7fc0 : 0;
        for (uint64_t i = 0; i < count && nan; i++)
            memcpy(at + i * size, &nan, size); /* little endian: the low bytes are the element */
    }
}

static void spoil_windows(const struct trajd_feeder *feeder, uint8_t *slot, uint32_t first, uint32_t count)
{
    for (uint32_t w = first; w < first + count; w++)
        if (feeder->pinned[feeder->plan->windows[w].episode_index] == 2)
            spoil_window(feeder, slot, w);
}

/* One window does not fit the store: beside what other feeds have pinned, which they give back soon, or at all. */
static bool wait_for_others(struct trajd_feeder *feeder)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct trajd_store_stats stats;

    trajd_store_get_stats(feeder->dataset->store, &stats);
    if (!stats.pinned_bytes || __atomic_load_n(&feeder->stop, __ATOMIC_RELAXED))
        return false;
    nanosleep(&pause, NULL);
    return true;
}

/* Makes windows [first, first + count). Where they need more rows at once than the store may hold: half of them, then the rest. */
static enum trajd_status make_windows(struct trajd_feeder *feeder, const struct trajd_fill *fill, uint32_t first,
                                      uint32_t count, struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;
    int64_t loaded_ns;

    for (uint32_t w = first; w < first + count && !status; w++)
        status = pin_episode(feeder, feeder->plan->windows[w].episode_index, error);
    loaded_ns = trajd_now_ns();
    trajd_counter_add(&feeder->counters[COUNT_LOAD_NS], (uint64_t)(loaded_ns - begin_ns));
    if (!status) {
        trajd_window_plan_bind(feeder->plan, first, count, fill->memory, rows_of, feeder);
        status = trajd_plan_run(feeder->kernel_plan, &feeder->plan->request, feeder->pool, error);
        trajd_counter_add(&feeder->counters[COUNT_RESAMPLE_NS], (uint64_t)(trajd_now_ns() - loaded_ns));
        if (feeder->spec->keep_bad_rows)
            spoil_windows(feeder, fill->memory, first, count);
    }
    unpin_windows(feeder, first, count);
    if (status == TRAJD_ERR_MEMORY && count == 1 && wait_for_others(feeder))
        return make_windows(feeder, fill, first, count, error);
    if (status == TRAJD_ERR_MEMORY && count > 1) {
        const uint32_t half = count / 2;
        status = make_windows(feeder, fill, first, half, error);
        if (!status)
            status = make_windows(feeder, fill, first + half, count - half, error);
    }
    return status;
}

/* Tells the store which episodes the batches behind this one will want, each batch once. */
static void announce_ahead(struct trajd_feeder *feeder, const struct trajd_fill *fill)
{
    const uint64_t length = trajd_sampler_epoch_length(feeder->plan->sampler), batch = feeder->spec->global_batch;
    const uint64_t begin = fill->position + fill->row_count;
    uint64_t end = begin + feeder->spec->slot_count * batch;

    if (feeder->resident)
        return;
    if (feeder->announced_life != fill->life || feeder->announced_until > end) {
        feeder->announced_life = fill->life;
        feeder->announced_until = begin;
    }
    for (end = end < length ? end : length; feeder->announced_until < end;) {
        uint32_t count = 0;
        const uint64_t when = fill->epoch * length + feeder->announced_until;
        for (; count < batch && feeder->announced_until < end; count++) {
            struct trajd_window window;
            trajd_sampler_at(feeder->plan->sampler, fill->epoch, feeder->announced_until++, &window);
            feeder->ahead[count] = window.episode_index;
        }
        trajd_store_announce(feeder->dataset->store, &feeder->plan->selection, feeder->ahead, count, when);
    }
}

/* ---- the thread ---- */

static void make_batch(struct trajd_feeder *feeder, const struct trajd_fill *fill)
{
    struct trajd_error error;
    enum trajd_status status;

    trajd_window_plan_look_up(feeder->plan, fill->epoch, fill->position, fill->row_count);
    announce_ahead(feeder, fill);
    status = make_windows(feeder, fill, 0, fill->row_count, &error);
    write_ids(feeder, fill);
    if (status) {
        trajd_counter_add(&feeder->counters[COUNT_FAILED], 1);
        LOG(feeder->log, WARNING, "feed %s: epoch %llu, position %llu: %s", feeder->name,
            (unsigned long long)fill->epoch, (unsigned long long)fill->position, error.message);
    }
    trajd_counter_add(&feeder->counters[COUNT_BATCHES], 1);
    trajd_counter_add(&feeder->counters[COUNT_WINDOWS], fill->row_count);
    trajd_feed_publish(feeder->feed, fill, status ? &error : NULL);
}

static void *produce(void *context)
{
    struct trajd_feeder *feeder = context;
    enum trajd_status status;

    do {
        struct trajd_fill fill;
        const int64_t begin_ns = trajd_now_ns();
        __atomic_store_n(&feeder->last_turn_ns, begin_ns, __ATOMIC_RELAXED);
        status = trajd_feed_take(feeder->feed, TAKE_TIMEOUT_MS, &fill);
        trajd_counter_add(&feeder->counters[COUNT_WAIT_NS], (uint64_t)(trajd_now_ns() - begin_ns));
        if (!status)
            make_batch(feeder, &fill);
    } while (!status || status == TRAJD_ERR_TIMEOUT);
    return NULL;
}

static enum trajd_status start_thread(struct trajd_feeder *feeder, struct trajd_error *error)
{
    sigset_t all, before;
    int failed;

    feeder->last_turn_ns = trajd_now_ns();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&feeder->thread, NULL, produce, feeder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return trajd_error_set(error, TRAJD_ERR_SYSTEM, failed, "thread of feed %s: %s", feeder->name, strerror(failed));
    pthread_setname_np(feeder->thread, "trajd-feed");
    feeder->running = true;
    return TRAJD_OK;
}

/* What stays pinned for feeds' lives leaves a quarter of the store to those that come and go. */
static bool may_stay(const struct trajd_feeder *feeder)
{
    struct trajd_store_stats stats;

    trajd_store_get_stats(feeder->dataset->store, &stats);
    return stats.pinned_bytes <= stats.budget_bytes / 4 * 3;
}

static void unpin_all(struct trajd_feeder *feeder)
{
    for (uint32_t i = 0; feeder->pinned && i < feeder->plan->episode_count; i++) {
        const uint32_t episode = feeder->plan->episodes[i];
        if (feeder->pinned[episode] == 1)
            trajd_store_unpin(feeder->dataset->store, &feeder->plan->selection, episode);
        feeder->pinned[episode] = 0;
    }
}

/* Loads what fits; where all of it does and leaves room, pins it for the feed's life. */
static enum trajd_status load_rows(struct trajd_feeder *feeder, struct trajd_error *error)
{
    struct trajd_window_plan *plan = feeder->plan;
    const uint32_t episodes = feeder->dataset->index->episode_count;
    bool complete = false;
    enum trajd_status status;

    feeder->rows = calloc((size_t)episodes * plan->selection.dataset_count, sizeof *feeder->rows);
    feeder->pinned = calloc(episodes, 1);
    feeder->ahead = calloc(feeder->spec->global_batch, sizeof *feeder->ahead);
    if (!feeder->rows || !feeder->pinned || !feeder->ahead)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of feed %s", feeder->name);
    status = trajd_store_fill(feeder->dataset->store, &plan->selection, plan->episodes, plan->episode_count, &complete,
                              error);
    for (uint32_t i = 0; i < plan->episode_count && complete && !status; i++)
        status = pin_episode(feeder, plan->episodes[i], error);
    feeder->resident = complete && !status && may_stay(feeder);
    if (!feeder->resident)
        unpin_all(feeder);
    return status == TRAJD_ERR_MEMORY ? TRAJD_OK : status; /* others have pinned the room: rows come batch by batch */
}

static enum trajd_status make_kernel_plan(struct trajd_feeder *feeder, struct trajd_error *error)
{
    const struct trajd_device_facts facts = {.cpu_threads = trajd_pool_thread_count(feeder->pool)};
    struct trajd_resample_request shape = feeder->plan->request;

    shape.window_count = feeder->spec->global_batch;
    return trajd_plan_create(&shape, &facts, feeder->spec->variant, &feeder->kernel_plan, error);
}

static enum trajd_status check_ring(const struct trajd_feeder *feeder, const struct trajd_feeder_options *options,
                                    struct trajd_error *error)
{
    if (trajd_feeder_ring_bytes(feeder) > options->rings_left_bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "feed %s: a ring of %u slots of %llu bytes is over what memory.rings leaves (%llu bytes)",
                               feeder->name, feeder->spec->slot_count, (unsigned long long)feeder->schema.slot_size_bytes,
                               (unsigned long long)options->rings_left_bytes);
    return TRAJD_OK;
}

static enum trajd_status add_feed(struct trajd_feeder *feeder, const struct trajd_feeder_options *options,
                                  struct trajd_error *error)
{
    const struct trajd_sampler *sampler = feeder->plan->sampler;
    const struct trajd_feed_options feed = {.name = feeder->name,
                                            .schema = &feeder->schema,
                                            .slot_count = feeder->spec->slot_count,
                                            .max_credit = options->max_credit,
                                            .fingerprint = feeder->plan->fingerprint,
                                            .seed = feeder->spec->seed,
                                            .window_count = trajd_sampler_window_count(sampler),
                                            .epoch_length = trajd_sampler_epoch_length(sampler),
                                            .dropped_count = trajd_sampler_dropped_count(sampler),
                                            .tail_short = feeder->spec->tail == TRAJD_TAIL_SHORT,
                                            .journal_directory = options->journal_directory};

    return options->server ? trajd_server_add_feed(options->server, &feed, &feeder->feed, error) : TRAJD_OK;
}

enum trajd_status trajd_feeder_create(const struct trajd_feeder_options *options, struct trajd_feeder **out,
                                      struct trajd_error *error)
{
    struct trajd_feeder *feeder = calloc(1, sizeof *feeder);
    enum trajd_status status;

    *out = NULL;
    if (!feeder || !(feeder->name = strdup(options->name))) {
        free(feeder);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", options->name);
    }
    feeder->spec = options->spec;
    feeder->dataset = options->dataset;
    feeder->pool = options->pool;
    feeder->server = options->server;
    feeder->log = options->log;
    memcpy(feeder->counters, counters_at_start, sizeof feeder->counters);
    status = trajd_window_plan_create(options->spec, options->dataset, &feeder->plan, error);
    if (!status)
        status = make_schema(feeder, error);
    if (!status)
        status = check_ring(feeder, options, error);
    if (!status)
        status = make_kernel_plan(feeder, error);
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
    __atomic_store_n(&feeder->stop, true, __ATOMIC_RELAXED); /* a flag on its own: the join orders the rest */
    if (feeder->feed)
        trajd_feed_close(feeder->feed); /* take returns; publish still may be called */
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
    if (feeder->plan)
        unpin_all(feeder);
    trajd_plan_destroy(&feeder->kernel_plan);
    trajd_window_plan_destroy(&feeder->plan);
    if (feeder->owns_spec)
        trajd_window_spec_destroy(&feeder->spec);
    free(feeder->schema.tensors);
    free(feeder->mask_names);
    free(feeder->rows);
    free(feeder->pinned);
    free(feeder->ahead);
    free(feeder->name);
    free(feeder);
}

void trajd_feeder_describe(const struct trajd_feeder *feeder, FILE *out, bool json)
{
    if (!json) {
        trajd_window_report(feeder->plan, out);
        fprintf(out, "  %u slots of %llu bytes, kernels: %s\n", feeder->spec->slot_count,
                (unsigned long long)feeder->schema.slot_size_bytes, trajd_plan_describe(feeder->kernel_plan));
        return;
    }
    fprintf(out, "{\"name\":");
    trajd_json_text(out, feeder->name);
    fprintf(out, ",\"resident\":%s,\"episodes\":%u,\"plan\":", feeder->resident ? "true" : "false",
            feeder->plan->episode_count);
    trajd_json_text(out, trajd_plan_describe(feeder->kernel_plan));
    for (int c = 0; c < COUNTER_COUNT; c++)
        fprintf(out, ",\"%s\":%llu", feeder->counters[c].name,
                (unsigned long long)trajd_counter_read(&feeder->counters[c]));
    fputc('}', out);
}
