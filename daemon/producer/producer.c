/* The thread of a feed: takes a free slot, looks its windows up, pins their rows in the row cache,
 * calls the kernels, and hands the slot over. Production on a GPU (producer_gpu_run.c) has the
 * pinning, the prefetching, the ids and the hand-over in common with it. */
#include "daemon/producer/producer_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/dispatch/plan.h"
#include "proto/array_len.h"

#define PAUSE_NS 1000000 /* between attempts to get room that other feeds have pinned */
#define TAKE_TIMEOUT_MS 500

/* ---- rows in the cache ---- */

static enum trajd_status pin_episode(struct trajd_producer *producer,
                                     struct trajd_producer_member *member, uint32_t episode,
                                     struct trajd_error *error)
{
    const struct trajd_selection *selection = member->selection;
    enum trajd_status status;

    if (member->pinned[episode])
        return TRAJD_OK;
    status = trajd_cache_pin(member->dataset->cache, selection, episode,
                             member->rows + (size_t)episode * selection->array_count, error);
    trajd_heartbeat_turn();
    if (!status)
        member->pinned[episode] = 1;
    else if (status != TRAJD_ERR_MEMORY && status != TRAJD_ERR_CLOSED &&
             producer->spec->keep_bad_rows) {
        member->pinned[episode] = 2;
        return TRAJD_OK;
    }
    return status;
}

static void unpin_episode(struct trajd_producer_member *member, uint32_t episode)
{
    if (member->pinned[episode] == 1)
        trajd_cache_unpin(member->dataset->cache, member->selection, episode);
    member->pinned[episode] = 0;
}

enum trajd_status trajd_producer_pin_windows(struct trajd_producer *producer,
                                             struct trajd_producer_member *member, uint32_t first,
                                             uint32_t count, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t w = first; w < first + count && !status; w++)
        status = pin_episode(producer, member, member->batch->windows[w].episode_index, error);
    return status;
}

void trajd_producer_unpin_windows(struct trajd_producer_member *member, uint32_t first,
                                  uint32_t count)
{
    for (uint32_t w = first; w < first + count && !member->resident; w++)
        unpin_episode(member, member->batch->windows[w].episode_index);
}

bool trajd_producer_pause_for_room(const struct trajd_producer *producer,
                                   const struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    trajd_heartbeat_turn();
    if (error->foreign_code == ENOMEM || __atomic_load_n(&producer->stop, __ATOMIC_RELAXED))
        return false;
    nanosleep(&pause, NULL);
    return true;
}

bool trajd_producer_wait_for_others(const struct trajd_producer *producer,
                                    const struct trajd_producer_member *member, uint32_t episode,
                                    const struct trajd_error *error)
{
    return trajd_cache_will_have_room(member->dataset->cache, member->selection, episode) &&
           trajd_producer_pause_for_room(producer, error);
}

/* Returns true where the member's rows may stay pinned for the feed's life: a quarter of the row
 * cache must remain for rows that come and go. */
static bool may_stay(const struct trajd_producer_member *member)
{
    struct trajd_cache_stats stats;

    trajd_cache_get_stats(member->dataset->cache, &stats);
    return stats.pinned_bytes <= stats.budget_bytes / 4 * 3;
}

static void unpin_member(struct trajd_producer_member *member)
{
    for (uint32_t i = 0; member->pinned && i < member->plan->episode_count; i++) {
        const uint32_t episode = member->plan->episodes[i];
        if (member->resident && member->pinned[episode] == 1)
            trajd_cache_release(member->dataset->cache, member->selection, episode);
        unpin_episode(member, episode);
    }
    member->resident = false;
}

void trajd_producer_drop_rows(struct trajd_producer *producer)
{
    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        trajd_producer_close_images(&producer->members[p]);
        unpin_member(&producer->members[p]);
    }
    trajd_mixture_batch_destroy(&producer->ahead_batch);
}

