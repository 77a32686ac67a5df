/* Compares adjacent rows of the chosen streams, and writes the runs of rows that are not idle. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/json.h"
#include "daemon/base/memory.h"
#include "daemon/base/yaml.h"

struct idle {
    const struct trajd_index *index;
    const struct examine_idle_rule *rule;
    struct examine_rows rows;
    bool *is_chosen; /* [stream_count] */
    uint32_t clock;  /* of the chosen streams */
    bool *still;     /* [rows of an episode] */
    double *before;  /* [EXAMINE_WIDEST_ROW] */
    struct trajd_json json;
    struct examine_idle_counts *counts;
};

/* ---- streams ---- */

static enum trajd_status choose(struct idle *idle, uint32_t s, bool *any, struct trajd_error *error)
{
    const struct trajd_index *index = idle->index;
    const struct trajd_index_stream *stream = &index->streams[s];

    if (!examine_is_comparable(stream))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--idle: stream %s has encoded or wide rows, such as images: name "
                               "streams of numbers with --idle-streams",
                               stream->name);
    if (*any && stream->clock_index != idle->clock)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "--idle: stream %s has the clock %s and others have %s: name streams "
            "of one clock with --idle-streams",
            stream->name, index->clocks[stream->clock_index].name, index->clocks[idle->clock].name);
    idle->clock = stream->clock_index;
    idle->is_chosen[s] = *any = true;
    return TRAJD_OK;
}

static enum trajd_status choose_name(struct idle *idle, const char *name, bool *any,
                                     struct trajd_error *error)
{
    const struct trajd_index *index = idle->index;
    const char *names[256];
    size_t count = 0;

    for (uint32_t s = 0; s < index->stream_count; s++) {
        if (strcmp(index->streams[s].name, name) == 0)
            return choose(idle, s, any, error);
        if (count < 256)
            names[count++] = index->streams[s].name;
    }
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "--idle-streams: no stream %.200s%s", name,
                           trajd_yaml_suggest(" (", name, names, count, ")").text);
}

static enum trajd_status choose_streams(struct idle *idle, struct trajd_error *error)
{
    const struct trajd_index *index = idle->index;
    enum trajd_status status = TRAJD_OK;
    char *names = NULL, *rest;
    bool any = false;

    if (idle->rule->streams)
        names = trajd_memory_or_exit(strdup(idle->rule->streams));
    rest = names;
    for (char *name; rest && !status && (name = strsep(&rest, ","));)
        status = choose_name(idle, name, &any, error);
    for (uint32_t s = 0; !names && s < index->stream_count && !status; s++)
        if (examine_is_motion(&index->streams[s]))
            status = choose(idle, s, &any, error);
    free(names);
    if (!status && !any)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "--idle: all streams hold their values or are images: name those "
                               "that move with --idle-streams");
    return status;
}

/* ---- rows ---- */

static bool is_near(double a, double b, double tolerance)
{
    return a == b || fabs(a - b) <= tolerance || (isnan(a) && isnan(b));
}

/* Compares a row with the one before it, and keeps it for the next one. */
static void compare_row(struct idle *idle, const double *values, uint64_t columns, int64_t row)
{
    for (uint64_t d = 0; d < columns && row > 0 && idle->still[row]; d++)
        idle->still[row] = is_near(idle->before[d], values[d], idle->rule->tolerance);
    memcpy(idle->before, values, columns * sizeof *values);
}

/* Clears `still` where a chosen stream of an episode moves. Row k of the clock is row kept_rows[k] of
 * the array. Sets *any if the episode has the stream. */
static enum trajd_status examine_stream(struct idle *idle, const struct trajd_index_stream *stream,
                                        const struct trajd_episode *episode, bool *any,
                                        struct trajd_error *error)
{
    const struct trajd_array *array = &episode->extents[stream->array_index];
    const struct trajd_episode_clock *clock = &episode->clocks[idle->clock];
    const uint64_t rows = trajd_array_row_bytes(array) ? trajd_array_row_count(array) : 0;
    enum trajd_status status = TRAJD_OK;
    int64_t k = 0;

    for (uint64_t begin = 0, count; begin < rows && !status; begin += count) {
        status = examine_rows_read(&idle->rows, episode, stream, begin, &count, error);
        for (uint64_t r = 0; r < count && k < clock->row_count && !status; r++)
            if ((int64_t)(begin + r) == examine_array_row(clock, k))
                compare_row(idle, idle->rows.values + r * stream->feature_count,
                            stream->feature_count, k++);
    }
    *any = *any || rows;
    return status ? trajd_error_prefix(error, "--idle: %s: %s: %s",
                                       idle->index->files[episode->file_index].relative_path,
                                       episode->id, stream->name)
                  : TRAJD_OK;
}

