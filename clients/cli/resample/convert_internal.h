/* The state of a conversion, shared by its stages: convert.c begins and ends it; convert_work.c
 * writes a file; convert_check.c reads it again. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_INTERNAL_H
#define TRAJD_CLI_RESAMPLE_CONVERT_INTERNAL_H

#include "clients/cli/resample/convert.h"
#include "clients/cli/resample/convert_rows.h"
#include "clients/cli/resample/output_file.h"

struct conversion {
    const struct trajd_convert_options *options;
    struct trajd_convert_report *report;
    struct trajd_error *error;
    struct convert_plan plan; /* of the whole run, or of one file while it is written */
    struct convert_backend backend;
};

/* ---- convert_work.c ---- */

/* Reports how far the run is, and a failure of the backend. */
void convert_report_progress(struct conversion *r, enum trajd_convert_phase phase);
/* Writes the plan's episodes into the file. All threads and the helper program have ended when it
 * returns. */
enum trajd_status convert_write_file(struct conversion *r, int fd);

/* ---- convert_check.c ---- */

/* Checks that no input has changed while it was read. TRAJD_ERR_DATA: one has. */
enum trajd_status convert_check_inputs(const struct conversion *r);
/* Checks that the finished file can be read, and holds the episodes, streams and rows of the plan.
 * TRAJD_ERR_DATA: it does not. */
enum trajd_status convert_check_finished(const struct conversion *r,
                                         const struct output_file *file);

#endif