static void keep_member(struct trajd_producer_member *member)
{
    for (uint32_t i = 0; i < member->plan->episode_count; i++)
        if (member->pinned[member->plan->episodes[i]] == 1)
            trajd_cache_retain(member->dataset->cache, member->selection,
                               member->plan->episodes[i]);
    member->resident = true;
}

static enum trajd_status load_member(struct trajd_producer *producer,
                                     struct trajd_producer_member *member,
                                     struct trajd_error *error)
{
    const struct trajd_window_plan *plan = member->plan;
    const uint32_t episodes = member->dataset->index->episode_count;
    bool complete = false;
    enum trajd_status status;

    member->rows =
        trajd_arena_array(&producer->arena, (uint64_t)episodes * member->selection->array_count,
                          sizeof *member->rows);
    member->pinned = trajd_arena_array(&producer->arena, episodes, 1);
    member->ahead =
        trajd_arena_array(&producer->arena, producer->spec->global_batch, sizeof *member->ahead);
    if (producer->arena.is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the rows of feed %s",
                               producer->name);
    if (!member->selection->array_count) { /* all are images, or all are on the GPU */
        memset(member->pinned, 1, episodes);
        member->resident = true;
        return TRAJD_OK;
    }
    status = trajd_cache_fill(member->dataset->cache, member->selection, plan->episodes,
                              plan->episode_count, &complete, error);
    for (uint32_t i = 0; i < plan->episode_count && complete && !status; i++)
        status = pin_episode(producer, member, plan->episodes[i], error);
    if (complete && !status && may_stay(member))
        keep_member(member);
    else
        unpin_member(member);
    /* where other feeds have pinned the room, rows are loaded batch by batch */
    return status == TRAJD_ERR_MEMORY ? TRAJD_OK : status;
}

enum trajd_status trajd_producer_load_rows(struct trajd_producer *producer,
                                           struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    producer->next =
        trajd_arena_array(&producer->arena, producer->spec->global_batch, sizeof *producer->next);
    if (!producer->next)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for feed %s", producer->name);
    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++)
        status = load_member(producer, &producer->members[p], error);
    for (uint32_t p = 0; p < producer->plan->member_count && !status && !producer->options.gpu; p++)
        status = trajd_producer_open_images(producer, &producer->members[p], error);
    return status;
}

/* ---- ahead of production ---- */

static bool begins(const struct trajd_producer_ahead *ahead, const struct trajd_fill *fill)
{
    return ahead->run_id != fill->run_id || ahead->epoch != fill->epoch;
}

/* Calls `look` for the next `depth` batches after this one, each batch once and at most `at_once` in
 * one call, until one has no room: the next call begins with that one. */
static void look_ahead(struct trajd_producer *producer, const struct trajd_fill *fill,
                       uint64_t depth, uint64_t at_once, struct trajd_producer_ahead *ahead,
                       bool (*look)(struct trajd_producer *producer, const struct trajd_fill *fill,
                                    uint64_t position, uint32_t count))
{
    const uint64_t length = trajd_mixture_plan_epoch_length(producer->plan),
                   batch = producer->spec->global_batch, begin = fill->position + fill->row_count;
    uint64_t end = begin + depth * batch;

    if (begins(ahead, fill) || ahead->until > end || ahead->until < begin)
        *ahead = (struct trajd_producer_ahead){fill->run_id, fill->epoch, begin};
    end = end < length ? end : length;
    for (uint64_t looked = 0; ahead->until < end && looked < at_once; looked++) {
        const uint64_t remaining = end - ahead->until,
                       count = remaining < batch ? remaining : batch;
        if (!look(producer, fill, ahead->until, (uint32_t)count))
            return;
        ahead->until += count;
    }
}

