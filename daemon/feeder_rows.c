#include "daemon/feeder_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "kernels/plan.h"

#define PAUSE_NS 1000000 /* between attempts to get room that other feeds have pinned */

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

enum trajd_status trajd_feeder_make_windows(struct trajd_feeder *feeder, const struct trajd_fill *fill, uint32_t first,
                                      uint32_t count, struct trajd_error *error)
{
    const int64_t begin_ns = trajd_now_ns();
    enum trajd_status status = TRAJD_OK;
    int64_t loaded_ns;

    for (uint32_t w = first; w < first + count && !status; w++)
        status = pin_episode(feeder, feeder->plan->windows[w].episode_index, error);
    loaded_ns = trajd_now_ns();
    trajd_counter_add(&feeder->counters[TRAJD_FEEDER_LOAD_NS], (uint64_t)(loaded_ns - begin_ns));
    if (!status) {
        trajd_window_plan_bind(feeder->plan, first, count, fill->memory, rows_of, feeder);
        status = trajd_plan_run(feeder->kernel_plan, &feeder->plan->request, feeder->pool, error);
        trajd_counter_add(&feeder->counters[TRAJD_FEEDER_RESAMPLE_NS], (uint64_t)(trajd_now_ns() - loaded_ns));
        if (feeder->spec->keep_bad_rows)
            spoil_windows(feeder, fill->memory, first, count);
    }
    unpin_windows(feeder, first, count);
    if (status == TRAJD_ERR_MEMORY && count == 1 && wait_for_others(feeder))
        return trajd_feeder_make_windows(feeder, fill, first, count, error);
    if (status == TRAJD_ERR_MEMORY && count > 1) {
        const uint32_t half = count / 2;
        status = trajd_feeder_make_windows(feeder, fill, first, half, error);
        if (!status)
            status = trajd_feeder_make_windows(feeder, fill, first + half, count - half, error);
    }
    return status;
}

/* Batches behind this one have the same rows for the same readers. */
static bool is_read_here(const struct trajd_fill *fill, uint64_t row)
{
    for (uint32_t r = 0; r < fill->range_count; r++)
        if (row >= fill->ranges[r].begin && row - fill->ranges[r].begin < fill->ranges[r].count)
            return true;
    return false;
}

void trajd_feeder_announce(struct trajd_feeder *feeder, const struct trajd_fill *fill)
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
        while (count < batch && feeder->announced_until < end) {
            struct trajd_window window;
            const uint64_t position = feeder->announced_until++;
            if (!is_read_here(fill, (position % batch + batch - fill->position % batch) % batch))
                continue;
            trajd_sampler_at(feeder->plan->sampler, fill->epoch, position, &window);
            feeder->ahead[count++] = window.episode_index;
        }
        trajd_store_announce(feeder->dataset->store, &feeder->plan->selection, feeder->ahead, count, when);
    }
}

/* What stays pinned for feeds' lives leaves a quarter of the store to those that come and go. */
static bool may_stay(const struct trajd_feeder *feeder)
{
    struct trajd_store_stats stats;

    trajd_store_get_stats(feeder->dataset->store, &stats);
    return stats.pinned_bytes <= stats.budget_bytes / 4 * 3;
}

void trajd_feeder_unpin_all(struct trajd_feeder *feeder)
{
    for (uint32_t i = 0; feeder->pinned && i < feeder->plan->episode_count; i++) {
        const uint32_t episode = feeder->plan->episodes[i];
        if (feeder->pinned[episode] == 1)
            trajd_store_unpin(feeder->dataset->store, &feeder->plan->selection, episode);
        feeder->pinned[episode] = 0;
    }
}

enum trajd_status trajd_feeder_load_rows(struct trajd_feeder *feeder, struct trajd_error *error)
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
        trajd_feeder_unpin_all(feeder);
    return status == TRAJD_ERR_MEMORY ? TRAJD_OK : status; /* others have pinned the room: rows come batch by batch */
}
