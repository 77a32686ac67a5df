/* A dataset of known numbers for statistics of differences, in one small file with an index made by
 * hand. Five arrays, each in float32 ("a4", "b4", "s4", "t4", "u4") and in float64 ("a8", ...), all
 * on one regular clock: a of 3 columns, b of 2, s of 2, t of 3, u of 1. No array is on the second
 * clock, which has as many rows. */
#ifndef TESTS_UNIT_STATS_DIFFERENCE_FIXTURE_H
#define TESTS_UNIT_STATS_DIFFERENCE_FIXTURE_H

#include "daemon/window/window_plan.h"
#include "support/data_file.h"

#define DIFFERENCE_EPISODES 3
#define DIFFERENCE_LETTERS 5
#define DIFFERENCE_ARRAYS 10 /* a, b, s, t and u in float32, then in float64 */
#define DIFFERENCE_CLOCKS 2

struct difference_fixture {
    struct data_file data;
    struct trajd_layout layout;
    struct trajd_index_array arrays[DIFFERENCE_ARRAYS];
    struct trajd_index_stream streams[DIFFERENCE_ARRAYS];
    struct trajd_index_clock clocks[DIFFERENCE_CLOCKS];
    struct trajd_episode_clock episode_clocks[DIFFERENCE_EPISODES][DIFFERENCE_CLOCKS];
    struct trajd_array extents[DIFFERENCE_EPISODES][DIFFERENCE_ARRAYS];
    struct trajd_episode episodes[DIFFERENCE_EPISODES];
    double *values[DIFFERENCE_EPISODES][DIFFERENCE_ARRAYS]; /* [rows, columns] */
    struct trajd_index index;
    struct trajd_rate rates[DIFFERENCE_CLOCKS];
    int64_t *no_stamps[DIFFERENCE_CLOCKS];
    struct trajd_dataset dataset;
};

/* What the dataset has. */
struct difference_data {
    int64_t rows[DIFFERENCE_EPISODES];
    int64_t more_states[DIFFERENCE_EPISODES]; /* rows that s, t and u have more than a and b */
    bool is_spoiled; /* NaN, infinite and very large numbers, and one episode without */
    char lacking;    /* the array that the first episode lacks; 0: none */
};

/* Caller frees with free_difference_fixture. Fails the test where it cannot be made. */
struct difference_fixture *make_difference_fixture(const struct difference_data *data);
void free_difference_fixture(struct difference_fixture *f);

/* Returns the array of a letter. */
uint32_t difference_array(char letter, bool is_double);
uint32_t difference_width(char letter);
/* Returns the rows of an array (0 where the episode lacks it), or one of its numbers. */
int64_t difference_rows(const struct difference_fixture *f, uint32_t episode, char letter);
double difference_number(const struct difference_fixture *f, uint32_t episode, uint32_t array,
                         int64_t row, uint32_t column);

#endif
