/* Reads rows with pread. Neighbouring chunks are read in one call and inflated on the calling
 * thread. */
#include <stdlib.h>
#include <string.h>

#include "daemon/index/rows/array.h"
#include "daemon/index/rows/file_bytes.h"
#include "daemon/index/rows/inflate.h"
#include "daemon/index/rows/kept_chunks.h"

/* chunks closer than this are read together: a seek costs more than the bytes between them */
#define GAP_BYTES (64u << 10)
/* a read ends with the chunk that makes it so long: storage with a latency gives its rate, and the
 * bytes stay in the processor's cache until inflated */
#define RUN_BYTES (UINT64_C(1) << 20)
/* of the memory that is read into: a read past the page cache is not cut into more pieces */
#define READ_ALIGNMENT UINT64_C(4096)
/* unfiltered chunks of this size are read directly into the rows */
#define DIRECT_BYTES (64u << 10)
#define SORT_COUNT 4096u /* chunks that are sorted at a time */

/* ---- the part of a chunk that a read takes ---- */

struct box {
    uint64_t begin[TRAJD_ARRAY_MAX_RANK]; /* in the chunk */
    uint64_t count[TRAJD_ARRAY_MAX_RANK];
    uint64_t origin[TRAJD_ARRAY_MAX_RANK]; /* the first element's place; rows count as below */
};

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

/* Returns how many chunks lie along dimension d. */
static uint64_t grid_extent(const struct trajd_array *array, uint32_t d)
{
    const uint64_t first = d ? 0 : array->chunk_row;

    return (first + array->shape[d] + array->chunk_shape[d] - 1) / array->chunk_shape[d];
}

/* Returns the part of chunk `chunk_index` that is in rows [row_begin, row_end). These rows count
 * from the begin of the first chunk. */
static struct box box_in_chunk(const struct trajd_array *array, uint64_t row_begin,
                               uint64_t row_end, uint64_t chunk_index)
{
    struct box box;

    for (uint32_t d = array->rank; d-- > 0;) {
        uint64_t at = chunk_index % grid_extent(array, d) * array->chunk_shape[d];
        uint64_t low = d == 0 ? row_begin : 0;
        uint64_t high = d == 0 ? row_end : array->shape[d];
        uint64_t end = at + array->chunk_shape[d] < high ? at + array->chunk_shape[d] : high;
        chunk_index /= grid_extent(array, d);
        box.origin[d] = at > low ? at : low;
        box.begin[d] = box.origin[d] - at;
        box.count[d] = end - box.origin[d];
    }
    return box;
}

/* Copies the box out of the bytes of its chunk to `rows`, where the rows from row_begin on, which
 * counts as above, lie densely. */
static void copy_box(const struct trajd_array *array, const struct box *box, const uint8_t *chunk,
                     uint64_t row_begin, uint8_t *rows)
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

/* ---- reading ---- */

struct buffer {
    uint8_t *bytes;
    uint64_t capacity;
};

struct trajd_array_reader {
    struct trajd_inflater *inflater;
    struct buffer run;    /* the stored bytes of neighbouring chunks */
    struct buffer extent; /* bytes of the file that were loaded */
    uint64_t extent_offset, extent_bytes;
    struct buffer fill;             /* a chunk of fill values */
    struct trajd_kept_chunks *kept; /* or NULL */
    uint64_t order[SORT_COUNT];
};

/* One call of trajd_array_read on a chunked array. */
struct reading {
    struct trajd_array_reader *reader;
    int fd;
    const struct trajd_array *array;
    uint64_t row_begin, row_end; /* from the begin of the first chunk on */
    uint8_t *rows;
    uint64_t row_bytes;
    uint64_t chunk_bytes;
    bool fill_ready;
};

enum trajd_status trajd_array_reader_create(struct trajd_array_reader **reader,
                                            struct trajd_error *error)
{
    struct trajd_array_reader *made = calloc(1, sizeof *made);
    enum trajd_status status;

    *reader = NULL;
    if (!made)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for an array reader");
    status = trajd_inflater_create(&made->inflater, error);
    if (status) {
        free(made);
        return status;
    }
    *reader = made;
    return TRAJD_OK;
}

void trajd_array_reader_destroy(struct trajd_array_reader **reader)
{
    struct trajd_array_reader *made = *reader;

    *reader = NULL;
    if (!made)
        return;
    trajd_inflater_destroy(&made->inflater);
    trajd_kept_chunks_destroy(&made->kept);
    free(made->run.bytes);
    free(made->extent.bytes);
    free(made->fill.bytes);
    free(made);
}

