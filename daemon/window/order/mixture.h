/* The order of windows of several datasets: whole-numbered weights c_d, C their sum, epochs of a
 * declared length L.
 *
 *   P = epoch * L + position          never begins again: quotas and passes run on over the epochs'
 *                                     borders
 *   q = P div C                       a round of C positions, of which dataset d has exactly c_d
 *   slot = perm(key, q)(P mod C)      d owns the slots [s_d, s_d + c_d), s_d the sum of the weights
 *                                     before it
 *   j = q c_d + slot - s_d            d's j-th window: pass j div N_d over its own order, at j mod
 *                                     N_d there
 *
 * So each round holds dataset d exactly c_d times, and after any number of rounds each window of d
 * has come floor or ceil of the mean. A dataset's own order is its sampler's, with the pass for the
 * epoch; within a round its windows change places, so blocked and sequential are what they say as
 * far as c_d is small. P is taken modulo 2^64: beyond that many positions a new order begins.
 *
 * Memory is O(datasets) beside their samplers', a look-up O(log segments), wherever it is.
 * Immutable after creation: all functions are safe from any thread. Version 1; a later version
 * never changes what 1 yields. */
#ifndef TRAJD_WINDOW_ORDER_MIXTURE_H
#define TRAJD_WINDOW_ORDER_MIXTURE_H

#include "daemon/window/order/sampler.h"

#define TRAJD_MIXTURE_VERSION 1
#define TRAJD_MIXTURE_MAX_DATASETS 64
/* of an epoch, and of C: sums with a batch or a weight fit 64 bits */
#define TRAJD_MIXTURE_MAX_LENGTH (UINT64_C(1) << 62)

struct trajd_mixture_options {
    const struct trajd_sampler *const *samplers; /* [dataset_count]; must outlive the mixture */
    /* [dataset_count]: c_d >= 1; NULL: by size, which is N_d over the greatest common divisor of
     * all N: an epoch of the sum of them has every window once */
    const uint64_t *weights;
    uint32_t dataset_count; /* 1..TRAJD_MIXTURE_MAX_DATASETS */
    uint64_t fingerprint;   /* of datasets, specifications and weights: part of the key */
    uint64_t seed;
    uint64_t epoch_windows; /* L; 0: the sum of all windows */
    enum trajd_tail tail;   /* of the L positions: as a sampler's of its N */
    uint32_t global_batch;
};

struct trajd_mixture;

/* TRAJD_ERR_ARGUMENT also where `drop` would leave no batch at all (L < G). */
enum trajd_status trajd_mixture_create(const struct trajd_mixture_options *options,
                                       struct trajd_mixture **mixture, struct trajd_error *error);
void trajd_mixture_destroy(struct trajd_mixture **mixture);

/* The seed of dataset d's own sampler: two that hold the same windows do not go in step. */
uint64_t trajd_mixture_seed(uint64_t seed, uint32_t dataset_index);

uint64_t trajd_mixture_epoch_windows(const struct trajd_mixture *mixture); /* L */
/* L, by the tail's rule */
uint64_t trajd_mixture_epoch_length(const struct trajd_mixture *mixture);
uint64_t trajd_mixture_dropped_count(const struct trajd_mixture *mixture);
/* c_d */
uint64_t trajd_mixture_weight(const struct trajd_mixture *mixture, uint32_t dataset_index);
uint64_t trajd_mixture_weight_sum(const struct trajd_mixture *mixture); /* C */

/* The windows at [position, position + count) of an epoch; from L on the epoch's order begins again
 * and rows are `wrapped`. window_id is the dataset's own plus the windows of the datasets before
 * it; dataset_index counts as the options do. No allocation. */
void trajd_mixture_run(const struct trajd_mixture *mixture, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows);
/* The window with that number. window_id < the sum of all windows. */
void trajd_mixture_window(const struct trajd_mixture *mixture, uint64_t window_id,
                          struct trajd_window *window);

#endif
