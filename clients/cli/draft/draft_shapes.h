/* The kinds of files in a folder: files whose episodes have the same arrays belong together. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_SHAPES_H
#define TRAJD_CLI_DRAFT_DRAFT_SHAPES_H

#include "clients/cli/files/cli_files.h"
#include "daemon/layout/glob.h"

enum { DRAFT_SHAPES_MAX = 16, DRAFT_FILES_MAX = 256, DRAFT_NAME_SIZE = 64 };

/* Files of one kind. */
struct draft_shape {
    char path[CLI_PATH_SIZE];   /* the folder, or a glob that matches these files only */
    char name[DRAFT_NAME_SIZE]; /* letters, digits and _ */
    uint32_t file_count;
    uint64_t signature;
};

/* Groups the HDF5 files below a folder. Looks at the first DRAFT_FILES_MAX of them. Returns the
 * number of kinds: 1, with the folder itself as the path, where all files are of one kind, or where
 * no folder or beginning of names separates the kinds. *are_mixed is true in the latter case. 0 with
 * an error where there is no file. For a file it returns 1. Blocks. */
uint32_t draft_find_shapes(const struct cli_files *files, const char *path,
                           struct draft_shape shapes[DRAFT_SHAPES_MAX], bool *are_mixed,
                           struct trajd_error *error);

/* Lists the HDF5 files below a folder: those with the first of the usual extensions that any file
 * has. TRAJD_ERR_NOT_FOUND where there are none. The caller frees the list with
 * trajd_file_list_free. */
enum trajd_status draft_list_files(const char *folder, struct trajd_file_list *list,
                                   struct trajd_error *error);

#endif
