/* Numbers as HDF5 files hold them: little-endian, at any address. */
#ifndef TRAJD_INDEX_LITTLE_ENDIAN_H
#define TRAJD_INDEX_LITTLE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

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
