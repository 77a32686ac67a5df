/* The structure of the output, made by a child (writer_protocol.h): groups, attributes, and room
 * for the rows of every dataset. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_OUTPUT_H
#define TRAJD_CLI_RESAMPLE_CONVERT_OUTPUT_H

#include "clients/cli/resample/plan/convert_plan.h"

/* Where a compressed chunk of rows is among the spooled ones. */
struct convert_chunk {
    uint64_t offset;
    uint32_t size;
    uint32_t mask; /* filters that were not applied */
};

/* Fills the file behind `fd` and the offsets of the plan's arrays; *size_bytes is what it is then.
 * TRAJD_ERR_IO where the storage failed, TRAJD_ERR_DATA where an input cannot be copied from, or
 * kills the child; TRAJD_ERR_SYSTEM where the child does not start, or somebody kills it;
 * TRAJD_ERR_CLOSED: cancelled. */
enum trajd_status convert_output_make(struct convert_plan *plan, int fd, uint64_t *size_bytes,
                                      struct trajd_error *error);

/* Puts the spooled chunks into the file. chunks[episode][array] has as many as the array needs;
 * NULL for one that is not compressed. */
enum trajd_status convert_output_add_chunks(const struct convert_plan *plan,
                                            struct convert_chunk *const *const *chunks, int fd,
                                            int spool_fd, uint64_t *size_bytes,
                                            struct trajd_error *error);

#endif
