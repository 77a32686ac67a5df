/* Walks over all windows once: pins their rows, weighs or resamples them, and counts them. */
#include <math.h>
#include <string.h>

#include "daemon/stats/stats_walk.h"
#include "kernels/element_convert.h"
#include "kernels/dispatch/plan.h"

/* ---- rows ---- */

static const void *const *rows_of(void *context, uint32_t episode)
{
    struct windows_walk *walk = context;
    const void **rows;

    /* windows come in the order of the chunk's episodes */
    while (walk->episodes[walk->at] != episode)
        walk->at++;
    rows = walk->rows + (size_t)walk->at * walk->plan->selection.array_count;
    return walk->pinned[walk->at] ? rows : NULL;
}

static enum trajd_status pin_episode(struct windows_walk *walk, uint32_t episode,
                                     struct trajd_error *error)
{
    const uint32_t place = walk->episode_count, entries = walk->plan->selection.array_count;
    const void **rows = walk->rows + (size_t)place * entries;
    enum trajd_status status;

    status = statistics_pin(walk->sweep, walk->plan->dataset->cache, &walk->selection, episode,
                            place == 0, walk->row_room, error);
    if (status &&
        (status == TRAJD_ERR_MEMORY || status == TRAJD_ERR_CLOSED || !walk->spec.keep_bad_rows))
        return status;
    walk->episodes[place] = episode;
    walk->pinned[place] = !status;
    walk->episode_count++;
    memset(rows, 0, entries * sizeof *rows);
    for (uint32_t k = 0; k < walk->selection.array_count && !status; k++)
        rows[walk->entries[k]] = walk->row_room[k];
    return TRAJD_OK;
}

static void unpin_chunk(struct windows_walk *walk)
{
    for (uint32_t e = 0; e < walk->episode_count; e++)
        if (walk->pinned[e])
            trajd_cache_unpin(walk->plan->dataset->cache, &walk->selection, walk->episodes[e]);
    walk->episode_count = walk->at = 0;
}

/* Prefetches the episodes after those that are being counted. */
static void prefetch(struct windows_walk *walk, uint32_t last_episode)
{
    const struct trajd_window_plan *plan = walk->plan;

    while (walk->next_episode < plan->episode_count &&
           plan->episodes[walk->next_episode] <= last_episode)
        walk->next_episode++;
    statistics_prefetch(walk->sweep, plan, &walk->selection, walk->next_episode);
}

/* Pins the episodes of the windows that were looked up. *count is reduced to those that fit the
 * cache. */
static enum trajd_status pin_chunk(struct windows_walk *walk, uint32_t *count,
                                   struct trajd_error *error)
{
    prefetch(walk, walk->batch->windows[*count - 1].episode_index);
    for (uint32_t w = 0; w < *count; w++) {
        const uint32_t episode = walk->batch->windows[w].episode_index;
        enum trajd_status status;
        if (walk->episode_count && walk->episodes[walk->episode_count - 1] == episode)
            continue;
        status = pin_episode(walk, episode, error);
        if (status == TRAJD_ERR_MEMORY && w > 0) {
            *count = w;
            return TRAJD_OK;
        }
        if (status)
            return status;
    }
    return TRAJD_OK;
}

/* ---- direct items ---- */

/* Computes how often each row is a step of the windows with anchors [j0, j1): row r for every step
 * k with j0 <= r - k < j1. Where the last row is held, it also counts for all steps after it.
 * Returns the first row; *rows is how many rows have weights. */
static int64_t weigh_rows(const struct trajd_plan_grid *grid, int64_t row_count, bool holds,
                          int64_t j0, int64_t j1, uint32_t *weights, int64_t *rows)
{
    const int64_t from = grid->from, to = from + grid->step_count - 1;
    int64_t first = greatest(0, j0 + from), last = least(row_count - 1, j1 - 1 + to), held = 0;

    *rows = 0;
    for (int64_t k = from; k <= to && holds && row_count > 0; k++)
        held += greatest(0, j1 - greatest(j0, row_count - k));
    if (held && last < first)
        first = last = row_count - 1;
    for (int64_t r = first; r <= last; r++)
        weights[r - first] =
            (uint32_t)greatest(0, least(to, r - j0) - greatest(from, r - j1 + 1) + 1);
    if (held)
        weights[row_count - 1 - first] += (uint32_t)held;
    *rows = greatest(0, last - first + 1);
    return first;
}

/* Returns the rows of a target among those of an episode, or NULL. */
static const char *rows_of_target(const struct trajd_plan_target *target, const void *const *rows)
{
    return rows && target->entry != TRAJD_PLAN_ABSENT ? rows[target->entry] : NULL;
}