static int compare_episodes(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static bool prefetch_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                           uint64_t position, uint32_t count)
{
    const uint64_t length = trajd_mixture_plan_epoch_length(producer->plan),
                   batch = producer->spec->global_batch;

    trajd_mixture_plan_run(producer->plan, fill->epoch, position, count, producer->next);
    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        producer->members[p].ahead_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct trajd_producer_member *member = &producer->members[producer->next[i].dataset_index];
        if (trajd_producer_reads_row(
                fill, ((position + i) % batch + batch - fill->position % batch) % batch))
            member->ahead[member->ahead_count++] = producer->next[i].episode_index;
    }
    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_producer_member *member = &producer->members[p];
        /* in the order of the files, so that neighbours are read together */
        qsort(member->ahead, member->ahead_count, sizeof *member->ahead, compare_episodes);
        if (member->ahead_count && !member->resident)
            trajd_cache_prefetch(member->dataset->cache, member->selection, member->ahead,
                                 member->ahead_count, fill->epoch * length + position);
    }
    return true;
}

/* Returns for how many batches rows are read ahead: as many as the ring has slots. The orders that
 * stay in one place of the files need all rows of the next place at once, so they are read while
 * batches come from this one, as far as the cache can note their uses. */
static uint64_t rows_ahead(const struct trajd_producer *producer)
{
    const struct trajd_window_spec *spec = producer->spec;
    const struct trajd_mixture *mixture = producer->plan->mixture;
    const uint64_t place = (uint64_t)spec->block_windows * spec->block_neighbours;
    uint64_t windows = 0, uses = 1, batches;

    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_producer_member *member = &producer->members[p];
        const uint64_t share =
            mixture ? trajd_mixture_weight_sum(mixture) / trajd_mixture_weight(mixture, p) : 1;
        const uint64_t count = trajd_sampler_number_count(member->plan->sampler),
                       episodes = place < count ? member->plan->episode_count * place / count + 2
                                                : member->plan->episode_count;
        windows = place * share > windows ? place * share : windows;
        uses += (episodes < spec->global_batch ? episodes : spec->global_batch) *
                member->selection->array_count;
    }
    batches = windows / spec->global_batch;
    batches = batches < TRAJD_CACHE_USES / 2 / uses ? batches : TRAJD_CACHE_USES / 2 / uses;
    return spec->order == TRAJD_ORDER_GLOBAL || batches < producer->slot_count
               ? producer->slot_count
               : batches;
}

void trajd_producer_prefetch_rows(struct trajd_producer *producer, const struct trajd_fill *fill)
{
    bool is_resident = true;

    for (uint32_t p = 0; p < producer->plan->member_count; p++)
        is_resident = is_resident && producer->members[p].resident;
    if (!is_resident)
        look_ahead(producer, fill, rows_ahead(producer), UINT64_MAX, &producer->prefetched,
                   prefetch_batch);
}

/* Where production begins, this batch comes first, unless its frames travel to a GPU already, and the
 * others are asked for when it is made: their decoding would delay it. A look at a whole place is
 * spread over some batches, so that the second one need not wait for it. */
void trajd_producer_prefetch_frames(struct trajd_producer *producer, const struct trajd_fill *fill)
{
    const struct trajd_window_spec *spec = producer->spec;
    const uint64_t place = (uint64_t)spec->block_windows * spec->block_neighbours,
                   batches = spec->order == TRAJD_ORDER_GLOBAL ? 0 : place / spec->global_batch;
    uint64_t at_once = 2 * (uint64_t)producer->slot_count + 2;

    if (!producer->ahead_batch)
        return;
    if (begins(&producer->wanted, fill)) {
        trajd_producer_forget_frames(producer);
        at_once = producer->on_gpu ? at_once : 0;
        if (!producer->on_gpu)
            trajd_producer_want_frames(producer, fill, fill->position, fill->row_count);
    }
    look_ahead(producer, fill, batches > producer->slot_count ? batches : producer->slot_count,
               at_once, &producer->wanted, trajd_producer_want_frames);
}

/* ---- windows ---- */

static const void *const *rows_of(void *context, uint32_t episode)
{
    const struct trajd_producer_member *member = context;
    return member->pinned[episode] == 1
               ? member->rows + (size_t)episode * member->selection->array_count
               : NULL;
}

