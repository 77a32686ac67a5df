/* Compares how the frames of a camera change with how the joints move meanwhile: a camera that stands
 * still, and one that shows the motion late.
 *
 * For small motions, each pixel changes by a linear function of the steps d of the joints between two
 * frames. So the squared change of a frame is a quadratic form of d, whatever the camera sees. Its
 * coefficients are fitted by least squares, for the d of earlier or later times: where the fit is
 * best, there is the lag. Compared with that, the length of d alone gave lags that were wrong by up to
 * 48 ms at 30 Hz where joints move by turns; the form is right within 8 ms. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/memory.h"

/* Of a stream with more columns than PAIRS_MAX, only squares are terms. */
enum { PAIRS_MAX = 16, TERMS_MAX = PAIRS_MAX * (PAIRS_MAX + 1) / 2, SIDE = TERMS_MAX + 2 };
enum { FRAMES_MIN = 30, LAGS_MAX = 64, FINE_STEPS = 8, AT_ONCE = 4 };
#define PEAKS_ALIKE 0.02
static const double lag_max_s = 0.5;

/* The rows of a stream, whose times are in seconds. */
struct path {
    const struct trajd_index_stream *stream;
    int64_t count;
    double *times, *values; /* [count], [count][columns] */
};

struct camera {
    const struct trajd_episode_clock *clock;
    const float *changes; /* [rows of the array] */
    int64_t count;        /* rows of the clock that have frames */
    double interval;      /* in seconds */
    /* the longest time without a change in which a stream moves, and its speed there by its mean */
    double stuck_time, stuck_speed;
    int64_t stuck_first, stuck_last;
    const struct trajd_index_stream *stuck_stream, *lag_stream;
    /* of the stream whose motion is most like that of the frames */
    double lag, correlation;
};

static double time_of(const struct trajd_episode_clock *clock, int64_t k)
{
    return 1e-9 * (double)trajd_clock_row_ns(clock, k);
}

static enum trajd_status read_path(struct examine_rows *rows, const struct trajd_episode *episode,
                                   struct path *path, struct trajd_error *error)
{
    const struct trajd_episode_clock *clock = &episode->clocks[path->stream->clock_index];
    const struct trajd_array *array = &episode->extents[path->stream->array_index];
    const uint64_t columns = path->stream->feature_count;
    enum trajd_status status = TRAJD_OK;

    path->times = trajd_memory_or_exit(
        calloc((uint64_t)clock->row_count * (columns + 1) + 1, sizeof *path->times));
    path->values = path->times + clock->row_count;
    for (uint64_t begin = 0, count = 0; begin < trajd_array_row_count(array); begin += count) {
        status = examine_rows_read(rows, episode, path->stream, begin, &count, error);
        for (uint64_t r = 0; r < count && path->count < clock->row_count && !status; r++)
            if (examine_array_row(clock, path->count) == (int64_t)(begin + r)) {
                memcpy(path->values + (uint64_t)path->count * columns, rows->values + r * columns,
                       columns * sizeof *path->values);
                path->times[path->count] = time_of(clock, path->count);
                path->count++;
            }
        if (status)
            break;
    }
    return examine_rows_failure(status, error);
}

/* Returns the change of a frame against the one before; NAN: unknown. */
static double change_at(const struct camera *camera, int64_t k)
{
    return k ? camera->changes[examine_array_row(camera->clock, k)] : NAN;
}

/* ---- a camera that stands still ---- */

/* Returns how far a stream moves from row to row between two times. */
static double find_way(const struct path *path, double begin, double end)
{
    const uint64_t columns = path->stream->feature_count;
    double way = 0;

    for (int64_t i = 1; i < path->count; i++) {
        const double *row = path->values + (uint64_t)i * columns;
        const double step = examine_distance(row, row - columns, columns);
        if (path->times[i] > begin && path->times[i] <= end && isfinite(step))
            way += step;
    }
    return way;
}

static void find_stuck(struct camera *camera, const struct path *path, double least_speed)
{
    const double mean_speed =
        find_way(path, -INFINITY, INFINITY) / (path->times[path->count - 1] - path->times[0]);
    int64_t last;

    for (int64_t k = 0; k < camera->count; k = last + 1) {
        const double begin = time_of(camera->clock, k);
        double time, speed;
        for (last = k; last + 1 < camera->count && change_at(camera, last + 1) == 0; last++)
            ;
        time = time_of(camera->clock, last) - begin;
        if (time <= camera->stuck_time)
            continue;
        speed = find_way(path, begin, begin + time) / time / mean_speed;
        if (!(speed >= least_speed))
            continue;
        camera->stuck_time = time;
        camera->stuck_speed = speed;
        camera->stuck_first = k;
        camera->stuck_last = last;
        camera->stuck_stream = path->stream;
    }
}