/* Adds the windows [w, end) of the chunk, which have adjacent anchors in one episode, as a run to
 * every lane of the item. Where the episode lacks a source, no row of its lane counts; the other
 * sources count if is_filled. */
static void add_run(struct windows_walk *walk, uint32_t i, uint32_t w, uint32_t end, uint32_t *used)
{
    const struct trajd_window_plan *plan = walk->plan;
    struct item_view *view = &walk->views[i];
    const struct trajd_plan_bracket *bracket =
        &plan->rules.brackets[plan->rules.targets[view->first_target].bracket_index];
    const struct trajd_window *window = &walk->batch->windows[w];
    const struct trajd_episode *episode = &plan->dataset->index->episodes[window->episode_index];
    const struct trajd_plan_target *targets = &plan->rules.targets[view->first_target];
    const void *const *rows = rows_of(walk, window->episode_index);
    int64_t count, first;
    uint32_t found = 0;

    for (uint32_t t = 0; t < view->target_count; t++)
        found += rows_of_target(&targets[t], rows) != NULL;
    if (!found || (found < view->target_count && !targets->is_filled))
        return;
    first =
        weigh_rows(&plan->rules.grids[bracket->grid_index],
                   trajd_plan_row_count(plan, bracket, episode), targets->stream.max_age_ns >= 0,
                   window->anchor, window->anchor + (end - w), view->weights + *used, &count);
    for (uint32_t t = 0; t < view->target_count; t++) {
        const struct trajd_stream *stream = &targets[t].stream;
        struct statistics_lane *lane = &walk->sweep->lanes[view->first_lane + t];
        const char *base = rows_of_target(&targets[t], rows);
        if (base)
            base += (uint64_t)first * stream->row_stride_bytes +
                    (uint64_t)stream->first_column * trajd_dtype_size(stream->source_type);
        lane->runs[lane->run_count++] =
            (struct statistics_run){base, (uint64_t)count, view->weights + *used};
    }
    *used += (uint32_t)count;
}

static void make_runs(struct windows_walk *walk, uint32_t i, uint32_t count)
{
    const struct trajd_window *windows = walk->batch->windows;
    uint32_t used = 0, end;

    walk->at = walk->views[i].run_count = 0;
    for (uint32_t w = 0; w < count; w = end) {
        for (end = w + 1; end < count && windows[end].episode_index == windows[w].episode_index &&
                          windows[end].anchor == windows[end - 1].anchor + 1;)
            end++;
        if (walk->views[i].is_difference)
            statistics_differences_add_run(walk, i, w, end,
                                           rows_of(walk, windows[w].episode_index));
        else
            add_run(walk, i, w, end, &used);
    }
}

static bool row_is_lost(enum trajd_dtype dtype, const char *row, uint32_t count)
{
    bool found = false;

    if (dtype == TRAJD_F32) {
        for (uint32_t d = 0; d < count; d++) {
            float value;
            memcpy(&value, row + 4 * (size_t)d, sizeof value);
            found |= !isfinite(value);
        }
        return found;
    }
    for (uint32_t d = 0; d < count; d++)
        found |= !isfinite(trajd_element_load(dtype, row + (size_t)d * trajd_dtype_size(dtype)));
    return found;
}

/* Drops rows that are not finite: such a step is masked, so the row counts for none of the features. Each
 * slice does its share of every run's rows. */
static void drop_lost_rows(void *context, uint32_t slice)
{
    const struct windows_walk *walk = context;
    const struct statistics_sweep *sweep = walk->sweep;
    const uint32_t slices = trajd_pool_thread_count(sweep->pool);

    for (uint32_t l = 0; l < sweep->lane_count; l++) {
        const struct statistics_lane *lane = &sweep->lanes[l];
        const struct item_view *view = &walk->views[lane->item];
        if (!view->direct || !sweep->items[lane->item].active || !trajd_dtype_is_float(lane->dtype))
            continue;
        for (uint32_t r = 0; r < lane->run_count; r++) {
            const struct statistics_run *run = &lane->runs[r];
            uint32_t *weights = view->weights + (run->weights - view->weights);
            const uint64_t begin = run->row_count * slice / slices,
                           end = run->row_count * (slice + 1) / slices;
            for (uint64_t row = begin; row < end && run->base; row++)
                if (row_is_lost(lane->dtype, (const char *)run->base + row * lane->row_stride_bytes,
                                lane->column_count))
                    weights[row] = 0;
        }
    }
}

