#include "daemon/producer/gpu_streamed_rows.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_ALIGNMENT 256 /* as episodes that are resident have it */
/* rows on either side of a target: the two that blend, and one more for slopes and gaps */
#define NEIGHBOURS 2
#define FAR_NS (INT64_C(1) << 61)
#define POOL_BYTES ((uint64_t)1 << 20) /* less is copied before a thread of the pool is awake */
#define RESIDENT UINT32_MAX

/* A entry seen through a bracket. */
struct source {
    uint32_t bracket_index, entry; /* of the streamed rows' selection */
    uint64_t stride_bytes;         /* of a row */
    uint64_t *places;              /* [G]: in the block */
};

struct narrowing {
    bool wanted;     /* some streamed source is seen through it */
    int64_t width;   /* of means: ns, or rows on a grid of rows */
    int64_t quantum; /* of a regular clock: row quantum * n stands at a whole ns for every n */
    int64_t *low;    /* [G]: the first row that the window touches */
};

struct trajd_gpu_streamed_rows {
    const struct trajd_window_plan *plan; /* the batch's */
    struct trajd_window_batch *batch;
    struct trajd_selection selection;
    uint32_t *dataset_indexes;
    bool *as_float32;
    struct source *streamed; /* [source_count] */
    uint32_t source_count;
    uint32_t *source_of;        /* [plan->target_count], or RESIDENT */
    struct narrowing *brackets; /* [plan->bracket_count] */
    uint64_t largest_bytes;
};

/* ---- making ---- */

static int64_t quantum_of(struct trajd_rate rate)
{
    uint64_t a = (uint64_t)rate.num, b;

    if (!rate.num)
        return 1;
    b = (uint64_t)(1000000000 % rate.num) * (uint64_t)(rate.den % rate.num) % a;
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return rate.num / (int64_t)a;
}

/* Those that are not held among the first `entry` of the plan's entries. */
static uint32_t count_entries(const bool *held, uint32_t entry)
{
    uint32_t number = 0;

    for (uint32_t k = 0; k < entry; k++)
        number += !held[k];
    return number;
}

/* They keep their order. */
static void select_entries(struct trajd_gpu_streamed_rows *streamed, const bool *held)
{
    const struct trajd_selection *all = &streamed->plan->selection;

    for (uint32_t k = 0; k < all->array_count; k++) {
        const uint32_t number = streamed->selection.array_count;
        if (held[k])
            continue;
        streamed->dataset_indexes[number] = all->array_indexes[k];
        streamed->as_float32[number] = all->as_float32 && all->as_float32[k];
        streamed->selection =
            (struct trajd_selection){streamed->dataset_indexes, number + 1, streamed->as_float32};
    }
}

static uint32_t find_source(const struct trajd_gpu_streamed_rows *streamed, uint32_t bracket_index,
                            uint32_t entry)
{
    uint32_t g = 0;

    while (g < streamed->source_count && (streamed->streamed[g].bracket_index != bracket_index ||
                                          streamed->streamed[g].entry != entry))
        g++;
    return g;
}

static enum trajd_status add_target(struct trajd_gpu_streamed_rows *streamed, const bool *held,
                                    uint32_t t, struct trajd_error *error)
{
    const struct trajd_window_plan *plan = streamed->plan;
    const struct trajd_plan_target *target = &plan->targets[t];
    const struct trajd_stream *stream = &plan->streams[t];
    struct narrowing *narrowing = &streamed->brackets[target->bracket_index];
    const uint64_t batch = plan->spec->global_batch;
    uint32_t entry, g;

    streamed->source_of[t] = RESIDENT;
    narrowing->width =
        stream->mean_width > narrowing->width ? stream->mean_width : narrowing->width;
    if (target->entry == TRAJD_PLAN_ABSENT || held[target->entry])
        return TRAJD_OK;
    entry = count_entries(held, target->entry);
    g = streamed->source_of[t] = find_source(streamed, target->bracket_index, entry);
    if (g < streamed->source_count)
        return TRAJD_OK;
    streamed->streamed[streamed->source_count++] = (struct source){
        target->bracket_index, entry, stream->row_stride_bytes, calloc(batch, sizeof(uint64_t))};
    if (!narrowing->low)
        narrowing->low = calloc(batch, sizeof *narrowing->low);
    narrowing->wanted = true;
    narrowing->quantum =
        quantum_of(plan->clocks[plan->brackets[target->bracket_index].clock_index].rate);
    return streamed->streamed[g].places && narrowing->low
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's guests");
}

static uint64_t round_up(uint64_t size_bytes)
{
    return (size_bytes + CHUNK_ALIGNMENT - 1) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
}

/* A window touches an episode's rows at most, once through each bracket. */
static void find_largest(struct trajd_gpu_streamed_rows *streamed)
{
    const struct trajd_window_plan *plan = streamed->plan;

    for (uint32_t i = 0; i < plan->episode_count; i++) {
        uint64_t bytes = 0;
        for (uint32_t g = 0; g < streamed->source_count; g++)
            bytes += round_up((uint64_t)trajd_plan_row_count(
                                  plan, &plan->brackets[streamed->streamed[g].bracket_index],
                                  &plan->dataset->index->episodes[plan->episodes[i]]) *
                              streamed->streamed[g].stride_bytes);
        streamed->largest_bytes = bytes > streamed->largest_bytes ? bytes : streamed->largest_bytes;
    }
}

