/* Undoes the filters of one HDF5 chunk: fletcher32, deflate, lzf, shuffle. The input may be
 * hostile: every length is checked. */
#ifndef TRAJD_INDEX_INFLATE_H
#define TRAJD_INDEX_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* A decompressor and two buffers, which grow to the largest chunk seen. Not thread-safe: one for
 * each thread. */
struct trajd_inflater;
enum trajd_status trajd_inflater_create(struct trajd_inflater **inflater,
                                        struct trajd_error *error);
void trajd_inflater_destroy(struct trajd_inflater **inflater);

/* The filters that a chunk went through. */
struct trajd_filter_pipeline {
    const uint16_t *filters; /* enum trajd_filter, in the order that the writer applied them */
    uint32_t filter_count;
    uint32_t filter_mask; /* bit f set: filter f was not applied */
    uint32_t element_bytes;
};

/* Returns whether all filters are known and at most one of them compresses, so that the length
 * after each stage is known beforehand. */
bool trajd_inflate_supports(const uint16_t *filters, uint32_t filter_count);

/* Sets *chunk to the chunk's chunk_bytes bytes, borrowed until the next call: from `stored` where
 * no filter was applied, else from the inflater. TRAJD_ERR_DATA where a length or a checksum is
 * wrong; the caller adds the chunk's number. */
enum trajd_status trajd_inflate_chunk(struct trajd_inflater *inflater,
                                      const struct trajd_filter_pipeline *pipeline,
                                      const uint8_t *stored, size_t stored_bytes,
                                      size_t chunk_bytes, const uint8_t **chunk,
                                      struct trajd_error *error);

/* The single stages. trajd_lzf_decode returns false unless `in` gives exactly out_bytes. */
bool trajd_lzf_decode(const uint8_t *in, size_t in_bytes, uint8_t *out, size_t out_bytes);
void trajd_unshuffle(const uint8_t *in, uint8_t *out, size_t bytes, uint32_t element_bytes);
uint32_t trajd_fletcher32(const uint8_t *data, size_t bytes);

#endif
