/* An observation: a batch of one window, which the engine binds to the rows that came. */
#include <inttypes.h>
#include <string.h>

#include "clients/live/live_state.h"
#include "kernels/cpu/cpu.h"

/* ---- rows ---- */

static const struct trajd_plan_bracket *bracket_of(const struct trajd_live *live,
                                                   const struct trajd_plan_target *target)
{
    return &live->rules.brackets[target->bracket_index];
}

/* Returns the first row that a target reads: the last one at or before its first step. */
static uint64_t first_row(const struct trajd_live *live, const struct trajd_plan_target *target,
                          const struct trajd_live_input *input, bool *is_before)
{
    const uint32_t g = bracket_of(live, target)->grid_index;
    const struct trajd_plan_grid *grid = &live->rules.grids[g];
    const int64_t *offsets = grid->per_window ? live->batch->offsets[g] : grid->offsets;
    int64_t x_ns = live->anchor_ns + offsets[0];
    uint64_t after;

    if (grid->rule == TRAJD_TARGET_ROWS) {
        const int64_t row = (int64_t)input->anchor_row + grid->from;
        *is_before = row < (int64_t)input->seen.begin;
        return *is_before                       ? input->seen.begin
               : row < (int64_t)input->seen.end ? (uint64_t)row
                                                : input->seen.end;
    }
    if (target->stream.kind == TRAJD_KIND_MEAN &&
        __builtin_sub_overflow(x_ns, target->stream.mean_width, &x_ns))
        x_ns = INT64_MIN;
    after = trajd_live_ring_after(&input->ring, input->seen, x_ns);
    *is_before = after == input->seen.begin;
    return *is_before ? after : after - 1;
}

/* Adds rows to those that are copied, as far as they are kept. */
static void add_rows(struct trajd_live_input *input, uint64_t first, uint64_t end)
{
    /* a number below 0 has wrapped around */
    first = first > end || first < input->seen.begin ? input->seen.begin : first;
    if (!input->count || first < input->first) {
        input->count += input->count ? input->first - first : 0;
        input->first = first;
    }
    if (end > input->first + input->count)
        input->count = end - input->first;
}

/* Finds which rows a target sees, and adds them to those that are copied. */
static enum trajd_status see_rows(struct trajd_live *live, const struct trajd_plan_target *target,
                                  unsigned flags, struct trajd_error *error)
{
    struct trajd_live_input *input = &live->inputs[target->stream_index];
    const struct trajd_plan_bracket *bracket = bracket_of(live, target);
    const bool is_empty = input->seen.begin == input->seen.end;
    uint64_t first, end = input->anchor_row + 1;
    bool is_before;

    if (bracket->is_searched)
        end = trajd_live_ring_after(&input->ring, input->seen,
                                    live->anchor_ns + bracket->lookahead_ns);
    if (is_empty)
        end = input->seen.end;
    first = first_row(live, target, input, &is_before);
    if (is_before && input->seen.is_cut)
        return trajd_live_too_far(live, input, error);
    if (end == input->seen.begin && !(flags & TRAJD_LIVE_PARTIAL) &&
        !(target->missing == TRAJD_MISSING_ZERO && is_empty))
        return trajd_live_not_yet(input, live->anchor_ns, error);
    first = first < end ? first : end ? end - 1 : 0;
    add_rows(input, first, end);
    return TRAJD_OK;
}

static enum trajd_status copy_rows(struct trajd_live *live, unsigned flags,
                                   struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t t = 0; t < live->rules.target_count && !status; t++)
        if (live->rules.targets[t].stream_index != TRAJD_PLAN_ABSENT)
            status = see_rows(live, &live->rules.targets[t], flags, error);
    for (uint32_t i = 0; i < live->input_count && !status; i++) {
        struct trajd_live_input *input = &live->inputs[i];
        trajd_live_ring_copy(&input->ring, input->first, input->first + input->count,
                             input->stamps_ns, input->rows);
        if (!trajd_live_ring_kept(&input->ring, input->seen))
            status = trajd_live_too_far(live, input, error);
    }
    return status;
}

/* ---- the view ---- */

