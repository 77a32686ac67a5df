/* Converts one stream of one episode into memory instead of a file. */
#include "clients/cli/resample/convert_series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/memory.h"
#include "daemon/window/window_report.h"
#include "clients/cli/resample/convert_rows.h"
#include "proto/array_len.h"
#include "proto/regular_file.h"

enum { RATE_DEFAULT_HZ = 20 };

static const uint64_t values_max = UINT64_C(8) << 20;  /* of the rows and steps that are shown */
static const uint64_t bytes_max = UINT64_C(512) << 20; /* of the whole rows that contain them */

/* The conversion of one episode into memory. */
struct making {
    const struct convert_series_options *options;
    struct convert_plan plan;
    const struct convert_dataset *dataset;
    const struct convert_array *array;
    const struct trajd_index_stream *stream;
    int64_t row_begin, row_end;
    uint64_t step_begin, step_end;
    struct convert_series *series;
    struct convert_block block;
    uint8_t *made; /* rows of the dataset */
    struct trajd_error *error;
};

void convert_series_destroy(struct convert_series **series)
{
    if (!*series)
        return;
    free((*series)->row_times_s);
    free((*series)->rows);
    free((*series)->step_times_s);
    free((*series)->steps);
    free(*series);
    *series = NULL;
}

/* Converts the columns of the stream from whole rows. */
static enum trajd_status take_columns(struct making *m, enum trajd_dtype dtype, const uint8_t *rows,
                                      uint64_t count, double *values)
{
    const uint64_t size = trajd_dtype_size(dtype), row_bytes = size * m->dataset->elements;

    for (uint64_t r = 0; r < count; r++)
        if (!trajd_array_to_f64(dtype, rows + r * row_bytes + m->stream->first_column * size,
                                m->series->feature_count, values + r * m->series->feature_count))
            return trajd_error_set(m->error, TRAJD_ERR_UNSUPPORTED, 0, "%s: %s cannot be drawn",
                                   m->options->stream, trajd_dtype_name(dtype));
    return TRAJD_OK;
}

/* ---- the span ---- */

static enum trajd_status find_span(struct making *m)
{
    const struct convert_episode *made = &m->plan.episodes[0];
    const struct trajd_episode_clock *clock = &m->options->episode->clocks[m->dataset->clock];
    const int64_t from = m->options->from_ns, to = m->options->to_ns;
    const int64_t grid_end = made->begin_ns + convert_step_ns(&m->plan, made->step_count - 1);

    m->row_begin = from == INT64_MIN ? 0 : trajd_clock_rows_until(clock, m->array->rows, from - 1);
    m->row_end = trajd_clock_rows_until(clock, m->array->rows, to);
    m->step_begin =
        from <= made->begin_ns
            ? 0
            : (uint64_t)trajd_rate_row_at(m->plan.options->rate, from - made->begin_ns - 1) + 1;
    m->step_end = to < made->begin_ns ? 0
                  : to >= grid_end
                      ? made->step_count
                      : (uint64_t)trajd_rate_row_at(m->plan.options->rate, to - made->begin_ns) + 1;
    if (m->row_begin >= m->row_end && m->step_begin >= m->step_end)
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s has no rows in that span: it lasts from %.3f s to %.3f s",
                               m->options->stream, (double)trajd_clock_row_ns(clock, 0) * 1e-9,
                               (double)trajd_clock_row_ns(clock, m->array->rows - 1) * 1e-9);
    if (m->step_begin > m->step_end)
        m->step_begin = m->step_end;
    m->series->row_count = m->row_end > m->row_begin ? (uint64_t)(m->row_end - m->row_begin) : 0;
    m->series->step_count = m->step_end - m->step_begin;
    if ((m->series->row_count + m->series->step_count) > values_max / m->series->feature_count ||
        (m->series->row_count + m->series->step_count) >
            bytes_max / (m->dataset->source_bytes + m->dataset->row_bytes))
        return trajd_error_set(
            m->error, TRAJD_ERR_UNSUPPORTED, 0,
            "%" PRIu64 " rows and %" PRIu64
            " steps are too many to plot: choose a shorter span with --from and --to",
            m->series->row_count, m->series->step_count);
    return TRAJD_OK;
}