enum trajd_status trajd_gpu_streamed_create(struct trajd_window_batch *batch, const bool *held,
                                            struct trajd_gpu_streamed_rows **out,
                                            struct trajd_error *error)
{
    const struct trajd_window_plan *plan = batch->plan;
    const uint32_t count = count_entries(held, plan->selection.array_count);
    struct trajd_gpu_streamed_rows *streamed;
    enum trajd_status status = TRAJD_OK;

    *out = NULL;
    if (!count)
        return TRAJD_OK;
    streamed = calloc(1, sizeof *streamed);
    if (!streamed)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's guests");
    streamed->plan = plan;
    streamed->batch = batch;
    streamed->dataset_indexes = calloc(count, sizeof *streamed->dataset_indexes);
    streamed->as_float32 = calloc(count, sizeof *streamed->as_float32);
    streamed->streamed = calloc(plan->target_count, sizeof *streamed->streamed);
    streamed->source_of = calloc(plan->target_count, sizeof *streamed->source_of);
    streamed->brackets = calloc(plan->bracket_count, sizeof *streamed->brackets);
    if (!streamed->dataset_indexes || !streamed->as_float32 || !streamed->streamed ||
        !streamed->source_of || !streamed->brackets)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's guests");
    else
        select_entries(streamed, held);
    for (uint32_t t = 0; t < plan->target_count && !status; t++)
        status = add_target(streamed, held, t, error);
    if (status)
        trajd_gpu_streamed_destroy(&streamed);
    else
        find_largest(streamed);
    *out = streamed;
    return status;
}

void trajd_gpu_streamed_destroy(struct trajd_gpu_streamed_rows **out)
{
    struct trajd_gpu_streamed_rows *streamed = *out;

    *out = NULL;
    if (!streamed)
        return;
    for (uint32_t g = 0; g < streamed->source_count; g++)
        free(streamed->streamed[g].places);
    for (uint32_t b = 0; streamed->brackets && b < streamed->plan->bracket_count; b++)
        free(streamed->brackets[b].low);
    free(streamed->dataset_indexes);
    free(streamed->as_float32);
    free(streamed->streamed);
    free(streamed->source_of);
    free(streamed->brackets);
    free(streamed);
}

const struct trajd_selection *
trajd_gpu_streamed_selection(const struct trajd_gpu_streamed_rows *streamed)
{
    return &streamed->selection;
}

uint64_t trajd_gpu_streamed_largest(const struct trajd_gpu_streamed_rows *streamed)
{
    return streamed->largest_bytes;
}

/* ---- a batch ---- */

/* The smallest and the largest offset of a window's targets; 0 and 0 where it has none. */
static void find_reach(const struct trajd_grid *grid, uint32_t w, int64_t *from, int64_t *to)
{
    const int64_t *offsets = grid->offsets + (size_t)w * grid->offsets_per_window;
    bool found = false;

    *from = *to = 0;
    for (uint32_t t = 0; t < grid->step_count; t++) {
        if (offsets[t] == TRAJD_NO_TARGET)
            continue;
        *from = found && *from < offsets[t] ? *from : offsets[t];
        *to = found && *to > offsets[t] ? *to : offsets[t];
        found = true;
    }
}

static int64_t bounded(__int128 value)
{
    return value > FAR_NS ? FAR_NS : value < -FAR_NS ? -FAR_NS : (int64_t)value;
}

