/* Compares the object headers of datasets (version 1, in one block):
 *
 *     header    := u8 version 1, u8 0, u16 messages, u32 references, u32 bytes, 4 bytes 0, message*
 *     message   := u16 type, u16 bytes, u8 flags, 3 bytes 0, data
 *     dataspace := u8 version 1, u8 rank, u8 flags, 5 bytes 0, u64 extent * rank, if flags are 1 as
 *                  many largest extents
 *     layout    := u8 version 3, u8 class 1 (contiguous), u64 address, u64 bytes
 *
 * Equal bytes mean the same to libhdf5. The address, the number of rows and the time of a change may
 * differ. The bytes come from a file and are not trusted. */

#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"
#include "daemon/base/digest.h"
#include "daemon/hdf5/helper_socket.h"
#include "daemon/index/rows/file_bytes.h"

enum {
    PLACES = 256,
    PATH_BYTES = 128,
    HEADER_BYTES_MAX = 512,
    PREFIX_BYTES = 16,
    MESSAGE_BYTES = 8,
    MESSAGE_NONE = 0,
    MESSAGE_SPACE = 1,
    MESSAGE_LAYOUT = 8,
    MESSAGE_OLD_TIME = 14,
    MESSAGE_FURTHER = 16,
    MESSAGE_TIME = 18,
    FLAG_SHARED = 2
};
static const uint64_t row_count_max = 1u << 31;

/* A header, with zeros for what may differ. */
struct form {
    uint64_t address, bytes, rows;
    uint32_t length;
    uint8_t header[HEADER_BYTES_MAX];
};

static struct {
    char path[PATH_BYTES]; /* "": none is kept here */
    const struct trajd_layout_image *image;
    struct form form;
    struct trajd_record_array dataset;
} kept[PLACES];

static uint64_t take_u64(uint8_t *at)
{
    const uint64_t value = trajd_u64_at(at);

    memset(at, 0, sizeof value);
    return value;
}

static bool take_space(struct form *form, uint8_t *data, uint32_t size)
{
    const uint32_t rank = data[1];
    const bool has_largest = size > 2 && data[2] == 1;

    if (size < 8 || data[0] != 1 || data[2] > 1 || !rank || rank > TRAJD_ARRAY_MAX_RANK ||
        size < 8 + 8 * rank * (1u + has_largest) || form->rows)
        return false;
    form->rows = take_u64(data + 8);
    return form->rows && (!has_largest || take_u64(data + 8 + 8 * rank) == form->rows);
}

static bool take_layout(struct form *form, uint8_t *data, uint32_t size)
{
    if (size < 18 || data[0] != 3 || data[1] != 1 || form->bytes)
        return false;
    form->address = take_u64(data + 2);
    form->bytes = take_u64(data + 10);
    return form->bytes && form->address != HADDR_UNDEF;
}

/* Takes out of a message what may differ. Returns false for one that refers to other places. */
static bool take_message(struct form *form, uint32_t type, uint8_t *data, uint32_t size)
{
    switch (type) {
    case MESSAGE_NONE: /* has what it was before it was removed */
    case MESSAGE_TIME:
        memset(data, 0, size);
        return true;
    case MESSAGE_SPACE:
        return take_space(form, data, size);
    case MESSAGE_LAYOUT:
        return take_layout(form, data, size);
    default:
        return type != MESSAGE_OLD_TIME && type != MESSAGE_FURTHER;
    }
}

/* Reads a header. Returns false for one of another form. */
static bool read_form(struct trajd_scan *scan, haddr_t at, struct form *form)
{
    uint64_t end;

    *form = (struct form){0};
    if (!trajd_descriptor_read(&scan->descriptor, at, PREFIX_BYTES, form->header) ||
        form->header[0] != 1)
        return false;
    end = (uint64_t)PREFIX_BYTES + trajd_u32_at(form->header + 8);
    if (end > HEADER_BYTES_MAX ||
        !trajd_descriptor_read(&scan->descriptor, at + PREFIX_BYTES, end - PREFIX_BYTES,
                               form->header + PREFIX_BYTES))
        return false;
    form->length = (uint32_t)end;
    for (uint64_t next = PREFIX_BYTES; end - next >= MESSAGE_BYTES;) {
        uint8_t *message = form->header + next;
        const uint32_t size = trajd_u16_at(message + 2);
        if (size > end - next - MESSAGE_BYTES || (message[4] & FLAG_SHARED) ||
            !take_message(form, trajd_u16_at(message), message + MESSAGE_BYTES, size))
            return false;
        next += MESSAGE_BYTES + size;
    }
    return form->rows && form->bytes;
}

