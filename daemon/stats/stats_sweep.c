/* Sweeps the episodes with several threads, and feeds the values of each column to its
 * histogram. */
#include "daemon/stats/stats_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/base/heartbeat.h"
#include "daemon/base/progress/progress.h"

/* of all histograms at once; more columns are counted in further sweeps */
#define HISTOGRAM_BYTES (UINT64_C(96) << 20)
/* so many rows stay in the processor's cache while one column after the other is counted */
#define BLOCK_ROWS TRAJD_HISTOGRAM_TILE
#define SLICES_PER_THREAD 2
#define PAUSE_NS 1000000
#define AHEAD_EPISODES 8

/* ---- episodes ---- */

enum trajd_status statistics_no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for statistics");
}

void statistics_prefetch(struct statistics_sweep *sweep, const struct trajd_window_plan *plan,
                         const struct trajd_selection *selection, uint32_t next)
{
    if (sweep->prefetched < next)
        sweep->prefetched = next;
    for (; sweep->prefetched < plan->episode_count && sweep->prefetched < next + AHEAD_EPISODES;
         sweep->prefetched++)
        trajd_cache_prefetch(plan->dataset->cache, selection, &plan->episodes[sweep->prefetched], 1,
                             sweep->when++);
}

/* Returns whether pausing may help: pins of others leave no room now, but will. */
static bool may_pause(const struct statistics_sweep *sweep, const struct trajd_cache *cache,
                      const struct trajd_selection *selection, uint32_t episode_index,
                      const struct trajd_error *error)
{
    return !(error && error->foreign_code == ENOMEM) && !trajd_heartbeat_is_cancelled() &&
           !(sweep->heartbeat && __atomic_load_n(&sweep->heartbeat->cancel, __ATOMIC_RELAXED)) &&
           trajd_cache_will_have_room(cache, selection, episode_index);
}

enum trajd_status statistics_pin(const struct statistics_sweep *sweep, struct trajd_cache *cache,
                                 const struct trajd_selection *selection, uint32_t episode_index,
                                 bool may_wait, const void **rows, struct trajd_error *error)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    enum trajd_status status;

    while ((status = trajd_cache_pin(cache, selection, episode_index, rows, error)) ==
               TRAJD_ERR_MEMORY &&
           may_wait) {
        trajd_heartbeat_turn();
        if (!may_pause(sweep, cache, selection, episode_index, error))
            break;
        nanosleep(&pause, NULL);
    }
    return status;
}

/* ---- one chunk ---- */

/* Counts rows [row, row + count) of a run in columns [begin, end) of all items' columns. */
static void count_block(struct statistics_sweep *sweep, const struct statistics_lane *lane,
                        const struct statistics_run *run, uint64_t row, uint64_t count,
                        uint32_t begin, uint32_t end)
{
    const uint32_t element = trajd_dtype_size(lane->dtype);
    const uint32_t first = sweep->items[lane->item].first_column + lane->first_column;

    for (uint32_t c = begin; c < end; c++) {
        const struct trajd_histogram_values values = {
            .base = (const char *)run->base + row * lane->row_stride_bytes +
                    (size_t)(c - first) * element,
            .dtype = lane->dtype,
            .row_count = count,
            .row_stride_bytes = lane->row_stride_bytes,
            .group = lane->group,
            .group_stride_bytes = (uint64_t)lane->column_count * element,
            .weights = run->weights ? run->weights + row : NULL};
        if (!sweep->done[c - sweep->group_begin])
            trajd_histogram_add(&sweep->histograms[c - sweep->group_begin], &values);
    }
}

static void count_lane(struct statistics_sweep *sweep, const struct statistics_lane *lane,
                       uint32_t begin, uint32_t end)
{
    const uint32_t first = sweep->items[lane->item].first_column + lane->first_column,
                   last = first + lane->column_count;
    const uint32_t from = begin > first ? begin : first, to = end < last ? end : last;

    for (uint32_t r = 0; r < lane->run_count && from < to; r++) {
        const struct statistics_run *run = &lane->runs[r];
        for (uint64_t row = 0; row < run->row_count && run->base; row += BLOCK_ROWS) {
            const uint64_t remaining = run->row_count - row;
            count_block(sweep, lane, run, row, remaining < BLOCK_ROWS ? remaining : BLOCK_ROWS,
                        from, to);
        }
    }
}

/* Counts one slice's columns. Each column belongs to one slice, which adds the runs in order. */
static void count_slice(void *context, uint32_t slice)
{
    struct statistics_sweep *sweep = context;
    const uint64_t columns = sweep->group_end - sweep->group_begin;
    const uint32_t begin = sweep->group_begin + (uint32_t)(columns * slice / sweep->slice_count);
    const uint32_t end =
        sweep->group_begin + (uint32_t)(columns * (slice + 1) / sweep->slice_count);

    for (uint32_t l = 0; l < sweep->lane_count; l++)
        count_lane(sweep, &sweep->lanes[l], begin, end);
    if (sweep->count_also)
        sweep->count_also(sweep, begin, end);
}

void statistics_count(struct statistics_sweep *sweep)
{
    const uint32_t columns = sweep->group_end - sweep->group_begin;
    const uint32_t wanted = trajd_pool_thread_count(sweep->pool) * SLICES_PER_THREAD;

    sweep->slice_count = columns < wanted ? columns : wanted;
    trajd_pool_run(sweep->pool, sweep->slice_count, count_slice, sweep);
}

