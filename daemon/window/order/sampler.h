/* The order of windows of one dataset: a pure function of (key, epoch, position). There is no list
 * of indices, and every position is equally fast.
 *
 * Windows are numbered from 0 over segments in episode order. A segment is a run of allowed anchors
 * of one episode. The order of a pass is a keyed permutation of these numbers, computed per
 * position; or of the episodes, and of each of them one window that is drawn again in every pass.
 * An epoch is a pass, or a declared number of windows, which go on from pass to pass. Memory is
 * O(segments), a look-up O(log segments). A sampler is immutable after creation; all functions are
 * thread-safe. This is version 1: later versions never change what version 1 yields. */
#ifndef TRAJD_WINDOW_ORDER_SAMPLER_H
#define TRAJD_WINDOW_ORDER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/view.h"
#include "daemon/window/order/permute.h"
#include "proto/error.h"

#define TRAJD_SAMPLER_VERSION 1

enum trajd_order {
    TRAJD_ORDER_GLOBAL = 0, /* any window at any position; for rows in memory */
    /* permutes blocks, then windows within K neighbouring blocks; for rows beyond memory */
    TRAJD_ORDER_BLOCKED = 1,
    TRAJD_ORDER_SEQUENTIAL = 2, /* in the order of numbers */
};

enum trajd_tail {
    /* the last N mod G windows of the order are left out of the epoch and counted */
    TRAJD_TAIL_DROP = 0,
    /* the last batch is completed with the beginning of the same epoch's order; those rows are
     * marked */
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
    const struct trajd_segment *segments; /* borrowed; copied */
    uint32_t segment_count;
    uint64_t fingerprint; /* of dataset and window specification; part of the key */
    uint64_t seed;
    enum trajd_order order;
    /* blocked: windows in a block. An episode across the border of two blocks is read for both, so
     * choose several episodes' worth */
    uint32_t block_windows;
    uint32_t block_neighbours; /* blocked: K */
    enum trajd_tail tail;
    uint32_t global_batch; /* G >= 1 */
    /* a pass has one window of each episode, drawn uniformly from all of its windows; not with
     * order blocked */
    bool one_per_episode;
    uint64_t epoch_windows; /* L; 0: a pass */
};

struct trajd_sampler;

/* Creates a sampler. Caller destroys. TRAJD_ERR_ARGUMENT for options out of range, and where tail
 * drop leaves no batch (N < G). */
enum trajd_status trajd_sampler_create(const struct trajd_sampler_options *options,
                                       struct trajd_sampler **sampler, struct trajd_error *error);
void trajd_sampler_destroy(struct trajd_sampler **sampler);

/* Returns how many windows are numbered. */
uint64_t trajd_sampler_number_count(const struct trajd_sampler *sampler);
/* Returns the windows of a pass: one for each number, or one for each episode. */
uint64_t trajd_sampler_pass_count(const struct trajd_sampler *sampler);
/* Returns the windows N of an epoch. */
uint64_t trajd_sampler_window_count(const struct trajd_sampler *sampler);
/* Returns the positions in an epoch of N windows: N for short, N rounded down to a multiple of G
 * for drop, up for wrap. */
uint64_t trajd_tail_epoch_length(enum trajd_tail tail, uint64_t window_count,
                                 uint64_t global_batch);
uint64_t trajd_sampler_epoch_length(const struct trajd_sampler *sampler);
/* Returns the number of batches from begin_position to the epoch's end. G need not divide
 * begin_position (an epoch begun with another G). Positions then run on to begin + count * G for
 * wrap, and drop leaves out (N - begin) mod G windows. */
uint64_t trajd_sampler_batch_count(const struct trajd_sampler *sampler, uint64_t begin_position);
uint64_t trajd_sampler_dropped_count(const struct trajd_sampler *sampler);

/* Writes the window at `position` of an epoch. From N on the order begins again and rows are
 * `wrapped`. O(log segments); does not allocate. */
void trajd_sampler_at(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                      struct trajd_window *window);
/* Writes the windows [position, position + count) as trajd_sampler_at does one by one, but
 * faster. */
void trajd_sampler_run(const struct trajd_sampler *sampler, uint64_t epoch, uint64_t position,
                       uint32_t count, struct trajd_window *windows);
/* Writes the window with that number, for explain. window_id must be less than the number count. */
void trajd_sampler_window(const struct trajd_sampler *sampler, uint64_t window_id,
                          struct trajd_window *window);

/* The order of one pass, prepared, for a mixture, which uses several samplers at once. */
struct trajd_sampler_order {
    uint64_t epoch;                  /* or pass */
    struct trajd_permutation global; /* of order global */
};

void trajd_sampler_order_make(const struct trajd_sampler *sampler, uint64_t epoch,
                              struct trajd_sampler_order *order);
/* Writes the windows at some positions of that pass, each less than its length, as trajd_sampler_at
 * does one by one, but faster. */
void trajd_sampler_order_map(const struct trajd_sampler *sampler,
                             const struct trajd_sampler_order *order, const uint64_t *positions,
                             uint32_t count, struct trajd_window *windows);

#endif