void trajd_array_reader_keep(struct trajd_array_reader *reader, bool keeps)
{
    trajd_kept_chunks_destroy(&reader->kept);
    reader->kept = keeps ? trajd_kept_chunks_create() : NULL;
}

static enum trajd_status make_room(struct buffer *buffer, uint64_t bytes, struct trajd_error *error)
{
    if (buffer->capacity >= bytes)
        return TRAJD_OK;
    free(buffer->bytes);
    buffer->bytes = aligned_alloc(READ_ALIGNMENT,
                                  (bytes + READ_ALIGNMENT - 1) / READ_ALIGNMENT * READ_ALIGNMENT);
    buffer->capacity = buffer->bytes ? bytes : 0;
    if (!buffer->bytes)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for %llu bytes of chunks",
                               (unsigned long long)bytes);
    return TRAJD_OK;
}

enum trajd_status trajd_array_reader_load(struct trajd_array_reader *reader, int fd,
                                          uint64_t offset, uint64_t bytes,
                                          struct trajd_error *error)
{
    enum trajd_status status = make_room(&reader->extent, bytes, error);

    if (!status)
        status = trajd_read_exactly(fd, offset, bytes, reader->extent.bytes, error);
    reader->extent_offset = offset;
    reader->extent_bytes = status ? 0 : bytes;
    return status;
}

/* Reads bytes of the file, or copies them where they were loaded. */
static enum trajd_status read_bytes(const struct trajd_array_reader *reader, int fd,
                                    uint64_t offset, uint64_t bytes, uint8_t *to,
                                    struct trajd_error *error)
{
    const uint64_t at = offset - reader->extent_offset;

    if (!reader->extent_bytes || offset < reader->extent_offset || bytes > reader->extent_bytes ||
        at > reader->extent_bytes - bytes)
        return trajd_read_exactly(fd, offset, bytes, to, error);
    memcpy(to, reader->extent.bytes + at, bytes);
    return TRAJD_OK;
}

static void fill_bytes(const struct trajd_array *array, uint8_t *to, uint64_t bytes)
{
    uint32_t size = trajd_dtype_size(array->dtype);
    uint64_t done = size < bytes ? size : bytes;

    memcpy(to, array->fill, done);
    while (done < bytes) { /* doubles the filled part */
        uint64_t more = done < bytes - done ? done : bytes - done;
        memcpy(to + done, to, more);
        done += more;
    }
}

static struct box box_of_chunk(const struct reading *reading, uint64_t chunk_index)
{
    return box_in_chunk(reading->array, reading->row_begin, reading->row_end, chunk_index);
}

static enum trajd_status chunk_failed(const struct reading *reading, uint64_t chunk_index,
                                      struct trajd_error *error)
{
    struct box box = box_of_chunk(reading, chunk_index);
    const uint64_t row = box.origin[0] - reading->array->chunk_row;

    return trajd_error_prefix(error, "rows %llu..%llu: chunk %llu at offset %llu",
                              (unsigned long long)row, (unsigned long long)(row + box.count[0] - 1),
                              (unsigned long long)chunk_index,
                              (unsigned long long)reading->array->chunks[chunk_index].offset);
}

static enum trajd_status place_chunk(const struct reading *reading, uint64_t chunk_index,
                                     const uint8_t *stored, struct trajd_error *error)
{
    const struct trajd_array *array = reading->array;
    const struct trajd_chunk *chunk = &array->chunks[chunk_index];
    struct trajd_filter_pipeline pipeline = {array->filters, array->filter_count,
                                             chunk->filter_mask, trajd_array_element_bytes(array)};
    struct box box = box_of_chunk(reading, chunk_index);
    const uint8_t *bytes;
    enum trajd_status status =
        trajd_inflate_chunk(reading->reader->inflater, &pipeline, stored, chunk->stored_size,
                            reading->chunk_bytes, &bytes, error);

    if (status) {
        chunk_failed(reading, chunk_index, error);
        return status;
    }
    if (reading->reader->kept && array->filter_count)
        trajd_kept_chunks_add(reading->reader->kept, chunk->offset, bytes, reading->chunk_bytes);
    copy_box(reading->array, &box, bytes, reading->row_begin, reading->rows);
    return TRAJD_OK;
}

