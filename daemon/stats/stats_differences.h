/* Statistics of outputs that are differences of rows, without resampling: every part of the
 * transform is plain, and steps and state are rows of the anchor's clock. The value of step k of the
 * window at anchor j is row j + k minus the state's row j, so a column of the rows is read once for
 * all steps. */
#ifndef TRAJD_STATS_STATS_DIFFERENCES_H
#define TRAJD_STATS_STATS_DIFFERENCES_H

#include "daemon/stats/stats_windows.h"

enum difference_flag {
    DIFFERENCE_GOOD = 0,
    DIFFERENCE_DROPPED = 1, /* a NaN: the steps that use it are masked */
    DIFFERENCE_INFINITE = 2 /* a difference of infinite numbers may be NaN */
};

/* Windows with adjacent anchors in one episode. */
struct difference_run {
    int64_t first_anchor, anchor_count;
    int64_t row_count, state_count; /* of the episode */
    int64_t first_row;              /* the first row that is a step of one of the windows */
    const void *const *rows;        /* [entries of the plan] */
    uint8_t *row_flags;             /* [rows from first_row on]: enum difference_flag */
    uint8_t *state_flags;           /* [anchor_count] */
    bool is_clean;                  /* all flags are 0 */
};

/* Where a column of an output comes from. */
struct difference_column {
    uint32_t target, column;             /* of the target's stream */
    uint32_t state_target, state_column; /* state_target UINT32_MAX: the row itself */
};

/* Returns whether an output is of that kind. */
bool statistics_is_difference(const struct trajd_window_plan *plan, uint32_t output_index);
/* Allocates what an item needs for chunks of that many windows. */
enum trajd_status statistics_differences_allocate(struct windows_walk *walk, uint32_t item,
                                                  uint32_t windows);
void statistics_differences_free(struct item_view *view);
/* Adds windows [w, end) of the chunk, which have adjacent anchors in one episode. The rows must
 * stay until the chunk has been counted. */
void statistics_differences_add_run(struct windows_walk *walk, uint32_t item, uint32_t w,
                                    uint32_t end, const void *const *rows);
/* Counts columns [begin, end) of all items of that kind. In a thread of the pool. */
void statistics_differences_count(const struct statistics_sweep *sweep, uint32_t begin,
                                  uint32_t end);

#endif
