/* Binds windows by rules, and makes the outputs that have a transform. */
#include "daemon/engine/bind.h"

#include <stdlib.h>

#include "kernels/resample_resolve.h"

#define AHEAD 8 /* windows whose stamps are prefetched */

/* ---- making ---- */

/* Allocates arrays. NULL counts as made: the caller looks at is_made once. */
struct maker {
    struct trajd_binding *batch;
    uint32_t windows; /* G */
    bool is_made;
};

static void *array(struct maker *maker, size_t count, size_t size)
{
    void *memory = trajd_arena_alloc(&maker->batch->arena, count * size);

    maker->is_made = maker->is_made && memory;
    return memory;
}

static void make_grid(struct maker *maker, uint32_t g)
{
    struct trajd_binding *batch = maker->batch;
    const struct trajd_plan_grid *grid = &batch->rules->grids[g];

    if (grid->per_window)
        batch->offsets[g] =
            array(maker, (size_t)maker->windows * grid->step_count, sizeof(int64_t));
    batch->request_grids[g] = (struct trajd_grid){
        .unit = grid->rule == TRAJD_TARGET_ROWS ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
        .step_count = grid->step_count,
        .offsets = grid->per_window ? batch->offsets[g] : grid->offsets,
        .offsets_per_window = grid->per_window ? grid->step_count : 0};
}

static void make_bracket(struct maker *maker, uint32_t b)
{
    const struct trajd_plan_bracket *bracket = &maker->batch->rules->brackets[b];
    struct trajd_binding_bracket *arrays = &maker->batch->brackets[b];

    arrays->row_begin = array(maker, maker->windows, sizeof *arrays->row_begin);
    arrays->row_count = array(maker, maker->windows, sizeof *arrays->row_count);
    arrays->anchor = array(maker, maker->windows, sizeof *arrays->anchor);
    if (bracket->too_old_intervals) {
        arrays->too_old_begin = array(maker, maker->windows, sizeof *arrays->too_old_begin);
        arrays->too_old_end = array(maker, maker->windows, sizeof *arrays->too_old_end);
    }
    maker->batch->request_brackets[b] = (struct trajd_bracket){.clock_index = bracket->clock_index,
                                                               .grid_index = bracket->grid_index,
                                                               .row_begin = arrays->row_begin,
                                                               .row_count = arrays->row_count,
                                                               .anchor = arrays->anchor};
}

/* Allocates the rows of an output that the slot does not have. */
static void make_rows(struct maker *maker, uint32_t o)
{
    const struct trajd_plan_output *output = &maker->batch->rules->outputs[o];
    struct trajd_binding_output *out = &maker->batch->outputs[o];
    const size_t steps = (size_t)maker->windows * output->step_count;

    if (!output->transform && !output->is_hidden)
        return;
    out->rows = calloc(steps, output->row_feature_count * trajd_dtype_size(output->row_dtype));
    out->row_mask = output->is_hidden ? calloc(steps, 1) : NULL;
    maker->is_made = maker->is_made && out->rows && (out->row_mask || !output->is_hidden);
}

static void make_tables(struct maker *maker, bool has_window_rows)
{
    struct trajd_binding *batch = maker->batch;
    const struct trajd_plan_rules *rules = batch->rules;

    batch->windows = array(maker, maker->windows, sizeof *batch->windows);
    batch->anchor_ns = array(maker, maker->windows, sizeof *batch->anchor_ns);
    if (has_window_rows)
        batch->window_rows = array(maker, maker->windows, sizeof *batch->window_rows);
    batch->offsets = array(maker, rules->grid_count, sizeof *batch->offsets);
    batch->goals = array(maker, rules->goal_count, sizeof *batch->goals);
    batch->brackets = array(maker, rules->bracket_count, sizeof *batch->brackets);
    batch->targets = array(maker, rules->target_count, sizeof *batch->targets);
    batch->outputs = array(maker, rules->output_count, sizeof *batch->outputs);
    batch->request_grids = array(maker, rules->grid_count, sizeof *batch->request_grids);
    batch->request_brackets = array(maker, rules->bracket_count, sizeof *batch->request_brackets);
    batch->request_streams = array(maker, rules->target_count, sizeof *batch->request_streams);
}

