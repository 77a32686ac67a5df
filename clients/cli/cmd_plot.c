/* trajctl plot: draws one stream of one episode over time on the terminal, as recorded and as
 * resampled. A stream of images becomes a film strip. Without a stream it lists all streams. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/cli/files/cli_files.h"
#include "clients/cli/frames/frame_show.h"
#include "clients/cli/resample/convert_series.h"
#include "daemon/base/memory.h"
#include "daemon/base/yaml.h"
#include "daemon/cache/dataset.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

enum { FEATURES_MAX = 16, NAMES_MAX = 1024, FRAMES_DEFAULT = 10 };
enum { TERMINAL_ROWS = 18, SCALE_COLUMNS = 11 };
enum { COLUMNS_MIN = 40, COLUMNS_DEFAULT = 100, COLUMNS_MAX = 400 };

struct plotting {
    const char *path, *layout, *episode, *output;
    struct convert_series_options series;
    struct frame_resize resize; /* of images */
    struct cli_files files;
};

static const struct trajd_episode *find_episode(const struct trajd_index *index, const char *id)
{
    const char *names[NAMES_MAX] = {0};
    size_t count = 0;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (id ? !strcmp(episode->id, id) : !episode->quarantine) {
            if (!episode->quarantine)
                return episode;
            return cli_fail("%s", episode->quarantine), NULL;
        }
        if (count < NAMES_MAX)
            names[count++] = episode->id;
    }
    return cli_fail("there is no episode \"%s\"%s", id ? id : "",
                    trajd_yaml_suggest(" (", id ? id : "", names, count, ")").text),
           NULL;
}

/* ---- curves: a character has 2 by 4 dots ---- */

struct range {
    double time_low, time_high, low, high;
};

static void widen(double value, double *low, double *high)
{
    if (!isfinite(value))
        return;
    if (value < *low)
        *low = value;
    if (value > *high)
        *high = value;
}

/* Returns the range of all finite values, with a margin. It is never empty. */
static struct range range_of(const struct convert_series *series)
{
    struct range range = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    double room;

    for (uint64_t r = 0; r < series->row_count; r++)
        widen(series->row_times_s[r], &range.time_low, &range.time_high);
    for (uint64_t t = 0; t < series->step_count; t++)
        widen(series->step_times_s[t], &range.time_low, &range.time_high);
    for (uint64_t i = 0; i < series->row_count * series->feature_count; i++)
        widen(series->rows[i], &range.low, &range.high);
    for (uint64_t i = 0; i < series->step_count * series->feature_count; i++)
        widen(series->steps[i], &range.low, &range.high);
    if (range.low > range.high)
        range.low = range.high = 0;
    room =
        range.high > range.low ? 0.05 * (range.high - range.low) : fabs(range.high) * 0.05 + 1e-3;
    range.low -= room;
    range.high += room;
    if (!(range.time_high > range.time_low))
        range.time_high = range.time_low + 1e-3;
    return range;
}

static void set_dot(uint8_t *cells, int columns, double x, double y)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int dot_x = (int)(x * (columns * 2 - 1) + 0.5),
              dot_y = (int)((1 - y) * (TERMINAL_ROWS * 4 - 1) + 0.5);

    cells[dot_y / 4 * columns + dot_x / 2] |= bits[dot_y % 4][dot_x % 2];
}

static void draw_dots(uint8_t *cells, int columns, const struct range *range, const double *times,
                      const double *values, uint64_t count, uint32_t features)
{
    for (uint64_t t = 0; t < count; t++)
        for (uint32_t f = 0; f < features; f++) {
            const double value = values[t * features + f];
            if (isfinite(value))
                set_dot(cells, columns,
                        (times[t] - range->time_low) / (range->time_high - range->time_low),
                        (value - range->low) / (range->high - range->low));
        }
}

