/* Errors and progress of a conversion. */
#include <errno.h>
#include <string.h>

#include "clients/cli/resample/convert_internal.h"

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
