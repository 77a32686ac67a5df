/* Opening a file whose path a user gave. */
#ifndef TRAJD_PROTO_REGULAR_FILE_H
#define TRAJD_PROTO_REGULAR_FILE_H

#include "proto/error.h"

/* Opens the file at `path` for reading. Never waits for another program, as open() does at a FIFO:
 * whatever is not a regular file is refused with TRAJD_ERR_ARGUMENT, and the message names what it
 * is. TRAJD_ERR_NOT_FOUND where there is no such file; TRAJD_ERR_IO. *fd is -1 after an error. */
enum trajd_status trajd_open_regular(const char *path, int *fd, struct trajd_error *error);

#endif
