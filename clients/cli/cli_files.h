/* What subcommands that look into files share: the programs and layouts of this installation, and
 * which layout files have. */
#ifndef TRAJD_CLI_CLI_FILES_H
#define TRAJD_CLI_CLI_FILES_H

#include "clients/cli/cli.h"
#include "daemon/index/index.h"

enum { CLI_PATH_SIZE = 4096 };

struct cli_files {
    char layouts[CLI_PATH_SIZE];
    char helper[CLI_PATH_SIZE];
    uint32_t child_count;
};

/* Where this installation has its parts. CLI_OK, or CLI_FAILED after telling what is missing. */
int cli_files_find(struct cli_files *files);

/* Indexes a file or folder by a layout's name or path; NULL: by the first shipped layout that keeps
 * an episode and looks right. The caller destroys. */
enum trajd_status cli_files_open(const struct cli_files *files, const char *layout,
                                 const char *path, struct trajd_index **index,
                                 struct trajd_error *error);

#endif