/* Draws recorded and resampled values as Braille dots, as wide as the terminal is. */
static void draw(const struct convert_series *series, const char *title)
{
    struct winsize size;
    const int columns =
        !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : COLUMNS_DEFAULT;
    const struct range range = range_of(series);
    const int least = columns > COLUMNS_MIN ? columns : COLUMNS_MIN,
              width = (least < COLUMNS_MAX ? least : COLUMNS_MAX) - SCALE_COLUMNS;
    uint8_t *cells = trajd_memory_or_exit(calloc((size_t)width, TERMINAL_ROWS));

    draw_dots(cells, width, &range, series->row_times_s, series->rows, series->row_count,
              series->feature_count);
    draw_dots(cells, width, &range, series->step_times_s, series->steps, series->step_count,
              series->feature_count);
    printf("%s\n", title);
    for (int row = 0; row < TERMINAL_ROWS; row++) {
        printf("%*.4g ", SCALE_COLUMNS - 1,
               range.high - (range.high - range.low) * row / (TERMINAL_ROWS - 1));
        for (int column = 0; column < width; column++) {
            const uint8_t dots = cells[row * width + column];
            printf("\xe2%c%c", 0xa0 + (dots >> 6), 0x80 + (dots & 0x3f));
        }
        printf("\n");
    }
    printf("%*s%-*.4g%.4g s\n", SCALE_COLUMNS, "", width - 10, range.time_low, range.time_high);
    free(cells);
}

/* ---- streams ---- */

/* Prints the streams that a plot may show. */
static void list_streams(const struct trajd_index *index)
{
    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_index_stream *stream = &index->streams[s];
        const char *unit = stream->unit ? stream->unit : "";
        const char *last = stream->image.is_present ? "images: -o FILE.png" : unit;
        printf("%-32s %-10s %-*s%s%s\n", stream->name, trajd_window_kind_name(stream->kind),
               *last ? 16 : 0, index->clocks[stream->clock_index].name, *last ? " " : "", last);
    }
}

static void note_assumed_rate(const struct trajd_index *index, const struct trajd_episode *episode,
                              const char *stream)
{
    const int64_t s = trajd_index_find_stream(index, stream);
    const uint32_t c = index->streams[s < 0 ? 0 : s].clock_index;
    const struct trajd_rate rate = episode->clocks[c].rate;

    if (s >= 0 && episode->clocks[c].rate_source == TRAJD_RATE_ASSUMED)
        fprintf(stderr, "note: clock %s has %.6g Hz (assumed): the file does not state its rate\n",
                index->clocks[c].name, (double)rate.num / (double)rate.den);
}

/* ---- images ---- */

struct plot_frame {
    uint64_t row;    /* of the file */
    int64_t time_ns; /* from the episode's origin */
};

static struct plot_frame frame_at(const struct trajd_episode_clock *clock, int64_t row)
{
    return (struct plot_frame){
        .row = clock->kept_rows ? clock->kept_rows[row] : (uint64_t)row,
        .time_ns = trajd_clock_row_ns(clock, row),
    };
}

/* Chooses rows first to end - 1, evenly, with both ends. */
static uint64_t choose_evenly(const struct trajd_episode_clock *clock, int64_t first, int64_t end,
                              struct plot_frame *frames, uint32_t room)
{
    const int64_t rows = end - first, count = rows < FRAMES_DEFAULT ? rows : FRAMES_DEFAULT;

    for (int64_t i = 0; i < count && i < room; i++)
        frames[i] = frame_at(clock, first + (count > 1 ? (rows - 1) * i / (count - 1) : 0));
    return (uint64_t)count;
}

/* Lists frames of a stream with `row_count` rows that the command line asks for. With a rate: of each
 * time the last row that is not later; without one FRAMES_DEFAULT of them, evenly. Returns how many
 * there are, of which the first `room` are in `frames`. */
