/* Rows into the chunks of a compressed dataset: shuffled, deflated, appended to the spool. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_COMPRESS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_COMPRESS_H

#include "clients/cli/resample/convert_rows.h"

/* One per thread. */
struct convert_compressor;
enum trajd_status convert_compressor_create(uint32_t level, struct convert_compressor **compressor,
                                            struct trajd_error *error);
void convert_compressor_destroy(struct convert_compressor **compressor);

/* Steps [step_begin, step_begin + steps) of the episode_steps of a dataset, whole chunks but for
 * the last one, to the spool and into chunks[step_begin / chunk_rows ...]. TRAJD_ERR_IO with errno.
 */
enum trajd_status
convert_compress_rows(struct convert_compressor *compressor, struct convert_spool *spool,
                      const struct convert_plan *plan, const struct convert_dataset *dataset,
                      struct convert_chunk *chunks, uint64_t episode_steps, uint64_t step_begin,
                      uint64_t steps, const uint8_t *rows, struct trajd_error *error);

#endif
