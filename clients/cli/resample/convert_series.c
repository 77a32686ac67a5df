/* Converts one stream of one episode into memory instead of a file. */
#include "clients/cli/resample/convert_series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/memory.h"
#include "clients/cli/resample/convert_rows.h"
#include "proto/array_len.h"

enum { RATE_DEFAULT_HZ = 20 };

static const uint64_t values_max = UINT64_C(8) << 20;  /* of the rows and steps that are shown */
static const uint64_t bytes_max = UINT64_C(512) << 20; /* of the whole rows that contain them */

/* The conversion of one episode into memory. */
struct making {
    const struct convert_series_options *options;
    struct convert_plan plan;
    const struct convert_dataset *dataset;
    const struct convert_array *array;
    const struct trajd_convert_stream *stream;
    int64_t row_begin, row_end;
    uint64_t step_begin, step_end;
    struct convert_series *series;
    struct convert_block block;
    uint8_t *made; /* steps of the dataset */
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
        if (!trajd_array_to_f64(dtype,
                                rows + r * row_bytes + m->stream->source->first_column * size,
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

static enum trajd_status read_rows(struct making *m, struct convert_worker *worker)
{
    const struct trajd_episode_clock *clock = &m->options->episode->clocks[m->dataset->clock];
    const uint64_t count = m->series->row_count;
    uint8_t *rows = trajd_memory_or_exit(malloc(m->dataset->source_bytes * (count + 1)));
    enum trajd_status status = convert_worker_open(worker);

    if (!status && count)
        status = convert_worker_read(worker, m->dataset, m->row_begin, m->row_end, rows);
    if (!status)
        status = take_columns(m, m->dataset->from, rows, count, m->series->rows);
    for (uint64_t r = 0; r < count; r++)
        m->series->row_times_s[r] =
            (double)trajd_clock_row_ns(clock, m->row_begin + (int64_t)r) * 1e-9;
    free(rows);
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
static enum trajd_status make_steps(struct making *m, struct convert_worker *worker)
{
    const uint64_t count = m->series->step_count;
    struct convert_segment segment = {.group = m->dataset->group, .step_begin = m->step_begin};
    enum trajd_status status = TRAJD_OK;

    m->made = trajd_memory_or_exit(malloc(count * m->dataset->row_bytes + 1));
    for (; segment.step_begin < m->step_end && !status; segment.step_begin = segment.step_end) {
        segment.step_end = segment.step_begin + m->plan.groups[segment.group].steps;
        if (segment.step_end > m->step_end)
            segment.step_end = m->step_end;
        status = convert_worker_run(worker, &segment);
    }
    keep_rows(m, NULL);
    if (!status)
        status = take_columns(m, m->dataset->to, m->made, count, m->series->steps);
    for (uint64_t t = 0; t < count; t++)
        m->series->step_times_s[t] =
            (double)(m->plan.episodes[0].begin_ns + convert_step_ns(&m->plan, m->step_begin + t)) *
            1e-9;
    free(m->made);
    return status;
}

static enum trajd_status make_series(struct making *m)
{
    struct trajd_convert_report unwanted = {0};
    struct convert_backend backend = {.kind = TRAJD_CONVERT_CPU};
    struct convert_worker worker = {.plan = &m->plan,
                                    .sink = {.exchange = keep_rows, .context = m},
                                    .report = &unwanted,
                                    .error = m->error,
                                    .engine.backend = &backend,
                                    .made = &m->plan.episodes[0]};
    enum trajd_status status;

    allocate(m->series);
    m->block.size = convert_segment_bytes(&m->plan);
    m->block.bytes = trajd_memory_or_exit(malloc(m->block.size));
    convert_worker_begin(&worker);
    status = read_rows(m, &worker);
    if (!status)
        status = make_steps(m, &worker);
    convert_worker_end(&worker);
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
    const struct convert_series_options *options = m->options;
    const int64_t found = trajd_index_find_stream(options->index, options->stream);
    uint64_t features;

    if (found < 0)
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: name one stream, not a pattern", options->stream);
    m->stream = &m->plan.all[found];
    features = m->stream->source->feature_count;
    if (m->stream->source->form != TRAJD_ROWS_PLAIN)
        return trajd_error_set(m->error, TRAJD_ERR_UNSUPPORTED, 0,
                               "%s holds encoded frames, which have no curves", options->stream);
    if (!find_episode(m))
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: resampling leaves this stream out", options->episode->id);
    for (uint32_t a = 0; a < m->plan.episodes[0].array_count; a++)
        if (m->plan.datasets[m->plan.episodes[0].arrays[a].dataset].index_dataset ==
            m->stream->source->array_index)
            m->array = &m->plan.episodes[0].arrays[a];
    if (!m->array)
        return trajd_error_set(m->error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: the episode has no rows of this stream", options->stream);
    m->dataset = &m->plan.datasets[m->array->dataset];
    m->series = trajd_memory_or_exit(calloc(1, sizeof *m->series));
    m->series->feature_count =
        (uint32_t)(features < options->features_max ? features : options->features_max);
    m->series->features_left_out = features - m->series->feature_count;
    m->series->rate = m->plan.options->rate;
    m->series->kind = trajd_convert_kind_name(m->stream);
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
    if (!status)
        status = make_series(&m);
    if (status)
        convert_series_destroy(&m.series);
    *series = m.series;
    trajd_arena_free(&m.plan.arena);
    return status;
}
