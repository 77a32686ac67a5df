/* The order of windows of several datasets, which have whole-numbered weights c_d with the sum C.
 * An epoch has a declared length of L windows.
 *
 *   P = epoch * L + position          the absolute position: rounds and passes continue over the
 *                                     borders of epochs
 *   q = P div C                       the round: C positions, of which dataset d has exactly c_d
 *   slot = perm(key, q)(P mod C)      d owns the slots [s_d, s_d + c_d); s_d is the sum of the
 *                                     weights before it
 *   j = q c_d + slot - s_d            d's j-th window: pass j div N_d over its own order, at
 *                                     position j mod N_d there
 *
 * So each round has dataset d exactly c_d times. After any number of rounds, each window of d has
 * come as often as the mean, rounded up or down. The order inside a dataset is that of its sampler,
 * with the pass in place of the epoch. Inside a round its windows change places, so orders blocked
 * and sequential hold as far as c_d is small. P is taken modulo 2^64: beyond that a new order
 * begins.
 *
 * Memory is O(datasets) beside the samplers. A look-up is O(log segments) at any position. A
 * mixture is immutable after creation; all functions are thread-safe. This is version 1: later
 * versions never change what version 1 yields. */
#ifndef TRAJD_WINDOW_ORDER_MIXTURE_H
#define TRAJD_WINDOW_ORDER_MIXTURE_H

#include "daemon/window/order/sampler.h"

#define TRAJD_MIXTURE_VERSION 1
#define TRAJD_MIXTURE_MAX_DATASETS 64
/* limit of an epoch and of C: sums with a batch or a weight fit 64 bits */
#define TRAJD_MIXTURE_MAX_LENGTH (UINT64_C(1) << 62)

struct trajd_mixture_options {
    /* [dataset_count]; borrowed; must outlive the mixture; without epoch_windows of their own */
    const struct trajd_sampler *const *samplers;
    /* [dataset_count]: c_d >= 1. NULL: by size, that is N_d over the greatest common divisor of all
     * N; an epoch of all windows then has each exactly once. N_d counts the windows of a pass */
    const uint64_t *weights;
    uint32_t dataset_count; /* 1..TRAJD_MIXTURE_MAX_DATASETS */
    uint64_t fingerprint;   /* of datasets, specifications and weights; part of the key */
    uint64_t seed;
    uint64_t epoch_windows; /* L; 0: the sum of all windows */
    enum trajd_tail tail;   /* applies to the L positions */
    uint32_t global_batch;
};

struct trajd_mixture;

/* Creates a mixture. Caller destroys. TRAJD_ERR_ARGUMENT for options out of range, and where tail
 * drop leaves no batch (L < G). */
enum trajd_status trajd_mixture_create(const struct trajd_mixture_options *options,
                                       struct trajd_mixture **mixture, struct trajd_error *error);
void trajd_mixture_destroy(struct trajd_mixture **mixture);

/* Returns the seed of dataset d's own sampler. Two datasets with the same windows then have
 * different orders. */
uint64_t trajd_mixture_seed(uint64_t seed, uint32_t dataset_index);

uint64_t trajd_mixture_epoch_windows(const struct trajd_mixture *mixture); /* L */
/* Returns L after the tail's rule. */
uint64_t trajd_mixture_epoch_length(const struct trajd_mixture *mixture);
uint64_t trajd_mixture_dropped_count(const struct trajd_mixture *mixture);
/* Returns c_d. */
uint64_t trajd_mixture_weight(const struct trajd_mixture *mixture, uint32_t dataset_index);
uint64_t trajd_mixture_weight_sum(const struct trajd_mixture *mixture); /* C */

/* Writes the windows [position, position + count) of an epoch. From L on the epoch's order begins
 * again and the rows are `wrapped`. window_id is the dataset's own number plus the windows of the
 * datasets before it; dataset_index is the index in the options. Does not allocate. */
void trajd_mixture_run(const struct trajd_mixture *mixture, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows);
/* Writes the window with that number. window_id must be less than the sum of all windows. */
void trajd_mixture_window(const struct trajd_mixture *mixture, uint64_t window_id,
                          struct trajd_window *window);

#endif
