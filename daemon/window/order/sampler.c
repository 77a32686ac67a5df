/* Looks up positions in the order of one dataset's windows. */
#include "daemon/window/order/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "proto/array_len.h"

#define GROUP_WINDOWS 16                       /* windows that are looked up together */
#define MOST_EPOCH_WINDOWS (UINT64_C(1) << 62) /* as in a mixture: sums with a batch fit 64 bits */

/* The purposes of keys. They are part of the key, so that no two permutations of an epoch share
 * one. */
enum purpose {
    PURPOSE_GLOBAL = 1,
    PURPOSE_SHIFT = 2,
    PURPOSE_BLOCKS = 3,
    PURPOSE_GROUP = 4,
    PURPOSE_DRAW = 7, /* a mixture has 5 and 6 */
};

struct trajd_sampler {
    struct trajd_segment *segments;
    uint64_t *first_window; /* [segment_count]: number of each segment's first window */
    /* [bucket_count + 1]: the segment of window number b << bucket_shift, or the last one. At most
     * two buckets per segment */
    uint32_t *segment_of_bucket;
    uint64_t bucket_count;
    uint32_t bucket_shift;
    uint32_t segment_count;
    uint64_t number_count;
    /* [episode_count + 1]: number of each episode's first window; NULL: a pass has all windows */
    uint64_t *first_of_episode;
    uint64_t episode_count;
    uint64_t epoch_windows;
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
    if (options->order == TRAJD_ORDER_BLOCKED && options->one_per_episode)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "order: blocked shuffles neighbouring windows together, so it has no "
            "use for one window per episode: use order: global");
    if (options->epoch_windows > MOST_EPOCH_WINDOWS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "an epoch of more than 2^62 windows");
    return TRAJD_OK;
}

static enum trajd_status check_tail(const struct trajd_sampler *sampler, struct trajd_error *error)
{
    const uint64_t count = trajd_sampler_window_count(sampler);

    if (sampler->tail != TRAJD_TAIL_DROP || count >= sampler->global_batch)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "%llu windows are fewer than a global batch of %llu, so tail: drop "
                           "leaves no batch: use tail: wrap or tail: short",
                           (unsigned long long)count, (unsigned long long)sampler->global_batch);
}

static bool is_other_episode(const struct trajd_segment *a, const struct trajd_segment *b)
{
    return a->episode_index != b->episode_index || a->dataset_index != b->dataset_index;
}

/* Numbers the windows over the segments, and finds where episodes begin. */
static void number_windows(struct trajd_sampler *made)
{
    for (uint32_t i = 0; i < made->segment_count; i++) {
        made->first_window[i] = made->number_count;
        if (made->first_of_episode &&
            (!i || is_other_episode(&made->segments[i - 1], &made->segments[i])))
            made->first_of_episode[made->episode_count++] = made->number_count;
        made->number_count += made->segments[i].window_count;
    }
    if (made->first_of_episode)
        made->first_of_episode[made->episode_count] = made->number_count;
}

/* Makes the buckets: runs of window numbers of equal length, so that few segments begin in one. */
static bool make_buckets(struct trajd_sampler *made)
{
    const uint64_t last = made->number_count - 1;
    uint32_t s = 0;

    while (last >> made->bucket_shift >= 2 * (uint64_t)made->segment_count)
        made->bucket_shift++;
    made->bucket_count = (last >> made->bucket_shift) + 1;
    made->segment_of_bucket = calloc(made->bucket_count + 1, sizeof *made->segment_of_bucket);
    for (uint64_t b = 0; b < made->bucket_count && made->segment_of_bucket; b++) {
        while (s + 1 < made->segment_count && made->first_window[s + 1] <= b << made->bucket_shift)
            s++;
        made->segment_of_bucket[b] = s;
    }
    if (made->segment_of_bucket)
        made->segment_of_bucket[made->bucket_count] = made->segment_count - 1;
    return made->segment_of_bucket != NULL;
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
        if (options->one_per_episode)
            made->first_of_episode =
                calloc((size_t)options->segment_count + 1, sizeof *made->first_of_episode);
    }
    if (made && made->segments && made->first_window &&
        (!options->one_per_episode || made->first_of_episode)) {
        memcpy(made->segments, options->segments, options->segment_count * sizeof *made->segments);
        made->segment_count = options->segment_count;
        number_windows(made);
    }
    if (!made || !made->segment_count || !make_buckets(made)) {
        trajd_sampler_destroy(&made);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for %u segments",
                               options->segment_count);
    }
    made->epoch_windows = options->epoch_windows;
    made->fingerprint = options->fingerprint;
    made->seed = options->seed;
    made->order = options->order;
    made->block_windows = options->block_windows;
    made->block_neighbours = options->block_neighbours;
    made->tail = options->tail;
    made->global_batch = options->global_batch;
    status = check_tail(made, error);
    if (status)
        trajd_sampler_destroy(&made);
    *sampler = made;
    return status;
}

