/* Reads rows that are runs of bytes of their own length, in the forms in which files hold them. */
#include <stdlib.h>
#include <string.h>

#include "daemon/index/rows/encoded.h"
#include "daemon/index/rows/file_bytes.h"

#define HEAP_HEAD_BYTES 16 /* of a collection, and of an object */

struct heap_reference {
    uint32_t length; /* 0: an empty row, which leads nowhere */
    uint64_t collection;
    uint32_t index;
};

/* the most bytes of one call, unless a single row has more */
#define CALL_BYTES (UINT64_C(64) << 20)
#define CALL_ROWS (UINT64_C(64) << 10)

/* A reference of one row. */
struct row_reference {
    struct heap_reference to;
    uint64_t row;
    uint64_t place; /* of the row's bytes, in those that were read */
};

/* An object of the collection that is searched. */
struct heap_slot {
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
    struct trajd_row_bytes *rows; /* [CALL_ROWS] */
    /* of a heap, each on first use */
    struct row_reference *references; /* [CALL_ROWS] */
    struct heap_slot *slots;          /* by index */
    uint32_t search;
};

/* One call of trajd_encoded_read. */
struct call {
    struct trajd_encoded_reader *reader;
    int fd;
    uint64_t file_size;
    const struct trajd_array *array;
    uint64_t row_begin, row_count;
    struct trajd_error *error;
    uint64_t used; /* bytes of reader->bytes */
};

static enum trajd_status no_memory(struct trajd_error *error)
{
    return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory to read encoded rows");
}

enum trajd_status trajd_encoded_reader_create(struct trajd_encoded_reader **reader,
                                              struct trajd_error *error)
{
    struct trajd_encoded_reader *made = calloc(1, sizeof *made);
    enum trajd_status status = TRAJD_OK;

    *reader = made;
    if (!made)
        return no_memory(error);
    made->rows = malloc(CALL_ROWS * sizeof *made->rows);
    status = made->rows ? trajd_array_reader_create(&made->arrays, error) : no_memory(error);
    if (status)
        trajd_encoded_reader_destroy(reader);
    return status;
}

void trajd_encoded_reader_destroy(struct trajd_encoded_reader **reader)
{
    struct trajd_encoded_reader *made = *reader;

    *reader = NULL;
    if (!made)
        return;
    trajd_array_reader_destroy(&made->arrays);
    free(made->bytes);
    free(made->stored);
    free(made->rows);
    free(made->references);
    free(made->slots);
    free(made);
}

void trajd_encoded_reader_keep(struct trajd_encoded_reader *reader, bool keeps)
{
    trajd_array_reader_keep(reader->arrays, keeps);
}

/* Makes room for `size` bytes in all, and keeps the bytes that are there. Grows by half at least,
 * so that many small runs do not move it often. */
static enum trajd_status grow(uint8_t **bytes, uint64_t *capacity, uint64_t size,
                              struct trajd_error *error)
{
    uint8_t *grown;

    if (size <= *capacity)
        return TRAJD_OK;
    size = size < *capacity + *capacity / 2 ? *capacity + *capacity / 2 : size;
    grown = realloc(*bytes, size);
    if (!grown)
        return no_memory(error);
    *bytes = grown;
    *capacity = size;
    return TRAJD_OK;
}

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

static enum trajd_status read_padded(struct call *c)
{
    struct trajd_encoded_reader *reader = c->reader;
    const uint64_t width = trajd_array_row_bytes(c->array);
    enum trajd_status status;

    if (width && c->row_count > CALL_BYTES / width)
        c->row_count = CALL_BYTES / width ? CALL_BYTES / width : 1;
    status = grow(&reader->bytes, &reader->capacity, c->row_count * width + 1, c->error);
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

static enum trajd_status check_offsets(const struct call *c, uint64_t row, uint64_t begin,
                                       uint64_t end)
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

static enum trajd_status read_packed(struct call *c)
{
    struct trajd_encoded_reader *reader = c->reader;
    struct trajd_array offsets = *c->array; /* with the offset behind the last row */
    uint64_t first, end;
    enum trajd_status status;

