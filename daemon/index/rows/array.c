/* Arrays as places of bytes: their sizes, row ranges and checks, and the numbers in their rows. */
#include <math.h>
#include <string.h>

#include "daemon/index/rows/array.h"
#include "daemon/index/rows/inflate.h"
#include "daemon/index/rows/packed_video.h"
#include "kernels/element_convert.h"

uint64_t trajd_array_row_count(const struct trajd_array *array)
{
    return array->storage == TRAJD_STORAGE_ABSENT ? 0 : array->shape[0];
}

uint64_t trajd_array_row_elements(const struct trajd_array *array)
{
    uint64_t elements = 1;

    for (uint32_t d = 1; d < array->rank; d++)
        elements *= array->shape[d];
    return elements;
}

uint64_t trajd_array_row_bytes(const struct trajd_array *array)
{
    return trajd_array_row_elements(array) * trajd_dtype_size(array->dtype);
}

uint32_t trajd_array_element_bytes(const struct trajd_array *array)
{
    return array->form == TRAJD_ROWS_STRING || array->form == TRAJD_ROWS_HEAP
               ? (uint32_t)array->shape[1]
               : trajd_dtype_size(array->dtype);
}

uint64_t trajd_array_chunk_bytes(const struct trajd_array *array)
{
    uint64_t bytes = trajd_dtype_size(array->dtype);

    if (array->storage != TRAJD_STORAGE_CHUNKED)
        return 0;
    for (uint32_t d = 0; d < array->rank; d++)
        bytes *= array->chunk_shape[d];
    return bytes;
}

/* Returns the number of chunks along axis 0. */
static uint64_t chunk_rows(uint64_t first_row, uint64_t rows, uint64_t chunk_shape)
{
    return (first_row + rows + chunk_shape - 1) / chunk_shape;
}

void trajd_array_slice(struct trajd_array *array, uint64_t row_begin, uint64_t rows)
{
    const uint64_t skipped_bytes = array->size_bytes / array->shape[0] * row_begin;

    array->size_bytes = array->size_bytes / array->shape[0] * rows;
    if (array->storage == TRAJD_STORAGE_CONTIGUOUS)
        array->offset += skipped_bytes;
    if (array->storage == TRAJD_STORAGE_INLINE)
        array->inline_bytes += skipped_bytes;
    if (array->storage == TRAJD_STORAGE_CHUNKED) {
        const uint64_t first = array->chunk_row + row_begin, extent = array->chunk_shape[0];
        const uint64_t width =
            array->chunk_count / chunk_rows(array->chunk_row, array->shape[0], extent);
        array->chunks += first / extent * width;
        array->chunk_row = first % extent;
        array->chunk_count = chunk_rows(array->chunk_row, rows, extent) * width;
    }
    array->shape[0] = rows;
}

void trajd_array_cut(struct trajd_array *array, uint64_t rows)
{
    array->cut_rows += array->shape[0] - rows;
    trajd_array_slice(array, 0, rows);
}

void trajd_array_uncut(struct trajd_array *array)
{
    trajd_array_slice(array, 0, array->shape[0] + array->cut_rows);
    array->cut_rows = 0;
}

static enum trajd_status check_shape(const struct trajd_array *array, struct trajd_error *error)
{
    uint64_t bytes = trajd_dtype_size(array->dtype);

    if (bytes == 0)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "element type %d is none",
                               (int)array->dtype);
    if (array->rank < 1)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "rank 0: a scalar has no rows");
    /* A zero in one dimension must not hide an overflow of the product of the others, because
     * trajd_array_row_bytes computes that product. */
    for (uint32_t d = 0; d < array->rank; d++)
        if (array->shape[d] > INT64_MAX ||
            (array->shape[d] && __builtin_mul_overflow(bytes, array->shape[d], &bytes)) ||
            bytes > INT64_MAX)
            return trajd_error_set(error, TRAJD_ERR_DATA, 0, "shape overflows at dimension %u", d);
    if (array->size_bytes != array->shape[0] * trajd_array_row_bytes(array))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%llu bytes do not fit the shape",
                               (unsigned long long)array->size_bytes);
    return TRAJD_OK;
}