/* ---- a camera that lags ---- */

/* Sums of the products of 1, the terms of the form, and the squared change, of all frames. */
struct fit {
    double sums[SIDE][SIDE]; /* above the diagonal */
    double values[AT_ONCE]
                 [SIDE]; /* of frames whose products are not added yet; 0 where there is none */
    int terms, waiting;
    int64_t frames;
};

/* Adds the products of the frames that wait: of several at once, because the sums do not fit into the
 * first cache. */
static void add_products(struct fit *fit)
{
    const double *a = fit->values[0], *b = fit->values[1], *c = fit->values[2], *d = fit->values[3];

    for (int i = 0; i < fit->terms + 2; i++)
        for (int j = i; j < fit->terms + 2; j++)
            fit->sums[i][j] += a[i] * a[j] + b[i] * b[j] + c[i] * c[j] + d[i] * d[j];
    memset(fit->values, 0, sizeof fit->values);
    fit->waiting = 0;
}

/* Adds a frame with the step of the joints; NAN leaves it out. */
static void add_frame(struct fit *fit, const double *step, uint64_t columns, double change)
{
    double *values = fit->values[fit->waiting], sum = change;
    int count = 1;

    for (uint64_t i = 0; i < columns; i++)
        for (uint64_t j = i; j < (columns > PAIRS_MAX ? i + 1 : columns); j++)
            sum += values[count++] = step[i] * step[j];
    fit->terms = count - 1;
    values[0] = 1;
    values[count] = change * change;
    if (!isfinite(sum)) {
        memset(values, 0, sizeof fit->values[0]);
        return;
    }
    fit->frames++;
    if (++fit->waiting == AT_ONCE)
        add_products(fit);
}

/* Returns the correlation of the squared changes with the form that fits best, less what so many
 * coefficients give of themselves. Terms that depend on others are left out. */
static double solve(struct fit *fit)
{
    const int last = fit->terms + 1;
    double(*const sums)[SIDE] = fit->sums, all = 0, diagonal[SIDE], part;

    add_products(fit);
    for (int i = 0; i <= last; i++)
        diagonal[i] = sums[i][i];
    for (int i = 0; i < last; i++) {
        if (!(sums[i][i] > 1e-6 * diagonal[i]))
            continue;
        for (int r = i + 1; r <= last; r++)
            for (int c = last; c >= r; c--)
                sums[r][c] -= sums[i][r] / sums[i][i] * sums[i][c];
        all = i ? all : sums[last][last];
    }
    part = sums[last][last] / all * (double)(fit->frames - 1) / (double)(fit->frames - last);
    return fit->frames - last < FRAMES_MIN || !(part < 1) ? 0 : sqrt(1 - fmax(part, 0));
}

/* Interpolates the row of a time; NAN where there is none. *row is where the last call, for an
 * earlier time, ended. */
static void interpolate(const struct path *path, double time, int64_t *row, double *values)
{
    const uint64_t columns = path->stream->feature_count;
    const double *times = path->times, *before;
    double part = NAN;

    while (*row + 2 < path->count && times[*row + 1] < time)
        ++*row;
    if (time >= times[*row] && time <= times[*row + 1])
        part = (time - times[*row]) / (times[*row + 1] - times[*row]);
    before = path->values + (uint64_t)*row * columns;
    for (uint64_t d = 0; d < columns; d++)
        values[d] = before[d] + part * (before[d + columns] - before[d]);
}

/* Returns how well the changes of the frames fit the steps of the joints `lag` seconds before. */
static double correlate(const struct camera *camera, const struct path *path, double lag,
                        struct fit *fit)
{
    const uint64_t columns = path->stream->feature_count;
    double rows[2][TERMS_MAX], step[TERMS_MAX];
    int64_t row = 0;

    memset(fit, 0, sizeof *fit);
    for (int64_t k = 0; k < camera->count; k++) {
        interpolate(path, time_of(camera->clock, k) - lag, &row, rows[k % 2]);
        for (uint64_t d = 0; d < columns; d++)
            step[d] = rows[k % 2][d] - rows[!(k % 2)][d];
        if (k)
            add_frame(fit, step, columns, change_at(camera, k));
    }
    return solve(fit);
}

/* Takes the lag that fits best, up to lag_max_s. Motions that repeat fit at several lags, and a lag of
 * half a period with the opposite sign, so of the peaks that are nearly as high the one at the
 * smallest lag counts. Where none fits nearly as well, there is none: many joints that swing fit at
 * any lag. */
