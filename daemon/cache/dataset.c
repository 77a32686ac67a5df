/* Opens a dataset: index, row cache, frames and the stamps of all clocks. */
#include "daemon/cache/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/heartbeat.h"

/* The minimum number of threads that read frames, which on storage with a latency is most of their
 * time. Decoding has its own limit, that of the pool. */
#define FRAME_THREADS 32

/* Returns how many rows of a clock need stamps: its own, or those of the longest stream on it. */
static int64_t clock_rows(const struct trajd_index *index, const struct trajd_episode *episode,
                          uint32_t clock)
{
    int64_t rows = episode->clocks[clock].row_count;

    for (uint32_t s = 0; s < index->stream_count && index->clocks[clock].regular; s++) {
        const struct trajd_array *array = &episode->extents[index->streams[s].array_index];
        if (index->streams[s].clock_index == clock && array->storage != TRAJD_STORAGE_ABSENT &&
            (int64_t)trajd_array_row_count(array) > rows)
            rows = (int64_t)trajd_array_row_count(array);
    }
    return rows;
}

/* Returns the one rate of a regular clock; num 0 where the clock is stamped or the rate differs
 * between episodes. */
static struct trajd_rate common_rate(const struct trajd_index *index, uint32_t clock)
{
    struct trajd_rate common = {0, 0};

    for (uint32_t e = 0; e < index->episode_count && index->clocks[clock].regular; e++) {
        struct trajd_rate rate;
        if (index->episodes[e].quarantine)
            continue;
        rate = index->episodes[e].clocks[clock].rate;
        if (!rate.num) /* no stream of the episode is on the clock */
            continue;
        if (common.num && (rate.num != common.num || rate.den != common.den))
            return (struct trajd_rate){0, 0};
        common = rate;
    }
    return common;
}

/* Concatenates the stamps of a clock: the kernels search one array per clock, and the index has one
 * per episode. */
static enum trajd_status gather_stamps(struct trajd_dataset *dataset, uint32_t clock,
                                       struct trajd_error *error)
{
    const struct trajd_index *index = dataset->index;
    int64_t total = 0, *begin, *stamps;

    for (uint32_t e = 0; e < index->episode_count; e++)
        if (!index->episodes[e].quarantine)
            total += clock_rows(index, &index->episodes[e], clock);
    begin = dataset->clock_row_begin[clock] = calloc(index->episode_count + 1, sizeof *begin);
    stamps = dataset->clock_stamps_ns[clock] = malloc((size_t)(total + 1) * sizeof *stamps);
    if (!begin || !stamps)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the stamps of clock %s",
                               index->clocks[clock].name);
    total = 0;
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *view = &index->episodes[e].clocks[clock];
        const int64_t rows =
            index->episodes[e].quarantine ? 0 : clock_rows(index, &index->episodes[e], clock);
        begin[e] = total;
        trajd_heartbeat_turn();
        for (int64_t row = 0; row < rows; row++)
            stamps[total + row] =
                view->stamps_ns ? view->stamps_ns[row] : trajd_rate_row_ns(view->rate, row);
        total += rows;
    }
    dataset->clock_stamp_count[clock] = total;
    return TRAJD_OK;
}

/* Finds the rate of each clock, or gathers its stamps. */
static enum trajd_status make_clocks(struct trajd_dataset *dataset, struct trajd_error *error)
{
    const uint32_t count = dataset->index->clock_count;
    enum trajd_status status = TRAJD_OK;

    dataset->clock_stamps_ns = calloc(count + 1, sizeof *dataset->clock_stamps_ns);
    dataset->clock_row_begin = calloc(count + 1, sizeof *dataset->clock_row_begin);
    dataset->clock_stamp_count = calloc(count + 1, sizeof *dataset->clock_stamp_count);
    dataset->clock_rates = calloc(count + 1, sizeof *dataset->clock_rates);
    if (!dataset->clock_stamps_ns || !dataset->clock_row_begin || !dataset->clock_stamp_count ||
        !dataset->clock_rates)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for dataset %s",
                               dataset->name);
    for (uint32_t c = 0; c < count && !status; c++) {
        dataset->clock_rates[c] = common_rate(dataset->index, c);
        if (!dataset->clock_rates[c].num)
            status = gather_stamps(dataset, c, error);
    }
    return status;
}

enum trajd_status trajd_dataset_open(const struct trajd_dataset_options *options,
                                     struct trajd_dataset **out, struct trajd_error *error)
{
    struct trajd_dataset *dataset = calloc(1, sizeof *dataset);
    struct trajd_cache_options cache = {.budget_bytes = options->cache_budget_bytes,
                                        .reader_count = options->reader_count};
    enum trajd_status status;

    *out = NULL;
    if (!dataset || !(dataset->name = strdup(options->name))) {
        free(dataset);
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for dataset %s",
                               options->name);
    }
    if ((status = trajd_index_open(&options->index, &dataset->index, error)))
        goto failed;
    if ((status = make_clocks(dataset, error)))
        goto failed;
    cache.index = dataset->index;
    trajd_heartbeat_wait(); /* it calls stat on each file */
    status = trajd_cache_create(&cache, &dataset->cache, error);
    trajd_heartbeat_resume();
    if (!status && options->decoders)
        status = trajd_frames_create(
            &(struct trajd_frames_options){.index = dataset->index,
                                           .cache = dataset->cache,
                                           .decoders = options->decoders,
                                           .worker_count = options->decoder_count < FRAME_THREADS
                                                               ? FRAME_THREADS
                                                               : options->decoder_count,
                                           .decoder_count = options->decoder_count},
            &dataset->frames, error);
    if (status)
        goto failed;
    *out = dataset;
    return TRAJD_OK;

failed:
    trajd_error_prefix(error, "dataset %s", options->name);
    trajd_dataset_destroy(&dataset);
    return status;
}

const char *trajd_dataset_find_hung(const struct trajd_dataset *dataset, int64_t now_ns,
                                    int64_t limit_ns)
{
    const char *mount = trajd_cache_find_hung(dataset->cache, now_ns, limit_ns);

    return mount || !dataset->frames ? mount
                                     : trajd_frames_find_hung(dataset->frames, now_ns, limit_ns);
}

void trajd_dataset_destroy(struct trajd_dataset **out)
{
    struct trajd_dataset *dataset = *out;

    *out = NULL;
    if (!dataset)
        return;
    trajd_frames_destroy(&dataset->frames);
    trajd_cache_destroy(&dataset->cache);
    for (uint32_t c = 0; dataset->index && c < dataset->index->clock_count; c++) {
        if (dataset->clock_stamps_ns)
            free(dataset->clock_stamps_ns[c]);
        if (dataset->clock_row_begin)
            free(dataset->clock_row_begin[c]);
    }
    free(dataset->clock_stamps_ns);
    free(dataset->clock_row_begin);
    free(dataset->clock_stamp_count);
    free(dataset->clock_rates);
    trajd_index_destroy(&dataset->index);
    free(dataset->name);
    free(dataset);
}