static bool within(uint64_t offset, uint64_t size, uint64_t file_size_bytes)
{
    return offset <= file_size_bytes && size <= file_size_bytes - offset;
}

static enum trajd_status check_chunk_shape(const struct trajd_array *array,
                                           struct trajd_error *error)
{
    uint64_t bytes = trajd_dtype_size(array->dtype), chunk_count = 1;

    for (uint32_t d = 0; d < array->rank; d++) {
        uint64_t extent = array->chunk_shape[d];
        if (extent == 0 || extent > TRAJD_ARRAY_MAX_CHUNK_BYTES / bytes)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "a chunk is empty or larger than %llu MiB",
                                   (unsigned long long)(TRAJD_ARRAY_MAX_CHUNK_BYTES >> 20));
        bytes *= extent;
        if (__builtin_mul_overflow(chunk_count,
                                   chunk_rows(d ? 0 : array->chunk_row, array->shape[d], extent),
                                   &chunk_count))
            return trajd_error_set(error, TRAJD_ERR_DATA, 0, "the number of chunks overflows");
    }
    if (array->chunk_row >= array->chunk_shape[0])
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "it begins after its first chunk");
    if (chunk_count != array->chunk_count || (chunk_count && !array->chunks))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "%llu chunks, the shape has %llu",
                               (unsigned long long)array->chunk_count,
                               (unsigned long long)chunk_count);
    return TRAJD_OK;
}

static enum trajd_status check_chunks(const struct trajd_array *array, uint64_t file_size_bytes,
                                      struct trajd_error *error)
{
    uint64_t chunk_bytes, stored_limit;
    enum trajd_status status;

    if (!trajd_inflate_supports(array->filters, array->filter_count))
        return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                               "filters other than shuffle, fletcher32 and one of deflate, lzf");
    status = check_chunk_shape(array, error);
    if (status)
        return status;
    chunk_bytes = trajd_array_chunk_bytes(array);
    /* no compressor of these expands by more */
    stored_limit = chunk_bytes + chunk_bytes / 8 + 1024;
    for (uint64_t c = 0; c < array->chunk_count; c++) {
        const struct trajd_chunk *chunk = &array->chunks[c];
        if (chunk->offset == TRAJD_ARRAY_MISSING_CHUNK)
            continue;
        if (chunk->stored_size > stored_limit ||
            !within(chunk->offset, chunk->stored_size, file_size_bytes))
            return trajd_error_set(
                error, TRAJD_ERR_DATA, 0,
                "chunk %llu: %u bytes at offset %llu, beyond the file or a chunk's size",
                (unsigned long long)c, chunk->stored_size, (unsigned long long)chunk->offset);
    }
    return TRAJD_OK;
}

/* Checks the shape that the form of encoded rows needs, and the place of a payload. */
static enum trajd_status check_form(const struct trajd_array *array, uint64_t file_size_bytes,
                                    struct trajd_error *error)
{
    const bool is_packed = array->form == TRAJD_ROWS_PACKED;
    uint64_t offsets_bytes;

    if (!trajd_array_is_encoded(array))
        return TRAJD_OK;
    if (array->form == TRAJD_ROWS_VIDEO)
        return trajd_video_check(array, file_size_bytes, error);
    if (array->form > TRAJD_ROWS_PACKED || array->rank != (is_packed ? 1 : 2) ||
        array->dtype != (is_packed ? TRAJD_I64 : TRAJD_U8))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "its type and shape do not fit encoded rows");
    if (!is_packed && array->shape[1] > TRAJD_ROW_BYTES_MAX)
        return trajd_error_set(
            error, TRAJD_ERR_UNSUPPORTED, 0, "rows of %llu bytes, the limit is %llu",
            (unsigned long long)array->shape[1], (unsigned long long)TRAJD_ROW_BYTES_MAX);
    if (array->form == TRAJD_ROWS_HEAP &&
        (array->shape[1] != TRAJD_HEAP_REFERENCE_BYTES || array->storage == TRAJD_STORAGE_INLINE))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "its rows are not references of 16 bytes");
    if (!is_packed)
        return TRAJD_OK;
    offsets_bytes = array->size_bytes + trajd_dtype_size(TRAJD_I64);
    if (array->storage != TRAJD_STORAGE_CONTIGUOUS ||
        !within(array->offset, offsets_bytes, file_size_bytes) ||
        !within(array->payload_offset, array->payload_bytes, file_size_bytes))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "its offsets or bytes lie beyond the file's end");
    return TRAJD_OK;
}

