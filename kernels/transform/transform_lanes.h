/* Steps side by side, for transform_run.c. */
#ifndef TRAJD_KERNELS_TRANSFORM_TRANSFORM_LANES_H
#define TRAJD_KERNELS_TRANSFORM_TRANSFORM_LANES_H

#include "kernels/transform/rotation_lanes.h"
#include "kernels/transform/transform.h"

/* Steps [first_step, first_step + step_count) of some windows: at most TRAJD_LANES in all. */
struct trajd_transform_group {
    const struct trajd_transform_job *job;
    uint32_t window_count, first_step, step_count;
    uint64_t windows[TRAJD_LANES]; /* rows of the batch */
    bool is_dense;                 /* whole windows, each in the row after the one before */
    /* of each lane, the element of the source and of the output at which its row begins, and of each
     * window, that of the reference row; filled by the run */
    uint64_t source_at[TRAJD_LANES], output_at[TRAJD_LANES], reference_at[TRAJD_LANES];
};

/* ---- transform_lanes.c ---- */

/* Transforms and stores the steps, and sets their masks. Later steps of a window go first, because
 * a step that is relative to the step before needs that one's mask as it was. */
void trajd_transform_group_run(struct trajd_transform_group *group);

/* ---- transform_run.c ---- */

/* Sets the masks of the steps, and stores the edge in steps that have no values. lost[lane]:
 * a number has become NaN; NULL: none has. */
void trajd_transform_finish(const struct trajd_transform_group *group, const bool *lost);

#endif
