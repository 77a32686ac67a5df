/* Bytes of an HDF5 file: one read of known length, and numbers as the file holds them,
 * little-endian and at any address. */
#ifndef TRAJD_INDEX_ROWS_FILE_BYTES_H
#define TRAJD_INDEX_ROWS_FILE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include "proto/error.h"

/* Reads bytes at an offset with pread, as many calls as it takes. Blocks. TRAJD_ERR_IO: a read
 * fails (with errno), or the file ends early. */
enum trajd_status trajd_read_exactly(int fd, uint64_t offset, uint64_t bytes, uint8_t *to,
                                     struct trajd_error *error);

static inline uint16_t trajd_u16_at(const uint8_t *bytes)
{
    uint16_t value;

    memcpy(&value, bytes, sizeof value);
    return le16toh(value);
}

static inline uint32_t trajd_u32_at(const uint8_t *bytes)
{
    uint32_t value;

    memcpy(&value, bytes, sizeof value);
    return le32toh(value);
}

static inline uint64_t trajd_u64_at(const uint8_t *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof value);
    return le64toh(value);
}

#endif
