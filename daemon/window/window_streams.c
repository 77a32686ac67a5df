/* The streams of a plan as the kernels take them: what does not change from batch to batch. Also
 * decides in which form the cache keeps the rows. */
#include <math.h>

#include "daemon/window/window_plan_internal.h"

static int64_t mean_width(const struct trajd_spec_output *output,
                          const struct trajd_plan_grid *grid)
{
    if (grid->rule == TRAJD_TARGET_ROWS)
        return 1;
    return output->mean_width_ns ? output->mean_width_ns
           : grid->rate.num      ? trajd_rate_row_ns(grid->rate, 1)
                                 : 0;
}

/* Returns whether a target copies float64 rows into a float32 output without blending, normalising
 * or wrapping them. The value is then the source's, rounded once, either here or when the rows are
 * loaded. */
static bool picks_rows(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[target->output_index];
    const struct trajd_index_stream *source = trajd_plan_stream(plan, target);
    const enum trajd_kind kind = trajd_plan_kind(plan, target);

    return source->dtype == TRAJD_F64 &&
           plan->rules.outputs[target->output_index].dtype == TRAJD_F32 && !output->norm_by &&
           !output->has_range && !output->returns.is_given &&
           !trajd_plan_has_rows(plan, target->output_index) && !trajd_plan_adds(plan, target) &&
           (plan->rules.grids[plan->rules.brackets[target->bracket_index].grid_index].rule ==
                TRAJD_TARGET_ROWS ||
            kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST);
}

void trajd_window_plan_choose_forms(struct trajd_window_plan *plan)
{
    for (uint32_t p = 0; p < plan->selection.array_count; p++)
        plan->entry_as_float32[p] = true;
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].entry != TRAJD_PLAN_ABSENT &&
            !picks_rows(plan, &plan->rules.targets[t]))
            plan->entry_as_float32[plan->rules.targets[t].entry] = false;
    plan->selection.as_float32 = plan->entry_as_float32;
}

/* Returns whether the cache keeps a target's float64 rows as float32. */
static bool is_float32(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    return target->entry != TRAJD_PLAN_ABSENT && plan->entry_as_float32[target->entry];
}

static enum trajd_status prepare_stream(struct trajd_window_plan *plan,
                                        struct trajd_plan_target *target, struct trajd_error *error)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[target->output_index];
    const struct trajd_index_stream *source = trajd_plan_stream(plan, target);
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];
    struct trajd_stream *stream = &target->stream;

    if (source->feature_count == 0 || source->feature_count > UINT32_MAX)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "outputs.%s: stream %s has %llu features",
                               output->name, source->name,
                               (unsigned long long)source->feature_count);
    stream->kind = trajd_plan_kind(plan, target);
    stream->source_type = is_float32(plan, target) ? TRAJD_F32 : source->dtype;
    stream->feature_count = (uint32_t)source->feature_count;
    stream->first_column = source->first_column;
    /* On rows nothing is blended: these kinds then copy the row. */
    if (grid->rule == TRAJD_TARGET_ROWS && !output->has_range &&
        (stream->kind == TRAJD_KIND_LINEAR || stream->kind == TRAJD_KIND_ANGLE ||
         output->returns.is_given))
        stream->kind = TRAJD_KIND_PREVIOUS;
    if (trajd_plan_adds(plan, target)) {
        stream->total = TRAJD_TOTAL_STEP;
        stream->total_width = grid->rate.num ? trajd_rate_row_ns(grid->rate, 1) : 0;
    }
    if (output->returns.is_given) {
        stream->total = TRAJD_TOTAL_REST;
        stream->total_gamma = output->returns.gamma;
    }
    stream->max_gap_ns = output->max_gap_ns >= 0 ? output->max_gap_ns : source->max_gap_ns;
    stream->max_age_ns = output->max_age_ns >= 0 ? output->max_age_ns
                         : bracket->clipped      ? INT64_MAX
                                                 : -1;
    stream->mean_width = mean_width(output, grid);
    if (stream->kind == TRAJD_KIND_MEAN && stream->mean_width <= 0)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "line %u: outputs.%s: kind: mean at the steps of an irregular clock needs width:",
            output->line, output->name);
    stream->angle_period = source->angle_period;
    stream->angle_low = output->has_range ? output->range_low : NAN;
    return TRAJD_OK;
}

/* Returns the bytes of a source row in the cache: a row of the whole array, of which a stream may
 * be some columns. */
static uint64_t row_stride(const struct trajd_window_plan *plan,
                           const struct trajd_plan_target *target)
{
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
    const struct trajd_index *index = plan->dataset->index;

    if (target->stream_index == TRAJD_PLAN_ABSENT) /* of rows that are never read */
        return (stream->first_column + stream->feature_count) * trajd_dtype_size(stream->dtype);
    if (target->entry == TRAJD_PLAN_ABSENT) /* images, which the kernels do not read */
        return stream->feature_count * trajd_dtype_size(stream->dtype);
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        const struct trajd_array *array = &episode->extents[stream->array_index];
        if (!episode->quarantine && array->storage != TRAJD_STORAGE_ABSENT && array->size_bytes)
            return trajd_array_row_bytes(array) / (is_float32(plan, target) ? 2 : 1);
    }
    return 0;
}

