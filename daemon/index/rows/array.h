/* An array: one HDF5 dataset of one episode, as a place of bytes in a file. Its rows are read
 * without libhdf5. */
#ifndef TRAJD_INDEX_ARRAY_H
#define TRAJD_INDEX_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/index/rows/image_header.h"
#include "daemon/layout/quaternions.h"
#include "proto/dtype.h"
#include "proto/error.h"

#define TRAJD_ARRAY_MAX_RANK 6
#define TRAJD_ARRAY_MAX_FILTERS 4
#define TRAJD_ARRAY_MISSING_CHUNK UINT64_MAX
#define TRAJD_ARRAY_MAX_CHUNK_BYTES (UINT64_C(256) << 20)

enum trajd_storage {
    TRAJD_STORAGE_ABSENT = 0, /* the episode has no such array */
    /* no rows, no columns, or never written: all rows are the fill value */
    TRAJD_STORAGE_EMPTY = 1,
    TRAJD_STORAGE_CONTIGUOUS = 2, /* size_bytes at offset */
    TRAJD_STORAGE_CHUNKED = 3,
    TRAJD_STORAGE_INLINE = 4, /* HDF5's compact storage: the bytes are in the index */
};

/* How the stored rows become rows. All forms but the first are *encoded*: a row is a run of bytes
 * of its own length, such as a JPEG (encoded.h), or a frame of packed video, which needs other rows'
 * bytes, too. */
enum trajd_row_form {
    TRAJD_ROWS_PLAIN = 0,  /* elements, as they are stored */
    TRAJD_ROWS_PADDED = 1, /* u8 (T, P): the bytes of a row, and zeros behind them */
    TRAJD_ROWS_STRING = 2, /* the same, in fixed strings of P bytes */
    TRAJD_ROWS_HEAP = 3,   /* u8 (T, 16): references to the global heap (encoded.c) */
    /* i64 (T): where each row begins in the payload, which another dataset holds. One more offset
     * follows: the end of the last row */
    TRAJD_ROWS_PACKED = 4,
    /* i64 (T): the packet whose frame each row shows (packed_video.h). The payload has the packets, unless
     * another file has them */
    TRAJD_ROWS_VIDEO = 5
};
#define TRAJD_PREPARATION_TEXT_MAX 512u
#define TRAJD_HEAP_REFERENCE_BYTES 16 /* of a row with form HEAP: length, collection, object */
#define TRAJD_ROW_BYTES_MAX (UINT64_C(64) << 20) /* of an encoded row */

/* The numbers of HDF5's filters. lzf comes with h5py. */
enum trajd_filter {
    TRAJD_FILTER_DEFLATE = 1,
    TRAJD_FILTER_SHUFFLE = 2,
    TRAJD_FILTER_FLETCHER32 = 3,
    TRAJD_FILTER_LZF = 32000
};

struct trajd_video;

struct trajd_chunk {
    uint64_t offset;      /* in the file; TRAJD_ARRAY_MISSING_CHUNK: never written */
    uint32_t stored_size; /* bytes in the file */
    uint32_t filter_mask; /* bit f set: filter f was not applied to this chunk */
};

/* Elements in row-major order: shape[0] rows of shape[1] x ... elements. All numbers are checked
 * against overflow and against the file's size before a record is accepted. An array does not
 * change afterwards; its pointers are borrowed from the index. */
struct trajd_array {
    enum trajd_storage storage;
    enum trajd_dtype dtype; /* of the stored rows */
    enum trajd_row_form form;
    bool is_enum;  /* the numbers are names: nothing lies between them */
    uint32_t rank; /* 1..TRAJD_ARRAY_MAX_RANK; scalars are refused */
    uint64_t shape[TRAJD_ARRAY_MAX_RANK];
    uint64_t offset;                        /* in the file, of contiguous storage */
    uint64_t size_bytes;                    /* of all elements; at most INT64_MAX */
    uint64_t cut_rows;                      /* behind the last row: trajd_array_cut left them out */
    uint64_t payload_offset, payload_bytes; /* TRAJD_ROWS_PACKED, TRAJD_ROWS_VIDEO */
    const struct trajd_video *video;        /* TRAJD_ROWS_VIDEO; else NULL */
    struct trajd_image_header header;       /* of encoded rows: the first frame */
    /* TRAJD_ROWS_PACKED: how `trajctl pack --prepare` made the frames, as the file says it, in up
     * to TRAJD_PREPARATION_TEXT_MAX bytes (window/image/image_prepared.h). NULL: as recorded */
    const char *preparation;
    const uint8_t *inline_bytes;
    uint32_t filter_count;
    uint16_t filters[TRAJD_ARRAY_MAX_FILTERS]; /* in the order that the writer applied them */
    uint64_t chunk_shape[TRAJD_ARRAY_MAX_RANK];
    /* of a slice of a chunked array: rows of its first chunk that come before its row 0; less than
     * chunk_shape[0] */
    uint64_t chunk_row;
    uint64_t chunk_count; /* product of ceil(shape / chunk_shape), of axis 0 with chunk_row */
    const struct trajd_chunk *chunks; /* [chunk_count], row-major over the grid */
    uint8_t fill[8];                  /* one element */
    bool has_attributes; /* the dataset has attributes, which a copy has to take along */
    /* columns that are quaternions in the rows that were sampled, ascending */
    uint32_t quaternion_count;
    const struct trajd_quaternion *quaternions;
};