enum trajd_status trajd_array_check(const struct trajd_array *array, uint64_t file_size_bytes,
                                    uint64_t inline_size, struct trajd_error *error)
{
    enum trajd_status status;

    if (array->rank > TRAJD_ARRAY_MAX_RANK) /* of an absent array too: loops run up to the rank */
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "rank %u is above %d", array->rank,
                               TRAJD_ARRAY_MAX_RANK);
    if (array->storage == TRAJD_STORAGE_ABSENT)
        return TRAJD_OK;
    status = check_shape(array, error);
    if (!status)
        status = check_form(array, file_size_bytes, error);
    if (status)
        return status;
    switch (array->storage) {
    case TRAJD_STORAGE_ABSENT:
    case TRAJD_STORAGE_EMPTY:
        return TRAJD_OK;
    case TRAJD_STORAGE_CONTIGUOUS:
        if (!within(array->offset, array->size_bytes, file_size_bytes))
            return trajd_error_set(
                error, TRAJD_ERR_DATA, 0, "%llu bytes at offset %llu, the file has %llu",
                (unsigned long long)array->size_bytes, (unsigned long long)array->offset,
                (unsigned long long)file_size_bytes);
        return TRAJD_OK;
    case TRAJD_STORAGE_INLINE:
        if (array->size_bytes != inline_size || (inline_size && !array->inline_bytes))
            return trajd_error_set(
                error, TRAJD_ERR_DATA, 0, "%llu bytes inline, the shape has %llu",
                (unsigned long long)inline_size, (unsigned long long)array->size_bytes);
        return TRAJD_OK;
    case TRAJD_STORAGE_CHUNKED:
        return check_chunks(array, file_size_bytes, error);
    }
    return trajd_error_set(error, TRAJD_ERR_DATA, 0, "storage %d is unknown", (int)array->storage);
}

static const void *element_at(const void *elements, uint64_t i, uint32_t size)
{
    return (const uint8_t *)elements + i * size;
}

bool trajd_array_to_f64(enum trajd_dtype dtype, const void *elements, uint64_t count, double *out)
{
    const uint32_t size = trajd_dtype_size(dtype);

    if (size == 0 || dtype == TRAJD_BOOL)
        return false;
    for (uint64_t i = 0; i < count; i++)
        out[i] = trajd_element_load(dtype, element_at(elements, i, size));
    return true;
}

/* Integers of 64 bits are copied, because a double does not hold all of them. */
static bool to_i64(enum trajd_dtype dtype, const void *element, int64_t *out)
{
    double value;

    if (dtype == TRAJD_I64 || dtype == TRAJD_U64) {
        memcpy(out, element, sizeof *out);
        return dtype == TRAJD_I64 || *out >= 0;
    }
    value = floor(trajd_element_load(dtype, element));
    if (!(value >= -0x1p63 && value < 0x1p63))
        return false;
    *out = (int64_t)value;
    return true;
}

bool trajd_array_to_i64(enum trajd_dtype dtype, const void *elements, uint64_t count, int64_t *out)
{
    const uint32_t size = trajd_dtype_size(dtype);

    if (size == 0 || dtype == TRAJD_BOOL)
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!to_i64(dtype, element_at(elements, i, size), &out[i]))
            return false;
    return true;
}
