/* What the files of this folder share about one walk over the data. stats_sweep.c repeats a walk
 * until all histograms are complete. A walk (stats_walk.c over windows, stats_rows.c over recorded
 * rows) goes over all episodes once, sets the lanes' runs for each chunk and calls
 * statistics_count.
 *
 * An item is an output or a stream. A lane has some of its columns that are adjacent in memory. */
#ifndef TRAJD_STATS_STATS_WALK_H
#define TRAJD_STATS_STATS_WALK_H

#include "daemon/base/arena.h"
#include "daemon/stats/stats.h"
#include "daemon/window/window_batch.h"

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- stats_sweep.c ---- */

/* Rows in memory that count. */
struct statistics_run {
    const void *base; /* NULL: none of them counts */
    uint64_t row_count;
    const uint32_t *weights; /* [row_count]: how often each row counts; NULL: once */
};

/* Columns of one item that are adjacent in memory. */
struct statistics_lane {
    uint32_t item;
    uint32_t first_column, column_count; /* of the item */
    enum trajd_dtype dtype;
    uint64_t row_stride_bytes;
    /* elements of a column in a row: pixels of an image, else 1; they are column_count elements
     * apart */
    uint32_t group;
    uint32_t run_count;
    struct statistics_run *runs;
};

/* An output or a stream that is counted. */
struct statistics_item {
    uint32_t index; /* of the output or the stream */
    uint32_t column_count;
    uint32_t key_bits;
    uint32_t first_column; /* among the columns of all items */
    bool active;           /* some of its columns are counted in this sweep */
    struct trajd_statistics *result;
};

struct statistics_sweep {
    struct trajd_pool *pool;
    struct trajd_stats_heartbeat *heartbeat;
    uint32_t item_count, lane_count;
    struct statistics_item *items;
    struct statistics_lane *lanes;
    /* counts columns [begin, end) of items that have no lanes, in a thread of the pool; or NULL */
    void (*count_also)(const struct statistics_sweep *sweep, uint32_t begin, uint32_t end);
    void *count_context;
    uint64_t when;                   /* of the next prefetch */
    uint32_t prefetched;             /* episodes of the plan, in this walk */
    uint32_t slice_count;            /* of the columns, in statistics_count */
    uint32_t level_bits;             /* of the histograms */
    bool first;                      /* whether this is the first sweep, which also counts steps */
    uint32_t group_begin, group_end; /* columns that are counted now */
    struct trajd_histogram *histograms; /* [group_end - group_begin] */
    bool *done;                         /* [group_end - group_begin] */
    uint64_t pass_count, pass;          /* sweeps over the data, and those that are done */
};

/* Walks once over all data: sets the lanes' runs for each chunk and calls statistics_count. */
typedef enum trajd_status (*statistics_walk)(struct statistics_sweep *sweep, void *context,
                                             struct trajd_error *error);

/* Sweeps as often as the items need, and fills their results. The caller allocates and frees the
 * results. */
enum trajd_status statistics_run_sweeps(struct statistics_sweep *sweep, statistics_walk walk,
                                        void *context, struct trajd_error *error);
/* Counts the chunk that the lanes' runs describe, on the pool. */
void statistics_count(struct statistics_sweep *sweep);
/* Reports how many episodes or windows (`unit`) the walk has done. TRAJD_ERR_CLOSED: it must end. */
enum trajd_status statistics_report_progress(struct statistics_sweep *sweep, const char *unit,
                                             uint64_t done, uint64_t total,
                                             struct trajd_error *error);
enum trajd_status statistics_no_memory(struct trajd_error *error);
/* Prefetches the episodes of the plan from `next` on, a few ahead. */
void statistics_prefetch(struct statistics_sweep *sweep, const struct trajd_window_plan *plan,
                         const struct trajd_selection *selection, uint32_t next);
/* Pins an episode's rows. If they find no room and the caller holds no other pins (`may_wait`), it
 * waits until others unpin. */
enum trajd_status statistics_pin(const struct statistics_sweep *sweep, struct trajd_cache *cache,
                                 const struct trajd_selection *selection, uint32_t episode_index,
                                 bool may_wait, const void **rows, struct trajd_error *error);

/* ---- stats_windows.c: what is counted in which form; stats_walk.c: the walk over the windows ---- */

/* What one item needs in addition to statistics_item. */
struct item_view {
    bool direct;
    bool is_difference; /* stats_differences.c */
    bool is_filled;     /* the output's sources count by themselves */
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
    struct trajd_arena arena;       /* has the arrays below, but for `slot` */
    struct trajd_window_spec spec;  /* a changed copy of the feed's; borrows its texts */
    struct trajd_window_plan *plan; /* of `spec` */
    struct trajd_binding *batch;
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
    uint32_t next_episode;
    struct statistics_sweep *sweep;
};

/* Counts the active items of all windows, chunk by chunk, for statistics_run_sweeps. `context` is a
 * struct windows_walk. */
enum trajd_status statistics_walk_windows(struct statistics_sweep *sweep, void *context,
                                          struct trajd_error *error);

/* ---- stats_differences.c: outputs that are differences of rows, without resampling. Every part of
 * the transform is plain, and steps and state are rows of the anchor's clock. The value of step k of
 * the window at anchor j is row j + k minus the state's row j, so a column of the rows is read once
 * for all steps ---- */

/* Returns whether a target's steps are rows of the anchor's clock, none of which is hidden because
 * it lies after the anchor. */
bool statistics_takes_rows(const struct trajd_window_plan *plan, uint32_t target);
/* Returns whether an output is of that kind. */
bool statistics_is_difference(const struct trajd_window_plan *plan, uint32_t output_index);
/* Allocates what an item needs for chunks of that many windows. */
void statistics_differences_allocate(struct windows_walk *walk, uint32_t item, uint32_t windows);
/* Adds windows [w, end) of the chunk, which have adjacent anchors in one episode. The rows must
 * stay until the chunk has been counted. */
void statistics_differences_add_run(struct windows_walk *walk, uint32_t item, uint32_t w,
                                    uint32_t end, const void *const *rows);
/* Counts columns [begin, end) of all items of that kind. In a thread of the pool. */
void statistics_differences_count(const struct statistics_sweep *sweep, uint32_t begin,
                                  uint32_t end);

#endif
