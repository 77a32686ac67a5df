/* Rows that lie in the global heap of an HDF5 file. Many rows are found in one call: their
 * references are sorted by collection, and collections that lie close together are read at once. */
#include "daemon/index/rows/encoded_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/index/rows/read_exactly.h"

/* collections closer than this are read together */
#define GAP_BYTES 4096u
/* what libhdf5 makes a collection at least */
#define COLLECTION_BYTES_MIN 4096u
#define COLLECTION_BYTES_MAX (TRAJD_ROW_BYTES_MAX + COLLECTION_BYTES_MIN)
#define OBJECT_COUNT 65536u

static enum trajd_status row_failed(const struct trajd_encoded_call *c,
                                    const struct trajd_row_reference *reference, const char *rule)
{
    return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                           "row %llu: its reference (object %u of the heap collection at offset "
                           "%llu, %u bytes) %s",
                           (unsigned long long)reference->row, reference->to.index,
                           (unsigned long long)reference->to.collection, reference->to.length,
                           rule);
}

static enum trajd_status check_reference(const struct trajd_encoded_call *c,
                                         const struct trajd_row_reference *reference)
{
    const struct trajd_heap_reference *to = &reference->to;

    if (!to->length)
        return TRAJD_OK;
    if (to->length > TRAJD_ROW_BYTES_MAX)
        return row_failed(c, reference, "is longer than 64 MiB");
    if (!to->collection || to->collection > c->file_size ||
        c->file_size - to->collection < 2 * TRAJD_HEAP_HEAD_BYTES + (uint64_t)to->length)
        return row_failed(c, reference, "leads beyond the file");
    if (!to->index || to->index >= OBJECT_COUNT)
        return row_failed(c, reference, "leads to no object");
    return TRAJD_OK;
}

/* Returns the bytes that an object has in a collection. */
static uint64_t object_bytes(const struct trajd_heap_reference *to)
{
    return TRAJD_HEAP_HEAD_BYTES + (((uint64_t)to->length + 7) & ~UINT64_C(7));
}

/* Returns the bytes to read of the collection at the front of a sorted list: all of it where it
 * holds only these rows, or many small ones. *rows becomes their number. */
static uint64_t probable_bytes(const struct trajd_encoded_call *c,
                               const struct trajd_row_reference *references, uint64_t count,
                               uint64_t *rows)
{
    const uint64_t collection = references->to.collection, room = c->file_size - collection;
    uint64_t bytes = TRAJD_HEAP_HEAD_BYTES, n = 0;

    for (; n < count && references[n].to.collection == collection; n++)
        bytes += object_bytes(&references[n].to);
    *rows = n;
    bytes = bytes < COLLECTION_BYTES_MIN ? COLLECTION_BYTES_MIN : bytes;
    return bytes < room ? bytes : room;
}

static int by_place(const void *a, const void *b)
{
    const struct trajd_row_reference *left = a, *right = b;

    if (left->to.collection != right->to.collection)
        return left->to.collection < right->to.collection ? -1 : 1;
    return (left->row > right->row) - (left->row < right->row);
}

/* Reads and checks the references of as many rows as one call takes, and sorts those that lead
 * somewhere. *count becomes their number. */
static enum trajd_status read_references(struct trajd_encoded_call *c, uint64_t *count)
{
    struct trajd_encoded_reader *reader = c->reader;
    struct trajd_row_reference *next = reader->references;
    uint64_t bytes = 0, r;
    enum trajd_status status =
        trajd_encoded_grow(&reader->stored, &reader->stored_capacity,
                           c->row_count * TRAJD_HEAP_REFERENCE_BYTES, c->error);

