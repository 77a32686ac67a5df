/* One read of known length. */
#ifndef TRAJD_INDEX_ROWS_READ_EXACTLY_H
#define TRAJD_INDEX_ROWS_READ_EXACTLY_H

#include <stdint.h>

#include "proto/error.h"

/* Reads bytes at an offset with pread, as many calls as it takes. Blocks. TRAJD_ERR_IO: a read
 * fails (with errno), or the file ends early. */
enum trajd_status trajd_read_exactly(int fd, uint64_t offset, uint64_t bytes, uint8_t *to,
                                     struct trajd_error *error);

#endif
