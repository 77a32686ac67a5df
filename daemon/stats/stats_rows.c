/* Computes statistics of a stream's rows as recorded, each once, of the episodes in which the feed
 * has windows. */
#include <stdlib.h>

#include "daemon/stats/stats_walk.h"

/* of rows at once: they stay in the processor's cache while their columns are counted */
#define CHUNK_BYTES (UINT64_C(1) << 20)

struct rows_walk {
    const struct trajd_window_plan *plan;
    const struct trajd_index_stream *stream;
    struct trajd_selection selection;
    uint32_t array_index;
    struct statistics_run run;
};

/* Returns the rows of the episode in the cache. For a stamped clock these are the rows that it
 * kept. */
static uint64_t row_count(const struct rows_walk *walk, const struct trajd_episode *episode)
{
    const struct trajd_episode_clock *clock = &episode->clocks[walk->stream->clock_index];
    const uint64_t rows = trajd_array_row_count(&episode->extents[walk->array_index]);

    if (!clock->kept_rows)
        return rows;
    for (uint64_t r = 0; r < (uint64_t)clock->row_count; r++)
        if (clock->kept_rows[r] >= rows)
            return r;
    return (uint64_t)clock->row_count;
}

static enum trajd_status count_episode(struct statistics_sweep *sweep, struct rows_walk *walk,
                                       uint32_t place, struct trajd_error *error)
{
    const struct trajd_window_plan *plan = walk->plan;
    const struct trajd_episode *episode = &plan->dataset->index->episodes[plan->episodes[place]];
    struct statistics_lane *lane = &sweep->lanes[0];
    const uint64_t step = CHUNK_BYTES / lane->row_stride_bytes + 1, rows = row_count(walk, episode);
    const void *base = NULL;
    enum trajd_status status;

    status = statistics_pin(sweep, plan->dataset->cache, &walk->selection, plan->episodes[place],
                            true, &base, error);
    if (status)
        return status != TRAJD_ERR_MEMORY && status != TRAJD_ERR_CLOSED && plan->spec->keep_bad_rows
                   ? TRAJD_OK
                   : status;
    for (uint64_t row = 0; row < rows && base && !status; row += step) {
        const uint64_t count = rows - row < step ? rows - row : step;
        walk->run = (struct statistics_run){(const char *)base + row * lane->row_stride_bytes +
                                                (uint64_t)walk->stream->first_column *
                                                    trajd_dtype_size(lane->dtype),
                                            count, NULL};
        statistics_count(sweep);
        if (sweep->first)
            sweep->items[0].result->item_count += count;
        status = statistics_report_progress(sweep, "episodes", place, plan->episode_count, error);
    }
    trajd_cache_unpin(plan->dataset->cache, &walk->selection, plan->episodes[place]);
    return status;
}

static enum trajd_status walk_rows(struct statistics_sweep *sweep, void *context,
                                   struct trajd_error *error)
{
    struct rows_walk *walk = context;
    const struct trajd_window_plan *plan = walk->plan;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t e = 0; e < plan->episode_count && !status; e++) {
        statistics_prefetch(sweep, plan, &walk->selection, e + 1);
        status = count_episode(sweep, walk, e, error);
    }
    return status;
}

/* Returns the bytes of a row of the array, of which the stream may be some columns. 0: no episode
 * has rows. */
static uint64_t row_bytes(const struct trajd_window_plan *plan, uint32_t array_index)
{
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        const struct trajd_array *array =
            &plan->dataset->index->episodes[plan->episodes[e]].extents[array_index];
        if (array->storage != TRAJD_STORAGE_ABSENT && array->size_bytes)
            return trajd_array_row_bytes(array);
    }
    return 0;
}

enum trajd_status trajd_statistics_of_stream(const struct trajd_statistics_request *request,
                                             uint32_t stream_index,
                                             struct trajd_statistics **result,
                                             struct trajd_error *error)
{
    const struct trajd_index_stream *stream = &request->plan->dataset->index->streams[stream_index];
    const bool is_image = stream->dtype == TRAJD_U8 && (stream->rank == 2 || stream->rank == 3);
    const uint64_t columns = !is_image           ? stream->feature_count
                             : stream->rank == 3 ? stream->shape[2]
                                                 : 1;
    struct rows_walk walk = {
        .plan = request->plan, .stream = stream, .array_index = stream->array_index};
    struct statistics_item item = {.index = stream_index,
                                   .column_count = (uint32_t)columns,
                                   .key_bits = trajd_histogram_key_bits(stream->dtype)};
    struct statistics_lane lane = {
        .column_count = (uint32_t)columns,
        .dtype = stream->dtype,
        .run_count = 1,
        .runs = &walk.run,
        .row_stride_bytes = row_bytes(request->plan, stream->array_index),
        .group = is_image ? (uint32_t)(stream->feature_count / columns) : 1};
    struct statistics_sweep sweep = {.pool = request->pool,
                                     .heartbeat = request->heartbeat,
                                     .item_count = 1,
                                     .lane_count = 1,
                                     .items = &item,
                                     .lanes = &lane};
    enum trajd_status status;

    *result = NULL;
    if (stream->form != TRAJD_ROWS_PLAIN)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "stream %s: no statistics of encoded images", stream->name);
    if (columns > TRAJD_STATISTICS_MAX_FEATURES || !lane.row_stride_bytes)
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "stream %s: no statistics of %llu features in rows of %llu bytes "
                               "(rows need bytes, and at most %d features)",
                               stream->name, (unsigned long long)columns,
                               (unsigned long long)lane.row_stride_bytes,
                               TRAJD_STATISTICS_MAX_FEATURES);
    item.result = trajd_statistics_new(TRAJD_STATISTICS_ROWS, item.column_count);
    if (!item.result)
        return statistics_no_memory(error);
    walk.selection = (struct trajd_selection){.array_indexes = &walk.array_index, .array_count = 1};
    status = statistics_run_sweeps(&sweep, walk_rows, &walk, error);
    item.result->step_count = item.result->valid_count = item.result->item_count;
    item.result->fingerprint = trajd_statistics_stream_fingerprint(request->plan, stream_index);
    if (status)
        free(item.result);
    else
        *result = item.result;
    return status;
}
