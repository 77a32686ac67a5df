/* Compresses rows into chunks: shuffles them, deflates them, and appends them to the spool. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_COMPRESS_H
#define TRAJD_CLI_RESAMPLE_CONVERT_COMPRESS_H

#include "clients/cli/resample/convert_rows.h"

/* One per thread. */
struct convert_compressor;
enum trajd_status convert_compressor_create(uint32_t level, struct convert_compressor **compressor,
                                            struct trajd_error *error);
void convert_compressor_destroy(struct convert_compressor **compressor);

/* Compresses the steps [step_begin, step_begin + steps) of a dataset whose episode has
 * episode_steps. They must be whole chunks, except for the last one. Writes the chunks to the spool
 * and their places to chunks[step_begin / chunk_rows ...]. TRAJD_ERR_IO with errno. */
enum trajd_status
convert_compress_rows(struct convert_compressor *compressor, struct convert_spool *spool,
                      const struct convert_plan *plan, const struct convert_dataset *dataset,
                      struct convert_chunk *chunks, uint64_t episode_steps, uint64_t step_begin,
                      uint64_t steps, const uint8_t *rows, struct trajd_error *error);

#endif