/* ---- ranges ---- */

/* Leaves only the runs of still rows that last long enough. Row 0 is never still. */
static void drop_short_runs(struct idle *idle, const struct trajd_episode_clock *clock)
{
    for (int64_t row = 1, end; row < clock->row_count; row = end + 1) {
        for (end = row; end < clock->row_count && idle->still[end]; end++)
            ;
        if (end > row && trajd_clock_row_ns(clock, end - 1) - trajd_clock_row_ns(clock, row - 1) <
                             idle->rule->length_ns)
            memset(idle->still + row, 0, (size_t)(end - row) * sizeof *idle->still);
    }
}

/* Writes the runs of rows that are not idle. */
static void write_ranges(struct idle *idle, const struct trajd_episode *episode)
{
    const char *file = idle->index->files[episode->file_index].relative_path;
    const int64_t rows = episode->clocks[idle->clock].row_count;
    const bool is_file = strcmp(file, episode->id) == 0;
    uint64_t idle_rows = 0;
    char key[2 * 4096];

    snprintf(key, sizeof key, "%s%s%s", file, is_file ? "" : ":", is_file ? "" : episode->id);
    trajd_json_open_array(&idle->json, key);
    for (int64_t row = 0, end; row < rows; row = end) {
        for (end = row; end < rows && idle->still[end] == idle->still[row]; end++)
            ;
        if (idle->still[row]) {
            idle_rows += (uint64_t)(end - row);
            continue;
        }
        trajd_json_open_array(&idle->json, NULL);
        trajd_json_i64(&idle->json, NULL, row);
        trajd_json_i64(&idle->json, NULL, end);
        trajd_json_close_array(&idle->json);
    }
    trajd_json_close_array(&idle->json);
    idle->counts->rows += (uint64_t)rows;
    idle->counts->idle_rows += idle_rows;
    idle->counts->episodes++;
    idle->counts->idle_episodes += idle_rows > 0;
}

/* Finds the idle rows of an episode. One that has none of the streams has no idle rows. */
static enum trajd_status examine_episode(struct idle *idle, const struct trajd_episode *episode,
                                         struct trajd_error *error)
{
    const struct trajd_episode_clock *clock = &episode->clocks[idle->clock];
    enum trajd_status status = TRAJD_OK;
    bool any = false;

    idle->still = trajd_memory_or_exit(
        realloc(idle->still, ((size_t)clock->row_count + 1) * sizeof *idle->still));
    for (int64_t row = 0; row < clock->row_count; row++)
        idle->still[row] = row > 0;
    for (uint32_t s = 0; s < idle->index->stream_count && !status; s++)
        if (idle->is_chosen[s])
            status = examine_stream(idle, &idle->index->streams[s], episode, &any, error);
    if (status)
        return status;
    if (!any)
        memset(idle->still, 0, (size_t)clock->row_count * sizeof *idle->still);
    drop_short_runs(idle, clock);
    write_ranges(idle, episode);
    return TRAJD_OK;
}

enum trajd_status examine_idle_write(const struct trajd_index *index,
                                     const struct examine_idle_rule *rule, FILE *out,
                                     struct examine_idle_counts *counts, struct trajd_error *error)
{
    struct idle idle = {.index = index, .rule = rule, .json = {.out = out}, .counts = counts};
    enum trajd_status status;

    idle.is_chosen = trajd_memory_or_exit(calloc(index->stream_count + 1, sizeof *idle.is_chosen));
    idle.before = trajd_memory_or_exit(calloc(EXAMINE_WIDEST_ROW, sizeof *idle.before));
    examine_rows_open(&idle.rows, index);
    *counts = (struct examine_idle_counts){0};
    status = choose_streams(&idle, error);
    if (!status) {
        trajd_json_open_object(&idle.json, NULL);
        for (uint32_t e = 0; e < index->episode_count && !status; e++)
            if (!index->episodes[e].quarantine)
                status = examine_episode(&idle, &index->episodes[e], error);
        trajd_json_close_object(&idle.json);
        fputc('\n', out);
    }
    examine_rows_close(&idle.rows);
    free(idle.is_chosen);
    free(idle.still);
    free(idle.before);
    return status;
}