static uint32_t place_of(const char *path)
{
    return (uint32_t)(trajd_fnv(TRAJD_FNV_BEGIN, path, strlen(path)) % PLACES);
}

static bool may_be_alike(const struct trajd_scan *scan, const char *path, haddr_t header)
{
    return scan->has_wide_places && !scan->has_user_block && header != HADDR_UNDEF &&
           header < INT64_MAX && *path && strlen(path) < PATH_BYTES;
}

void trajd_scan_alike_keep(struct trajd_scan *scan, const char *path, haddr_t header,
                           const struct trajd_layout_image *image,
                           const struct trajd_record_array *dataset)
{
    const struct trajd_array *extent = &dataset->extent;
    const uint32_t place = place_of(path);
    struct form *form = &kept[place].form;

    if (!may_be_alike(scan, path, header))
        return;
    kept[place].path[0] = '\0';
    if (dataset->refusal || extent->storage != TRAJD_STORAGE_CONTIGUOUS ||
        (extent->form != TRAJD_ROWS_PLAIN && extent->form != TRAJD_ROWS_PADDED) ||
        !read_form(scan, header, form) || form->address != extent->offset ||
        form->bytes != extent->size_bytes || form->rows != extent->shape[0])
        return;
    strcpy(kept[place].path, path);
    kept[place].image = image;
    kept[place].dataset = *dataset;
}

/* Reads the first rows, for the parent to compare. Rows beyond the file's end are left to it. */
static bool read_first_rows(struct trajd_scan *scan, struct trajd_record_array *dataset)
{
    const struct trajd_array *array = &dataset->extent;
    const uint64_t row_bytes = array->size_bytes / array->shape[0];
    uint64_t rows = row_bytes > TRAJD_SCAN_CHECK_BYTES ? 1 : TRAJD_SCAN_CHECK_BYTES / row_bytes;
    uint8_t *bytes;
    bool ok;

    dataset->check_rows = dataset->check_digest = 0;
    if (row_bytes > TRAJD_SCAN_CHECK_ROW_MAX || array->offset > scan->file_size ||
        array->size_bytes > scan->file_size - array->offset)
        return true;
    rows = rows < array->shape[0] ? rows : array->shape[0];
    bytes = trajd_helper_memory(malloc(rows * row_bytes));
    ok = trajd_descriptor_read(&scan->descriptor, array->offset, rows * row_bytes, bytes);
    dataset->check_rows = rows;
    dataset->check_digest = trajd_digest_of(bytes, rows * row_bytes);
    free(bytes);
    return ok;
}

bool trajd_scan_alike(struct trajd_scan *scan, const char *path, haddr_t header,
                      const struct trajd_layout_image *image, struct trajd_record_array *dataset)
{
    const uint32_t place = place_of(path);
    const struct form *known = &kept[place].form;
    struct trajd_array *extent = &dataset->extent;
    struct form form;
    uint64_t size_bytes;

    if (!may_be_alike(scan, path, header) || strcmp(kept[place].path, path) != 0 ||
        kept[place].image != image || !read_form(scan, header, &form) ||
        form.length != known->length || memcmp(form.header, known->header, form.length) != 0 ||
        form.rows > row_count_max ||
        __builtin_mul_overflow(form.rows, known->bytes / known->rows, &size_bytes) ||
        size_bytes != form.bytes || size_bytes > INT64_MAX)
        return false;
    *dataset = kept[place].dataset;
    extent->offset = form.address;
    extent->size_bytes = form.bytes;
    extent->shape[0] = form.rows;
    return read_first_rows(scan, dataset);
}