    offsets.shape[0]++;
    status = grow(&reader->stored, &reader->stored_capacity, (c->row_count + 1) * 8, c->error);
    if (!status)
        status = trajd_array_read(reader->arrays, c->fd, &offsets, c->row_begin, c->row_count + 1,
                                  reader->stored, c->error);
    if (status)
        return status;
    first = end = trajd_u64_at(reader->stored);
    for (uint64_t r = 0; r < c->row_count && !status; r++) {
        const uint64_t begin = end;
        end = trajd_u64_at(reader->stored + 8 * (r + 1));
        if (r && end >= begin && end - first > CALL_BYTES) {
            c->row_count = r;
            end = begin;
            break;
        }
        status = check_offsets(c, c->row_begin + r, begin, end);
    }
    if (!status)
        status = grow(&reader->bytes, &reader->capacity, end - first + 1, c->error);
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

/* ---- the heap ----
 *
 * Values of variable length are in the global heap of an HDF5 file. A row of such a dataset is a
 * reference of 16 bytes, which leads to an object in a collection:
 *
 *     reference  := u32 length, u64 address of the collection, u32 index of the object
 *     collection := "GCOL", u8 version 1, 3 bytes 0, u64 size of all, object*
 *     object     := u16 index, u16 references, 4 bytes 0, u64 size, data, 0 to 7 bytes of padding
 *
 * Index 0 is the free space, which comes last. The bytes come from a file and are not trusted. */

struct heap_object {
    uint16_t index;
    uint64_t offset; /* of its data, in the collection */
    uint64_t size;
};

/* A walk over the objects of a collection. */
struct heap_walk {
    const uint8_t *bytes; /* the first `have` bytes of the collection */
    uint64_t have, size, at;
};

enum heap_step {
    HEAP_OBJECT,
    HEAP_END,     /* no further object */
    HEAP_SHORT,   /* the next object goes beyond the bytes that were read */
    HEAP_DAMAGED, /* the next object goes beyond the collection */
};

static struct heap_reference reference_at(const uint8_t *bytes)
{
    return (struct heap_reference){trajd_u32_at(bytes), trajd_u64_at(bytes + 4),
                                   trajd_u32_at(bytes + 12)};
}

/* Begins a walk. `most`: the largest size that the collection can have at its place in the file.
 * TRAJD_ERR_DATA: it is none, or larger. */
static enum trajd_status heap_begin(struct heap_walk *walk, const uint8_t *bytes, uint64_t have,
                                    uint64_t most, struct trajd_error *error)
{
    *walk = (struct heap_walk){bytes, have, 0, HEAP_HEAD_BYTES};
    if (have < HEAP_HEAD_BYTES || memcmp(bytes, "GCOL", 4))
        return trajd_error_set(error, TRAJD_ERR_DATA, 0, "there is no heap collection");
    if (bytes[4] != 1)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "the heap collection has version %u, not 1", bytes[4]);
    walk->size = trajd_u64_at(bytes + 8);
    if (walk->size < HEAP_HEAD_BYTES || walk->size > most)
        return trajd_error_set(error, TRAJD_ERR_DATA, 0,
                               "the heap collection claims %llu bytes, there is room for %llu",
                               (unsigned long long)walk->size, (unsigned long long)most);
    if (walk->have > walk->size)
        walk->have = walk->size;
    return TRAJD_OK;
}

static enum heap_step heap_next(struct heap_walk *walk, struct heap_object *object)
{
    const uint64_t in_collection = walk->size - walk->at;
    const uint8_t *head;

