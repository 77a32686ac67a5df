/* Converts a plan into one file, from the first check to the rename of the output. */
#include "clients/cli/resample/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"
#include "daemon/base/heartbeat.h"
#include "proto/plural.h"

enum { LEVEL_DEFAULT = 4 };

/* ---- paths ---- */

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

enum trajd_status convert_name_files(struct conversion *r)
{
    const char *output = r->options->output;

    if (!output || !*output)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "name an output");
    if (strlen(output) + sizeof ".partial.journal" > CONVERT_PATH_SIZE)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0, "the output's path is too long");
    snprintf(r->partial, sizeof r->partial, "%s.partial", output);
    snprintf(r->journal_path, sizeof r->journal_path, "%s.partial.journal", output);
    snprintf(r->spool_path, sizeof r->spool_path, "%s.partial.chunks", output);
    return TRAJD_OK;
}

enum trajd_status convert_check_output(struct conversion *r)
{
    const char *output = r->options->output;
    struct stat status;

    if (convert_name_files(r))
        return TRAJD_ERR_ARGUMENT;
    if (!stat(r->partial, &status) && is_input(r->options, &status))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is an input, so it cannot be the partial file of the output",
                               r->partial);
    if (stat(output, &status) && lstat(output, &status)) /* true for a dangling link, too */
        return TRAJD_OK;
    if (S_ISDIR(status.st_mode))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is a folder: name a file as the output", output);
    if (is_input(r->options, &status))
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s is also an input: an input is not overwritten", output);
    if (!r->options->force)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s exists: --force replaces it when the new one is finished",
                               output);
    return TRAJD_OK;
}

/* Opens `path`, or creates it. A file that exists already must be this user's own regular file with
 * one name: rows must not go into a file that someone else has put there. */
static enum trajd_status open_own(struct conversion *r, const char *path, int *fd)
{
    struct stat found;

    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd >= 0)
        return TRAJD_OK;
    if (errno == EEXIST)
        *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0)
        return trajd_error_set(
            r->error, errno == ENOENT || errno == ENOTDIR ? TRAJD_ERR_NOT_FOUND : TRAJD_ERR_IO,
            errno, "%s: %s", path, strerror(errno));
    if (fstat(*fd, &found) || !S_ISREG(found.st_mode) || found.st_uid != geteuid() ||
        found.st_nlink != 1)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: exists, and is not a regular file of this user with a single "
                               "name: remove it, or choose another output",
                               path);
    return TRAJD_OK;
}

/* Opens and locks the partial file, its journal and its spool. The partial file belongs to this run
 * as long as it holds the lock. */
static enum trajd_status open_partial(struct conversion *r)
{
    struct stat held, named;
    enum trajd_status status = open_own(r, r->partial, &r->fd);

    if (status)
        return status;
    if (flock(r->fd, LOCK_EX | LOCK_NB) || fstat(r->fd, &held) || stat(r->partial, &named) ||
        held.st_ino != named.st_ino)
        return trajd_error_set(r->error, TRAJD_ERR_BUSY, 0, "%s: another run is writing it",
                               r->partial);
    r->is_empty = !held.st_size;
    for (uint32_t d = 0; d < r->plan.dataset_count; d++)
        r->has_spool = r->has_spool || r->plan.datasets[d].is_compressed;
    status = open_own(r, r->journal_path, &r->journal_fd);
    if (!status && r->has_spool)
        status = open_own(r, r->spool_path, &r->spool_fd);
    if (status) {
        if (r->is_empty)
            unlink(r->partial);
        return status;
    }
    r->has_files = true;
    if (held.st_size && !r->options->resume)
        convert_note(r->options, "%s of an earlier run is overwritten (--resume would continue it)",
                     r->partial);
    /* A resumed run whose rows are all compressed makes the partial file again. If it was killed
     * then, that file is empty, but its journal is not. */
    if (!fstat(r->journal_fd, &held) && held.st_size)
        r->is_empty = false;
    return TRAJD_OK;
}

/* Allocates the tables of the compressed arrays' chunks. */
static enum trajd_status make_spool(struct conversion *r)
{
    struct convert_plan *plan = &r->plan;

    r->spool = (struct convert_spool){
        .fd = r->spool_fd,
        .level = r->options->compress_level ? r->options->compress_level : LEVEL_DEFAULT};
    if (!r->has_spool)
        return TRAJD_OK;
    r->spool.chunks =
        trajd_arena_alloc(&plan->arena, plan->episode_count * sizeof *r->spool.chunks);
    for (uint32_t e = 0; r->spool.chunks && e < plan->episode_count; e++) {
        const struct convert_episode *episode = &plan->episodes[e];
        r->spool.chunks[e] = trajd_arena_alloc(&plan->arena, (episode->array_count + 1) *
                                                                 sizeof *r->spool.chunks[e]);
        for (uint32_t a = 0; r->spool.chunks[e] && a < episode->array_count; a++) {
            const struct convert_dataset *dataset = &plan->datasets[episode->arrays[a].dataset];
            if (!dataset->is_compressed)
                continue;
            r->spool.chunks[e][a] =
                trajd_arena_alloc(&plan->arena, convert_chunk_count(dataset, episode->step_count) *
                                                    sizeof *r->spool.chunks[e][a]);
            if (!r->spool.chunks[e][a])
                return convert_no_memory(r);
        }
        if (!r->spool.chunks[e])
            return convert_no_memory(r);
    }
    return r->spool.chunks ? TRAJD_OK : convert_no_memory(r);
}

