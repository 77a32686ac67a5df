/* Errors, progress, and writes of a conversion. */
#include "clients/cli/resample/convert_io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/resample/convert_internal.h"

enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error)
{
    const struct trajd_file_stat found = trajd_file_stat_from(now);

    if (trajd_file_stat_is_same(&file->stat, &found))
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                           "%s: changed since it was indexed (size, times or inode differ)",
                           file->path);
}

enum trajd_status convert_pwrite(int fd, const void *data, size_t size, uint64_t offset,
                                 const char *path, struct trajd_error *error)
{
    const uint8_t *next = data;

    while (size) {
        const ssize_t done = pwrite(fd, next, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return trajd_error_set(error, TRAJD_ERR_IO, done < 0 ? errno : EIO, "%s: %s", path,
                                   strerror(done < 0 ? errno : EIO));
        next += done;
        offset += (uint64_t)done;
        size -= (size_t)done;
    }
    return TRAJD_OK;
}

enum trajd_status convert_no_memory(struct conversion *r)
{
    return trajd_error_set(r->error, TRAJD_ERR_MEMORY, 0, "no memory for %u episodes",
                           r->plan.episode_count);
}

enum trajd_status convert_io_error(struct conversion *r, const char *path)
{
    const int code = errno;

    return trajd_error_set(r->error, TRAJD_ERR_IO, code, "%s: %s", path, strerror(code));
}

void convert_report_progress(const struct conversion *r, enum trajd_convert_phase phase)
{
    struct trajd_convert_progress progress = {
        .phase = phase, .episode_count = r->plan.episode_count, .byte_count = r->plan.byte_count};

    if (!r->options->on_progress)
        return;
    progress.episodes_done = r->report->episodes_resumed + r->finished_count;
    progress.episodes_safe = r->report->episodes_resumed + r->committed_count;
    progress.bytes_done =
        r->resumed_bytes + __atomic_load_n(&r->counts.bytes_written, __ATOMIC_RELAXED);
    r->options->on_progress(r->options->context, &progress);
}
