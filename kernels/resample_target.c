/* Resolves the targets of a stream: which row, which fraction, which mask code. The definition of
 * correct together with resample_reference.c. Reads stamps, but no rows. */
#include "kernels/resample_target.h"

#include <stddef.h>

#include "kernels/total.h"

#include "kernels/resample_resolve.h"

struct trajd_view trajd_view_of(const struct trajd_resample_request *request,
                                const struct trajd_stream *stream, uint32_t w)
{
    const struct trajd_bracket *bracket = &request->brackets[stream->bracket_index];
    struct trajd_view view = {
        .clock = &request->clocks[bracket->clock_index],
        .grid = &request->grids[bracket->grid_index],
        .stream = stream,
        .row_begin = trajd_row_begin(bracket, w),
        .row_count = trajd_row_count(bracket, w),
        .anchor = trajd_anchor(bracket, w),
        .rows = stream->bases ? stream->bases[w] : stream->base,
        .too_old_begin = bracket->too_old_begin ? bracket->too_old_begin[w] : 0,
        .too_old_end = bracket->too_old_end ? bracket->too_old_end[w] : 0,
    };

    if (view.rows && !stream->bases)
        view.rows += view.row_begin * (int64_t)stream->row_stride_bytes;
    if (view.rows)
        view.rows += (uint64_t)stream->first_column * trajd_dtype_size(stream->source_type);
    return view;
}

static int64_t stamp_of(const struct trajd_view *view, int64_t row)
{
    return view->clock->stamps_ns ? view->clock->stamps_ns[view->row_begin + row]
                                  : trajd_rate_row_ns(view->clock->rate, row);
}

/* Returns the last row at or before x, or -1 if there is none. It shares no search with the
 * variants that it is the reference for, nor with trajd_stamps_until. */
static int64_t row_at(const struct trajd_view *view, int64_t x)
{
    int64_t below = -1, above = view->row_count;

    if (!view->clock->stamps_ns) {
        int64_t row = trajd_rate_row_at(view->clock->rate, x);
        return row < 0 ? -1 : row < view->row_count ? row : view->row_count - 1;
    }
    while (above - below > 1) {
        int64_t middle = below + (above - below) / 2;
        if (stamp_of(view, middle) <= x)
            below = middle;
        else
            above = middle;
    }
    return below;
}

/* Resolves an x after the last row. */
static void resolve_after(const struct trajd_view *view, uint64_t age, struct trajd_target *target)
{
    const struct trajd_stream *stream = view->stream;

    target->row = view->row_count - 1;
    target->has_row = stream->max_age_ns >= 0 || stream->edge == TRAJD_EDGE_HOLD;
    if (stream->max_age_ns < 0)
        target->mask = TRAJD_MASK_AFTER_END;
    else if (age > (uint64_t)stream->max_age_ns)
        target->mask = TRAJD_MASK_TOO_OLD;
}

static void resolve_before(const struct trajd_view *view, struct trajd_target *target)
{
    target->mask = TRAJD_MASK_BEFORE_START;
    target->has_row = view->stream->edge == TRAJD_EDGE_HOLD && view->row_count > 0;
    target->row = 0;
    target->mean_first = 0;
}

static int64_t minus_saturated(int64_t a, int64_t b)
{
    int64_t difference;

    return __builtin_sub_overflow(a, b, &difference) ? INT64_MIN : difference;
}

static void resolve_row_step(const struct trajd_view *view, int64_t row,
                             struct trajd_target *target)
{
    if (row < 0 || view->row_count == 0) {
        resolve_before(view, target);
        return;
    }
    target->row = row;
    target->has_row = true;
    target->mean_first = minus_saturated(row, view->stream->mean_width - 1);
    if (row >= view->row_count)
        resolve_after(view, 0, target);
    if (target->mean_first < 0)
        target->mean_first = 0;
}

/* Finds the interval for the derivative: the bracket's interval, and at the last row the interval
 * before it. */
static void resolve_interval(const struct trajd_view *view, struct trajd_target *target)
{
    int64_t row = target->row < view->row_count - 1 ? target->row : target->row - 1;

    target->interval_row = row;
    if (row >= 0)
        target->interval_ns = (uint64_t)stamp_of(view, row + 1) - (uint64_t)stamp_of(view, row);
}

static void resolve_inside(const struct trajd_view *view, int64_t x, struct trajd_target *target)
{
    const struct trajd_stream *stream = view->stream;
    int64_t before = stamp_of(view, target->row);
    uint64_t past = (uint64_t)x - (uint64_t)before, width;

    target->has_row = true;
    if (target->row == view->row_count - 1 && past > 0) {
        resolve_after(view, past, target);
        return;
    }
    resolve_interval(view, target);
    if (past == 0)
        return;
    width = target->interval_ns;
    if (past >= width) { /* stamps do not ascend, or exceed 64 bits */
        target->mask = TRAJD_MASK_BAD_STAMP;
        target->interval_row = -1;
        return;
    }
    if (stream->max_gap_ns >= 0 && width > (uint64_t)stream->max_gap_ns)
        target->mask = TRAJD_MASK_GAP;
    target->a = (double)past / (double)width;
    if (stream->kind == TRAJD_KIND_NEAREST)
        target->row += past >= width - past;
    else
        target->blends = stream->kind != TRAJD_KIND_PREVIOUS && stream->kind != TRAJD_KIND_MEAN;
}