static void make_members(struct maker *maker)
{
    struct trajd_binding *batch = maker->batch;
    const struct trajd_plan_rules *rules = batch->rules;

    for (uint32_t g = 0; g < rules->grid_count && maker->is_made; g++)
        make_grid(maker, g);
    for (uint32_t g = 0; g < rules->goal_count && maker->is_made; g++) {
        batch->goals[g].anchor = array(maker, maker->windows, sizeof(int64_t));
        batch->goals[g].anchor_ns = array(maker, maker->windows, sizeof(int64_t));
    }
    for (uint32_t b = 0; b < rules->bracket_count && maker->is_made; b++)
        make_bracket(maker, b);
    for (uint32_t t = 0; t < rules->target_count && maker->is_made; t++) {
        batch->targets[t].bases = array(maker, maker->windows, sizeof(void *));
        batch->request_streams[t] = rules->targets[t].stream;
        batch->request_streams[t].bases = batch->targets[t].bases;
    }
    for (uint32_t o = 0; o < rules->output_count && maker->is_made; o++)
        make_rows(maker, o);
}

enum trajd_status trajd_binding_create(const struct trajd_binding_options *options,
                                       struct trajd_binding **out)
{
    const struct trajd_plan_rules *rules = options->rules;
    struct trajd_binding *batch = *out = calloc(1, sizeof *batch);
    struct maker maker = {batch, options->window_limit, true};

    if (!batch)
        return TRAJD_ERR_MEMORY;
    batch->rules = rules;
    batch->views = options->views;
    batch->arena.limit_bytes = SIZE_MAX;
    make_tables(&maker, options->has_window_rows);
    if (maker.is_made)
        make_members(&maker);
    if (!maker.is_made) {
        trajd_binding_destroy(out);
        return TRAJD_ERR_MEMORY;
    }
    batch->request = (struct trajd_resample_request){.clock_count = rules->clock_count,
                                                     .grid_count = rules->grid_count,
                                                     .bracket_count = rules->bracket_count,
                                                     .stream_count = rules->row_target_count,
                                                     .clocks = options->clocks,
                                                     .grids = batch->request_grids,
                                                     .brackets = batch->request_brackets,
                                                     .streams = batch->request_streams,
                                                     .window_rows = batch->window_rows,
                                                     .output_row_count = options->window_limit};
    return TRAJD_OK;
}

static void free_rows(struct trajd_binding_output *output)
{
    if (output->is_lent)
        return;
    free(output->rows);
    free(output->row_mask);
}

void trajd_binding_lend_rows(struct trajd_binding *batch, uint32_t o, uint8_t *rows,
                             uint8_t *row_mask)
{
    free_rows(&batch->outputs[o]);
    batch->outputs[o].rows = rows;
    batch->outputs[o].row_mask = row_mask;
    batch->outputs[o].is_lent = true;
}

void trajd_binding_destroy(struct trajd_binding **out)
{
    struct trajd_binding *batch = *out;

    *out = NULL;
    if (!batch)
        return;
    for (uint32_t o = 0; batch->outputs && o < batch->rules->output_count; o++)
        free_rows(&batch->outputs[o]);
    trajd_arena_free(&batch->arena);
    free(batch);
}

/* ---- binding ---- */

int64_t trajd_binding_anchor(const struct trajd_binding *batch, const struct trajd_plan_grid *grid,
                             uint32_t w)
{
    return grid->goal ? batch->goals[grid->goal - 1].anchor[w] : batch->windows[w].anchor;
}

int64_t trajd_binding_anchor_ns(const struct trajd_binding *batch,
                                const struct trajd_plan_grid *grid, uint32_t w)
{
    return grid->goal ? batch->goals[grid->goal - 1].anchor_ns[w] : batch->anchor_ns[w];
}