static void find_lag(struct camera *camera, const struct path *path)
{
    const double step = fmax(camera->interval, lag_max_s / LAGS_MAX);
    const int steps = (int)(lag_max_s / step);
    struct fit *fit = trajd_memory_or_exit(malloc(sizeof *fit));
    double found[2 * LAGS_MAX + 3] = {0}, *const at = found + steps + 1, best = 0;
    int peak = steps + 1, fine;
    bool is_better;

    for (int i = -steps - 1; i <= steps + 1; i++) {
        at[i] = correlate(camera, path, i * step, fit);
        best = fmax(best, at[i]);
    }
    for (int i = -steps; i <= steps; i++)
        if (at[i] >= at[i - 1] && at[i] >= at[i + 1] && at[i] >= best - PEAKS_ALIKE &&
            abs(i) < abs(peak))
            peak = i;
    peak = at[0] >= best - PEAKS_ALIKE ? 0 : peak;
    fine = peak ? FINE_STEPS : 0;
    is_better = best > camera->correlation;
    for (int i = -fine; i <= fine && peak <= steps && is_better; i++) {
        const double lag = (peak + (double)i / FINE_STEPS) * step,
                     correlation = correlate(camera, path, lag, fit);
        if (correlation > camera->correlation) {
            camera->correlation = correlation;
            camera->lag = lag;
            camera->lag_stream = path->stream;
        }
    }
    free(fit);
}

static void report_camera(const struct examiner *examiner, const struct camera *camera,
                          struct examine_finding finding)
{
    const struct examine_limits *limits = examiner->limits;

    if (camera->stuck_stream) {
        finding.row = examine_array_row(camera->clock, camera->stuck_first);
        finding.count = (uint64_t)(camera->stuck_last - camera->stuck_first + 1);
        examine_report(examiner, &finding,
                       "%" PRIu64 " frames from row %" PRId64 " on are equal, for %.3g s, while %s "
                       "moves at %.0f%% of its mean speed (more than %g s at %g%% or more is a "
                       "finding)",
                       finding.count, finding.row, camera->stuck_time, camera->stuck_stream->name,
                       100 * camera->stuck_speed, 1e-9 * (double)limits->stuck_time_ns,
                       limits->stuck_motion);
    }
    finding.rule = EXAMINE_LAG;
    finding.row = -1;
    finding.count = 1;
    if (camera->lag_stream && camera->correlation >= limits->lag_correlation &&
        fabs(camera->lag) > limits->lag_frames * camera->interval)
        examine_report(
            examiner, &finding,
            "its frames show the motion of %s %.1f ms too %s, with a correlation of %.2f "
            "(more than %g of the interval of %.3g ms with %g or more is a finding)",
            camera->lag_stream->name, 1e3 * fabs(camera->lag), camera->lag > 0 ? "late" : "early",
            camera->correlation, limits->lag_frames, 1e3 * camera->interval,
            limits->lag_correlation);
}

enum trajd_status examine_motion(const struct examiner *examiner,
                                 const struct trajd_episode *episode,
                                 const struct trajd_index_stream *stream, const float *changes,
                                 struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;
    const struct examine_limits *limits = examiner->limits;
    const struct trajd_array *array = &episode->extents[stream->array_index];
    struct camera camera = {.clock = &episode->clocks[stream->clock_index],
                            .changes = changes,
                            .stuck_time = 1e-9 * (double)limits->stuck_time_ns};
    struct examine_rows rows;
    enum trajd_status status = TRAJD_OK;

    examine_rows_open(&rows, index);
    while (camera.count < camera.clock->row_count &&
           examine_array_row(camera.clock, camera.count) < (int64_t)trajd_array_row_count(array))
        camera.count++;
    if (camera.count > 1)
        camera.interval = (time_of(camera.clock, camera.count - 1) - time_of(camera.clock, 0)) /
                          (double)(camera.count - 1);
    for (uint32_t s = 0; s < index->stream_count && camera.count > 1 && !status; s++) {
        struct path path = {.stream = &index->streams[s]};
        if (!examine_is_motion(path.stream) || path.stream->feature_count > TERMS_MAX)
            continue;
        status = read_path(&rows, episode, &path, error);
        if (!status && path.count > 1) {
            find_stuck(&camera, &path, limits->stuck_motion / 100);
            find_lag(&camera, &path);
        }
        free(path.times);
    }
    examine_rows_close(&rows);
    if (!status)
        report_camera(examiner, &camera,
                      examine_at(index, EXAMINE_STUCK, episode, stream->name, 1));
    return status;
}
