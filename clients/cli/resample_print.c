#include "clients/cli/resample_print.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/base/json.h"
#include "daemon/window/window_report.h"

enum { BAR_WIDTH = 30 };

void resample_clear_bar(struct resample_printer *printer)
{
    if (printer->bar_is_drawn)
        fprintf(stderr, "\r\033[K");
    printer->bar_is_drawn = false;
}

void resample_print_note(void *context, const char *text)
{
    struct resample_printer *printer = context;

    resample_clear_bar(printer);
    if (printer->json) {
        printf("{\"event\": \"note\", \"text\": ");
        trajd_json_text(stdout, text);
        printf("}\n");
        fflush(stdout);
    } else {
        fprintf(stderr, "note: %s\n", text);
    }
}

static void json_plan(const struct trajd_convert_report *plan)
{
    printf("{\"event\": \"plan\", \"episodes\": %" PRIu64 ", \"left_out\": %" PRIu64
           ", \"cut\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"bytes\": %" PRIu64
           ", \"seconds\": %.9g, \"backend\": \"%s\", \"by\": ",
           plan->episode_count, plan->episodes_left_out, plan->episodes_cut, plan->steps,
           plan->byte_count, (double)plan->duration_ns * 1e-9,
           trajd_convert_backend_name(plan->backend));
    trajd_json_text(stdout, plan->backend_text);
    printf(", \"streams\": [");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        printf("%s{\"name\": ", s ? ", " : "");
        trajd_json_text(stdout, stream->name);
        printf(", \"clock\": ");
        trajd_json_text(stdout, stream->clock);
        printf(", \"kind\": \"%s\", \"from\": \"%s\", \"to\": \"%s\", \"features\": %" PRIu64
               ", \"compressed\": %s}",
               trajd_window_kind_name(stream->kind), trajd_dtype_name(stream->from),
               trajd_dtype_name(stream->to), stream->feature_count,
               stream->is_compressed ? "true" : "false");
    }
    printf("]}\n");
    fflush(stdout);
}

static void print_plan(const struct resample_printer *printer,
                       const struct trajd_convert_report *plan)
{
    printf("%" PRIu64 " episodes, %.1f s, %" PRIu64 " steps at %.6g Hz, %.1f MB, by %s",
           plan->episode_count, (double)plan->duration_ns * 1e-9, plan->steps,
           (double)printer->rate.num / (double)printer->rate.den, (double)plan->byte_count * 1e-6,
           plan->backend_text);
    if (plan->episodes_cut)
        printf("; %" PRIu64 " were split into parts", plan->episodes_cut);
    printf(plan->episodes_left_out ? "; %" PRIu64 " left out\n" : "\n", plan->episodes_left_out);
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        printf("  %-28s %-12s %-10s %s%s%s x %" PRIu64, stream->name, stream->clock,
               trajd_window_kind_name(stream->kind), trajd_dtype_name(stream->from),
               stream->to != stream->from ? " to " : "",
               stream->to != stream->from ? trajd_dtype_name(stream->to) : "",
               stream->feature_count);
        if (stream->window_ns)
            printf(", over %.6g ms", (double)stream->window_ns * 1e-6);
        printf(stream->is_compressed ? ", gzip\n" : "\n");
    }
    fflush(stdout);
}

void resample_print_plan(void *context, const struct trajd_convert_report *plan)
{
    struct resample_printer *printer = context;

    if (printer->json)
        json_plan(plan);
    else
        print_plan(printer, plan);
}

static void draw_bar(struct resample_printer *printer,
                     const struct trajd_convert_progress *progress)
{
    const double share =
        progress->byte_count ? (double)progress->bytes_done / (double)progress->byte_count : 1;
    char bar[BAR_WIDTH + 1];

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3.0f%%  %" PRIu64 " of %" PRIu64 " episodes\033[K", bar, share * 100,
            progress->episodes_done, progress->episode_count);
    printer->bar_is_drawn = true;
}

void resample_print_progress(void *context, const struct trajd_convert_progress *progress)
{
    static const char *const phases[] = {"planned", "running", "closing", "done"};
    struct resample_printer *printer = context;

    if (printer->json) {
        printf("{\"event\": \"progress\", \"phase\": \"%s\", \"episodes_done\": %" PRIu64
               ", \"episodes_safe\": %" PRIu64 ", \"episodes\": %" PRIu64
               ", \"bytes_done\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n",
               phases[progress->phase], progress->episodes_done, progress->episodes_safe,
               progress->episode_count, progress->bytes_done, progress->byte_count);
        fflush(stdout);
    } else if (printer->has_bar && progress->phase == TRAJD_CONVERT_RUNNING) {
        draw_bar(printer, progress);
    }
}

void resample_print_report(const struct resample_printer *printer,
                           const struct trajd_convert_report *report)
{
    if (printer->json) {
        printf("{\"event\": \"done\", \"output\": ");
        trajd_json_text(stdout, printer->output);
        printf(
            ", \"episodes_written\": %" PRIu64 ", \"episodes_resumed\": %" PRIu64
            ", \"left_out\": %" PRIu64 ", \"bytes_read\": %" PRIu64 ", \"bytes_written\": %" PRIu64
            ", \"backend\": \"%s\", \"fell_back\": %s, \"pieces\": %" PRIu64
            ", \"pieces_here\": %" PRIu64 "}\n",
            report->episodes_written, report->episodes_resumed, report->episodes_left_out,
            report->bytes_read, report->bytes_written, trajd_convert_backend_name(report->backend),
            report->fell_back ? "true" : "false", report->segments, report->segments_here);
        return;
    }
    for (uint32_t s = 0; s < report->stream_count; s++)
        if (report->streams[s].nan_steps)
            printf("%s: %" PRIu64 " steps are NaN because their source is NaN\n",
                   report->streams[s].name, report->streams[s].nan_steps);
    if (report->segments_here)
        printf("%" PRIu64 " of %" PRIu64
               " pieces were too large for the backend: this CPU resampled them\n",
               report->segments_here, report->segments);
    printf("%s: %" PRIu64 " episodes", printer->output,
           report->episodes_written + report->episodes_resumed);
    if (report->episodes_resumed)
        printf(", %" PRIu64 " of them from an earlier run", report->episodes_resumed);
    printf("\n");
}
