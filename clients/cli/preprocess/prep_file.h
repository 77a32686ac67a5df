/* Processes one file of the inbox until it is published or refused.
 *
 *   inbox/NAME -- examine -- resample --> outbox/.trajd/ID.staged -- rename --> outbox/NAME,
 *                    |                        NAME.sha256, NAME.manifest.json
 *                    `-- faults --> quarantine/NAME.report.json, and NAME itself, moved
 *                                   (an earlier one becomes NAME.1, NAME.2, ...)
 *
 * The manifest is written last, so a manifest proves that its output is complete. A file is done if
 * its manifest has the same recipe and the same source, and its output is as it was made. A file is
 * the same if its size and its time are; if only the time differs, the content decides. A killed run
 * leaves a free lock and a staged file, which the next run replaces. The sources of published files
 * stay in the inbox. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_FILE_H
#define TRAJD_CLI_PREPROCESS_PREP_FILE_H

#include "clients/cli/preprocess/prep_config.h"
#include "clients/cli/preprocess/prep_record.h"
#include "daemon/base/log.h"

enum prep_outcome {
    PREP_KNOWN, /* done before */
    PREP_PUBLISHED,
    PREP_QUARANTINED,
    PREP_ELSEWHERE, /* another run processes it */
    PREP_CHANGED,   /* changed while it was read; to be tried again */
};

struct prep_run {
    const struct prep_config *config;
    const struct cli_files *files;
    const struct trajd_log *log;
    /* set atomically by another thread or a signal handler: the file is left for the next run */
    const bool *cancel;
};

/* Returns whether the file was published before. Reads only the record; `source` has the file's
 * size and time. */
bool prep_file_is_known(const struct prep_run *run, const char *name,
                        const struct prep_identity *source);
/* Processes a file. TRAJD_ERR_CLOSED: cancelled. Other errors are faults of the machine (disk,
 * memory), and the file stays as it was. */
enum trajd_status prep_file_do(const struct prep_run *run, const char *name,
                               enum prep_outcome *outcome, struct trajd_error *error);

#endif
