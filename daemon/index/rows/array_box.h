/* The box of elements that a read takes out of one chunk, and copying it to its rows. */
#ifndef TRAJD_INDEX_ARRAY_BOX_H
#define TRAJD_INDEX_ARRAY_BOX_H

#include "daemon/index/rows/array.h"

struct trajd_array_box {
    uint64_t begin[TRAJD_ARRAY_MAX_RANK]; /* in the chunk */
    uint64_t count[TRAJD_ARRAY_MAX_RANK];
    uint64_t origin[TRAJD_ARRAY_MAX_RANK]; /* the first element's place; rows count as below */
};

/* Returns how many chunks lie along dimension d. */
uint64_t trajd_array_grid_extent(const struct trajd_array *array, uint32_t d);

/* Returns the part of chunk `chunk_index` that lies in rows [row_begin, row_end). These rows count
 * from the begin of the first chunk. */
struct trajd_array_box trajd_array_box_of_chunk(const struct trajd_array *array, uint64_t row_begin,
                                                uint64_t row_end, uint64_t chunk_index);

/* Copies the box out of the bytes of its chunk to `rows`, where the rows from row_begin on, which
 * counts as above, lie densely. */
void trajd_array_box_copy(const struct trajd_array *array, const struct trajd_array_box *box,
                          const uint8_t *chunk, uint64_t row_begin, uint8_t *rows);

#endif
