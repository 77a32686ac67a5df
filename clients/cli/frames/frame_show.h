/* trajctl inspect --frame: one frame as an image file, left as it is stored, right as a policy gets
 * it. A wrong colour or a wrong turn in a layout is seen at once. Where nothing says whether red or
 * blue is first, the sides are both readings. */
#ifndef TRAJD_CLI_FRAMES_FRAME_SHOW_H
#define TRAJD_CLI_FRAMES_FRAME_SHOW_H

#include <stdio.h>

#include "clients/cli/frames/frame_read.h"

/* What the command line asks for. A member that was not given is NULL. */
struct frame_request {
    const char *frame;          /* "STREAM:ROW" */
    const char *output;         /* the PNG file, which must not exist */
    const char *episode;        /* its id; default: the first kept one with the stream */
    struct frame_resize resize; /* of the right side */
};

/* Reads, decodes and writes the frame, and prints to `out` two lines that describe it. Blocks.
 * TRAJD_ERR_ARGUMENT and TRAJD_ERR_NOT_FOUND: a mistake in the request; TRAJD_ERR_DATA: the frame is
 * bad; else as of the index. */
enum trajd_status frame_show(const struct trajd_index *index, const struct frame_request *request,
                             FILE *out, struct trajd_error *error);

/* ---- trajctl plot of images: frames of an episode side by side, as a policy gets them ---- */

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
 * TRAJD_ERR_NOT_FOUND: a mistake in the request, also an image of more than 100 million pixels. */
enum trajd_status frame_strip(const struct trajd_index *index,
                              const struct frame_strip_request *request, uint32_t *bad_count,
                              struct trajd_error *reason, struct trajd_error *error);

#endif
