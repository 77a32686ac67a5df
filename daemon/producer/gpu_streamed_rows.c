/* Finds which rows of streamed arrays a window touches, and gathers them for the copy. */
#include "daemon/producer/gpu_streamed_rows.h"

#include <string.h>

#define CHUNK_ALIGNMENT 256 /* the same as for resident episodes */
/* rows on each side of a target: the row that is blended, and one more for slopes and gaps */
#define NEIGHBOURS 2
#define FAR_NS (INT64_C(1) << 61)
#define POOL_BYTES ((uint64_t)1 << 20) /* fewer bytes are copied faster than the pool wakes up */
#define RESIDENT UINT32_MAX

/* A streamed array as seen through one bracket. */
struct source {
    uint32_t bracket_index, entry; /* `entry` counts in the streamed rows' selection */
    uint64_t stride_bytes;         /* of a row */
    uint64_t *places;              /* [G]: offset of the window's rows in the block */
};

struct narrowing {
    bool wanted;   /* a streamed source uses this bracket */
    int64_t width; /* largest width of a mean, in ns, or in rows on a grid of rows */
    int64_t reach; /* the same after the last target, of sums */
    int64_t
        quantum;  /* of a regular clock: row n * quantum is at a whole number of ns for every n */
    int64_t *low; /* [G]: the first row that the window touches */
};

struct trajd_gpu_streamed_rows {
    const struct trajd_window_plan *plan; /* the batch's */
    struct trajd_binding *batch;
    struct trajd_selection selection;
    uint32_t *array_indexes;
    bool *as_float32;
    struct source *sources; /* [source_count] */
    uint32_t source_count;
    uint32_t *source_of;        /* [plan->rules.target_count]: index of its source, or RESIDENT */
    struct narrowing *brackets; /* [plan->rules.bracket_count] */
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
        const uint64_t remainder = a % b;
        a = b;
        b = remainder;
    }
    return rate.num / (int64_t)a;
}

/* Returns how many of the first `entry` arrays of the plan's selection are not held. */
static uint32_t count_entries(const bool *held, uint32_t entry)
{
    uint32_t number = 0;

    for (uint32_t k = 0; k < entry; k++)
        number += !held[k];
    return number;
}

/* Selects the arrays that are not held, in the plan's order. */
static void select_entries(struct trajd_gpu_streamed_rows *streamed_rows, const bool *held)
{
    const struct trajd_selection *all = &streamed_rows->plan->selection;

    for (uint32_t k = 0; k < all->array_count; k++) {
        const uint32_t number = streamed_rows->selection.array_count;
        if (held[k])
            continue;
        streamed_rows->array_indexes[number] = all->array_indexes[k];
        streamed_rows->as_float32[number] = all->as_float32 && all->as_float32[k];
        streamed_rows->selection = (struct trajd_selection){streamed_rows->array_indexes,
                                                            number + 1, streamed_rows->as_float32};
    }
}

