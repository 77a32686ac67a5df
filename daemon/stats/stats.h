/* Statistics of outputs and streams, exact and in bounded memory, from the cache: whatever size the
 * dataset has.
 *
 *   source windows   an output's values on the training grid: every step whose mask is 0 of every
 *                    window of the feed (its filter, split and
 *                    padding), once per window that it stands in, resampled and not normalised. A
 *                      step that is padding, in a gap, or
 *                    has a NaN in one of its features is not in them. What normalisation uses.
 *   source rows      a stream's rows as recorded, once each, of the episodes of the feed. NaN
 *                    elements are left out one by one.
 *
 * Both leave out infinite elements, and count what they leave out. Figures are of the values as the
 * feed delivers them without normalisation, in float32 where that is what it delivers (float16 and
 * bfloat16 outputs too); of pictures (bytes of rank 2 and 3) per channel. How exact they are:
 * histogram.h.
 *
 * Blocks the caller; the pool's threads do the work, a few thousand values at a time, so that
 * others' batches go between. Rows are pinned in the store a chunk at a time, once per sweep (1 for
 * bytes, 3 for float32, 6 for float64), in episode order. */
#ifndef TRAJD_STATS_STATS_H
#define TRAJD_STATS_STATS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/stats/histogram.h"
#include "daemon/window/statistics.h"
#include "daemon/window/window_plan.h"
#include "kernels/pool.h"

#define TRAJD_STATISTICS_MAX_FEATURES 65536

/* Shared by who computes and who looks on; atomic, no order with anything else. */
struct trajd_stats_heartbeat {
    uint32_t permille; /* done */
    bool cancel;       /* set: computing ends with TRAJD_ERR_CLOSED */
};

struct trajd_statistics_request {
    const struct trajd_window_plan *plan;    /* the feed's; its constant part alone is read */
    struct trajd_pool *pool;                 /* NULL: the caller's thread alone */
    struct trajd_stats_heartbeat *heartbeat; /* or NULL */
};

/* What figures are a function of; equal numbers, equal figures. Independent of batch size, seed,
 * order, tail, norm, and of the feed's other outputs as far as they do not change which windows
 * there are. O(episodes log windows). */
uint64_t trajd_statistics_output_fingerprint(const struct trajd_window_plan *plan,
                                             uint32_t output_index);
uint64_t trajd_statistics_stream_fingerprint(const struct trajd_window_plan *plan,
                                             uint32_t stream_index);

/* results[i]: of outputs[i], all in the same sweeps. Nothing is left in `results` on failure. Rows
 * that cannot be read fail it, unless the feed keeps bad rows. */
enum trajd_status trajd_statistics_of_outputs(const struct trajd_statistics_request *request,
                                              const uint32_t *outputs, uint32_t count,
                                              struct trajd_statistics **results,
                                              struct trajd_error *error);
enum trajd_status trajd_statistics_of_stream(const struct trajd_statistics_request *request,
                                             uint32_t stream_index,
                                             struct trajd_statistics **result,
                                             struct trajd_error *error);

/* ---- stats_cache.c: a file a fingerprint, checksummed, written by rename; NULL directory: no
 * cache ---- */

/* NULL: not there, or damaged. */
struct trajd_statistics *trajd_statistics_load(const char *directory, uint64_t fingerprint);
void trajd_statistics_save(const char *directory, const struct trajd_statistics *statistics);

/* ---- stats_json.c ---- */

/* The members of features [first, first + count) without braces:
 * "source":..,"features":..,"count":[..],"mean":[..]...; what is not known is null. */
void trajd_statistics_write(const struct trajd_statistics *statistics, uint32_t first,
                            uint32_t count, FILE *out);
/* An array of numbers, enough digits to read them back exactly; NaN and infinite ones are null. */
void trajd_statistics_write_floats(const float *values, uint32_t count, FILE *out);

#endif
