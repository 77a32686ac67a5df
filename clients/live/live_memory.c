/* Sizes and memory. Everything is allocated at open, so that no page is mapped later.
 *
 * A ring holds twice the rows of the longest window, of the history and of the latencies, counted
 * at the mean rate of the recordings: a sensor may be twice as fast. Frames it holds once. A row is
 * held for as long as no newer ones displace it, so max_age needs no rows of its own. */

#include <string.h>

#include "clients/live/live_state.h"

#define MOST_ROWS (UINT64_C(1) << 24)
#define ALIGNMENT 64u

void *trajd_live_alloc(struct trajd_live *live, uint64_t count, uint64_t size_bytes,
                       struct trajd_error *error)
{
    uint64_t bytes;
    void *memory = __builtin_mul_overflow(count, size_bytes, &bytes) || bytes > SIZE_MAX
                       ? NULL
                       : trajd_arena_alloc(&live->arena, bytes ? (size_t)bytes : 1);

    if (!memory)
        trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                        "the observation needs more than %zu MiB, or there is no memory",
                        live->arena.limit_bytes >> 20);
    return memory ? memset(memory, 0, (size_t)bytes) : NULL; /* maps the pages */
}

/* Returns the mean interval of the anchors, or 0 without a clock. */
static int64_t anchor_interval_ns(const struct trajd_live *live)
{
    return live->document.has_anchor_clock ? live->clocks[live->document.anchor_clock].interval_ns
                                           : 0;
}

/* Returns how long before the anchor a step lies at most, at the rate of the grid or at the anchors'
 * mean interval. */
static __int128 span_of(const struct trajd_live *live, const struct trajd_plan_grid *grid,
                        int64_t step)
{
    return grid->rate.num ? (__int128)step * 1000000000 * grid->rate.den / grid->rate.num
                          : (__int128)step * anchor_interval_ns(live);
}

static enum trajd_status check_steps(const struct trajd_live *live, struct trajd_error *error)
{
    for (uint32_t t = 0; t < live->rules.target_count; t++) {
        const struct trajd_plan_grid *grid = trajd_rules_grid(&live->rules, t);
        if (span_of(live, grid, grid->from) <= -TRAJD_LIVE_FAR_NS)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "output %s has steps beyond 2^61 ns",
                                   live->rules.outputs[live->rules.targets[t].output_index].name);
    }
    return TRAJD_OK;
}

/* ---- rings ---- */

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Adds how far a target reads back. */
static void add_span(const struct trajd_live *live, uint32_t t)
{
    const struct trajd_plan_target *target = &live->rules.targets[t];
    const struct trajd_plan_grid *grid = trajd_rules_grid(&live->rules, t);
    const int64_t back = grid->from < 0 ? -grid->from : 0;
    struct trajd_live_input *input = &live->inputs[target->stream_index];
    __int128 span_ns = 0;

    if (grid->rule == TRAJD_TARGET_ROWS)
        input->span_rows = largest(input->span_rows, back);
    else if (grid->rate.num)
        span_ns = span_of(live, grid, back) + 1;
    else /* at the stamps of anchors, which may be twice as slow as on average */
        span_ns = 2 * span_of(live, grid, back);
    if (target->stream.kind == TRAJD_KIND_MEAN && grid->rule != TRAJD_TARGET_ROWS)
        span_ns += target->stream.mean_width;
    input->span_ns =
        largest(input->span_ns, span_ns < TRAJD_LIVE_FAR_NS ? (int64_t)span_ns : TRAJD_LIVE_FAR_NS);
}

/* All leads keep the rows of as many anchors as any output needs: live_anchor.c compares them. */
static void add_anchor_span(struct trajd_live *live)
{
    for (uint32_t t = 0; t < live->rules.target_count && live->lead_count; t++) {
        const struct trajd_plan_grid *grid = trajd_rules_grid(&live->rules, t);
        if (grid->rule == TRAJD_TARGET_ROWS || !grid->rate.num)
            live->steps_back = largest(live->steps_back, -grid->from);
    }
    for (uint32_t i = 0; i < live->input_count; i++)
        if (live->inputs[i].is_lead)
            live->inputs[i].span_rows = largest(live->inputs[i].span_rows, live->steps_back);
}