    if (in_collection < HEAP_HEAD_BYTES)
        return HEAP_END; /* the rest is too small for an object */
    if (walk->at > walk->have || walk->have - walk->at < HEAP_HEAD_BYTES)
        return HEAP_SHORT;
    head = walk->bytes + walk->at;
    object->index = trajd_u16_at(head);
    object->size = trajd_u64_at(head + 8);
    object->offset = walk->at + HEAP_HEAD_BYTES;
    if (!object->index)
        return HEAP_END;
    if (object->size > walk->size - object->offset)
        return HEAP_DAMAGED;
    if (object->size > walk->have - object->offset)
        return HEAP_SHORT;
    walk->at = object->offset + object->size;
    walk->at += -walk->at & 7;
    if (walk->at > walk->size)
        walk->at = walk->size; /* without padding behind the last object */
    return HEAP_OBJECT;
}

/* collections closer than this are read together */
#define GAP_BYTES 4096u
/* what libhdf5 makes a collection at least */
#define COLLECTION_BYTES_MIN 4096u
#define COLLECTION_BYTES_MAX (TRAJD_ROW_BYTES_MAX + COLLECTION_BYTES_MIN)
#define OBJECT_COUNT 65536u

static enum trajd_status row_failed(const struct call *c, const struct row_reference *reference,
                                    const char *rule)
{
    return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                           "row %llu: its reference (object %u of the heap collection at offset "
                           "%llu, %u bytes) %s",
                           (unsigned long long)reference->row, reference->to.index,
                           (unsigned long long)reference->to.collection, reference->to.length,
                           rule);
}

static enum trajd_status check_reference(const struct call *c,
                                         const struct row_reference *reference)
{
    const struct heap_reference *to = &reference->to;

    if (!to->length)
        return TRAJD_OK;
    if (to->length > TRAJD_ROW_BYTES_MAX)
        return row_failed(c, reference, "is longer than 64 MiB");
    if (!to->collection || to->collection > c->file_size ||
        c->file_size - to->collection < 2 * HEAP_HEAD_BYTES + (uint64_t)to->length)
        return row_failed(c, reference, "leads beyond the file");
    if (!to->index || to->index >= OBJECT_COUNT)
        return row_failed(c, reference, "leads to no object");
    return TRAJD_OK;
}

/* Returns the bytes that an object has in a collection. */
static uint64_t object_bytes(const struct heap_reference *to)
{
    return HEAP_HEAD_BYTES + (((uint64_t)to->length + 7) & ~UINT64_C(7));
}

/* Returns the bytes to read of the collection at the front of a sorted list: all of it where it
 * holds only these rows, or many small ones. *rows becomes their number. */
static uint64_t probable_bytes(const struct call *c, const struct row_reference *references,
                               uint64_t count, uint64_t *rows)
{
    const uint64_t collection = references->to.collection, room = c->file_size - collection;
    uint64_t bytes = HEAP_HEAD_BYTES, n = 0;

    for (; n < count && references[n].to.collection == collection; n++)
        bytes += object_bytes(&references[n].to);
    *rows = n;
    bytes = bytes < COLLECTION_BYTES_MIN ? COLLECTION_BYTES_MIN : bytes;
    return bytes < room ? bytes : room;
}

static int by_place(const void *a, const void *b)
{
    const struct row_reference *left = a, *right = b;

    if (left->to.collection != right->to.collection)
        return left->to.collection < right->to.collection ? -1 : 1;
    return (left->row > right->row) - (left->row < right->row);
}

/* Reads and checks the references of as many rows as one call takes, and sorts those that lead
 * somewhere. *count becomes their number. */
static enum trajd_status read_references(struct call *c, uint64_t *count)
{
    struct trajd_encoded_reader *reader = c->reader;
    struct row_reference *next = reader->references;
    uint64_t bytes = 0, r;
    enum trajd_status status = grow(&reader->stored, &reader->stored_capacity,
                                    c->row_count * TRAJD_HEAP_REFERENCE_BYTES, c->error);

