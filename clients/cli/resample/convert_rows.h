/* The rows of the output, in segments: some steps of some datasets of one episode, read, resampled
 * and written by one thread. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_ROWS_H

#include <sys/stat.h>

#include "clients/cli/resample/convert_backend.h"
#include "clients/cli/resample/convert_plan.h"
#include "clients/cli/resample/convert_output.h"

/* Datasets that are worked on together: small ones on one clock, which is searched once for all;
 * else one alone. */
struct convert_group {
    uint32_t dataset_count;
    uint32_t *datasets; /* of the plan, ascending */
};

struct convert_segment {
    uint32_t episode, group;
    uint64_t step_begin, step_end;
};

/* Hands out the segments of the plan's episodes in order. Not thread-safe. */
struct convert_cursor {
    const struct convert_plan *plan;
    uint32_t group_count;
    const struct convert_group *groups;
    const bool *done; /* [episode_count]: not handed out; or NULL */
    uint32_t episode, group;
    uint64_t step;
};

enum trajd_status convert_groups_make(struct convert_plan *plan, struct convert_group **groups,
                                      uint32_t *count, struct trajd_error *error);
bool convert_cursor_next(struct convert_cursor *cursor, struct convert_segment *segment);
/* How many segments an episode has. */
uint64_t convert_segment_count(const struct convert_plan *plan, const struct convert_group *groups,
                               uint32_t group_count, uint32_t episode);

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

/* TRAJD_ERR_DATA: the file is not the one that was indexed any more. */
enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error);

/* Writes all of it; TRAJD_ERR_IO with errno. */
enum trajd_status convert_pwrite(int fd, const void *data, size_t size, uint64_t offset,
                                 const char *path, struct trajd_error *error);

#endif