static void allocate(struct convert_series *series)
{
    const uint64_t features = series->feature_count;

    series->row_times_s = trajd_memory_or_exit(calloc(series->row_count + 1, sizeof(double)));
    series->rows = trajd_memory_or_exit(calloc(series->row_count * features + 1, sizeof(double)));
    series->step_times_s = trajd_memory_or_exit(calloc(series->step_count + 1, sizeof(double)));
    series->steps = trajd_memory_or_exit(calloc(series->step_count * features + 1, sizeof(double)));
}

/* ---- rows and steps ---- */

static enum trajd_status read_rows(struct making *m)
{
    const struct trajd_index *index = m->options->index;
    const struct trajd_episode *episode = m->options->episode;
    const struct trajd_episode_clock *clock = &episode->clocks[m->dataset->clock];
    const struct trajd_array *array = &episode->extents[m->dataset->index_dataset];
    const char *path = index->files[episode->file_index].path;
    int fd;
    uint8_t *row =
        trajd_memory_or_exit(malloc(m->dataset->source_bytes * (m->series->row_count + 1)));
    struct trajd_array_reader *reader = NULL;
    enum trajd_status status = trajd_open_regular(path, &fd, m->error);

    if (!status)
        status = trajd_array_reader_create(&reader, m->error);
    if (!status && !clock->kept_rows)
        status = trajd_array_read(reader, fd, array, (uint64_t)m->row_begin, m->series->row_count,
                                  row, m->error);
    for (uint64_t r = 0; r < m->series->row_count && !status; r++) {
        if (clock->kept_rows)
            status =
                trajd_array_read(reader, fd, array, clock->kept_rows[m->row_begin + (int64_t)r], 1,
                                 row + r * m->dataset->source_bytes, m->error);
        m->series->row_times_s[r] =
            (double)trajd_clock_row_ns(clock, m->row_begin + (int64_t)r) * 1e-9;
    }
    if (!status)
        status = take_columns(m, m->dataset->from, row, m->series->row_count, m->series->rows);
    trajd_array_reader_destroy(&reader);
    free(row);
    if (fd >= 0)
        close(fd);
    return status;
}

/* Keeps the stream's rows of a block, and returns the block empty. */
static struct convert_block *keep_rows(void *context, struct convert_block *block)
{
    struct making *m = context;
    const uint64_t row_bytes = m->dataset->row_bytes;

    for (uint32_t i = 0; i < m->block.count; i++) {
        const struct trajd_writer_rows *rows = &m->block.rows[i];
        if (m->plan.episodes[0].arrays + rows->array == m->array)
            memcpy(m->made + (rows->place[0] - m->step_begin) * row_bytes,
                   m->block.bytes + rows->at, rows->size);
    }
    (void)block;
    m->block.used = m->block.count = 0;
    return &m->block;
}

/* Makes the steps as a conversion does, in segments of the stream's group. */
static enum trajd_status run_segments(struct making *m, const struct convert_group *groups,
                                      uint32_t group)
{
    const struct convert_sink sink = {.exchange = keep_rows, .context = m};
    struct trajd_convert_report unwanted = {0};
    struct convert_worker *worker = NULL;
    enum trajd_status status =
        convert_worker_create(&m->plan, groups, &sink, NULL, &unwanted, &worker, m->error);

    for (uint64_t step = m->step_begin; step < m->step_end && !status; step += UINT16_MAX) {
        const uint64_t end = m->step_end - step < UINT16_MAX ? m->step_end : step + UINT16_MAX;
        status =
            convert_worker_run(worker, &(struct convert_segment){0, group, step, end}, m->error);
    }
    if (!status)
        keep_rows(m, convert_worker_release(worker));
    convert_worker_destroy(&worker);
    return status;
}

/* Returns the group that the dataset is in. */
static uint32_t find_group(const struct making *m, const struct convert_group *groups)
{
    const uint32_t wanted = (uint32_t)(m->dataset - m->plan.datasets);

    for (uint32_t g = 0;; g++)
        for (uint32_t i = 0; i < groups[g].dataset_count; i++)
            if (groups[g].datasets[i] == wanted)
                return g;
}

static enum trajd_status make_steps(struct making *m)
{
    const uint64_t segment =
        m->series->step_count < UINT16_MAX ? m->series->step_count : UINT16_MAX;
    struct convert_group *groups;
    uint32_t count, group;
    enum trajd_status status;

