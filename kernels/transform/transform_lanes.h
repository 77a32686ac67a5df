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
    uint64_t steps[TRAJD_LANES];   /* of each lane: row T + step; filled by the run */
};

/* Transforms and stores the steps, and sets their masks. The origin is the reference row of each
 * window. */
void trajd_transform_group_run(struct trajd_transform_group *group);

/* Returns whether a step with that mask has a row of the recording. */
bool trajd_transform_has_row(const struct trajd_transform_job *job, uint8_t mask);
/* Stores a step, normalised; values[output_count]. */
void trajd_transform_store(const struct trajd_transform_job *job, uint64_t row, uint32_t step,
                           const double *values);
/* Stores the value of `edge` as a step. */
void trajd_transform_store_edge(const struct trajd_transform_job *job, uint64_t row, uint32_t step);

#endif
