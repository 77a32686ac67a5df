#include "daemon/index/rows/heap.h"

#include <string.h>

#include "daemon/index/rows/little_endian.h"

struct trajd_heap_reference trajd_heap_reference_at(const uint8_t *bytes)
{
    return (struct trajd_heap_reference){trajd_u32_at(bytes), trajd_u64_at(bytes + 4),
                                         trajd_u32_at(bytes + 12)};
}

enum trajd_status trajd_heap_begin(struct trajd_heap_walk *walk, const uint8_t *bytes,
                                   uint64_t have, uint64_t most, struct trajd_error *error)
{
    *walk = (struct trajd_heap_walk){bytes, have, 0, TRAJD_HEAP_HEAD_BYTES};
    if (have < TRAJD_HEAP_HEAD_BYTES || memcmp(bytes, "GCOL", 4))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "there is no heap collection");
    if (bytes[4] != 1)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "the heap collection has version %u, not 1", bytes[4]);
    walk->size = trajd_u64_at(bytes + 8);
    if (walk->size < TRAJD_HEAP_HEAD_BYTES || walk->size > most)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "the heap collection claims %llu bytes, there is room for %llu",
                               (unsigned long long)walk->size, (unsigned long long)most);
    if (walk->have > walk->size)
        walk->have = walk->size;
    return TRAJD_OK;
}

enum trajd_heap_step trajd_heap_next(struct trajd_heap_walk *walk, struct trajd_heap_object *object)
{
    const uint64_t in_collection = walk->size - walk->at;
    const uint8_t *head;

    if (in_collection < TRAJD_HEAP_HEAD_BYTES)
        return TRAJD_HEAP_END; /* the rest is too small for an object */
    if (walk->at > walk->have || walk->have - walk->at < TRAJD_HEAP_HEAD_BYTES)
        return TRAJD_HEAP_SHORT;
    head = walk->bytes + walk->at;
    object->index = trajd_u16_at(head);
    object->size = trajd_u64_at(head + 8);
    object->offset = walk->at + TRAJD_HEAP_HEAD_BYTES;
    if (!object->index)
        return TRAJD_HEAP_END;
    if (object->size > walk->size - object->offset)
        return TRAJD_HEAP_DAMAGED;
    if (object->size > walk->have - object->offset)
        return TRAJD_HEAP_SHORT;
    walk->at = object->offset + object->size;
    walk->at += -walk->at & 7;
    if (walk->at > walk->size)
        walk->at = walk->size; /* without padding behind the last object */
    return TRAJD_HEAP_OBJECT;
}
