/* One HDF5 dataset of one episode as bytes in a file: what the index records of it, and reading its
 * rows without libhdf5. */
#ifndef TRAJD_INDEX_ARRAY_H
#define TRAJD_INDEX_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/error.h"

#define TRAJD_ARRAY_MAX_RANK 6
#define TRAJD_ARRAY_MAX_FILTERS 4
#define TRAJD_ARRAY_MISSING_CHUNK UINT64_MAX
#define TRAJD_ARRAY_MAX_CHUNK_BYTES (UINT64_C(256) << 20)

enum trajd_storage {
    TRAJD_STORAGE_ABSENT = 0, /* the episode has no such dataset */
    /* zero rows, zero width, or never written: rows are the fill value */
    TRAJD_STORAGE_EMPTY = 1,
    TRAJD_STORAGE_CONTIGUOUS = 2, /* size_bytes at offset */
    TRAJD_STORAGE_CHUNKED = 3,
    TRAJD_STORAGE_INLINE = 4, /* compact: the bytes are in the index */
};

/* HDF5 filter numbers; lzf is h5py's 32000. */
enum trajd_filter {
    TRAJD_FILTER_DEFLATE = 1,
    TRAJD_FILTER_SHUFFLE = 2,
    TRAJD_FILTER_FLETCHER32 = 3,
    TRAJD_FILTER_LZF = 32000
};

struct trajd_chunk {
    uint64_t offset;      /* in the file; TRAJD_ARRAY_MISSING_CHUNK: never written, fill value */
    uint32_t stored_size; /* bytes in the file */
    uint32_t filter_mask; /* bit f set: filter f of the pipeline was not applied to this chunk */
};

/* Row-major, rows first: shape[0] rows of shape[1] x ... elements. Every number was range-checked
 * against the file's size and against overflow when the record was accepted. Immutable; pointers
 * live as long as the index. */
struct trajd_array {
    enum trajd_storage storage;
    enum trajd_dtype dtype;
    uint32_t rank; /* 1..TRAJD_ARRAY_MAX_RANK; a scalar dataset is refused */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t offset;     /* contiguous */
    uint64_t size_bytes; /* of all elements; fits in memory arithmetic (checked) */
    const uint8_t *inline_bytes;
    uint32_t filter_count;
    uint16_t filters[TRAJD_ARRAY_MAX_FILTERS]; /* in the order of writing */
    uint64_t chunk_shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t chunk_count;             /* product over dimensions of ceil(shape / chunk_shape) */
    const struct trajd_chunk *chunks; /* row-major over the chunk grid */
    uint8_t fill[8];                  /* one element */
    bool has_attributes;              /* beside its rows: for who makes a copy of it */
};

uint64_t trajd_array_row_count(const struct trajd_array *array);
/* Elements in a row: the product of shape[1..]; 1 for rank 1; 0 for a zero-width dataset. */
uint64_t trajd_array_row_elements(const struct trajd_array *array);
uint64_t trajd_array_row_bytes(const struct trajd_array *array);
/* Bytes of a whole chunk in memory; 0 where the array is not chunked. */
uint64_t trajd_array_chunk_bytes(const struct trajd_array *array);

/* Checks every rule that reading relies on, against the size of the file: rank, overflow, offsets,
 * chunk count and sizes, filters. `inline_size` is how many bytes inline_bytes has. TRAJD_ERR_DATA
 * or TRAJD_ERR_UNSUPPORTED, naming the field. */
enum trajd_status trajd_array_check(const struct trajd_array *array, uint64_t file_size_bytes,
                                    uint64_t inline_size, struct trajd_error *error);

/* Scratch of one reading thread: chunk buffers and a decompressor, grown to the largest chunk seen
 * up to a limit of 256 MiB. Not thread-safe; one per thread. */
struct trajd_array_reader;
enum trajd_status trajd_array_reader_create(struct trajd_array_reader **reader,
                                            struct trajd_error *error);
void trajd_array_reader_destroy(struct trajd_array_reader **reader);

/* Reads rows [row_begin, row_begin + row_count) densely into `rows` (row_count * row_bytes). pread
 * at the index's offsets, every chunk inflated once however many of its rows are asked for. Errors:
 * TRAJD_ERR_IO for a read that fails or ends early (with errno), TRAJD_ERR_DATA for a chunk that
 * does not inflate to its size or fails its checksum, naming chunk and offset. */
enum trajd_status trajd_array_read(struct trajd_array_reader *reader, int fd,
                                   const struct trajd_array *array, uint64_t row_begin,
                                   uint64_t row_count, void *rows, struct trajd_error *error);

/* Converts `count` elements to float64 / int64 (for stamps). False where the type cannot (bool,
 * none). To int64 the floor of a floating-point number is taken; NaN and numbers beyond int64 are
 * false too. `elements` need not be aligned. */
bool trajd_array_to_f64(enum trajd_dtype dtype, const void *elements, uint64_t count, double *out);
bool trajd_array_to_i64(enum trajd_dtype dtype, const void *elements, uint64_t count, int64_t *out);

#endif
