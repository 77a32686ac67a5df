/* One file of the inbox, from what is known about it to its publication or its refusal.
 *
 *   inbox/NAME ── examine ── resample ──> outbox/.trajd/ID.staged ── rename ──> outbox/NAME,
 *     NAME.sha256, NAME.manifest.json
 *                    └── what is wrong ──> quarantine/NAME.report.json, and NAME itself, moved (an
 *                      earlier one there
 *                                            becomes NAME.1, NAME.2, ...)
 *
 * The manifest is written last: what it tells of is there. A file is done if its manifest is of the
 * same source (size and time of modification; where the time alone differs, the content decides) by
 * the same recipe, and the output is still the one that was made. A run that is killed leaves a
 * lock that is free and a staged file, which the next run goes on with. The originals of what was
 * published stay where they are. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_FILE_H
#define TRAJD_CLI_PREPROCESS_PREP_FILE_H

#include "clients/cli/preprocess/prep_config.h"
#include "clients/cli/preprocess/prep_record.h"
#include "daemon/base/log.h"

enum prep_outcome {
    PREP_KNOWN, /* done before: nothing was to be done */
    PREP_PUBLISHED,
    PREP_QUARANTINED,
    PREP_ELSEWHERE, /* another run is at it */
    PREP_CHANGED,   /* while it was read: to be looked at again */
};

struct prep_run {
    const struct prep_config *config;
    const struct cli_files *files;
    const struct trajd_log *log;
    const bool *cancel; /* set from elsewhere: the file is left for the next run */
};

/* Whether there is nothing to do about the file with that stat; a look at the record alone. */
bool prep_file_is_known(const struct prep_run *run, const char *name,
                        const struct prep_identity *source);
/* Does what is to be done. TRAJD_ERR_CLOSED: cancelled; else what failed is not the file's fault
 * (disk, memory), and it is left as it was. */
enum trajd_status prep_file_do(const struct prep_run *run, const char *name,
                               enum prep_outcome *outcome, struct trajd_error *error);

#endif
