/* Allocates from blocks that grow with the arena, and frees all of them at once. */
#include "daemon/base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 << 10, MOST_BLOCK_BYTES = 1 << 20, ALIGNMENT = 16 };

struct trajd_arena_block {
    struct trajd_arena_block *next;
    size_t size_bytes;
    size_t used_bytes;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

/* Blocks grow with the arena: so the unused ends of blocks stay a small part of it. */
static size_t next_block_bytes(const struct trajd_arena *arena)
{
    size_t bytes =
        arena->total_bytes / 4 < MOST_BLOCK_BYTES ? arena->total_bytes / 4 : MOST_BLOCK_BYTES;

    return bytes > BLOCK_BYTES && bytes <= arena->limit_bytes - arena->total_bytes ? bytes
                                                                                   : BLOCK_BYTES;
}

static struct trajd_arena_block *add_block(struct trajd_arena *arena, size_t size_bytes)
{
    const size_t usual_bytes = next_block_bytes(arena);
    struct trajd_arena_block *block;

    if (size_bytes < usual_bytes)
        size_bytes = usual_bytes;
    if (size_bytes > arena->limit_bytes - arena->total_bytes)
        return NULL;
    block = calloc(1, sizeof *block + size_bytes);
    if (!block) {
        arena->is_starved = true;
        return NULL;
    }
    block->size_bytes = size_bytes;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->total_bytes += size_bytes;
    return block;
}

void *trajd_arena_alloc(struct trajd_arena *arena, size_t size_bytes)
{
    struct trajd_arena_block *block = arena->blocks;
    void *memory;

    if (size_bytes > SIZE_MAX / 2)
        return NULL;
    size_bytes = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!block || size_bytes > block->size_bytes - block->used_bytes)
        block = add_block(arena, size_bytes);
    if (!block)
        return NULL;
    memory = block->bytes + block->used_bytes;
    block->used_bytes += size_bytes;
    return memory;
}

void *trajd_arena_array(struct trajd_arena *arena, uint64_t count, size_t element_bytes)
{
    uint64_t size_bytes;
    void *memory = NULL;

    if (!__builtin_mul_overflow(count, element_bytes, &size_bytes))
        memory = trajd_arena_alloc(arena, size_bytes);
    arena->is_starved = arena->is_starved || !memory;
    return memory;
}

char *trajd_arena_copy(struct trajd_arena *arena, const char *text, size_t length)
{
    char *copy = trajd_arena_alloc(arena, length + 1);

    if (copy)
        memcpy(copy, text, length);
    return copy;
}

static void *allocate(void *arena, size_t size_bytes)
{
    return trajd_arena_alloc(arena, size_bytes);
}

enum trajd_status trajd_arena_decode(struct trajd_arena *arena,
                                     const struct trajd_codec_table *table, const void *data,
                                     size_t length, void *value, void *context,
                                     struct trajd_error *error)
{
    const struct trajd_codec_input input = {data, length, allocate, arena, context};
    const enum trajd_status status = trajd_codec_decode(table, &input, value, error);

    if (status && arena->is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "out of memory");
    if (status == TRAJD_ERR_MEMORY)
        return trajd_error_set(error, TRAJD_ERR_PROTOCOL, 0, "it needs more than %zu MiB",
                               arena->limit_bytes >> 20);
    return status;
}

void trajd_arena_free(struct trajd_arena *arena)
{
    for (struct trajd_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    arena->blocks = NULL;
    arena->total_bytes = 0;
}
