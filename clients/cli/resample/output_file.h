/* A file that a command writes beside its place as OUTPUT.partial, and that gets its name when it
 * is complete. */
#ifndef TRAJD_CLI_RESAMPLE_OUTPUT_FILE_H
#define TRAJD_CLI_RESAMPLE_OUTPUT_FILE_H

#include <stdbool.h>

#include "proto/error.h"

enum { OUTPUT_PATH_SIZE = 4096 };

/* Zeroed but for fd = -1: no file. */
struct output_file {
    char path[OUTPUT_PATH_SIZE], partial[OUTPUT_PATH_SIZE];
    bool force;     /* replaces what is at `path` */
    bool was_there; /* an earlier run left the partial file */
    int fd;
};

/* Sets the names. TRAJD_ERR_ARGUMENT: the path is missing or too long. */
enum trajd_status output_file_name(struct output_file *file, const char *path, bool force,
                                   struct trajd_error *error);
/* Creates and locks the partial file. That of a killed run is removed before, if it is this user's
 * own regular file with one name: rows must not go into a file that someone else has put there.
 * TRAJD_ERR_ARGUMENT: it is not. TRAJD_ERR_BUSY: another run writes it. */
enum trajd_status output_file_open(struct output_file *file, struct trajd_error *error);
/* Checks that the partial file still has its name, which another process may have taken.
 * TRAJD_ERR_IO. */
enum trajd_status output_file_check_name(const struct output_file *file, struct trajd_error *error);
/* Renames the partial file. *is_sure: see trajd_file_rename_new. TRAJD_ERR_IO, with EEXIST where
 * something has appeared at the place, and where the place then holds another file. */
enum trajd_status output_file_publish(struct output_file *file, bool *is_sure,
                                      struct trajd_error *error);
/* Closes the file. Removes it, unless it was published. */
void output_file_close(struct output_file *file);

#endif
