/* A batch: its windows, and the request that the kernels are asked for them. */
#include "daemon/window/window_plan_internal.h"

#define AHEAD 8 /* windows whose stamps are on their way */

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