void trajd_sampler_destroy(struct trajd_sampler **sampler)
{
    struct trajd_sampler *made = *sampler;

    *sampler = NULL;
    if (!made)
        return;
    free(made->segments);
    free(made->first_window);
    free(made->segment_of_bucket);
    free(made->first_of_episode);
    free(made);
}

uint64_t trajd_sampler_number_count(const struct trajd_sampler *sampler)
{
    return sampler->number_count;
}

uint64_t trajd_sampler_pass_count(const struct trajd_sampler *sampler)
{
    return sampler->first_of_episode ? sampler->episode_count : sampler->number_count;
}

uint64_t trajd_sampler_window_count(const struct trajd_sampler *sampler)
{
    return sampler->epoch_windows ? sampler->epoch_windows : trajd_sampler_pass_count(sampler);
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
    return trajd_tail_epoch_length(sampler->tail, trajd_sampler_window_count(sampler),
                                   sampler->global_batch);
}

uint64_t trajd_sampler_batch_count(const struct trajd_sampler *sampler, uint64_t begin_position)
{
    const uint64_t count = trajd_sampler_window_count(sampler);
    uint64_t remaining;

    if (begin_position >= count)
        return 0;
    remaining = count - begin_position;
    return remaining / sampler->global_batch +
           (sampler->tail != TRAJD_TAIL_DROP && remaining % sampler->global_batch != 0);
}

uint64_t trajd_sampler_dropped_count(const struct trajd_sampler *sampler)
{
    return sampler->tail == TRAJD_TAIL_DROP
               ? trajd_sampler_window_count(sampler) % sampler->global_batch
               : 0;
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
    uint64_t n = sampler->number_count, block_windows = sampler->block_windows;
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
                               trajd_sampler_pass_count(sampler));
}

/* Returns the segment of a window: a binary search among those that begin in its bucket, mostly one
 * or two. */
