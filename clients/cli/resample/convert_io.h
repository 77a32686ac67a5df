/* Writing to files, and the check that an input is unchanged. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_IO_H
#define TRAJD_CLI_RESAMPLE_CONVERT_IO_H

#include <stddef.h>
#include <sys/stat.h>

#include "daemon/index/index.h"
#include "proto/error.h"

/* Checks that `now` describes the file that was indexed. TRAJD_ERR_DATA: it has changed. */
enum trajd_status convert_check_input(const struct trajd_index_file *file, const struct stat *now,
                                      struct trajd_error *error);

/* Writes all bytes. TRAJD_ERR_IO with errno. */
enum trajd_status convert_pwrite(int fd, const void *data, size_t size, uint64_t offset,
                                 const char *path, struct trajd_error *error);

#endif
