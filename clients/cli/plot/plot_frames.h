/* Which frames of an episode a film strip has. */
#ifndef TRAJD_CLI_PLOT_PLOT_FRAMES_H
#define TRAJD_CLI_PLOT_PLOT_FRAMES_H

#include <stdint.h>

#include "daemon/index/index.h"

enum { PLOT_FRAMES_DEFAULT = 10 };

struct plot_frame {
    uint64_t row;    /* of the file */
    int64_t time_ns; /* from the episode's origin */
};

/* Lists frames of a stream with `row_count` rows, from from_ns to to_ns. With a rate: of each time
 * the last row that is not later. rate num 0: PLOT_FRAMES_DEFAULT of them, evenly. Returns how many
 * there are, of which the first `room` are in `frames`. */
uint64_t plot_choose_frames(const struct trajd_episode_clock *clock, uint64_t row_count,
                            struct trajd_rate rate, int64_t from_ns, int64_t to_ns,
                            struct plot_frame *frames, uint32_t room);

#endif
