/* The parameters of one launch: a request (or some of its streams), with everything that the host
 * can compute. Passed by value as a kernel parameter, so that a launch needs no copy and no memory.
 * For host and device. */
#ifndef TRAJD_KERNELS_CUDA_PROBLEM_H
#define TRAJD_KERNELS_CUDA_PROBLEM_H

#include <stdint.h>

#include "kernels/resample.h"

/* With these limits a problem fits the 4 KB that kernel parameters may have on every GPU. */
#define TRAJD_CUDA_STREAMS_MAX 12
#define TRAJD_CUDA_BRACKETS_MAX 8
#define TRAJD_CUDA_PARAMETER_SIZE_MAX 4096

#define TRAJD_CUDA_NO_MASK 255
#define TRAJD_CUDA_GRID_HEIGHT_MAX 65535u

/* How a stream's elements are moved. FULL serves everything. The others move vectors with one load
 * and one store. */
enum trajd_cuda_path {
    /* element by element: slerp, angle, mean, derivatives, double, blended integers */
    TRAJD_CUDA_FULL = 0,
    TRAJD_CUDA_BF16 = 1, /* bf16 to bf16; linear, previous, nearest, as the next four */
    TRAJD_CUDA_F32 = 2,
    TRAJD_CUDA_F16 = 3,
    TRAJD_CUDA_F32_BF16 = 4,
    TRAJD_CUDA_BF16_F32 = 5,
    /* bytes: previous and nearest into their own type, if no element is checked for NaN */
    TRAJD_CUDA_COPY = 6,
    TRAJD_CUDA_PATH_COUNT = 7,
};

struct trajd_cuda_bracket {
    const int64_t *stamps_ns; /* NULL: a regular clock */
    struct trajd_rate rate;
    const int64_t *offsets;
    uint64_t offsets_per_window;
    /* NULL: the dense problem. Window w begins at w * dense_rows, sees dense_rows rows, anchor 0 */
    const int64_t *row_begin;
    const int64_t *row_count;
    const int64_t *anchor;
    int64_t dense_rows;
    uint32_t step_count;
    uint32_t unit; /* enum trajd_grid_unit */
};

struct trajd_cuda_stream {
    const char *base; /* at the first column */
    const void *const *bases;
    uint64_t row_stride_bytes;
    uint64_t first_column_bytes; /* added to an entry of bases; base includes it */
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
    union {
        int64_t mean_width;
        int64_t total_width; /* of a total */
    };
    double angle_period;
    union {
        double angle_low;
        double total_gamma; /* of a total */
    };
    uint32_t feature_count;
    /* per step: D / V. COPY: bytes of a row over V. FULL: quaternions of slerp, else D */
    uint32_t vector_count;
    uint32_t unit_count;   /* per step: quaternions of slerp, else D */
    uint8_t bracket_index; /* index in this problem */
    uint8_t kind;
    uint8_t source_type;
    uint8_t output_type;
    uint8_t edge;
    uint8_t path;         /* enum trajd_cuda_path */
    uint8_t vector_width; /* V: elements per vector; COPY: bytes */
    uint8_t mask_slot;    /* streams that share a mask have the same slot; or TRAJD_CUDA_NO_MASK */
    /* bytes of a source vector; rows at addresses that are not a multiple are loaded by element */
    uint8_t load_bytes;
    /* full.cu: the block's warps that serve the stream, modulo the number of warps */
    uint8_t first_warp;
    uint8_t warp_count;
    uint8_t mask_continues; /* an earlier launch began the mask; the larger code stays */
    uint8_t widest_vector;  /* vector_width before it was narrowed for batch and tile */
};

/* The kernel, and the work of its threads. The first four serve lean problems, BATCH and TILE any. */
enum trajd_cuda_style {
    TRAJD_CUDA_STEPS = 0, /* find all targets of a tile, then a thread goes from target to target */
    /* as STEPS, along runs of targets, with the two rows in registers; only vectors of 16 bytes */
    TRAJD_CUDA_WALK = 1,
    /* a thread serves a few vectors of a target, which it finds itself: no entries, one barrier
     * less */
    TRAJD_CUDA_DIRECT = 2,
    /* a thread serves a target with all its features, through shared memory */
    TRAJD_CUDA_NARROW = 3,
    TRAJD_CUDA_BATCH = 4, /* a warp serves a few targets of a stream: many small streams together */
    TRAJD_CUDA_TILE = 5,  /* a block serves a tile of targets of all streams */
    /* several streams of one path, as DIRECT: each block serves one of them */
    TRAJD_CUDA_SIDE = 6,
    TRAJD_CUDA_STYLE_COUNT = 7,
};

/* Bits of a shape's prefetch. */
/* blocks prefetch their share of the window's rows before they know which they need */
#define TRAJD_CUDA_PREFETCH_ROWS 1u
#define TRAJD_CUDA_PREFETCH_STAMPS 2u /* also stamps that are not staged */
/* direct, narrow: stages all rows of a staged window in shared memory */
#define TRAJD_CUDA_STAGE_ROWS 4u
/* direct, narrow: prefetches rows where the mean rate puts them, while the stamps are loaded */
#define TRAJD_CUDA_PREFETCH_GUESS 8u

/* walk: the first blocks prefetch all that the launch reads */
#define TRAJD_CUDA_PREFETCH_ALL 16u

/* The shape of a launch, chosen by shape.c. It affects only speed: every value gives the same
 * result. */
struct trajd_cuda_shape {
    uint32_t tile_steps;   /* targets of one window that a block serves; SIDE: at most */
    uint32_t thread_count; /* multiple of 32 */
    /* windows with up to this number of rows have all their stamps staged in shared memory */
    uint32_t stage_rows;
    uint8_t prefetch;
    uint8_t style;    /* enum trajd_cuda_style */
    uint8_t vectors;  /* direct: vectors of a target per thread: 1, 2 or 4 */
    uint8_t overlaps; /* prepared while the launch before it runs: from sm_90 on */
};

/* One stream, or several that share a mask: the unit of work for the batch kernel's warps. */
struct trajd_cuda_group {
    uint32_t first_task; /* counted over all groups of a window; one warp serves a task */
    uint32_t unit_count; /* per step: features or quaternions of all its streams */
    uint32_t step_count;
    uint16_t first_stream;
    uint16_t steps_per_task;  /* 32 / unit_count, at least 1 */
    uint32_t unit_reciprocal; /* 65536 / unit_count, rounded up */
};

struct trajd_cuda_problem {
    uint32_t window_count;
    uint16_t bracket_count;
    uint16_t stream_count;
    uint16_t mask_count;
    uint16_t lean; /* 1: a single stream that is moved by vectors */
    uint32_t step_count_max;
    const uint32_t *window_rows; /* NULL: window w goes to row w */
    struct trajd_cuda_shape shape;
    uint16_t group_count;
    uint16_t totals;     /* 1: all streams are totals, for total.cu */
    uint32_t task_count; /* per window */
    struct trajd_cuda_group groups[TRAJD_CUDA_STREAMS_MAX];
    struct trajd_cuda_bracket brackets[TRAJD_CUDA_BRACKETS_MAX];
    struct trajd_cuda_stream streams[TRAJD_CUDA_STREAMS_MAX];
};

#endif
