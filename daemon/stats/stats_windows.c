/* Statistics of outputs. A plan of its own, without normalisation and in episode order, gives the
 * feed's windows chunk by chunk. To count rows instead, its windows have one step each, at the
 * anchor, and no padding excludes an anchor.
 *
 * An output is direct if its steps are rows of one clock, passed on unchanged. It needs no
 * resampling: each row is counted with the number of windows and steps that contain it. Nor does one
 * whose steps are differences of such rows (stats_differences.h). All other outputs go through the
 * same kernels as the feed's batches. */
#include <stdlib.h>
#include <string.h>

#include "daemon/stats/stats_differences.h"
#include "daemon/stats/stats_windows.h"
#include "kernels/dispatch/plan.h"
#include "proto/array_len.h"

#define CHUNK_WINDOWS 4096
#define CHUNK_BYTES (UINT64_C(32) << 20)
#define ALIGNMENT 64

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
}

/* ---- outputs and their forms ---- */

enum trajd_status trajd_statistics_check_output(const struct trajd_window_plan *plan,
                                                uint32_t output_index, struct trajd_error *error)
{
    const struct trajd_plan_output *output = &plan->outputs[output_index];

    if (trajd_window_plan_lacks(plan, output_index))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "outputs.%s: dataset %s lacks a stream of this output, so it has no "
                               "statistics",
                               output->name, plan->dataset->name);
    if (trajd_plan_has_frames(plan, output_index))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "outputs.%s: no statistics of images that are decoded or resized "
                               "(only of uint8 images that are delivered as they are recorded)",
                               output->name);
    if (trajd_plan_norm_count(output) > TRAJD_STATISTICS_MAX_FEATURES &&
        !trajd_plan_is_image(plan, output_index))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "outputs.%s: no statistics of %llu features (at most %d)",
                               output->name, (unsigned long long)trajd_plan_norm_count(output),
                               TRAJD_STATISTICS_MAX_FEATURES);
    return TRAJD_OK;
}

bool trajd_statistics_are_cheap(const struct trajd_window_plan *plan, uint32_t output_index)
{
    return !trajd_plan_is_image(plan, output_index) &&
           !trajd_statistics_check_output(plan, output_index, NULL);
}

static bool adds_steps(const struct trajd_window_plan *plan, uint32_t output_index)
{
    for (uint32_t t = 0; t < plan->target_count; t++)
        if (plan->targets[t].output_index == output_index &&
            plan->streams[t].total == TRAJD_TOTAL_STEP)
            return true;
    return false;
}

static void derive_spec(const struct trajd_window_plan *feed, enum trajd_norm_over over,
                        struct trajd_window_spec *spec)
{
    *spec = *feed->spec;
    spec->order = TRAJD_ORDER_SEQUENTIAL;
    spec->tail = TRAJD_TAIL_SHORT;
    spec->one_per_episode = false;
    spec->epoch_windows = 0;
    spec->variant = "auto";
    if (over == TRAJD_NORM_OVER_ROWS)
        spec->pad_before = spec->pad_after = TRAJD_SPEC_PAD_ANY;
    for (uint32_t o = 0; o < spec->output_count; o++) {
        struct trajd_spec_output *output = &spec->outputs[o];
        const bool per_step = output->norm_per_step; /* says what is counted */
        trajd_spec_norm_clear(output);
        output->picture.has_norm = false; /* pictures are counted as bytes, or not at all */
        if (output->goal.from) { /* the steps are drawn anew in every pass: its statistics are those
                                  * of an observation of the same streams */
            output->goal = (struct trajd_goal_rule){0};
            output->role = TRAJD_ROLE_OBS;
        }
        output->norm_per_step = per_step && over == TRAJD_NORM_OVER_WINDOWS;
        if (over == TRAJD_NORM_OVER_ROWS && adds_steps(feed, o)) /* step 0 adds later rows */
            output->role = TRAJD_ROLE_ACTION;
        if (over == TRAJD_NORM_OVER_ROWS)
            output->at.from = output->at.to = 0;
        if (trajd_plan_byte_type(feed, o))
            output->dtype = trajd_plan_byte_type(feed, o);
        else if (output->dtype == TRAJD_F16 || output->dtype == TRAJD_BF16)
            output->dtype = TRAJD_F32;
    }
}

