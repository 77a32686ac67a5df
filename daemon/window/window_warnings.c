/* Finds what the user of a feed should know about its plan. Every warning of a plan goes through
 * trajd_window_plan_warn: `trajctl check` prints them, and workers get them when they open the
 * feed. */
#include "daemon/window/window_plan_internal.h"

/* Returns the mean rate of a clock over the first episode of the feed; 0 where it has no span. */
static double mean_rate_hz(const struct trajd_window_plan *plan, uint32_t clock)
{
    const struct trajd_episode_clock *view =
        &plan->dataset->index->episodes[plan->episodes[0]].clocks[clock];
    const int64_t last = view->row_count - 1;
    int64_t span_ns;

    if (last < 1)
        return 0;
    span_ns = trajd_clock_row_ns(view, last) - trajd_clock_row_ns(view, 0);
    return span_ns > 0 ? (double)last * 1e9 / (double)span_ns : 0;
}

/* Warns where a fast stream is resampled onto a slow grid without averaging, which uses few of its
 * rows. */
static void warn_of_rate(struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_plan_bracket *bracket = &plan->brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->grids[bracket->grid_index];
    const double source_hz = mean_rate_hz(plan, bracket->clock_index);
    const double anchor_hz = plan->anchor_clock >= 0
                                 ? mean_rate_hz(plan, (uint32_t)plan->anchor_clock)
                                 : (double)plan->anchor_rate.num / (double)plan->anchor_rate.den;
    const double grid_hz =
        grid->rate.num ? (double)grid->rate.num / (double)grid->rate.den : anchor_hz;

    if (trajd_plan_kind(plan, target) == TRAJD_KIND_LINEAR && grid->rule != TRAJD_TARGET_ROWS &&
        grid_hz > 0 && source_hz > 4 * grid_hz)
        trajd_window_plan_warn(
            plan,
            "%s: %.4g Hz onto %.4g Hz by linear keeps 2 rows of %.0f; kind: mean averages them",
            plan->outputs[target->output_index].name, source_hz, grid_hz, source_hz / grid_hz);
}

/* Returns whether each step lies on a row of the stream's clock, so that nothing is blended. */
static bool takes_rows(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_plan_bracket *bracket = &plan->brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->grids[bracket->grid_index];

    if (trajd_plan_kind(plan, target) == TRAJD_KIND_MEAN)
        return grid->rule == TRAJD_TARGET_ROWS &&
               !plan->spec->outputs[target->output_index].mean_width_ns;
    return grid->rule == TRAJD_TARGET_ROWS ||
           (grid->rule == TRAJD_TARGET_OFFSETS &&
            (int64_t)bracket->clock_index == plan->anchor_clock &&
            trajd_rate_divides(grid->rate, plan->anchor_rate));
}

/* Warns where quaternions are blended as plain numbers. */
static void warn_of_quaternions(struct trajd_window_plan *plan,
                                const struct trajd_plan_target *target)
{
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
    const enum trajd_kind kind = trajd_plan_kind(plan, target);
    const struct trajd_quaternion *quaternions;
    const uint32_t count = trajd_index_find_quaternions(
        plan->dataset->index, stream->array_index, stream->first_column,
        stream->first_column + stream->feature_count, kind, &quaternions);
    char text[TRAJD_QUATERNION_ADVICE_SIZE];

    if (!count || takes_rows(plan, target))
        return;
    trajd_index_advise_quaternions(plan->dataset->index, stream, kind, quaternions, count, text);
    trajd_window_plan_warn(plan, "%s: %s: %s", plan->outputs[target->output_index].name,
                           stream->name, text);
}

void trajd_window_plan_find_warnings(struct trajd_window_plan *plan)
{
    for (uint32_t t = 0; t < plan->target_count; t++) {
        if (plan->targets[t].stream_index == TRAJD_PLAN_ABSENT)
            continue;
        warn_of_rate(plan, &plan->targets[t]);
        warn_of_quaternions(plan, &plan->targets[t]);
    }
}