static int64_t latency_spread_ns(const struct trajd_live *live)
{
    int64_t low = INT64_MAX, high = INT64_MIN;

    for (uint32_t c = 0; c < live->document.clock_count; c++) {
        high = largest(high, live->clocks[c].latency_ns);
        low = -largest(-low, -live->clocks[c].latency_ns);
    }
    return high - low;
}

static enum trajd_status make_ring(struct trajd_live *live, struct trajd_live_input *input,
                                   struct trajd_error *error)
{
    const int64_t interval_ns = live->clocks[input->clock].interval_ns;
    const __int128 span_ns = (__int128)input->span_ns + latency_spread_ns(live) + live->history_ns;
    const __int128 rows = span_ns / interval_ns + input->span_rows + 2;
    struct trajd_live_ring *ring = &input->ring;

    if (rows > (__int128)MOST_ROWS)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "stream %s: the window and the history hold more than 2^24 rows",
                               input->name);
    /* a quarter of it is left to the writer (live_ring.c); cameras keep to their rate */
    for (ring->capacity = input->has_images ? 8 : 64;
         ring->capacity * 3 / 4 < (input->has_images ? 1 : 2) * (uint64_t)rows;)
        ring->capacity *= 2;
    ring->row_bytes =
        input->has_rows ? (size_t)input->column_count * trajd_dtype_size(input->stream->dtype) : 0;
    ring->row_words = (uint32_t)((ring->row_bytes + 7) / 8);
    ring->words =
        trajd_live_alloc(live, ring->capacity, (1 + (uint64_t)ring->row_words) * 8, error);
    if (ring->words)
        input->stamps_ns = trajd_live_alloc(live, ring->capacity, sizeof *input->stamps_ns, error);
    if (input->stamps_ns)
        input->rows =
            trajd_live_alloc(live, ring->capacity, (uint64_t)ring->row_words * 8 + 8, error);
    return input->rows ? TRAJD_OK : TRAJD_ERR_MEMORY;
}

/* ---- the observation and its batch ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Refuses rows of outputs that the limit has no room for: the batch allocates them. */
static enum trajd_status count_rows(struct trajd_live *live, struct trajd_error *error)
{
    uint64_t bytes = 0;

    for (uint32_t o = 0; o < live->rules.output_count; o++) {
        const struct trajd_plan_output *output = &live->rules.outputs[o];
        if (output->transform || output->is_hidden)
            bytes += output->step_count * output->row_feature_count *
                     trajd_dtype_size(output->row_dtype);
    }
    if (bytes <= live->arena.limit_bytes - live->arena.total_bytes)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "the observation needs more than %zu MiB",
                           live->arena.limit_bytes >> 20);
}

/* Makes the view: a clock for each input, that of the anchors, and one without rows. */
static enum trajd_status make_view(struct trajd_live *live, struct trajd_error *error)
{
    static const int64_t no_stamps[1];
    const uint32_t count = live->rules.clock_count;

    live->anchors_ns =
        trajd_live_alloc(live, (uint64_t)live->steps_back + 1, sizeof *live->anchors_ns, error);
    if (live->anchors_ns)
        live->view_clocks = trajd_live_alloc(live, count, sizeof *live->view_clocks, error);
    if (live->view_clocks)
        live->request_clocks = trajd_live_alloc(live, count, sizeof *live->request_clocks, error);
    if (!live->request_clocks)
        return TRAJD_ERR_MEMORY;
    for (uint32_t c = 0; c < count; c++) {
        const int64_t *stamps_ns = c < live->input_count ? live->inputs[c].stamps_ns : no_stamps;
        live->view_clocks[c].stamps_ns = live->request_clocks[c].stamps_ns = stamps_ns;
    }
    live->view_clocks[live->input_count].interval_ns = anchor_interval_ns(live);
    live->view.clocks = live->view_clocks;
    return TRAJD_OK;
}

