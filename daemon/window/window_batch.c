#include "daemon/window/window_batch.h"

#include <stdlib.h>

#include "daemon/window/window_plan_internal.h"

#define AHEAD 8 /* windows whose stamps are prefetched */

/* ---- making ---- */

static bool allocate_tables(struct trajd_window_batch *batch)
{
    const struct trajd_window_plan *plan = batch->plan;
    const size_t windows = plan->spec->global_batch;

    batch->windows = calloc(windows, sizeof *batch->windows);
    batch->anchor_ns = calloc(windows, sizeof *batch->anchor_ns);
    batch->window_rows = plan->is_member ? calloc(windows, sizeof *batch->window_rows) : NULL;
    batch->offsets = calloc(plan->grid_count, sizeof *batch->offsets);
    batch->goals = calloc(plan->goal_count + 1, sizeof *batch->goals);
    batch->brackets = calloc(plan->bracket_count, sizeof *batch->brackets);
    batch->targets = calloc(plan->target_count, sizeof *batch->targets);
    batch->outputs = calloc(plan->output_count, sizeof *batch->outputs);
    batch->request_grids = calloc(plan->grid_count, sizeof *batch->request_grids);
    batch->request_brackets = calloc(plan->bracket_count, sizeof *batch->request_brackets);
    batch->request_streams = calloc(plan->target_count, sizeof *batch->request_streams);
    return batch->windows && batch->anchor_ns && (batch->window_rows || !plan->is_member) &&
           batch->offsets && batch->goals && batch->brackets && batch->targets && batch->outputs &&
           batch->request_grids && batch->request_brackets && batch->request_streams;
}

static bool make_grid(struct trajd_window_batch *batch, uint32_t g)
{
    const struct trajd_plan_grid *grid = &batch->plan->grids[g];
    const uint64_t offsets = (uint64_t)grid->step_count * batch->plan->spec->global_batch;

    if (grid->per_window && !(batch->offsets[g] = calloc(offsets, sizeof *batch->offsets[g])))
        return false;
    batch->request_grids[g] = (struct trajd_grid){
        .unit = grid->rule == TRAJD_TARGET_ROWS ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
        .step_count = grid->step_count,
        .offsets = grid->per_window ? batch->offsets[g] : grid->offsets,
        .offsets_per_window = grid->per_window ? grid->step_count : 0};
    return true;
}

static bool make_goal(struct trajd_window_batch *batch, uint32_t g)
{
    const size_t windows = batch->plan->spec->global_batch;

    batch->goals[g].anchor = calloc(windows, sizeof *batch->goals[g].anchor);
    batch->goals[g].anchor_ns = calloc(windows, sizeof *batch->goals[g].anchor_ns);
    return batch->goals[g].anchor && batch->goals[g].anchor_ns;
}

static bool make_bracket(struct trajd_window_batch *batch, uint32_t b)
{
    const struct trajd_plan_bracket *bracket = &batch->plan->brackets[b];
    const size_t windows = batch->plan->spec->global_batch;
    struct trajd_batch_bracket *arrays = &batch->brackets[b];

    arrays->row_begin = calloc(windows, sizeof *arrays->row_begin);
    arrays->row_count = calloc(windows, sizeof *arrays->row_count);
    arrays->anchor = calloc(windows, sizeof *arrays->anchor);
    batch->request_brackets[b] = (struct trajd_bracket){.clock_index = bracket->clock_index,
                                                        .grid_index = bracket->grid_index,
                                                        .row_begin = arrays->row_begin,
                                                        .row_count = arrays->row_count,
                                                        .anchor = arrays->anchor};
    return arrays->row_begin && arrays->row_count && arrays->anchor;
}

static bool make_target(struct trajd_window_batch *batch, uint32_t t)
{
    struct trajd_batch_target *target = &batch->targets[t];

    target->bases = calloc(batch->plan->spec->global_batch, sizeof *target->bases);
    batch->request_streams[t] = batch->plan->streams[t];
    batch->request_streams[t].bases = target->bases;
    return target->bases;
}

