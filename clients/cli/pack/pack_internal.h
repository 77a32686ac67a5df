/* What the files of `trajctl pack` share. */
#ifndef TRAJD_CLI_PACK_INTERNAL_H
#define TRAJD_CLI_PACK_INTERNAL_H

#include "clients/cli/pack/pack_file.h"
#include "daemon/index/rows/encoded.h"

enum { PACK_PATH_SIZE = 4096 };

/* One dataset of frames. */
struct pack_dataset {
    char *path;                      /* from the root, without a slash in front */
    struct trajd_array array;        /* with all rows of the dataset */
    struct trajd_layout_image image; /* with the size of the first frame */
    enum trajd_picture_encoding encoding;
    int64_t *offsets; /* [rows + 1] */
    uint64_t places[2];
};

struct pack {
    const struct pack_options *options;
    struct trajd_error *error;
    struct trajd_encoded_reader *reader;
    struct trajd_array_reader *pixels; /* reads rows that are raw pixels */
    uint8_t *block;                    /* of such rows; made on first use */
    uint64_t block_size;
    int input, output;
    char partial[PACK_PATH_SIZE];
    uint32_t count;
    struct pack_dataset *datasets;
    struct pack_result *result;
    uint64_t rows_done,
        row_total; /* for progress: encoded rows count twice, measured and written */
};

enum trajd_status pack_output_failed(struct pack *pack);

/* Returns how many rows of a dataset pack_measure and pack_write read. */
uint64_t pack_count_rows(const struct pack_dataset *dataset);

/* Finds where each frame of a dataset goes, and the encoding that all have. */
enum trajd_status pack_measure(struct pack *pack, struct pack_dataset *dataset);

/* Writes the frames and their offsets to the places in the output. TRAJD_ERR_DATA: a row changed
 * since it was measured, or raw pixels look like a JPEG or PNG. */
enum trajd_status pack_write(struct pack *pack, const struct pack_dataset *dataset);

#endif