/* Copies the rows of a chunk that was kept. Returns false where it was not. */
static bool place_kept(const struct reading *reading, uint64_t chunk_index)
{
    const struct trajd_kept_chunks *kept = reading->reader->kept;
    const uint8_t *bytes =
        kept ? trajd_kept_chunks_find(kept, reading->array->chunks[chunk_index].offset,
                                      reading->chunk_bytes)
             : NULL;
    struct box box;

    if (!bytes)
        return false;
    box = box_of_chunk(reading, chunk_index);
    copy_box(reading->array, &box, bytes, reading->row_begin, reading->rows);
    return true;
}

static enum trajd_status place_missing(struct reading *reading, uint64_t chunk_index,
                                       struct trajd_error *error)
{
    struct buffer *fill = &reading->reader->fill;
    struct box box = box_of_chunk(reading, chunk_index);

    if (!reading->fill_ready) {
        enum trajd_status status = make_room(fill, reading->chunk_bytes, error);
        if (status)
            return status;
        fill_bytes(reading->array, fill->bytes, reading->chunk_bytes);
        reading->fill_ready = true;
    }
    copy_box(reading->array, &box, fill->bytes, reading->row_begin, reading->rows);
    return TRAJD_OK;
}

/* Returns whether a chunk is stored as the rows are: not filtered, and of whole rows. */
static bool is_whole(const struct reading *reading, uint64_t chunk_index)
{
    const struct trajd_array *array = reading->array;
    const struct trajd_chunk *chunk = &array->chunks[chunk_index];
    uint32_t all = (1u << array->filter_count) - 1;

    if (chunk->stored_size != reading->chunk_bytes || (chunk->filter_mask & all) != all)
        return false;
    for (uint32_t d = 1; d < array->rank; d++)
        if (array->chunk_shape[d] != array->shape[d])
            return false;
    return true;
}

/* Returns how many chunks at the front of order[] can be read directly into the rows in one call:
 * they follow one another in the file as in the array, and are so large that a copy would cost
 * time. 0: none. */
static uint32_t count_direct(const struct reading *reading, const uint64_t *order, uint32_t count)
{
    const struct trajd_chunk *chunks = reading->array->chunks;
    uint64_t bytes = reading->chunk_bytes;
    uint32_t n = 1;

    if (!is_whole(reading, order[0]))
        return 0;
    while (n < count && order[n] == order[n - 1] + 1 && is_whole(reading, order[n]) &&
           chunks[order[n]].offset == chunks[order[n - 1]].offset + reading->chunk_bytes) {
        bytes += reading->chunk_bytes;
        n++;
    }
    return bytes < DIRECT_BYTES ? 0 : n;
}

/* Reads the rows of `count` chunks that count_direct found. */
static enum trajd_status read_direct(const struct reading *reading, const uint64_t *order,
                                     uint32_t count, struct trajd_error *error)
{
    const struct box first = box_of_chunk(reading, order[0]),
                     last = box_of_chunk(reading, order[count - 1]);
    const uint64_t rows = last.origin[0] + last.count[0] - first.origin[0];
    const uint64_t offset =
        reading->array->chunks[order[0]].offset + first.begin[0] * reading->row_bytes;
    enum trajd_status status = read_bytes(
        reading->reader, reading->fd, offset, rows * reading->row_bytes,
        reading->rows + (first.origin[0] - reading->row_begin) * reading->row_bytes, error);

    if (status)
        chunk_failed(reading, order[0], error);
    return status;
}

/* Reads the chunks at the front of order[] that lie close together in one call and copies their
 * rows. *used becomes their count. */
static enum trajd_status read_run(struct reading *reading, const uint64_t *order, uint32_t count,
                                  uint32_t *used, struct trajd_error *error)
{
    const struct trajd_chunk *chunks = reading->array->chunks;
    uint64_t begin = chunks[order[0]].offset;
    uint64_t end = begin + chunks[order[0]].stored_size;
    struct buffer *run = &reading->reader->run;
    enum trajd_status status;
    uint32_t n = 1;

    for (; n < count; n++) {
        const struct trajd_chunk *next = &chunks[order[n]];
        const uint64_t next_end = next->offset + next->stored_size;
        if ((next->offset > end && next->offset - end >= GAP_BYTES) || end - begin >= RUN_BYTES ||
            (reading->chunk_bytes >= DIRECT_BYTES && is_whole(reading, order[n])))
            break;
        end = next_end > end ? next_end : end;
    }
    *used = n;
    status = make_room(run, end - begin > RUN_BYTES ? end - begin : RUN_BYTES, error);
    if (!status)
        status = read_bytes(reading->reader, reading->fd, begin, end - begin, run->bytes, error);
    if (status) {
        chunk_failed(reading, order[0], error);
        return status;
    }
    for (uint32_t i = 0; i < n && !status; i++)
        status =
            place_chunk(reading, order[i], run->bytes + (chunks[order[i]].offset - begin), error);
    return status;
}

