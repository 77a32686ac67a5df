/* What one launch is told: a request (or a slice of its streams) with everything that the host can
 * work out already done. Passed by value as a kernel parameter, so that a launch needs no copy and
 * no memory of its own. Host and device. */
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

/* How a stream's elements are moved. FULL takes anything; the others are vectors of one load and
 * one store. */
enum trajd_cuda_path {
    /* element by element: slerp, angle, mean, derivatives, double, integers that are blended */
    TRAJD_CUDA_FULL = 0,
    TRAJD_CUDA_BF16 = 1, /* bf16 to bf16; linear, previous, nearest. So the next four */
    TRAJD_CUDA_F32 = 2,
    TRAJD_CUDA_F16 = 3,
    TRAJD_CUDA_F32_BF16 = 4,
    TRAJD_CUDA_BF16_F32 = 5,
    /* previous and nearest into their own type, where no element is looked at: bytes */
    TRAJD_CUDA_COPY = 6,
    TRAJD_CUDA_PATH_COUNT = 7,
};

struct trajd_cuda_bracket {
    const int64_t *stamps_ns; /* NULL: regular */
    struct trajd_rate rate;
    const int64_t *offsets;
    uint64_t offsets_per_window;
    /* NULL: the dense problem. Window w begins at w * dense_rows, sees dense_rows, anchor 0 */
    const int64_t *row_begin;
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
    /* per step: D / V, of COPY bytes of a row over V. Of FULL: quaternions or D */
    uint32_t vector_count;
    uint32_t unit_count;   /* per step: quaternions of slerp, else D */
    uint8_t bracket_index; /* in this problem */
    uint8_t kind;
    uint8_t source_type;
    uint8_t output_type;
    uint8_t edge;
    uint8_t path;         /* enum trajd_cuda_path */
    uint8_t vector_width; /* V: elements of a vector; of COPY bytes */
    uint8_t mask_slot;    /* streams that share a mask share a slot; TRAJD_CUDA_NO_MASK */
    /* of a vector of the source: rows that are not a multiple are loaded by element */
    uint8_t load_bytes;
    /* of full.cu: the block's warps that serve the stream; modulo the warps there are */
    uint8_t first_warp;
    uint8_t warp_count;
    uint8_t mask_continues; /* the mask was begun by an earlier launch: the larger code stays */
};

/* Which kernel, and what its threads do. The first five serve lean problems, the others any. */
enum trajd_cuda_style {
    TRAJD_CUDA_STEPS = 0, /* find all targets of a tile, then a thread goes from target to target */
    /* the same along runs of targets, with the two rows in registers; vectors of 16 bytes only */
    TRAJD_CUDA_WALK = 1,
    /* a thread a few vectors of a target, which it finds itself: no entries, a barrier less */
    TRAJD_CUDA_DIRECT = 2,
    TRAJD_CUDA_NARROW = 3, /* a thread a target with all its features, by way of shared memory */
    TRAJD_CUDA_STREAM =
        4, /* warps that find and load, warps that compute and store, side by side; from sm_90 on */
    TRAJD_CUDA_BATCH = 5, /* a warp a few targets of a stream: many small streams together */
    TRAJD_CUDA_TILE = 6,  /* a block a tile of targets of all streams */
    TRAJD_CUDA_STYLE_COUNT = 7,
};

/* Bits of a shape's prefetch. */
/* blocks ask for their share of the window's rows before they know which they need */
#define TRAJD_CUDA_PREFETCH_ROWS 1u
#define TRAJD_CUDA_PREFETCH_STAMPS 2u /* and of stamps that are not staged */
/* direct, narrow: all rows of a staged window come to shared memory */
#define TRAJD_CUDA_STAGE_ROWS 4u
/* direct, narrow: rows where the mean rate has them, while the stamps are loaded */
#define TRAJD_CUDA_PREFETCH_GUESS 8u

/* walk, stream: the first blocks ask for all that the launch reads */
#define TRAJD_CUDA_PREFETCH_ALL 16u

/* The launch's shape, chosen by shape.c and free of the problem's meaning: any value gives the same
 * result. */
struct trajd_cuda_shape {
    uint32_t tile_steps;      /* targets of one window that a block serves */
    uint32_t thread_count;    /* a multiple of 32 */
    uint32_t tiles_per_block; /* stream: blocks a multiprocessor holds. Else 1 */
    /* windows of at most this many rows have all their stamps staged in shared memory. stream: rows
     * a stage has room for */
    uint32_t stage_rows;
    uint8_t prefetch;
    uint8_t style;     /* enum trajd_cuda_style */
    uint8_t vectors;   /* direct: of a target that a thread serves: 1, 2, 4 */
    uint8_t producers; /* stream: of its eight warps */
    uint8_t stages;    /* stream: 2 to 4 */
    uint8_t overlaps;  /* made ready while the launch before it runs: from sm_90 on */
};

/* Streams that share a mask, or one by itself: what the batch kernel's warps serve. */
struct trajd_cuda_group {
    uint32_t first_task; /* over all groups of a window; a task is a warp's */
    uint32_t unit_count; /* per step: features or quaternions, of all its streams */
    uint32_t step_count;
    uint16_t first_stream;
    uint16_t steps_per_task;  /* 32 over unit_count, 1 at least */
    uint32_t unit_reciprocal; /* 65536 over unit_count, rounded up */
};

struct trajd_cuda_problem {
    uint32_t window_count;
    uint16_t bracket_count;
    uint16_t stream_count;
    uint16_t mask_count;
    uint16_t lean; /* one stream that is moved by vectors */
    uint32_t step_count_max;
    const uint32_t *window_rows; /* NULL: window w goes to row w */
    struct trajd_cuda_shape shape;
    uint16_t group_count;
    uint32_t task_count; /* of a window */
    struct trajd_cuda_group groups[TRAJD_CUDA_STREAMS_MAX];
    struct trajd_cuda_bracket brackets[TRAJD_CUDA_BRACKETS_MAX];
    struct trajd_cuda_stream streams[TRAJD_CUDA_STREAMS_MAX];
};

#endif
