/* Finishes a file whose rows are all written, and gives it the output's name. */
#include <errno.h>
#include <stdio.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/files.h"
#include "clients/cli/resample/convert_internal.h"
#include "clients/cli/resample/convert_io.h"

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
        status = check_name(r);
    if (!status)
        status = name_output(r);
    if (status)
        return status;
    r->has_files = false;
    unlink(r->journal_path);
    unlink(r->spool_path);
    return sync_folder(r);
}
