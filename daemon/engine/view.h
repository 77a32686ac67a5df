/* Rows as plain data: where the rows of an episode are in time and in memory. The cache, the rings
 * of a robot and the arrays of a caller fill views, and the engine reads them. Times are in ns from
 * the episode's origin. */
#ifndef TRAJD_ENGINE_VIEW_H
#define TRAJD_ENGINE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/timebase.h"

/* The rows of a clock in one episode. */
struct trajd_episode_clock {
    int64_t row_count; /* after the stamp policies */
    int64_t start_ns;
    struct trajd_rate rate;   /* regular clocks */
    int rate_source;          /* enum trajd_rate_source of the layout */
    const int64_t *stamps_ns; /* [row_count], ascending; NULL for regular clocks */
    /* The line through the first and the last stamp, for the first guess of a search; 0 for regular
     * clocks. */
    double rows_per_ns, row_at_zero;
    /* At which distance a stamped clock continues outside its rows. 0: at the mean distance of its
     * own rows, or at one second if it has a single row. */
    int64_t interval_ns;
    /* The median distance of the rows. 0: the last row does not grow old. It is the only one, all are
     * events, it is the episode's only clock, or more rows may come, as from a robot. */
    int64_t median_ns;
    /* The longest distance of two rows of a recording, if it is more than TRAJD_TOO_OLD_INTERVALS of
     * the median one; else 0. */
    int64_t gap_ns;
    /* The number of the anchor that row 0 is, of a clock on whose rows the anchors lie. 0 in
     * recordings. */
    int64_t first_anchor;
    /* [row_count]: source row of each kept row; NULL: all rows were kept */
    const uint32_t *kept_rows;
    uint64_t dropped_rows;
};

/* The rows of one episode. */
struct trajd_view {
    const struct trajd_episode_clock *clocks; /* [clocks of the rules] */
    /* [clocks of the rules]: where the episode begins in the stamps that the kernels read; NULL: at
     * 0 */
    const int64_t *row_begin;
    /* [brackets of the rules]: the rows of brackets that have their own row count, for example one
     * observation more than the clock has rows; -1: as many as the clock has. NULL: all of them */
    const int64_t *row_counts;
    const bool *has_frames; /* [images of the rules]; NULL: none */
    bool ends_early;        /* the clock of a bracket grows too old before the last anchor */
};

/* A window: an anchor of an episode, as the order of a feed gives it. */
struct trajd_window {
    uint64_t window_id; /* its number */
    uint32_t dataset_index;
    uint32_t episode_index;
    int64_t anchor; /* number of the anchor in the episode */
    /* the pass over the dataset; 0 where the window was looked up by its number */
    uint64_t pass;
    uint8_t wrapped; /* 1: a row that tail: wrap repeats */
};

/* Returns the time of row n of a clock. Outside its rows a stamped clock continues at
 * interval_ns. */
int64_t trajd_clock_row_ns(const struct trajd_episode_clock *clock, int64_t n);
/* Returns how many rows of the first row_count lie at or before x ns from the origin. */
int64_t trajd_clock_rows_until(const struct trajd_episode_clock *clock, int64_t row_count,
                               int64_t x_ns);
/* Prefetches the stamps for the same call. Does not block. */
void trajd_clock_fetch_rows_until(const struct trajd_episode_clock *clock, int64_t row_count,
                                  int64_t x_ns);

/* How many median intervals after its last row a clock's rows count while the recording goes on. A
 * stream that stops earlier than that ends before its episode. */
#define TRAJD_TOO_OLD_INTERVALS 3
/* Returns the time so many median intervals after the last row of a clock. One without a median has
 * no such time: INT64_MAX. */
int64_t trajd_clock_too_old_ns(const struct trajd_episode_clock *clock, uint32_t intervals);
/* Returns the median distance of a clock's rows; 0 for fewer than two rows. `scratch` has room for
 * row_count numbers, and a regular clock does not need it. */
int64_t trajd_clock_find_median(const struct trajd_episode_clock *clock, int64_t *scratch);

#endif
