/* Resumes the files of an earlier run, or begins them again. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"
#include "clients/cli/resample/convert_io.h"

static const uint64_t journal_bytes_max = UINT64_C(4) << 30;

static enum trajd_status load_journal(struct conversion *r, uint8_t **data, size_t *length)
{
    struct stat status;

    *data = NULL;
    if (fstat(r->journal_fd, &status))
        return convert_io_error(r, r->journal_path);
    *length = (size_t)status.st_size < journal_bytes_max ? (size_t)status.st_size : 0;
    *data = malloc(*length + 1);
    if (!*data)
        return convert_no_memory(r);
    for (size_t have = 0; have < *length;) {
        const ssize_t got = pread(r->journal_fd, *data + have, *length - have, (off_t)have);
        if (got < 0)
            return convert_io_error(r, r->journal_path);
        if (!got)
            *length = have;
        have += (size_t)got;
    }
    return TRAJD_OK;
}

/* Saves and erases the file's signature, so that no program opens the unfinished file as HDF5. */
static enum trajd_status remove_signature(struct conversion *r)
{
    static const uint64_t none;

    if (pread(r->fd, &r->head.signature, sizeof r->head.signature, 0) !=
        (ssize_t)sizeof r->head.signature)
        return convert_io_error(r, r->partial);
    return convert_pwrite(r->fd, &none, sizeof none, 0, r->partial, r->error);
}

/* Makes the file with its structure and with room for the rows. */
static enum trajd_status make_file(struct conversion *r)
{
    enum trajd_status status =
        ftruncate(r->fd, 0) ? convert_io_error(r, r->partial)
                            : convert_output_make(&r->plan, r->fd, &r->head.file_size, r->error);

    if (!status)
        status = remove_signature(r);
    /* Allocates all blocks now, so that a disk that is too small is an error before the work. */
    if (!status && fallocate(r->fd, 0, 0, (off_t)r->head.file_size) && errno != EOPNOTSUPP &&
        errno != ENOSYS)
        status = convert_io_error(r, r->options->output);
    if (!status && fdatasync(r->fd))
        status = convert_io_error(r, r->partial);
    return status;
}

/* Returns whether all rows are compressed. Their chunks lie in the spool until the end, so the
 * partial file itself can be made again. */
bool convert_is_all_chunks(const struct conversion *r)
{
    for (uint32_t d = 0; d < r->plan.dataset_count; d++)
        if (!r->plan.datasets[d].is_compressed)
            return false;
    return true;
}

/* Returns the journal's digest: the plan's, and whether the arithmetic was begun on a GPU. */
static uint64_t digest_of(const struct conversion *r, bool is_on_gpu)
{
    static const uint64_t on_gpu = UINT64_C(0x675075); /* any value but 0 */

    return r->digest ^ (is_on_gpu ? on_gpu : 0);
}

/* Continues on the CPU a file that was begun on the CPU. Its attributes name no GPU, so it must
 * hold no values of one. */
static enum trajd_status go_on_here(struct conversion *r)
{
    if (r->plan.is_on_gpu || !r->backend.is_on_gpu)
        return TRAJD_OK;
    if (!r->backend.may_fall_back)
        return trajd_error_set(r->error, TRAJD_ERR_ARGUMENT, 0,
                               "it was begun on the CPU: use --backend cpu to continue it");
    convert_note(r->options, "%s was begun on the CPU, so the CPU continues it", r->partial);
    r->backend.kind = r->report->backend = TRAJD_CONVERT_CPU;
    r->backend.is_on_gpu = false; /* in case the file is begun again after all */
    return TRAJD_OK;
}

static enum trajd_status read_journal(struct conversion *r, const uint8_t *data, size_t length,
                                      uint64_t spool_size, size_t *used)
{
    enum trajd_status status = TRAJD_ERR_ARGUMENT;

    for (int other = 0; other < 2 && status == TRAJD_ERR_ARGUMENT; other++) {
        r->plan.is_on_gpu = other ? !r->backend.is_on_gpu : r->backend.is_on_gpu;
        r->plan.digest = digest_of(r, r->plan.is_on_gpu);
        status = convert_journal_read(data, length, &r->plan, &r->head, r->done,
                                      (struct convert_chunk *const *const *)r->spool.chunks,
                                      spool_size, used, r->error);
    }
    return status ? status : go_on_here(r);
}

/* Takes over the finished episodes. Cuts off an incomplete end of the journal. Chunks of unfinished
 * episodes remain in the spool, unused. */
enum trajd_status convert_resume(struct conversion *r)
{
    struct stat file, spool = {0};
    uint8_t *data;
    size_t length = 0, used = 0;
    enum trajd_status status = load_journal(r, &data, &length);

    if (!status && (fstat(r->fd, &file) || (r->has_spool && fstat(r->spool_fd, &spool))))
        status = convert_io_error(r, r->partial);
    if (!status)
        status = read_journal(r, data, length, (uint64_t)spool.st_size, &used);
    free(data);
    if (!status && !convert_is_all_chunks(r) && (uint64_t)file.st_size != r->head.file_size)
        status = trajd_error_set(r->error, TRAJD_ERR_NOT_FOUND, 0,
                                 "the file does not have the size in its journal");
    if (!status && ftruncate(r->journal_fd, (off_t)used))
        status = convert_io_error(r, r->journal_path);
    if (status) {
        memset(r->done, 0, r->plan.episode_count);
        return status == TRAJD_ERR_ARGUMENT
                   ? trajd_error_prefix(r->error, "%s cannot be resumed", r->partial)
                   : status;
    }
    r->spool.length = (uint64_t)spool.st_size;
    for (uint32_t e = 0; e < r->plan.episode_count; e++)
        if (r->done[e]) {
            r->report->episodes_resumed++;
            for (uint32_t a = 0; a < r->plan.episodes[e].array_count; a++)
                r->resumed_bytes +=
                    r->plan.datasets[r->plan.episodes[e].arrays[a].dataset].row_bytes *
                    r->plan.episodes[e].step_count;
        }
    r->began_rows = true;
    r->is_empty = false;
    /* The file may be incomplete, from a run that was killed while it added chunks. */
    return convert_is_all_chunks(r) ? make_file(r) : TRAJD_OK;
}

enum trajd_status convert_begin(struct conversion *r)
{
    enum trajd_status status = TRAJD_OK;

    r->is_begun = true;
    r->is_empty = false;
    r->plan.is_on_gpu = r->backend.is_on_gpu;
    r->plan.digest = digest_of(r, r->plan.is_on_gpu);
    /* Empties the journal first, and syncs it: it must not list rows that the new file lacks. */
    if (ftruncate(r->journal_fd, 0) || fdatasync(r->journal_fd) ||
        (r->has_spool && ftruncate(r->spool_fd, 0)))
        return convert_io_error(r, r->partial);
    status = make_file(r);
    return status ? status : convert_journal_begin(r->journal_fd, &r->plan, &r->head, r->error);
}
