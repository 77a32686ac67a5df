/* Computes statistics of outputs that are differences between rows of the anchor's clock,
 * without resampling. */
#include <math.h>
#include <string.h>

#include "daemon/stats/stats_walk.h"
#include "kernels/clones.h"
#include "kernels/element_convert.h"

#define TILE TRAJD_HISTOGRAM_TILE
#define BLOCK 1024 /* anchors, and steps, whose numbers of one column are taken from the rows */
#define NO_TARGET UINT32_MAX

/* Windows with adjacent anchors in one episode. */
struct difference_run {
    int64_t first_anchor, anchor_count;
    int64_t row_count, state_count; /* of the episode */
    int64_t first_row;              /* the first row that is a step of one of the windows */
    const void *const *rows;        /* [entries of the plan] */
    /* 1: a number is not finite, so the steps that use it are masked */
    uint8_t *row_flags;   /* [rows from first_row on] */
    uint8_t *state_flags; /* [anchor_count] */
    bool is_clean;        /* all flags are 0 */
};

/* Where a column of an output comes from. */
struct difference_column {
    uint32_t target, column;             /* of the target's stream */
    uint32_t state_target, state_column; /* state_target UINT32_MAX: the row itself */
};

/* ---- which outputs ---- */

bool statistics_takes_rows(const struct trajd_window_plan *plan, uint32_t target)
{
    const struct trajd_plan_bracket *bracket =
        &plan->rules.brackets[plan->rules.targets[target].bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];

    return grid->rule == TRAJD_TARGET_ROWS && !plan->rules.targets[target].stream.total &&
           !(bracket->clipped &&
             (bracket->lookahead_ns || grid->from + (int64_t)grid->step_count - 1 > 0));
}

/* Returns whether the kernels copy rows of the anchor's clock without a change of value or type. Steps
 * after the last row must be invalid; with `holds`, they must repeat the last row at any age.
 * *bracket_index is that of all sources. */
static bool copies_rows(const struct trajd_window_plan *plan, uint32_t output_index, bool holds,
                        uint32_t *bracket_index)
{
    const enum trajd_dtype dtype = plan->rules.outputs[output_index].row_dtype;
    bool found = false;

    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const struct trajd_plan_target *target = &plan->rules.targets[t];
        const struct trajd_stream *stream = &plan->rules.targets[t].stream;
        if (target->output_index != output_index)
            continue;
        if (!statistics_takes_rows(plan, t) ||
            plan->rules.grids[plan->rules.brackets[target->bracket_index].grid_index].per_window ||
            (found && target->bracket_index != *bracket_index) ||
            (stream->kind != TRAJD_KIND_PREVIOUS && stream->kind != TRAJD_KIND_NEAREST &&
             stream->kind != TRAJD_KIND_LINEAR) ||
            stream->max_age_ns != (holds ? INT64_MAX : -1) || stream->source_type != dtype ||
            (dtype != TRAJD_F32 && dtype != TRAJD_F64))
            return false;
        *bracket_index = target->bracket_index;
        found = true;
    }
    return found;
}

bool statistics_is_difference(const struct trajd_window_plan *plan, uint32_t output_index)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    const struct trajd_plan_grid *grid;
    uint32_t bracket;

    if (!output->transform || output->transform->from_step_before ||
        (output->dtype != TRAJD_F32 && output->dtype != TRAJD_F64) ||
        !copies_rows(plan, output_index, false, &bracket))
        return false;
    for (uint32_t p = 0; p < output->transform->part_count; p++)
        if (output->transform->parts[p].kind != TRAJD_PART_PLAIN ||
            output->transform->parts[p].turned_by >= 0)
            return false;
    if (!output->transform->reference_count)
        return true;
    if (!copies_rows(plan, output->reference_output, true, &bracket))
        return false;
    grid = &plan->rules.grids[plan->rules.brackets[bracket].grid_index];
    return grid->from == 0 && grid->step_count == 1;
}

/* Finds the source of column d of an output's rows. */
static void find_source(const struct trajd_window_plan *plan, uint32_t output_index, uint32_t d,
                        uint32_t *target, uint32_t *column)
{
    uint32_t t = trajd_rules_first_target(&plan->rules, output_index);

    for (; d >= plan->rules.targets[t].stream.feature_count; t++)
        d -= plan->rules.targets[t].stream.feature_count;
    *target = t;
    *column = d;
}