/* Resolves the sum over the step of time [x, end). */
static void resolve_total(const struct trajd_view *view, int64_t x, int64_t end,
                          struct trajd_target *target)
{
    const int64_t *stamps_ns =
        view->clock->stamps_ns ? view->clock->stamps_ns + view->row_begin : NULL;

    if (view->row_count == 0 || x < stamp_of(view, 0)) {
        target->mask = TRAJD_MASK_BEFORE_START;
        return;
    }
    target->row = row_at(view, minus_saturated(x, 1)) + 1;
    target->total_end = row_at(view, minus_saturated(end, 1)) + 1;
    if (target->row == view->row_count) {
        target->mask = TRAJD_MASK_AFTER_END;
        return;
    }
    if (target->total_end < target->row) /* targets that do not ascend */
        target->total_end = target->row;
    target->has_row = true;
    target->mask =
        trajd_total_mask(stamps_ns, view->clock->rate, view->row_count, view->stream->max_gap_ns, x,
                         end, target->row, target->total_end);
}

/* Resolves a target by the clock and the stream's rules. */
static struct trajd_target resolve(const struct trajd_view *view, uint32_t w, uint32_t t)
{
    const int64_t *offsets = view->grid->offsets + w * view->grid->offsets_per_window;
    const int64_t offset = offsets[t];
    struct trajd_target target = {.interval_row = -1};
    int64_t x = (int64_t)((uint64_t)view->anchor + (uint64_t)offset);

    if (!view->rows) {
        target.mask = TRAJD_MASK_MISSING;
        return target;
    }
    if (offset == TRAJD_NO_TARGET) {
        target.mask = TRAJD_MASK_BAD_STAMP;
        return target;
    }
    if (view->grid->unit == TRAJD_GRID_ROWS) {
        resolve_row_step(view, x, &target);
        target.total_end = view->row_count;
        return target;
    }
    if (view->stream->total == TRAJD_TOTAL_STEP) {
        const int64_t end =
            trajd_total_end(view->stream->total_width, view->grid->step_count, offsets, t);
        resolve_total(view, x, (int64_t)((uint64_t)view->anchor + (uint64_t)end), &target);
        return target;
    }
    target.row = view->row_count > 0 ? row_at(view, x) : -1;
    if (target.row < 0) {
        resolve_before(view, &target);
        return target;
    }
    if (view->stream->kind == TRAJD_KIND_MEAN)
        target.mean_first = row_at(view, minus_saturated(x, view->stream->mean_width)) + 1;
    resolve_inside(view, x, &target);
    return target;
}

struct trajd_target trajd_target_resolve(const struct trajd_view *view, uint32_t w, uint32_t t)
{
    struct trajd_target target = resolve(view, w, t);

    if (view->rows && view->too_old_begin <= t && t < view->too_old_end &&
        target.mask < TRAJD_MASK_TOO_OLD)
        target.mask = TRAJD_MASK_TOO_OLD;
    return target;
}

void trajd_resample_resolve(const struct trajd_resample_request *request, uint32_t stream_index,
                            uint32_t window, uint32_t step_index, struct trajd_resample_step *step)
{
    const struct trajd_view view = trajd_view_of(request, &request->streams[stream_index], window);
    const int64_t offset = view.grid->offsets[window * view.grid->offsets_per_window + step_index];
    const struct trajd_target target = trajd_target_resolve(&view, window, step_index);

    *step = (struct trajd_resample_step){.mask = (enum trajd_mask)target.mask,
                                         .x = (int64_t)((uint64_t)view.anchor + (uint64_t)offset),
                                         .has_row = target.has_row,
                                         .blends = target.blends,
                                         .row = target.row,
                                         .mean_first = target.mean_first};
    if (view.stream->total && target.has_row)
        step->added = target.total_end - target.row;
    if (view.grid->unit == TRAJD_GRID_ROWS) {
        step->before = step->x < view.row_count ? step->x : view.row_count - 1;
        return;
    }
    step->before = view.row_count > 0 ? row_at(&view, step->x) : -1;
    if (step->before < 0)
        return;
    step->past_ns = (uint64_t)step->x - (uint64_t)stamp_of(&view, step->before);
    if (step->before + 1 < view.row_count)
        step->width_ns =
            (uint64_t)stamp_of(&view, step->before + 1) - (uint64_t)stamp_of(&view, step->before);
}