/* Lets the engine see the copied rows. */
static void make_view(struct trajd_live *live)
{
    const int64_t anchor = live->batch->windows[0].anchor;

    for (uint32_t i = 0; i < live->input_count; i++) {
        const struct trajd_live_input *input = &live->inputs[i];
        struct trajd_episode_clock *clock = &live->view_clocks[i];
        const bool is_empty = input->seen.begin == input->seen.end;
        clock->row_count = (int64_t)input->count;
        clock->row_at_zero = (double)input->count - 1; /* the anchor is near the last one */
        clock->first_anchor =
            is_empty ? anchor : anchor - (int64_t)input->anchor_row + (int64_t)input->first;
    }
    for (uint32_t t = 0; t < live->rules.target_count; t++) {
        const struct trajd_plan_target *target = &live->rules.targets[t];
        const struct trajd_live_input *input = &live->inputs[target->stream_index];
        const bool is_missing =
            target->stream_index == TRAJD_PLAN_ABSENT ||
            (target->missing == TRAJD_MISSING_ZERO && input->seen.begin == input->seen.end);
        live->batch->targets[t].bases[0] = is_missing ? NULL : input->rows;
    }
}

/* Masks steps that are rows where the stream lost a row that another stream on the anchor's clock
 * has: from there backwards its rows are those of other anchors. Recordings have no such windows. */
static void mask_lost_rows(const struct trajd_live *live, uint32_t t)
{
    const struct trajd_live_input *input = &live->inputs[live->rules.targets[t].stream_index];
    const struct trajd_plan_grid *grid = trajd_rules_grid(&live->rules, t);
    uint8_t *mask = live->batch->request_streams[t].mask;

    for (uint32_t s = 0; s < grid->step_count; s++) {
        const int64_t step = grid->offsets[s];
        const int64_t row = (int64_t)input->anchor_row - (int64_t)input->first + step;
        if (step < 0 && row >= 0 && -step < (int64_t)live->anchor_count &&
            input->stamps_ns[row] != trajd_live_anchor_back(live, -step) &&
            mask[s] < TRAJD_MASK_GAP)
            mask[s] = TRAJD_MASK_GAP;
    }
}

/* ---- all of it ---- */

static void make_values(struct trajd_live *live, uint8_t *out)
{
    make_view(live);
    trajd_bind_rows(live->batch, 0, 1, out);
    trajd_resample_cpu(&live->batch->request, 0, 1);
    for (uint32_t p = 0; p < live->rules.image_count; p++)
        trajd_live_image_write(live, &live->images[p], out);
    for (uint32_t t = 0; t < live->rules.target_count; t++)
        if (trajd_rules_grid(&live->rules, t)->rule == TRAJD_TARGET_ROWS &&
            live->batch->targets[t].bases[0])
            mask_lost_rows(live, t);
    trajd_binding_finish(live->batch, 0, 0, 1, NULL);
}

static enum trajd_status observe(struct trajd_live *live, int64_t t_ns, unsigned flags,
                                 uint8_t *out, struct trajd_error *error)
{
    enum trajd_status status;

    for (uint32_t i = 0; i < live->input_count; i++) {
        struct trajd_live_input *input = &live->inputs[i];
        input->seen = trajd_live_ring_rows(&input->ring);
        input->anchor_row = input->seen.begin;
        input->first = input->seen.begin;
        input->count = 0;
    }
    status = trajd_live_find_anchor(live, t_ns, error);
    if (!status)
        status = trajd_live_place_steps(live, error);
    if (!status)
        status = copy_rows(live, flags, error);
    if (!status)
        make_values(live, out);
    for (uint32_t p = 0; p < live->rules.image_count && !status; p++) {
        const struct trajd_live_input *input = &live->inputs[live->images[p].input];
        if (!trajd_live_ring_kept(&input->ring, input->seen))
            status = trajd_live_too_far(live, input, error);
    }
    return status;
}

enum trajd_status trajd_live_observe(struct trajd_live *live, int64_t t_ns, unsigned flags,
                                     void *out, int64_t *anchor_ns, struct trajd_error *error)
{
    enum trajd_status status;

    if (t_ns > TRAJD_LIVE_FAR_NS || t_ns < -TRAJD_LIVE_FAR_NS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "the time %" PRId64 " is beyond 2^61 ns", t_ns);
    if (__atomic_exchange_n(&live->is_observing, 1, __ATOMIC_ACQUIRE))
        return trajd_error_set(error, TRAJD_ERR_BUSY, 0, "another thread observes");
    status = observe(live, t_ns, flags, out, error);
    if (!status && anchor_ns)
        *anchor_ns = live->anchor_ns;
    __atomic_store_n(&live->is_observing, 0, __ATOMIC_RELEASE);
    return status;
}
