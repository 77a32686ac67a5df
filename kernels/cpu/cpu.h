/* Between the files of the CPU variant: what a bracket finds, and the moves that a stream makes of
 * it. */
#ifndef TRAJD_KERNELS_CPU_CPU_H
#define TRAJD_KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/resample.h"

/* Steps that are resolved at once, on the stack: 8 KB of steps and 10 KB of moves stay in L1. */
#define TRAJD_CPU_CHUNK_STEPS 256

/* A hot function exists for AVX2 too, picked when the program is loaded; sanitizers come too late
 * for that. Only -mfma would change results, and it is not asked for. What it calls is inlined, so
 * that it is compiled for both. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) &&      \
    !defined(__clang__)
#define TRAJD_CPU_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TRAJD_CPU_CLONES
#endif
#define TRAJD_CPU_INLINE static inline __attribute__((always_inline))

/* One target, found: the same for every stream on the bracket. */
struct trajd_cpu_step {
    /* the row at or before x, held inside the rows; unused where there is none */
    int64_t row;
    double a; /* 0: row alone */
    /* VALID: from row to row + 1, 0 at the last row and on a ROWS grid. AFTER_END: from the last
     * row to x */
    uint64_t ns;
    uint8_t mask;      /* VALID, BEFORE_START, AFTER_END or BAD_STAMP */
    bool upper_nearer; /* row + 1 is the nearest */
    bool has_target;   /* false: TRAJD_NO_TARGET */
};

/* One step of one stream: rows in, one row out. */
struct trajd_cpu_move {
    const char *row; /* NULL: the edge's constant */
    char *out;
    double a;          /* > 0: with the row after it */
    int64_t row_count; /* of kind mean: how many rows from `row` on */
    uint8_t code;      /* the mask's */
};

/* One window of a bracket. */
struct trajd_cpu_window {
    const int64_t *stamps_ns; /* of local row 0; NULL on a regular clock */
    struct trajd_rate rate;
    int64_t row_count;
    int64_t anchor;
};

/* The last row at or before x, -1 if there is none. `guess` is any row; a near one makes it quick.
 * row_count > 0. */
int64_t trajd_cpu_row_at(const struct trajd_cpu_window *window, int64_t x, int64_t guess);

/* The stamp of a local row. */
int64_t trajd_cpu_stamp_of(const struct trajd_cpu_window *window, int64_t row);

/* Finds the targets at offsets[0..count). */
void trajd_cpu_find_steps(const struct trajd_cpu_window *window, enum trajd_grid_unit unit,
                          const int64_t *offsets, uint32_t count, struct trajd_cpu_step *steps);

/* Makes the moves of a stream and raises their codes to NAN where a used element is NaN and the
 * stream wants a mask. */
typedef void trajd_cpu_mover(const struct trajd_stream *stream, struct trajd_cpu_move *moves,
                             uint32_t count);
trajd_cpu_mover trajd_cpu_copy, trajd_cpu_rows, trajd_cpu_slerp;
trajd_cpu_mover trajd_cpu_fused_f32, trajd_cpu_fused_f64, trajd_cpu_fused_u8;

/* The mover that serves a stream. */
trajd_cpu_mover *trajd_cpu_mover_of(const struct trajd_stream *stream);

/* What the edge rule gives for a row that is not there. */
void trajd_cpu_write_edge(const struct trajd_stream *stream, char *out);

/* Raises the code to NAN where an element of the rows that a blend uses is NaN. A value can be NaN
 * without that, of two infinities. */
void trajd_cpu_see_nan(const struct trajd_stream *stream, struct trajd_cpu_move *move);

/* Whether one of `count` elements is NaN; false for integers. */
bool trajd_cpu_any_nan(enum trajd_dtype type, const void *elements, uint64_t count);

/* A ROWS grid whose targets follow each other, the same for all windows; a stream whose result
 * there is its rows, byte for byte. */
bool trajd_cpu_grid_is_run(const struct trajd_grid *grid);
bool trajd_cpu_stream_runs(const struct trajd_stream *stream);
/* Copies the runs of windows [begin, end) up to the first that must go the general way, which is
 * returned (else `end`). Masks of copied windows are raised at their edges. */
uint32_t trajd_cpu_copy_runs(const struct trajd_resample_request *request,
                             const struct trajd_stream *stream, uint32_t begin, uint32_t end);

/* Derivatives of `count` steps of one window, whose rows begin at `rows` (NULL: missing), to out
 * with the stream's step stride. */
void trajd_cpu_derivatives(const struct trajd_stream *stream, const struct trajd_cpu_window *window,
                           const char *rows, const struct trajd_cpu_step *steps, uint32_t count,
                           char *out);

/* Windows [window_begin, window_end) of a request that passed trajd_resample_check. */
void trajd_resample_cpu(const struct trajd_resample_request *request, uint32_t window_begin,
                        uint32_t window_end);

#endif
