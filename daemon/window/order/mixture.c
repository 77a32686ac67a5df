/* Looks up positions of a mixture: the round, the dataset and its window. */
#include "daemon/window/order/mixture.h"

#include <stdbool.h>
#include <stdlib.h>

#include "proto/array_len.h"
#include "proto/plural.h"

/* windows of a member that are looked up together: one by one, each step would wait for the last */
#define GROUP_WINDOWS 16

/* The purposes of keys. A sampler's purposes have smaller numbers. */
enum { PURPOSE_SLOTS = 5, PURPOSE_SEED = 6 };

struct member {
    const struct trajd_sampler *sampler;
    uint64_t weight;       /* c_d */
    uint64_t first_slot;   /* s_d */
    uint64_t first_window; /* number of its first window in the mixture */
    uint64_t window_count; /* N_d: windows of a pass */
};

struct trajd_mixture {
    uint32_t member_count;
    uint64_t weight_sum;
    uint64_t fingerprint, seed;
    uint64_t epoch_windows;
    enum trajd_tail tail;
    uint64_t global_batch;
    struct member members[];
};

/* Positions of one member in one pass that are looked up together, and the rows for their
 * windows. */
struct group {
    uint32_t count;
    uint32_t rows[GROUP_WINDOWS];
    uint64_t positions[GROUP_WINDOWS];
};

/* What a run of positions keeps between two positions: where the round and the passes begin. Inside
 * a round and a pass no division is needed. */
struct walk {
    bool is_ready;
    uint64_t round, round_begin;
    struct trajd_permutation slots;
    bool has_order[TRAJD_MIXTURE_MAX_DATASETS];
    uint64_t pass_begin[TRAJD_MIXTURE_MAX_DATASETS];
    struct trajd_sampler_order orders[TRAJD_MIXTURE_MAX_DATASETS]; /* of the passes */
    struct group groups[TRAJD_MIXTURE_MAX_DATASETS];
    struct trajd_window *windows; /* by row */
};

static enum trajd_status check_options(const struct trajd_mixture_options *options,
                                       struct trajd_error *error)
{
    if (options->dataset_count < 1 || options->dataset_count > TRAJD_MIXTURE_MAX_DATASETS)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "a mixture of %u datasets: expected 1 to %d", options->dataset_count,
                               TRAJD_MIXTURE_MAX_DATASETS);
    for (uint32_t d = 0; d < options->dataset_count && options->weights; d++)
        if (options->weights[d] < 1 ||
            options->weights[d] > TRAJD_MIXTURE_MAX_LENGTH / TRAJD_MIXTURE_MAX_DATASETS)
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "weight %u is %llu: expected 1 to 2^56", d,
                                   (unsigned long long)options->weights[d]);
    if (options->global_batch == 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "global_batch is 0: expected at least 1");
    if ((unsigned)options->tail > TRAJD_TAIL_SHORT)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "tail %d is unknown",
                               (int)options->tail);
    return TRAJD_OK;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t remainder = a % b;
        a = b;
        b = remainder;
    }
    return a;
}

/* Sets the slots, first numbers and sizes of the members. Returns the windows of a pass over each
 * member, or 0 where there are too many. */
static uint64_t place_members(struct trajd_mixture *mixture,
                              const struct trajd_mixture_options *options)
{
    uint64_t divisor = 0, windows = 0, numbers = 0;

    for (uint32_t d = 0; d < options->dataset_count; d++)
        divisor = common_divisor(divisor, trajd_sampler_window_count(options->samplers[d]));
    for (uint32_t d = 0; d < options->dataset_count; d++) {
        struct member *member = &mixture->members[d];
        member->sampler = options->samplers[d];
        member->window_count = trajd_sampler_window_count(member->sampler);
        member->weight = options->weights ? options->weights[d] : member->window_count / divisor;
        member->first_slot = mixture->weight_sum;
        member->first_window = numbers;
        if (trajd_sampler_number_count(member->sampler) > TRAJD_MIXTURE_MAX_LENGTH - numbers)
            return 0;
        mixture->weight_sum += member->weight;
        numbers += trajd_sampler_number_count(member->sampler);
        windows += member->window_count;
    }
    return windows;
}

