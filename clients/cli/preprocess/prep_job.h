/* One file of the inbox while it is processed. Shared by prep_file.c and prep_publish.c. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_JOB_H
#define TRAJD_CLI_PREPROCESS_PREP_JOB_H

#include <stdio.h>
#include <sys/stat.h>

#include "clients/cli/preprocess/prep_file.h"
#include "clients/cli/preprocess/prep_place.h"
#include "daemon/base/json.h"

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
