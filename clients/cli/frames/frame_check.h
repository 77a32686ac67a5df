/* Decodes all frames of a dataset and compares them, for trajctl validate. */
#ifndef TRAJD_CLI_FRAMES_FRAME_CHECK_H
#define TRAJD_CLI_FRAMES_FRAME_CHECK_H

#include "daemon/index/index.h"

/* The frames of one stream in one episode. */
struct frame_check_result {
    const struct trajd_episode *episode;
    const struct trajd_index_stream *stream;
    /* frames that cannot be decoded, although their headers are good, and the first such row */
    uint64_t count, first;
    char reason[160]; /* of the first */
    /* [rows of the array]: how far each frame is from the one before, as the mean over small versions
     * of both; 0: they are equal, NAN: one of them is missing. NULL: depth */
    float *changes;
};

/* The frames of all kept episodes. prepared: by `trajctl pack --prepare`, as pixels, which no
 * decoder reads. */
struct frame_check_counts {
    uint64_t encoded, prepared;
};
struct frame_check_counts frame_check_count(const struct trajd_index *index);

/* Decodes the encoded frames in a child process, compares each with the one before, also of raw pixels
 * of plain arrays, and calls `report` for each episode and stream. Frames that are empty or whose
 * header is bad are left out: examine_frames finds them. Blocks, and reports its progress.
 * TRAJD_ERR_IO, TRAJD_ERR_MEMORY, TRAJD_ERR_NOT_FOUND: no trajd-decoder. */
enum trajd_status frame_check(const struct trajd_index *index,
                              void (*report)(void *context,
                                             const struct frame_check_result *result),
                              void *context, struct trajd_error *error);

#endif