enum trajd_status trajd_mixture_create(const struct trajd_mixture_options *options,
                                       struct trajd_mixture **out, struct trajd_error *error)
{
    enum trajd_status status = check_options(options, error);
    struct trajd_mixture *mixture;
    uint64_t windows;

    *out = NULL;
    if (status)
        return status;
    mixture = calloc(1, sizeof *mixture + options->dataset_count * sizeof mixture->members[0]);
    if (!mixture)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for a mixture");
    mixture->member_count = options->dataset_count;
    mixture->fingerprint = options->fingerprint;
    mixture->seed = options->seed;
    mixture->tail = options->tail;
    mixture->global_batch = options->global_batch;
    windows = place_members(mixture, options);
    mixture->epoch_windows = options->epoch_windows ? options->epoch_windows : windows;
    if (!windows || mixture->epoch_windows > TRAJD_MIXTURE_MAX_LENGTH)
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "more than 2^62 windows");
    else if (options->tail == TRAJD_TAIL_DROP && mixture->epoch_windows < options->global_batch)
        status = trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                 "an epoch of %llu window%s is shorter than a global batch of %u, "
                                 "so tail: drop leaves no batch: use tail: wrap or tail: short",
                                 (unsigned long long)mixture->epoch_windows,
                                 trajd_plural(mixture->epoch_windows), options->global_batch);
    if (status)
        trajd_mixture_destroy(&mixture);
    *out = mixture;
    return status;
}

void trajd_mixture_destroy(struct trajd_mixture **mixture)
{
    free(*mixture);
    *mixture = NULL;
}

uint64_t trajd_mixture_seed(uint64_t seed, uint32_t dataset_index)
{
    const uint64_t words[] = {TRAJD_MIXTURE_VERSION, seed, PURPOSE_SEED, dataset_index};

    return trajd_mix(words, ARRAY_LEN(words));
}

uint64_t trajd_mixture_epoch_windows(const struct trajd_mixture *mixture)
{
    return mixture->epoch_windows;
}

uint64_t trajd_mixture_epoch_length(const struct trajd_mixture *mixture)
{
    return trajd_tail_epoch_length(mixture->tail, mixture->epoch_windows, mixture->global_batch);
}

uint64_t trajd_mixture_dropped_count(const struct trajd_mixture *mixture)
{
    return mixture->tail == TRAJD_TAIL_DROP ? mixture->epoch_windows % mixture->global_batch : 0;
}

uint64_t trajd_mixture_weight(const struct trajd_mixture *mixture, uint32_t dataset_index)
{
    return mixture->members[dataset_index].weight;
}

uint64_t trajd_mixture_weight_sum(const struct trajd_mixture *mixture)
{
    return mixture->weight_sum;
}

/* Returns the member that owns a slot. There are few members, so the search is linear. */
static uint32_t owner_of(const struct trajd_mixture *mixture, uint64_t slot)
{
    uint32_t d = mixture->member_count - 1;

    while (slot < mixture->members[d].first_slot)
        d--;
    return d;
}

static void set_number(const struct trajd_mixture *mixture, uint32_t d, struct trajd_window *window)
{
    window->window_id += mixture->members[d].first_window;
    window->dataset_index = d;
}

static void enter_round(const struct trajd_mixture *mixture, uint64_t round, struct walk *walk)
{
    const uint64_t words[] = {TRAJD_MIXTURE_VERSION, mixture->fingerprint, mixture->seed,
                              PURPOSE_SLOTS, round};

    trajd_permutation_make(&walk->slots, trajd_mix(words, ARRAY_LEN(words)), mixture->weight_sum);
    walk->round = round;
    walk->round_begin = round * mixture->weight_sum;
    walk->is_ready = true;
}

