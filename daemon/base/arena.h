/* An arena: memory that grows in blocks and is freed as a whole. It serves what is built once and
 * lives as long as its owner. */
#ifndef TRAJD_BASE_ARENA_H
#define TRAJD_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"

struct trajd_arena_block;

/* All zero but for limit_bytes: an empty arena. Not thread-safe while it grows. */
struct trajd_arena {
    struct trajd_arena_block *blocks; /* the newest first */
    size_t total_bytes;
    size_t limit_bytes;
    bool is_starved; /* an allocation within the limit got no memory from the system */
};

/* Returns zeroed memory, aligned to 16 bytes and owned by the arena. NULL beyond the limit or where
 * the system has no memory; not NULL for zero bytes otherwise. */
void *trajd_arena_alloc(struct trajd_arena *arena, size_t size_bytes);

/* Returns zeroed memory for `count` elements. NULL, with is_starved set, where there is none: so that
 * one check serves several allocations. */
void *trajd_arena_array(struct trajd_arena *arena, uint64_t count, size_t element_bytes);

/* Returns a copy of `length` bytes with a zero byte behind them. NULL as above. */
char *trajd_arena_copy(struct trajd_arena *arena, const char *text, size_t length);

/* Decodes one struct of the codec into the arena; `context` goes to the checks of its tables.
 * TRAJD_ERR_PROTOCOL: the bytes break a rule, or claim more memory than the arena may have.
 * TRAJD_ERR_MEMORY: the system has no memory. */
enum trajd_status trajd_arena_decode(struct trajd_arena *arena,
                                     const struct trajd_codec_table *table, const void *data,
                                     size_t length, void *value, void *context,
                                     struct trajd_error *error);

/* Frees all blocks. The arena is empty afterwards. */
void trajd_arena_free(struct trajd_arena *arena);

#endif
