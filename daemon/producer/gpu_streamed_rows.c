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
struct guest {
    uint32_t bracket_index, entry; /* of the guests' selection */
    uint64_t stride_bytes;         /* of a row */
    uint64_t *places;              /* [G]: in the block */
};

struct narrowing {
    bool wanted;     /* some guest is seen through it */
    int64_t width;   /* of means: ns, or rows on a grid of rows */
    int64_t quantum; /* of a regular clock: row quantum * n stands at a whole ns for every n */
    int64_t *low;    /* [G]: the first row that the window touches */
};

struct trajd_gpu_guests {
    const struct trajd_window_plan *plan;
    struct trajd_selection selection;
    uint32_t *dataset_indexes;
    bool *as_float32;
    struct guest *guests; /* [guest_count] */
    uint32_t guest_count;
    uint32_t *guest_of;         /* [plan->target_count], or RESIDENT */
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
static void select_entries(struct trajd_gpu_guests *guests, const bool *held)
{
    const struct trajd_selection *all = &guests->plan->selection;

    for (uint32_t k = 0; k < all->dataset_count; k++) {
        const uint32_t number = guests->selection.dataset_count;
        if (held[k])
            continue;
        guests->dataset_indexes[number] = all->dataset_indexes[k];
        guests->as_float32[number] = all->as_float32 && all->as_float32[k];
        guests->selection =
            (struct trajd_selection){guests->dataset_indexes, number + 1, guests->as_float32};
    }
}

static uint32_t find_guest(const struct trajd_gpu_guests *guests, uint32_t bracket_index,
                           uint32_t entry)
{
    uint32_t g = 0;

    while (g < guests->guest_count &&
           (guests->guests[g].bracket_index != bracket_index || guests->guests[g].entry != entry))
        g++;
    return g;
}

static enum trajd_status add_target(struct trajd_gpu_guests *guests, const bool *held, uint32_t t,
                                    struct trajd_error *error)
{
    const struct trajd_window_plan *plan = guests->plan;
    const struct trajd_plan_target *target = &plan->targets[t];
    const struct trajd_stream *stream = &plan->request_streams[t];
    struct narrowing *narrowing = &guests->brackets[target->bracket_index];
    const uint64_t batch = plan->spec->global_batch;
    uint32_t entry, g;

    guests->guest_of[t] = RESIDENT;
    narrowing->width =
        stream->mean_width > narrowing->width ? stream->mean_width : narrowing->width;
    if (target->entry == TRAJD_PLAN_ABSENT || held[target->entry])
        return TRAJD_OK;
    entry = count_entries(held, target->entry);
    g = guests->guest_of[t] = find_guest(guests, target->bracket_index, entry);
    if (g < guests->guest_count)
        return TRAJD_OK;
    guests->guests[guests->guest_count++] = (struct guest){
        target->bracket_index, entry, stream->row_stride_bytes, calloc(batch, sizeof(uint64_t))};
    if (!narrowing->low)
        narrowing->low = calloc(batch, sizeof *narrowing->low);
    narrowing->wanted = true;
    narrowing->quantum =
        quantum_of(plan->request_clocks[plan->brackets[target->bracket_index].clock_index].rate);
    return guests->guests[g].places && narrowing->low
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's guests");
}

static uint64_t round_up(uint64_t size_bytes)
{
    return (size_bytes + CHUNK_ALIGNMENT - 1) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
}

/* A window touches an episode's rows at most, once through each bracket. */
static void find_largest(struct trajd_gpu_guests *guests)
{
    const struct trajd_window_plan *plan = guests->plan;

    for (uint32_t i = 0; i < plan->episode_count; i++) {
        uint64_t bytes = 0;
        for (uint32_t g = 0; g < guests->guest_count; g++)
            bytes += round_up((uint64_t)trajd_plan_row_count(
                                  plan, &plan->brackets[guests->guests[g].bracket_index],
                                  &plan->dataset->index->episodes[plan->episodes[i]]) *
                              guests->guests[g].stride_bytes);
        guests->largest_bytes = bytes > guests->largest_bytes ? bytes : guests->largest_bytes;
    }
}

enum trajd_status trajd_gpu_guests_create(const struct trajd_window_plan *plan, const bool *held,
                                          struct trajd_gpu_guests **out, struct trajd_error *error)
{
    const uint32_t count = count_entries(held, plan->selection.dataset_count);
    struct trajd_gpu_guests *guests;
    enum trajd_status status = TRAJD_OK;

