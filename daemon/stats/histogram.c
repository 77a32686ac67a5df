#include "daemon/stats/histogram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/element_convert.h"

#define LEVEL_BITS 11
#define BINS (1u << LEVEL_BITS)
#define TILE TRAJD_HISTOGRAM_TILE
#define NO_NODE 0xff

const double trajd_histogram_quantiles[TRAJD_STATISTICS_QUANTILES] = {0.01, 0.10, 0.50, 0.90, 0.99};

/* Finite values of rows that count, gathered from memory. */
struct tile {
    double values[TILE];
    uint32_t weights[TILE];
    uint32_t count;
};

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

static uint32_t level_count(uint32_t key_bits)
{
    return (key_bits + LEVEL_BITS - 1) / LEVEL_BITS;
}

uint64_t trajd_histogram_bytes(uint32_t key_bits)
{
    const uint64_t levels = level_count(key_bits);
    return sizeof(struct trajd_histogram) +
           BINS * sizeof(uint64_t) * (levels > 1 ? TRAJD_HISTOGRAM_RANKS : 1) +
           BINS * TRAJD_HISTOGRAM_RANKS * (levels - 1);
}

/* Returns the bits of a key that a level counts. */
static inline uint32_t bin_of(uint64_t key, uint32_t key_bits, uint32_t level)
{
    const uint32_t above = LEVEL_BITS * level;
    const uint32_t width = key_bits - above < LEVEL_BITS ? key_bits - above : LEVEL_BITS;
    return (uint32_t)(key >> (key_bits - above - width)) & ((1u << width) - 1);
}

static inline uint64_t key_of_single(double value)
{
    const float single = (float)value;
    uint32_t bits;

    memcpy(&bits, &single, sizeof bits);
    return bits ^ (bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31);
}

static inline uint64_t key_of_double(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits ^ (bits >> 63 ? UINT64_MAX : UINT64_C(1) << 63);
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
                                        struct trajd_error *error)
{
    *histogram = (struct trajd_histogram){.key_bits = key_bits, .node_count = 1};
    histogram->found.min = INFINITY;
    histogram->found.max = -INFINITY;
    histogram->counts = calloc(BINS, sizeof *histogram->counts);
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

static inline __attribute__((always_inline)) void
count_keys(struct trajd_histogram *histogram, const struct tile *tile, uint32_t key_bits)
{
    const uint32_t level = histogram->level;

    for (uint32_t i = 0; i < tile->count; i++) {
        const uint64_t key =
            key_bits == 32 ? key_of_single(tile->values[i]) : key_of_double(tile->values[i]);
        uint32_t node = 0;
        for (uint32_t above = 0; above < level && node != NO_NODE; above++)
            node = histogram->children[above][node * BINS + bin_of(key, key_bits, above)];
        if (node != NO_NODE)
            histogram->counts[node * BINS + bin_of(key, key_bits, level)] += tile->weights[i];
    }
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
        if (histogram->key_bits == 32)
            count_keys(histogram, &tile, 32);
        else
            count_keys(histogram, &tile, 64);
    }
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
    const uint32_t above = LEVEL_BITS * histogram->level;
    const uint32_t width =
        histogram->key_bits - above < LEVEL_BITS ? histogram->key_bits - above : LEVEL_BITS;
    uint32_t nodes = 0;

    memset(children, NO_NODE, (size_t)histogram->node_count * BINS);
    for (uint32_t r = 0; r < histogram->rank_count; r++) {
        struct trajd_histogram_rank *rank = &histogram->ranks[r];
        const uint64_t *counts = histogram->counts + (size_t)rank->node * BINS;
        uint8_t *child;
        uint32_t bin = 0;
        while (bin < BINS - 1 && rank->rank_in_node >= counts[bin])
            rank->rank_in_node -= counts[bin++];
        rank->key = rank->key << width | bin;
        child = &children[(size_t)rank->node * BINS + bin];
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
        children = malloc((size_t)histogram->node_count * BINS);
        if (!children)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
        histogram->children[histogram->level] = children;
        histogram->node_count = descend(histogram, children);
        *more = ++histogram->level < level_count(histogram->key_bits);
    }
    free(histogram->counts);
    histogram->counts = counts =
        *more ? calloc((size_t)histogram->node_count * BINS, sizeof *counts) : NULL;
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
