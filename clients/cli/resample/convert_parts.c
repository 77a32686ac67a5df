/* The entry of a conversion: one file, or a file for each part of an episode that is split. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"

static struct conversion begin_conversion(const struct trajd_convert_options *options,
                                          struct trajd_convert_report *report,
                                          struct trajd_error *error)
{
    return (struct conversion){.options = options,
                               .report = report,
                               .error = error,
                               .fd = -1,
                               .journal_fd = -1,
                               .spool_fd = -1};
}

bool trajd_convert_part_path(const char *output, uint32_t part, char *path, size_t size)
{
    const char *slash = strrchr(output, '/'), *name = slash ? slash + 1 : output,
               *dot = strrchr(name, '.');
    const int stem = (int)(dot && dot != name ? (size_t)(dot - output) : strlen(output));

    return (size_t)snprintf(path, size, "%.*s_part%u%s", stem, output, part, output + stem) < size;
}

/* Checks that no file of another run looks like a part of this output. Readers of the folder would
 * take it for one. */
static enum trajd_status check_other_parts(const struct trajd_convert_options *options,
                                           const struct convert_plan *plan,
                                           struct trajd_error *error)
{
    const uint32_t parts = plan->episode_count > 1 ? plan->episode_count : 0;
    char path[CONVERT_PATH_SIZE];
    struct stat status;

    if (!options->output || !convert_plan_is_of_files(plan))
        return TRAJD_OK;
    if (!trajd_convert_part_path(options->output, parts, path, sizeof path))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "the output's path is too long");
    if (!lstat(path, &status))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s exists, but this run writes %u parts of the episode: remove that "
            "file, or name another output",
            path, parts);
    if (parts && !lstat(options->output, &status))
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s exists, but this run writes the %u parts of the episode to files "
            "of their own: remove that file, or name another output",
            options->output, parts);
    return TRAJD_OK;
}

struct parts {
    const struct trajd_convert_options *options;
    struct trajd_convert_report *report; /* of all parts */
    struct trajd_error *error;
    uint32_t part;
    bool is_planned; /* the plan was reported */
    uint64_t bytes_done;
};

static void note_part(void *context, const char *text)
{
    const struct parts *parts = context;

    convert_note(parts->options, "%s", text);
}

/* Reports the plan of all parts once, with the backend of the first one. */
static void plan_part(void *context, const struct trajd_convert_report *plan)
{
    struct parts *parts = context;

    if (parts->is_planned)
        return;
    parts->is_planned = true;
    parts->report->backend = plan->backend;
    memcpy(parts->report->backend_text, plan->backend_text, sizeof plan->backend_text);
    if (parts->options->on_plan)
        parts->options->on_plan(parts->options->context, parts->report);
}

static void progress_part(void *context, const struct trajd_convert_progress *progress)
{
    const struct parts *parts = context;
    struct trajd_convert_progress all = *progress;

    all.episodes_done += parts->part;
    all.episodes_safe += parts->part;
    all.episode_count = parts->report->episode_count;
    all.bytes_done += parts->bytes_done;
    all.byte_count = parts->report->byte_count;
    if (progress->phase == TRAJD_CONVERT_DONE && parts->part + 1 < parts->report->part_count)
        all.phase = TRAJD_CONVERT_RUNNING;
    if (parts->options->on_progress)
        parts->options->on_progress(parts->options->context, &all);
}

/* Adds the report of a finished part. */
static void add_report(struct parts *parts, struct trajd_convert_report *part)
{
    struct trajd_convert_report *all = parts->report;

    all->episodes_written += part->episodes_written;
    all->episodes_resumed += part->episodes_resumed;
    all->rows_read += part->rows_read;
    all->rows_written += part->rows_written;
    all->bytes_read += part->bytes_read;
    all->bytes_written += part->bytes_written;
    all->segments += part->segments;
    all->segments_here += part->segments_here;
    all->fell_back = all->fell_back || part->fell_back;
    for (uint32_t s = 0; s < part->stream_count && part->streams; s++)
        ((struct trajd_convert_stream *)all->streams)[s].nan_steps += part->streams[s].nan_steps;
    trajd_convert_report_clear(part);
}

