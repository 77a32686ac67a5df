/* A request that is small enough to be checked by hand, for test_reference.c and
 * test_resample_check.c. */
#ifndef TRAJD_TESTS_SMALL_REQUEST_H
#define TRAJD_TESTS_SMALL_REQUEST_H

#include <math.h>
#include <string.h>

#include "kernels/resample.h"

#define STEP_LIMIT 8

/* One window onto rows at 0, 10, 20 and 40 ns. */
struct small_request {
    int64_t stamps[4], begin, count, anchor, offsets[STEP_LIMIT];
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket bracket;
    struct trajd_stream stream;
    struct trajd_resample_request request;
    double rows[16], out[STEP_LIMIT * 4];
    float derivative[STEP_LIMIT * 4];
    uint8_t mask[STEP_LIMIT];
};

/* Makes a request of `kind` in f64 without steps; the caller sets grid.step_count. */
static inline void small_request_set_up(struct small_request *one, enum trajd_kind kind,
                                        uint32_t features, const double *rows)
{
    *one = (struct small_request){.stamps = {0, 10, 20, 40}, .count = 4};
    memcpy(one->rows, rows, 4 * features * sizeof *rows);
    one->clock.stamps_ns = one->stamps;
    one->grid =
        (struct trajd_grid){.unit = TRAJD_GRID_NS, .step_count = 0, .offsets = one->offsets};
    one->bracket = (struct trajd_bracket){
        .row_begin = &one->begin, .row_count = &one->count, .anchor = &one->anchor};
    one->stream = (struct trajd_stream){.kind = kind,
                                        .source_type = TRAJD_F64,
                                        .feature_count = features,
                                        .row_stride_bytes = 8 * features,
                                        .base = one->rows,
                                        .max_gap_ns = -1,
                                        .max_age_ns = -1,
                                        .mean_width = 15,
                                        .angle_period = 360,
                                        .angle_low = NAN,
                                        .output_type = TRAJD_F64,
                                        .output = one->out,
                                        .window_stride_bytes = 8 * features * STEP_LIMIT,
                                        .step_stride_bytes = 8 * features,
                                        .mask = one->mask,
                                        .mask_window_stride_bytes = STEP_LIMIT};
    one->request = (struct trajd_resample_request){.window_count = 1,
                                                   .clock_count = 1,
                                                   .grid_count = 1,
                                                   .bracket_count = 1,
                                                   .stream_count = 1,
                                                   .clocks = &one->clock,
                                                   .grids = &one->grid,
                                                   .brackets = &one->bracket,
                                                   .streams = &one->stream};
}

static inline void small_request_add_derivative(struct small_request *one)
{
    one->stream.derivative = one->derivative;
    one->stream.derivative_window_stride_bytes = sizeof one->derivative;
    one->stream.derivative_step_stride_bytes = 16;
}

/* Rows of one feature with slope 0.1 per ns between all stamps. */
static const double small_request_ramp[] = {0, 1, 2, 4};

#endif
