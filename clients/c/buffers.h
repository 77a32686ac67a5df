/* Buffers of one size for the payloads of a remote daemon. A buffer is allocated when it is first
 * needed, and kept for later batches up to the number that the credit can fill. Thread-safe. */
#ifndef TRAJD_C_BUFFERS_H
#define TRAJD_C_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#define TRAJD_BUFFERS_ALIGNMENT 64u

struct trajd_buffers;

/* Makes an empty pool of buffers of at least buffer_size_bytes, aligned to 64 bytes. At most `keep`
 * idle buffers are kept. The caller drops it. NULL: out of memory. */
struct trajd_buffers *trajd_buffers_create(size_t buffer_size_bytes, uint32_t keep);
/* Releases the owner's reference. Buffers in use stay valid; the last one that is given back frees
 * the pool. NULL is fine. */
void trajd_buffers_drop(struct trajd_buffers *buffers);
size_t trajd_buffers_size(const struct trajd_buffers *buffers);
/* Returns a buffer, which the caller gives back. NULL: out of memory. */
void *trajd_buffers_take(struct trajd_buffers *buffers);
/* Takes the buffer back. NULL is fine. */
void trajd_buffers_give(struct trajd_buffers *buffers, void *buffer);

#endif
