/* A hash table of inflated chunks, by their place in the file. */
#include "daemon/index/rows/kept_chunks.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT_COUNT = 4096, COUNT_MAX = SLOT_COUNT / 2 };
static const uint64_t bytes_max = UINT64_C(64) << 20; /* of all chunks */
static const uint64_t chunk_bytes_max = UINT64_C(4) << 20;

struct slot {
    uint64_t offset, size;
    uint8_t *bytes; /* NULL: the slot is free */
};

struct trajd_kept_chunks {
    struct slot slots[SLOT_COUNT]; /* a hash table; the slots of one hash follow each other */
    uint32_t count;
    uint64_t total_bytes;
};

struct trajd_kept_chunks *trajd_kept_chunks_create(void)
{
    return calloc(1, sizeof(struct trajd_kept_chunks));
}

static void drop_all(struct trajd_kept_chunks *chunks)
{
    for (uint32_t i = 0; i < SLOT_COUNT; i++)
        free(chunks->slots[i].bytes);
    memset(chunks, 0, sizeof *chunks);
}

void trajd_kept_chunks_destroy(struct trajd_kept_chunks **chunks)
{
    if (*chunks)
        drop_all(*chunks);
    free(*chunks);
    *chunks = NULL;
}

/* Returns the slot of the chunk, or the free one in which it would be. At least half are free. */
static uint32_t find_slot(const struct trajd_kept_chunks *chunks, uint64_t offset)
{
    uint32_t at = (uint32_t)(offset * UINT64_C(0x9E3779B97F4A7C15) >> 52);

    while (chunks->slots[at].bytes && chunks->slots[at].offset != offset)
        at = (at + 1) % SLOT_COUNT;
    return at;
}

void trajd_kept_chunks_add(struct trajd_kept_chunks *chunks, uint64_t offset, const void *bytes,
                           uint64_t size)
{
    struct slot *slot;
    uint8_t *copy = size && size <= chunk_bytes_max ? malloc(size) : NULL;

    if (!copy)
        return;
    memcpy(copy, bytes, size);
    if (chunks->count == COUNT_MAX || chunks->total_bytes + size > bytes_max)
        drop_all(chunks);
    slot = &chunks->slots[find_slot(chunks, offset)];
    chunks->count += !slot->bytes;
    chunks->total_bytes += size - slot->size;
    free(slot->bytes);
    *slot = (struct slot){offset, size, copy};
}

const uint8_t *trajd_kept_chunks_find(const struct trajd_kept_chunks *chunks, uint64_t offset,
                                      uint64_t size)
{
    const struct slot *slot = &chunks->slots[find_slot(chunks, offset)];

    return slot->bytes && slot->size == size ? slot->bytes : NULL;
}
