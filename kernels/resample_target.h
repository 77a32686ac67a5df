/* Targets of a stream, resolved into rows: shared by resample_target.c and resample_reference.c. */
#ifndef TRAJD_KERNELS_RESAMPLE_TARGET_H
#define TRAJD_KERNELS_RESAMPLE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/resample.h"

/* One resolved target of one stream. */
struct trajd_target {
    uint8_t mask;
    bool has_row; /* false: the value is the edge's constant */
    bool blends;  /* true: rows row and row + 1 with fraction `a`; false: row alone */
    int64_t row;
    int64_t total_end;  /* for totals: the sum of [row, total_end) */
    int64_t mean_first; /* for kind mean: average of [mean_first, row]; if above row: row alone */
    /* the derivative is taken over [interval_row, interval_row + 1]; < 0: none */
    int64_t interval_row;
    uint64_t interval_ns;
    double a;
};

/* One stream in one window of a request. Borrows everything. */
struct trajd_view {
    const struct trajd_clock *clock;
    const struct trajd_grid *grid;
    const struct trajd_stream *stream;
    int64_t row_begin;
    int64_t row_count;
    int64_t anchor;
    const char *rows;                    /* local row 0 at the first column; NULL: missing */
    uint32_t too_old_begin, too_old_end; /* steps that the bracket masks */
};

/* Returns the view of window `w`. */
struct trajd_view trajd_view_of(const struct trajd_resample_request *request,
                                const struct trajd_stream *stream, uint32_t w);

/* Resolves step t of window w: its row, fraction and mask code. Reads no rows. */
struct trajd_target trajd_target_resolve(const struct trajd_view *view, uint32_t w, uint32_t t);

#endif
