/* Counts values in histograms sweep by sweep, and computes the quantiles. */
#include "daemon/stats/histogram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/clones.h"
#include "kernels/element_convert.h"

#define TILE TRAJD_HISTOGRAM_TILE
#define NO_NODE 0xff

const double trajd_histogram_quantiles[TRAJD_STATISTICS_QUANTILES] = {0.01, 0.10, 0.50, 0.90, 0.99};

/* Finite values of rows that count, gathered from memory. */
struct tile {
    double values[TILE];
    uint32_t weights[TILE];
    uint32_t count;
};

/* Bins of a sweep; those of bytes are counted at once. */
static uint32_t bin_count(const struct trajd_histogram *histogram)
{
    return 1u << histogram->level_bits;
}

uint32_t trajd_histogram_key_bits(enum trajd_dtype dtype)
{
    switch (dtype) {
    case TRAJD_U8:
    case TRAJD_BOOL:
        return 8;
    case TRAJD_F64:
    case TRAJD_I32:
    case TRAJD_U32:
    case TRAJD_I64:
    case TRAJD_U64:
        return 64;
    default:
        return 32;
    }
}

uint32_t trajd_histogram_sweeps(uint32_t key_bits, uint32_t level_bits)
{
    return (key_bits + level_bits - 1) / level_bits;
}

uint64_t trajd_histogram_bytes(uint32_t key_bits, uint32_t level_bits)
{
    const uint64_t levels = trajd_histogram_sweeps(key_bits, level_bits), bins = 1u << level_bits;
    return sizeof(struct trajd_histogram) +
           bins * sizeof(uint64_t) * (levels > 1 ? TRAJD_HISTOGRAM_RANKS : 1) +
           bins * TRAJD_HISTOGRAM_RANKS * (levels - 1);
}

/* The bits of a key that a level counts: (key >> shift) & mask. */
struct level {
    uint32_t shift;
    uint64_t mask;
};

static struct level level_of(const struct trajd_histogram *histogram, uint32_t level)
{
    const uint32_t below = histogram->key_bits - histogram->level_bits * level;
    const uint32_t width = below < histogram->level_bits ? below : histogram->level_bits;

    return (struct level){below - width, (UINT64_C(1) << width) - 1};
}

/* The key of a float: its bits, where those of negative numbers are inverted, and the sign bit is
 * inverted for all. */
TRAJD_CLONES static void fill_single_keys(const double *restrict values, uint32_t count,
                                          uint32_t *restrict keys)
{
    for (uint32_t i = 0; i < count; i++) {
        const float single = (float)values[i];
        int32_t bits;
        memcpy(&bits, &single, sizeof bits);
        keys[i] = (uint32_t)bits ^ ((uint32_t)(bits >> 31) | UINT32_C(1) << 31);
    }
}

static void fill_double_keys(const double *values, uint32_t count, uint64_t *keys)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        keys[i] = bits ^ (bits >> 63 ? UINT64_MAX : UINT64_C(1) << 63);
    }
}

