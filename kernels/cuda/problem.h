/* What one launch is told: a request (or a slice of its streams) with everything that the host can work out
 * already done. Passed by value as a kernel parameter, so that a launch needs no copy and no memory of its
 * own. Host and device. */
#ifndef TRAJD_KERNELS_CUDA_PROBLEM_H
#define TRAJD_KERNELS_CUDA_PROBLEM_H

#include <stdint.h>

#include "kernels/resample.h"

/* With these a problem stays below the 4 KB that kernel parameters may have everywhere. */
#define TRAJD_CUDA_STREAMS_MAX 12
#define TRAJD_CUDA_BRACKETS_MAX 8
#define TRAJD_CUDA_PARAMETER_SIZE_MAX 4096

#define TRAJD_CUDA_NO_MASK 255
#define TRAJD_CUDA_GRID_HEIGHT_MAX 65535u

/* How a stream's elements are moved. FULL takes anything; the others are vectors of one load and one store.
 */
enum trajd_cuda_path {
    TRAJD_CUDA_FULL =
        0, /* element by element: slerp, angle, mean, derivatives, double, integers that are blended */
    TRAJD_CUDA_BF16 = 1, /* bf16 to bf16; linear, previous, nearest. So the next four */
    TRAJD_CUDA_F32 = 2,
    TRAJD_CUDA_F16 = 3,
    TRAJD_CUDA_F32_BF16 = 4,
    TRAJD_CUDA_BF16_F32 = 5,
    TRAJD_CUDA_COPY = 6, /* previous and nearest into their own type, where no element is looked at: bytes */
    TRAJD_CUDA_PATH_COUNT = 7,
};

struct trajd_cuda_bracket {
    const int64_t *stamps_ns; /* NULL: regular */
    struct trajd_rate rate;
    const int64_t *offsets;
    uint64_t offsets_per_window;
    const int64_t *
        row_begin; /* NULL: the dense problem. Window w begins at w * dense_rows, sees dense_rows, anchor 0 */
    const int64_t *row_count;
    const int64_t *anchor;
    int64_t dense_rows;
    uint32_t step_count;
    uint32_t unit; /* enum trajd_grid_unit */
};

struct trajd_cuda_stream {
    const char *base; /* the first column's */
    const void *const *bases;
    uint64_t row_stride_bytes;
    uint64_t first_column_bytes; /* added to an entry of bases; base has it */
    char *output;
    uint64_t window_stride_bytes;
    uint64_t step_stride_bytes;
    uint8_t *mask;
    uint64_t mask_window_stride_bytes;
    const float *scale;
    const float *offset;
    int64_t max_gap_ns;
    int64_t max_age_ns;
    float *derivative;
    uint64_t derivative_window_stride_bytes;
    uint64_t derivative_step_stride_bytes;
    int64_t mean_width;
    double angle_period;
    double angle_low;
    uint32_t feature_count;
    uint32_t vector_count; /* per step: D / V, of COPY bytes of a row over V. Of FULL: quaternions or D */
    uint8_t bracket_index; /* in this problem */
    uint8_t kind;
    uint8_t source_type;
    uint8_t output_type;
    uint8_t edge;
    uint8_t path;         /* enum trajd_cuda_path */
    uint8_t vector_width; /* V: elements of a vector; of COPY bytes */
    uint8_t mask_slot;    /* streams that share a mask share a slot; TRAJD_CUDA_NO_MASK */
    uint8_t load_bytes;   /* of a vector of the source: rows that are not a multiple are loaded by element */
    uint8_t first_warp; /* of full.cu: the block's warps that serve the stream; modulo the warps there are */
    uint8_t warp_count;
    uint8_t mask_continues; /* the mask was begun by an earlier launch: the larger code stays */
};

/* What threads do with a tile. */
enum trajd_cuda_style {
    TRAJD_CUDA_STEPS = 0, /* find all targets, then a thread goes from target to target */
    TRAJD_CUDA_WALK =
        1, /* the same along runs of targets, with the two rows in registers; vectors of 16 bytes only */
    TRAJD_CUDA_DIRECT = 2, /* a thread a vector, which finds its target itself: no entries, a barrier less */
    TRAJD_CUDA_STYLE_COUNT = 3,
};

/* The launch's shape, chosen by trajd_cuda_choose and free of the problem's meaning: any value gives the same
 * result. */
struct trajd_cuda_shape {
    uint32_t tile_steps;      /* targets of one window that a block serves */
    uint32_t thread_count;    /* a multiple of 32 */
    uint32_t tiles_per_block; /* neighbouring tiles that a block serves in turn, its stamps staged once; of
                                 lean problems */
    uint32_t stage_rows; /* windows of at most this many rows have all their stamps staged in shared memory */
    uint8_t prefetch; /* blocks ask for their share of the window's rows before they know which they need */
    uint8_t style;    /* enum trajd_cuda_style; of lean problems */
};

struct trajd_cuda_problem {
    uint32_t window_count;
    uint16_t bracket_count;
    uint16_t stream_count;
    uint16_t mask_count;
    uint16_t lean; /* tile.cu serves it */
    uint32_t step_count_max;
    struct trajd_cuda_shape shape;
    struct trajd_cuda_bracket brackets[TRAJD_CUDA_BRACKETS_MAX];
    struct trajd_cuda_stream streams[TRAJD_CUDA_STREAMS_MAX];
};

#endif