    if (!status)
        status = trajd_array_read(reader->arrays, c->fd, c->array, c->row_begin, c->row_count,
                                  reader->stored, c->error);
    for (r = 0; r < c->row_count && !status; r++) {
        next->to = trajd_heap_reference_at(reader->stored + r * TRAJD_HEAP_REFERENCE_BYTES);
        next->row = c->row_begin + r;
        reader->rows[r] = (struct trajd_row_bytes){NULL, 0};
        status = check_reference(c, next);
        if (status || !next->to.length)
            continue;
        bytes += object_bytes(&next->to) + COLLECTION_BYTES_MIN + GAP_BYTES;
        if (bytes > TRAJD_ENCODED_CALL_BYTES && r)
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
static enum trajd_heap_step find_objects(struct trajd_encoded_call *c, struct trajd_heap_walk *walk,
                                         uint32_t only)
{
    struct trajd_heap_slot *slots = c->reader->slots;
    const uint64_t base = (uint64_t)(walk->bytes - c->reader->bytes);
    struct trajd_heap_object object;
    enum trajd_heap_step step;

    if (!++c->reader->search) { /* after 2^32 searches the old numbers come again */
        memset(slots, 0, OBJECT_COUNT * sizeof *slots);
        c->reader->search = 1;
    }
    while ((step = trajd_heap_next(walk, &object)) == TRAJD_HEAP_OBJECT) {
        if (slots[object.index].search == c->reader->search)
            return TRAJD_HEAP_DAMAGED; /* twice the same index */
        slots[object.index] =
            (struct trajd_heap_slot){c->reader->search, base + object.offset, object.size};
        if (object.index == only)
            return TRAJD_HEAP_END;
    }
    return step;
}

static bool are_found(const struct trajd_encoded_call *c,
                      const struct trajd_row_reference *references, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (c->reader->slots[references[i].to.index].search != c->reader->search)
            return false;
    return true;
}

/* Reads a whole collection behind the bytes that were read. */
static enum trajd_status read_collection(struct trajd_encoded_call *c, uint64_t collection,
                                         uint64_t size, struct trajd_heap_walk *walk)
{
    struct trajd_encoded_reader *reader = c->reader;
    enum trajd_status status;

    if (size > 4 * TRAJD_ENCODED_CALL_BYTES - c->used)
        return trajd_error_set(c->error, TRAJD_ERR_DATA, 0,
                               "the heap collections of rows %llu..%llu have more than %llu bytes",
                               (unsigned long long)c->row_begin,
                               (unsigned long long)(c->row_begin + c->row_count - 1),
                               (unsigned long long)(4 * TRAJD_ENCODED_CALL_BYTES));
    status = trajd_encoded_grow(&reader->bytes, &reader->capacity, c->used + size, c->error);
    if (!status)
        status = trajd_read_exactly(c->fd, collection, size, reader->bytes + c->used, c->error);
    if (!status)
        status = trajd_heap_begin(walk, reader->bytes + c->used, size, size, c->error);
    c->used += size;
    return status;
}

/* Finds the rows that lie in one collection, of which the bytes at `place` were read. A row's place
 * stays a number until all are found, because the buffer may move. */
static enum trajd_status find_rows(struct trajd_encoded_call *c,
                                   struct trajd_row_reference *references, uint64_t count,
                                   uint64_t place, uint64_t have)
{
    struct trajd_encoded_reader *reader = c->reader;
    const uint64_t collection = references->to.collection, room = c->file_size - collection,
                   most = room < COLLECTION_BYTES_MAX ? room : COLLECTION_BYTES_MAX;
    const uint32_t only = count == 1 ? references->to.index : 0;
    struct trajd_heap_walk walk;
    enum trajd_heap_step step;
    enum trajd_status status = trajd_heap_begin(&walk, reader->bytes + place, have, most, c->error);

    if (status) {
        trajd_error_prefix(c->error, "row %llu: offset %llu", (unsigned long long)references->row,
                           (unsigned long long)collection);
        return status;
    }
    step = find_objects(c, &walk, only);
    if (step == TRAJD_HEAP_SHORT && !are_found(c, references, count)) {
        status = read_collection(c, collection, walk.size, &walk);
        if (status)
            return status;
        step = find_objects(c, &walk, only);
    }
    if (step == TRAJD_HEAP_DAMAGED)
        return row_failed(c, references, "leads to a damaged collection");
    for (uint64_t i = 0; i < count; i++) {
        const struct trajd_heap_slot *slot = &reader->slots[references[i].to.index];
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
static enum trajd_status read_run(struct trajd_encoded_call *c,
                                  struct trajd_row_reference *references, uint64_t count,
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
    status = trajd_encoded_grow(&reader->bytes, &reader->capacity, place + (end - begin), c->error);
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

enum trajd_status trajd_encoded_read_heap(struct trajd_encoded_call *c)
{
    struct trajd_encoded_reader *reader = c->reader;
    uint64_t count = 0;
    enum trajd_status status;

    if (!reader->references)
        reader->references = malloc(TRAJD_ENCODED_CALL_ROWS * sizeof *reader->references);
    if (!reader->slots)
        reader->slots = calloc(OBJECT_COUNT, sizeof *reader->slots);
    status = reader->references && reader->slots ? read_references(c, &count)
                                                 : trajd_encoded_no_memory(c->error);
    for (uint64_t i = 0, used; i < count && !status; i += used)
        status = read_run(c, reader->references + i, count - i, &used);
    for (uint64_t i = 0; i < count && !status; i++) {
        const struct trajd_row_reference *reference = &reader->references[i];
        reader->rows[reference->row - c->row_begin] =
            (struct trajd_row_bytes){reader->bytes + reference->place, reference->to.length};
    }
    return status;
}