/* Allocates the rows of an output that the slot does not have. */
static bool make_rows(struct trajd_window_batch *batch, uint32_t o)
{
    const struct trajd_plan_output *output = &batch->plan->outputs[o];
    const size_t steps = (size_t)batch->plan->spec->global_batch * output->step_count;

    if (!trajd_plan_has_rows(batch->plan, o))
        return true;
    batch->outputs[o].rows =
        calloc(steps, output->row_feature_count * trajd_dtype_size(output->row_dtype));
    batch->outputs[o].row_mask = output->is_hidden ? calloc(steps, 1) : NULL;
    return batch->outputs[o].rows && (batch->outputs[o].row_mask || !output->is_hidden);
}

enum trajd_status trajd_window_batch_create(const struct trajd_window_plan *plan,
                                            struct trajd_window_batch **out,
                                            struct trajd_error *error)
{
    struct trajd_window_batch *batch = calloc(1, sizeof *batch);
    bool made = false;

    if (batch) {
        batch->plan = plan;
        made = allocate_tables(batch);
        for (uint32_t g = 0; g < plan->grid_count && made; g++)
            made = make_grid(batch, g);
        for (uint32_t g = 0; g < plan->goal_count && made; g++)
            made = make_goal(batch, g);
        for (uint32_t b = 0; b < plan->bracket_count && made; b++)
            made = make_bracket(batch, b);
        for (uint32_t t = 0; t < plan->target_count && made; t++)
            made = make_target(batch, t);
        for (uint32_t o = 0; o < plan->output_count && made; o++)
            made = make_rows(batch, o);
        batch->request =
            (struct trajd_resample_request){.clock_count = plan->dataset->index->clock_count,
                                            .grid_count = plan->grid_count,
                                            .bracket_count = plan->bracket_count,
                                            .stream_count = plan->row_target_count,
                                            .clocks = plan->clocks,
                                            .grids = batch->request_grids,
                                            .brackets = batch->request_brackets,
                                            .streams = batch->request_streams,
                                            .window_rows = batch->window_rows,
                                            .output_row_count = plan->spec->global_batch};
    }
    if (!made)
        trajd_window_batch_destroy(&batch);
    *out = batch;
    return made ? TRAJD_OK
                : trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                  "feed %s: no memory for batches of %u windows",
                                  plan->spec->feed_name, plan->spec->global_batch);
}

static void free_rows(struct trajd_batch_output *output)
{
    if (output->is_lent)
        return;
    free(output->rows);
    free(output->row_mask);
}

void trajd_window_batch_lend_rows(struct trajd_window_batch *batch, uint32_t o, uint8_t *rows,
                                  uint8_t *row_mask)
{
    free_rows(&batch->outputs[o]);
    batch->outputs[o].rows = rows;
    batch->outputs[o].row_mask = row_mask;
    batch->outputs[o].is_lent = true;
}

void trajd_window_batch_destroy(struct trajd_window_batch **out)
{
    struct trajd_window_batch *batch = *out;

    *out = NULL;
    if (!batch)
        return;
    for (uint32_t g = 0; batch->offsets && g < batch->plan->grid_count; g++)
        free(batch->offsets[g]);
    for (uint32_t g = 0; batch->goals && g < batch->plan->goal_count; g++) {
        free(batch->goals[g].anchor);
        free(batch->goals[g].anchor_ns);
    }
    for (uint32_t b = 0; batch->brackets && b < batch->plan->bracket_count; b++) {
        free(batch->brackets[b].row_begin);
        free(batch->brackets[b].row_count);
        free(batch->brackets[b].anchor);
    }
    for (uint32_t t = 0; batch->targets && t < batch->plan->target_count; t++)
        free(batch->targets[t].bases);
    for (uint32_t o = 0; batch->outputs && o < batch->plan->output_count; o++)
        free_rows(&batch->outputs[o]);
    free(batch->windows);
    free(batch->anchor_ns);
    free(batch->window_rows);
    free(batch->offsets);
    free(batch->goals);
    free(batch->brackets);
    free(batch->targets);
    free(batch->outputs);
    free(batch->request_grids);
    free(batch->request_brackets);
    free(batch->request_streams);
    free(batch);
}

