/* The dense problem [B, S, D] -> [B, T, D] as a request: row s of window b stands at
 * stamps_ns[b][s], and target t at targets_ns[b][t]. All arrays are packed. */
#ifndef TRAJD_TESTS_DENSE_REQUEST_H
#define TRAJD_TESTS_DENSE_REQUEST_H

#include "kernels/resample.h"

struct dense_problem {
    uint32_t window_count;  /* B >= 1 */
    uint32_t row_count;     /* S >= 1 */
    uint32_t step_count;    /* T >= 1 */
    uint32_t feature_count; /* D >= 1 */
    const int64_t *stamps_ns;
    const int64_t *targets_ns;
    enum trajd_kind kind;
    enum trajd_dtype source_type;
    enum trajd_dtype output_type;
    enum trajd_edge edge;
    const void *source;
    void *output;
    uint8_t *mask; /* [B, T] or NULL */
};

/* The request points into the struct, so do not copy it. */
struct dense_request {
    struct trajd_clock clock;
    struct trajd_grid grid;
    struct trajd_bracket bracket;
    struct trajd_stream stream;
    struct trajd_resample_request request;
};

static inline void dense_request_make(const struct dense_problem *dense, struct dense_request *made)
{
    const uint64_t source_row =
        (uint64_t)dense->feature_count * trajd_dtype_size(dense->source_type);
    const uint64_t output_row =
        (uint64_t)dense->feature_count * trajd_dtype_size(dense->output_type);

    *made = (struct dense_request){
        .clock = {.stamps_ns = dense->stamps_ns},
        .grid = {.unit = TRAJD_GRID_NS,
                 .step_count = dense->step_count,
                 .offsets = dense->targets_ns,
                 .offsets_per_window = dense->step_count},
        .bracket = {.dense_row_count = dense->row_count},
        .stream = {.kind = dense->kind,
                   .source_type = dense->source_type,
                   .feature_count = dense->feature_count,
                   .row_stride_bytes = source_row,
                   .base = dense->source,
                   .edge = dense->edge,
                   .max_gap_ns = -1,
                   .max_age_ns = -1,
                   .output_type = dense->output_type,
                   .output = dense->output,
                   .window_stride_bytes = output_row * dense->step_count,
                   .step_stride_bytes = output_row,
                   .mask = dense->mask,
                   .mask_window_stride_bytes = dense->step_count},
        .request = {.window_count = dense->window_count,
                    .clock_count = 1,
                    .grid_count = 1,
                    .bracket_count = 1,
                    .stream_count = 1,
                    .clocks = &made->clock,
                    .grids = &made->grid,
                    .brackets = &made->bracket,
                    .streams = &made->stream},
    };
}

#endif