static int64_t between(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* [*low, *high) of the `rows` that the window may see. */
static void find_rows(const struct trajd_gpu_streamed_rows *streamed, uint32_t b, uint32_t w,
                      uint32_t window, int64_t rows, int64_t *low, int64_t *high)
{
    const struct trajd_window_plan *plan = streamed->plan;
    const struct trajd_plan_grid *grid = &plan->grids[plan->brackets[b].grid_index];
    const struct trajd_episode *episode =
        &plan->dataset->index->episodes[streamed->batch->windows[window].episode_index];
    const struct trajd_episode_clock *clock = &episode->clocks[plan->brackets[b].clock_index];
    const int64_t width = streamed->brackets[b].width;
    int64_t from, to;

    *low = *high = 0;
    if (rows < 1)
        return;
    find_reach(&streamed->batch->request_grids[plan->brackets[b].grid_index], w, &from, &to);
    if (grid->rule == TRAJD_TARGET_ROWS) {
        const __int128 anchor = streamed->batch->windows[window].anchor;
        *low = bounded(anchor + from - width - NEIGHBOURS);
        *high = bounded(anchor + to + 1 + NEIGHBOURS);
    } else {
        const __int128 anchor_ns = streamed->batch->anchor_ns[window];
        *low = trajd_clock_rows_until(clock, rows, bounded(anchor_ns + from - width)) - NEIGHBOURS;
        *high = trajd_clock_rows_until(clock, rows, bounded(anchor_ns + to)) + NEIGHBOURS;
    }
    *low = between(*low, 0, rows - 1); /* one at least: what the edge holds */
    *low -= *low % streamed->brackets[b].quantum;
    *high = between(*high, *low + 1, rows);
}

/* From now on the window's first row is `low`. */
static void move_bracket(const struct trajd_gpu_streamed_rows *streamed, uint32_t b, uint32_t w,
                         int64_t low, int64_t high)
{
    const struct trajd_window_plan *plan = streamed->plan;
    const struct trajd_plan_bracket *bracket = &plan->brackets[b];
    const struct trajd_clock *clock = &plan->clocks[bracket->clock_index];
    const struct trajd_batch_bracket *arrays = &streamed->batch->brackets[b];

    arrays->row_begin[w] += low;
    arrays->row_count[w] = high - low;
    if (plan->grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS)
        arrays->anchor[w] -= low;
    else if (!clock->stamps_ns)
        arrays->anchor[w] -= trajd_rate_row_ns(clock->rate, low);
}

static void narrow_bracket(struct trajd_gpu_streamed_rows *streamed, uint32_t b, uint32_t first,
                           uint32_t count)
{
    for (uint32_t w = 0; w < count; w++) {
        int64_t low, high;
        find_rows(streamed, b, w, first + w, streamed->batch->brackets[b].row_count[w], &low,
                  &high);
        move_bracket(streamed, b, w, low, high);
        streamed->brackets[b].low[w] = low;
    }
}

static void move_residents(const struct trajd_gpu_streamed_rows *streamed, uint32_t t,
                           uint32_t count)
{
    const struct trajd_batch_target *target = &streamed->batch->targets[t];
    const uint32_t b = streamed->plan->targets[t].bracket_index;
    const uint64_t stride_bytes = streamed->plan->streams[t].row_stride_bytes;

    for (uint32_t w = 0; w < count; w++)
        if (target->bases[w])
            target->bases[w] = (const uint8_t *)target->bases[w] +
                               (uint64_t)streamed->brackets[b].low[w] * stride_bytes;
}

uint64_t trajd_gpu_streamed_narrow(struct trajd_gpu_streamed_rows *streamed, uint32_t first,
                                   uint32_t count)
{
    const struct trajd_window_plan *plan = streamed->plan;
    uint64_t size_bytes = 0;

    for (uint32_t b = 0; b < plan->bracket_count; b++)
        if (streamed->brackets[b].wanted)
            narrow_bracket(streamed, b, first, count);
    for (uint32_t t = 0; t < plan->target_count; t++)
        if (streamed->source_of[t] == RESIDENT &&
            streamed->brackets[plan->targets[t].bracket_index].wanted)
            move_residents(streamed, t, count);
    for (uint32_t g = 0; g < streamed->source_count; g++) {
        struct source *source = &streamed->streamed[g];
        for (uint32_t w = 0; w < count; w++) {
            source->places[w] = size_bytes;
            size_bytes +=
                round_up((uint64_t)streamed->batch->brackets[source->bracket_index].row_count[w] *
                         source->stride_bytes);
        }
    }
    return size_bytes;
}

struct gathering {
    const struct trajd_gpu_streamed_rows *streamed;
    uint32_t first;
    trajd_episode_rows host_rows;
    void *context;
    uint8_t *block, *device_block;
};

static void gather_window(void *context, uint32_t w)
{
    const struct gathering *gathering = context;
    const struct trajd_gpu_streamed_rows *streamed = gathering->streamed;
    const struct trajd_window_plan *plan = streamed->plan;
    const void *const *rows = gathering->host_rows(
        gathering->context, streamed->batch->windows[gathering->first + w].episode_index);

    for (uint32_t g = 0; rows && g < streamed->source_count; g++) {
        const struct source *source = &streamed->streamed[g];
        const int64_t low = streamed->brackets[source->bracket_index].low[w];
        if (rows[source->entry])
            memcpy(gathering->block + source->places[w],
                   (const uint8_t *)rows[source->entry] + (uint64_t)low * source->stride_bytes,
                   (uint64_t)streamed->batch->brackets[source->bracket_index].row_count[w] *
                       source->stride_bytes);
    }
    for (uint32_t t = 0; t < plan->target_count; t++) {
        const uint32_t g = streamed->source_of[t];
        if (g != RESIDENT)
            streamed->batch->targets[t].bases[w] =
                rows && rows[streamed->streamed[g].entry]
                    ? gathering->device_block + streamed->streamed[g].places[w]
                    : NULL;
    }
}

void trajd_gpu_streamed_gather(struct trajd_gpu_streamed_rows *streamed, uint32_t first,
                               uint32_t count, trajd_episode_rows host_rows, void *context,
                               uint8_t *block, uint8_t *device_block, struct trajd_pool *pool)
{
    struct gathering gathering = {streamed, first, host_rows, context, block, device_block};
    const struct source *last = &streamed->streamed[streamed->source_count - 1];

    trajd_pool_run(last->places[count - 1] >= POOL_BYTES ? pool : NULL, count, gather_window,
                   &gathering);
}
