/* A dataset of two episodes in one small file, whose values are known, with an index made by hand.
 *
 *   q      float32 [40][2] on a clock of 10 Hz: {100 e + r, r / 2}; row 5 of episode 0 has a NaN
 *          in its second feature
 *   image  uint8 [40][2][2][3] on the same clock: 10 c + r in channel c */
#ifndef TESTS_UNIT_STATS_STATS_FIXTURE_H
#define TESTS_UNIT_STATS_STATS_FIXTURE_H

#include "daemon/window/window_plan.h"
#include "support/data_file.h"

#define FIXTURE_ROWS 40
#define FIXTURE_EPISODES 2

struct stats_fixture {
    struct data_file data;
    struct trajd_layout layout;
    struct trajd_index_array arrays[2];
    struct trajd_index_stream streams[2];
    struct trajd_index_clock clock;
    struct trajd_episode_clock episode_clocks[FIXTURE_EPISODES];
    struct trajd_array extents[FIXTURE_EPISODES][2];
    struct trajd_episode episodes[FIXTURE_EPISODES];
    struct trajd_index index;
    struct trajd_rate rate;
    int64_t *no_stamps[1];
    struct trajd_dataset dataset;
};

/* For cmocka's setup and teardown. */
int make_stats_fixture(void **state);
int free_stats_fixture(void **state);

/* Changes the file behind the index, so that its rows cannot be read any more. */
void break_file(const struct stats_fixture *f);

/* Makes a plan of a feed; `keys` follow dataset, anchor and global_batch: 7. Fails the test where
 * it cannot. Destroy both with drop_feed. */
struct trajd_window_plan *make_feed(struct stats_fixture *f, const char *keys,
                                    struct trajd_window_spec **spec);
void drop_feed(struct trajd_window_plan **plan, struct trajd_window_spec **spec);

#endif