static void find_columns(const struct trajd_window_plan *plan, uint32_t output_index,
                         struct difference_column *columns)
{
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];

    for (uint32_t p = 0; p < output->transform->part_count; p++) {
        const struct trajd_transform_part *part = &output->transform->parts[p];
        for (uint32_t d = 0; d < part->count; d++) {
            struct difference_column *column = &columns[part->output_first + d];
            column->state_target = NO_TARGET;
            find_source(plan, output_index, part->first + d, &column->target, &column->column);
            if (part->is_relative)
                find_source(plan, output->reference_output, part->reference_first + d,
                            &column->state_target, &column->state_column);
        }
    }
}

void statistics_differences_allocate(struct windows_walk *walk, uint32_t item, uint32_t windows)
{
    struct item_view *view = &walk->views[item];
    const uint32_t o = walk->sweep->items[item].index;
    const struct trajd_plan_output *output = &walk->plan->rules.outputs[o];

    view->columns = trajd_arena_alloc(&walk->arena, output->feature_count * sizeof *view->columns);
    view->runs = trajd_arena_alloc(&walk->arena, windows * sizeof *view->runs);
    view->flags = trajd_arena_alloc(&walk->arena, (size_t)windows * (output->step_count + 1));
    if (view->columns)
        find_columns(walk->plan, o, view->columns);
}

/* ---- runs ---- */

static const struct trajd_plan_grid *grid_of(const struct windows_walk *walk, uint32_t item)
{
    const struct trajd_plan_target *target =
        &walk->plan->rules.targets[walk->views[item].first_target];

    return &walk->plan->rules.grids[walk->plan->rules.brackets[target->bracket_index].grid_index];
}

static const char *row_of(const struct windows_walk *walk, const void *const *rows, uint32_t target,
                          int64_t row)
{
    const struct trajd_stream *stream = &walk->plan->rules.targets[target].stream;

    return (const char *)rows[walk->plan->rules.targets[target].entry] +
           (uint64_t)row * stream->row_stride_bytes +
           (uint64_t)stream->first_column * trajd_dtype_size(stream->source_type);
}

static double number_of(const struct windows_walk *walk, const void *const *rows, uint32_t target,
                        uint32_t column, int64_t row)
{
    const enum trajd_dtype type = walk->plan->rules.targets[target].stream.source_type;

    return trajd_element_load(type, row_of(walk, rows, target, row) +
                                        (uint64_t)column * trajd_dtype_size(type));
}

/* Flags `count` rows of an output from row `first` on. Returns whether all are good. */
static bool flag_rows(const struct windows_walk *walk, const void *const *rows,
                      uint32_t output_index, int64_t first, int64_t count, uint8_t *flags)
{
    const struct trajd_window_plan *plan = walk->plan;
    bool is_clean = true;

    memset(flags, 0, (size_t)count);
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        for (int64_t r = 0; r < count && plan->rules.targets[t].output_index == output_index; r++)
            for (uint32_t d = 0; d < plan->rules.targets[t].stream.feature_count; d++)
                if (!isfinite(number_of(walk, rows, t, d, first + r))) {
                    is_clean = false;
                    flags[r] = 1;
                }
    return is_clean;
}

/* Returns whether the step at a row, of the window at an anchor, counts. */
static bool counts(const struct difference_run *run, int64_t anchor, int64_t row)
{
    return !run->row_flags[row - run->first_row] && !run->state_flags[anchor - run->first_anchor];
}

static uint64_t count_valid(const struct windows_walk *walk, uint32_t item,
                            const struct difference_run *run)
{
    const struct trajd_plan_grid *grid = grid_of(walk, item);
    uint64_t found = 0;

    for (int64_t k = grid->from; k < grid->from + (int64_t)grid->step_count; k++) {
        const int64_t begin = greatest(run->first_anchor, -k),
                      end = least(run->first_anchor + run->anchor_count, run->row_count - k);
        if (run->is_clean)
            found += (uint64_t)greatest(0, end - begin);
        for (int64_t j = begin; j < end && !run->is_clean; j++)
            found += counts(run, j, j + k);
    }
    return found;
}

/* Returns whether the rows that a run needs are in memory: those of the steps, and of the state. */
static bool are_readable(const struct windows_walk *walk, uint32_t output_index,
                         const void *const *rows)
{
    for (uint32_t t = 0; t < walk->plan->rules.target_count; t++)
        if (trajd_window_plan_uses(walk->plan, output_index, t) &&
            !rows[walk->plan->rules.targets[t].entry])
            return false;
    return true;
}

/* Returns the rows of the state in an episode. A state's stream may have fewer than the anchor's
 * clock: its last row is held. */
static int64_t count_states(const struct windows_walk *walk, uint32_t output_index,
                            const struct trajd_episode *episode)
{
    const struct trajd_window_plan *plan = walk->plan;
    const struct trajd_plan_output *output = &plan->rules.outputs[output_index];
    const uint32_t t = trajd_rules_first_target(&plan->rules, output->reference_output);

    return trajd_plan_row_count(plan, &plan->rules.brackets[plan->rules.targets[t].bracket_index],
                                episode);
}