/* Fills one row of the batch with NaN, in outputs whose type has one (bad_rows: keep). Rows that
 * cannot be read become NaN and masked MISSING, whatever pads the edges. */
static void fill_row_with_nan(const struct trajd_binding *batch, uint32_t row)
{
    const struct trajd_window_plan *plan = batch->plan;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++) {
        const struct trajd_plan_output *output = &plan->rules.outputs[o];
        const uint64_t count = output->step_count * output->feature_count,
                       size = trajd_dtype_size(output->dtype);
        uint8_t *at = batch->slot + batch->outputs[o].offset_bytes + row * count * size;
        const uint64_t nan = output->dtype == TRAJD_F64    ? UINT64_C(0x7ff8000000000000)
                             : output->dtype == TRAJD_F32  ? 0x7fc00000
                             : output->dtype == TRAJD_F16  ? 0x7e00
                             : output->dtype == TRAJD_BF16 ? 0x7fc0
                                                           : 0;
        for (uint64_t i = 0; i < count && nan; i++)
            memcpy(at + i * size, &nan, size); /* little-endian: the low bytes are the element */
    }
}

static void fill_windows_with_nan(const struct trajd_producer_member *member, uint32_t first,
                                  uint32_t count)
{
    for (uint32_t w = first; w < first + count; w++)
        if (member->pinned[member->batch->windows[w].episode_index] == 2)
            fill_row_with_nan(member->batch,
                              member->batch->window_rows ? member->batch->window_rows[w] : w);
}

struct finishing {
    const struct trajd_binding *batch;
    uint32_t first;
};

/* Makes the outputs with a transform of resampled windows, in a thread of the pool. */
static void finish_slice(void *context, uint32_t begin, uint32_t end)
{
    const struct finishing *finishing = context;

    trajd_binding_finish(finishing->batch, finishing->first, begin, end, NULL);
}

/* Makes these windows. TRAJD_ERR_MEMORY: their rows do not fit the cache together at present. */
static enum trajd_status try_windows(struct trajd_producer *producer,
                                     struct trajd_producer_member *member,
                                     const struct trajd_fill *fill, uint32_t first, uint32_t count,
                                     struct trajd_error *error)
{
    struct finishing finishing = {member->batch, first};
    int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = trajd_producer_pin_windows(producer, member, first, count, error);

    begin_ns = trajd_producer_count_time(producer, TRAJD_PRODUCER_LOAD_NS, begin_ns);
    if (!status) {
        trajd_bind_windows(member->batch, first, count, fill->memory, rows_of, member);
        status = trajd_plan_run_then(member->kernel_plan, &member->batch->request, finish_slice,
                                     &finishing, producer->options.pool, error);
        trajd_producer_count_time(producer, TRAJD_PRODUCER_RESAMPLE_NS, begin_ns);
        if (!status)
            status = trajd_producer_make_images(producer, member, first, count, error);
        if (producer->spec->keep_bad_rows)
            fill_windows_with_nan(member, first, count);
    }
    trajd_producer_unpin_windows(member, first, count);
    return status;
}

static enum trajd_status make_windows(struct trajd_producer *producer,
                                      struct trajd_producer_member *member,
                                      const struct trajd_fill *fill, uint32_t first, uint32_t count,
                                      struct trajd_error *error)
{
    enum trajd_status status;

    do
        status = try_windows(producer, member, fill, first, count, error);
    while (status == TRAJD_ERR_MEMORY && count == 1 &&
           trajd_producer_wait_for_others(producer, member,
                                          member->batch->windows[first].episode_index, error));
    if (status == TRAJD_ERR_MEMORY && count > 1) {
        const uint32_t half = count / 2;
        status = make_windows(producer, member, fill, first, half, error);
        if (!status)
            status = make_windows(producer, member, fill, first + half, count - half, error);
    }
    return status;
}

