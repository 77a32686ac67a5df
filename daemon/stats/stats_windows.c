/* Statistics of outputs. A plan of its own, without normalisation and in episode order, gives the
 * feed's windows chunk by chunk. To count rows instead, its windows have one step each, at the
 * anchor, and no padding excludes an anchor.
 *
 * An output is direct if its steps are rows of one clock, passed on unchanged. It needs no
 * resampling: each row is counted with the number of windows and steps that contain it. Nor does one
 * whose steps are differences of such rows (stats_differences.c). All other outputs go through the
 * same kernels as the feed's batches. */
#include <stdlib.h>
#include <string.h>

#include "daemon/stats/stats_walk.h"
#include "kernels/dispatch/plan.h"
#include "proto/array_len.h"

#define CHUNK_WINDOWS 4096
#define CHUNK_BYTES (UINT64_C(32) << 20)
#define ALIGNMENT 64

/* ---- outputs and their forms ---- */

enum trajd_status trajd_statistics_check_output(const struct trajd_window_plan *plan,
                                                uint32_t output_index, struct trajd_error *error)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];

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
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].output_index == output_index &&
            plan->rules.targets[t].stream.total == TRAJD_TOTAL_STEP)
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
        output->image.has_norm = false; /* images are counted as bytes, or not at all */
        if (output->goal.from) {
            /* the steps are drawn again in every pass: its statistics are those of an observation
             * of the same streams */
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
        const struct trajd_plan_output *output = &feed->rules.outputs[outputs[i]];
        bytes += (one_step ? 1 : output->step_count) *
                 (5 + 8 * output->feature_count +
                  (output->transform ? 8 * output->row_feature_count : 0));
    }
    for (uint32_t o = 0; o < feed->rules.output_count; o++)
        bytes += 8 * (uint64_t)(one_step ? 1 : feed->rules.outputs[o].step_count);
    windows = CHUNK_BYTES / bytes;
    return windows < 1 ? 1 : windows > CHUNK_WINDOWS ? CHUNK_WINDOWS : (uint32_t)windows;
}

/* Returns whether an item is direct: all its sources use one bracket, and the kinds copy rows. */
static bool is_direct(const struct trajd_window_plan *plan, const struct item_view *view)
{
    const struct trajd_plan_target *first = &plan->rules.targets[view->first_target];

    if (plan->rules.outputs[first->output_index].transform)
        return false;
    for (uint32_t t = view->first_target; t < view->first_target + view->target_count; t++)
        if (plan->rules.targets[t].bracket_index != first->bracket_index ||
            !statistics_takes_rows(plan, t) ||
            (plan->rules.targets[t].stream.kind != TRAJD_KIND_PREVIOUS &&
             plan->rules.targets[t].stream.kind != TRAJD_KIND_NEAREST))
            return false;
    return true;
}

/* Makes the lanes of an item: one for each source of a direct one, or of one whose sources count by
 * themselves, else one for the resampled steps, or for each step that has figures of its own. */
static void make_lanes(struct windows_walk *walk, uint32_t i)
{
    const struct trajd_window_plan *plan = walk->plan;
    struct statistics_sweep *sweep = walk->sweep;
    struct item_view *view = &walk->views[i];
    const struct trajd_plan_output *output = &plan->rules.outputs[sweep->items[i].index];
    const bool direct = view->direct, by_source = direct || view->is_filled,
               image = trajd_plan_is_image(plan, sweep->items[i].index);
    const uint32_t lanes = by_source ? view->target_count : output->norm_step_count,
                   room = by_source ? walk->spec.global_batch : 1;
    const uint64_t step_bytes = output->feature_count * trajd_dtype_size(output->dtype);
    uint32_t column = 0;

    view->first_lane = sweep->lane_count;
    for (uint32_t l = 0; l < lanes; l++) {
        const struct trajd_stream *stream =
            &plan->rules.targets[view->first_target + (by_source ? l : 0)].stream;
        const uint32_t own = image       ? sweep->items[i].column_count
                             : by_source ? stream->feature_count
                                         : (uint32_t)output->feature_count;
        sweep->lanes[sweep->lane_count++] = (struct statistics_lane){
            .item = i,
            .first_column = column,
            .column_count = own,
            .dtype = direct ? stream->source_type : output->dtype,
            .row_stride_bytes = direct                          ? stream->row_stride_bytes
                                : lanes > 1 && !view->is_filled ? step_bytes * output->step_count
                                                                : step_bytes,
            .group = image ? (uint32_t)(output->feature_count / own) : 1,
            .runs = trajd_arena_alloc(&walk->arena, room * sizeof *sweep->lanes->runs)};
        column += own;
    }
}

/* ---- computing ---- */

static enum trajd_status place_outputs(struct windows_walk *walk, struct trajd_error *error)
{
    const uint64_t windows = walk->spec.global_batch;
    uint64_t size = 0;

