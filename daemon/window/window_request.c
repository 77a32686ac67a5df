/* From windows to what the kernels are asked: the request's constant part once, its per-window
 * arrays batch by batch. */
#include "daemon/window/window_plan.h"

#include <math.h>
#include <stdlib.h>

#define AHEAD 8 /* windows whose stamps are on their way */

static int64_t mean_width(const struct trajd_spec_output *output,
                          const struct trajd_plan_grid *grid)
{
    if (grid->rule == TRAJD_TARGET_ROWS)
        return 1;
    return output->mean_width_ns ? output->mean_width_ns
           : grid->rate.num      ? trajd_rate_row_ns(grid->rate, 1)
                                 : 0;
}

/* Rows are picked where every target is a row, or the kind takes one: the value is then the
 * source's, rounded once, whether that happens here or when the rows are loaded. */
static bool picks_rows(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[target->output_index];
    const struct trajd_index_stream *source = trajd_plan_stream(plan, target);
    const enum trajd_kind kind = trajd_plan_kind(plan, target);

    return source->dtype == TRAJD_F64 && plan->outputs[target->output_index].dtype == TRAJD_F32 &&
           !output->norm_by && !output->has_range &&
           (plan->grids[plan->brackets[target->bracket_index].grid_index].rule ==
                TRAJD_TARGET_ROWS ||
            kind == TRAJD_KIND_PREVIOUS || kind == TRAJD_KIND_NEAREST);
}

void trajd_window_plan_choose_forms(struct trajd_window_plan *plan)
{
    for (uint32_t p = 0; p < plan->selection.array_count; p++)
        plan->entry_as_float32[p] = true;
    for (uint32_t t = 0; t < plan->target_count; t++)
        if (plan->targets[t].entry != TRAJD_PLAN_ABSENT && !picks_rows(plan, &plan->targets[t]))
            plan->entry_as_float32[plan->targets[t].entry] = false;
    plan->selection.as_float32 = plan->entry_as_float32;
}

/* Whether the cache keeps a target's rows as float32, which were float64. */
static bool is_float32(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    return target->entry != TRAJD_PLAN_ABSENT && plan->entry_as_float32[target->entry];
}

static enum trajd_status prepare_stream(struct trajd_window_plan *plan, uint32_t target_index,
                                        uint64_t column, struct trajd_error *error)
{
    const struct trajd_plan_target *target = &plan->targets[target_index];
    const struct trajd_plan_output *out = &plan->outputs[target->output_index];
    const struct trajd_spec_output *output = &plan->spec->outputs[target->output_index];
    const struct trajd_index_stream *source = trajd_plan_stream(plan, target);
    const struct trajd_plan_grid *grid =
        &plan->grids[plan->brackets[target->bracket_index].grid_index];
    struct trajd_stream *stream = &plan->request_streams[target_index];
    const uint64_t element = trajd_dtype_size(out->dtype);

    if (source->feature_count == 0 || source->feature_count > UINT32_MAX)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "outputs.%s: stream %s has %llu features",
                               out->name, source->name, (unsigned long long)source->feature_count);
    stream->bracket_index = target->bracket_index;
    stream->kind = trajd_plan_kind(plan, target);
    stream->source_type = is_float32(plan, target) ? TRAJD_F32 : source->dtype;
    stream->feature_count = (uint32_t)source->feature_count;
    stream->first_column = source->first_column;
    stream->bases = target->bases;
    /* On rows nothing blends: what is left of these kinds is the row itself, which the kernels
     * copy. */
    if (grid->rule == TRAJD_TARGET_ROWS && !output->has_range &&
        (stream->kind == TRAJD_KIND_LINEAR || stream->kind == TRAJD_KIND_ANGLE))
        stream->kind = TRAJD_KIND_PREVIOUS;
    stream->edge = plan->spec->edge;
    stream->max_gap_ns = output->max_gap_ns >= 0 ? output->max_gap_ns : source->max_gap_ns;
    stream->max_age_ns = output->max_age_ns >= 0       ? output->max_age_ns
                         : out->role == TRAJD_ROLE_OBS ? INT64_MAX
                                                       : -1;
    stream->mean_width = mean_width(output, grid);
    if (stream->kind == TRAJD_KIND_MEAN && stream->mean_width <= 0)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "line %u: outputs.%s: mean at the steps of an irregular clock needs width:",
            output->line, out->name);
    stream->angle_period = source->angle_period;
    stream->angle_low = output->has_range ? output->range_low : NAN;
    stream->scale = out->scale ? out->scale + column : NULL;
    stream->offset = out->scale ? out->offset + column : NULL;
    stream->output_type = out->dtype;
    stream->step_stride_bytes = out->feature_count * element;
    stream->window_stride_bytes = stream->step_stride_bytes * out->step_count;
    stream->mask_window_stride_bytes = out->step_count;
    stream->mask_joins_previous = column > 0;
    return TRAJD_OK;
}