static int by_offset(const void *a, const void *b, void *context)
{
    const struct trajd_chunk *chunks = context;
    uint64_t left = chunks[*(const uint64_t *)a].offset,
             right = chunks[*(const uint64_t *)b].offset;

    return (left > right) - (left < right);
}

static enum trajd_status read_in_file_order(struct reading *reading, uint32_t count,
                                            struct trajd_error *error)
{
    uint64_t *order = reading->reader->order;
    enum trajd_status status = TRAJD_OK;

    /* qsort_r takes a context that is not const; by_offset only reads it. */
    qsort_r(order, count, sizeof *order, by_offset, (void *)reading->array->chunks);
    for (uint32_t i = 0, used; i < count && !status; i += used) {
        used = count_direct(reading, order + i, count - i);
        if (used)
            status = read_direct(reading, order + i, used, error);
        else
            status = read_run(reading, order + i, count - i, &used, error);
    }
    return status;
}

static enum trajd_status read_chunked(struct reading *reading, struct trajd_error *error)
{
    const struct trajd_array *array = reading->array;
    uint64_t per_row_of_chunks = 1, last;
    enum trajd_status status = TRAJD_OK;
    uint32_t count = 0;

    for (uint32_t d = 1; d < array->rank; d++)
        per_row_of_chunks *= grid_extent(array, d);
    last = ((reading->row_end - 1) / array->chunk_shape[0] + 1) * per_row_of_chunks;
    for (uint64_t c = reading->row_begin / array->chunk_shape[0] * per_row_of_chunks; c < last;
         c++) {
        if (array->chunks[c].offset == TRAJD_ARRAY_MISSING_CHUNK)
            status = place_missing(reading, c, error);
        else if (!place_kept(reading, c))
            reading->reader->order[count++] = c;
        if (!status && count && (count == SORT_COUNT || c + 1 == last)) {
            status = read_in_file_order(reading, count, error);
            count = 0;
        }
        if (status)
            return status;
    }
    return count ? read_in_file_order(reading, count, error) : TRAJD_OK;
}

enum trajd_status trajd_array_read(struct trajd_array_reader *reader, int fd,
                                   const struct trajd_array *array, uint64_t row_begin,
                                   uint64_t row_count, void *rows, struct trajd_error *error)
{
    uint64_t row_bytes = trajd_array_row_bytes(array);
    struct reading reading = {reader,
                              fd,
                              array,
                              array->chunk_row + row_begin,
                              array->chunk_row + row_begin + row_count,
                              rows,
                              row_bytes,
                              trajd_array_chunk_bytes(array),
                              false};
    enum trajd_status status;

    if (row_count > trajd_array_row_count(array) ||
        row_begin > trajd_array_row_count(array) - row_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "rows from %llu, %llu of them, of %llu",
                               (unsigned long long)row_begin, (unsigned long long)row_count,
                               (unsigned long long)trajd_array_row_count(array));
    if (row_count == 0 || row_bytes == 0)
        return TRAJD_OK;
    switch (array->storage) {
    case TRAJD_STORAGE_ABSENT:
        break;
    case TRAJD_STORAGE_EMPTY:
        fill_bytes(array, rows, row_count * row_bytes);
        return TRAJD_OK;
    case TRAJD_STORAGE_INLINE:
        memcpy(rows, array->inline_bytes + row_begin * row_bytes, row_count * row_bytes);
        return TRAJD_OK;
    case TRAJD_STORAGE_CONTIGUOUS:
        status = read_bytes(reader, fd, array->offset + row_begin * row_bytes,
                            row_count * row_bytes, rows, error);
        if (status)
            trajd_error_prefix(error, "rows %llu..%llu", (unsigned long long)row_begin,
                               (unsigned long long)(row_begin + row_count - 1));
        return status;
    case TRAJD_STORAGE_CHUNKED:
        return read_chunked(&reading, error);
    }
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "storage %d has no rows",
                           (int)array->storage);
}
