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

#include <stdio.h>
#include <sys/stat.h>

#include "clients/cli/preprocess/prep_config.h"
#include "clients/cli/preprocess/prep_record.h"
#include "daemon/base/json.h"
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

/* ---- of prep_file.c and prep_publish.c ---- */

#define PREP_STAGING ".trajd" /* in the outbox, so on its filesystem; hidden from patterns */
#define PREP_MANIFEST_SUFFIX ".manifest.json"
#define PREP_CHECKSUM_SUFFIX ".sha256"
#define PREP_REPORT_SUFFIX ".report.json"
/* limit of the findings and of the notes, because a record is read into memory */
#define PREP_KEPT_BYTES (128L << 10)
#define PREP_ID_CHARACTERS 24

/* One file of the inbox in progress. */
struct prep_job {
    const struct prep_run *run;
    const char *name;
    char source[PREP_PATH_SIZE], manifest[PREP_PATH_SIZE], report[PREP_PATH_SIZE],
        aside[PREP_PATH_SIZE];
    /* in the staging folder that is open as staging_fd: what others do to the outbox leads nowhere
     * else */
    char lock_path[PREP_PATH_SIZE], staged[PREP_PATH_SIZE];
    char id[PREP_ID_CHARACTERS + 1];
    int fd, lock_fd, staging_fd;
    uint32_t part_count; /* files, if the parts of the episode are files of their own; else 0 */
    struct stat stat;
    struct prep_record record;
    struct trajd_json findings, notes; /* elements of arrays, in memory */
    char *findings_text, *notes_text, reason[TRAJD_ERROR_MESSAGE_SIZE];
    size_t findings_size, notes_size;
    struct trajd_error *error;
};

/* ---- prep_publish.c ---- */

/* Adds a line to the notes of the record. `context` is the struct prep_job. */
void prep_note(void *context, const char *text);
/* Checks that the output's place is free, or holds a file that was published here. TRAJD_ERR_IO with
 * EEXIST: it holds a file of unknown origin. */
enum trajd_status prep_check_place(struct prep_job *p);
/* Writes the checksums, moves the staged files to the outbox, removes those that an earlier run
 * published for this source under other names, and writes the manifest. */
enum trajd_status prep_publish_job(struct prep_job *p);
/* Moves the source to the quarantine. */
enum trajd_status prep_put_aside(struct prep_job *p, enum prep_outcome *outcome);
/* Writes the report with p->reason, and moves the source to the quarantine. */
enum trajd_status prep_quarantine(struct prep_job *p, enum prep_outcome *outcome);

#endif