/* ---- the conversion ---- */

static void fill_report(struct conversion *r)
{
    struct trajd_convert_report *report = r->report;

    report->rows_read = r->counts.rows_read;
    report->rows_written = r->counts.rows_written;
    report->bytes_read = r->counts.bytes_read;
    report->bytes_written = r->counts.bytes_written;
    report->episodes_written = r->finished_count;
    report->segments = r->backend.segments;
    report->segments_here = r->backend.segments_here;
    report->fell_back = r->backend.has_failed;
    for (uint32_t s = 0; s < report->stream_count && r->nan_steps; s++)
        ((struct trajd_convert_stream *)report->streams)[s].nan_steps = r->nan_steps[s];
}

/* Closes and frees everything. Removes the partial files if they cannot be resumed, or if the disk
 * is full. */
static void clean_up(struct conversion *r, enum trajd_status status)
{
    const bool full = status == TRAJD_ERR_IO && r->error &&
                      (r->error->foreign_code == ENOSPC || r->error->foreign_code == EDQUOT ||
                       r->error->foreign_code == EFBIG);

    if (status && r->has_files &&
        (full || r->is_spent || (r->is_begun && !r->began_rows) || r->is_empty)) {
        unlink(r->partial);
        unlink(r->journal_path);
        unlink(r->spool_path);
    } else if (status && r->began_rows && r->has_files) {
        convert_note(r->options, "%s is kept with %llu of %u episode%s: --resume continues it",
                     r->partial,
                     (unsigned long long)(r->report->episodes_resumed + r->committed_count),
                     r->plan.episode_count, trajd_plural(r->plan.episode_count));
    }
    if (r->fd >= 0)
        close(r->fd);
    if (r->journal_fd >= 0)
        close(r->journal_fd);
    if (r->spool_fd >= 0)
        close(r->spool_fd);
    free(r->done);
    free(r->remaining);
    free(r->finished);
    free(r->nan_steps);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    convert_backend_clear(&r->backend);
    convert_plan_clear(&r->plan);
}

static enum trajd_status allocate(struct conversion *r)
{
    const size_t count = (size_t)r->plan.episode_count + 1;

    r->done = calloc(count, sizeof *r->done);
    r->remaining = calloc(count, sizeof *r->remaining);
    r->finished = calloc(count, sizeof *r->finished);
    r->nan_steps = calloc((size_t)r->plan.stream_count + 1, sizeof *r->nan_steps);
    if (!r->done || !r->remaining || !r->finished || !r->nan_steps)
        return convert_no_memory(r);
    return convert_groups_make(&r->plan, &r->groups, &r->group_count, r->error);
}

/* Reports the plan to the caller. */
static void report_plan(struct conversion *r)
{
    struct trajd_convert_report *report = r->report;

    report->streams = r->plan.streams;
    report->stream_count = r->plan.stream_count;
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

static enum trajd_status run(struct conversion *r)
{
    enum trajd_status status = open_partial(r);

    if (!status)
        status = allocate(r);
    if (!status)
        status = make_spool(r);
    if (status)
        return status;
    status = r->options->resume ? convert_resume(r) : TRAJD_ERR_NOT_FOUND;
    if (status == TRAJD_ERR_NOT_FOUND || status == TRAJD_ERR_DATA) {
        if (r->options->resume)
            convert_note(r->options, "nothing to resume: %s", r->error->message);
        status = convert_begin(r);
    }
    if (!status)
        status = convert_write_rows(r);
    convert_report_progress(r, TRAJD_CONVERT_CLOSING);
    return status ? status : convert_publish(r);
}

enum trajd_status convert_file(struct conversion *r, const struct convert_plan *plan)
{
    const struct trajd_convert_options *options = r->options;
    enum trajd_status status = TRAJD_OK;

    *r->report = (struct trajd_convert_report){0};
    pthread_mutex_init(&r->lock, NULL);
    trajd_heartbeat_init_condition(&r->changed);
    r->plan = *plan;
    r->digest = plan->digest;
    if (!options->dry_run || options->output)
        status = convert_check_output(r);
    if (!status)
        status = convert_backend_choose(&r->plan, convert_thread_count(r), &r->backend, r->error);
    if (!status) {
        report_plan(r);
        if (!options->dry_run)
            status = run(r);
        fill_report(r);
        r->plan.streams = NULL; /* now owned by the report */
        if (!status && !options->dry_run)
            convert_report_progress(r, TRAJD_CONVERT_DONE);
    }
    clean_up(r, status);
    return status;
}

void trajd_convert_report_clear(struct trajd_convert_report *report)
{
    free((void *)report->streams);
    *report = (struct trajd_convert_report){0};
}
