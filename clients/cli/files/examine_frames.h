/* Frames that no decoder will read, for trajctl validate. */
#ifndef TRAJD_CLI_FILES_EXAMINE_FRAMES_H
#define TRAJD_CLI_FILES_EXAMINE_FRAMES_H

#include "daemon/index/index.h"
#include "daemon/index/rows/encoded.h"

/* The encoded rows of one episode. */
struct examine_bad_frames {
    uint64_t empty_count, bad_count;
    int64_t first_empty, first_bad;      /* rows */
    char rule[TRAJD_ERROR_MESSAGE_SIZE]; /* that the first bad row breaks */
};

/* Reads every row of the stream's array and looks at its header; of prepared frames, at its size. TRAJD_ERR_IO: the storage failed.
 * TRAJD_ERR_MEMORY. */
enum trajd_status examine_frames(struct trajd_encoded_reader *reader, int fd, uint64_t file_size,
                                 const struct trajd_array *array,
                                 const struct trajd_index_stream *stream,
                                 struct examine_bad_frames *found, struct trajd_error *error);

#endif
