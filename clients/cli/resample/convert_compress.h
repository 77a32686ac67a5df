/* Rows into the chunks of a compressed dataset: shuffled, deflated, appended to the spool. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_COMPRESS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_COMPRESS_H

#include "clients/cli/resample/convert_rows.h"

/* One per thread. */
struct rewrite_compressor;
enum trajd_status rewrite_compressor_create(uint32_t level, struct rewrite_compressor **compressor,
                                            struct trajd_error *error);
void rewrite_compressor_destroy(struct rewrite_compressor **compressor);

/* Steps [step_begin, step_begin + steps) of the episode_steps of a dataset, whole chunks but for
 * the last one, to the spool and into chunks[step_begin / chunk_rows ...]. TRAJD_ERR_IO with errno.
 */
enum trajd_status
rewrite_compress_rows(struct rewrite_compressor *compressor, struct rewrite_spool *spool,
                      const struct rewrite_plan *plan, const struct rewrite_dataset *dataset,
                      struct rewrite_chunk *chunks, uint64_t episode_steps, uint64_t step_begin,
                      uint64_t steps, const uint8_t *rows, struct trajd_error *error);

#endif