/* ---- one chunk ---- */

/* Returns whether an item that is counted now needs the rows of a target. */
static bool needs_rows(const struct windows_walk *walk, uint32_t i, uint32_t target)
{
    return walk->sweep->items[i].active &&
           trajd_window_plan_uses(walk->plan, walk->sweep->items[i].index, target);
}

static bool needs_resampling(const struct windows_walk *walk, uint32_t target)
{
    for (uint32_t i = 0; i < walk->sweep->item_count; i++)
        if (!walk->views[i].direct && !walk->views[i].is_difference && needs_rows(walk, i, target))
            return true;
    return false;
}

static void transform_slice(void *context, uint32_t begin, uint32_t end)
{
    struct windows_walk *walk = context;

    trajd_binding_finish(walk->batch, 0, begin, end, walk->transforms);
}

static enum trajd_status resample(struct windows_walk *walk, uint32_t count,
                                  struct trajd_error *error)
{
    const struct trajd_window_plan *plan = walk->plan;
    struct trajd_resample_request request;
    enum trajd_status status;
    uint32_t s = 0;

    walk->at = 0;
    trajd_bind_windows(walk->batch, 0, count, walk->slot, rows_of, walk);
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (needs_resampling(walk, t))
            walk->streams[s++] = walk->batch->request_streams[t];
    request = walk->batch->request;
    request.streams = walk->streams;
    request.stream_count = walk->stream_count;
    for (uint32_t i = 0; i < walk->sweep->item_count; i++)
        walk->transforms[walk->sweep->items[i].index] =
            walk->sweep->items[i].active && !walk->views[i].direct && !walk->views[i].is_difference;
    status = trajd_plan_run_then(walk->kernels, &request, transform_slice, walk, walk->sweep->pool,
                                 error);
    return status;
}

/* Gives each source of an item a lane of its own, whose rows count in windows that have them. */
static void weigh_sources(struct windows_walk *walk, uint32_t i, uint32_t count)
{
    const struct item_view *view = &walk->views[i];
    const uint32_t o = walk->sweep->items[i].index;
    const struct trajd_plan_output *output = &walk->plan->rules.outputs[o];
    const struct trajd_binding_output *place = &walk->batch->outputs[o];
    const uint8_t *mask = walk->slot + place->mask_offset_bytes,
                  *values = walk->slot + place->offset_bytes;

    for (uint64_t r = 0; r < (uint64_t)count * output->step_count; r++)
        view->weights[r] = mask[r] == TRAJD_MASK_VALID;
    for (uint32_t t = 0; t < view->target_count; t++) {
        const void **bases = walk->batch->targets[view->first_target + t].bases;
        struct statistics_lane *lane = &walk->sweep->lanes[view->first_lane + t];
        const uint64_t window_bytes = lane->row_stride_bytes * output->step_count,
                       column_bytes = lane->first_column * (uint64_t)trajd_dtype_size(lane->dtype);
        for (uint32_t w = 0, end; w < count; w = end) {
            for (end = w + 1; end < count && !bases[end] == !bases[w];)
                end++;
            lane->runs[lane->run_count++] =
                (struct statistics_run){bases[w] ? values + w * window_bytes + column_bytes : NULL,
                                        (uint64_t)(end - w) * output->step_count,
                                        view->weights + (uint64_t)w * output->step_count};
        }
    }
}

static void weigh_steps(struct windows_walk *walk, uint32_t i, uint32_t count)
{
    const struct item_view *view = &walk->views[i];
    const uint32_t o = walk->sweep->items[i].index;
    const struct trajd_binding_output *place = &walk->batch->outputs[o];
    const uint8_t *mask = walk->slot + place->mask_offset_bytes;
    struct statistics_lane *lanes = &walk->sweep->lanes[view->first_lane];
    const struct trajd_plan_output *output = &walk->plan->rules.outputs[o];
    /* the steps of a window are rows of one lane, or each is a row of a lane of its own */
    const uint32_t lane_count = output->norm_step_count, each = output->step_count / lane_count;
    const uint64_t rows = (uint64_t)count * each;

    for (uint32_t l = 0; l < lane_count; l++) {
        uint32_t *weights = view->weights + l * rows;
        for (uint64_t r = 0; r < rows; r++)
            weights[r] = mask[r * lane_count + l] == TRAJD_MASK_VALID;
        lanes[l].run_count = 1;
        lanes[l].runs[0] =
            (struct statistics_run){walk->slot + place->offset_bytes +
                                        l * output->feature_count * trajd_dtype_size(output->dtype),
                                    rows, weights};
    }
}

