/* What the files of `trajctl pack` share. */
#ifndef TRAJD_CLI_PACK_INTERNAL_H
#define TRAJD_CLI_PACK_INTERNAL_H

#include "clients/cli/pack/pack_file.h"
#include "clients/cli/resample/convert_writer.h"
#include "clients/cli/resample/output_file.h"
#include "daemon/index/rows/encoded.h"

enum { PACK_PATH_SIZE = 4096 };

/* One dataset of frames. */
struct pack_dataset {
    char *path;               /* from the root, without a slash in front */
    struct trajd_array array; /* with all rows of the dataset */
    const struct trajd_index_stream *stream;
    bool is_prepared;
    struct trajd_image_preparation preparation; /* if it is */
    uint32_t jpeg_quality;                      /* of prepared frames; 0: they are raw */
    struct trajd_layout_image image;            /* of the output, with the size of its frames */
    enum trajd_image_encoding encoding;
    int64_t *offsets; /* [rows + 1] */
};

/* The arrays of packed frames, as the helper program counts them. */
enum { PACK_BYTES, PACK_OFFSETS };

struct pack {
    const struct pack_options *options;
    struct trajd_error *error;
    struct trajd_encoded_reader *reader;
    int input;
    int spool; /* has the JPEGs of one dataset until their length is known; -1: there is none */
    struct output_file output;
    struct convert_writer writer;
    struct convert_block *rows; /* a block that is filled; NULL: none */
    uint32_t written;           /* datasets that are complete in the output */
    uint32_t count;
    struct pack_dataset *datasets;
    struct pack_result *result;
    uint64_t rows_done,
        row_total; /* for progress: encoded rows count twice, measured and written */
};

/* ---- pack_rows.c ---- */

enum trajd_status pack_check_cancelled(struct pack *pack);
void pack_report_rows(struct pack *pack, uint64_t count);
/* Names file and dataset in the error of a read. Returns the status. */
enum trajd_status pack_read_failed(struct pack *pack, const struct pack_dataset *dataset,
                                   enum trajd_status status);
/* Writes `length` bytes to an array of the dataset that is being written, from the element `first`
 * on. */
enum trajd_status pack_put(struct pack *pack, uint32_t array, uint64_t first, const void *data,
                           uint64_t length);
/* Writes where the frames begin, which completes the dataset, and lets the disk begin. */
enum trajd_status pack_write_offsets(struct pack *pack, const struct pack_dataset *dataset);

/* Returns how many rows of a dataset pack_measure and pack_write read. */
uint64_t pack_count_rows(const struct pack_dataset *dataset);

/* Finds where each frame of a dataset goes, and the encoding that all have. Prepared frames may
 * come to lie closer together. */
enum trajd_status pack_measure(struct pack *pack, struct pack_dataset *dataset);

/* Writes the frames. TRAJD_ERR_DATA: a row changed since it was measured, or raw pixels look like a
 * JPEG or PNG. */
enum trajd_status pack_write(struct pack *pack, const struct pack_dataset *dataset);

/* Adds bytes to the spool, which it makes beside the output: a file without a name. */
enum trajd_status pack_spool(struct pack *pack, const void *data, uint64_t size);
/* Writes the frames that are in the spool, and empties it. */
enum trajd_status pack_write_spooled(struct pack *pack, const struct pack_dataset *dataset);

/* ---- pack_prepare.c ---- */

/* Finds what the options do to the frames of the dataset's stream. TRAJD_ERR_ARGUMENT: they
 * contradict each other, or do not fit the frames. */
enum trajd_status pack_find_preparation(struct pack *pack, struct pack_dataset *dataset);

/* Prepares the frames and writes them, raw ones to the output and JPEGs to the spool. A frame that
 * cannot be decoded becomes a row with the reason, one that the layout masks an empty row. Sets the
 * offsets. */
enum trajd_status pack_prepare(struct pack *pack, struct pack_dataset *dataset);

#endif
