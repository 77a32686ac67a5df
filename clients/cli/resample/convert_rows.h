/* The rows of the output, in segments: some steps of some datasets of one episode, read, resampled
 * and written by one thread. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H

#include "clients/cli/resample/convert_backend.h"
#include "clients/cli/resample/plan/convert_segments.h"
#include "clients/cli/resample/convert_output.h"

/* Where compressed chunks are collected. */
struct convert_spool {
    int fd;
    uint64_t length; /* atomic: where the next chunk goes */
    /* [episode][array][chunk]; NULL arrays are not compressed */
    struct convert_chunk ***chunks;
    uint32_t level;
};

struct convert_counts {
    uint64_t rows_read, rows_written, bytes_read, bytes_written;
};

struct convert_worker;

/* One a thread. `spool` may be NULL where nothing is compressed, `backend` for the CPU.
 * nan_steps[stream_count] and *counts are added to atomically. */
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
