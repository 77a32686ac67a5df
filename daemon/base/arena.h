/* Memory that grows in blocks and is freed all at once: for trees that are built once and then only
 * read. */
#ifndef TRAJD_BASE_ARENA_H
#define TRAJD_BASE_ARENA_H

#include <stddef.h>

struct trajd_arena_block;

/* Zeroed with a limit is an empty arena. Not thread-safe while it grows. */
struct trajd_arena {
    struct trajd_arena_block *blocks; /* the newest first */
    size_t total_bytes;
    size_t limit_bytes;
};

/* Zeroed memory aligned to 16 bytes; NULL beyond the limit or without memory. */
void *trajd_arena_alloc(struct trajd_arena *arena, size_t size_bytes);

/* A NUL-terminated copy of `length` bytes; NULL as above. */
char *trajd_arena_copy(struct trajd_arena *arena, const char *text, size_t length);

void trajd_arena_free(struct trajd_arena *arena);

#endif
