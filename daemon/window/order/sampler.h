/* The order of windows: a pure function of (key, epoch, position). No list of indices, any position
 * at once.
 *
 * Windows are numbered 0..N-1 over segments (runs of allowed anchors of an episode), in episode
 * order. An epoch's order is a keyed permutation of those numbers, evaluated per position. Memory
 * is O(segments), a look-up O(log segments). Immutable after creation: all functions are safe from
 * any thread. Version 1; a later version never changes what 1 yields. */
#ifndef TRAJD_WINDOW_ORDER_SAMPLER_H
#define TRAJD_WINDOW_ORDER_SAMPLER_H

#include <stdint.h>

#include "proto/error.h"

#define TRAJD_SAMPLER_VERSION 1

enum trajd_order {
    TRAJD_ORDER_GLOBAL = 0, /* any window at any position: for what is resident */
    /* blocks permuted, then windows inside K neighbouring ones: for what is not resident */
    TRAJD_ORDER_BLOCKED = 1,
    TRAJD_ORDER_SEQUENTIAL = 2, /* as numbered */
};

enum trajd_tail {
    /* the last N mod G windows of the order are left out of the epoch, counted */
    TRAJD_TAIL_DROP = 0,
    /* the last batch is filled up from the beginning of the same epoch's order, those rows marked
     */
    TRAJD_TAIL_WRAP = 1,
    TRAJD_TAIL_SHORT = 2, /* the last batch has fewer rows */
};

struct trajd_segment {
    uint32_t dataset_index;
    uint32_t episode_index;
    int64_t first_anchor;  /* number of the first allowed anchor in the episode */
    uint64_t window_count; /* >= 1 */
};

struct trajd_sampler_options {
    const struct trajd_segment *segments; /* copied */
    uint32_t segment_count;
    uint64_t fingerprint; /* of dataset and window specification: part of the key */
    uint64_t seed;
    enum trajd_order order;
    /* blocked: a block is this many windows in a row, so an episode that lies across a border is
     * read for two blocks: choose a few episodes' worth */
    uint32_t block_windows;
    uint32_t block_neighbours; /* blocked: K */
    enum trajd_tail tail;
    uint32_t global_batch; /* G >= 1 */
};

struct trajd_window {
    uint64_t window_id; /* 0..N-1 */
    uint32_t dataset_index;
    uint32_t episode_index;
    int64_t anchor;  /* number of the anchor in the episode */
    uint8_t wrapped; /* 1: a row that `wrap` repeats */
};

struct trajd_sampler;

/* TRAJD_ERR_ARGUMENT also where `drop` would leave no batch at all (N < G). */
enum trajd_status trajd_sampler_create(const struct trajd_sampler_options *options,
                                       struct trajd_sampler **sampler, struct trajd_error *error);
void trajd_sampler_destroy(struct trajd_sampler **sampler);

uint64_t trajd_sampler_window_count(const struct trajd_sampler *sampler); /* N */
/* Positions in an epoch of N windows: N for short, N rounded down to G for drop, up to G for wrap.
 */
uint64_t trajd_tail_epoch_length(enum trajd_tail tail, uint64_t window_count,
                                 uint64_t global_batch);
uint64_t trajd_sampler_epoch_length(const struct trajd_sampler *sampler);
/* Batches from begin_position to the epoch's end. Where G does not divide begin_position (an epoch
 * begun with another G), positions run on to begin + count * G for wrap, and drop leaves out (N -
 * begin) mod G. */
uint64_t trajd_sampler_batch_count(const struct trajd_sampler *sampler, uint64_t begin_position);
uint64_t trajd_sampler_dropped_count(const struct trajd_sampler *sampler);

/* The window at `position` of an epoch; from N on the order begins again and rows are `wrapped`.
 * O(log segments), no allocation. */
void trajd_sampler_at(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                      struct trajd_window *window);
/* The windows at [position, position + count), as trajd_sampler_at gives them one by one, and
 * cheaper. */
void trajd_sampler_run(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows);
/* The window with that number: the inverse look-up for explain. window_id < N. */
void trajd_sampler_window(const struct trajd_sampler *sampler, uint64_t window_id,
                          struct trajd_window *window);

/* The keyed permutation itself: a bijection on [0, n), n >= 1. Feistel on Z_a x Z_b with a*b just
 * above n, walking back into range. */
uint64_t trajd_permute(uint64_t key, uint64_t n, uint64_t position);

/* 64-bit mixing of several words into one key. */
uint64_t trajd_mix(const uint64_t *words, uint32_t count);

#endif
