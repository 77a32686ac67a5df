/* Decodes all encoded frames of a dataset, for trajctl validate. */
#ifndef TRAJD_CLI_FRAMES_FRAME_CHECK_H
#define TRAJD_CLI_FRAMES_FRAME_CHECK_H

#include "daemon/index/index.h"

/* The frames of one stream in one episode that cannot be decoded, although their headers are good. */
struct frame_check_bad {
    const struct trajd_episode *episode;
    const struct trajd_index_stream *stream;
    uint64_t count, first; /* first: a row */
    char reason[160];      /* of the first */
};

/* The frames of all kept episodes. prepared: by `trajctl pack --prepare`, as pixels, which no
 * decoder reads. */
struct frame_check_counts {
    uint64_t encoded, prepared;
};
struct frame_check_counts frame_check_count(const struct trajd_index *index);

/* Decodes the encoded frames in a child process and calls `report` for each episode and stream with bad ones.
 * Frames that are empty or whose header is bad are left out: examine_frames finds them. Blocks, and
 * reports its progress. TRAJD_ERR_IO, TRAJD_ERR_MEMORY, TRAJD_ERR_NOT_FOUND: no trajd-decoder. */
enum trajd_status frame_check(const struct trajd_index *index,
                              void (*report)(void *context, const struct frame_check_bad *bad),
                              void *context, struct trajd_error *error);

#endif