    *out = NULL;
    if (!count)
        return TRAJD_OK;
    guests = calloc(1, sizeof *guests);
    if (!guests)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's guests");
    guests->plan = plan;
    guests->dataset_indexes = calloc(count, sizeof *guests->dataset_indexes);
    guests->as_float32 = calloc(count, sizeof *guests->as_float32);
    guests->guests = calloc(plan->target_count, sizeof *guests->guests);
    guests->guest_of = calloc(plan->target_count, sizeof *guests->guest_of);
    guests->brackets = calloc(plan->bracket_count, sizeof *guests->brackets);
    if (!guests->dataset_indexes || !guests->as_float32 || !guests->guests || !guests->guest_of ||
        !guests->brackets)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a GPU's guests");
    else
        select_entries(guests, held);
    for (uint32_t t = 0; t < plan->target_count && !status; t++)
        status = add_target(guests, held, t, error);
    if (status)
        trajd_gpu_guests_destroy(&guests);
    else
        find_largest(guests);
    *out = guests;
    return status;
}

void trajd_gpu_guests_destroy(struct trajd_gpu_guests **out)
{
    struct trajd_gpu_guests *guests = *out;

    *out = NULL;
    if (!guests)
        return;
    for (uint32_t g = 0; g < guests->guest_count; g++)
        free(guests->guests[g].places);
    for (uint32_t b = 0; guests->brackets && b < guests->plan->bracket_count; b++)
        free(guests->brackets[b].low);
    free(guests->dataset_indexes);
    free(guests->as_float32);
    free(guests->guests);
    free(guests->guest_of);
    free(guests->brackets);
    free(guests);
}

const struct trajd_selection *trajd_gpu_guests_selection(const struct trajd_gpu_guests *guests)
{
    return &guests->selection;
}

uint64_t trajd_gpu_guests_largest(const struct trajd_gpu_guests *guests)
{
    return guests->largest_bytes;
}

/* ---- a batch ---- */

/* The smallest and the largest offset of a window's targets; 0 and 0 where it has none. */
static void find_reach(const struct trajd_plan_grid *grid, uint32_t w, int64_t *from, int64_t *to)
{
    const int64_t *offsets = grid->offsets + (grid->per_window ? (size_t)w * grid->step_count : 0);
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
static void find_rows(const struct trajd_gpu_guests *guests, uint32_t b, uint32_t w,
                      uint32_t window, int64_t rows, int64_t *low, int64_t *high)
{
    const struct trajd_window_plan *plan = guests->plan;
    const struct trajd_plan_grid *grid = &plan->grids[plan->brackets[b].grid_index];
    const struct trajd_episode *episode =
        &plan->dataset->index->episodes[plan->windows[window].episode_index];
    const struct trajd_episode_clock *clock = &episode->clocks[plan->brackets[b].clock_index];
    const int64_t width = guests->brackets[b].width;
    int64_t from, to;

    *low = *high = 0;
    if (rows < 1)
        return;
    find_reach(grid, w, &from, &to);
    if (grid->rule == TRAJD_TARGET_ROWS) {
        const __int128 anchor = plan->windows[window].anchor;
        *low = bounded(anchor + from - width - NEIGHBOURS);
        *high = bounded(anchor + to + 1 + NEIGHBOURS);
    } else {
        const __int128 anchor_ns = plan->anchor_ns[window];
        *low = trajd_clock_rows_until(clock, rows, bounded(anchor_ns + from - width)) - NEIGHBOURS;
        *high = trajd_clock_rows_until(clock, rows, bounded(anchor_ns + to)) + NEIGHBOURS;
    }
    *low = between(*low, 0, rows - 1); /* one at least: what the edge holds */
    *low -= *low % guests->brackets[b].quantum;
    *high = between(*high, *low + 1, rows);
}

/* From now on the window's first row is `low`. */
static void move_bracket(const struct trajd_gpu_guests *guests, uint32_t b, uint32_t w, int64_t low,
                         int64_t high)
{
    const struct trajd_window_plan *plan = guests->plan;
    const struct trajd_plan_bracket *bracket = &plan->brackets[b];
    const struct trajd_clock *clock = &plan->request_clocks[bracket->clock_index];

    bracket->row_begin[w] += low;
    bracket->row_count[w] = high - low;
    if (plan->grids[bracket->grid_index].rule == TRAJD_TARGET_ROWS)
        bracket->anchor[w] -= low;
    else if (!clock->stamps_ns)
        bracket->anchor[w] -= trajd_rate_row_ns(clock->rate, low);
}

static void narrow_bracket(struct trajd_gpu_guests *guests, uint32_t b, uint32_t first,
                           uint32_t count)
{
    const struct trajd_window_plan *plan = guests->plan;

    for (uint32_t w = 0; w < count; w++) {
        int64_t low, high;
        find_rows(guests, b, w, first + w, plan->brackets[b].row_count[w], &low, &high);
        move_bracket(guests, b, w, low, high);
        guests->brackets[b].low[w] = low;
    }
}

static void move_residents(const struct trajd_gpu_guests *guests, uint32_t t, uint32_t count)
{
    const struct trajd_plan_target *target = &guests->plan->targets[t];
    const uint64_t stride_bytes = guests->plan->request_streams[t].row_stride_bytes;

    for (uint32_t w = 0; w < count; w++)
        if (target->bases[w])
            target->bases[w] =
                (const uint8_t *)target->bases[w] +
                (uint64_t)guests->brackets[target->bracket_index].low[w] * stride_bytes;
}

uint64_t trajd_gpu_guests_narrow(struct trajd_gpu_guests *guests, uint32_t first, uint32_t count)
{
    const struct trajd_window_plan *plan = guests->plan;
    uint64_t size_bytes = 0;

    for (uint32_t b = 0; b < plan->bracket_count; b++)
        if (guests->brackets[b].wanted)
            narrow_bracket(guests, b, first, count);
    for (uint32_t t = 0; t < plan->target_count; t++)
        if (guests->guest_of[t] == RESIDENT &&
            guests->brackets[plan->targets[t].bracket_index].wanted)
            move_residents(guests, t, count);
    for (uint32_t g = 0; g < guests->guest_count; g++) {
        struct guest *guest = &guests->guests[g];
        for (uint32_t w = 0; w < count; w++) {
            guest->places[w] = size_bytes;
            size_bytes += round_up((uint64_t)plan->brackets[guest->bracket_index].row_count[w] *
                                   guest->stride_bytes);
        }
    }
    return size_bytes;
}

struct gathering {
    const struct trajd_gpu_guests *guests;
    uint32_t first;
    trajd_episode_rows host_rows;
    void *context;
    uint8_t *block, *device_block;
};

static void gather_window(void *context, uint32_t w)
{
    const struct gathering *gathering = context;
    const struct trajd_gpu_guests *guests = gathering->guests;
    const struct trajd_window_plan *plan = guests->plan;
    const void *const *rows =
        gathering->host_rows(gathering->context, plan->windows[gathering->first + w].episode_index);

    for (uint32_t g = 0; rows && g < guests->guest_count; g++) {
        const struct guest *guest = &guests->guests[g];
        const int64_t low = guests->brackets[guest->bracket_index].low[w];
        if (rows[guest->entry])
            memcpy(gathering->block + guest->places[w],
                   (const uint8_t *)rows[guest->entry] + (uint64_t)low * guest->stride_bytes,
                   (uint64_t)plan->brackets[guest->bracket_index].row_count[w] *
                       guest->stride_bytes);
    }
    for (uint32_t t = 0; t < plan->target_count; t++) {
        const uint32_t g = guests->guest_of[t];
        if (g != RESIDENT)
            plan->targets[t].bases[w] = rows && rows[guests->guests[g].entry]
                                            ? gathering->device_block + guests->guests[g].places[w]
                                            : NULL;
    }
}

void trajd_gpu_guests_gather(struct trajd_gpu_guests *guests, uint32_t first, uint32_t count,
                             trajd_episode_rows host_rows, void *context, uint8_t *block,
                             uint8_t *device_block, struct trajd_pool *pool)
{
    struct gathering gathering = {guests, first, host_rows, context, block, device_block};
    const struct guest *last = &guests->guests[guests->guest_count - 1];

    trajd_pool_run(last->places[count - 1] >= POOL_BYTES ? pool : NULL, count, gather_window,
                   &gathering);
}
