#include "daemon/window/order/sampler.h"

#include "daemon/window/order/sampler_order.h"

#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"

#define GROUP_WINDOWS 16 /* windows that are looked up together */

/* The purposes of keys. They are part of the key, so that no two permutations of an epoch share
 * one. */
enum purpose { PURPOSE_GLOBAL = 1, PURPOSE_SHIFT = 2, PURPOSE_BLOCKS = 3, PURPOSE_GROUP = 4 };

struct trajd_sampler {
    struct trajd_segment *segments;
    uint64_t *first_window; /* [segment_count]: number of each segment's first window */
    uint32_t segment_count;
    uint64_t window_count;
    uint64_t fingerprint;
    uint64_t seed;
    enum trajd_order order;
    uint64_t block_windows;
    uint64_t block_neighbours;
    enum trajd_tail tail;
    uint64_t global_batch;
};

static enum trajd_status check_options(const struct trajd_sampler_options *options,
                                       struct trajd_error *error)
{
    uint64_t total = 0;

    if (options->segment_count == 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "there are no windows to sample");
    for (uint32_t i = 0; i < options->segment_count; i++) {
        uint64_t count = options->segments[i].window_count;
        if (count == 0)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "segment %u has no windows", i);
        /* positions of a wrapped epoch, N + G, must fit 64 bits too */
        if (count > INT64_MAX - total)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "more than 2^63 windows");
        if (options->segments[i].first_anchor > INT64_MAX - (int64_t)count)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "segment %u: anchors beyond 2^63",
                                   i);
        total += count;
    }
    if (options->global_batch == 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "global_batch is 0: expected at least 1");
    if ((unsigned)options->order > TRAJD_ORDER_SEQUENTIAL ||
        (unsigned)options->tail > TRAJD_TAIL_SHORT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "order %d or tail %d is unknown",
                               (int)options->order, (int)options->tail);
    if (options->order == TRAJD_ORDER_BLOCKED &&
        (options->block_windows == 0 || options->block_neighbours == 0))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "order: blocked needs block.windows and block.neighbours of at least 1");
    if (options->tail == TRAJD_TAIL_DROP && total < options->global_batch)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%llu windows are fewer than a global batch of %u, so tail: drop "
                               "leaves no batch: use tail: wrap or tail: short",
                               (unsigned long long)total, options->global_batch);
    return TRAJD_OK;
}

enum trajd_status trajd_sampler_create(const struct trajd_sampler_options *options,
                                       struct trajd_sampler **sampler, struct trajd_error *error)
{
    enum trajd_status status = check_options(options, error);
    struct trajd_sampler *made;

    *sampler = NULL;
    if (status)
        return status;
    made = calloc(1, sizeof *made);
    if (made) {
        made->segments = calloc(options->segment_count, sizeof *made->segments);
        made->first_window = calloc(options->segment_count, sizeof *made->first_window);
    }
    if (!made || !made->segments || !made->first_window) {
        trajd_sampler_destroy(&made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for %u segments",
                               options->segment_count);
    }
    memcpy(made->segments, options->segments, options->segment_count * sizeof *made->segments);
    for (uint32_t i = 0; i < options->segment_count; i++) {
        made->first_window[i] = made->window_count;
        made->window_count += options->segments[i].window_count;
    }
    made->segment_count = options->segment_count;
    made->fingerprint = options->fingerprint;
    made->seed = options->seed;
    made->order = options->order;
    made->block_windows = options->block_windows;
    made->block_neighbours = options->block_neighbours;
    made->tail = options->tail;
    made->global_batch = options->global_batch;
    *sampler = made;
    return TRAJD_OK;
}

void trajd_sampler_destroy(struct trajd_sampler **sampler)
{
    struct trajd_sampler *made = *sampler;

    *sampler = NULL;
    if (!made)
        return;
    free(made->segments);
    free(made->first_window);
    free(made);
}

uint64_t trajd_sampler_window_count(const struct trajd_sampler *sampler)
{
    return sampler->window_count;
}

uint64_t trajd_tail_epoch_length(enum trajd_tail tail, uint64_t window_count, uint64_t global_batch)
{
    const uint64_t over = window_count % global_batch;

    switch (tail) {
    case TRAJD_TAIL_DROP:
        return window_count - over;
    case TRAJD_TAIL_WRAP:
        return window_count + (over ? global_batch - over : 0);
    case TRAJD_TAIL_SHORT:
        break;
    }
    return window_count;
}

uint64_t trajd_sampler_epoch_length(const struct trajd_sampler *sampler)
{
    return trajd_tail_epoch_length(sampler->tail, sampler->window_count, sampler->global_batch);
}

uint64_t trajd_sampler_batch_count(const struct trajd_sampler *sampler, uint64_t begin_position)
{
    uint64_t remaining;

    if (begin_position >= sampler->window_count)
        return 0;
    remaining = sampler->window_count - begin_position;
    return remaining / sampler->global_batch +
           (sampler->tail != TRAJD_TAIL_DROP && remaining % sampler->global_batch != 0);
}

uint64_t trajd_sampler_dropped_count(const struct trajd_sampler *sampler)
{
    return sampler->tail == TRAJD_TAIL_DROP ? sampler->window_count % sampler->global_batch : 0;
}

static uint64_t key_for(const struct trajd_sampler *sampler, uint64_t epoch, enum purpose purpose,
                        uint64_t number)
{
    const uint64_t words[] = {
        TRAJD_SAMPLER_VERSION, sampler->fingerprint, sampler->seed, epoch, purpose, number};

    return trajd_mix(words, ARRAY_LEN(words));
}