/* Bytes of a source row as the cache keeps it: the whole dataset's row, of which a stream may be
 * some columns. */
static uint64_t row_stride(const struct trajd_window_plan *plan,
                           const struct trajd_plan_target *target)
{
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
    const struct trajd_index *index = plan->dataset->index;

    if (target->stream_index == TRAJD_PLAN_ABSENT) /* of rows that nobody reads */
        return (stream->first_column + stream->feature_count) * trajd_dtype_size(stream->dtype);
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        const struct trajd_array *array = &episode->extents[stream->array_index];
        if (!episode->quarantine && array->storage != TRAJD_STORAGE_ABSENT && array->size_bytes)
            return trajd_array_row_bytes(array) / (is_float32(plan, target) ? 2 : 1);
    }
    return 0;
}

void trajd_window_plan_take_forms(struct trajd_window_plan *plan,
                                  const struct trajd_window_plan *other)
{
    for (uint32_t p = 0; p < plan->selection.array_count; p++)
        for (uint32_t q = 0; q < other->selection.array_count; q++)
            if (other->entry_arrays[q] == plan->entry_arrays[p])
                plan->entry_as_float32[p] = other->entry_as_float32[q];
    for (uint32_t t = 0; t < plan->target_count; t++) {
        const struct trajd_plan_target *target = &plan->targets[t];
        plan->request_streams[t].source_type =
            is_float32(plan, target) ? TRAJD_F32 : trajd_plan_stream(plan, target)->dtype;
        plan->request_streams[t].row_stride_bytes = row_stride(plan, target);
    }
}

enum trajd_status trajd_window_plan_prepare(struct trajd_window_plan *plan,
                                            struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    struct trajd_resample_request *request = &plan->request;
    enum trajd_status status = TRAJD_OK;
    uint64_t column = 0;

    plan->request_clocks = calloc(index->clock_count + 1, sizeof *plan->request_clocks);
    plan->request_grids = calloc(plan->grid_count, sizeof *plan->request_grids);
    plan->request_brackets = calloc(plan->bracket_count, sizeof *plan->request_brackets);
    plan->request_streams = calloc(plan->target_count, sizeof *plan->request_streams);
    if (!plan->request_clocks || !plan->request_grids || !plan->request_brackets ||
        !plan->request_streams)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a window plan");
    for (uint32_t c = 0; c < index->clock_count; c++)
        plan->request_clocks[c] =
            (struct trajd_clock){plan->dataset->clock_stamps_ns[c], plan->dataset->clock_rates[c]};
    for (uint32_t g = 0; g < plan->grid_count; g++) {
        const struct trajd_plan_grid *grid = &plan->grids[g];
        plan->request_grids[g] = (struct trajd_grid){
            .unit = grid->rule == TRAJD_TARGET_ROWS ? TRAJD_GRID_ROWS : TRAJD_GRID_NS,
            .step_count = grid->step_count,
            .offsets = grid->offsets,
            .offsets_per_window = grid->per_window ? grid->step_count : 0};
    }
    for (uint32_t b = 0; b < plan->bracket_count; b++) {
        const struct trajd_plan_bracket *bracket = &plan->brackets[b];
        plan->request_brackets[b] = (struct trajd_bracket){.clock_index = bracket->clock_index,
                                                           .grid_index = bracket->grid_index,
                                                           .row_begin = bracket->row_begin,
                                                           .row_count = bracket->row_count,
                                                           .anchor = bracket->anchor};
    }
    for (uint32_t t = 0; t < plan->target_count && !status; t++) {
        column = t && plan->targets[t].output_index == plan->targets[t - 1].output_index
                     ? column + plan->request_streams[t - 1].feature_count
                     : 0;
        status = prepare_stream(plan, t, column, error);
        plan->request_streams[t].row_stride_bytes = row_stride(plan, &plan->targets[t]);
    }
    *request = (struct trajd_resample_request){.clock_count = index->clock_count,
                                               .grid_count = plan->grid_count,
                                               .bracket_count = plan->bracket_count,
                                               .stream_count = plan->target_count,
                                               .clocks = plan->request_clocks,
                                               .grids = plan->request_grids,
                                               .brackets = plan->request_brackets,
                                               .streams = plan->request_streams,
                                               .window_rows = plan->window_rows,
                                               .output_row_count = plan->spec->global_batch};
    return status;
}

