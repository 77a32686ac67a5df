/* Rows that are runs of bytes of their own length, such as JPEG frames, over all forms in which
 * files hold them (enum trajd_row_form). Nothing is decoded here. */
#ifndef TRAJD_INDEX_ROWS_ENCODED_H
#define TRAJD_INDEX_ROWS_ENCODED_H

#include "daemon/index/rows/array.h"

struct trajd_row_bytes {
    const uint8_t *data;
    uint64_t size; /* 0: an empty row */
};

/* The scratch memory of one reading thread: its buffers grow to the most bytes that one call read,
 * which is about 64 MiB or one row. Not thread-safe: one for each thread. */
struct trajd_encoded_reader;
enum trajd_status trajd_encoded_reader_create(struct trajd_encoded_reader **reader,
                                              struct trajd_error *error);
void trajd_encoded_reader_destroy(struct trajd_encoded_reader **reader);

/* Does what trajd_array_reader_keep does. */
void trajd_encoded_reader_keep(struct trajd_encoded_reader *reader, bool keeps);

/* Reads rows from row_begin on: as many of row_count as fit 64 MiB, at least one. *rows becomes the
 * list of their *done spans, in the reader's memory until its next call. Rows that lie close
 * together are read in one call of pread, in the order of the file. file_size: of an array that
 * trajd_array_check accepted. Blocks. TRAJD_ERR_DATA names the first row that breaks a rule;
 * TRAJD_ERR_IO, TRAJD_ERR_ARGUMENT and TRAJD_ERR_MEMORY as trajd_array_read. */
enum trajd_status trajd_encoded_read(struct trajd_encoded_reader *reader, int fd,
                                     uint64_t file_size, const struct trajd_array *array,
                                     uint64_t row_begin, uint64_t row_count,
                                     const struct trajd_row_bytes **rows, uint64_t *done,
                                     struct trajd_error *error);

/* Returns the bytes that a row has room for, whose content has `size` bytes: the width of a padded
 * row. */
uint64_t trajd_encoded_row_room(const struct trajd_array *array, uint64_t size);

/* Returns the bytes of the frame that a row holds, and what it is: those of the row, but all of raw
 * pixels, which may end with zeros like a padding. A bad frame has those of the row, and no
 * image. `image`: with the size of the frames. */
uint64_t trajd_encoded_frame_bytes(const struct trajd_array *array,
                                   const struct trajd_row_bytes *row,
                                   const struct trajd_layout_image *image,
                                   struct trajd_image_header *header);

/* Returns "padded", "strings", "variable length", "packed", "video", or "plain". */
const char *trajd_row_form_name(enum trajd_row_form form);

#endif