/* Returns the window at a position of order blocked. Blocks are equal runs of window numbers, so
 * that the beginning of the g-th group of K permuted blocks is a product and not a sum. The last N
 * mod `block_windows` windows are a short block at the end of the last group. A keyed rotation of
 * the numbering makes that block different in every epoch. */
static uint64_t blocked_window(const struct trajd_sampler *sampler, uint64_t epoch,
                               uint64_t position)
{
    uint64_t n = sampler->window_count, block_windows = sampler->block_windows;
    uint64_t full_blocks = n / block_windows;
    uint64_t group_windows = block_windows * sampler->block_neighbours; /* both below 2^32 */
    uint64_t group = position / group_windows;
    uint64_t remaining = n - group * group_windows;
    uint64_t inside = trajd_permute(key_for(sampler, epoch, PURPOSE_GROUP, group),
                                    remaining < group_windows ? remaining : group_windows,
                                    position % group_windows);
    uint64_t block = group * sampler->block_neighbours + inside / block_windows;
    uint64_t shift = key_for(sampler, epoch, PURPOSE_SHIFT, 0) % n;
    uint64_t window;

    if (block < full_blocks)
        block = trajd_permute(key_for(sampler, epoch, PURPOSE_BLOCKS, 0), full_blocks, block);
    window = block * block_windows + inside % block_windows;
    return window < n - shift ? window + shift : window - (n - shift);
}

void trajd_sampler_at(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                      struct trajd_window *window)
{
    trajd_sampler_run(sampler, epoch, position, 1, window);
}

void trajd_sampler_order_make(const struct trajd_sampler *sampler, uint64_t epoch,
                              struct trajd_sampler_order *order)
{
    order->epoch = epoch;
    if (sampler->order == TRAJD_ORDER_GLOBAL)
        trajd_permutation_make(&order->global, key_for(sampler, epoch, PURPOSE_GLOBAL, 0),
                               sampler->window_count);
}

/* Finds the segments of several windows, with one binary search each. The searches have no branches
 * that depend on data and are interleaved, so that the processor neither mispredicts nor waits. */
static void find_segments(const struct trajd_sampler *sampler, const uint64_t *window_ids,
                          uint32_t count, uint32_t *low)
{
    memset(low, 0, count * sizeof *low);
    for (uint32_t remaining = sampler->segment_count; remaining > 1;) {
        const uint32_t half = remaining / 2;
        for (uint32_t i = 0; i < count; i++)
            low[i] += sampler->first_window[low[i] + half] <= window_ids[i] ? half : 0;
        remaining -= half;
    }
}

static struct trajd_window window_of(const struct trajd_sampler *sampler, uint64_t window_id,
                                     uint32_t s, int wrapped)
{
    const struct trajd_segment *segment = &sampler->segments[s];

    return (struct trajd_window){
        .window_id = window_id,
        .dataset_index = segment->dataset_index,
        .episode_index = segment->episode_index,
        .anchor = segment->first_anchor + (int64_t)(window_id - sampler->first_window[s]),
        .wrapped = wrapped,
    };
}

void trajd_sampler_window(const struct trajd_sampler *sampler, uint64_t window_id,
                          struct trajd_window *window)
{
    uint32_t segment;

    find_segments(sampler, &window_id, 1, &segment);
    *window = window_of(sampler, window_id, segment, 0);
}

/* Looks up at most GROUP_WINDOWS windows at positions < N. Those from index unwrapped_count on are
 * marked as wrapped. */
static void map_group(const struct trajd_sampler *sampler, const struct trajd_sampler_order *order,
                      const uint64_t *positions, uint32_t count, uint64_t unwrapped_count,
                      struct trajd_window *windows)
{
    uint64_t ids[GROUP_WINDOWS];
    uint32_t segments[GROUP_WINDOWS];

    memcpy(ids, positions, count * sizeof *ids);
    if (sampler->order == TRAJD_ORDER_GLOBAL)
        trajd_permutation_map(&order->global, ids, count);
    else if (sampler->order == TRAJD_ORDER_BLOCKED)
        for (uint32_t i = 0; i < count; i++)
            ids[i] = blocked_window(sampler, order->epoch, ids[i]);
    find_segments(sampler, ids, count, segments);
    for (uint32_t i = 0; i < count; i++)
        windows[i] = window_of(sampler, ids[i], segments[i], i >= unwrapped_count);
}

void trajd_sampler_order_map(const struct trajd_sampler *sampler,
                             const struct trajd_sampler_order *order, const uint64_t *positions,
                             uint32_t count, struct trajd_window *windows)
{
    for (uint32_t first = 0; first < count; first += GROUP_WINDOWS) {
        const uint32_t group_count = count - first < GROUP_WINDOWS ? count - first : GROUP_WINDOWS;
        map_group(sampler, order, positions + first, group_count, group_count, windows + first);
    }
}

void trajd_sampler_run(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows)
{
    const uint64_t n = sampler->window_count;
    struct trajd_sampler_order order;
    uint64_t positions[GROUP_WINDOWS];

    trajd_sampler_order_make(sampler, epoch, &order);
    for (uint32_t first = 0; first < count; first += GROUP_WINDOWS) {
        const uint64_t at = position + first;
        const uint32_t group_count = count - first < GROUP_WINDOWS ? count - first : GROUP_WINDOWS;
        /* only tail: wrap asks for positions from N on: the order begins again */
        for (uint32_t i = 0; i < group_count; i++)
            positions[i] = at + i < n ? at + i : (at + i) % n;
        map_group(sampler, &order, positions, group_count, at < n ? n - at : 0, windows + first);
    }
}