    if (!status)
        status = trajd_array_read(reader->arrays, c->fd, c->array, c->row_begin, c->row_count,
                                  reader->stored, c->error);
    for (r = 0; r < c->row_count && !status; r++) {
        next->to = reference_at(reader->stored + r * TRAJD_HEAP_REFERENCE_BYTES);
        next->row = c->row_begin + r;
        reader->rows[r] = (struct trajd_row_bytes){NULL, 0};
        status = check_reference(c, next);
        if (status || !next->to.length)
            continue;
        bytes += object_bytes(&next->to) + COLLECTION_BYTES_MIN + GAP_BYTES;
        if (bytes > CALL_BYTES && r)
            break;
        next++;
    }
    c->row_count = r;
    *count = (uint64_t)(next - reader->references);
    if (!status && *count > 1)
        qsort(reader->references, *count, sizeof *reader->references, by_place);
    return status;
}

/* Enters the objects of a collection into the slots, as many as were read. */
static enum heap_step find_objects(struct call *c, struct heap_walk *walk, uint32_t only)
{
    struct heap_slot *slots = c->reader->slots;
    const uint64_t base = (uint64_t)(walk->bytes - c->reader->bytes);
    struct heap_object object;
    enum heap_step step;

    if (!++c->reader->search) { /* after 2^32 searches the old numbers come again */
        memset(slots, 0, OBJECT_COUNT * sizeof *slots);
        c->reader->search = 1;
    }
    while ((step = heap_next(walk, &object)) == HEAP_OBJECT) {
        if (slots[object.index].search == c->reader->search)
            return HEAP_DAMAGED; /* twice the same index */
        slots[object.index] =
            (struct heap_slot){c->reader->search, base + object.offset, object.size};
        if (object.index == only)
            return HEAP_END;
    }
    return step;
}

static bool are_found(const struct call *c, const struct row_reference *references, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (c->reader->slots[references[i].to.index].search != c->reader->search)
            return false;
    return true;
}

/* Reads a whole collection behind the bytes that were read. */
static enum trajd_status read_collection(struct call *c, uint64_t collection, uint64_t size,
                                         struct heap_walk *walk)
{
    struct trajd_encoded_reader *reader = c->reader;
    enum trajd_status status;

    if (size > 4 * CALL_BYTES - c->used)
        return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                               "the heap collections of rows %llu..%llu have more than %llu bytes",
                               (unsigned long long)c->row_begin,
                               (unsigned long long)(c->row_begin + c->row_count - 1),
                               (unsigned long long)(4 * CALL_BYTES));
    status = grow(&reader->bytes, &reader->capacity, c->used + size, c->error);
    if (!status)
        status = trajd_read_exactly(c->fd, collection, size, reader->bytes + c->used, c->error);
    if (!status)
        status = heap_begin(walk, reader->bytes + c->used, size, size, c->error);
    c->used += size;
    return status;
}

/* Finds the rows that are in one collection, of which the bytes at `place` were read. A row's place
 * stays a number until all are found, because the buffer may move. */
static enum trajd_status find_rows(struct call *c, struct row_reference *references, uint64_t count,
                                   uint64_t place, uint64_t have)
{
    struct trajd_encoded_reader *reader = c->reader;
    const uint64_t collection = references->to.collection, room = c->file_size - collection,
                   most = room < COLLECTION_BYTES_MAX ? room : COLLECTION_BYTES_MAX;
    const uint32_t only = count == 1 ? references->to.index : 0;
    struct heap_walk walk;
    enum heap_step step;
    enum trajd_status status = heap_begin(&walk, reader->bytes + place, have, most, c->error);

    if (status) {
        trajd_error_prefix(c->error, "row %llu: offset %llu", (unsigned long long)references->row,
                           (unsigned long long)collection);
        return status;
    }
    step = find_objects(c, &walk, only);
    if (step == HEAP_SHORT && !are_found(c, references, count)) {
        status = read_collection(c, collection, walk.size, &walk);
        if (status)
            return status;
        step = find_objects(c, &walk, only);
    }
    if (step == HEAP_DAMAGED)
        return row_failed(c, references, "leads to a damaged collection");
    for (uint64_t i = 0; i < count; i++) {
        const struct heap_slot *slot = &reader->slots[references[i].to.index];
        if (slot->search != reader->search)
            return row_failed(c, &references[i], "leads to an object that is not there");
        if (slot->size < references[i].to.length)
            return row_failed(c, &references[i], "is longer than its object");
        references[i].place = slot->offset;
    }
    return TRAJD_OK;
}