static uint32_t find_segment(const struct trajd_sampler *sampler, uint64_t window_id)
{
    const uint32_t *bucket = &sampler->segment_of_bucket[window_id >> sampler->bucket_shift];
    uint32_t low = bucket[0], high = bucket[1];

    while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        if (sampler->first_window[middle] <= window_id)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static struct trajd_window window_of(const struct trajd_sampler *sampler, uint64_t window_id,
                                     uint32_t s)
{
    const struct trajd_segment *segment = &sampler->segments[s];

    return (struct trajd_window){
        .window_id = window_id,
        .dataset_index = segment->dataset_index,
        .episode_index = segment->episode_index,
        .anchor = segment->first_anchor + (int64_t)(window_id - sampler->first_window[s]),
    };
}

void trajd_sampler_window(const struct trajd_sampler *sampler, uint64_t window_id,
                          struct trajd_window *window)
{
    *window = window_of(sampler, window_id, find_segment(sampler, window_id));
}

/* Returns the number of the window that is drawn from an episode in a pass. */
static uint64_t draw(const struct trajd_sampler *sampler, uint64_t pass, uint64_t episode)
{
    const uint64_t first = sampler->first_of_episode[episode];
    const uint64_t count = sampler->first_of_episode[episode + 1] - first;

    return first +
           (uint64_t)((unsigned __int128)key_for(sampler, pass, PURPOSE_DRAW, episode) * count >>
                      64);
}

/* Looks up at most GROUP_WINDOWS windows at positions of a pass. */
static void map_group(const struct trajd_sampler *sampler, const struct trajd_sampler_order *order,
                      const uint64_t *positions, uint32_t count, struct trajd_window *windows)
{
    uint64_t ids[GROUP_WINDOWS];

    memcpy(ids, positions, count * sizeof *ids);
    if (sampler->order == TRAJD_ORDER_GLOBAL)
        trajd_permutation_map(&order->global, ids, count);
    else if (sampler->order == TRAJD_ORDER_BLOCKED)
        for (uint32_t i = 0; i < count; i++)
            ids[i] = blocked_window(sampler, order->epoch, ids[i]);
    for (uint32_t i = 0; i < count && sampler->first_of_episode; i++)
        ids[i] = draw(sampler, order->epoch, ids[i]);
    for (uint32_t i = 0; i < count; i++)
        windows[i] = window_of(sampler, ids[i], find_segment(sampler, ids[i]));
    for (uint32_t i = 0; i < count; i++)
        windows[i].pass = order->epoch;
}

void trajd_sampler_order_map(const struct trajd_sampler *sampler,
                             const struct trajd_sampler_order *order, const uint64_t *positions,
                             uint32_t count, struct trajd_window *windows)
{
    for (uint32_t first = 0; first < count; first += GROUP_WINDOWS) {
        const uint32_t group_count = count - first < GROUP_WINDOWS ? count - first : GROUP_WINDOWS;
        map_group(sampler, order, positions + first, group_count, windows + first);
    }
}

/* Looks up `count` windows that follow each other in a pass. */
static void map_run(const struct trajd_sampler *sampler, const struct trajd_sampler_order *order,
                    uint64_t begin, uint32_t count, struct trajd_window *windows)
{
    uint64_t positions[GROUP_WINDOWS];

    for (uint32_t first = 0; first < count; first += GROUP_WINDOWS) {
        const uint32_t group_count = count - first < GROUP_WINDOWS ? count - first : GROUP_WINDOWS;
        for (uint32_t i = 0; i < group_count; i++)
            positions[i] = begin + first + i;
        map_group(sampler, order, positions, group_count, windows + first);
    }
}

/* Finds the pass of a position < N of an epoch, and the place in the pass. Passes go on over the
 * borders of epochs. */
static void find_pass(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                      uint64_t *pass, uint64_t *place)
{
    const uint64_t count = trajd_sampler_pass_count(sampler);
    const uint64_t absolute = epoch * sampler->epoch_windows + position; /* modulo 2^64 */

    *pass = sampler->epoch_windows ? absolute / count : epoch;
    *place = sampler->epoch_windows ? absolute % count : position;
}

static uint32_t least(uint64_t a, uint64_t b, uint32_t c)
{
    const uint64_t smaller = a < b ? a : b;
    return smaller < c ? (uint32_t)smaller : c;
}

void trajd_sampler_run(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows)
{
    const uint64_t n = trajd_sampler_window_count(sampler);
    struct trajd_sampler_order order;
    bool has_order = false;

    for (uint32_t first = 0, run; first < count; first += run) {
        /* only tail: wrap asks for positions from N on: the epoch begins again */
        const uint64_t at = position + first, within = at < n ? at : at % n;
        uint64_t pass, place;

        find_pass(sampler, epoch, within, &pass, &place);
        run = least(n - within, trajd_sampler_pass_count(sampler) - place, count - first);
        if (!has_order || order.epoch != pass)
            trajd_sampler_order_make(sampler, pass, &order);
        has_order = true;
        map_run(sampler, &order, place, run, windows + first);
        for (uint32_t i = 0; i < run; i++)
            windows[first + i].wrapped = at >= n;
    }
}
