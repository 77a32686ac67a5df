/* The grids and brackets of a plan: at which steps of which clock an output's targets lie. Equal
 * ones are shared. */
#include <stdlib.h>

#include "daemon/window/window_plan_internal.h"

/* Resolves an output's range to whole steps from grid->from on, at grid->rate if it has one. */
static enum trajd_status resolve_range(const struct trajd_window_plan *plan,
                                       const struct trajd_spec_output *output,
                                       struct trajd_plan_grid *grid, struct trajd_error *error)
{
    const struct trajd_spec_range *at = &output->at;
    int64_t to = at->to;

    grid->from = at->from;
    grid->rate = at->rate.num           ? at->rate
                 : plan->spec->rate.num ? plan->spec->rate
                                        : plan->rules.anchor_rate;
    if (at->in_time) {
        if (!grid->rate.num)
            return trajd_plan_output_error(
                output, error, TRAJD_ERR_ARGUMENT,
                "a range of times needs a rate here: write for example -200ms..0ms @ 100");
        grid->from = trajd_rate_row_at(grid->rate, at->from - 1) + 1;
        to = trajd_rate_row_at(grid->rate, at->to);
    }
    if (to < grid->from || to - grid->from >= TRAJD_SPEC_MAX_STEPS)
        return trajd_plan_output_error(output, error, TRAJD_ERR_ARGUMENT,
                                       "the range has no step or more than %d steps at this rate",
                                       TRAJD_SPEC_MAX_STEPS);
    grid->step_count = (uint32_t)(to - grid->from + 1);
    return TRAJD_OK;
}

/* Returns the number of the output's goal among plan->goals, from 1, and adds it if it is new. 0:
 * the output has no goal. */
static uint32_t find_goal(struct trajd_window_plan *plan, const struct trajd_spec_output *output)
{
    uint32_t g = 0;

    if (output->goal.from == TRAJD_GOAL_NONE)
        return 0;
    while (g < plan->rules.goal_count && !trajd_goal_is_same(&plan->goals[g], &output->goal))
        g++;
    if (g == plan->rules.goal_count)
        plan->goals[plan->rules.goal_count++] = output->goal;
    return g + 1;
}

/* Finds the grid of an output on a clock, or adds it. */
static enum trajd_status find_grid(struct trajd_window_plan *plan,
                                   const struct trajd_spec_output *output, uint32_t clock,
                                   uint32_t *grid_index, struct trajd_error *error)
{
    struct trajd_plan_grid grid = {0};
    enum trajd_status status = resolve_range(plan, output, &grid, error);

    if (status)
        return status;
    grid.goal = find_goal(plan, output);
    /* max_age and mean_width need times, which a grid of rows does not have */
    if (grid.rate.num && !trajd_rate_is_same(grid.rate, plan->rules.anchor_rate))
        grid.rule = TRAJD_TARGET_OFFSETS;
    else if ((int64_t)clock == plan->rules.anchor_clock && output->max_age_ns < 0 &&
             !output->mean_width_ns)
        grid.rule = TRAJD_TARGET_ROWS;
    else
        grid.rule = TRAJD_TARGET_ANCHOR_STEPS;
    if (trajd_rules_find_grid(&plan->rules, &grid, plan->spec->global_batch, grid_index))
        return trajd_plan_output_error(output, error, TRAJD_ERR_MEMORY,
                                       "no memory for %u steps of each of %u windows",
                                       grid.step_count, plan->spec->global_batch);
    return TRAJD_OK;
}

/* Returns whether a stream on a regular clock has a row count of its own in some episode, for
 * example T + 1 observations. */
static bool has_own_rows(const struct trajd_index *index, const struct trajd_index_stream *stream)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        const struct trajd_array *array = &episode->extents[stream->array_index];
        if (episode->quarantine || array->storage == TRAJD_STORAGE_ABSENT)
            continue;
        if ((int64_t)trajd_array_row_count(array) != episode->clocks[stream->clock_index].row_count)
            return true;
    }
    return false;
}

/* Returns after how many intervals a stream that has ended is too old; 0: never. Rows of events never
 * are, nor are those of the clock with which the anchors end. `max_age:` says it in its own way, and version 1
 * of the configuration holds the last row. */
static uint32_t too_old_intervals(const struct trajd_window_plan *plan,
                                  const struct trajd_spec_output *output,
                                  const struct trajd_index_stream *stream)
{
    const bool is_exempt = plan->spec->version < 2 || stream->is_event || output->max_age_ns >= 0 ||
                           plan->rules.anchor_clock < 0 ||
                           plan->rules.anchor_clock == (int64_t)stream->clock_index;

    return is_exempt ? 0 : TRAJD_TOO_OLD_INTERVALS;
}

enum trajd_status trajd_plan_find_bracket(struct trajd_window_plan *plan,
                                          const struct trajd_spec_output *output,
                                          const struct trajd_index_stream *stream, bool is_absent,
                                          uint32_t *bracket_index, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    struct trajd_plan_bracket bracket = {
        .clock_index = stream->clock_index,
        .clipped = output->role == TRAJD_ROLE_OBS || output->role == TRAJD_ROLE_GOAL,
        .too_old_intervals = too_old_intervals(plan, output, stream),
        .in_chunk = output->returns.in_chunk,
        .lookahead_ns = output->lookahead_ns,
        .array_index = -1};
    enum trajd_status status =
        find_grid(plan, output, stream->clock_index, &bracket.grid_index, error);

    if (status)
        return status;
    if (!is_absent && index->clocks[stream->clock_index].regular && has_own_rows(index, stream))
        bracket.array_index = stream->array_index;
    *bracket_index = trajd_rules_find_bracket(&plan->rules, &bracket,
                                              index->clocks[stream->clock_index].regular);
    return TRAJD_OK;
}