enum trajd_status statistics_report_progress(struct statistics_sweep *sweep, const char *unit,
                                             uint64_t done, uint64_t total,
                                             struct trajd_error *error)
{
    const uint64_t permille = total ? done * 1000 / total : 1000;

    trajd_heartbeat_turn();
    trajd_progress_report("statistics", unit, sweep->pass * total + done,
                          sweep->pass_count * total);
    if (!sweep->heartbeat || trajd_heartbeat_is_cancelled())
        return trajd_heartbeat_check(error);
    __atomic_store_n(&sweep->heartbeat->permille,
                     (uint32_t)((sweep->pass * 1000 + permille) / sweep->pass_count),
                     __ATOMIC_RELAXED);
    return __atomic_load_n(&sweep->heartbeat->cancel, __ATOMIC_RELAXED)
               ? trajd_error_set(error, TRAJD_ERR_CLOSED, 0, "statistics: cancelled")
               : TRAJD_OK;
}

/* ---- all sweeps ---- */

static struct statistics_item *item_of(struct statistics_sweep *sweep, uint32_t column)
{
    uint32_t i = 0;

    while (i + 1 < sweep->item_count && column >= sweep->items[i + 1].first_column)
        i++;
    return &sweep->items[i];
}

/* Marks the items that have columns left to count. False: none has. */
static bool mark_active(struct statistics_sweep *sweep)
{
    bool any = false;

    for (uint32_t i = 0; i < sweep->item_count; i++)
        sweep->items[i].active = false;
    for (uint32_t c = sweep->group_begin; c < sweep->group_end; c++)
        if (!sweep->done[c - sweep->group_begin])
            item_of(sweep, c)->active = any = true;
    return any;
}

static enum trajd_status end_level(struct statistics_sweep *sweep, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t c = sweep->group_begin; c < sweep->group_end && !status; c++) {
        const uint32_t place = c - sweep->group_begin;
        struct statistics_item *item = item_of(sweep, c);
        bool more = false;
        if (sweep->done[place])
            continue;
        trajd_heartbeat_turn();
        status = trajd_histogram_next(&sweep->histograms[place], &more, error);
        sweep->done[place] = !more;
        if (!more && !status)
            item->result->features[c - item->first_column] = sweep->histograms[place].found;
    }
    return status;
}

static enum trajd_status run_group(struct statistics_sweep *sweep, statistics_walk walk,
                                   void *context, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t c = sweep->group_begin; c < sweep->group_end && !status; c++) {
        sweep->done[c - sweep->group_begin] = false;
        status = trajd_histogram_begin(&sweep->histograms[c - sweep->group_begin],
                                       item_of(sweep, c)->key_bits, sweep->level_bits, error);
    }
    while (!status && mark_active(sweep)) {
        sweep->prefetched = 0;
        status = walk(sweep, context, error);
        if (!status)
            status = end_level(sweep, error);
        sweep->first = false;
        sweep->pass += sweep->pass + 1 < sweep->pass_count;
    }
    for (uint32_t c = sweep->group_begin; c < sweep->group_end; c++)
        trajd_histogram_end(&sweep->histograms[c - sweep->group_begin]);
    return status;
}

/* Returns the first column of the next group, by the memory of its histograms. */
static uint32_t group_end(struct statistics_sweep *sweep, uint32_t begin, uint32_t column_count)
{
    uint64_t bytes = 0;
    uint32_t end = begin;

    while (end < column_count) {
        bytes += trajd_histogram_bytes(item_of(sweep, end)->key_bits, sweep->level_bits);
        if (bytes > HISTOGRAM_BYTES && end > begin)
            break;
        end++;
    }
    return end;
}

/* Returns how many bits a sweep counts: many if all histograms have room at once. */
static uint32_t choose_level_bits(const struct statistics_sweep *sweep)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < sweep->item_count; i++)
        bytes += sweep->items[i].column_count *
                 trajd_histogram_bytes(sweep->items[i].key_bits, TRAJD_HISTOGRAM_MANY_BITS);
    return bytes <= HISTOGRAM_BYTES ? TRAJD_HISTOGRAM_MANY_BITS : TRAJD_HISTOGRAM_FEW_BITS;
}

enum trajd_status statistics_run_sweeps(struct statistics_sweep *sweep, statistics_walk walk,
                                        void *context, struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;
    uint32_t columns = 0, key_bits = 8;

    for (uint32_t i = 0; i < sweep->item_count; i++) {
        sweep->items[i].first_column = columns;
        columns += sweep->items[i].column_count;
        key_bits = sweep->items[i].key_bits > key_bits ? sweep->items[i].key_bits : key_bits;
    }
    sweep->level_bits = choose_level_bits(sweep);
    for (uint32_t begin = 0; begin < columns; begin = group_end(sweep, begin, columns))
        sweep->pass_count += trajd_histogram_sweeps(key_bits, sweep->level_bits);
    sweep->first = true;
    sweep->histograms = calloc(columns, sizeof *sweep->histograms);
    sweep->done = calloc(columns, sizeof *sweep->done);
    if (!sweep->histograms || !sweep->done)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                 "no memory for statistics of %u features", columns);
    while (sweep->group_end < columns && !status) {
        sweep->group_begin = sweep->group_end;
        sweep->group_end = group_end(sweep, sweep->group_begin, columns);
        status = run_group(sweep, walk, context, error);
    }
    free(sweep->histograms);
    free(sweep->done);
    return status;
}
