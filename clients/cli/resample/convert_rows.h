/* The rows of the output. One thread reads and resamples one segment at a time: some steps of some
 * datasets of one episode. It puts them into blocks (convert_writer.h). */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H

#include "clients/cli/resample/convert.h"
#include "clients/cli/resample/convert_backend.h"
#include "clients/cli/resample/convert_writer.h"
#include "clients/cli/resample/plan/convert_plan.h"

/* Where rows go. */
struct convert_sink {
    /* Takes a block (NULL: the first time) and returns an empty one. NULL: the run stops. */
    struct convert_block *(*exchange)(void *context, struct convert_block *block);
    void *context;
};

/* Checks that `now` describes the file that was indexed. TRAJD_ERR_DATA: it has changed. */
enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error);

struct convert_worker;

/* Creates the state of one thread. `backend` may be NULL for the CPU. All arguments are borrowed.
 * The worker adds to the rows and bytes of *report, and to nan_steps of the plan's streams,
 * atomically. */
enum trajd_status convert_worker_create(const struct convert_plan *plan,
                                        const struct convert_group *groups,
                                        const struct convert_sink *sink,
                                        struct convert_backend *backend,
                                        struct trajd_convert_report *report,
                                        struct convert_worker **worker, struct trajd_error *error);
void convert_worker_destroy(struct convert_worker **worker);
/* Makes the rows of a segment. TRAJD_ERR_CLOSED: the sink stopped, or the run is cancelled. */
enum trajd_status convert_worker_run(struct convert_worker *worker,
                                     const struct convert_segment *segment,
                                     struct trajd_error *error);
/* Returns the block that the worker is filling, which the caller then owns; NULL: there is none. */
struct convert_block *convert_worker_release(struct convert_worker *worker);

#endif
