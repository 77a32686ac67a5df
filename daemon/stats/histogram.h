/* Counting one feature's values, in as many sweeps over the data as exact order statistics need and
 * in memory that does not depend on how many values there are.
 *
 * Sweep 0 takes count, mean, variance, least and greatest, and counts values by the top 11 bits of
 * a key that orders as the values do. Every further sweep counts the next 11 bits inside the few
 * bins that hold a wanted rank, until those ranks' keys are complete: 1 sweep for bytes, 3 for
 * 32-bit keys, 6 for 64-bit keys. Quantiles are then what numpy's default (linear interpolation
 * between the two order statistics around q (n - 1)) gives in double; the order statistics are the
 * values themselves, without error.
 *
 * Mean and variance are formed in double, tile by tile of 256 values (two passes over a tile) and
 * merged pairwise by count, so that their error does not grow with the values' distance from 0. The
 * order of additions is that of the values: results do not depend on threads. NaN and infinite
 * values are counted and left out of everything else; -0 counts as 0. */
#ifndef TRAJD_STATS_HISTOGRAM_H
#define TRAJD_STATS_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/window/statistics.h"
#include "proto/dtype.h"
#include "proto/error.h"

#define TRAJD_HISTOGRAM_RANKS (2 * TRAJD_STATISTICS_QUANTILES)
#define TRAJD_HISTOGRAM_LEVELS 6
#define TRAJD_HISTOGRAM_TILE 256

extern const double trajd_histogram_quantiles[TRAJD_STATISTICS_QUANTILES];

/* Values of one feature: `row_count` rows of `group` elements each (pixels of a picture; else 1).
 */
struct trajd_histogram_values {
    const void *base; /* the feature's first element */
    enum trajd_dtype dtype;
    uint64_t row_count, row_stride_bytes;
    uint32_t group;
    uint64_t group_stride_bytes;
    const uint32_t *weights; /* [row_count]: how often each row counts; NULL: once */
};

struct trajd_histogram {
    uint32_t key_bits; /* 8: bytes; 32: values are rounded to float32 first; 64 */
    uint32_t level;
    struct trajd_feature_statistics found;
    double m2;           /* sum of squared distances from the mean */
    uint32_t node_count; /* bins of the level above that are looked into */
    uint64_t *counts;    /* [node_count][bins] of this level */
    /* [nodes of that level][bins]: the node a bin became, or none */
    uint8_t *children[TRAJD_HISTOGRAM_LEVELS];
    uint32_t rank_count;
    struct trajd_histogram_rank {
        uint64_t rank_in_node; /* its rank inside the node */
        uint64_t key;          /* bits found so far */
        uint8_t node;
    } ranks[TRAJD_HISTOGRAM_RANKS];
};

/* How values of that type are keyed: 8, 32 or 64 bits. */
uint32_t trajd_histogram_key_bits(enum trajd_dtype dtype);
/* Memory that one histogram may take at most. */
uint64_t trajd_histogram_bytes(uint32_t key_bits);

enum trajd_status trajd_histogram_begin(struct trajd_histogram *histogram, uint32_t key_bits,
                                        struct trajd_error *error);
/* Counts values of the sweep under way. Every sweep must be given the same values, in any order and
 * entries from sweep 1 on. */
void trajd_histogram_add(struct trajd_histogram *histogram,
                         const struct trajd_histogram_values *values);
/* Ends a sweep. *more: another one is needed. After the last, histogram->found is complete. */
enum trajd_status trajd_histogram_next(struct trajd_histogram *histogram, bool *more,
                                       struct trajd_error *error);
/* Frees what it holds; zeroed is fine. */
void trajd_histogram_end(struct trajd_histogram *histogram);

#endif
