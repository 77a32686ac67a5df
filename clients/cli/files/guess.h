/* Finds the layout of a file for which the user named none. */
#ifndef TRAJD_CLIENTS_CLI_FILES_GUESS_H
#define TRAJD_CLIENTS_CLI_FILES_GUESS_H

#include "clients/cli/files/cli_files.h"

/* Opens the path with a layout. `is_probe`: only the first episodes. */
typedef enum trajd_status cli_open_function(const struct cli_files *files, const char *layout,
                                            const char *path, bool is_probe,
                                            struct trajd_index **index, struct trajd_error *error);

/* Opens the path with the first layout that keeps an episode and is plausible. A layout whose
 * structure the file has, but whose rules its content breaks, ends the search: another one would
 * only read less of it. A layout that none of the first 8 episodes of the first 8 files fits is
 * passed over. TRAJD_ERR_NOT_FOUND: none fits; the message has the reason for each.
 * TRAJD_ERR_ARGUMENT: two fit that differ in what the file does not state. */
enum trajd_status cli_guess(const struct cli_files *files, cli_open_function *open,
                            const char *path, struct trajd_index **index,
                            struct trajd_error *error);

#endif
