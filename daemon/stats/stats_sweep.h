/* Between statistics_*.c: the sweeps over the data, whatever it comes from. */
#ifndef TRAJD_STATS_STATS_SWEEP_H
#define TRAJD_STATS_STATS_SWEEP_H

#include "daemon/stats/stats.h"

/* Rows in memory that count. */
struct statistics_run {
    const void *base; /* NULL: nothing of it counts */
    uint64_t row_count;
    const uint32_t *weights; /* [row_count] or NULL */
};

/* Columns of one item that lie side by side in memory. */
struct statistics_lane {
    uint32_t item;
    uint32_t first_column, column_count; /* of the item */
    enum trajd_dtype dtype;
    uint64_t row_stride_bytes;
    /* elements of a column in a row: pixels; else 1. They are column_count elements apart */
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
    bool first;                         /* the first sweep: steps are counted */
    uint32_t group_begin, group_end;    /* columns that are counted now */
    struct trajd_histogram *histograms; /* [group_end - group_begin] */
    bool *done;                         /* the same */
    uint64_t pass_count, pass, pass_permille;
};

/* Walks once over all data: for every chunk sets the lanes' runs and calls statistics_count. */
typedef enum trajd_status (*statistics_walk)(struct statistics_sweep *sweep, void *context,
                                             struct trajd_error *error);

/* Sweeps as often as the items need and fills their results, which the caller has allocated and
 * frees. */
enum trajd_status statistics_run_sweeps(struct statistics_sweep *sweep, statistics_walk walk,
                                        void *context, struct trajd_error *error);
/* Counts the chunk that the lanes' runs are, over the pool. */
void statistics_count(struct statistics_sweep *sweep);
/* How far the walk is; TRAJD_ERR_CLOSED where it is to end. */
enum trajd_status statistics_report_progress(struct statistics_sweep *sweep, uint64_t done,
                                             uint64_t total, struct trajd_error *error);
/* The cache had no room for a pin: a pause until others give some back. False: what others keep
 * leaves none, or the sweep is to end. */
bool statistics_wait_for_others(const struct statistics_sweep *sweep,
                                const struct trajd_cache *cache,
                                const struct trajd_selection *selection, uint32_t episode_index,
                                const struct trajd_error *error);

#endif