static int64_t anchor_of(const struct trajd_window_plan *plan, const struct trajd_window *window)
{
    return trajd_plan_anchor_ns(plan, &plan->dataset->index->episodes[window->episode_index],
                                window->anchor);
}

void trajd_window_plan_look_up(struct trajd_window_plan *plan, uint64_t epoch, uint64_t position,
                               uint32_t row_count)
{
    trajd_sampler_run(plan->sampler, epoch, position, row_count, plan->windows);
    plan->window_count = row_count;
    for (uint32_t w = 0; w < row_count; w++)
        plan->anchor_ns[w] = anchor_of(plan, &plan->windows[w]);
}

void trajd_window_plan_clear(struct trajd_window_plan *plan)
{
    plan->window_count = 0;
}

void trajd_window_plan_add(struct trajd_window_plan *plan, const struct trajd_window *window,
                           uint32_t row)
{
    const uint32_t w = plan->window_count++;

    plan->windows[w] = *window;
    plan->anchor_ns[w] = anchor_of(plan, window);
    plan->window_rows[w] = row;
}

/* The offsets of one window from its anchor, where they are not the same for all. */
static void bind_offsets(const struct trajd_window_plan *plan, const struct trajd_plan_grid *grid,
                         const struct trajd_episode *episode, int64_t j, int64_t anchor_ns,
                         int64_t *offsets)
{
    if (grid->rate.num && plan->anchor_rate.num) {
        uint64_t whole;
        const uint64_t fraction = trajd_plan_anchor_fraction(plan, grid, j, &whole);
        for (uint32_t t = 0; t < grid->step_count; t++)
            offsets[t] = grid->step_ns[t] + (fraction + grid->step_fraction[t] >= whole);
        return;
    }
    for (uint32_t t = 0; t < grid->step_count; t++)
        offsets[t] = trajd_plan_anchor_ns(plan, episode, j + grid->from + t) - anchor_ns;
}

/* Rows that an observation sees are to be searched for; else its own clock's stamps end at the
 * anchor. */
static bool is_searched(const struct trajd_window_plan *plan,
                        const struct trajd_plan_bracket *bracket)
{
    const bool is_its_own = bracket->clock_index == plan->anchor_clock &&
                            !plan->dataset->index->clocks[bracket->clock_index].regular;

    return bracket->lookahead_ns ||
           !(is_its_own || plan->grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS);
}

/* Of windows that lie anywhere: the stamps that each search looks at come while those before it are
 * under way. */
static void search_rows(const struct trajd_window_plan *plan,
                        const struct trajd_plan_bracket *bracket, uint32_t first, uint32_t count)
{
    const struct trajd_episode *episodes = plan->dataset->index->episodes;
    int64_t *rows = bracket->row_count;

    for (uint32_t w = 0; w < count + AHEAD; w++) {
        if (w < count) {
            const struct trajd_episode_clock *clock =
                &episodes[plan->windows[first + w].episode_index].clocks[bracket->clock_index];
            trajd_clock_fetch_rows_until(clock, rows[w],
                                         plan->anchor_ns[first + w] + bracket->lookahead_ns);
        }
        if (w >= AHEAD) {
            const uint32_t v = w - AHEAD;
            const struct trajd_episode_clock *clock =
                &episodes[plan->windows[first + v].episode_index].clocks[bracket->clock_index];
            rows[v] = trajd_clock_rows_until(clock, rows[v],
                                             plan->anchor_ns[first + v] + bracket->lookahead_ns);
        }
    }
}

