/* The global heap of an HDF5 file: where values of variable length lie. A row of such a dataset is
 * a reference of 16 bytes, which leads to an object in a collection:
 *
 *     reference  := u32 length, u64 address of the collection, u32 index of the object
 *     collection := "GCOL", u8 version 1, 3 bytes 0, u64 size of all, object*
 *     object     := u16 index, u16 references, 4 bytes 0, u64 size, data, 0 to 7 bytes of padding
 *
 * Index 0 is the free space, which comes last. The bytes come from a file and are not trusted. */
#ifndef TRAJD_INDEX_ROWS_HEAP_H
#define TRAJD_INDEX_ROWS_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

#define TRAJD_HEAP_REFERENCE_BYTES 16
#define TRAJD_HEAP_HEAD_BYTES 16 /* of a collection, and of an object */

struct trajd_heap_reference {
    uint32_t length; /* 0: an empty row, which leads nowhere */
    uint64_t collection;
    uint32_t index;
};

/* Reads TRAJD_HEAP_REFERENCE_BYTES. */
struct trajd_heap_reference trajd_heap_reference_at(const uint8_t *bytes);

struct trajd_heap_object {
    uint16_t index;
    uint64_t offset; /* of its data, in the collection */
    uint64_t size;
};

/* A walk over the objects of a collection. */
struct trajd_heap_walk {
    const uint8_t *bytes; /* the first `have` bytes of the collection */
    uint64_t have, size, at;
};

enum trajd_heap_step {
    TRAJD_HEAP_OBJECT,
    TRAJD_HEAP_END,     /* no further object */
    TRAJD_HEAP_SHORT,   /* the next object goes beyond the bytes that were read */
    TRAJD_HEAP_DAMAGED, /* the next object goes beyond the collection */
};

/* Begins a walk. `most`: the largest size that the collection can have at its place in the file.
 * TRAJD_ERR_DATA: it is none, or larger. */
enum trajd_status trajd_heap_begin(struct trajd_heap_walk *walk, const uint8_t *bytes,
                                   uint64_t have, uint64_t most, struct trajd_error *error);
enum trajd_heap_step trajd_heap_next(struct trajd_heap_walk *walk,
                                     struct trajd_heap_object *object);

#endif