static uint64_t choose_frames(const struct plotting *plotting,
                              const struct trajd_episode_clock *clock, uint64_t row_count,
                              struct plot_frame *frames, uint32_t room)
{
    const int64_t rows = clock->stamps_ns ? clock->row_count : (int64_t)row_count;
    const int64_t first = plotting->series.from_ns == INT64_MIN
                              ? 0
                              : trajd_clock_rows_until(clock, rows, plotting->series.from_ns - 1);
    const int64_t end = plotting->series.to_ns == INT64_MAX
                            ? rows
                            : trajd_clock_rows_until(clock, rows, plotting->series.to_ns);
    int64_t begin_ns;
    uint64_t count;

    if (first >= end)
        return 0;
    if (!plotting->series.rate.num)
        return choose_evenly(clock, first, end, frames, room);
    begin_ns = trajd_clock_row_ns(clock, first);
    count = 1 + (uint64_t)trajd_rate_row_at(plotting->series.rate,
                                            trajd_clock_row_ns(clock, end - 1) - begin_ns);
    for (uint64_t i = 0; i < count && i < room; i++) {
        const int64_t at_ns = begin_ns + trajd_rate_row_ns(plotting->series.rate, (int64_t)i);
        frames[i] = frame_at(clock, trajd_clock_rows_until(clock, end, at_ns) - 1);
    }
    return count;
}

static void list_frames(const struct plot_frame *frames, uint32_t count)
{
    printf("rows");
    for (uint32_t i = 0; i < count; i++)
        printf("%s %" PRIu64 " (%.3f s)", i ? "," : "", frames[i].row,
               (double)frames[i].time_ns * 1e-9);
    printf("\n");
}

/* Writes frames of the episode side by side. */
static int plot_images(const struct plotting *plotting, const struct trajd_index *index,
                       const struct trajd_episode *episode, const struct trajd_index_stream *stream)
{
    struct plot_frame frames[FRAME_STRIP_MAX];
    uint64_t rows[FRAME_STRIP_MAX];
    const uint64_t count = choose_frames(
        plotting, &episode->clocks[stream->clock_index],
        trajd_array_row_count(&episode->extents[stream->array_index]), frames, FRAME_STRIP_MAX);
    struct frame_strip_request request = {.stream = plotting->series.stream,
                                          .episode = episode->id,
                                          .output = plotting->output,
                                          .resize = plotting->resize,
                                          .count = (uint32_t)count,
                                          .rows = rows};
    struct trajd_error error, reason;
    uint32_t bad_count;

    if (!plotting->output)
        return cli_fail("%s has images: name a file for the film strip, -o FILE.png",
                        plotting->series.stream);
    if (plotting->series.rule.kind != TRAJD_CONVERT_NO_KIND || plotting->series.rule.window_ns)
        return cli_fail("%s has images, which are never blended: remove --kind and --window",
                        plotting->series.stream);
    if (!count)
        return cli_fail("%s has no rows in that span", plotting->series.stream);
    if (count > FRAME_STRIP_MAX)
        return cli_fail("%" PRIu64 " frames are too many for one image, which has up to %u: "
                        "choose a lower --rate, or --from and --to",
                        count, FRAME_STRIP_MAX);
    for (uint32_t i = 0; i < count; i++)
        rows[i] = frames[i].row;
    if (frame_strip(index, &request, &bad_count, &reason, &error))
        return cli_fail("%s", error.message);
    printf("%s: %s, %s: %u frame%s, from left to right, ten in a line\n", plotting->output,
           episode->id, plotting->series.stream, request.count, trajd_plural(request.count));
    list_frames(frames, request.count);
    if (stream->image.color == TRAJD_COLOR_UNDECIDED)
        fprintf(stderr,
                "note: drawn as `color: rgb`. Red and blue may be exchanged: `trajctl inspect %s "
                "--frame %s:0 -o FILE.png` shows both readings\n",
                plotting->path, plotting->series.stream);
    if (bad_count)
        fprintf(stderr, "note: %u of them cannot be decoded and are grey: %s\n", bad_count,
                reason.message);
    return CLI_OK;
}

