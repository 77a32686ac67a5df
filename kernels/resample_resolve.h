/* Explains a request: which rows a target uses, and which mask it gets. */
#ifndef TRAJD_KERNELS_RESAMPLE_RESOLVE_H
#define TRAJD_KERNELS_RESAMPLE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/resample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How trajd_resample_reference resolves one target of a stream, for explanations to users. */
struct trajd_resample_step {
    enum trajd_mask mask; /* of this stream alone; never NAN, which depends on the values */
    int64_t x;            /* the target: ns from the clock's zero, or a local row on a ROWS grid */
    int64_t before;       /* the last row at or before x that the window may see; < 0: none */
    /* false: no row is used: the value is the constant of the edge rule, or the stream is missing
     */
    bool has_row;
    /* for totals: the value adds rows [row, row + added); 0: none, the value is 0 */
    int64_t added;
    /* true: the value blends rows `row` and `row + 1` with fraction past_ns / width_ns */
    bool blends;
    int64_t row;
    /* for kind mean: the value is the average of [mean_first, row]; if above row: row alone */
    int64_t mean_first;
    uint64_t past_ns; /* from row `before` to x; 0 on a ROWS grid */
    /* from row `before` to the next row; 0 if there is none, and on a ROWS grid */
    uint64_t width_ns;
};

/* Fills *step for one target. The request must have passed trajd_resample_check. Reads no rows: a
 * base that is not NULL may point anywhere. */
void trajd_resample_resolve(const struct trajd_resample_request *request, uint32_t stream_index,
                            uint32_t window, uint32_t step_index, struct trajd_resample_step *step);
/* Reads the rows that the step uses. Returns the first feature of their result that is not finite,
 * or -1. */
int64_t trajd_resample_find_nan(const struct trajd_resample_request *request, uint32_t stream_index,
                                uint32_t window, const struct trajd_resample_step *step);

#ifdef __cplusplus
}
#endif
#endif