static double value_of_key(uint64_t key, uint32_t key_bits)
{
    if (key_bits == 8)
        return (double)key;
    if (key_bits == 32) {
        const uint32_t bits = (uint32_t)key ^ (key >> 31 ? UINT32_C(1) << 31 : UINT32_MAX);
        float single;
        memcpy(&single, &bits, sizeof single);
        return (double)single;
    } else {
        const uint64_t bits = key ^ (key >> 63 ? UINT64_C(1) << 63 : UINT64_MAX);
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
}

enum trajd_status trajd_histogram_begin(struct trajd_histogram *histogram, uint32_t key_bits,
                                        uint32_t level_bits, struct trajd_error *error)
{
    *histogram =
        (struct trajd_histogram){.key_bits = key_bits, .level_bits = level_bits, .node_count = 1};
    histogram->found.min = INFINITY;
    histogram->found.max = -INFINITY;
    histogram->counts = calloc(bin_count(histogram), sizeof *histogram->counts);
    return histogram->counts
               ? TRAJD_OK
               : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
}

/* ---- gathering ---- */

static inline double load(enum trajd_dtype dtype, const char *at)
{
    float single;
    double wide;

    if (dtype == TRAJD_F32) {
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
    if (dtype == TRAJD_F64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    return trajd_element_load(dtype, at);
}

static inline __attribute__((always_inline)) void
gather_rows(struct trajd_histogram *histogram, struct tile *tile, enum trajd_dtype dtype,
            bool rounds, const char *at, uint64_t stride, const uint32_t *weights, uint32_t count)
{
    const bool first_sweep = histogram->level == 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++, at += stride) {
        const uint32_t weight = weights ? weights[i] : 1;
        double value = load(dtype, at);
        if (rounds)
            value = (double)(float)value;
        tile->values[kept] = value + 0.0; /* -0 becomes 0 */
        tile->weights[kept] = weight;
        if (__builtin_expect(isfinite(value), 1)) {
            kept += weight != 0;
        } else if (first_sweep) {
            *(isnan(value) ? &histogram->found.nan : &histogram->found.infinite) += weight;
        }
    }
    tile->count = kept;
}

static void gather(struct trajd_histogram *histogram, struct tile *tile,
                   const struct trajd_histogram_values *values, const char *at,
                   const uint32_t *weights, uint32_t count)
{
    const uint64_t stride = values->row_stride_bytes;

    if (values->dtype == TRAJD_F32)
        gather_rows(histogram, tile, TRAJD_F32, false, at, stride, weights, count);
    else if (values->dtype == TRAJD_F64 && histogram->key_bits == 64)
        gather_rows(histogram, tile, TRAJD_F64, false, at, stride, weights, count);
    else
        gather_rows(histogram, tile, values->dtype, histogram->key_bits == 32, at, stride, weights,
                    count);
}

/* ---- counting ---- */

/* Merges a tile's count, mean and sum of squared distances into those of all tiles before it
 * (Chan's formula). */
static void merge(struct trajd_histogram *histogram, uint64_t count, double mean, double m2)
{
    struct trajd_feature_statistics *found = &histogram->found;
    const double n = (double)found->count, m = (double)count, delta = mean - found->mean;

    if (!found->count) {
        found->count = count;
        found->mean = mean;
        histogram->m2 = m2;
        return;
    }
    found->count += count;
    found->mean += delta * (m / (n + m));
    histogram->m2 += m2 + delta * delta * (n * (m / (n + m)));
}

static void add_moments(struct trajd_histogram *histogram, const struct tile *tile)
{
    double sums[4] = {0}, squares[4] = {0}, low = histogram->found.min, high = histogram->found.max,
           mean;
    uint64_t count = 0;

    for (uint32_t i = 0; i < tile->count; i++) {
        const double value = tile->values[i];
        sums[i & 3] += tile->weights[i] * value;
        count += tile->weights[i];
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    if (!count)
        return;
    mean = ((sums[0] + sums[1]) + (sums[2] + sums[3])) / (double)count;
    for (uint32_t i = 0; i < tile->count; i++) {
        const double distance = tile->values[i] - mean;
        squares[i & 3] += tile->weights[i] * (distance * distance);
    }
    histogram->found.min = low;
    histogram->found.max = high;
    merge(histogram, count, mean, (squares[0] + squares[1]) + (squares[2] + squares[3]));
}

static inline __attribute__((always_inline)) void count_key(struct trajd_histogram *histogram,
                                                            const struct level *levels,
                                                            uint64_t key, uint32_t weight)
{
    const uint32_t bins = bin_count(histogram);
    uint32_t node = 0;

    for (uint32_t above = 0; above < histogram->level && node != NO_NODE; above++)
        node = histogram->children[above][node * bins +
                                          ((key >> levels[above].shift) & levels[above].mask)];
    if (node != NO_NODE)
        histogram->counts[node * bins + ((key >> levels[histogram->level].shift) &
                                         levels[histogram->level].mask)] += weight;
}

static void count_singles(struct trajd_histogram *histogram, const struct level *levels,
                          const uint32_t *keys, const uint32_t *weights, uint32_t count)
{
    uint64_t *counts = histogram->counts;
    const uint32_t shift = levels[0].shift;

    for (uint32_t i = 0; i < count && histogram->level == 0; i++)
        counts[keys[i] >> shift] += weights ? weights[i] : 1;
    for (uint32_t i = 0; i < count && histogram->level > 0; i++)
        if (histogram->children[0][keys[i] >> shift] != NO_NODE)
            count_key(histogram, levels, keys[i], weights ? weights[i] : 1);
}

/* Counts the keys of a tile. weights NULL: each counts once. */
static void count_keys(struct trajd_histogram *histogram, const double *values,
                       const uint32_t *weights, uint32_t count)
{
    struct level levels[TRAJD_HISTOGRAM_LEVELS];
    uint32_t singles[TILE];
    uint64_t doubles[TILE];

    for (uint32_t level = 0; level <= histogram->level; level++)
        levels[level] = level_of(histogram, level);
    if (histogram->key_bits == 32) {
        fill_single_keys(values, count, singles);
        count_singles(histogram, levels, singles, weights, count);
        return;
    }
    fill_double_keys(values, count, doubles);
    for (uint32_t i = 0; i < count; i++)
        count_key(histogram, levels, doubles[i], weights ? weights[i] : 1);
}

static void count_bytes(struct trajd_histogram *histogram,
                        const struct trajd_histogram_values *values)
{
    for (uint64_t row = 0; row < values->row_count; row++) {
        const uint8_t *at = (const uint8_t *)values->base + row * values->row_stride_bytes;
        const uint32_t weight = values->weights ? values->weights[row] : 1;
        for (uint32_t i = 0; weight && i < values->group; i++, at += values->group_stride_bytes)
            histogram->counts[*at] += weight;
    }
}

void trajd_histogram_add(struct trajd_histogram *histogram,
                         const struct trajd_histogram_values *values)
{
    struct tile tile;

    if (histogram->key_bits == 8) {
        count_bytes(histogram, values);
        return;
    }
    for (uint64_t row = 0; row < values->row_count; row += TILE) {
        const uint64_t remaining = values->row_count - row;
        gather(histogram, &tile, values,
               (const char *)values->base + row * values->row_stride_bytes,
               values->weights ? values->weights + row : NULL,
               remaining < TILE ? (uint32_t)remaining : TILE);
        if (histogram->level == 0)
            add_moments(histogram, &tile);
        count_keys(histogram, tile.values, tile.weights, tile.count);
    }
}

/* ---- tiles without weights ---- */

#define SIDE 8 /* sums side by side, which the compiler keeps in vectors */

struct moments {
    double sum, low, high;
    bool is_finite; /* all values are */
};

TRAJD_CLONES static void find_moments(const double *restrict values, uint32_t count,
                                      struct moments *restrict found)
{
    double sums[SIDE] = {0}, lows[SIDE], highs[SIDE], zeros[SIDE] = {0};
    uint32_t i = 0;

    for (uint32_t k = 0; k < SIDE; k++) {
        lows[k] = INFINITY;
        highs[k] = -INFINITY;
    }
    for (; i + SIDE <= count; i += SIDE)
        for (uint32_t k = 0; k < SIDE; k++) {
            const double value = values[i + k];
            sums[k] += value;
            zeros[k] += value - value; /* NaN if it is not finite */
            lows[k] = value < lows[k] ? value : lows[k];
            highs[k] = value > highs[k] ? value : highs[k];
        }
    for (; i < count; i++) {
        sums[0] += values[i];
        zeros[0] += values[i] - values[i];
        lows[0] = values[i] < lows[0] ? values[i] : lows[0];
        highs[0] = values[i] > highs[0] ? values[i] : highs[0];
    }
    for (uint32_t half = SIDE / 2; half; half /= 2)
        for (uint32_t k = 0; k < half; k++) {
            sums[k] += sums[k + half];
            zeros[k] += zeros[k + half];
            lows[k] = lows[k + half] < lows[k] ? lows[k + half] : lows[k];
            highs[k] = highs[k + half] > highs[k] ? highs[k + half] : highs[k];
        }
    *found = (struct moments){sums[0], lows[0], highs[0], !isnan(zeros[0])};
}

TRAJD_CLONES static double sum_squares(const double *values, uint32_t count, double mean)
{
    double sums[SIDE] = {0};
    uint32_t i = 0;

    for (; i + SIDE <= count; i += SIDE)
        for (uint32_t k = 0; k < SIDE; k++)
            sums[k] += (values[i + k] - mean) * (values[i + k] - mean);
    for (; i < count; i++)
        sums[0] += (values[i] - mean) * (values[i] - mean);
    for (uint32_t half = SIDE / 2; half; half /= 2)
        for (uint32_t k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

/* Counts values of which some are not finite. */
static void add_mixed_tile(struct trajd_histogram *histogram, const double *values, uint32_t count)
{
    double finite[TILE];
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            finite[kept++] = values[i];
        else if (histogram->level == 0)
            ++*(isnan(values[i]) ? &histogram->found.nan : &histogram->found.infinite);
    trajd_histogram_add_tile(histogram, finite, kept);
}

void trajd_histogram_add_tile(struct trajd_histogram *histogram, const double *values,
                              uint32_t count)
{
    struct trajd_feature_statistics *found = &histogram->found;
    struct moments moments;

    if (histogram->level > 0 && histogram->key_bits == 32) {
        /* no bin of finite floats has other ones */
        count_keys(histogram, values, NULL, count);
        return;
    }
    if (!count)
        return;
    find_moments(values, count, &moments);
    if (!moments.is_finite) {
        add_mixed_tile(histogram, values, count);
        return;
    }
    if (histogram->level == 0) {
        const double mean = moments.sum / count;
        found->min = moments.low < found->min ? moments.low : found->min;
        found->max = moments.high > found->max ? moments.high : found->max;
        merge(histogram, count, mean, sum_squares(values, count, mean));
    }
    count_keys(histogram, values, NULL, count);
}

/* ---- between sweeps ---- */

/* Computes the moments of bytes from their counts. */
static void moments_of_bytes(struct trajd_histogram *histogram)
{
    struct trajd_feature_statistics *found = &histogram->found;
    double sum = 0;

    for (uint32_t b = 0; b < 256; b++) {
        if (!histogram->counts[b])
            continue;
        found->min = found->count ? found->min : b;
        found->max = b;
        found->count += histogram->counts[b];
        sum += (double)histogram->counts[b] * b;
    }
    found->mean = sum / (double)found->count;
    for (uint32_t b = 0; b < 256; b++)
        histogram->m2 += (double)histogram->counts[b] * (b - found->mean) * (b - found->mean);
}

/* Chooses the two ranks around q (n - 1) for every quantile, as numpy does. */
static void choose_ranks(struct trajd_histogram *histogram)
{
    const uint64_t last = histogram->found.count - 1;

    histogram->rank_count = TRAJD_HISTOGRAM_RANKS;
    for (uint32_t q = 0; q < TRAJD_STATISTICS_QUANTILES; q++) {
        const uint64_t below = (uint64_t)floor(trajd_histogram_quantiles[q] * (double)last);
        histogram->ranks[2 * q].rank_in_node = below;
        histogram->ranks[2 * q + 1].rank_in_node = below < last ? below + 1 : last;
    }
}

/* Finds the bin of every rank and gives each such bin a node for the next level. Returns the number
 * of nodes. */
static uint32_t descend(struct trajd_histogram *histogram, uint8_t *children)
{
    const uint32_t bins = bin_count(histogram);
    const uint64_t last = level_of(histogram, histogram->level).mask;
    uint32_t nodes = 0;

    memset(children, NO_NODE, (size_t)histogram->node_count * bins);
    for (uint32_t r = 0; r < histogram->rank_count; r++) {
        struct trajd_histogram_rank *rank = &histogram->ranks[r];
        const uint64_t *counts = histogram->counts + (size_t)rank->node * bins;
        uint8_t *child;
        uint32_t bin = 0;
        while (bin < last && rank->rank_in_node >= counts[bin])
            rank->rank_in_node -= counts[bin++];
        rank->key = rank->key * (last + 1) + bin;
        child = &children[(size_t)rank->node * bins + bin];
        if (*child == NO_NODE)
            *child = (uint8_t)nodes++;
        rank->node = *child;
    }
    return nodes;
}

static double interpolate(double below, double above, double fraction)
{
    return fraction < 0.5 ? below + (above - below) * fraction
                          : above - (above - below) * (1 - fraction);
}

static void finish(struct trajd_histogram *histogram)
{
    struct trajd_feature_statistics *found = &histogram->found;

    if (!found->count) {
        found->mean = found->std = found->min = found->max = NAN;
        for (uint32_t q = 0; q < TRAJD_STATISTICS_QUANTILES; q++)
            found->quantiles[q] = NAN;
        return;
    }
    if (found->min == found->max) { /* exactly, without the rounding of the sums */
        found->mean = found->min;
        histogram->m2 = 0;
    }
    found->std = sqrt(histogram->m2 / (double)found->count);
    for (uint32_t q = 0; q < TRAJD_STATISTICS_QUANTILES; q++) {
        const double place = trajd_histogram_quantiles[q] * (double)(found->count - 1);
        found->quantiles[q] =
            histogram->rank_count
                ? interpolate(value_of_key(histogram->ranks[2 * q].key, histogram->key_bits),
                              value_of_key(histogram->ranks[2 * q + 1].key, histogram->key_bits),
                              place - floor(place))
                : found->min;
    }
}

enum trajd_status trajd_histogram_next(struct trajd_histogram *histogram, bool *more,
                                       struct trajd_error *error)
{
    uint64_t *counts;
    uint8_t *children;

    if (histogram->level == 0 && histogram->key_bits == 8)
        moments_of_bytes(histogram);
    *more = false;
    if (histogram->found.count && histogram->found.min != histogram->found.max) {
        if (histogram->level == 0)
            choose_ranks(histogram);
        children = malloc((size_t)histogram->node_count * bin_count(histogram));
        if (!children)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
        histogram->children[histogram->level] = children;
        histogram->node_count = descend(histogram, children);
        *more =
            ++histogram->level < trajd_histogram_sweeps(histogram->key_bits, histogram->level_bits);
    }
    free(histogram->counts);
    histogram->counts = counts =
        *more ? calloc((size_t)histogram->node_count * bin_count(histogram), sizeof *counts) : NULL;
    if (*more && !counts)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
    if (!*more)
        finish(histogram);
    return TRAJD_OK;
}

void trajd_histogram_end(struct trajd_histogram *histogram)
{
    for (uint32_t level = 0; level < TRAJD_HISTOGRAM_LEVELS; level++)
        free(histogram->children[level]);
    free(histogram->counts);
    *histogram = (struct trajd_histogram){0};
}