    convert_groups_make(&m->plan, &groups, &count);
    group = find_group(m, groups);
    for (uint32_t i = 0; i < groups[group].dataset_count; i++)
        m->block.size += segment * m->plan.datasets[groups[group].datasets[i]].row_bytes + 64;
    m->block.bytes = trajd_memory_or_exit(malloc(m->block.size));
    m->made = trajd_memory_or_exit(malloc(m->series->step_count * m->dataset->row_bytes + 1));
    status = run_segments(m, groups, group);
    if (!status)
        status = take_columns(m, m->dataset->to, m->made, m->series->step_count, m->series->steps);
    for (uint64_t t = 0; t < m->series->step_count; t++)
        m->series->step_times_s[t] =
            (double)(m->plan.episodes[0].begin_ns + convert_step_ns(&m->plan, m->step_begin + t)) *
            1e-9;
    free(m->made);
    free(m->block.bytes);
    return status;
}

/* Makes the wanted episode the plan's first one. Ids of several files may be equal. */
static bool find_episode(struct making *m)
{
    const uint32_t number = (uint32_t)(m->options->episode - m->options->index->episodes);

    for (uint32_t e = 0; e < m->plan.episode_count; e++)
        if (m->plan.episodes[e].episode == number) {
            m->plan.episodes[0] = m->plan.episodes[e];
            return true;
        }
    return false;
}

static enum trajd_status find_parts(struct making *m)
{
    const int64_t found = trajd_index_find_stream(m->options->index, m->options->stream);
    uint64_t features;

    if (found < 0)
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: name one stream, not a pattern", m->options->stream);
    if (m->options->index->streams[found].form != TRAJD_ROWS_PLAIN)
        return trajd_error_set(m->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s holds encoded frames, which have no curves", m->options->stream);
    if (!find_episode(m))
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: resampling leaves this stream out", m->options->episode->id);
    m->stream = &m->options->index->streams[found];
    for (uint32_t a = 0; a < m->plan.episodes[0].array_count; a++)
        if (m->plan.datasets[m->plan.episodes[0].arrays[a].dataset].index_dataset ==
            m->stream->array_index)
            m->array = &m->plan.episodes[0].arrays[a];
    if (!m->array)
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: the episode has no rows of this stream", m->options->stream);
    m->dataset = &m->plan.datasets[m->array->dataset];
    m->series = trajd_memory_or_exit(calloc(1, sizeof *m->series));
    features = m->stream->feature_count;
    m->series->feature_count =
        (uint32_t)(features < m->options->features_max ? features : m->options->features_max);
    m->series->features_left_out = features - m->series->feature_count;
    m->series->rate = m->plan.options->rate;
    for (uint32_t s = 0; s < m->plan.stream_count; s++)
        if (!strcmp(m->plan.streams[s].name, m->options->stream))
            m->series->kind =
                m->plan.streams[s].adds ? "sum" : trajd_window_kind_name(m->plan.streams[s].kind);
    return TRAJD_OK;
}

enum trajd_status convert_series_read(const struct convert_series_options *options,
                                      struct convert_series **series, struct trajd_error *error)
{
    const struct trajd_rate usual = {RATE_DEFAULT_HZ, 1};
    /* The episode is not split, so that the plot shows its gaps. Other streams of the dataset may
     * have a max_gap, too. */
    struct trajd_convert_rule rules[] = {{.kind = TRAJD_CONVERT_NO_KIND, .max_gap_ns = INT64_MAX},
                                         options->rule};
    const struct trajd_convert_options convert = {.indexes = &options->index,
                                                  .index_count = 1,
                                                  .rate = options->rate.num ? options->rate : usual,
                                                  .accepts_assumed_rates = true,
                                                  .streams = &options->stream,
                                                  .stream_count = 1,
                                                  .rules = rules,
                                                  .rule_count = ARRAY_LEN(rules),
                                                  .episodes = &options->episode->id,
                                                  .episode_count = 1,
                                                  .compress = TRAJD_CONVERT_NONE};
    struct making m = {.options = options, .error = error};
    enum trajd_status status;

    rules[1].stream = options->stream;
    rules[1].max_gap_ns = 0;
    *series = NULL;
    status = convert_plan_make(&convert, &m.plan, error);
    if (!status)
        status = find_parts(&m);
    if (!status)
        status = find_span(&m);
    if (!status) {
        allocate(m.series);
        status = read_rows(&m);
    }
    if (!status)
        status = make_steps(&m);
    if (status)
        convert_series_destroy(&m.series);
    *series = m.series;
    convert_plan_clear(&m.plan);
    return status;
}