    for (uint32_t i = 0; i < walk->sweep->item_count; i++) {
        const uint32_t o = walk->sweep->items[i].index;
        const struct trajd_plan_output *output = &walk->plan->rules.outputs[o];
        const uint64_t steps = windows * output->step_count;
        walk->views[i].weights =
            trajd_arena_alloc(&walk->arena, steps * sizeof *walk->views[i].weights);
        if (walk->views[i].is_difference)
            statistics_differences_allocate(walk, i, walk->spec.global_batch);
        if (walk->views[i].direct || walk->views[i].is_difference)
            continue;
        walk->batch->outputs[o].offset_bytes = size;
        size += (steps * output->feature_count * trajd_dtype_size(output->dtype) + ALIGNMENT - 1) /
                ALIGNMENT * ALIGNMENT;
        walk->batch->outputs[o].mask_offset_bytes = size;
        size += (steps + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    walk->slot = aligned_alloc(ALIGNMENT, size ? size : ALIGNMENT);
    return walk->slot && !walk->arena.is_starved ? TRAJD_OK : statistics_no_memory(error);
}

static enum trajd_status make_items(struct windows_walk *walk, enum trajd_norm_over over,
                                    const uint32_t *outputs, struct trajd_error *error)
{
    const enum trajd_statistics_source source =
        over == TRAJD_NORM_OVER_ROWS ? TRAJD_STATISTICS_ROWS : TRAJD_STATISTICS_WINDOWS;
    const struct trajd_window_plan *plan = walk->plan;
    struct statistics_sweep *sweep = walk->sweep;

    for (uint32_t i = 0; i < sweep->item_count; i++) {
        struct item_view *view = &walk->views[i];
        const enum trajd_status status = trajd_statistics_check_output(plan, outputs[i], error);
        if (status)
            return status;
        for (uint32_t t = 0; t < plan->rules.target_count; t++)
            if (plan->rules.targets[t].output_index == outputs[i]) {
                view->first_target = view->target_count++ ? view->first_target : t;
            }
        view->direct = is_direct(plan, view);
        view->is_filled = plan->rules.targets[view->first_target].is_filled;
        view->is_difference = statistics_is_difference(plan, outputs[i]);
        sweep->items[i].index = outputs[i];
        sweep->items[i].column_count = trajd_plan_feature_count(plan, outputs[i]);
        sweep->items[i].key_bits = trajd_histogram_key_bits(plan->rules.outputs[outputs[i]].dtype);
        sweep->items[i].result = trajd_statistics_new(source, sweep->items[i].column_count);
        if (!sweep->items[i].result)
            return statistics_no_memory(error);
        if (!view->is_difference)
            make_lanes(walk, i);
    }
    return TRAJD_OK;
}

static enum trajd_status allocate(struct windows_walk *walk, struct trajd_error *error)
{
    const size_t windows = walk->spec.global_batch, targets = walk->plan->rules.target_count + 1;
    const size_t entries = walk->plan->selection.array_count;
    size_t lanes = targets + walk->sweep->item_count;
    struct statistics_sweep *sweep = walk->sweep;
    struct trajd_arena *arena = &walk->arena;

    for (uint32_t o = 0; o < walk->plan->rules.output_count; o++)
        lanes += walk->plan->rules.outputs[o].norm_step_count;
    walk->arena.limit_bytes = SIZE_MAX;
    sweep->items = trajd_arena_alloc(arena, sweep->item_count * sizeof *sweep->items);
    sweep->lanes = trajd_arena_alloc(arena, lanes * sizeof *sweep->lanes);
    walk->views = trajd_arena_alloc(arena, sweep->item_count * sizeof *walk->views);
    walk->streams = trajd_arena_alloc(arena, targets * sizeof *walk->streams);
    walk->array_indexes = trajd_arena_alloc(arena, entries * sizeof *walk->array_indexes);
    walk->entries = trajd_arena_alloc(arena, entries * sizeof *walk->entries);
    walk->forms = trajd_arena_alloc(arena, entries * sizeof *walk->forms);
    walk->row_room = trajd_arena_alloc(arena, entries * sizeof *walk->row_room);
    walk->episodes = trajd_arena_alloc(arena, windows * sizeof *walk->episodes);
    walk->pinned = trajd_arena_alloc(arena, windows * sizeof *walk->pinned);
    walk->rows = trajd_arena_alloc(arena, windows * entries * sizeof *walk->rows);
    return arena->is_starved ? statistics_no_memory(error) : TRAJD_OK;
}

static void free_walk(struct windows_walk *walk)
{
    trajd_plan_destroy(&walk->kernels);
    trajd_binding_destroy(&walk->batch);
    trajd_window_plan_destroy(&walk->plan);
    trajd_arena_free(&walk->arena);
    free(walk->slot);
    free(walk);
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
        return statistics_no_memory(error);
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
            if (request->plan->rules.outputs[outputs[i]].norm_over == overs[v]) {
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
