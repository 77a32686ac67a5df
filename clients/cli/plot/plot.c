/* Draws a series with characters on a terminal: a character has 2 by 4 dots. */
#include "clients/cli/plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/memory.h"

enum { TERMINAL_ROWS = 18, SCALE_COLUMNS = 11, COLUMNS_MIN = 40, COLUMNS_MAX = 400 };

struct frame {
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
static struct frame frame_of(const struct convert_series *series)
{
    struct frame frame = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    double room;

    for (uint64_t r = 0; r < series->row_count; r++)
        widen(series->row_times_s[r], &frame.time_low, &frame.time_high);
    for (uint64_t t = 0; t < series->step_count; t++)
        widen(series->step_times_s[t], &frame.time_low, &frame.time_high);
    for (uint64_t i = 0; i < series->row_count * series->feature_count; i++)
        widen(series->rows[i], &frame.low, &frame.high);
    for (uint64_t i = 0; i < series->step_count * series->feature_count; i++)
        widen(series->steps[i], &frame.low, &frame.high);
    if (frame.low > frame.high)
        frame.low = frame.high = 0;
    room =
        frame.high > frame.low ? 0.05 * (frame.high - frame.low) : fabs(frame.high) * 0.05 + 1e-3;
    frame.low -= room;
    frame.high += room;
    if (!(frame.time_high > frame.time_low))
        frame.time_high = frame.time_low + 1e-3;
    return frame;
}

static void set_dot(uint8_t *cells, int columns, double x, double y)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int dot_x = (int)(x * (columns * 2 - 1) + 0.5),
              dot_y = (int)((1 - y) * (TERMINAL_ROWS * 4 - 1) + 0.5);

    cells[dot_y / 4 * columns + dot_x / 2] |= bits[dot_y % 4][dot_x % 2];
}

static void draw_dots(uint8_t *cells, int columns, const struct frame *frame, const double *times,
                      const double *values, uint64_t count, uint32_t features)
{
    for (uint64_t t = 0; t < count; t++)
        for (uint32_t f = 0; f < features; f++) {
            const double value = values[t * features + f];
            if (isfinite(value))
                set_dot(cells, columns,
                        (times[t] - frame->time_low) / (frame->time_high - frame->time_low),
                        (value - frame->low) / (frame->high - frame->low));
        }
}

void plot_terminal(FILE *file, const struct convert_series *series, const char *title, int columns)
{
    const struct frame frame = frame_of(series);
    const int least = columns > COLUMNS_MIN ? columns : COLUMNS_MIN,
              width = (least < COLUMNS_MAX ? least : COLUMNS_MAX) - SCALE_COLUMNS;
    uint8_t *cells = trajd_memory_or_exit(calloc((size_t)width, TERMINAL_ROWS));

    draw_dots(cells, width, &frame, series->row_times_s, series->rows, series->row_count,
              series->feature_count);
    draw_dots(cells, width, &frame, series->step_times_s, series->steps, series->step_count,
              series->feature_count);
    fprintf(file, "%s\n", title);
    for (int row = 0; row < TERMINAL_ROWS; row++) {
        fprintf(file, "%*.4g ", SCALE_COLUMNS - 1,
                frame.high - (frame.high - frame.low) * row / (TERMINAL_ROWS - 1));
        for (int column = 0; column < width; column++) {
            const uint8_t dots = cells[row * width + column];
            fprintf(file, "\xe2%c%c", 0xa0 + (dots >> 6), 0x80 + (dots & 0x3f));
        }
        fprintf(file, "\n");
    }
    fprintf(file, "%*s%-*.4g%.4g s\n", SCALE_COLUMNS, "", width - 10, frame.time_low,
            frame.time_high);
    free(cells);
}
