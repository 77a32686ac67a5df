/* Explains an HDF5 file that no layout reads: its tree, and a draft of a layout for it. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_H
#define TRAJD_CLI_DRAFT_DRAFT_H

#include <stdio.h>

#include "clients/cli/files/cli_files.h"
#include "daemon/base/json.h"
#include "daemon/index/tree/tree.h"
#include "daemon/layout/glob.h"

struct draft {
    struct trajd_tree tree;
    char *layout;  /* the draft as YAML; NULL: none could be made */
    char why[512]; /* without a draft, or where it has no stream: why */
};

/* Reads the tree of one file and makes a draft of a layout. `name` becomes the layout's name. Blocks.
 * The caller frees the draft. An error where the file cannot be read at all. */
enum trajd_status draft_make(const struct cli_files *files, const char *path, const char *name,
                             struct draft *draft, struct trajd_error *error);
void draft_free(struct draft *draft);

/* Indexes a file or folder with the text of a layout. The caller destroys *index. Errors as of
 * trajd_index_open. */
enum trajd_status draft_open(const struct cli_files *files, const char *layout, const char *path,
                             struct trajd_index **index, struct trajd_error *error);

/* Finds a file to explain: the path itself, or the first HDF5 file below a folder or that a
 * glob matches. TRAJD_ERR_NOT_FOUND
 * where there is none. */
enum trajd_status draft_find_file(const char *path, char file[CLI_PATH_SIZE],
                                  struct trajd_error *error);

/* Prints what is in a file or folder that no layout reads: the tree of a file, the draft of a layout,
 * and what the draft reads. `tried` says why the shipped layouts do not fit. With `json` it writes
 * one object instead. Returns an exit status of trajctl. */
int draft_explain(const struct cli_files *files, const char *path, const char *tried,
                  struct trajd_json *json);

/* ---- draft_shapes.c: the kinds of files in a folder ---- */

enum { DRAFT_SHAPES_MAX = 16, DRAFT_FILES_MAX = 256, DRAFT_NAME_SIZE = 64 };

/* Files of one kind: their episodes have the same arrays, so they belong together. */
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

/* ---- draft_tree.c ---- */

/* Prints the tree. Groups of one kind whose names differ by a number are printed once. */
void draft_print_tree(FILE *out, const struct trajd_tree *tree);
/* Writes all objects of the tree as an array. */
void draft_json_tree(struct trajd_json *json, const char *key, const struct trajd_tree *tree);

#endif
