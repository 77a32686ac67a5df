/* A dataset of two short episodes with a file and a row cache, made without HDF5: for tests of
 * producers and of queries about feeds. */
#ifndef TRAJD_TESTS_SMALL_DATASET_H
#define TRAJD_TESTS_SMALL_DATASET_H

#include "daemon/cache/dataset.h"
#include "support/data_file.h"

#define SMALL_EPISODES 2u
#define SMALL_ROWS 20u
#define SMALL_COLUMNS 2u /* of the stream "pos"; the stream "cmd" has one */

struct small_dataset {
    struct trajd_dataset dataset;
    struct data_file data;
    struct trajd_layout layout;
    struct trajd_index index;
    struct trajd_index_array arrays[2];
    struct trajd_index_stream streams[2];
    struct trajd_index_clock clock;
    struct trajd_episode episodes[SMALL_EPISODES];
    struct trajd_episode_clock episode_clocks[SMALL_EPISODES];
    struct trajd_array extents[SMALL_EPISODES][2];
    struct trajd_rate rate;
    int64_t *no_stamps, *no_begin;
    int64_t stamp_count;
};

/* Makes the dataset `name`: streams pos and cmd (float32) on one clock of 10 Hz. Fails the test
 * where it cannot. The caller destroys. */
struct small_dataset *small_dataset_create(const char *name, uint64_t cache_bytes);
void small_dataset_destroy(struct small_dataset **small);

/* The values in the file. */
float small_pos(uint32_t episode, int64_t row, uint32_t column);
float small_cmd(uint32_t episode, int64_t row);

/* Parses a feed's mapping. The caller destroys. */
struct trajd_window_spec;
struct trajd_window_spec *small_spec(const char *name, const char *text);

#endif