void trajd_window_plan_copy_forms(struct trajd_window_plan *plan,
                                  const struct trajd_window_plan *other)
{
    for (uint32_t p = 0; p < plan->selection.array_count; p++)
        for (uint32_t q = 0; q < other->selection.array_count; q++)
            if (other->entry_arrays[q] == plan->entry_arrays[p])
                plan->entry_as_float32[p] = other->entry_as_float32[q];
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_plan_target *target = &plan->rules.targets[t];
        plan->rules.targets[t].stream.source_type =
            is_float32(plan, target) ? TRAJD_F32 : trajd_plan_stream(plan, target)->dtype;
        plan->rules.targets[t].stream.row_stride_bytes = row_stride(plan, target);
    }
}

/* ---- views ---- */

static bool has_frames(const struct trajd_window_plan *plan, const struct trajd_episode *episode,
                       uint32_t image)
{
    const uint32_t stream = plan->rules.targets[plan->rules.row_target_count + image].stream_index;

    return stream != TRAJD_PLAN_ABSENT &&
           episode->extents[plan->dataset->index->streams[stream].array_index].storage !=
               TRAJD_STORAGE_ABSENT;
}

static bool has_own_rows(const struct trajd_plan_rules *rules)
{
    for (uint32_t b = 0; b < rules->bracket_count; b++)
        if (rules->brackets[b].array_index >= 0)
            return true;
    return false;
}

static bool is_gathered(const struct trajd_dataset *dataset)
{
    for (uint32_t c = 0; c < dataset->index->clock_count; c++)
        if (dataset->clock_row_begin[c])
            return true;
    return false;
}

/* Returns whether the clock of a bracket grows too old before the last anchor of an episode. */
static bool ends_early(const struct trajd_plan_rules *rules,
                       const struct trajd_episode_clock *clocks)
{
    for (uint32_t b = 0; b < rules->bracket_count; b++) {
        const struct trajd_plan_bracket *bracket = &rules->brackets[b];
        const struct trajd_episode_clock *anchors;
        if (!bracket->too_old_intervals)
            continue;
        anchors = &clocks[rules->anchor_clock];
        if (trajd_clock_too_old_ns(&clocks[bracket->clock_index], bracket->too_old_intervals) <
            trajd_clock_row_ns(anchors, anchors->row_count - 1))
            return true;
    }
    return false;
}

/* Fills the view of an episode. Lists that all episodes would leave empty are NULL. */
static void make_view(struct trajd_window_plan *plan, uint32_t e, bool gathered, bool own_rows)
{
    const struct trajd_plan_rules *rules = &plan->rules;
    const struct trajd_dataset *dataset = plan->dataset;
    const struct trajd_episode *episode = &dataset->index->episodes[e];
    struct trajd_arena *arena = &plan->arena;
    struct trajd_view *view = &plan->views[e];
    int64_t *row_begin = NULL, *row_counts = NULL;
    bool *frames = NULL;

    view->clocks = episode->clocks;
    if (episode->quarantine)
        return;
    view->ends_early = ends_early(rules, episode->clocks);
    if (gathered) {
        row_begin = trajd_arena_array(arena, rules->clock_count, sizeof *row_begin);
        for (uint32_t c = 0; row_begin && c < rules->clock_count; c++)
            row_begin[c] = dataset->clock_row_begin[c] ? dataset->clock_row_begin[c][e] : 0;
    }
    if (own_rows) {
        row_counts = trajd_arena_array(arena, rules->bracket_count, sizeof *row_counts);
        for (uint32_t b = 0; row_counts && b < rules->bracket_count; b++)
            row_counts[b] = rules->brackets[b].array_index < 0
                                ? -1
                                : trajd_plan_row_count(plan, &rules->brackets[b], episode);
    }
    if (rules->image_count) {
        frames = trajd_arena_array(arena, rules->image_count, sizeof *frames);
        for (uint32_t p = 0; frames && p < rules->image_count; p++)
            frames[p] = has_frames(plan, episode, p);
    }
    view->row_begin = row_begin;
    view->row_counts = row_counts;
    view->has_frames = frames;
}

enum trajd_status trajd_window_plan_prepare(struct trajd_window_plan *plan,
                                            struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    enum trajd_status status = TRAJD_OK;
    bool gathered, own_rows;

    plan->clocks = trajd_arena_array(&plan->arena, index->clock_count, sizeof *plan->clocks);
    plan->views = trajd_arena_array(&plan->arena, index->episode_count, sizeof *plan->views);
    if (plan->arena.is_starved)
        return trajd_plan_no_memory(error);
    for (uint32_t c = 0; c < index->clock_count; c++)
        plan->clocks[c] = (struct trajd_clock){.stamps_ns = plan->dataset->clock_stamps_ns[c],
                                               .rate = plan->dataset->clock_rates[c]};
    for (uint32_t t = 0; t < plan->rules.target_count && !status; t++) {
        struct trajd_plan_target *target = &plan->rules.targets[t];
        status = prepare_stream(plan, target, error);
        target->stream.row_stride_bytes = row_stride(plan, target);
    }
    if (status)
        return status;
    trajd_rules_complete(&plan->rules);
    gathered = is_gathered(plan->dataset);
    own_rows = has_own_rows(&plan->rules);
    for (uint32_t e = 0; e < index->episode_count; e++)
        make_view(plan, e, gathered, own_rows);
    return plan->arena.is_starved ? trajd_plan_no_memory(error) : TRAJD_OK;
}