enum trajd_status trajd_producer_make_rows(struct trajd_producer *producer,
                                           const struct trajd_fill *fill, struct trajd_rows rows,
                                           struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t p = 0; p < producer->plan->member_count && !status; p++) {
        struct trajd_producer_member *member = &producer->members[p];
        uint32_t first, count;

        trajd_mixture_batch_slice(member->batch, rows.begin, rows.count, &first, &count);
        trajd_counter_add(&member->windows, count);
        if (count)
            status = make_windows(producer, member, fill, first, count, error);
    }
    return status;
}

/* ---- ids ---- */

bool trajd_producer_fills(const struct trajd_producer *producer, uint32_t output_index)
{
    for (uint32_t p = 0; p < producer->plan->member_count; p++) {
        const struct trajd_plan_rules *rules = &producer->plan->members[p]->rules;
        if (rules->targets[trajd_rules_first_target(rules, output_index)].is_filled)
            return true;
    }
    return false;
}

static const struct trajd_episode *episode_of(const struct trajd_binding *member, uint32_t w)
{
    return &member->plan->dataset->index->episodes[member->windows[w].episode_index];
}

static uint32_t row_of(const struct trajd_binding *member, uint32_t w)
{
    return member->window_rows ? member->window_rows[w] : w;
}

/* Writes which columns of an output the windows' episodes lack. */
static void write_missing(const struct trajd_binding *member, uint32_t output_index,
                          const struct trajd_wire_tensor *tensor, uint8_t *slot, uint32_t first,
                          uint32_t count)
{
    const struct trajd_plan_rules *rules = &member->plan->rules;

    for (uint32_t w = first; w < first + count; w++) {
        uint8_t *columns = slot + tensor->offset_bytes + row_of(member, w) * tensor->shape[1];
        for (uint32_t t = 0; t < rules->target_count; t++) {
            const struct trajd_plan_target *target = &rules->targets[t];
            if (target->output_index != output_index)
                continue;
            memset(columns, trajd_plan_is_missing(member->plan, target, episode_of(member, w)),
                   target->stream.feature_count);
            columns += target->stream.feature_count;
        }
    }
}

static void write_ids(const struct trajd_producer *producer, const struct trajd_binding *member,
                      uint8_t *slot, uint32_t first, uint32_t count)
{
    const uint32_t outputs = member->plan->rules.visible_count;
    const bool has_wrapped = producer->spec->tail == TRAJD_TAIL_WRAP;
    const struct trajd_wire_tensor *ids = &producer->schema.tensors[2 * outputs],
                                   *missing = &ids[TRAJD_PRODUCER_ID_COUNT + has_wrapped];
    int64_t *columns[TRAJD_PRODUCER_ID_COUNT];

    for (int i = 0; i < TRAJD_PRODUCER_ID_COUNT; i++)
        columns[i] = (int64_t *)(slot + ids[i].offset_bytes);
    for (uint32_t w = first; w < first + count; w++) {
        const struct trajd_window *window = &member->windows[w];
        const uint32_t row = row_of(member, w);
        columns[0][row] = (int64_t)window->window_id;
        columns[1][row] = window->dataset_index;
        columns[2][row] = window->episode_index;
        columns[3][row] = episode_of(member, w)->origin_ns + member->anchor_ns[w];
        if (has_wrapped)
            slot[ids[TRAJD_PRODUCER_ID_COUNT].offset_bytes + row] = window->wrapped;
    }
    for (uint32_t o = 0; o < outputs; o++)
        if (trajd_producer_fills(producer, o))
            write_missing(member, o, missing++, slot, first, count);
}

void trajd_producer_write_ids(const struct trajd_producer *producer, const struct trajd_fill *fill)
{
    for (uint32_t r = 0; r < fill->range_count; r++)
        for (uint32_t p = 0; p < producer->plan->member_count; p++) {
            uint32_t first, count;
            trajd_mixture_batch_slice(producer->batch->members[p], fill->ranges[r].begin,
                                      fill->ranges[r].count, &first, &count);
            write_ids(producer, producer->batch->members[p], fill->memory, first, count);
        }
}