static uint32_t find_source(const struct trajd_gpu_streamed_rows *streamed_rows,
                            uint32_t bracket_index, uint32_t entry)
{
    uint32_t g = 0;

    while (g < streamed_rows->source_count &&
           (streamed_rows->sources[g].bracket_index != bracket_index ||
            streamed_rows->sources[g].entry != entry))
        g++;
    return g;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void add_target(struct trajd_gpu_streamed_rows *streamed_rows, const bool *held, uint32_t t,
                       struct trajd_arena *arena)
{
    const struct trajd_window_plan *plan = streamed_rows->plan;
    const struct trajd_plan_target *target = &plan->rules.targets[t];
    const struct trajd_stream *stream = &plan->rules.targets[t].stream;
    struct narrowing *narrowing = &streamed_rows->brackets[target->bracket_index];
    const uint64_t batch = plan->spec->global_batch;
    uint32_t entry, g;

    streamed_rows->source_of[t] = RESIDENT;
    narrowing->width = larger(narrowing->width, stream->mean_width);
    narrowing->reach =
        larger(narrowing->reach, stream->total == TRAJD_TOTAL_STEP   ? stream->total_width
                                 : stream->total == TRAJD_TOTAL_REST ? FAR_NS
                                                                     : 0);
    if (target->entry == TRAJD_PLAN_ABSENT || held[target->entry])
        return;
    entry = count_entries(held, target->entry);
    g = streamed_rows->source_of[t] = find_source(streamed_rows, target->bracket_index, entry);
    if (g < streamed_rows->source_count)
        return;
    streamed_rows->sources[streamed_rows->source_count++] =
        (struct source){target->bracket_index, entry, stream->row_stride_bytes,
                        trajd_arena_array(arena, batch, sizeof(uint64_t))};
    if (!narrowing->low)
        narrowing->low = trajd_arena_array(arena, batch, sizeof *narrowing->low);
    narrowing->wanted = true;
    narrowing->quantum =
        quantum_of(plan->clocks[plan->rules.brackets[target->bracket_index].clock_index].rate);
}

static uint64_t round_up(uint64_t size_bytes)
{
    return (size_bytes + CHUNK_ALIGNMENT - 1) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
}

/* Computes the largest bytes of a window: it touches at most all rows of its episode, once for each
 * source. */
static void find_largest(struct trajd_gpu_streamed_rows *streamed_rows)
{
    const struct trajd_window_plan *plan = streamed_rows->plan;

    for (uint32_t i = 0; i < plan->episode_count; i++) {
        uint64_t bytes = 0;
        for (uint32_t g = 0; g < streamed_rows->source_count; g++)
            bytes +=
                round_up((uint64_t)trajd_plan_row_count(
                             plan, &plan->rules.brackets[streamed_rows->sources[g].bracket_index],
                             &plan->dataset->index->episodes[plan->episodes[i]]) *
                         streamed_rows->sources[g].stride_bytes);
        streamed_rows->largest_bytes =
            bytes > streamed_rows->largest_bytes ? bytes : streamed_rows->largest_bytes;
    }
}

enum trajd_status trajd_gpu_streamed_rows_create(struct trajd_binding *batch, const bool *held,
                                                 struct trajd_arena *arena,
                                                 struct trajd_gpu_streamed_rows **out,
                                                 struct trajd_error *error)
{
    const struct trajd_window_plan *plan = batch->plan;
    const uint32_t count = count_entries(held, plan->selection.array_count);
    struct trajd_gpu_streamed_rows *made;

    *out = NULL;
    if (!count)
        return TRAJD_OK;
    made = trajd_arena_array(arena, 1, sizeof *made);
    if (made) {
        made->plan = plan;
        made->batch = batch;
        made->array_indexes = trajd_arena_array(arena, count, sizeof *made->array_indexes);
        made->as_float32 = trajd_arena_array(arena, count, sizeof *made->as_float32);
        made->sources = trajd_arena_array(arena, plan->rules.target_count, sizeof *made->sources);
        made->source_of =
            trajd_arena_array(arena, plan->rules.target_count, sizeof *made->source_of);
        made->brackets =
            trajd_arena_array(arena, plan->rules.bracket_count, sizeof *made->brackets);
    }
    if (!arena->is_starved)
        select_entries(made, held);
    for (uint32_t t = 0; t < plan->rules.target_count && !arena->is_starved; t++)
        add_target(made, held, t, arena);
    if (arena->is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                               "no memory for the rows that are streamed to a GPU");
    find_largest(made);
    *out = made;
    return TRAJD_OK;
}

const struct trajd_selection *
trajd_gpu_streamed_rows_selection(const struct trajd_gpu_streamed_rows *streamed_rows)
{
    return &streamed_rows->selection;
}

uint64_t trajd_gpu_streamed_rows_largest(const struct trajd_gpu_streamed_rows *streamed_rows)
{
    return streamed_rows->largest_bytes;
}

/* ---- a batch ---- */

/* Sets *from and *to to the smallest and the largest offset of a window's targets; both 0 where it
 * has none. */
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

/* Sets [*low, *high) to the rows that the window touches, of the `rows` that it may see. */
static void find_rows(const struct trajd_gpu_streamed_rows *streamed_rows, uint32_t b, uint32_t w,
                      uint32_t window, int64_t rows, int64_t *low, int64_t *high)
{
    const struct trajd_window_plan *plan = streamed_rows->plan;
    const struct trajd_plan_grid *grid = &plan->rules.grids[plan->rules.brackets[b].grid_index];
    const struct trajd_episode *episode =
        &plan->dataset->index->episodes[streamed_rows->batch->windows[window].episode_index];
    const struct trajd_episode_clock *clock = &episode->clocks[plan->rules.brackets[b].clock_index];
    const int64_t width = streamed_rows->brackets[b].width,
                  reach = streamed_rows->brackets[b].reach;
    int64_t from, to;

    *low = *high = 0;
    if (rows < 1)
        return;
    find_reach(&streamed_rows->batch->request_grids[plan->rules.brackets[b].grid_index], w, &from,
               &to);
    if (grid->rule == TRAJD_TARGET_ROWS) {
        const __int128 anchor = trajd_binding_anchor(streamed_rows->batch, grid, window);
        *low = bounded(anchor + from - width - NEIGHBOURS);
        *high = bounded(anchor + to + reach + 1 + NEIGHBOURS);
    } else {
        const __int128 anchor_ns = trajd_binding_anchor_ns(streamed_rows->batch, grid, window);
        *low = trajd_clock_rows_until(clock, rows, bounded(anchor_ns + from - width)) - NEIGHBOURS;
        *high = trajd_clock_rows_until(clock, rows, bounded(anchor_ns + to + reach)) + NEIGHBOURS;
    }
    *low = between(*low, 0, rows - 1); /* at least one row, which an edge repeats */
    *low -= *low % streamed_rows->brackets[b].quantum;
    *high = between(*high, *low + 1, rows);
}

/* Makes row `low` the first row of the window's bracket. */
static void move_bracket(const struct trajd_gpu_streamed_rows *streamed_rows, uint32_t b,
                         uint32_t w, int64_t low, int64_t high)
{
    const struct trajd_window_plan *plan = streamed_rows->plan;
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[b];
    const struct trajd_clock *clock = &plan->clocks[bracket->clock_index];
    const struct trajd_binding_bracket *arrays = &streamed_rows->batch->brackets[b];

    arrays->row_begin[w] += low;
    arrays->row_count[w] = high - low;
    if (plan->rules.grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS)
        arrays->anchor[w] -= low;
    else if (!clock->stamps_ns)
        arrays->anchor[w] -= trajd_rate_row_ns(clock->rate, low);
}

static void narrow_bracket(struct trajd_gpu_streamed_rows *streamed_rows, uint32_t b,
                           uint32_t first, uint32_t count)
{
    for (uint32_t w = 0; w < count; w++) {
        int64_t low, high;
        find_rows(streamed_rows, b, w, first + w, streamed_rows->batch->brackets[b].row_count[w],
                  &low, &high);
        move_bracket(streamed_rows, b, w, low, high);
        streamed_rows->brackets[b].low[w] = low;
    }
}

static void move_residents(const struct trajd_gpu_streamed_rows *streamed_rows, uint32_t t,
                           uint32_t count)
{
    const struct trajd_binding_target *target = &streamed_rows->batch->targets[t];
    const uint32_t b = streamed_rows->plan->rules.targets[t].bracket_index;
    const uint64_t stride_bytes = streamed_rows->plan->rules.targets[t].stream.row_stride_bytes;

    for (uint32_t w = 0; w < count; w++)
        if (target->bases[w])
            target->bases[w] = (const uint8_t *)target->bases[w] +
                               (uint64_t)streamed_rows->brackets[b].low[w] * stride_bytes;
}

uint64_t trajd_gpu_streamed_rows_narrow(struct trajd_gpu_streamed_rows *streamed_rows,
                                        uint32_t first, uint32_t count)
{
    const struct trajd_window_plan *plan = streamed_rows->plan;
    uint64_t size_bytes = 0;

    for (uint32_t b = 0; b < plan->rules.bracket_count; b++)
        if (streamed_rows->brackets[b].wanted)
            narrow_bracket(streamed_rows, b, first, count);
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (streamed_rows->source_of[t] == RESIDENT &&
            streamed_rows->brackets[plan->rules.targets[t].bracket_index].wanted)
            move_residents(streamed_rows, t, count);
    for (uint32_t g = 0; g < streamed_rows->source_count; g++) {
        struct source *source = &streamed_rows->sources[g];
        for (uint32_t w = 0; w < count; w++) {
            source->places[w] = size_bytes;
            size_bytes += round_up(
                (uint64_t)streamed_rows->batch->brackets[source->bracket_index].row_count[w] *
                source->stride_bytes);
        }
    }
    return size_bytes;
}

struct gathering {
    const struct trajd_gpu_streamed_rows *streamed_rows;
    uint32_t first;
    trajd_episode_rows host_rows;
    void *context;
    uint8_t *block, *device_block;
};

static void gather_window(void *context, uint32_t w)
{
    const struct gathering *gathering = context;
    const struct trajd_gpu_streamed_rows *streamed_rows = gathering->streamed_rows;
    const struct trajd_window_plan *plan = streamed_rows->plan;
    const void *const *rows = gathering->host_rows(
        gathering->context, streamed_rows->batch->windows[gathering->first + w].episode_index);

    for (uint32_t g = 0; rows && g < streamed_rows->source_count; g++) {
        const struct source *source = &streamed_rows->sources[g];
        const int64_t low = streamed_rows->brackets[source->bracket_index].low[w];
        if (rows[source->entry])
            memcpy(gathering->block + source->places[w],
                   (const uint8_t *)rows[source->entry] + (uint64_t)low * source->stride_bytes,
                   (uint64_t)streamed_rows->batch->brackets[source->bracket_index].row_count[w] *
                       source->stride_bytes);
    }
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        const uint32_t g = streamed_rows->source_of[t];
        if (g != RESIDENT)
            streamed_rows->batch->targets[t].bases[w] =
                rows && rows[streamed_rows->sources[g].entry]
                    ? gathering->device_block + streamed_rows->sources[g].places[w]
                    : NULL;
    }
}

void trajd_gpu_streamed_rows_gather(struct trajd_gpu_streamed_rows *streamed_rows, uint32_t first,
                                    uint32_t count, trajd_episode_rows host_rows, void *context,
                                    uint8_t *block, uint8_t *device_block, struct trajd_pool *pool)
{
    struct gathering gathering = {streamed_rows, first, host_rows, context, block, device_block};
    const struct source *last = &streamed_rows->sources[streamed_rows->source_count - 1];

    trajd_pool_run(last->places[count - 1] >= POOL_BYTES ? pool : NULL, count, gather_window,
                   &gathering);
}
