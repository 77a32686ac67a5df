/* A conversion from its plan to the names of its files: one, or one for each part of an episode
 * that is split. */
#include "clients/cli/resample/convert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"
#include "daemon/base/memory.h"

/* ---- places ---- */

static bool is_input(const struct trajd_convert_options *options, const struct stat *status)
{
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t f = 0; f < options->indexes[k]->file_count; f++) {
            struct stat input;
            if (!stat(options->indexes[k]->files[f].path, &input) &&
                input.st_dev == status->st_dev && input.st_ino == status->st_ino)
                return true;
        }
    return false;
}

/* Checks that the place of a file is free or may be replaced. */
static enum trajd_status check_place(const struct conversion *r, const struct output_file *file)
{
    struct stat status;

    if (!stat(file->partial, &status) && is_input(r->options, &status))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is an input, so it cannot be the partial file of the output",
                               file->partial);
    /* lstat succeeds for a link that leads nowhere, too */
    if (stat(file->path, &status) && lstat(file->path, &status))
        return TRAJD_OK;
    if (S_ISDIR(status.st_mode))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is a folder: name a file as the output", file->path);
    if (is_input(r->options, &status))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is also an input: an input is not overwritten", file->path);
    if (!file->force)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s exists: --force replaces it when the new one is finished",
                               file->path);
    return TRAJD_OK;
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
static enum trajd_status check_other_parts(const struct conversion *r)
{
    const uint32_t parts = r->plan.episode_count > 1 ? r->plan.episode_count : 0;
    const char *output = r->options->output;
    char path[OUTPUT_PATH_SIZE];
    struct stat status;

    if (!output || !convert_plan_is_of_files(&r->plan))
        return TRAJD_OK;
    if (!trajd_convert_part_path(output, parts, path, sizeof path))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "the output's path is too long");
    if (!lstat(path, &status))
        return trajd_error_set(
            r->error, TRAJD_ERR_ARGUMENT, 0,
            "%s exists, but this run writes %u parts of the episode: remove that "
            "file, or name another output",
            path, parts);
    if (parts && !lstat(output, &status))
        return trajd_error_set(
            r->error, TRAJD_ERR_ARGUMENT, 0,
            "%s exists, but this run writes the %u parts of the episode to files "
            "of their own: remove that file, or name another output",
            output, parts);
    return TRAJD_OK;
}

/* Names the files of the run, and checks their places. */
static enum trajd_status name_files(struct conversion *r, struct output_file *files, uint32_t count)
{
    const struct trajd_convert_options *options = r->options;
    enum trajd_status status = check_other_parts(r);

    for (uint32_t i = 0; i < count && !status; i++) {
        char path[OUTPUT_PATH_SIZE];
        if (count > 1 && !trajd_convert_part_path(options->output, i, path, sizeof path))
            return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                                   "the output's path is too long");
        status = output_file_name(&files[i], count > 1 ? path : options->output, options->force,
                                  r->error);
        if (!status)
            status = check_place(r, &files[i]);
    }
    return status;
}

/* ---- reports ---- */

static void report_plan(struct conversion *r, uint32_t file_count)
{
    struct trajd_convert_report *report = r->report;

    report->streams = r->plan.streams;
    report->stream_count = r->plan.stream_count;
    report->part_count = file_count > 1 ? file_count : 0;
    report->episodes_left_out = r->plan.left_out;
    report->episodes_cut = r->plan.cut_count;
    report->steps = r->plan.step_count;
    report->duration_ns = r->plan.duration_ns;
    report->episode_count = r->plan.episode_count;
    report->byte_count = r->plan.byte_count;
    report->backend = r->backend.kind;
    snprintf(report->backend_text, sizeof report->backend_text, "%s", r->backend.text);
    if (r->options->on_plan)
        r->options->on_plan(r->options->context, report);
    convert_report_progress(r, TRAJD_CONVERT_PLANNED);
}

void trajd_convert_report_clear(struct trajd_convert_report *report)
{
    trajd_arena_free(&report->arena);
    *report = (struct trajd_convert_report){0};
}

/* ---- the files ---- */

/* Writes a file of the run's plan, and checks it. */
static enum trajd_status write_file(struct conversion *r, struct output_file *file)
{
    enum trajd_status status = output_file_open(file, r->error);

    if (status)
        return status;
    if (file->was_there)
        convert_note(r->options, "%s of an earlier run is replaced", file->partial);
    status = convert_write_file(r, file->fd);
    convert_report_progress(r, TRAJD_CONVERT_CLOSING);
    if (!status)
        status = convert_check_inputs(r);
    if (!status)
        status = output_file_check_name(file, r->error);
    if (!status)
        status = convert_check_finished(r, file);
    return status;
}

/* A file that has not its name yet holds its descriptor, whose lock keeps other runs away. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Writes all files, and gives them their names when the last one is complete. */
static enum trajd_status write_files(struct conversion *r, struct output_file *files,
                                     uint32_t count)
{
    const struct convert_plan whole = r->plan;
    enum trajd_status status = TRAJD_OK;

    if (count > 1)
        allow_descriptors();
    for (uint32_t i = 0; i < count && !status; i++) {
        if (count > 1)
            convert_plan_select(&r->plan, i);
        status = write_file(r, &files[i]);
        r->plan = whole;
    }
    for (uint32_t i = 0; i < count && !status; i++)
        status = output_file_check_name(&files[i], r->error);
    for (uint32_t i = 0; i < count && !status; i++) {
        bool is_sure;
        status = output_file_publish(&files[i], &is_sure, r->error);
        if (!status && !is_sure)
            convert_note(
                r->options,
                "%s: its filesystem can neither rename without replacing nor link: a file of "
                "that name that appeared at this moment was replaced",
                files[i].path);
    }
    return status;
}

static enum trajd_status run(struct conversion *r, uint32_t count)
{
    struct output_file *files = trajd_memory_or_exit(calloc(count, sizeof *files));
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < count; i++)
        files[i].fd = -1;
    if (!r->options->dry_run || r->options->output)
        status = name_files(r, files, count);
    if (!status)
        status = convert_backend_choose(&r->plan, &r->backend, r->error);
    if (!status) {
        r->plan.is_on_gpu = r->backend.is_on_gpu;
        report_plan(r, count);
        if (!r->options->dry_run)
            status = write_files(r, files, count);
        r->report->segments = r->backend.segments;
        r->report->segments_here = r->backend.segments_here;
        if (!status && !r->options->dry_run)
            convert_report_progress(r, TRAJD_CONVERT_DONE);
    }
    for (uint32_t i = 0; i < count; i++)
        output_file_close(&files[i]);
    free(files);
    convert_backend_clear(&r->backend);
    return status;
}

enum trajd_status trajd_convert_file(const struct trajd_convert_options *options,
                                     struct trajd_convert_report *report, struct trajd_error *error)
{
    struct trajd_error unwanted;
    struct conversion r = {
        .options = options, .report = report, .error = error ? error : &unwanted};
    enum trajd_status status;

    *report = (struct trajd_convert_report){0};
    status = convert_plan_make(options, &r.plan, r.error);
    if (!status)
        status = run(&r, convert_plan_is_of_files(&r.plan) ? r.plan.episode_count : 1);
    report->arena = r.plan.arena;
    return status;
}
