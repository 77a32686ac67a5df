/* Between stats_windows.c, which decides what is counted in which form, and stats_walk.c, which
 * walks over the windows. */
#ifndef TRAJD_STATS_STATS_WINDOWS_H
#define TRAJD_STATS_STATS_WINDOWS_H

#include "daemon/stats/stats_sweep.h"
#include "daemon/window/window_batch.h"

/* What one item needs in addition to statistics_item. */
struct item_view {
    bool direct;
    bool is_difference; /* stats_differences.h */
    uint32_t first_target, target_count;
    uint32_t first_lane;
    uint32_t *weights; /* [G T]: how often each row or step counts */
    /* of differences: their columns, and the runs of the chunk with their flags */
    struct difference_column *columns;
    uint32_t run_count;
    struct difference_run *runs;
    uint8_t *flags;
};

struct windows_walk {
    struct trajd_window_spec spec;  /* a changed copy of the feed's; borrows its texts */
    struct trajd_window_plan *plan; /* of `spec` */
    struct trajd_window_batch *batch;
    struct trajd_plan *kernels; /* of this walk; NULL: all items are direct */
    struct trajd_stream *streams;
    uint32_t stream_count;
    uint8_t *slot;
    struct item_view *views;
    bool transforms[TRAJD_SPEC_MAX_OUTPUTS]; /* outputs that are transformed in this sweep */
    struct trajd_selection selection;        /* what this walk counts */
    uint32_t *array_indexes, *entries;
    bool *forms;
    uint32_t episode_count; /* of the chunk */
    uint32_t *episodes;     /* [G] */
    bool *pinned;           /* [G] */
    const void **rows;      /* [G][entries of the plan] */
    const void **row_room;  /* [entries of the plan] */
    uint32_t at;            /* index of the episode whose rows were used last */
    uint32_t next_episode, prefetched;
    uint64_t when;
    struct statistics_sweep *sweep;
};

/* Counts the active items of all windows, chunk by chunk, for statistics_run_sweeps. `context` is a
 * struct windows_walk. */
enum trajd_status statistics_walk_windows(struct statistics_sweep *sweep, void *context,
                                          struct trajd_error *error);

#endif