/* Flags the states of a run. Returns whether all are good. */
static bool flag_states(const struct windows_walk *walk, uint32_t output_index,
                        const struct difference_run *run)
{
    const uint32_t state = walk->plan->rules.outputs[output_index].reference_output;
    const int64_t inside =
        greatest(0, least(run->anchor_count, run->state_count - run->first_anchor));
    bool is_clean = true;

    if (inside)
        is_clean = flag_rows(walk, run->rows, state, run->first_anchor, inside, run->state_flags);
    for (int64_t j = inside; j < run->anchor_count; j++)
        is_clean &=
            flag_rows(walk, run->rows, state, run->state_count - 1, 1, run->state_flags + j);
    return is_clean;
}

void statistics_differences_add_run(struct windows_walk *walk, uint32_t item, uint32_t w,
                                    uint32_t end, const void *const *rows)
{
    const struct trajd_window_plan *plan = walk->plan;
    const uint32_t o = walk->sweep->items[item].index;
    struct item_view *view = &walk->views[item];
    const struct trajd_plan_grid *grid = grid_of(walk, item);
    const struct trajd_window *window = &walk->batch->windows[w];
    const struct trajd_episode *episode = &plan->dataset->index->episodes[window->episode_index];
    struct difference_run *run = &view->runs[view->run_count];
    const bool is_relative = plan->rules.outputs[o].transform->reference_count > 0;
    int64_t row_end;

    if (!rows || !are_readable(walk, o, rows))
        return;
    *run = (struct difference_run){
        .first_anchor = window->anchor,
        .anchor_count = end - w,
        .row_count = trajd_plan_row_count(
            plan, &plan->rules.brackets[plan->rules.targets[view->first_target].bracket_index],
            episode),
        .rows = rows,
        .row_flags = view->flags + (size_t)w * (grid->step_count + 1)};
    run->first_row = greatest(0, window->anchor + grid->from);
    row_end = least(run->row_count,
                    window->anchor + (end - w) - 1 + grid->from + (int64_t)grid->step_count);
    run->state_count = is_relative ? count_states(walk, o, episode) : 0;
    if (row_end <= run->first_row || (is_relative && run->state_count <= 0))
        return;
    run->state_flags = run->row_flags + (row_end - run->first_row);
    memset(run->state_flags, 0, (size_t)run->anchor_count);
    run->is_clean =
        flag_rows(walk, rows, o, run->first_row, row_end - run->first_row, run->row_flags);
    if (is_relative)
        run->is_clean &= flag_states(walk, o, run);
    view->run_count++;
    if (walk->sweep->first)
        walk->sweep->items[item].result->valid_count += count_valid(walk, item, run);
}

/* ---- counting ---- */

/* Numbers of one column, of anchors [anchor, anchor + anchor_count) and the rows of some steps. */
struct block {
    int64_t anchor, anchor_count, row;
    double rows[2 * BLOCK], states[BLOCK];
};

static void load_column(const struct windows_walk *walk, const void *const *rows, uint32_t target,
                        uint32_t column, int64_t first, int64_t count, double *out)
{
    const struct trajd_stream *stream = &walk->plan->rules.targets[target].stream;
    const char *from = row_of(walk, rows, target, first) +
                       (uint64_t)column * trajd_dtype_size(stream->source_type);

    for (int64_t r = 0; r < count; r++, from += stream->row_stride_bytes)
        out[r] = trajd_element_load(stream->source_type, from);
}

static void load_states(const struct windows_walk *walk, const struct difference_run *run,
                        const struct difference_column *column, struct block *block)
{
    const int64_t inside =
        greatest(0, least(block->anchor_count, run->state_count - block->anchor));

    load_column(walk, run->rows, column->state_target, column->state_column, block->anchor, inside,
                block->states);
    for (int64_t j = inside; j < block->anchor_count; j++)
        block->states[j] = number_of(walk, run->rows, column->state_target, column->state_column,
                                     run->state_count - 1);
}

/* -0 becomes 0. */
TRAJD_CLONES static void subtract(const double *restrict rows, const double *restrict states,
                                  uint32_t count, double *restrict out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = rows[i] - states[i] + 0.0;
}

TRAJD_CLONES static void subtract_single(const double *restrict rows, const double *restrict states,
                                         uint32_t count, double *restrict out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (double)((float)(rows[i] - states[i]) + 0.0F); /* 0, not -0 */
}

