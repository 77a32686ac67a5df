/* Inflated chunks of one file that are kept for the next reads. Slices of an array share their
 * chunks, and each would inflate them again. */
#ifndef TRAJD_INDEX_ROWS_KEPT_CHUNKS_H
#define TRAJD_INDEX_ROWS_KEPT_CHUNKS_H

#include <stdint.h>

struct trajd_kept_chunks;

/* Returns NULL if out of memory. */
struct trajd_kept_chunks *trajd_kept_chunks_create(void);
void trajd_kept_chunks_destroy(struct trajd_kept_chunks **chunks);

/* Copies the chunk at this place of the file. Drops all others where there is no room. */
void trajd_kept_chunks_add(struct trajd_kept_chunks *chunks, uint64_t offset, const void *bytes,
                           uint64_t size);
/* Returns the chunk at this place if it has this size, or NULL. Borrowed until the next
 * addition. */
const uint8_t *trajd_kept_chunks_find(const struct trajd_kept_chunks *chunks, uint64_t offset,
                                      uint64_t size);

#endif
