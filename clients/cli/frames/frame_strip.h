/* trajctl plot of pictures: frames of an episode side by side, as a policy gets them. */
#ifndef TRAJD_CLI_FRAMES_FRAME_STRIP_H
#define TRAJD_CLI_FRAMES_FRAME_STRIP_H

#include "clients/cli/frames/frame_read.h"

#define FRAME_STRIP_MAX 100u /* frames */

struct frame_strip_request {
    const char *stream, *episode; /* episode: its id */
    const char *output;           /* the PNG file, which must not exist */
    struct frame_resize resize;   /* of all frames */
    uint32_t count;               /* 1 to FRAME_STRIP_MAX */
    const uint64_t *rows;         /* [count], of the file */
};

/* Writes the frames, ten in a line. A frame that cannot be decoded becomes a grey box, and
 * *bad_count counts it; `reason` becomes that of the first one. Blocks. TRAJD_ERR_ARGUMENT and
 * TRAJD_ERR_NOT_FOUND: a mistake in the request, also a picture of more than 100 million pixels. */
enum trajd_status frame_strip(const struct trajd_index *index,
                              const struct frame_strip_request *request, uint32_t *bad_count,
                              struct trajd_error *reason, struct trajd_error *error);

#endif