/* ---- looking up ---- */

static int64_t anchor_of(const struct trajd_window_plan *plan, const struct trajd_window *window)
{
    return trajd_plan_anchor_ns(plan, &plan->dataset->index->episodes[window->episode_index],
                                window->anchor);
}

void trajd_window_batch_look_up(struct trajd_window_batch *batch, uint64_t epoch, uint64_t position,
                                uint32_t row_count)
{
    const struct trajd_window_plan *plan = batch->plan;
    const struct trajd_window *windows = batch->windows;
    int64_t *anchor_ns = batch->anchor_ns;

    trajd_sampler_run(plan->sampler, epoch, position, row_count, batch->windows);
    batch->window_count = row_count;
    for (uint32_t w = 0; w < row_count; w++)
        anchor_ns[w] = anchor_of(plan, &windows[w]);
}

void trajd_window_batch_clear(struct trajd_window_batch *batch)
{
    batch->window_count = 0;
}

void trajd_window_batch_add(struct trajd_window_batch *batch, const struct trajd_window *window,
                            uint32_t row)
{
    const uint32_t w = batch->window_count++;

    batch->windows[w] = *window;
    batch->anchor_ns[w] = anchor_of(batch->plan, window);
    batch->window_rows[w] = row;
}

/* ---- binding ---- */

static void draw_goals(const struct trajd_window_batch *batch, uint32_t g, uint32_t first,
                       uint32_t count)
{
    const struct trajd_window_plan *plan = batch->plan;

    for (uint32_t w = first; w < first + count; w++) {
        const struct trajd_window *window = &batch->windows[w];
        const struct trajd_goal_key key = {.fingerprint = plan->fingerprint,
                                           .seed = plan->spec->seed,
                                           .pass = window->pass,
                                           .episode_index = window->episode_index,
                                           .anchor = window->anchor};
        const int64_t anchor =
            trajd_goal_draw(&plan->goals[g], &key, plan->anchor_ends[window->episode_index] - 1);
        batch->goals[g].anchor[w] = anchor;
        batch->goals[g].anchor_ns[w] = trajd_plan_anchor_ns(
            plan, &plan->dataset->index->episodes[window->episode_index], anchor);
    }
}

int64_t trajd_window_batch_anchor(const struct trajd_window_batch *batch,
                                  const struct trajd_plan_grid *grid, uint32_t w)
{
    return grid->goal ? batch->goals[grid->goal - 1].anchor[w] : batch->windows[w].anchor;
}

int64_t trajd_window_batch_anchor_ns(const struct trajd_window_batch *batch,
                                     const struct trajd_plan_grid *grid, uint32_t w)
{
    return grid->goal ? batch->goals[grid->goal - 1].anchor_ns[w] : batch->anchor_ns[w];
}

/* Writes the offsets of one window from its anchor, on a grid where they differ between windows. */
static void bind_offsets(const struct trajd_window_plan *plan, const struct trajd_plan_grid *grid,
                         const struct trajd_episode *episode, int64_t j, int64_t anchor_ns,
                         int64_t *offsets)
{
    if (grid->rate.num && plan->anchor_rate.num) {
        uint64_t denominator;
        const uint64_t numerator = trajd_plan_anchor_fraction(plan, grid, j, &denominator);
        for (uint32_t t = 0; t < grid->step_count; t++)
            offsets[t] = grid->step_ns[t] + (numerator + grid->step_fraction[t] >= denominator);
        return;
    }
    for (uint32_t t = 0; t < grid->step_count; t++)
        offsets[t] = trajd_plan_anchor_ns(plan, episode, j + grid->from + t) - anchor_ns;
}