static void enter_pass(const struct member *member, uint32_t d, uint64_t pass, struct walk *walk)
{
    trajd_sampler_order_make(member->sampler, pass, &walk->orders[d]);
    walk->pass_begin[d] = pass * member->window_count;
    walk->has_order[d] = true;
}

/* Looks up the windows of a member's group. */
static void flush(const struct trajd_mixture *mixture, uint32_t d, struct walk *walk)
{
    struct group *group = &walk->groups[d];
    struct trajd_window windows[GROUP_WINDOWS];

    trajd_sampler_order_map(mixture->members[d].sampler, &walk->orders[d], group->positions,
                            group->count, windows);
    for (uint32_t i = 0; i < group->count; i++) {
        struct trajd_window *window = &walk->windows[group->rows[i]];
        *window = windows[i];
        set_number(mixture, d, window);
    }
    group->count = 0;
}

/* Adds a row for the window of a slot of the round to its member's group. All positions of a group
 * are of one pass. */
static void add_row(const struct trajd_mixture *mixture, uint64_t slot, uint32_t row,
                    struct walk *walk)
{
    const uint32_t d = owner_of(mixture, slot);
    const struct member *member = &mixture->members[d];
    const uint64_t j = walk->round * member->weight + slot - member->first_slot;
    struct group *group = &walk->groups[d];

    if (!walk->has_order[d] || j - walk->pass_begin[d] >= member->window_count) {
        flush(mixture, d, walk);
        enter_pass(member, d, j / member->window_count, walk);
    }
    group->rows[group->count] = row;
    group->positions[group->count++] = j - walk->pass_begin[d];
    if (group->count == GROUP_WINDOWS)
        flush(mixture, d, walk);
}

/* Adds rows from an absolute position on: at most GROUP_WINDOWS and `count`, all of one round.
 * Returns how many. */
static uint32_t add_rows(const struct trajd_mixture *mixture, uint64_t position, uint32_t row,
                         uint64_t count, struct walk *walk)
{
    uint64_t slots[GROUP_WINDOWS], begin, remaining;

    if (!walk->is_ready || position - walk->round_begin >= mixture->weight_sum)
        enter_round(mixture, position / mixture->weight_sum, walk);
    begin = position - walk->round_begin;
    remaining = mixture->weight_sum - begin;
    count = remaining < count ? remaining : count;
    count = count < GROUP_WINDOWS ? count : GROUP_WINDOWS;
    for (uint32_t i = 0; i < count; i++)
        slots[i] = begin + i;
    trajd_permutation_map(&walk->slots, slots, (uint32_t)count);
    for (uint32_t i = 0; i < count; i++)
        add_row(mixture, slots[i], row + i, walk);
    return (uint32_t)count;
}

void trajd_mixture_run(const struct trajd_mixture *mixture, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows)
{
    const uint64_t length = mixture->epoch_windows;
    struct walk walk;

    walk.is_ready = false;
    walk.windows = windows;
    for (uint32_t d = 0; d < mixture->member_count; d++) {
        walk.has_order[d] = false;
        walk.groups[d].count = 0;
    }
    for (uint32_t row = 0; row < count;) {
        /* only tail: wrap asks for positions from `length` on */
        const uint64_t within =
            position + row < length ? position + row : (position + row) % length;
        const uint64_t remaining = length - within;
        row += add_rows(mixture, epoch * length + within, row,
                        remaining < count - row ? remaining : count - row, &walk);
    }
    for (uint32_t d = 0; d < mixture->member_count; d++)
        flush(mixture, d, &walk);
    for (uint32_t row = 0; row < count; row++)
        windows[row].wrapped = position + row >= length;
}

void trajd_mixture_window(const struct trajd_mixture *mixture, uint64_t window_id,
                          struct trajd_window *window)
{
    uint32_t d = mixture->member_count - 1;

    while (window_id < mixture->members[d].first_window)
        d--;
    trajd_sampler_window(mixture->members[d].sampler, window_id - mixture->members[d].first_window,
                         window);
    set_number(mixture, d, window);
}
