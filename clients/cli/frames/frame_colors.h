/* Which colour encoded frames have first, decided by raw frames of the same episodes. */
#ifndef TRAJD_CLI_FRAMES_FRAME_COLORS_H
#define TRAJD_CLI_FRAMES_FRAME_COLORS_H

#include "daemon/index/index.h"

/* Returns the first stream with frames of which nothing says whether red or blue is first, or
 * NULL. */
const struct trajd_index_stream *frame_find_undecided(const struct trajd_index *index);

/* Compares the undecided frames of an index with the raw frames of another one that have the same
 * stream, episode and row. Returns RGB or BGR and sets *twin to the raw file, where one reading is
 * clearly closer. Returns TRAJD_COLOR_UNDECIDED where there are no such frames, where they show
 * something else, or where they have no colours. Blocks. */
enum trajd_image_color frame_compare_colors(const struct trajd_index *index,
                                            const struct trajd_index *raw, const char **twin);

#endif