/* Counts step k of the block's windows. */
static void count_step(const struct difference_run *run, const struct block *block, int64_t k,
                       struct trajd_histogram *histogram)
{
    const int64_t begin = greatest(block->anchor, -k),
                  end = least(block->anchor + block->anchor_count, run->row_count - k);
    double values[TILE];

    for (int64_t j = begin; j < end; j += TILE) {
        const uint32_t count = (uint32_t)least(TILE, end - j);
        const double *rows = block->rows + (j + k - block->row),
                     *states = block->states + (j - block->anchor);
        uint32_t kept = 0;
        if (histogram->key_bits == 32)
            subtract_single(rows, states, count, values);
        else
            subtract(rows, states, count, values);
        for (uint32_t i = 0; i < count && !run->is_clean; i++) {
            values[kept] = values[i];
            kept += counts(run, j + i, j + i + k);
        }
        trajd_histogram_add_tile(histogram, values, run->is_clean ? count : kept);
    }
}

/* The columns of an item that a slice counts: [begin, end) of norm_step_count x feature_count. */
struct share {
    const struct statistics_sweep *sweep;
    uint32_t item, begin, end;
};

/* Returns the histogram of a step in column d; NULL: another slice counts it, or it is done. */
static struct trajd_histogram *histogram_of(const struct share *share, uint32_t step, uint32_t d)
{
    const struct windows_walk *walk = share->sweep->count_context;
    const struct statistics_item *item = &share->sweep->items[share->item];
    const struct trajd_plan_output *output = &walk->plan->rules.outputs[item->index];
    const uint32_t column =
        (output->norm_step_count > 1 ? step * (uint32_t)output->feature_count : 0) + d;
    const uint32_t place = item->first_column + column - share->sweep->group_begin;

    return column < share->begin || column >= share->end || share->sweep->done[place]
               ? NULL
               : &share->sweep->histograms[place];
}

/* Counts `anchor_count` windows of a run from `anchor` on, in column d. */
static void count_block(const struct share *share, const struct difference_run *run, uint32_t d,
                        int64_t anchor, int64_t anchor_count)
{
    const struct windows_walk *walk = share->sweep->count_context;
    const struct difference_column *column = &walk->views[share->item].columns[d];
    const struct trajd_plan_grid *grid = grid_of(walk, share->item);
    struct block block = {.anchor = anchor, .anchor_count = anchor_count};

    if (column->state_target != NO_TARGET)
        load_states(walk, run, column, &block);
    for (uint32_t first = 0; first < grid->step_count; first += BLOCK) {
        const uint32_t steps = (uint32_t)least(BLOCK, grid->step_count - first);
        const int64_t row = anchor + grid->from + first,
                      end = least(run->row_count, row + steps + anchor_count - 1);
        block.row = greatest(0, row);
        if (end <= block.row)
            continue;
        load_column(walk, run->rows, column->target, column->column, block.row, end - block.row,
                    block.rows);
        for (uint32_t step = first; step < first + steps; step++) {
            struct trajd_histogram *histogram = histogram_of(share, step, d);
            if (histogram)
                count_step(run, &block, grid->from + step, histogram);
        }
    }
}

static bool has_column(const struct share *share, uint32_t d)
{
    const struct windows_walk *walk = share->sweep->count_context;
    const struct trajd_plan_output *output =
        &walk->plan->rules.outputs[share->sweep->items[share->item].index];

    for (uint32_t step = 0; step < output->norm_step_count; step++)
        if (histogram_of(share, step, d))
            return true;
    return false;
}

static void count_item(const struct share *share)
{
    const struct windows_walk *walk = share->sweep->count_context;
    const struct item_view *view = &walk->views[share->item];
    const uint64_t columns =
        walk->plan->rules.outputs[share->sweep->items[share->item].index].feature_count;

    for (uint32_t d = 0; d < columns; d++)
        for (uint32_t r = 0; r < view->run_count && has_column(share, d); r++) {
            const struct difference_run *run = &view->runs[r];
            for (int64_t done = 0; done < run->anchor_count; done += BLOCK)
                count_block(share, run, d, run->first_anchor + done,
                            least(BLOCK, run->anchor_count - done));
        }
}

void statistics_differences_count(const struct statistics_sweep *sweep, uint32_t begin,
                                  uint32_t end)
{
    const struct windows_walk *walk = sweep->count_context;

    for (uint32_t i = 0; i < sweep->item_count; i++) {
        const struct statistics_item *item = &sweep->items[i];
        const uint32_t first = item->first_column, last = first + item->column_count;
        const struct share share = {.sweep = sweep,
                                    .item = i,
                                    .begin = (begin > first ? begin : first) - first,
                                    .end = (end < last ? end : last) - first};
        if (walk->views[i].is_difference && item->active && begin < last && end > first)
            count_item(&share);
    }
}