/* Returns how many windows make a chunk of bounded memory. */
static uint32_t chunk_windows(const struct trajd_window_plan *feed, enum trajd_norm_over over,
                              const uint32_t *outputs, uint32_t count)
{
    const bool one_step = over == TRAJD_NORM_OVER_ROWS;
    uint64_t bytes = 1, windows;

    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_plan_output *output = &feed->outputs[outputs[i]];
        bytes += (one_step ? 1 : output->step_count) *
                 (5 + 8 * output->feature_count +
                  (output->transform ? 8 * output->row_feature_count : 0));
    }
    for (uint32_t o = 0; o < feed->output_count; o++)
        bytes += 8 * (uint64_t)(one_step ? 1 : feed->outputs[o].step_count);
    windows = CHUNK_BYTES / bytes;
    return windows < 1 ? 1 : windows > CHUNK_WINDOWS ? CHUNK_WINDOWS : (uint32_t)windows;
}

/* Returns whether an item is direct: all its sources use one bracket of rows of the anchor's clock,
 * the kinds copy rows there, and no step lies after the anchor where that is hidden. */
static bool is_direct(const struct trajd_window_plan *plan, const struct item_view *view)
{
    if (plan->outputs[plan->targets[view->first_target].output_index].transform)
        return false;
    for (uint32_t t = view->first_target; t < view->first_target + view->target_count; t++) {
        const struct trajd_plan_target *target = &plan->targets[t];
        const struct trajd_plan_bracket *bracket = &plan->brackets[target->bracket_index];
        const struct trajd_plan_grid *grid = &plan->grids[bracket->grid_index];
        const enum trajd_kind kind = plan->streams[t].kind;
        if (target->bracket_index != plan->targets[view->first_target].bracket_index ||
            grid->rule != TRAJD_TARGET_ROWS ||
            (kind != TRAJD_KIND_PREVIOUS && kind != TRAJD_KIND_NEAREST) || plan->streams[t].total ||
            (bracket->clipped &&
             (bracket->lookahead_ns || grid->from + (int64_t)grid->step_count - 1 > 0)))
            return false;
    }
    return true;
}

static enum trajd_status add_lane(struct statistics_sweep *sweep, uint32_t item,
                                  uint32_t first_column, uint32_t columns, uint32_t room,
                                  struct trajd_error *error)
{
    struct statistics_lane *lane = &sweep->lanes[sweep->lane_count++];

    *lane = (struct statistics_lane){
        .item = item, .first_column = first_column, .column_count = columns};
    lane->runs = calloc(room, sizeof *lane->runs);
    return lane->runs ? TRAJD_OK : no_memory(error);
}

/* Makes the lanes of an output with a transform: one, or one for each step. */
static enum trajd_status make_transformed_lanes(struct windows_walk *walk, uint32_t i,
                                                struct trajd_error *error)
{
    struct statistics_sweep *sweep = walk->sweep;
    const struct trajd_plan_output *output = &walk->plan->outputs[sweep->items[i].index];
    const uint32_t columns = (uint32_t)output->feature_count;
    enum trajd_status status = TRAJD_OK;

    walk->views[i].first_lane = sweep->lane_count;
    for (uint32_t t = 0; t < output->norm_step_count && !status; t++) {
        struct statistics_lane *lane = &sweep->lanes[sweep->lane_count];
        status = add_lane(sweep, i, t * columns, columns, 1, error);
        lane->dtype = output->dtype;
        lane->row_stride_bytes = columns * trajd_dtype_size(output->dtype) *
                                 (output->norm_step_count > 1 ? (uint64_t)output->step_count : 1);
        lane->group = 1;
    }
    return status;
}

static enum trajd_status make_lanes(struct windows_walk *walk, uint32_t i,
                                    struct trajd_error *error)
{
    const struct trajd_window_plan *plan = walk->plan;
    struct statistics_sweep *sweep = walk->sweep;
    struct item_view *view = &walk->views[i];
    const struct trajd_plan_output *output = &plan->outputs[sweep->items[i].index];
    const bool picture = trajd_plan_is_image(plan, sweep->items[i].index);
    const uint32_t columns = sweep->items[i].column_count,
                   room = view->direct ? walk->spec.global_batch : 1;
    uint32_t column = 0;
    enum trajd_status status = TRAJD_OK;

