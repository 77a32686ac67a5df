/* Rotations of many steps side by side: one array per number, so that the compiler processes
 * several at once. The functions give the same bits as those of rotation_forms.h. */
#ifndef TRAJD_KERNELS_TRANSFORM_ROTATION_LANES_H
#define TRAJD_KERNELS_TRANSFORM_ROTATION_LANES_H

#include "kernels/transform/rotation_forms.h"

#define TRAJD_LANES 128

struct trajd_rotation_lanes {
    _Alignas(64) double x[TRAJD_LANES], y[TRAJD_LANES], z[TRAJD_LANES], w[TRAJD_LANES];
};

/* numbers[width of the form][lane]. A lane whose numbers are not a rotation becomes NaN. */
void trajd_lanes_load(enum trajd_rotation_form form, const double (*numbers)[TRAJD_LANES],
                      uint32_t count, struct trajd_rotation_lanes *q);
void trajd_lanes_store(enum trajd_rotation_form form, const struct trajd_rotation_lanes *q,
                       uint32_t count, double (*numbers)[TRAJD_LANES]);
/* q = origin^-1 q */
void trajd_lanes_relate_anchor(const struct trajd_rotation_lanes *origin, uint32_t count,
                               struct trajd_rotation_lanes *q);
/* q = q origin^-1 */
void trajd_lanes_relate_base(const struct trajd_rotation_lanes *origin, uint32_t count,
                             struct trajd_rotation_lanes *q);
/* Turns vectors v[3][lane] by the inverse of the origin. */
void trajd_lanes_turn_back(const struct trajd_rotation_lanes *origin, uint32_t count,
                           double (*v)[TRAJD_LANES]);

#endif
