/* A dataset made by hand, and window plans on it. */
#ifndef TRAJD_TESTS_PLAN_FIXTURE_H
#define TRAJD_TESTS_PLAN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/window/window_plan.h"

#define ROWS 90
#define STREAMS 3

/* Two episodes of 90 rows: a camera at 30 Hz (stream cam: the row's number), an arm stamped every
 * 10 ms beginning 5 ms before it (stream arm), and a wrench on the camera's clock with one row more
 * (stream wrench). */
struct fixture {
    struct trajd_layout layout;
    struct trajd_index index;
    struct trajd_dataset dataset;
    struct trajd_index_file file;
    struct trajd_index_stream streams[STREAMS];
    struct trajd_index_array index_arrays[STREAMS];
    struct trajd_index_clock clocks[2];
    struct trajd_episode episodes[2];
    struct trajd_episode_clock episode_clocks[2][2];
    struct trajd_array arrays[2][STREAMS];
    int64_t stamps[300], row_begin[2], all_stamps[600];
    int64_t *clock_stamps[2], *clock_row_begin[2];
    struct trajd_rate rates[2];
    int64_t rows[STREAMS][ROWS + 300];
};

/* For cmocka_unit_test_setup_teardown: *state is a struct fixture. */
int make_fixture(void **state);
int free_fixture(void **state);

/* Sets the array of a stream as make_fixture does, after a test has changed it. */
void make_array(struct fixture *f, int episode, int stream);

/* Parses the feed, which must be valid, and makes its plan. Returns NULL with an error where there
 * is no such plan. */
struct trajd_window_plan *make_plan(struct fixture *f, const char *text,
                                    struct trajd_window_spec **spec, struct trajd_error *error);
void destroy(struct trajd_window_plan **plan, struct trajd_window_spec **spec);

/* Resamples the first `count` windows in order with the reference. Writes values [count][T] of the
 * only output, and its mask. */
void run(struct fixture *f, const struct trajd_window_plan *plan, uint32_t count, int64_t *values,
         uint8_t *mask);

#endif
