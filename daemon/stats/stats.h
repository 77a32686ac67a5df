/* Statistics of outputs and streams: exact, and in bounded memory whatever the size of the dataset.
 * Rows are read through the row cache.
 *
 *   over rows      an output's value at each row of the anchor's clock (or each anchor of a rate),
 *                  once, over all episodes that filter, where and split select. `pad:` and the
 *                  steps of `at:` change nothing, so an episode that is too short for a window
 *                  counts too. The value is that of a step 0: its kind, role, max_age and max_gap
 *                  apply, and `mean` averages over the width that it has on the output's own grid.
 *                  This is the default, and what ACT, robomimic and LeRobot do.
 *   over windows   an output's values on the training grid: every step of every window of the feed
 *                  (after filter, where, split and padding), once per window that contains it.
 *   of a stream    its rows as recorded, each once, of the episodes with windows. NaN elements are
 *                  left out one by one.
 *
 * The first two are not normalised, and count steps whose mask is 0: steps that are padding, in a
 * gap or missing, or have a number that is not finite, do not count. Normalisation uses them.
 *
 * All leave out infinite elements, and count what they leave out. Figures describe values as the
 * feed delivers them without normalisation, in float32 where it delivers float32, float16 or
 * bfloat16. Images (uint8 of rank 2 and 3) have figures per channel. histogram.h says how exact
 * they are.
 *
 * Computing blocks the caller. The pool's threads do the work, a few thousand values at a time, so
 * that batches of other feeds run in between. Rows are pinned in the cache one chunk at a time,
 * once per sweep (1 for bytes, 2 or 3 for float32, 4 or 6 for float64), in episode order. */
#ifndef TRAJD_STATS_STATS_H
#define TRAJD_STATS_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/json.h"
#include "daemon/stats/histogram.h"
#include "daemon/window/feed_spec/statistics.h"
#include "daemon/window/window_plan.h"
#include "kernels/pool.h"

#define TRAJD_STATISTICS_MAX_FEATURES 65536

/* Progress, shared by the thread that computes and those that read it. Atomic, without order to
 * other memory. */
struct trajd_stats_heartbeat {
    uint32_t permille; /* done */
    bool cancel;       /* set by any thread: computing ends with TRAJD_ERR_CLOSED */
};

struct trajd_statistics_request {
    const struct trajd_window_plan *plan;    /* the feed's; read only */
    struct trajd_pool *pool;                 /* NULL: the caller's thread alone */
    struct trajd_stats_heartbeat *heartbeat; /* or NULL */
};

/* Returns a number for everything that the figures depend on: equal numbers, equal figures. It does
 * not depend on batch size, seed, order, tail and the rule of norm, nor on the feed's other outputs
 * as far as they do not change which windows there are; over rows also not on `at:` and `pad:`, so
 * that feeds share statistics. O(episodes log windows). */
uint64_t trajd_statistics_output_fingerprint(const struct trajd_window_plan *plan,
                                             uint32_t output_index);
uint64_t trajd_statistics_stream_fingerprint(const struct trajd_window_plan *plan,
                                             uint32_t stream_index);

/* Refuses an output that has no statistics: the dataset lacks a stream of it, it has too many
 * features, or its frames are decoded or resized, so that no rows of it are in the cache. */
enum trajd_status trajd_statistics_check_output(const struct trajd_window_plan *plan,
                                                uint32_t output_index, struct trajd_error *error);
/* Returns whether an output's statistics may be computed without being asked for: it has some, and
 * is not an image, which takes long to read. */
bool trajd_statistics_are_cheap(const struct trajd_window_plan *plan, uint32_t output_index);
/* Computes the statistics of outputs[i] into results[i], all in the same sweeps. Caller frees each
 * with free(). On failure `results` has NULLs. Rows that cannot be read are an error, unless the
 * feed keeps bad rows. */
enum trajd_status trajd_statistics_of_outputs(const struct trajd_statistics_request *request,
                                              const uint32_t *outputs, uint32_t count,
                                              struct trajd_statistics **results,
                                              struct trajd_error *error);
enum trajd_status trajd_statistics_of_stream(const struct trajd_statistics_request *request,
                                             uint32_t stream_index,
                                             struct trajd_statistics **result,
                                             struct trajd_error *error);

/* ---- stats_cache.c: one file per fingerprint, with a checksum, written beside and renamed.
 * Directory NULL: no cache ---- */

/* Returns statistics of an earlier run. Caller frees. NULL: there is no file, or it is damaged. */
struct trajd_statistics *trajd_statistics_load(const char *directory, uint64_t fingerprint);
void trajd_statistics_save(const char *directory, const struct trajd_statistics *statistics);

/* ---- stats_json.c ---- */

/* Writes members about features [first, first + count) to an open object:
 * "source":..,"features":..,"count":[..],"mean":[..]... A figure that is not known is null. */
void trajd_statistics_write(const struct trajd_statistics *statistics, uint32_t first,
                            uint32_t count, struct trajd_json *json);
/* Writes an array of numbers with enough digits to read them back exactly. NaN and infinite numbers
 * are null. */
void trajd_statistics_write_floats(const float *values, uint32_t count, const char *key,
                                   struct trajd_json *json);

#endif
