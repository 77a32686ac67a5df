/* The rows of the output. One thread reads, resamples and writes one segment: some steps of some
 * datasets of one episode. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H

#include "clients/cli/resample/convert_backend.h"
#include "clients/cli/resample/plan/convert_segments.h"
#include "clients/cli/resample/convert_output.h"

/* The file in which compressed chunks are collected. */
struct convert_spool {
    int fd;
    uint64_t length; /* atomic: the offset of the next chunk */
    /* [episode][array][chunk]; an array that is not compressed is NULL */
    struct convert_chunk ***chunks;
    uint32_t level;
};

struct convert_counts {
    uint64_t rows_read, rows_written, bytes_read, bytes_written;
};

struct convert_worker;

/* Creates the state of one thread. `spool` may be NULL if nothing is compressed, and `backend` for
 * the CPU. All arguments are borrowed. The worker adds to nan_steps[stream_count] and *counts
 * atomically. */
enum trajd_status convert_worker_create(const struct convert_plan *plan,
                                        const struct convert_group *groups, int output_fd,
                                        struct convert_spool *spool,
                                        struct convert_backend *backend, uint64_t *nan_steps,
                                        struct convert_counts *counts,
                                        struct convert_worker **worker, struct trajd_error *error);
void convert_worker_destroy(struct convert_worker **worker);
enum trajd_status convert_worker_run(struct convert_worker *worker,
                                     const struct convert_segment *segment,
                                     struct trajd_error *error);

#endif