/* ---- hand-over ---- */

/* The counters of the work that a worker may wait for. */
static const struct {
    enum trajd_work work;
    int counter;
} counted[] = {{TRAJD_WORK_ROWS, TRAJD_PRODUCER_LOAD_NS},
               {TRAJD_WORK_DECODE, TRAJD_PRODUCER_FRAMES_NS},
               {TRAJD_WORK_KERNELS, TRAJD_PRODUCER_RESAMPLE_NS}};

static void set_work(struct trajd_producer *producer, struct trajd_fill *fill)
{
    for (size_t i = 0; i < ARRAY_LEN(counted); i++) {
        const uint64_t sum_ns = trajd_counter_read(&producer->counters[counted[i].counter]);
        fill->work_ns[counted[i].work] = sum_ns - producer->published_work_ns[counted[i].work];
        producer->published_work_ns[counted[i].work] = sum_ns;
    }
}

/* Counts and logs a batch that cannot be made. Its id, FEED/EPOCH/POSITION, begins the message of
 * *error: the line of the log, what the worker gets, and the feed's last_failure in the status. */
static void fail_batch(struct trajd_producer *producer, const struct trajd_fill *fill,
                       struct trajd_error *error)
{
    trajd_error_prefix(error, "batch %s/%llu/%llu", producer->name, (unsigned long long)fill->epoch,
                       (unsigned long long)fill->position);
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_FAILED], 1);
    LOG(producer->options.log, WARNING, "%s", error->message);
    pthread_mutex_lock(&producer->failure_mutex);
    producer->last_failure = *error;
    pthread_mutex_unlock(&producer->failure_mutex);
}

void trajd_producer_publish(struct trajd_producer *producer, const struct trajd_fill *fill,
                            const struct trajd_error *failure)
{
    struct trajd_fill done = *fill;
    struct trajd_error error;

    if (failure) {
        error = *failure;
        fail_batch(producer, fill, &error);
    }
    trajd_counter_add(&producer->counters[TRAJD_PRODUCER_BATCHES], 1);
    for (uint32_t r = 0; r < fill->range_count; r++)
        trajd_counter_add(&producer->counters[TRAJD_PRODUCER_WINDOWS], fill->ranges[r].count);
    set_work(producer, &done);
    trajd_feed_publish(producer->feed, &done, failure ? &error : NULL);
}

/* ---- the thread ---- */

static void make_batch(struct trajd_producer *producer, const struct trajd_fill *fill)
{
    enum trajd_status status = TRAJD_OK;
    struct trajd_error error;

    trajd_mixture_batch_look_up(producer->batch, fill->epoch, fill->position, fill->row_count);
    trajd_producer_prefetch_rows(producer, fill);
    trajd_producer_prefetch_frames(producer, fill);
    for (uint32_t r = 0; r < fill->range_count && !status; r++)
        status = trajd_producer_make_rows(producer, fill, fill->ranges[r], &error);
    if (status == TRAJD_ERR_CLOSED && __atomic_load_n(&producer->stop, __ATOMIC_RELAXED))
        return; /* the producer is being destroyed: no worker waits for the slot */
    trajd_producer_write_ids(producer, fill);
    trajd_producer_publish(producer, fill, status ? &error : NULL);
}

void *trajd_producer_run(void *context)
{
    struct trajd_producer *producer = context;
    enum trajd_status status;

    trajd_heartbeat_begin(&producer->heartbeat);
    do {
        struct trajd_fill fill;
        const int64_t begin_ns = trajd_now_ns();
        trajd_heartbeat_turn();
        status = trajd_feed_take(producer->feed, TAKE_TIMEOUT_MS, &fill);
        trajd_producer_count_time(producer, TRAJD_PRODUCER_WAIT_NS, begin_ns);
        if (!status)
            make_batch(producer, &fill);
    } while (!status || status == TRAJD_ERR_TIMEOUT);
    return NULL;
}