static int plot(struct plotting *plotting, const struct trajd_index *index)
{
    const struct trajd_episode *episode = plotting->series.episode =
        find_episode(index, plotting->episode);
    const int64_t stream = trajd_index_find_stream(index, plotting->series.stream);
    struct convert_series *series = NULL;
    struct trajd_error error;
    char title[512];

    if (!episode)
        return CLI_FAILED;
    if (stream >= 0 && index->streams[stream].image.is_present)
        return plot_images(plotting, index, episode, &index->streams[stream]);
    if (plotting->resize.size)
        return cli_fail("--resize: %s has no images", plotting->series.stream);
    if (plotting->output)
        return cli_fail("-o writes a film strip, and %s has no images: `python -m trajd.plot %s %s "
                        "-o FILE.svg` writes a plot of it as SVG, PNG or PDF",
                        plotting->series.stream, plotting->path, plotting->series.stream);
    if (convert_series_read(&plotting->series, &series, &error))
        return cli_fail("%s", error.message);
    note_assumed_rate(index, episode, plotting->series.stream);
    snprintf(title, sizeof title, "%.180s, %.100s: %.100s by %s at %.6g Hz",
             index->files[episode->file_index].relative_path, episode->id, plotting->series.stream,
             series->kind, (double)series->rate.num / (double)series->rate.den);
    if (series->features_left_out)
        fprintf(stderr, "note: the plot shows the first %u of %" PRIu64 " features\n",
                series->feature_count, series->feature_count + series->features_left_out);
    draw(series, title);
    convert_series_destroy(&series);
    return CLI_OK;
}

static void set_kind(void *place, const struct cli_option *option, char *value)
{
    struct plotting *plotting = place;
    struct trajd_error error;

    if (trajd_convert_rule_set_kind(&plotting->series.rule, value, &error))
        cli_refuse("%s: %s", option->name, error.message);
}

const struct cli_option cli_plot_options[] = {
    {"--layout", "NAME",
     "how the file maps to episodes, streams and clocks (tries the installed ones)", CLI_TEXT,
     offsetof(struct plotting, layout)},
    {"--episode", "ID", "the episode (the first one)", CLI_TEXT,
     offsetof(struct plotting, episode)},
    {"--rate", "HZ", "resample at this rate (20), or choose the frames", CLI_RATE,
     offsetof(struct plotting, series.rate)},
    {"--kind", "KIND", "how it is resampled (as the layout says)", CLI_CALL, .set = set_kind},
    {"--window", "TIME", "the span of kind mean (one step)", CLI_TIME,
     offsetof(struct plotting, series.rule.window_ns), .least = 1},
    {"--from", "TIME", "where the plot begins", CLI_TIME,
     offsetof(struct plotting, series.from_ns)},
    {"--to", "TIME", "where it ends", CLI_TIME, offsetof(struct plotting, series.to_ns)},
    {"-o", "FILE.png", "the file for the film strip of images", CLI_TEXT,
     offsetof(struct plotting, output)},
    {NULL, NULL, NULL, CLI_TABLE, offsetof(struct plotting, resize), .table = cli_resize_options},
    {0}};

int cli_plot(int argc, char **argv)
{
    struct plotting plotting = {.series = {.rule.kind = TRAJD_CONVERT_NO_KIND,
                                           .from_ns = INT64_MIN,
                                           .to_ns = INT64_MAX,
                                           .features_max = FEATURES_MAX}};
    struct trajd_index *index = NULL;
    struct trajd_error error;
    int result;

    if (cli_parse(argc, argv, &plotting) > 1)
        plotting.series.stream = argv[2];
    plotting.path = argv[1];
    if (plotting.series.to_ns <= plotting.series.from_ns)
        cli_refuse("--to must be after --from");
    if (cli_files_find(&plotting.files, &error))
        return cli_fail("%s", error.message);
    if (cli_files_open(&plotting.files, plotting.layout, plotting.path, &index, &error))
        return cli_fail_at(plotting.path, &error);
    plotting.series.index = index;
    result = plotting.series.stream ? plot(&plotting, index) : (list_streams(index), CLI_OK);
    trajd_index_destroy(&index);
    return result;
}