/* Reads the collections at the front of the list that lie close together in one call, and finds
 * their rows. *used becomes the number of those rows. */
static enum trajd_status read_run(struct call *c, struct row_reference *references, uint64_t count,
                                  uint64_t *used)
{
    struct trajd_encoded_reader *reader = c->reader;
    const uint64_t begin = references->to.collection, place = c->used;
    uint64_t end = begin, n = 0;
    enum trajd_status status;

    for (uint64_t rows; n < count; n += rows) {
        const uint64_t at = references[n].to.collection;
        const uint64_t behind = at + probable_bytes(c, references + n, count - n, &rows);
        if (n && at > end && at - end > GAP_BYTES)
            break;
        end = behind > end ? behind : end;
    }
    *used = n;
    status = grow(&reader->bytes, &reader->capacity, place + (end - begin), c->error);
    if (!status)
        status = trajd_read_exactly(c->fd, begin, end - begin, reader->bytes + place, c->error);
    c->used += end - begin;
    for (uint64_t i = 0, group; i < n && !status; i += group) {
        const uint64_t collection = references[i].to.collection;
        for (group = 1; i + group < n; group++)
            if (references[i + group].to.collection != collection)
                break;
        status =
            find_rows(c, references + i, group, place + (collection - begin), end - collection);
    }
    return status;
}

static enum trajd_status read_heap(struct call *c)
{
    struct trajd_encoded_reader *reader = c->reader;
    uint64_t count = 0;
    enum trajd_status status;

    if (!reader->references)
        reader->references = malloc(CALL_ROWS * sizeof *reader->references);
    if (!reader->slots)
        reader->slots = calloc(OBJECT_COUNT, sizeof *reader->slots);
    status = reader->references && reader->slots ? read_references(c, &count) : no_memory(c->error);
    for (uint64_t i = 0, used; i < count && !status; i += used)
        status = read_run(c, reader->references + i, count - i, &used);
    for (uint64_t i = 0; i < count && !status; i++) {
        const struct row_reference *reference = &reader->references[i];
        reader->rows[reference->row - c->row_begin] =
            (struct trajd_row_bytes){reader->bytes + reference->place, reference->to.length};
    }
    return status;
}

/* ---- all ---- */

enum trajd_status trajd_encoded_read(struct trajd_encoded_reader *reader, int fd,
                                     uint64_t file_size, const struct trajd_array *array,
                                     uint64_t row_begin, uint64_t row_count,
                                     const struct trajd_row_bytes **rows, uint64_t *done,
                                     struct trajd_error *error)
{
    struct call c = {reader, fd, file_size, array, row_begin, row_count, error, 0};
    enum trajd_status status = TRAJD_OK;

    *rows = reader->rows;
    if (row_count > trajd_array_row_count(array) ||
        row_begin > trajd_array_row_count(array) - row_count || !trajd_array_is_encoded(array) ||
        array->form == TRAJD_ROWS_VIDEO)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "rows from %llu, %llu of them, of %llu encoded ones",
                               (unsigned long long)row_begin, (unsigned long long)row_count,
                               (unsigned long long)trajd_array_row_count(array));
    if (c.row_count > CALL_ROWS)
        c.row_count = CALL_ROWS;
    if (c.row_count)
        status = array->form == TRAJD_ROWS_HEAP     ? read_heap(&c)
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
                                   struct trajd_image_header *header)
{
    const uint64_t room = trajd_encoded_row_room(array, row->size);

    if (trajd_image_examine(row->data, row->size, room, image, header, NULL))
        return row->size;
    return header->encoding == TRAJD_ENCODING_RAW ? trajd_image_raw_bytes(header) : row->size;
}

const char *trajd_row_form_name(enum trajd_row_form form)
{
    static const char *const names[] = {"plain",           "padded", "strings",
                                        "variable length", "packed", "video"};

    return form <= TRAJD_ROWS_VIDEO ? names[form] : "?";
}