    view->first_lane = sweep->lane_count;
    for (uint32_t t = 0; t < (view->direct ? view->target_count : 1) && !status; t++) {
        const struct trajd_stream *stream = &plan->streams[view->first_target + t];
        const uint32_t own = view->direct && !picture ? stream->feature_count : columns;
        struct statistics_lane *lane;
        status = add_lane(sweep, i, column, own, room, error);
        lane = &sweep->lanes[sweep->lane_count - 1];
        lane->dtype = view->direct ? stream->source_type : output->dtype;
        lane->row_stride_bytes =
            view->direct ? stream->row_stride_bytes : stream->step_stride_bytes;
        lane->group = picture ? (uint32_t)(output->feature_count / columns) : 1;
        column += own;
    }
    return status;
}

/* ---- computing ---- */

static enum trajd_status place_outputs(struct windows_walk *walk, struct trajd_error *error)
{
    const uint64_t windows = walk->spec.global_batch;
    uint64_t size = 0;

    for (uint32_t i = 0; i < walk->sweep->item_count; i++) {
        const uint32_t o = walk->sweep->items[i].index;
        const struct trajd_plan_output *output = &walk->plan->outputs[o];
        const uint64_t steps = windows * output->step_count;
        walk->views[i].weights = calloc(steps, sizeof *walk->views[i].weights);
        if (!walk->views[i].weights)
            return no_memory(error);
        if (walk->views[i].is_difference &&
            statistics_differences_allocate(walk, i, walk->spec.global_batch))
            return no_memory(error);
        if (walk->views[i].direct || walk->views[i].is_difference)
            continue;
        walk->batch->outputs[o].offset_bytes = size;
        size += (steps * output->feature_count * trajd_dtype_size(output->dtype) + ALIGNMENT - 1) /
                ALIGNMENT * ALIGNMENT;
        walk->batch->outputs[o].mask_offset_bytes = size;
        size += (steps + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    walk->slot = aligned_alloc(ALIGNMENT, size ? size : ALIGNMENT);
    return walk->slot ? TRAJD_OK : no_memory(error);
}

static enum trajd_status make_items(struct windows_walk *walk, enum trajd_norm_over over,
                                    const uint32_t *outputs, struct trajd_error *error)
{
    const enum trajd_statistics_source source =
        over == TRAJD_NORM_OVER_ROWS ? TRAJD_STATISTICS_ROWS : TRAJD_STATISTICS_WINDOWS;
    const struct trajd_window_plan *plan = walk->plan;
    struct statistics_sweep *sweep = walk->sweep;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < sweep->item_count && !status; i++) {
        struct item_view *view = &walk->views[i];
        status = trajd_statistics_check_output(plan, outputs[i], error);
        if (status)
            return status;
        for (uint32_t t = 0; t < plan->target_count; t++)
            if (plan->targets[t].output_index == outputs[i]) {
                view->first_target = view->target_count++ ? view->first_target : t;
            }
        view->direct = is_direct(plan, view);
        view->is_difference = statistics_is_difference(plan, outputs[i]);
        sweep->items[i].index = outputs[i];
        sweep->items[i].column_count = trajd_plan_feature_count(plan, outputs[i]);
        sweep->items[i].key_bits = trajd_histogram_key_bits(plan->outputs[outputs[i]].dtype);
        sweep->items[i].result = trajd_statistics_new(source, sweep->items[i].column_count);
        if (!sweep->items[i].result)
            return no_memory(error);
        if (!view->is_difference)
            status = plan->outputs[outputs[i]].transform ? make_transformed_lanes(walk, i, error)
                                                         : make_lanes(walk, i, error);
    }
    return status;
}

static enum trajd_status allocate(struct windows_walk *walk, struct trajd_error *error)
{
    const size_t windows = walk->spec.global_batch, targets = walk->plan->target_count + 1;
    const size_t entries = walk->plan->selection.array_count;
    size_t lanes = targets + walk->sweep->item_count;
    struct statistics_sweep *sweep = walk->sweep;

