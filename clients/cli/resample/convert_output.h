/* The structure of the output: groups, attributes, and room for the rows of each dataset. A child
 * process makes it (writer_protocol.h). */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_OUTPUT_H
#define TRAJD_CLI_RESAMPLE_CONVERT_OUTPUT_H

#include "clients/cli/resample/plan/convert_plan.h"

/* The place of a compressed chunk of rows in the spool. */
struct convert_chunk {
    uint64_t offset;
    uint32_t size;
    uint32_t mask; /* HDF5's mask of the filters that were skipped */
};

/* Makes the structure in the file `fd`, and fills the offsets of the plan's arrays. *size_bytes
 * becomes the size of the file. TRAJD_ERR_IO: the storage failed. TRAJD_ERR_DATA: an input cannot
 * be copied from, or crashes the child. TRAJD_ERR_SYSTEM: the child does not start, or was killed.
 * TRAJD_ERR_CLOSED: cancelled. */
enum trajd_status convert_output_make(struct convert_plan *plan, int fd, uint64_t *size_bytes,
                                      struct trajd_error *error);

/* Adds the spooled chunks to the file. chunks[episode][array] has as many chunks as the array
 * needs; it is NULL for an array that is not compressed. */
enum trajd_status convert_output_add_chunks(const struct convert_plan *plan,
                                            struct convert_chunk *const *const *chunks, int fd,
                                            int spool_fd, uint64_t *size_bytes,
                                            struct trajd_error *error);

#endif
