#include "daemon/index/rows/encoded_internal.h"

#include <string.h>

#include "daemon/index/rows/little_endian.h"
#include "daemon/index/rows/read_exactly.h"

/* ---- padded rows and strings ---- */

/* Returns the length of a row without the zeros at its end. Compares large blocks first, because
 * the padding may be as long as the content. */
static uint64_t length_without_zeros(const uint8_t *row, uint64_t size)
{
    static const uint8_t zeros[512];

    while (size >= sizeof zeros && !memcmp(row + size - sizeof zeros, zeros, sizeof zeros))
        size -= sizeof zeros;
    while (size >= 8 && !memcmp(row + size - 8, zeros, 8))
        size -= 8;
    while (size && !row[size - 1])
        size--;
    return size;
}

static enum trajd_status read_padded(struct trajd_encoded_call *c)
{
    struct trajd_encoded_reader *reader = c->reader;
    const uint64_t width = trajd_array_row_bytes(c->array);
    enum trajd_status status;

    if (width && c->row_count > TRAJD_ENCODED_CALL_BYTES / width)
        c->row_count = TRAJD_ENCODED_CALL_BYTES / width ? TRAJD_ENCODED_CALL_BYTES / width : 1;
    status =
        trajd_encoded_grow(&reader->bytes, &reader->capacity, c->row_count * width + 1, c->error);
    if (!status)
        status = trajd_array_read(reader->arrays, c->fd, c->array, c->row_begin, c->row_count,
                                  reader->bytes, c->error);
    for (uint64_t r = 0; r < c->row_count && !status; r++) {
        const uint8_t *row = reader->bytes + r * width;
        reader->rows[r] = (struct trajd_row_bytes){row, length_without_zeros(row, width)};
    }
    return status;
}

/* ---- packed rows ---- */

static enum trajd_status check_offsets(const struct trajd_encoded_call *c, uint64_t row,
                                       uint64_t begin, uint64_t end)
{
    if (end < begin)
        return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                               "row %llu: offsets do not ascend: it begins at %llu and ends at "
                               "%llu",
                               (unsigned long long)row, (unsigned long long)begin,
                               (unsigned long long)end);
    if (end > c->array->payload_bytes)
        return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                               "row %llu: it ends at %llu, there are %llu bytes",
                               (unsigned long long)row, (unsigned long long)end,
                               (unsigned long long)c->array->payload_bytes);
    if (end - begin > TRAJD_ROW_BYTES_MAX)
        return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                               "row %llu: %llu bytes, the limit is %llu", (unsigned long long)row,
                               (unsigned long long)(end - begin),
                               (unsigned long long)TRAJD_ROW_BYTES_MAX);
    return TRAJD_OK;
}

static enum trajd_status read_packed(struct trajd_encoded_call *c)
{
    struct trajd_encoded_reader *reader = c->reader;
    struct trajd_array offsets = *c->array; /* with the offset behind the last row */
    uint64_t first, end;
    enum trajd_status status;

    offsets.shape[0]++;
    status = trajd_encoded_grow(&reader->stored, &reader->stored_capacity, (c->row_count + 1) * 8,
                                c->error);
    if (!status)
        status = trajd_array_read(reader->arrays, c->fd, &offsets, c->row_begin, c->row_count + 1,
                                  reader->stored, c->error);
    if (status)
        return status;
    first = end = trajd_u64_at(reader->stored);
    for (uint64_t r = 0; r < c->row_count && !status; r++) {
        const uint64_t begin = end;
        end = trajd_u64_at(reader->stored + 8 * (r + 1));
        if (r && end >= begin && end - first > TRAJD_ENCODED_CALL_BYTES) {
            c->row_count = r;
            end = begin;
            break;
        }
        status = check_offsets(c, c->row_begin + r, begin, end);
    }
    if (!status)
        status = trajd_encoded_grow(&reader->bytes, &reader->capacity, end - first + 1, c->error);
    if (!status)
        status = trajd_read_exactly(c->fd, c->array->payload_offset + first, end - first,
                                    reader->bytes, c->error);
    for (uint64_t r = 0; r < c->row_count && !status; r++) {
        const uint64_t begin = trajd_u64_at(reader->stored + 8 * r);
        reader->rows[r] = (struct trajd_row_bytes){
            reader->bytes + (begin - first), trajd_u64_at(reader->stored + 8 * (r + 1)) - begin};
    }
    return status;
}

/* ---- all forms ---- */

enum trajd_status trajd_encoded_read(struct trajd_encoded_reader *reader, int fd,
                                     uint64_t file_size, const struct trajd_array *array,
                                     uint64_t row_begin, uint64_t row_count,
                                     const struct trajd_row_bytes **rows, uint64_t *done,
                                     struct trajd_error *error)
{
    struct trajd_encoded_call c = {reader, fd, file_size, array, row_begin, row_count, error, 0};
    enum trajd_status status = TRAJD_OK;

    *rows = reader->rows;
    if (row_count > trajd_array_row_count(array) ||
        row_begin > trajd_array_row_count(array) - row_count || !trajd_array_is_encoded(array))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "rows from %llu, %llu of them, of %llu encoded ones",
                               (unsigned long long)row_begin, (unsigned long long)row_count,
                               (unsigned long long)trajd_array_row_count(array));
    if (c.row_count > TRAJD_ENCODED_CALL_ROWS)
        c.row_count = TRAJD_ENCODED_CALL_ROWS;
    if (c.row_count)
        status = array->form == TRAJD_ROWS_HEAP     ? trajd_encoded_read_heap(&c)
                 : array->form == TRAJD_ROWS_PACKED ? read_packed(&c)
                                                    : read_padded(&c);
    *done = status ? 0 : c.row_count;
    return status;
}

uint64_t trajd_encoded_row_room(const struct trajd_array *array, uint64_t size)
{
    return array->form == TRAJD_ROWS_PADDED || array->form == TRAJD_ROWS_STRING ? array->shape[1]
                                                                                : size;
}

uint64_t trajd_encoded_frame_bytes(const struct trajd_array *array,
                                   const struct trajd_row_bytes *row,
                                   const struct trajd_layout_image *image,
                                   struct trajd_picture *picture)
{
    const uint64_t room = trajd_encoded_row_room(array, row->size);

    if (trajd_picture_examine(row->data, row->size, room, image, picture, NULL)) {
        *picture = (struct trajd_picture){0};
        return row->size;
    }
    return picture->encoding == TRAJD_PICTURE_RAW ? trajd_picture_raw_bytes(picture) : row->size;
}

const char *trajd_row_form_name(enum trajd_row_form form)
{
    static const char *const names[] = {"plain", "padded", "strings", "variable length", "packed"};

    return form <= TRAJD_ROWS_PACKED ? names[form] : "?";
}