    for (uint32_t o = 0; o < walk->plan->output_count; o++)
        lanes += walk->plan->outputs[o].norm_step_count;
    sweep->items = calloc(sweep->item_count, sizeof *sweep->items);
    sweep->lanes = calloc(lanes, sizeof *sweep->lanes);
    walk->views = calloc(sweep->item_count, sizeof *walk->views);
    walk->streams = calloc(targets, sizeof *walk->streams);
    walk->array_indexes = calloc(entries, sizeof *walk->array_indexes);
    walk->entries = calloc(entries, sizeof *walk->entries);
    walk->forms = calloc(entries, sizeof *walk->forms);
    walk->row_room = calloc(entries, sizeof *walk->row_room);
    walk->episodes = calloc(windows, sizeof *walk->episodes);
    walk->pinned = calloc(windows, sizeof *walk->pinned);
    walk->rows = calloc(windows * entries, sizeof *walk->rows);
    return sweep->items && sweep->lanes && walk->views && walk->streams && walk->array_indexes &&
                   walk->entries && walk->forms && walk->row_room && walk->episodes &&
                   walk->pinned && walk->rows
               ? TRAJD_OK
               : no_memory(error);
}

static void free_walk(struct windows_walk *walk)
{
    struct statistics_sweep *sweep = walk->sweep;

    for (uint32_t l = 0; l < sweep->lane_count; l++)
        free(sweep->lanes[l].runs);
    for (uint32_t i = 0; walk->views && i < sweep->item_count; i++) {
        free(walk->views[i].weights);
        statistics_differences_free(&walk->views[i]);
    }
    trajd_plan_destroy(&walk->kernels);
    trajd_window_batch_destroy(&walk->batch);
    trajd_window_plan_destroy(&walk->plan);
    free(walk->slot);
    free(walk->views);
    free(walk->streams);
    free(walk->array_indexes);
    free(walk->entries);
    free(walk->forms);
    free(walk->row_room);
    free(walk->episodes);
    free(walk->pinned);
    free(walk->rows);
    free(sweep->lanes);
}

/* Computes the statistics of outputs that all weigh rows, or all windows. */
static enum trajd_status compute(const struct trajd_statistics_request *request,
                                 enum trajd_norm_over over, const uint32_t *outputs, uint32_t count,
                                 struct trajd_statistics **results, struct trajd_error *error)
{
    struct statistics_sweep sweep = {.pool = request->pool,
                                     .heartbeat = request->heartbeat,
                                     .item_count = count,
                                     .count_also = statistics_differences_count};
    struct windows_walk *walk = calloc(1, sizeof *walk);
    enum trajd_status status;

    if (!walk)
        return no_memory(error);
    walk->sweep = &sweep;
    sweep.count_context = walk;
    derive_spec(request->plan, over, &walk->spec);
    walk->spec.global_batch = chunk_windows(request->plan, over, outputs, count);
    status = trajd_window_plan_create_again(request->plan, &walk->spec, &walk->plan, error);
    if (!status) {
        trajd_window_plan_copy_forms(walk->plan, request->plan);
        status = trajd_window_batch_create(walk->plan, &walk->batch, error);
    }
    if (!status)
        status = allocate(walk, error);
    if (!status)
        status = make_items(walk, over, outputs, error);
    if (!status)
        status = place_outputs(walk, error);
    if (!status)
        status = statistics_run_sweeps(&sweep, statistics_walk_windows, walk, error);
    for (uint32_t i = 0; i < count; i++) {
        struct trajd_statistics *result = sweep.items ? sweep.items[i].result : NULL;
        if (status)
            free(result);
        else
            result->fingerprint = trajd_statistics_output_fingerprint(request->plan, outputs[i]);
        results[i] = status ? NULL : result;
    }
    free_walk(walk);
    free(sweep.items);
    free(walk);
    return status;
}

enum trajd_status trajd_statistics_of_outputs(const struct trajd_statistics_request *request,
                                              const uint32_t *outputs, uint32_t count,
                                              struct trajd_statistics **results,
                                              struct trajd_error *error)
{
    static const enum trajd_norm_over overs[] = {TRAJD_NORM_OVER_ROWS, TRAJD_NORM_OVER_WINDOWS};
    struct trajd_statistics *made[TRAJD_SPEC_MAX_OUTPUTS];
    uint32_t group[TRAJD_SPEC_MAX_OUTPUTS], places[TRAJD_SPEC_MAX_OUTPUTS];
    enum trajd_status status = TRAJD_OK;

    memset(results, 0, count * sizeof *results);
    for (size_t v = 0; v < ARRAY_LEN(overs) && !status; v++) {
        uint32_t used = 0;
        for (uint32_t i = 0; i < count; i++)
            if (request->plan->outputs[outputs[i]].norm_over == overs[v]) {
                places[used] = i;
                group[used++] = outputs[i];
            }
        if (used)
            status = compute(request, overs[v], group, used, made, error);
        for (uint32_t i = 0; i < used && !status; i++)
            results[places[i]] = made[i];
    }
    for (uint32_t i = 0; i < count && status; i++) {
        free(results[i]);
        results[i] = NULL;
    }
    return status;
}
