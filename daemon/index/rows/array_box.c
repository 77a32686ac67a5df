#include "daemon/index/rows/array_box.h"

#include <string.h>

/* Two dimensions of runs: their count, and their distance in the rows and in the chunk. */
struct plane {
    uint64_t count[2], to_stride[2], from_stride[2];
};

/* Copies a plane of runs. The callers pass a constant run, so that each copy becomes a plain load
 * and store. */
static inline __attribute__((always_inline)) void copy_fixed(const struct plane *plane, uint8_t *to,
                                                             const uint8_t *from, size_t run)
{
    const uint64_t count = plane->count[1], to_stride = plane->to_stride[1],
                   from_stride = plane->from_stride[1];

    for (uint64_t i = 0; i < plane->count[0];
         i++, to += plane->to_stride[0], from += plane->from_stride[0]) {
        uint8_t *t = to;
        const uint8_t *f = from;
        for (uint64_t j = 0; j < count; j++, t += to_stride, f += from_stride)
            memcpy(t, f, run);
    }
}

/* Copies a plane of runs of any length. h5py's own chunk shapes cut images into runs of one to a
 * few bytes; a call of memcpy for each would cost as much as inflating. */
static void copy_plane(const struct plane *plane, uint8_t *to, const uint8_t *from, size_t run)
{
    switch (run) {
    case 1:
        copy_fixed(plane, to, from, 1);
        break;
    case 2:
        copy_fixed(plane, to, from, 2);
        break;
    case 3:
        copy_fixed(plane, to, from, 3);
        break;
    case 4:
        copy_fixed(plane, to, from, 4);
        break;
    case 6:
        copy_fixed(plane, to, from, 6);
        break;
    case 8:
        copy_fixed(plane, to, from, 8);
        break;
    case 12:
        copy_fixed(plane, to, from, 12);
        break;
    case 16:
        copy_fixed(plane, to, from, 16);
        break;
    default:
        copy_fixed(plane, to, from, run);
        break;
    }
}

uint64_t trajd_array_grid_extent(const struct trajd_array *array, uint32_t d)
{
    const uint64_t first = d ? 0 : array->chunk_row;

    return (first + array->shape[d] + array->chunk_shape[d] - 1) / array->chunk_shape[d];
}

struct trajd_array_box trajd_array_box_of_chunk(const struct trajd_array *array, uint64_t row_begin,
                                                uint64_t row_end, uint64_t chunk_index)
{
    struct trajd_array_box box;

    for (uint32_t d = array->rank; d-- > 0;) {
        uint64_t at = chunk_index % trajd_array_grid_extent(array, d) * array->chunk_shape[d];
        uint64_t low = d == 0 ? row_begin : 0;
        uint64_t high = d == 0 ? row_end : array->shape[d];
        uint64_t end = at + array->chunk_shape[d] < high ? at + array->chunk_shape[d] : high;
        chunk_index /= trajd_array_grid_extent(array, d);
        box.origin[d] = at > low ? at : low;
        box.begin[d] = box.origin[d] - at;
        box.count[d] = end - box.origin[d];
    }
    return box;
}

void trajd_array_box_copy(const struct trajd_array *array, const struct trajd_array_box *box,
                          const uint8_t *chunk, uint64_t row_begin, uint8_t *rows)
{
    uint64_t to_stride[TRAJD_ARRAY_MAX_RANK], from_stride[TRAJD_ARRAY_MAX_RANK];
    uint64_t index[TRAJD_ARRAY_MAX_RANK] = {0};
    uint64_t to_step = trajd_dtype_size(array->dtype), from_step = to_step;
    struct plane plane = {.count = {1, 1}};
    uint32_t run_dimension = array->rank - 1; /* the run covers this dimension and all after it */
    uint8_t *to = rows;
    uint32_t outer;

    for (uint32_t d = array->rank; d-- > 0;) {
        to_stride[d] = to_step;
        from_stride[d] = from_step;
        to_step *= array->shape[d];
        from_step *= array->chunk_shape[d];
        to += (box->origin[d] - (d == 0 ? row_begin : 0)) * to_stride[d];
        chunk += box->begin[d] * from_stride[d];
    }
    while (run_dimension > 0 && box->count[run_dimension] == array->shape[run_dimension] &&
           array->shape[run_dimension] == array->chunk_shape[run_dimension])
        run_dimension--;
    outer = run_dimension; /* dimensions that neither the run nor the plane covers */
    for (int p = 1; p >= 0 && outer > 0; p--) {
        outer--;
        plane.count[p] = box->count[outer];
        plane.to_stride[p] = to_stride[outer];
        plane.from_stride[p] = from_stride[outer];
    }
    for (;;) {
        uint64_t to_at = 0, from_at = 0;
        uint32_t d = outer;
        for (uint32_t i = 0; i < outer; i++) {
            to_at += index[i] * to_stride[i];
            from_at += index[i] * from_stride[i];
        }
        copy_plane(&plane, to + to_at, chunk + from_at,
                   box->count[run_dimension] * to_stride[run_dimension]);
        while (d > 0 && ++index[d - 1] == box->count[d - 1])
            index[--d] = 0;
        if (d == 0)
            return;
    }
}