static void count_steps(struct windows_walk *walk, uint32_t i, uint32_t count)
{
    const struct trajd_plan_output *output =
        &walk->plan->rules.outputs[walk->sweep->items[i].index];
    struct trajd_statistics *result = walk->sweep->items[i].result;

    result->item_count += count;
    result->step_count += (uint64_t)count * output->step_count;
    for (uint32_t l = 0; l < output->norm_step_count && !walk->views[i].is_difference; l++) {
        const struct statistics_lane *lane = &walk->sweep->lanes[walk->views[i].first_lane + l];
        for (uint32_t r = 0; r < lane->run_count; r++)
            for (uint64_t row = 0; row < lane->runs[r].row_count; row++)
                result->valid_count += lane->runs[r].weights[row];
    }
}

static enum trajd_status count_chunk(struct windows_walk *walk, uint32_t count,
                                     struct trajd_error *error)
{
    struct statistics_sweep *sweep = walk->sweep;
    enum trajd_status status = walk->kernels ? resample(walk, count, error) : TRAJD_OK;

    if (status)
        return status;
    for (uint32_t l = 0; l < sweep->lane_count; l++)
        sweep->lanes[l].run_count = 0;
    for (uint32_t i = 0; i < sweep->item_count; i++) {
        if (!sweep->items[i].active)
            continue;
        if (walk->views[i].direct || walk->views[i].is_difference)
            make_runs(walk, i, count);
        else if (walk->views[i].is_filled)
            weigh_sources(walk, i, count);
        else
            weigh_steps(walk, i, count);
    }
    trajd_pool_run(sweep->pool, trajd_pool_thread_count(sweep->pool), drop_lost_rows, walk);
    for (uint32_t i = 0; i < sweep->item_count && sweep->first; i++)
        count_steps(walk, i, count);
    statistics_count(sweep);
    return TRAJD_OK;
}

/* ---- one walk ---- */

/* Prepares a walk: what the items that are counted now need from the cache and from the kernels. */
static enum trajd_status prepare_walk(struct windows_walk *walk, struct trajd_error *error)
{
    const struct trajd_window_plan *plan = walk->plan;
    const struct trajd_device_facts facts = {.cpu_threads =
                                                 trajd_pool_thread_count(walk->sweep->pool)};
    struct trajd_resample_request shape = walk->batch->request;
    bool needed[TRAJD_SPEC_MAX_OUTPUTS * TRAJD_SPEC_MAX_SOURCES] = {false};

    walk->stream_count = walk->selection.array_count = walk->next_episode = 0;
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        for (uint32_t i = 0; i < walk->sweep->item_count; i++)
            if (needs_rows(walk, i, t) && plan->rules.targets[t].entry != TRAJD_PLAN_ABSENT)
                needed[plan->rules.targets[t].entry] = true;
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (needs_resampling(walk, t))
            walk->streams[walk->stream_count++] = walk->batch->request_streams[t];
    for (uint32_t p = 0; p < plan->selection.array_count; p++)
        if (needed[p]) {
            const uint32_t k = walk->selection.array_count++;
            walk->entries[k] = p;
            walk->array_indexes[k] = plan->selection.array_indexes[p];
            walk->forms[k] = plan->selection.as_float32[p];
        }
    walk->selection.array_indexes = walk->array_indexes;
    walk->selection.as_float32 = walk->forms;
    trajd_plan_destroy(&walk->kernels);
    if (!walk->stream_count)
        return TRAJD_OK;
    shape.window_count = walk->spec.global_batch;
    shape.streams = walk->streams;
    shape.stream_count = walk->stream_count;
    return trajd_plan_create(&shape, &facts, NULL, &walk->kernels, error);
}

enum trajd_status statistics_walk_windows(struct statistics_sweep *sweep, void *context,
                                          struct trajd_error *error)
{
    struct windows_walk *walk = context;
    const uint64_t windows = trajd_sampler_window_count(walk->plan->sampler);
    enum trajd_status status = prepare_walk(walk, error);
    uint32_t count;

    for (uint64_t position = 0; position < windows && !status; position += count) {
        count = windows - position < walk->spec.global_batch ? (uint32_t)(windows - position)
                                                             : walk->spec.global_batch;
        trajd_window_batch_look_up(walk->batch, 0, position, count);
        status = pin_chunk(walk, &count, error);
        if (!status)
            status = count_chunk(walk, count, error);
        unpin_chunk(walk);
        if (!status)
            status = statistics_report_progress(sweep, "windows", position + count, windows, error);
    }
    return status;
}