/* Returns whether the rows that an observation sees must be searched. Otherwise its clock's stamps
 * end at the anchor. */
static bool is_searched(const struct trajd_window_plan *plan,
                        const struct trajd_plan_bracket *bracket)
{
    const bool is_its_own = bracket->clock_index == plan->anchor_clock &&
                            !plan->dataset->index->clocks[bracket->clock_index].regular;

    return bracket->lookahead_ns ||
           !(is_its_own || plan->grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS);
}

/* Searches the visible rows of windows at arbitrary places. Prefetches the stamps of later searches
 * meanwhile. */
static void search_rows(const struct trajd_window_batch *batch, uint32_t b, uint32_t first,
                        uint32_t count)
{
    const struct trajd_plan_bracket *bracket = &batch->plan->brackets[b];
    const struct trajd_episode *episodes = batch->plan->dataset->index->episodes;
    const struct trajd_plan_grid *grid = &batch->plan->grids[bracket->grid_index];
    const int64_t *anchor_ns =
        grid->goal ? batch->goals[grid->goal - 1].anchor_ns : batch->anchor_ns;
    int64_t *rows = batch->brackets[b].row_count;

    for (uint32_t w = 0; w < count + AHEAD; w++) {
        if (w < count) {
            const struct trajd_episode_clock *clock =
                &episodes[batch->windows[first + w].episode_index].clocks[bracket->clock_index];
            trajd_clock_fetch_rows_until(clock, rows[w],
                                         anchor_ns[first + w] + bracket->lookahead_ns);
        }
        if (w >= AHEAD) {
            const uint32_t v = w - AHEAD;
            const struct trajd_episode_clock *clock =
                &episodes[batch->windows[first + v].episode_index].clocks[bracket->clock_index];
            rows[v] = trajd_clock_rows_until(clock, rows[v],
                                             anchor_ns[first + v] + bracket->lookahead_ns);
        }
    }
}

static void bind_bracket(const struct trajd_window_batch *batch, uint32_t b, uint32_t first,
                         uint32_t count)
{
    const struct trajd_window_plan *plan = batch->plan;
    const struct trajd_plan_bracket *bracket = &plan->brackets[b];
    const struct trajd_batch_bracket arrays = batch->brackets[b];
    const struct trajd_window *windows = batch->windows + first;
    const struct trajd_plan_grid *grid = &plan->grids[bracket->grid_index];
    const struct trajd_episode *episodes = plan->dataset->index->episodes;
    const int64_t *row_begin = plan->dataset->clock_row_begin[bracket->clock_index];
    const bool in_rows = grid->rule == TRAJD_TARGET_ROWS, searched = is_searched(plan, bracket);

    for (uint32_t w = 0; w < count; w++) {
        const struct trajd_window *window = &windows[w];
        const struct trajd_episode *episode = &episodes[window->episode_index];
        const struct trajd_episode_clock *clock = &episode->clocks[bracket->clock_index];
        const int64_t anchor = trajd_window_batch_anchor(batch, grid, first + w),
                      anchor_ns = trajd_window_batch_anchor_ns(batch, grid, first + w);
        int64_t rows = bracket->array_index < 0 ? clock->row_count
                                                : trajd_plan_row_count(plan, bracket, episode);
        if (bracket->clipped && !searched && anchor < rows) /* stamps ascend */
            rows = anchor + 1;
        if (bracket->in_chunk && anchor + grid->from + grid->step_count < rows)
            rows = anchor + grid->from + grid->step_count;
        if (rows < 0) /* the chunk ends before the episode begins */
            rows = 0;
        arrays.row_begin[w] = row_begin ? row_begin[window->episode_index] : 0;
        arrays.row_count[w] = rows;
        arrays.anchor[w] = in_rows ? anchor : anchor_ns - (clock->stamps_ns ? 0 : clock->start_ns);
    }
    if (bracket->clipped && searched)
        search_rows(batch, b, first, count);
}

