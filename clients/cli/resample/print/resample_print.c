#include "clients/cli/resample/print/resample_print.h"

#include <inttypes.h>
#include <stdio.h>

#include "clients/cli/files/cli_files.h"
#include "daemon/base/json.h"
#include "daemon/base/progress/progress.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

/* One JSON object a line. */
static void begin_event(struct trajd_json *json, const char *event)
{
    *json = (struct trajd_json){.out = stdout};
    trajd_json_open_object(json, NULL);
    trajd_json_string(json, "event", event);
}

static void end_event(struct trajd_json *json)
{
    trajd_json_close_object(json);
    putchar('\n');
    fflush(stdout);
}

void resample_print_note(void *context, const char *text)
{
    struct resample_printer *printer = context;
    struct trajd_json json;

    trajd_progress_clear();
    if (printer->json) {
        begin_event(&json, "note");
        trajd_json_string(&json, "text", text);
        end_event(&json);
    } else {
        fprintf(stderr, "note: %s\n", text);
    }
}

static void json_plan(const struct trajd_convert_report *plan)
{
    struct trajd_json json;

    begin_event(&json, "plan");
    trajd_json_u64(&json, "episodes", plan->episode_count);
    trajd_json_u64(&json, "left_out", plan->episodes_left_out);
    trajd_json_u64(&json, "cut", plan->episodes_cut);
    trajd_json_u64(&json, "steps", plan->steps);
    trajd_json_u64(&json, "bytes", plan->byte_count);
    trajd_json_number(&json, "seconds", "%.9g", (double)plan->duration_ns * 1e-9);
    trajd_json_string(&json, "backend", trajd_convert_backend_name(plan->backend));
    trajd_json_string(&json, "by", plan->backend_text);
    trajd_json_open_array(&json, "streams");
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        trajd_json_open_object(&json, NULL);
        trajd_json_string(&json, "name", stream->name);
        trajd_json_string(&json, "clock", stream->clock);
        if (stream->rates.highest_hz)
            trajd_json_number(&json, "clock_hz", "%.9g", stream->rates.highest_hz);
        trajd_json_string(&json, "rate_source", trajd_rate_source_name(stream->rates.source));
        trajd_json_string(&json, "kind", trajd_convert_kind_name(stream));
        trajd_json_string(&json, "from", trajd_dtype_name(stream->from));
        trajd_json_string(&json, "to", trajd_dtype_name(stream->to));
        trajd_json_u64(&json, "features", stream->feature_count);
        trajd_json_bool(&json, "compressed", stream->is_compressed);
        trajd_json_close_object(&json);
    }
    trajd_json_close_array(&json);
    end_event(&json);
}

static void print_plan(const struct resample_printer *printer,
                       const struct trajd_convert_report *plan)
{
    printf("%" PRIu64 " episode%s, %.1f s, %" PRIu64 " step%s at %.6g Hz, %.1f MB, by %s",
           plan->episode_count, trajd_plural(plan->episode_count), (double)plan->duration_ns * 1e-9,
           plan->steps, trajd_plural(plan->steps),
           (double)printer->rate.num / (double)printer->rate.den, (double)plan->byte_count * 1e-6,
           plan->backend_text);
    if (plan->episodes_cut)
        printf("; %" PRIu64 " split into parts", plan->episodes_cut);
    printf(plan->episodes_left_out ? "; %" PRIu64 " left out\n" : "\n", plan->episodes_left_out);
    for (uint32_t s = 0; s < plan->stream_count; s++) {
        const struct trajd_convert_stream *stream = &plan->streams[s];
        char rates[TRAJD_RATES_TEXT_SIZE], clock[2 * TRAJD_RATES_TEXT_SIZE];
        snprintf(clock, sizeof clock, "%.80s %s", stream->clock,
                 trajd_index_rates_text(&stream->rates, rates));
        printf("  %-28s %-20s %-10s %s%s%s x %" PRIu64, stream->name, clock,
               trajd_convert_kind_name(stream), trajd_dtype_name(stream->from),
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

static void json_progress(const struct trajd_convert_progress *progress)
{
    static const char *const phases[] = {"planned", "running", "closing", "done"};
    struct trajd_json json;

    begin_event(&json, "progress");
    trajd_json_string(&json, "phase", phases[progress->phase]);
    trajd_json_u64(&json, "episodes_done", progress->episodes_done);
    trajd_json_u64(&json, "episodes_safe", 0); /* of the time when runs could be resumed */
    trajd_json_u64(&json, "episodes", progress->episode_count);
    trajd_json_u64(&json, "bytes_done", progress->bytes_done);
    trajd_json_u64(&json, "bytes", progress->byte_count);
    end_event(&json);
}

void resample_print_progress(void *context, const struct trajd_convert_progress *progress)
{
    struct resample_printer *printer = context;

    if (printer->json) {
        json_progress(progress);
    } else if (progress->phase == TRAJD_CONVERT_RUNNING) {
        trajd_progress_report("resample", TRAJD_PROGRESS_BYTES, progress->bytes_done,
                              progress->byte_count);
    }
}

/* Returns the path of a file of the output. */
static const char *file_of(const char *output, const struct trajd_convert_report *report,
                           uint32_t part, char *path, size_t size)
{
    return report->part_count && trajd_convert_part_path(output, part, path, size) ? path : output;
}

static void json_report(const char *output, const struct trajd_convert_report *report)
{
    struct trajd_json json;
    char path[CLI_PATH_SIZE];

    begin_event(&json, "done");
    trajd_json_string(&json, "output", file_of(output, report, 0, path, sizeof path));
    trajd_json_open_array(&json, "outputs");
    for (uint32_t part = 0; part < report->part_count || part == 0; part++)
        trajd_json_string(&json, NULL, file_of(output, report, part, path, sizeof path));
    trajd_json_close_array(&json);
    trajd_json_u64(&json, "episodes_written", report->episodes_written);
    trajd_json_u64(&json, "episodes_resumed", 0); /* as above */
    trajd_json_u64(&json, "left_out", report->episodes_left_out);
    trajd_json_u64(&json, "bytes_read", report->bytes_read);
    trajd_json_u64(&json, "bytes_written", report->bytes_written);
    trajd_json_string(&json, "backend", trajd_convert_backend_name(report->backend));
    trajd_json_bool(&json, "fell_back", report->fell_back);
    trajd_json_u64(&json, "pieces", report->segments);
    trajd_json_u64(&json, "pieces_here", report->segments_here);
    end_event(&json);
}

void resample_print_report(const struct resample_printer *printer,
                           const struct trajd_convert_report *report)
{
    char path[CLI_PATH_SIZE];

    if (printer->json) {
        json_report(printer->output, report);
        return;
    }
    for (uint32_t s = 0; s < report->stream_count; s++)
        if (report->streams[s].nan_steps)
            printf("%s: NaN in %" PRIu64 " step%s, because the source is NaN\n",
                   report->streams[s].name, report->streams[s].nan_steps,
                   trajd_plural(report->streams[s].nan_steps));
    if (report->segments_here)
        printf("%" PRIu64 " of %" PRIu64
               " pieces were too large for the backend: this CPU resampled them\n",
               report->segments_here, report->segments);
    printf("%s", file_of(printer->output, report, 0, path, sizeof path));
    if (report->part_count)
        printf(" to %s",
               file_of(printer->output, report, report->part_count - 1, path, sizeof path));
    printf(": %" PRIu64 " episode%s\n", report->episodes_written,
           trajd_plural(report->episodes_written));
}