static const struct trajd_view *view_of(const struct trajd_binding *batch, uint32_t w)
{
    return &batch->views[batch->windows[w].episode_index];
}

/* Writes the offsets of window w from its anchor, on a grid where they differ between windows. */
static void place_window(const struct trajd_binding *batch, const struct trajd_plan_grid *grid,
                         uint32_t w, int64_t *offsets)
{
    const struct trajd_plan_rules *rules = batch->rules;
    const int64_t j = trajd_binding_anchor(batch, grid, w),
                  anchor_ns = trajd_binding_anchor_ns(batch, grid, w);

    if (grid->rate.num && rules->anchor_rate.num) {
        uint64_t denominator;
        const uint64_t numerator = trajd_rules_anchor_fraction(rules, grid, j, &denominator);
        for (uint32_t t = 0; t < grid->step_count; t++)
            offsets[t] = grid->step_ns[t] + (numerator + grid->step_fraction[t] >= denominator);
        return;
    }
    for (uint32_t t = 0; t < grid->step_count; t++)
        offsets[t] =
            trajd_rules_anchor_ns(rules, view_of(batch, w)->clocks, j + grid->from + t) - anchor_ns;
}

void trajd_bind_steps(struct trajd_binding *batch, uint32_t first, uint32_t count)
{
    for (uint32_t g = 0; g < batch->rules->grid_count; g++) {
        const struct trajd_plan_grid *grid = &batch->rules->grids[g];
        for (uint32_t w = 0; w < count && grid->per_window; w++)
            place_window(batch, grid, first + w, batch->offsets[g] + (size_t)w * grid->step_count);
    }
}

/* Searches the visible rows of windows at arbitrary places. Prefetches the stamps of later searches
 * meanwhile. */
static void search_rows(const struct trajd_binding *batch, uint32_t b, uint32_t first,
                        uint32_t count)
{
    const struct trajd_plan_bracket *bracket = &batch->rules->brackets[b];
    const struct trajd_plan_grid *grid = &batch->rules->grids[bracket->grid_index];
    const int64_t *anchor_ns =
        grid->goal ? batch->goals[grid->goal - 1].anchor_ns : batch->anchor_ns;
    int64_t *rows = batch->brackets[b].row_count;

    for (uint32_t w = 0; w < count + AHEAD; w++) {
        if (w < count)
            trajd_clock_fetch_rows_until(&view_of(batch, first + w)->clocks[bracket->clock_index],
                                         rows[w], anchor_ns[first + w] + bracket->lookahead_ns);
        if (w >= AHEAD) {
            const uint32_t v = w - AHEAD;
            rows[v] =
                trajd_clock_rows_until(&view_of(batch, first + v)->clocks[bracket->clock_index],
                                       rows[v], anchor_ns[first + v] + bracket->lookahead_ns);
        }
    }
}

static void see_bracket(const struct trajd_binding *batch, uint32_t b, uint32_t first,
                        uint32_t count)
{
    const struct trajd_plan_bracket *bracket = &batch->rules->brackets[b];
    const struct trajd_binding_bracket arrays = batch->brackets[b];
    const struct trajd_plan_grid *grid = &batch->rules->grids[bracket->grid_index];
    const bool in_rows = grid->rule == TRAJD_TARGET_ROWS;

    for (uint32_t w = 0; w < count; w++) {
        const struct trajd_view *view = view_of(batch, first + w);
        const struct trajd_episode_clock *clock = &view->clocks[bracket->clock_index];
        const int64_t anchor = trajd_binding_anchor(batch, grid, first + w) - clock->first_anchor,
                      anchor_ns = trajd_binding_anchor_ns(batch, grid, first + w);
        int64_t rows = view->row_counts ? view->row_counts[b] : -1;
        if (rows < 0)
            rows = clock->row_count;
        if (bracket->clipped && !bracket->is_searched && anchor < rows) /* stamps ascend */
            rows = anchor + 1;
        if (bracket->in_chunk && anchor + grid->from + grid->step_count < rows)
            rows = anchor + grid->from + grid->step_count;
        if (rows < 0) /* the chunk ends before the episode begins */
            rows = 0;
        arrays.row_begin[w] = view->row_begin ? view->row_begin[bracket->clock_index] : 0;
        arrays.row_count[w] = rows;
        arrays.anchor[w] = in_rows ? anchor : anchor_ns - (clock->stamps_ns ? 0 : clock->start_ns);
    }
    if (bracket->is_searched)
        search_rows(batch, b, first, count);
}