static void bind_bracket(const struct trajd_window_plan *plan,
                         const struct trajd_plan_bracket *bracket, uint32_t first, uint32_t count)
{
    const struct trajd_episode *episodes = plan->dataset->index->episodes;
    const int64_t *row_begin = plan->dataset->clock_row_begin[bracket->clock_index];
    const bool in_rows = plan->grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS,
               searched = is_searched(plan, bracket);

    for (uint32_t w = 0; w < count; w++) {
        const struct trajd_window *window = &plan->windows[first + w];
        const struct trajd_episode *episode = &episodes[window->episode_index];
        const struct trajd_episode_clock *clock = &episode->clocks[bracket->clock_index];
        int64_t rows = bracket->array_index < 0 ? clock->row_count
                                                : trajd_plan_row_count(plan, bracket, episode);
        if (bracket->clipped && !searched && window->anchor < rows) /* stamps ascend */
            rows = window->anchor + 1;
        bracket->row_begin[w] = row_begin ? row_begin[window->episode_index] : 0;
        bracket->row_count[w] = rows;
        bracket->anchor[w] =
            in_rows ? window->anchor
                    : plan->anchor_ns[first + w] - (clock->stamps_ns ? 0 : clock->start_ns);
    }
    if (bracket->clipped && searched)
        search_rows(plan, bracket, first, count);
}

static void bind_grid(const struct trajd_window_plan *plan, const struct trajd_plan_grid *grid,
                      uint32_t first, uint32_t count)
{
    for (uint32_t w = 0; w < count; w++) {
        const struct trajd_window *window = &plan->windows[first + w];
        bind_offsets(plan, grid, &plan->dataset->index->episodes[window->episode_index],
                     window->anchor, plan->anchor_ns[first + w],
                     grid->offsets + (size_t)w * grid->step_count);
    }
}

static void bind_bases(const struct trajd_window_plan *plan, uint32_t w, const void *const *rows)
{
    for (uint32_t t = 0; t < plan->target_count; t++)
        plan->targets[t].bases[w] = rows && plan->targets[t].entry != TRAJD_PLAN_ABSENT
                                        ? rows[plan->targets[t].entry]
                                        : NULL;
}

void trajd_window_plan_bind(struct trajd_window_plan *plan, uint32_t first, uint32_t count,
                            uint8_t *slot, trajd_episode_rows rows, void *context)
{
    const uint32_t first_row = plan->window_rows ? 0 : first;
    uint64_t column_bytes = 0;

    for (uint32_t g = 0; g < plan->grid_count; g++)
        if (plan->grids[g].per_window)
            bind_grid(plan, &plan->grids[g], first, count);
    for (uint32_t b = 0; b < plan->bracket_count; b++)
        bind_bracket(plan, &plan->brackets[b], first, count);
    for (uint32_t w = 0; w < count; w++)
        bind_bases(plan, w, rows(context, plan->windows[first + w].episode_index));
    for (uint32_t t = 0; t < plan->target_count; t++) {
        const struct trajd_plan_output *out = &plan->outputs[plan->targets[t].output_index];
        struct trajd_stream *stream = &plan->request_streams[t];

        column_bytes = stream->mask_joins_previous
                           ? column_bytes + plan->request_streams[t - 1].feature_count *
                                                (uint64_t)trajd_dtype_size(out->dtype)
                           : 0;
        stream->output =
            slot + out->offset_bytes + column_bytes + first_row * stream->window_stride_bytes;
        stream->mask = slot + out->mask_offset_bytes + first_row * stream->mask_window_stride_bytes;
    }
    plan->request.window_count = count;
    plan->request.window_rows = plan->window_rows ? plan->window_rows + first : NULL;
}
