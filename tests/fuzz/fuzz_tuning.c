// libs: trajd_kernels
/* The reader of measured launch shapes on any bytes: no crash, errors name the line, and accepted
 * rows make launch shapes that fit. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/pack.h"
#include "kernels/cuda/tuning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char memory[64];
    static const int64_t numbers[1];
    struct trajd_clock clock = {.stamps_ns = numbers};
    struct trajd_grid grid = {.unit = TRAJD_GRID_NS, .step_count = 77, .offsets = numbers};
    struct trajd_bracket bracket = {.row_begin = numbers, .row_count = numbers, .anchor = numbers};
    struct trajd_stream stream = {.source_type = TRAJD_BF16,
                                  .output_type = TRAJD_BF16,
                                  .feature_count = 14,
                                  .row_stride_bytes = 28,
                                  .base = memory,
                                  .max_gap_ns = -1,
                                  .max_age_ns = -1,
                                  .output = memory,
                                  .step_stride_bytes = 28,
                                  .window_stride_bytes = 28 * 77};
    struct trajd_resample_request request = {.window_count = 9,
                                             .clock_count = 1,
                                             .grid_count = 1,
                                             .bracket_count = 1,
                                             .stream_count = 1,
                                             .clocks = &clock,
                                             .grids = &grid,
                                             .brackets = &bracket,
                                             .streams = &stream};
    struct trajd_device_facts facts = {.cpu_threads = 1, .sm_count = 132, .compute_capability = 90};
    struct trajd_cuda_problem problem;
    struct trajd_cuda_shape shape;
    struct trajd_tuning *tuning;
    struct trajd_error error;

    if (trajd_tuning_parse("fuzz", (const char *)data, size, &tuning, &error)) {
        if (tuning || strncmp(error.message, "fuzz:", 5))
            abort();
        return 0;
    }
    if (trajd_tuning_row_count(tuning) == 0)
        abort();
    facts.tuning = tuning;
    trajd_cuda_pack(&request, 0, &problem);
    shape = trajd_cuda_shape_of(&problem, &facts, 300);
    if (!trajd_cuda_shape_fits(&problem, &shape))
        abort();
    trajd_tuning_destroy(&tuning);
    return 0;
}
