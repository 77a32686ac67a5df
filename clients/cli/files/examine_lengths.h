/* The lengths that Mobile ALOHA's recorder writes beside its padded frames, for trajctl validate. */
#ifndef TRAJD_CLI_FILES_EXAMINE_LENGTHS_H
#define TRAJD_CLI_FILES_EXAMINE_LENGTHS_H

#include "clients/cli/files/cli_files.h"
#include "clients/cli/files/examine.h"

/* Compares `compress_len` (cameras, T) of each episode with the lengths of its padded frames. Nothing
 * else reads this dataset: its rows have the order of the recorder's configuration, which the file
 * does not have, so a camera's lengths must be those of any row. Calls `report` for each camera that
 * has no such row. Reads all padded frames of these episodes. TRAJD_ERR_IO: the storage failed.
 * TRAJD_ERR_MEMORY. */
enum trajd_status
examine_lengths(const struct cli_files *files, const char *path, const struct trajd_index *index,
                void (*report)(void *context, const struct examine_finding *finding), void *context,
                struct trajd_error *error);

#endif