/* Completes the streams with where their rows are. */
static void set_strides(struct trajd_live *live)
{
    for (uint32_t t = 0; t < live->rules.target_count; t++) {
        struct trajd_plan_target *target = &live->rules.targets[t];
        if (target->stream_index != TRAJD_PLAN_ABSENT)
            target->stream.row_stride_bytes =
                (uint64_t)live->inputs[target->stream_index].ring.row_words * 8;
    }
}

/* Writes to all memory of the batch, so that no page is mapped later. */
static void touch(struct trajd_live *live)
{
    const struct trajd_plan_rules *rules = &live->rules;

    for (uint32_t g = 0; g < rules->grid_count; g++)
        if (live->batch->offsets[g])
            memset(live->batch->offsets[g], 0, rules->grids[g].step_count * sizeof(int64_t));
    for (uint32_t o = 0; o < rules->output_count; o++) {
        const struct trajd_plan_output *output = &rules->outputs[o];
        if (live->batch->outputs[o].rows)
            memset(live->batch->outputs[o].rows, 0,
                   output->step_count * output->row_feature_count *
                       trajd_dtype_size(output->row_dtype));
    }
}

static enum trajd_status make_batch(struct trajd_live *live, struct trajd_error *error)
{
    const struct trajd_binding_options options = {.rules = &live->rules,
                                                  .views = &live->view,
                                                  .clocks = live->request_clocks,
                                                  .window_limit = 1};

    live->size_bytes =
        trajd_live_alloc(live, live->rules.visible_count, sizeof *live->size_bytes, error);
    if (!live->size_bytes)
        return TRAJD_ERR_MEMORY;
    if (trajd_binding_create(&options, &live->batch))
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for an observation");
    for (uint32_t o = 0; o < live->rules.visible_count; o++) {
        const struct trajd_plan_output *output = &live->rules.outputs[o];
        struct trajd_binding_output *place = &live->batch->outputs[o];
        live->size_bytes[o] =
            output->step_count * output->feature_count * trajd_dtype_size(output->dtype);
        place->offset_bytes = live->total_bytes;
        place->mask_offset_bytes = aligned(place->offset_bytes + live->size_bytes[o]);
        live->total_bytes = aligned(place->mask_offset_bytes + output->step_count);
    }
    touch(live);
    return trajd_resample_check_shape(&live->batch->request, error);
}

static enum trajd_status make_images(struct trajd_live *live, struct trajd_error *error)
{
    const uint32_t count = live->rules.image_count;
    enum trajd_status status = TRAJD_OK;

    live->images = trajd_live_alloc(live, count, sizeof *live->images, error);
    if (!live->images)
        return TRAJD_ERR_MEMORY;
    for (uint32_t p = 0; p < count && !status; p++) {
        const struct trajd_plan_target *target =
            &live->rules.targets[live->rules.row_target_count + p];
        live->images[p] = (struct trajd_live_image){.rules = &live->rules.images[p],
                                                    .output = target->output_index,
                                                    .input = target->stream_index};
        status = trajd_live_image_open(live, &live->images[p], error);
    }
    return status;
}

enum trajd_status trajd_live_allocate(struct trajd_live *live, struct trajd_error *error)
{
    enum trajd_status status = check_steps(live, error);

    for (uint32_t t = 0; t < live->rules.target_count && !status; t++)
        if (live->rules.targets[t].stream_index != TRAJD_PLAN_ABSENT)
            add_span(live, t);
    add_anchor_span(live);
    for (uint32_t i = 0; i < live->input_count && !status; i++)
        status = make_ring(live, &live->inputs[i], error);
    if (!status)
        status = make_view(live, error);
    if (!status)
        status = count_rows(live, error);
    if (status)
        return status;
    set_strides(live);
    status = make_batch(live, error);
    return status ? status : make_images(live, error);
}
