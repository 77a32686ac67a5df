/* Buffers for the parts that a remote daemon sends, all of one size: made when they are first
 * needed, kept for the next batch, freed when more lie idle than the credit can fill. Any thread.
 */
#ifndef TRAJD_C_BUFFERS_H
#define TRAJD_C_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#define TRAJD_BUFFERS_ALIGNMENT 64u

struct trajd_buffers;

/* `keep` idle buffers are kept. NULL: out of memory. */
struct trajd_buffers *trajd_buffers_create(size_t buffer_size_bytes, uint32_t keep);
/* The owner's end of it; buffers that are out come back later. NULL is fine. */
void trajd_buffers_drop(struct trajd_buffers *buffers);
size_t trajd_buffers_size(const struct trajd_buffers *buffers);
/* NULL: out of memory. */
void *trajd_buffers_take(struct trajd_buffers *buffers);
/* `buffer` NULL is fine. */
void trajd_buffers_give(struct trajd_buffers *buffers, void *buffer);

#endif
