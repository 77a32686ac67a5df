/* Shared by the files of the CPU variant: the targets that a bracket finds, and the moves that a
 * stream makes of them. */
#ifndef TRAJD_KERNELS_CPU_CPU_H
#define TRAJD_KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/clones.h"
#include "kernels/resample.h"

/* Steps resolved together, on the stack: 8 KB of steps and 10 KB of moves stay in L1. */
#define TRAJD_CPU_CHUNK_STEPS 256

/* One target after the search. All streams on the bracket share it. */
struct trajd_cpu_step {
    /* the row at or before x, limited to the rows; unused if there is none */
    int64_t row;
    double a; /* fraction; 0: row alone */
    /* VALID: from row to row + 1 (0 at the last row and on a ROWS grid). AFTER_END: from the last
     * row to x. */
    uint64_t ns;
    uint8_t mask;      /* VALID, BEFORE_START, AFTER_END or BAD_STAMP */
    bool upper_nearer; /* row + 1 is the nearest row */
    bool has_target;   /* false: the offset is TRAJD_NO_TARGET */
};

/* One step of one stream: reads rows and writes one output row. */
struct trajd_cpu_move {
    const char *row; /* NULL: write the edge's constant */
    char *out;
    double a;          /* > 0: blend with the next row */
    int64_t row_count; /* for kind mean and totals: number of rows from `row` on */
    uint8_t code;      /* mask code */
};

/* One window of a bracket. */
struct trajd_cpu_window {
    const int64_t *stamps_ns; /* of local row 0; NULL on a regular clock */
    struct trajd_rate rate;
    int64_t row_count;
    int64_t anchor;
};

/* Returns the last row at or before x, or -1 if there is none. `guess` is any row; a near one makes
 * the search fast. row_count must be > 0. */
int64_t trajd_cpu_row_at(const struct trajd_cpu_window *window, int64_t x, int64_t guess);

/* Returns the stamp of a local row in ns. */
int64_t trajd_cpu_stamp_of(const struct trajd_cpu_window *window, int64_t row);

/* Starts to load what trajd_cpu_fetch_guess reads. The window has stamps. */
void trajd_cpu_fetch_ends(const struct trajd_cpu_window *window);

/* Starts to load the stamp where the search for the target at `offset` begins, and returns its row.
 * The window has stamps. */
int64_t trajd_cpu_fetch_guess(const struct trajd_cpu_window *window, int64_t offset);

/* Finds the targets at offsets[0..count). `guess` is any row; a near one makes the search for the
 * first target fast. */
void trajd_cpu_find_steps(const struct trajd_cpu_window *window, enum trajd_grid_unit unit,
                          const int64_t *offsets, uint32_t count, int64_t guess,
                          struct trajd_cpu_step *steps);

/* Makes the moves of a stream. If the stream has a mask, raises a move's code to NAN if an element
 * of its result is not finite. */
typedef void trajd_cpu_mover(const struct trajd_stream *stream, struct trajd_cpu_move *moves,
                             uint32_t count);
trajd_cpu_mover trajd_cpu_copy, trajd_cpu_rows, trajd_cpu_slerp, trajd_cpu_totals;
trajd_cpu_mover trajd_cpu_fused_f32, trajd_cpu_fused_f64, trajd_cpu_fused_u8;
trajd_cpu_mover trajd_cpu_fused_double; /* f64 to f64 */

/* Returns the mover that serves the stream. */
trajd_cpu_mover *trajd_cpu_mover_of(const struct trajd_stream *stream);

/* Writes the value that the edge rule gives for a missing row. */
void trajd_cpu_write_edge(const struct trajd_stream *stream, char *out);

/* Raises the code of a move whose result is not finite. */
static inline void trajd_cpu_mark_lost(struct trajd_cpu_move *move)
{
    if (move->code < TRAJD_MASK_NAN)
        move->code = TRAJD_MASK_NAN;
}

/* Returns whether one of `count` elements is NaN or infinite. Always false for integers. */
bool trajd_cpu_any_lost(enum trajd_dtype type, const void *elements, uint64_t count);

/* trajd_cpu_grid_is_run: whether the targets of a ROWS grid follow each other and are the same for
 * all windows. trajd_cpu_stream_runs: whether the stream's result on such a grid is its rows, byte
 * for byte. */
bool trajd_cpu_grid_is_run(const struct trajd_grid *grid);
bool trajd_cpu_stream_runs(const struct trajd_grid *grid, const struct trajd_stream *stream);
/* Copies the runs of windows [begin, end). Stops before the first window that must take the general
 * path and returns it, or returns `end`. Raises the masks of copied windows at their edges. */
uint32_t trajd_cpu_copy_runs(const struct trajd_resample_request *request,
                             const struct trajd_stream *stream, uint32_t begin, uint32_t end);

/* Writes the derivatives of `count` steps of one window to `out`, with the stream's step stride.
 * `rows` is the window's first row (NULL: missing). */
void trajd_cpu_derivatives(const struct trajd_stream *stream, const struct trajd_cpu_window *window,
                           const char *rows, const struct trajd_cpu_step *steps, uint32_t count,
                           char *out);

/* Resamples windows [window_begin, window_end). The request must have passed
 * trajd_resample_check. */
void trajd_resample_cpu(const struct trajd_resample_request *request, uint32_t window_begin,
                        uint32_t window_end);

#endif