/* Returns how many steps of window w lie at or before x. Steps ascend. */
static uint32_t steps_until(const struct trajd_binding *batch, uint32_t b, uint32_t w,
                            int64_t anchor_ns, int64_t x_ns)
{
    const struct trajd_grid *grid = &batch->request_grids[batch->rules->brackets[b].grid_index];
    const int64_t *offsets = grid->offsets + w * grid->offsets_per_window;
    uint32_t low = 0, high = grid->step_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (anchor_ns + offsets[middle] <= x_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Finds the steps of windows that are in the episode, but later than the rows of the bracket's
 * clock count. The episode ends with the last row of the anchors' clock. */
static void find_too_old(const struct trajd_binding *batch, uint32_t b, uint32_t first,
                         uint32_t count)
{
    const struct trajd_plan_rules *rules = batch->rules;
    const struct trajd_plan_bracket *bracket = &rules->brackets[b];
    const struct trajd_binding_bracket *arrays = &batch->brackets[b];
    const struct trajd_plan_grid *grid = &rules->grids[bracket->grid_index];
    bool any = false;

    for (uint32_t w = 0; w < count; w++) {
        const struct trajd_view *view = view_of(batch, first + w);
        const struct trajd_episode_clock *clocks = view->clocks,
                                         *anchors = &clocks[rules->anchor_clock];
        arrays->too_old_begin[w] = arrays->too_old_end[w] = 0;
        if (!view->ends_early)
            continue;
        const int64_t too_old_ns = trajd_clock_too_old_ns(&clocks[bracket->clock_index],
                                                          bracket->too_old_intervals),
                      end_ns = trajd_clock_row_ns(anchors, anchors->row_count - 1),
                      anchor_ns = trajd_binding_anchor_ns(batch, grid, first + w);
        if (too_old_ns >= end_ns)
            continue;
        arrays->too_old_begin[w] = steps_until(batch, b, w, anchor_ns, too_old_ns);
        arrays->too_old_end[w] = steps_until(batch, b, w, anchor_ns, end_ns);
        any = any || arrays->too_old_begin[w] < arrays->too_old_end[w];
    }
    batch->request_brackets[b].too_old_begin = any ? arrays->too_old_begin : NULL;
    batch->request_brackets[b].too_old_end = any ? arrays->too_old_end : NULL;
}

void trajd_bind_rows(struct trajd_binding *batch, uint32_t first, uint32_t count, uint8_t *slot)
{
    const struct trajd_plan_rules *rules = batch->rules;
    const uint32_t first_row = batch->window_rows ? 0 : first;
    uint64_t column_bytes = 0;

    for (uint32_t b = 0; b < rules->bracket_count; b++) {
        see_bracket(batch, b, first, count);
        if (batch->brackets[b].too_old_begin)
            find_too_old(batch, b, first, count);
    }
    for (uint32_t t = 0; t < rules->target_count; t++) {
        const uint32_t o = rules->targets[t].output_index;
        const struct trajd_binding_output *out = &batch->outputs[o];
        struct trajd_stream *stream = &batch->request_streams[t];

        column_bytes =
            stream->mask_joins_previous
                ? column_bytes + batch->request_streams[t - 1].feature_count *
                                     (uint64_t)trajd_dtype_size(rules->outputs[o].row_dtype)
                : 0;
        stream->output = (out->rows ? out->rows : slot + out->offset_bytes) + column_bytes +
                         first_row * stream->window_stride_bytes;
        stream->mask = (out->row_mask ? out->row_mask : slot + out->mask_offset_bytes) +
                       first_row * stream->mask_window_stride_bytes;
    }
    batch->slot = slot;
    batch->request.window_count = count;
    batch->request.window_rows = batch->window_rows ? batch->window_rows + first : NULL;
}

static void bind_bases(const struct trajd_binding *batch, uint32_t w, const struct trajd_view *view,
                       const void *const *rows)
{
    const struct trajd_plan_rules *rules = batch->rules;

    for (uint32_t t = 0; t < rules->row_target_count; t++)
        batch->targets[t].bases[w] = rows && rules->targets[t].entry != TRAJD_PLAN_ABSENT
                                         ? rows[rules->targets[t].entry]
                                         : NULL;
    for (uint32_t p = 0; p < rules->image_count; p++)
        batch->targets[rules->row_target_count + p].bases[w] =
            rows && view->has_frames && view->has_frames[p] ? view : NULL;
}

void trajd_bind_windows(struct trajd_binding *batch, uint32_t first, uint32_t count, uint8_t *slot,
                        trajd_episode_rows rows, void *context)
{
    trajd_bind_steps(batch, first, count);
    for (uint32_t w = 0; w < count; w++)
        bind_bases(batch, w, view_of(batch, first + w),
                   rows(context, batch->windows[first + w].episode_index));
    trajd_bind_rows(batch, first, count, slot);
}

/* ---- transforms ---- */

bool trajd_rules_find_blend(const struct trajd_plan_rules *rules, uint32_t o, uint32_t p,
                            bool of_state, struct trajd_binding_blend *blend)
{
    const struct trajd_plan_output *out = &rules->outputs[o];
    const struct trajd_transform_part *part = &out->transform->parts[p];
    const uint32_t output_index = of_state ? out->reference_output : o;
    uint32_t column = of_state ? part->reference_first : part->first, t;
    enum trajd_kind kind;

    if (part->kind != TRAJD_PART_ROTATION || (of_state && !part->is_relative))
        return false;
    t = trajd_rules_first_target(rules, output_index);
    for (; column >= rules->targets[t].stream.feature_count; t++)
        column -= rules->targets[t].stream.feature_count;
    kind = rules->targets[t].stream.kind;
    *blend = (struct trajd_binding_blend){t, column, of_state ? part->reference_form : part->from};
    return kind == TRAJD_KIND_LINEAR || kind == TRAJD_KIND_ANGLE; /* slerp knows quaternions */
}

static void blend_rotations(const struct trajd_binding *batch, uint32_t o, uint32_t begin,
                            uint32_t end)
{
    const struct trajd_plan_output *out = &batch->rules->outputs[o];
    struct trajd_binding_blend blend;

    for (uint32_t p = 0; p < out->transform->part_count; p++)
        for (int of_state = 0; of_state < 2; of_state++)
            if (trajd_rules_find_blend(batch->rules, o, p, of_state, &blend))
                trajd_transform_blend(&batch->request, blend.target_index, blend.column, blend.form,
                                      begin, end);
}

void trajd_binding_job(const struct trajd_binding *batch, uint32_t first, uint32_t o,
                       struct trajd_transform_job *job)
{
    const struct trajd_plan_output *out = &batch->rules->outputs[o],
                                   *state = &batch->rules->outputs[out->reference_output];
    const struct trajd_binding_output *place = &batch->outputs[o],
                                      *reference = &batch->outputs[out->reference_output];
    const bool is_relative = out->transform->reference_count > 0;
    const uint64_t row = batch->request.window_rows ? 0 : first;
    const uint64_t row_bytes = out->row_feature_count * trajd_dtype_size(out->row_dtype),
                   state_bytes = state->row_feature_count * trajd_dtype_size(state->row_dtype);

    *job = (struct trajd_transform_job){
        .transform = out->transform,
        .step_count = out->step_count,
        .window_rows = batch->request.window_rows,
        .source_type = out->row_dtype,
        .reference_type = state->row_dtype,
        .output_type = out->dtype,
        .source = place->rows + row * out->step_count * row_bytes,
        .reference = is_relative ? reference->rows + row * state_bytes : NULL,
        .reference_mask = is_relative ? reference->row_mask + row : NULL,
        .mask = batch->slot + place->mask_offset_bytes + row * out->step_count,
        .edge = batch->rules->edge,
        .output = batch->slot + place->offset_bytes +
                  row * out->step_count * out->feature_count * trajd_dtype_size(out->dtype),
        .scale = out->scale,
        .offset = out->offset,
        .norm_per_step = out->norm_step_count > 1};
}

/* ---- missing streams ---- */

/* Returns whether window w has rows of some of the targets [first, end), and not of all. */
static bool lacks_some(const struct trajd_binding *batch, uint32_t first, uint32_t end, uint32_t w)
{
    uint32_t count = 0;

    for (uint32_t t = first; t < end; t++)
        count += !batch->targets[t].bases[w];
    return count > 0 && count < end - first;
}

/* Returns the mask code of a step for the stream of one target. */
static uint8_t code_of(const struct trajd_binding *batch, uint32_t t, uint32_t w, uint32_t step)
{
    struct trajd_resample_step found;

    trajd_resample_resolve(&batch->request, t, w, step, &found);
    return found.mask < TRAJD_MASK_NAN &&
                   trajd_resample_find_nan(&batch->request, t, w, &found) >= 0
               ? TRAJD_MASK_NAN
               : (uint8_t)found.mask;
}

/* Masks the steps of window w by those streams of an output that the episode has: the kernels mask
 * them MISSING, as they join the masks of all streams. */
static void mask_by_others(const struct trajd_binding *batch, uint32_t first, uint32_t end,
                           uint32_t w)
{
    const struct trajd_stream *stream = &batch->request_streams[first];
    uint8_t *mask =
        stream->mask + trajd_window_row(&batch->request, w) * stream->mask_window_stride_bytes;
    const uint32_t steps = trajd_rules_grid(batch->rules, first)->step_count;

    for (uint32_t s = 0; s < steps; s++) {
        uint8_t code = TRAJD_MASK_VALID;
        if (mask[s] != TRAJD_MASK_MISSING)
            continue;
        for (uint32_t t = first; t < end; t++) {
            const uint8_t own = batch->targets[t].bases[w] ? code_of(batch, t, w, s) : code;
            code = own > code ? own : code;
        }
        mask[s] = code;
    }
}

static void mask_filled(const struct trajd_binding *batch, uint32_t o, uint32_t begin, uint32_t end)
{
    const uint32_t first = trajd_rules_first_target(batch->rules, o),
                   last = trajd_rules_end_target(batch->rules, first);

    if (!batch->rules->targets[first].is_filled)
        return;
    for (uint32_t w = begin; w < end; w++)
        if (lacks_some(batch, first, last, w))
            mask_by_others(batch, first, last, w);
}

void trajd_binding_finish(const struct trajd_binding *batch, uint32_t first, uint32_t begin,
                          uint32_t end, const bool *wanted)
{
    struct trajd_transform_job job;

    for (uint32_t o = 0; o < batch->rules->visible_count; o++)
        if (!wanted || wanted[o])
            mask_filled(batch, o, begin, end);

    for (uint32_t o = 0; o < batch->rules->visible_count; o++)
        if (batch->rules->outputs[o].transform && (!wanted || wanted[o])) {
            blend_rotations(batch, o, begin, end);
            trajd_binding_job(batch, first, o, &job);
            trajd_transform_windows(&job, begin, end);
        }
}
