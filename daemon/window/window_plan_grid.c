/* The grids and brackets of a plan: at which steps of which clock an output's targets lie. Equal
 * ones are shared. */
#include <stdlib.h>

#include "daemon/window/window_plan_internal.h"

#define MAX_OFFSETS (UINT64_C(1) << 24) /* explicit targets of a batch on one grid: 128 MiB */

static bool same_rate(struct trajd_rate a, struct trajd_rate b)
{
    return a.num == b.num && a.den == b.den;
}

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
                                        : plan->anchor_rate;
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

/* Prepares a grid. Targets at a fixed rate g around a regular anchor of rate a are floor((j / a + k
 * / g) 1e9) = floor(j / a 1e9) + floor(k / g 1e9), plus 1 where the two fractions add up to a
 * whole. The fractions are computed here, so that binding a window only adds and compares. */
static enum trajd_status prepare_grid(struct trajd_window_plan *plan, struct trajd_plan_grid *grid,
                                      struct trajd_error *error)
{
    const bool exact = plan->anchor_rate.num && grid->rate.num;

    const uint64_t offsets = (uint64_t)grid->step_count * plan->spec->global_batch;

    grid->per_window =
        grid->rule == TRAJD_TARGET_ANCHOR_STEPS || (grid->rule == TRAJD_TARGET_OFFSETS && exact);
    if (grid->per_window && offsets > MAX_OFFSETS)
        return trajd_plan_no_memory(error);
    grid->offsets = grid->per_window ? NULL : calloc(grid->step_count, sizeof *grid->offsets);
    grid->step_ns = calloc(grid->step_count, sizeof *grid->step_ns);
    grid->step_fraction = calloc(grid->step_count, sizeof *grid->step_fraction);
    if (!(grid->per_window || grid->offsets) || !grid->step_ns || !grid->step_fraction)
        return trajd_plan_no_memory(error);
    for (uint32_t t = 0; t < grid->step_count; t++) {
        const int64_t step = grid->from + t;
        if (grid->rate.num)
            grid->step_ns[t] = trajd_rate_row_ns(grid->rate, step);
        if (exact)
            grid->step_fraction[t] =
                trajd_rate_fraction(grid->rate, step) * (uint64_t)plan->anchor_rate.num;
        if (!grid->per_window)
            grid->offsets[t] = grid->rule == TRAJD_TARGET_ROWS ? step : grid->step_ns[t];
    }
    return TRAJD_OK;
}

/* Returns the number of the output's goal among plan->goals, from 1, and adds it if it is new. 0:
 * the output has no goal. */
static uint32_t find_goal(struct trajd_window_plan *plan, const struct trajd_spec_output *output)
{
    uint32_t g = 0;

    if (output->goal.from == TRAJD_GOAL_NONE)
        return 0;
    while (g < plan->goal_count && !trajd_goal_is_same(&plan->goals[g], &output->goal))
        g++;
    if (g == plan->goal_count)
        plan->goals[plan->goal_count++] = output->goal;
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
    if (grid.rate.num && !same_rate(grid.rate, plan->anchor_rate))
        grid.rule = TRAJD_TARGET_OFFSETS;
    else if ((int64_t)clock == plan->anchor_clock && output->max_age_ns < 0 &&
             !output->mean_width_ns)
        grid.rule = TRAJD_TARGET_ROWS;
    else
        grid.rule = TRAJD_TARGET_ANCHOR_STEPS;
    for (*grid_index = 0; *grid_index < plan->grid_count; (*grid_index)++) {
        const struct trajd_plan_grid *other = &plan->grids[*grid_index];
        if (other->rule == grid.rule && other->goal == grid.goal && other->from == grid.from &&
            other->step_count == grid.step_count && same_rate(other->rate, grid.rate))
            return TRAJD_OK;
    }
    plan->grids[plan->grid_count] = grid;
    status = prepare_grid(plan, &plan->grids[plan->grid_count++], error);
    if (status == TRAJD_ERR_MEMORY)
        return trajd_plan_output_error(output, error, status,
                                       "no memory for %u steps of each of %u windows",
                                       grid.step_count, plan->spec->global_batch);
    return status;
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

enum trajd_status trajd_plan_find_bracket(struct trajd_window_plan *plan,
                                          const struct trajd_spec_output *output,
                                          const struct trajd_index_stream *stream, bool is_absent,
                                          uint32_t *bracket_index, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    struct trajd_plan_bracket bracket = {.clock_index = stream->clock_index,
                                         .clipped = output->role == TRAJD_ROLE_OBS ||
                                                    output->role == TRAJD_ROLE_GOAL,
                                         .in_chunk = output->returns.in_chunk,
                                         .lookahead_ns = output->lookahead_ns,
                                         .array_index = -1};
    enum trajd_status status =
        find_grid(plan, output, stream->clock_index, &bracket.grid_index, error);

    if (status)
        return status;
    if (!is_absent && index->clocks[stream->clock_index].regular && has_own_rows(index, stream))
        bracket.array_index = stream->array_index;
    for (*bracket_index = 0; *bracket_index < plan->bracket_count; (*bracket_index)++) {
        const struct trajd_plan_bracket *other = &plan->brackets[*bracket_index];
        if (other->clock_index == bracket.clock_index && other->grid_index == bracket.grid_index &&
            other->clipped == bracket.clipped && other->in_chunk == bracket.in_chunk &&
            other->lookahead_ns == bracket.lookahead_ns &&
            other->array_index == bracket.array_index)
            return TRAJD_OK;
    }
    plan->brackets[plan->bracket_count++] = bracket;
    return TRAJD_OK;
}