/* Returns the number of rows; 0 where the array is absent. */
uint64_t trajd_array_row_count(const struct trajd_array *array);
static inline bool trajd_array_is_encoded(const struct trajd_array *array)
{
    return array->form != TRAJD_ROWS_PLAIN;
}
/* Returns the number of elements in a stored row: the product of shape[1..], 1 for rank 1. */
uint64_t trajd_array_row_elements(const struct trajd_array *array);
/* Returns the bytes of a stored row. */
uint64_t trajd_array_row_bytes(const struct trajd_array *array);
/* Returns the bytes of one element as the filters see it. */
uint32_t trajd_array_element_bytes(const struct trajd_array *array);
/* Returns the bytes of one chunk in memory, not filtered; 0 where the array is not chunked. */
uint64_t trajd_array_chunk_bytes(const struct trajd_array *array);

/* Makes the array one of its row ranges, which must be in it, with one row at least. */
void trajd_array_slice(struct trajd_array *array, uint64_t row_begin, uint64_t rows);
/* Cuts an array to its first `rows` rows, which it must have, and one at least. Chunks are in
 * row-major order, so their list just ends earlier. */
void trajd_array_cut(struct trajd_array *array, uint64_t rows);
/* Gives back the rows that trajd_array_cut left out. */
void trajd_array_uncut(struct trajd_array *array);

/* Checks everything that trajd_array_read relies on: rank, overflow, offsets within the file,
 * number and sizes of chunks, filters. `inline_size`: bytes at inline_bytes. TRAJD_ERR_DATA or
 * TRAJD_ERR_UNSUPPORTED, which name the field. */
enum trajd_status trajd_array_check(const struct trajd_array *array, uint64_t file_size_bytes,
                                    uint64_t inline_size, struct trajd_error *error);

/* The scratch memory of one reading thread: a decompressor and buffers, which grow to the largest
 * chunk that was read, 256 MiB at most. Not thread-safe: one for each thread. */
struct trajd_array_reader;
enum trajd_status trajd_array_reader_create(struct trajd_array_reader **reader,
                                            struct trajd_error *error);
void trajd_array_reader_destroy(struct trajd_array_reader **reader);
/* Keeps inflated chunks of at most 64 MiB from now on, or drops them. All reads meanwhile must be
 * from one file that does not change. For slices of the same arrays. */
void trajd_array_reader_keep(struct trajd_array_reader *reader, bool keeps);

/* Reads bytes of a file in one call, in which trajd_array_read then finds its own, until the next
 * call. All reads meanwhile must be from that file, and it must not change. `bytes` 0 ends that. */
enum trajd_status trajd_array_reader_load(struct trajd_array_reader *reader, int fd,
                                          uint64_t offset, uint64_t bytes,
                                          struct trajd_error *error);

/* Reads stored rows [row_begin, row_begin + row_count) densely into `rows`, which has room for
 * row_count * row_bytes. Reads with pread and inflates each chunk once, however many of its rows
 * are requested. Blocks. TRAJD_ERR_IO (with errno) where a read fails or the file ends early;
 * TRAJD_ERR_DATA where a chunk does not inflate to its size or fails its checksum, with chunk and
 * offset; TRAJD_ERR_ARGUMENT where the array lacks the rows; TRAJD_ERR_MEMORY. */
enum trajd_status trajd_array_read(struct trajd_array_reader *reader, int fd,
                                   const struct trajd_array *array, uint64_t row_begin,
                                   uint64_t row_count, void *rows, struct trajd_error *error);

/* Convert `count` elements to float64 or to int64, for stamps. Floating-point numbers become int64
 * by rounding down. False where the type is bool or none; to int64 also for NaN and for numbers
 * that int64 cannot hold. `elements` need not be aligned. */
bool trajd_array_to_f64(enum trajd_dtype dtype, const void *elements, uint64_t count, double *out);
bool trajd_array_to_i64(enum trajd_dtype dtype, const void *elements, uint64_t count, int64_t *out);

#endif
