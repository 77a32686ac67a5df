/* Finishes a file whose rows are all written, and gives it the output's name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "clients/cli/resample/convert_internal.h"
#include "clients/cli/resample/convert_io.h"

enum { FILE_TIMEOUT_MS = 600000 };

/* EINVAL: the filesystem has no sync of folders. */
static enum trajd_status sync_folder(struct conversion *r)
{
    return trajd_file_sync_folder(r->options->output) && errno != EINVAL
               ? convert_io_error(r, r->options->output)
               : TRAJD_OK;
}

static enum trajd_status put_signature(struct conversion *r)
{
    return convert_pwrite(r->fd, &r->head.signature, sizeof r->head.signature, 0, r->partial,
                          r->error);
}

/* Prepares for the change of the file's structure. If the run is killed during that change, rows in
 * the file itself cannot be resumed, so the journal is removed first. Chunks in the spool can be
 * resumed. */
static enum trajd_status give_up_rows(struct conversion *r)
{
    enum trajd_status status;

    r->is_spent = !convert_is_all_chunks(r);
    if (r->is_spent)
        return unlink(r->journal_path) && errno != ENOENT ? convert_io_error(r, r->journal_path)
                                                          : TRAJD_OK;
    pthread_mutex_lock(&r->lock);
    status = convert_commit(r);
    pthread_mutex_unlock(&r->lock);
    return status;
}

static enum trajd_status add_chunks(struct conversion *r)
{
    enum trajd_status status = give_up_rows(r);

    if (!status)
        status = put_signature(r);
    if (!status)
        status = convert_output_add_chunks(&r->plan,
                                           (struct convert_chunk *const *const *)r->spool.chunks,
                                           r->fd, r->spool_fd, &r->head.file_size, r->error);
    return status;
}

/* Checks that no input has changed while it was read. */
static enum trajd_status check_inputs(struct conversion *r)
{
    const struct trajd_index_file *checked = NULL;
    enum trajd_status status = TRAJD_OK;

    for (uint32_t e = 0; e < r->plan.episode_count && !status; e++) {
        const struct trajd_index *index = r->options->indexes[r->plan.episodes[e].source];
        const struct trajd_index_file *file =
            &index->files[index->episodes[r->plan.episodes[e].episode].file_index];
        struct stat now;
        if (file == checked)
            continue;
        status = stat(file->path, &now) ? convert_io_error(r, file->path)
                                        : convert_check_input(file, &now, r->error);
        checked = file;
    }
    r->is_spent = status == TRAJD_ERR_DATA;
    return status;
}

/* Checks that the partial file still has its name. If another process has removed or replaced it,
 * the file that has the name now is left alone. */
static enum trajd_status check_name(struct conversion *r)
{
    struct stat held, named;

    if (!fstat(r->fd, &held) && !lstat(r->partial, &named) && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev)
        return TRAJD_OK;
    r->has_files = false;
    return trajd_error_set(r->error, TRAJD_ERR_IO, 0,
                           "%s: was removed or replaced while it was written", r->partial);
}

/* ---- parts ---- */

/* Stands in the journal of a part when its file is finished. */
struct finish {
    uint64_t magic, digest, inode;
};
static const uint64_t finish_magic = UINT64_C(0x74726170646f6e65);

/* Removes the journal's other content first: rows of a finished file are not resumed. */
static enum trajd_status mark_finished(struct conversion *r)
{
    struct stat status;
    struct finish finish = {.magic = finish_magic, .digest = r->digest};

