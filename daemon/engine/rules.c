/* Grids, brackets and streams of rules, and the times of anchors. */
#include "daemon/engine/rules.h"

#include <stdlib.h>

#define MAX_OFFSETS (UINT64_C(1) << 24) /* explicit targets of a batch on one grid: 128 MiB */

/* Prepares a grid. Targets at a fixed rate g around a regular anchor of rate a are floor((j / a + k
 * / g) 1e9) = floor(j / a 1e9) + floor(k / g 1e9), plus 1 where the two fractions add up to a
 * whole. The fractions are computed here, so that binding a window only adds and compares. */
static bool prepare_grid(const struct trajd_plan_rules *rules, struct trajd_plan_grid *grid,
                         uint32_t window_count)
{
    const bool exact = rules->anchor_rate.num && grid->rate.num;
    const uint64_t offsets = (uint64_t)grid->step_count * window_count;

    grid->per_window =
        grid->rule == TRAJD_TARGET_ANCHOR_STEPS || (grid->rule == TRAJD_TARGET_OFFSETS && exact);
    if (grid->per_window && offsets > MAX_OFFSETS)
        return false;
    grid->offsets = grid->per_window ? NULL : calloc(grid->step_count, sizeof *grid->offsets);
    grid->step_ns = calloc(grid->step_count, sizeof *grid->step_ns);
    grid->step_fraction = calloc(grid->step_count, sizeof *grid->step_fraction);
    if (!(grid->per_window || grid->offsets) || !grid->step_ns || !grid->step_fraction)
        return false;
    for (uint32_t t = 0; t < grid->step_count; t++) {
        const int64_t step = grid->from + t;
        if (grid->rate.num)
            grid->step_ns[t] = trajd_rate_row_ns(grid->rate, step);
        if (exact)
            grid->step_fraction[t] =
                trajd_rate_fraction(grid->rate, step) * (uint64_t)rules->anchor_rate.num;
        if (!grid->per_window)
            grid->offsets[t] = grid->rule == TRAJD_TARGET_ROWS ? step : grid->step_ns[t];
    }
    return true;
}

enum trajd_status trajd_rules_find_grid(struct trajd_plan_rules *rules,
                                        const struct trajd_plan_grid *wanted, uint32_t window_count,
                                        uint32_t *grid_index)
{
    for (*grid_index = 0; *grid_index < rules->grid_count; (*grid_index)++) {
        const struct trajd_plan_grid *other = &rules->grids[*grid_index];
        if (other->rule == wanted->rule && other->goal == wanted->goal &&
            other->from == wanted->from && other->step_count == wanted->step_count &&
            trajd_rate_is_same(other->rate, wanted->rate))
            return TRAJD_OK;
    }
    rules->grids[rules->grid_count] = *wanted;
    return prepare_grid(rules, &rules->grids[rules->grid_count++], window_count) ? TRAJD_OK
                                                                                 : TRAJD_ERR_MEMORY;
}

uint32_t trajd_rules_find_bracket(struct trajd_plan_rules *rules,
                                  const struct trajd_plan_bracket *wanted, bool is_regular)
{
    const bool is_its_own = wanted->clock_index == rules->anchor_clock && !is_regular,
               in_rows = rules->grids[wanted->grid_index].rule == TRAJD_TARGET_ROWS;
    uint32_t b = 0;

    for (; b < rules->bracket_count; b++) {
        const struct trajd_plan_bracket *other = &rules->brackets[b];
        if (other->clock_index == wanted->clock_index && other->grid_index == wanted->grid_index &&
            other->clipped == wanted->clipped && other->in_chunk == wanted->in_chunk &&
            other->lookahead_ns == wanted->lookahead_ns &&
            other->too_old_intervals == wanted->too_old_intervals &&
            other->array_index == wanted->array_index)
            return b;
    }
    rules->brackets[b] = *wanted;
    rules->brackets[b].is_searched =
        wanted->clipped && (wanted->lookahead_ns || !(is_its_own || in_rows));
    rules->bracket_count++;
    return b;
}

void trajd_rules_complete(struct trajd_plan_rules *rules)
{
    uint64_t column = 0;

    for (uint32_t t = 0; t < rules->target_count; t++) {
        const struct trajd_plan_target *target = &rules->targets[t];
        const struct trajd_plan_output *out = &rules->outputs[target->output_index];
        struct trajd_stream *stream = &rules->targets[t].stream;
        const bool is_normalised = out->scale && !out->transform;

        column = t && target->output_index == target[-1].output_index
                     ? column + target[-1].stream.feature_count
                     : 0;
        stream->bracket_index = target->bracket_index;
        stream->edge = rules->edge;
        stream->scale = is_normalised ? out->scale + column : NULL;
        stream->offset = is_normalised ? out->offset + column : NULL;
        stream->output_type = out->row_dtype;
        stream->step_stride_bytes = out->row_feature_count * trajd_dtype_size(out->row_dtype);
        stream->window_stride_bytes = stream->step_stride_bytes * out->step_count;
        stream->mask_window_stride_bytes = out->step_count;
        stream->mask_joins_previous = column > 0;
    }
}

void trajd_rules_clear_grids(struct trajd_plan_rules *rules)
{
    for (uint32_t g = 0; g < rules->grid_count; g++) {
        free(rules->grids[g].offsets);
        free(rules->grids[g].step_ns);
        free(rules->grids[g].step_fraction);
    }
    rules->grid_count = 0;
}

uint32_t trajd_rules_first_target(const struct trajd_plan_rules *rules, uint32_t output_index)
{
    uint32_t t = 0;

    while (rules->targets[t].output_index != output_index)
        t++;
    return t;
}

uint32_t trajd_rules_end_target(const struct trajd_plan_rules *rules, uint32_t first)
{
    uint32_t end = first + 1;

    while (end < rules->target_count &&
           rules->targets[end].output_index == rules->targets[first].output_index)
        end++;
    return end;
}

const struct trajd_plan_grid *trajd_rules_grid(const struct trajd_plan_rules *rules,
                                               uint32_t target)
{
    return &rules->grids[rules->brackets[rules->targets[target].bracket_index].grid_index];
}

/* ---- times of anchors ---- */

int64_t trajd_rules_anchor_ns(const struct trajd_plan_rules *rules,
                              const struct trajd_episode_clock *clocks, int64_t j)
{
    return rules->anchor_clock >= 0 ? trajd_clock_row_ns(&clocks[rules->anchor_clock], j)
                                    : trajd_rate_row_ns(rules->anchor_rate, j);
}

uint64_t trajd_rules_anchor_fraction(const struct trajd_plan_rules *rules,
                                     const struct trajd_plan_grid *grid, int64_t j,
                                     uint64_t *denominator)
{
    *denominator = (uint64_t)rules->anchor_rate.num * (uint64_t)grid->rate.num;
    return trajd_rate_fraction(rules->anchor_rate, j) * (uint64_t)grid->rate.num;
}

int64_t trajd_rules_carry_ns(const struct trajd_plan_rules *rules,
                             const struct trajd_plan_grid *grid, int64_t j, int64_t t)
{
    uint64_t denominator, numerator;

    if (!rules->anchor_rate.num || !grid->rate.num)
        return 0;
    numerator = trajd_rules_anchor_fraction(rules, grid, j, &denominator);
    return numerator + grid->step_fraction[t] >= denominator;
}