enum part_step { PART_CHECK, PART_WRITE, PART_NAME };

/* Runs one step of a part. The plan is made again, without its notes, and reduced to the part. */
static enum trajd_status run_part(struct parts *parts, enum part_step step)
{
    struct trajd_convert_options options = *parts->options;
    struct trajd_convert_report report = {0};
    struct conversion r = begin_conversion(&options, &report, parts->error);
    struct convert_plan plan;
    char path[CONVERT_PATH_SIZE];
    enum trajd_status status;

    options.on_note = NULL;
    if (options.output &&
        !trajd_convert_part_path(parts->options->output, parts->part, path, sizeof path))
        return trajd_error_set(parts->error, TRAJD_ERR_ARGUMENT, 0,
                               "the output's path is too long");
    options.output = options.output ? path : NULL;
    status = convert_plan_make(&options, &plan, parts->error);
    options.on_note = note_part;
    options.on_plan = plan_part;
    options.on_progress = progress_part;
    options.context = parts;
    r.is_part = true;
    if (!status)
        convert_plan_select(&plan, parts->part);
    r.digest = plan.digest;
    if (!status && options.output)
        status = convert_name_files(&r);
    if (status) {
        convert_plan_clear(&plan);
        return status;
    }
    if (step == PART_WRITE && !(options.resume && convert_is_finished(&r))) {
        status = convert_file(&r, &plan);
        parts->bytes_done += report.byte_count;
        add_report(parts, &report);
        return status;
    }
    if (step == PART_CHECK && !(options.resume && convert_is_finished(&r)))
        status = convert_check_output(&r);
    else if (step == PART_WRITE)
        parts->report->episodes_resumed++;
    else if (step == PART_NAME)
        status = convert_name_part(&r);
    convert_plan_clear(&plan);
    return status;
}

/* Converts the parts of an episode into files of their own. They get their names when all are
 * finished. */
static enum trajd_status convert_parts(const struct trajd_convert_options *options,
                                       struct convert_plan *plan,
                                       struct trajd_convert_report *report,
                                       struct trajd_error *error)
{
    struct parts parts = {.options = options, .report = report, .error = error};
    enum trajd_status status = TRAJD_OK;

    *report = (struct trajd_convert_report){.streams = plan->streams,
                                            .stream_count = plan->stream_count,
                                            .episode_count = plan->episode_count,
                                            .part_count = plan->episode_count,
                                            .episodes_left_out = plan->left_out,
                                            .episodes_cut = plan->cut_count,
                                            .byte_count = plan->byte_count,
                                            .steps = plan->step_count,
                                            .duration_ns = plan->duration_ns};
    plan->streams = NULL; /* now owned by the report */
    for (enum part_step step = options->output ? PART_CHECK : PART_WRITE;
         step <= (options->dry_run ? PART_WRITE : PART_NAME) && !status; step++)
        for (parts.part = 0; parts.part < report->part_count && !status; parts.part++)
            status = run_part(&parts, step);
    for (uint32_t part = 0; part < report->part_count && !status && !options->dry_run; part++) {
        char path[CONVERT_PATH_SIZE], journal[CONVERT_PATH_SIZE + 32];
        trajd_convert_part_path(options->output, part, path, sizeof path);
        snprintf(journal, sizeof journal, "%s.partial.journal", path);
        unlink(journal);
    }
    return status;
}

enum trajd_status trajd_convert_file(const struct trajd_convert_options *options,
                                     struct trajd_convert_report *report, struct trajd_error *error)
{
    struct trajd_error unwanted;
    struct convert_plan plan;
    enum trajd_status status;

    *report = (struct trajd_convert_report){0};
    error = error ? error : &unwanted;
    status = convert_plan_make(options, &plan, error);
    if (!status)
        status = check_other_parts(options, &plan, error);
    if (!status && convert_plan_is_of_files(&plan) && plan.episode_count > 1) {
        status = convert_parts(options, &plan, report, error);
    } else if (!status) {
        struct conversion r = begin_conversion(options, report, error);
        return convert_file(&r, &plan);
    }
    convert_plan_clear(&plan);
    return status;
}
