/* Sweeps over data for statistics, whatever the data comes from. A walk (stats_walk.c,
 * stats_rows.c) goes over all rows once, chunk by chunk, and calls statistics_count for each;
 * statistics_run_sweeps repeats the walk until all histograms are complete.
 *
 * An item is an output or a stream. A lane has some of its columns that are adjacent in memory. */
#ifndef TRAJD_STATS_STATS_SWEEP_H
#define TRAJD_STATS_STATS_SWEEP_H

#include "daemon/stats/stats.h"

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
/* Pauses after a pin that found no room, until others unpin. False: pins that others retain leave
 * no room, or the sweep must end. */
bool statistics_wait_for_others(const struct statistics_sweep *sweep,
                                const struct trajd_cache *cache,
                                const struct trajd_selection *selection, uint32_t episode_index,
                                const struct trajd_error *error);

#endif