    if (fstat(r->fd, &status))
        return convert_io_error(r, r->partial);
    finish.inode = status.st_ino;
    if (r->is_spent) { /* the journal was removed */
        close(r->journal_fd);
        r->journal_fd = open(r->journal_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (r->journal_fd < 0)
            return convert_io_error(r, r->journal_path);
    }
    if (ftruncate(r->journal_fd, 0))
        return convert_io_error(r, r->journal_path);
    return convert_pwrite(r->journal_fd, &finish, sizeof finish, 0, r->journal_path, r->error)
               ? TRAJD_ERR_IO
           : fsync(r->journal_fd) ? convert_io_error(r, r->journal_path)
                                  : TRAJD_OK;
}

static bool has_inode(const char *path, uint64_t inode)
{
    struct stat status;

    return !lstat(path, &status) && S_ISREG(status.st_mode) && status.st_ino == inode;
}

bool convert_is_finished(const struct conversion *r)
{
    struct finish finish = {0};
    const int fd = open(r->journal_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool is_read = fd >= 0 && pread(fd, &finish, sizeof finish, 0) == sizeof finish;

    if (fd >= 0)
        close(fd);
    return is_read && finish.magic == finish_magic && finish.digest == r->digest &&
           (has_inode(r->partial, finish.inode) || has_inode(r->options->output, finish.inode));
}

static enum trajd_status name_output(struct conversion *r)
{
    bool is_sure = true;

    if (r->options->force ? rename(r->partial, r->options->output)
                          : trajd_file_rename_new(r->partial, r->options->output, &is_sure))
        return convert_io_error(r, r->options->output);
    if (!is_sure)
        convert_note(r->options,
                     "%s: its filesystem can neither rename without replacing nor link: a file of "
                     "that name that appeared at this moment was replaced",
                     r->options->output);
    return TRAJD_OK;
}

/* ---- the finished file is read again ---- */

static bool is_made(const struct convert_plan *plan, const struct trajd_index *first,
                    const struct trajd_layout_stream *stream)
{
    for (uint32_t d = 0; d < plan->dataset_count; d++)
        if (trajd_layout_match(stream->path, first->arrays[plan->datasets[d].index_dataset].path,
                               NULL, 0))
            return true;
    return false;
}

static bool has_stream(const struct convert_plan *plan, const char *name)
{
    for (uint32_t s = 0; s < plan->stream_count; s++)
        if (!strcmp(plan->streams[s].name, name))
            return true;
    return false;
}

/* Changes a layout so that it does not need the streams that are not taken. */
static void omit_streams(const struct conversion *r, struct trajd_layout *layout)
{
    for (uint32_t s = 0; s < layout->stream_count; s++) {
        struct trajd_layout_stream *stream = (struct trajd_layout_stream *)&layout->streams[s];
        stream->optional = stream->optional || !is_made(&r->plan, r->options->indexes[0], stream);
    }
    for (uint32_t k = 0; k < layout->clock_count; k++) {
        struct trajd_layout_clock *clock = (struct trajd_layout_clock *)&layout->clocks[k];
        if (clock->rows && !has_stream(&r->plan, clock->rows))
            clock->rows = NULL;
    }
}

/* Indexes the finished file with the layout of the inputs. */
static enum trajd_status open_finished(struct conversion *r, struct trajd_index **index)
{
    const struct trajd_index *first = r->options->indexes[0];
    const struct trajd_index_options options = {.path = r->partial,
                                                .helper_path = r->options->helper_path,
                                                .child_count = convert_thread_count(r),
                                                .file_timeout_ms = FILE_TIMEOUT_MS};
    struct trajd_layout *layout;
    enum trajd_status status = trajd_layout_parse(first->layout->name, first->layout->text,
                                                  first->layout->text_length, &layout, r->error);

    if (status)
        return status;
    omit_streams(r, layout);
    return trajd_index_open_as(&options, layout, index, r->error);
}

static uint32_t find_path(const struct trajd_index *index, const char *path)
{
    uint32_t i = 0;

    while (i < index->array_count && strcmp(index->arrays[i].path, path))
        i++;
    return i;
}

/* Returns whether the array of the finished file is the one of the plan. */
static bool is_as_planned(const struct convert_dataset *dataset, const struct convert_episode *made,
                          const struct trajd_array *array)
{
    bool is_same = array->storage != TRAJD_STORAGE_ABSENT && array->dtype == dataset->to &&
                   array->shape[0] == made->step_count;

    if (dataset->is_encoded)
        return is_same && trajd_array_is_encoded(array);
    is_same = is_same && array->rank == dataset->rank + 1;
    for (uint32_t d = 0; d < dataset->rank && is_same; d++)
        is_same = array->shape[d + 1] == dataset->shape[d];
    return is_same;
}

/* Finds an episode of the plan in the finished file. Both are in natural order, unless the plan has
 * several inputs. */
static const struct trajd_episode *find_episode(const struct trajd_index *index,
                                                const struct convert_episode *made, uint32_t e)
{
    const bool is_whole_file = !strpbrk(index->layout->groups, "*?[");

    for (uint32_t i = 0; i < index->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[(e + i) % index->episode_count];
        if (is_whole_file || !strcmp(episode->id, made->id))
            return episode;
    }
    return NULL;
}

static enum trajd_status compare_episode(struct conversion *r, const struct trajd_index *index,
                                         const uint32_t *paths, uint32_t e)
{
    const struct convert_episode *made = &r->plan.episodes[e];
    const struct trajd_episode *episode = find_episode(index, made, e);

    if (!episode)
        return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s is missing", made->id);
    if (episode->quarantine)
        return trajd_error_set(r->error, TRAJD_ERR_DATA, 0, "%s", episode->quarantine);
    for (uint32_t a = 0; a < made->array_count; a++) {
        const uint32_t d = made->arrays[a].dataset;
        if (paths[d] == index->array_count ||
            !is_as_planned(&r->plan.datasets[d], made, &episode->extents[paths[d]]))
            return trajd_error_set(r->error, TRAJD_ERR_DATA, 0,
                                   "%s: %s has not the type and rows that were planned", made->id,
                                   r->plan.datasets[d].path);
    }
    return TRAJD_OK;
}

/* Checks that the finished file can be read, and holds the episodes, streams and rows of the
 * plan. */
static enum trajd_status check_finished(struct conversion *r)
{
    uint32_t *paths = malloc((r->plan.dataset_count + 1) * sizeof *paths);
    struct trajd_index *index = NULL;
    enum trajd_status status = paths ? open_finished(r, &index) : convert_no_memory(r);

    for (uint32_t d = 0; d < r->plan.dataset_count && !status; d++)
        paths[d] = find_path(index, r->plan.datasets[d].path);
    for (uint32_t e = 0; e < r->plan.episode_count && !status; e++)
        status = compare_episode(r, index, paths, e);
    if (index)
        trajd_index_destroy(&index);
    free(paths);
    if (status != TRAJD_ERR_DATA && status != TRAJD_ERR_NOT_FOUND)
        return status;
    r->is_spent = true;
    trajd_error_prefix(r->error,
                       "%s: the finished file cannot be read again, so it is not published",
                       r->options->output);
    return TRAJD_ERR_DATA;
}

enum trajd_status convert_name_part(struct conversion *r)
{
    enum trajd_status status;

    if (!convert_is_finished(r))
        return trajd_error_set(r->error, TRAJD_ERR_BUSY, 0, "%s: another run is writing it",
                               r->partial);
    status = access(r->partial, F_OK) ? TRAJD_OK : name_output(r);
    return status ? status : sync_folder(r);
}

enum trajd_status convert_publish(struct conversion *r)
{
    enum trajd_status status = check_inputs(r);

    if (!status)
        status = check_name(r);
    if (!status && r->has_spool)
        status = add_chunks(r);
    if (!status && fsync(r->fd))
        status = convert_io_error(r, r->partial);
    if (!status && !r->has_spool)
        status = put_signature(r);
    if (!status && !r->has_spool && fsync(r->fd))
        status = convert_io_error(r, r->partial);
    if (!status)
        status = check_finished(r);
    if (!status)
        status = check_name(r);
    if (!status)
        status = r->is_part ? mark_finished(r) : name_output(r);
    if (status)
        return status;
    r->has_files = false;
    if (!r->is_part)
        unlink(r->journal_path);
    unlink(r->spool_path);
    return sync_folder(r);
}
