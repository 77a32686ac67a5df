/* Draws a series as SVG, or with characters on a terminal. */
#include "clients/cli/plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/memory.h"
#include "proto/array_len.h"

enum {
    WIDTH = 1000,
    HEIGHT = 420,
    LEFT = 70,
    RIGHT = 20,
    TOP = 40,
    BOTTOM = 40,
    TICKS = 5,
    POINTS_MAX = 20000
};
enum { TERMINAL_ROWS = 18, SCALE_COLUMNS = 11, COLUMNS_MIN = 40, COLUMNS_MAX = 400 };

static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                      "#ff7f0e", "#8c564b", "#e377c2", "#17becf"};

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

/* ---- SVG ---- */

static double x_of(const struct frame *frame, double time)
{
    return LEFT +
           (time - frame->time_low) / (frame->time_high - frame->time_low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct frame *frame, double value)
{
    return HEIGHT - BOTTOM -
           (value - frame->low) / (frame->high - frame->low) * (HEIGHT - TOP - BOTTOM);
}

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<' || *text == '>' || *text == '&')
            fputs(*text == '<' ? "&lt;" : *text == '>' ? "&gt;" : "&amp;", file);
        else
            fputc(*text, file);
    }
}

static void draw_axes(FILE *file, const struct frame *frame)
{
    for (int i = 0; i <= TICKS; i++) {
        const double time = frame->time_low + (frame->time_high - frame->time_low) * i / TICKS,
                     value = frame->low + (frame->high - frame->low) * i / TICKS,
                     x = x_of(frame, time), y = y_of(frame, value);
        fprintf(file, "<path d=\"M%.1f %dV%dM%d %.1fH%d\" stroke=\"#ddd\"/>\n", x, TOP,
                HEIGHT - BOTTOM, LEFT, y, WIDTH - RIGHT);
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g s</text>\n", x,
                HEIGHT - BOTTOM + 18, time);
        fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6,
                y + 4, value);
    }
}

/* A NaN interrupts the line. */
static void draw_line(FILE *file, const struct convert_series *series, const struct frame *frame,
                      uint32_t feature)
{
    bool down = false;

    fprintf(file, "<path fill=\"none\" stroke=\"%s\" d=\"", colours[feature % ARRAY_LEN(colours)]);
    for (uint64_t t = 0; t < series->step_count; t++) {
        const double value = series->steps[t * series->feature_count + feature];
        if (isfinite(value))
            fprintf(file, "%c%.1f %.1f", down ? 'L' : 'M', x_of(frame, series->step_times_s[t]),
                    y_of(frame, value));
        down = isfinite(value);
    }
    fprintf(file, "\"/>\n");
}

static void draw_points(FILE *file, const struct convert_series *series, const struct frame *frame,
                        uint32_t feature)
{
    const uint64_t every = series->row_count / POINTS_MAX + 1;

    fprintf(file, "<g fill=\"%s\" fill-opacity=\"0.45\">\n", colours[feature % ARRAY_LEN(colours)]);
    for (uint64_t r = 0; r < series->row_count; r += every) {
        const double value = series->rows[r * series->feature_count + feature];
        if (isfinite(value))
            fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.8\"/>\n",
                    x_of(frame, series->row_times_s[r]), y_of(frame, value));
    }
    fprintf(file, "</g>\n");
}

void plot_svg(FILE *file, const struct convert_series *series, const char *title)
{
    const struct frame frame = frame_of(series);

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n",
            WIDTH, HEIGHT);
    fprintf(file,
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"22\" "
            "font-size=\"14\">",
            LEFT);
    put_text(file, title);
    fprintf(file, "</text>\n");
    draw_axes(file, &frame);
    for (uint32_t f = 0; f < series->feature_count; f++) {
        draw_points(file, series, &frame, f);
        draw_line(file, series, &frame, f);
    }
    fprintf(file, "</svg>\n");
}

/* ---- the terminal: a character has 2 by 4 dots ---- */

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
