/* Histograms that give exact quantiles of one feature's values, in memory that does not depend on
 * how many values there are.
 *
 * The data is swept several times. Sweep 0 takes count, mean, variance, minimum and maximum, and
 * counts values by the top bits of a key that orders as the values do. Every further sweep counts
 * the next bits inside the few bins that contain a rank that is searched, until the keys of these
 * ranks are complete. With 11 bits in each sweep these are 3 sweeps for 32-bit keys and 6 for 64-bit
 * keys; with 16 bits, for which a histogram takes 32 times the memory, 2 and 4. Bytes take 1.
 * Quantiles are then what numpy's default gives in double: linear interpolation between the two order
 * statistics around q (n - 1). The order statistics are values themselves, without error.
 *
 * Mean and variance are computed in double, in tiles of 256 values (two passes over each), which
 * are merged by count. So their error does not grow with the distance of the values from 0. Values
 * are added in their own order, so results do not depend on threads. NaN and infinite values are
 * counted and left out of everything else; -0 counts as 0.
 *
 * A histogram is for one thread at a time. */
#ifndef TRAJD_STATS_HISTOGRAM_H
#define TRAJD_STATS_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/window/feed_spec/statistics.h"
#include "proto/dtype.h"
#include "proto/error.h"

#define TRAJD_HISTOGRAM_RANKS (2 * TRAJD_STATISTICS_QUANTILES)
#define TRAJD_HISTOGRAM_LEVELS 6
#define TRAJD_HISTOGRAM_TILE 256
/* bits that a sweep counts: few, or many in more memory */
#define TRAJD_HISTOGRAM_FEW_BITS 11
#define TRAJD_HISTOGRAM_MANY_BITS 16

extern const double trajd_histogram_quantiles[TRAJD_STATISTICS_QUANTILES];

/* The values of one feature: `row_count` rows of `group` elements each (pixels of an image; else
 * 1). */
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
    uint32_t level_bits;
    uint32_t level;
    struct trajd_feature_statistics found;
    double m2;           /* sum of squared distances from the mean */
    uint32_t node_count; /* bins of the level above that are refined */
    uint64_t *counts;    /* [node_count][bins] of this level */
    /* [nodes of that level][bins]: the node of a bin, or none */
    uint8_t *children[TRAJD_HISTOGRAM_LEVELS];
    uint32_t rank_count;
    struct trajd_histogram_rank {
        uint64_t rank_in_node; /* from 0 */
        uint64_t key;          /* the bits found so far */
        uint8_t node;
    } ranks[TRAJD_HISTOGRAM_RANKS];
};

/* Returns how many bits the keys of a type have: 8, 32 or 64. */
uint32_t trajd_histogram_key_bits(enum trajd_dtype dtype);
/* Returns the memory that one histogram takes at most, and its sweeps. */
uint64_t trajd_histogram_bytes(uint32_t key_bits, uint32_t level_bits);
uint32_t trajd_histogram_sweeps(uint32_t key_bits, uint32_t level_bits);

enum trajd_status trajd_histogram_begin(struct trajd_histogram *histogram, uint32_t key_bits,
                                        uint32_t level_bits, struct trajd_error *error);
/* Counts values in the current sweep. Every sweep must get the same values; from sweep 1 on they
 * may come in any order and in other pieces. */
void trajd_histogram_add(struct trajd_histogram *histogram,
                         const struct trajd_histogram_values *values);
/* Counts up to TILE values, each once. Keys of 32 bits: they are floats already. */
void trajd_histogram_add_tile(struct trajd_histogram *histogram, const double *values,
                              uint32_t count);
/* Ends a sweep. *more: another sweep is needed. After the last one histogram->found is complete. */
enum trajd_status trajd_histogram_next(struct trajd_histogram *histogram, bool *more,
                                       struct trajd_error *error);
/* Frees what the histogram holds. A histogram of zeros is allowed. */
void trajd_histogram_end(struct trajd_histogram *histogram);

#endif
