/* Bytes of an HDF5 file: one read of known length, and numbers as the file holds them,
 * little-endian and at any address. And its identity: what stat tells of it when it is indexed. */
#ifndef TRAJD_INDEX_ROWS_FILE_BYTES_H
#define TRAJD_INDEX_ROWS_FILE_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

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

/* ---- identity ---- */

struct trajd_file_stat {
    uint64_t size_bytes;
    uint64_t inode;      /* 0: stat failed */
    uint64_t link_count; /* names: hard links */
    int64_t mtime_ns, ctime_ns;
};

struct trajd_file_stat trajd_file_stat_from(const struct stat *status);
/* Returns whether a file that is in use is as it was. A write changes ctime, also where the time of
 * modification is restored. Another ctime beside another number of hard links passes: backups make
 * such links. */
bool trajd_file_stat_is_same(const struct trajd_file_stat *before,
                             const struct trajd_file_stat *now);
/* Returns whether both times are old now, so that a later write gives other times: file systems
 * count them in steps. */
bool trajd_file_stat_is_settled(const struct trajd_file_stat *stat);

#endif
