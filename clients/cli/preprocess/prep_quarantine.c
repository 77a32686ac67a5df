/* Moves refused files to the quarantine. */
#include <errno.h>
#include <string.h>

#include "clients/cli/preprocess/prep_job.h"

enum trajd_status prep_put_aside(struct prep_job *p, enum prep_outcome *outcome)
{
    enum trajd_status status = prep_move(p->source, p->aside, p->error);

    *outcome = PREP_QUARANTINED;
    if (status != TRAJD_ERR_UNSUPPORTED)
        return status;
    *outcome = PREP_KNOWN;
    LOG(p->run->log, WARNING, "%s: the file stays in the inbox and is ignored until it changes",
        p->error->message);
    return TRAJD_OK;
}

/* Renames an earlier file of that name in the quarantine, and its report, to NAME.1, NAME.2, ... */
static enum trajd_status make_way(const struct prep_job *p)
{
    char path[PREP_PATH_SIZE], suffix[64];
    struct stat stat;
    enum trajd_status status = TRAJD_OK;

    if (lstat(p->aside, &stat))
        return TRAJD_OK;
    for (unsigned int number = 1; !status; number++) {
        snprintf(suffix, sizeof suffix, ".%u", number);
        status = prep_path(path, p->run->config->quarantine, p->name, suffix, p->error);
        if (!status && lstat(path, &stat))
            break;
    }
    if (!status && rename(p->aside, path))
        status =
            trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->aside, strerror(errno));
    strcat(suffix, PREP_REPORT_SUFFIX);
    if (!status)
        status = prep_path(path, p->run->config->quarantine, p->name, suffix, p->error);
    if (!status && rename(p->report, path) && errno != ENOENT)
        status =
            trajd_error_set(p->error, TRAJD_ERR_IO, errno, "%s: %s", p->report, strerror(errno));
    return status;
}

/* The report is written first, so that a file in the quarantine always has one. */
enum trajd_status prep_quarantine(struct prep_job *p, enum prep_outcome *outcome)
{
    enum trajd_status status;

    p->record.is_refused = true;
    p->record.reason = p->reason;
    status = make_way(p);
    if (!status)
        status = prep_write_job_record(p, p->report);
    if (status)
        return status;
    LOG(p->run->log, WARNING, "%s: quarantined: %s", p->name, p->reason);
    return prep_put_aside(p, outcome);
}