static void bind_grid(const struct trajd_window_batch *batch, uint32_t g, uint32_t first,
                      uint32_t count)
{
    const struct trajd_window_plan *plan = batch->plan;
    const struct trajd_plan_grid *grid = &plan->grids[g];

    for (uint32_t w = 0; w < count; w++) {
        const struct trajd_window *window = &batch->windows[first + w];
        bind_offsets(plan, grid, &plan->dataset->index->episodes[window->episode_index],
                     trajd_window_batch_anchor(batch, grid, first + w),
                     trajd_window_batch_anchor_ns(batch, grid, first + w),
                     batch->offsets[g] + (size_t)w * grid->step_count);
    }
}

/* Binds the targets of one window. For pictures, which the kernels do not read, any address says
 * that the episode has the stream. */
static void bind_bases(const struct trajd_window_batch *batch, uint32_t w, uint32_t episode_index,
                       const void *const *rows)
{
    const struct trajd_window_plan *plan = batch->plan;
    const struct trajd_index *index = plan->dataset->index;
    const struct trajd_array *extents = index->episodes[episode_index].extents;

    for (uint32_t t = plan->row_target_count; t < plan->target_count; t++) {
        const uint32_t stream = plan->targets[t].stream_index;
        const struct trajd_array *array =
            stream == TRAJD_PLAN_ABSENT ? NULL : &extents[index->streams[stream].array_index];
        batch->targets[t].bases[w] =
            rows && array && array->storage != TRAJD_STORAGE_ABSENT ? array : NULL;
    }
    for (uint32_t t = 0; t < plan->row_target_count; t++)
        batch->targets[t].bases[w] = rows && plan->targets[t].entry != TRAJD_PLAN_ABSENT
                                         ? rows[plan->targets[t].entry]
                                         : NULL;
}

void trajd_window_batch_bind(struct trajd_window_batch *batch, uint32_t first, uint32_t count,
                             uint8_t *slot, trajd_episode_rows rows, void *context)
{
    const struct trajd_window_plan *plan = batch->plan;
    const uint32_t first_row = batch->window_rows ? 0 : first;
    uint64_t column_bytes = 0;

    for (uint32_t g = 0; g < plan->goal_count; g++)
        draw_goals(batch, g, first, count);
    for (uint32_t g = 0; g < plan->grid_count; g++)
        if (plan->grids[g].per_window)
            bind_grid(batch, g, first, count);
    for (uint32_t b = 0; b < plan->bracket_count; b++)
        bind_bracket(batch, b, first, count);
    for (uint32_t w = 0; w < count; w++)
        bind_bases(batch, w, batch->windows[first + w].episode_index,
                   rows(context, batch->windows[first + w].episode_index));
    for (uint32_t t = 0; t < plan->target_count; t++) {
        const uint32_t o = plan->targets[t].output_index;
        const struct trajd_batch_output *out = &batch->outputs[o];
        struct trajd_stream *stream = &batch->request_streams[t];

        column_bytes =
            stream->mask_joins_previous
                ? column_bytes + batch->request_streams[t - 1].feature_count *
                                     (uint64_t)trajd_dtype_size(plan->outputs[o].row_dtype)
                : 0;
        stream->output = (out->rows ? out->rows : slot + out->offset_bytes) + column_bytes +
                         first_row * stream->window_stride_bytes;
        stream->mask = (out->row_mask ? out->row_mask : slot + out->mask_offset_bytes) +
                       first_row * stream->mask_window_stride_bytes;
    }
    batch->request.window_count = count;
    batch->request.window_rows = batch->window_rows ? batch->window_rows + first : NULL;
}
