/* What encoded.c, encoded_heap.c and encoded_reader.c share. Private to them. */
#ifndef TRAJD_INDEX_ROWS_ENCODED_INTERNAL_H
#define TRAJD_INDEX_ROWS_ENCODED_INTERNAL_H

#include "daemon/index/rows/encoded.h"
#include "daemon/index/rows/heap.h"

/* the most bytes of one call, unless a single row has more */
#define TRAJD_ENCODED_CALL_BYTES (UINT64_C(64) << 20)
#define TRAJD_ENCODED_CALL_ROWS (UINT64_C(64) << 10)

/* A reference of one row. */
struct trajd_row_reference {
    struct trajd_heap_reference to;
    uint64_t row;
    uint64_t place; /* of the row's bytes, in those that were read */
};

/* An object of the collection that is searched. */
struct trajd_heap_slot {
    uint32_t search; /* the number of the search that found it */
    uint64_t offset; /* of its data, in the bytes that were read */
    uint64_t size;
};

struct trajd_encoded_reader {
    struct trajd_array_reader *arrays;
    uint8_t *bytes; /* what was read, and where the rows are */
    uint64_t capacity;
    uint8_t *stored; /* references or offsets */
    uint64_t stored_capacity;
    struct trajd_row_bytes *rows; /* [TRAJD_ENCODED_CALL_ROWS] */
    /* of a heap, each on first use */
    struct trajd_row_reference *references; /* [TRAJD_ENCODED_CALL_ROWS] */
    struct trajd_heap_slot *slots;          /* by index */
    uint32_t search;
};

/* One call of trajd_encoded_read. */
struct trajd_encoded_call {
    struct trajd_encoded_reader *reader;
    int fd;
    uint64_t file_size;
    const struct trajd_array *array;
    uint64_t row_begin, row_count;
    struct trajd_error *error;
    uint64_t used; /* bytes of reader->bytes */
};

/* encoded_reader.c */
enum trajd_status trajd_encoded_no_memory(struct trajd_error *error);
/* Makes room for `size` bytes in all, and keeps the bytes that are there. Grows by half at least,
 * so that many small runs do not move it often. */
enum trajd_status trajd_encoded_grow(uint8_t **bytes, uint64_t *capacity, uint64_t size,
                                     struct trajd_error *error);

/* encoded_heap.c. Reads the rows of the call, or the first ones, and sets row_count to their
 * number. */
enum trajd_status trajd_encoded_read_heap(struct trajd_encoded_call *c);

#endif
