/* Plans of libtrajd_kernels for trajd.resample, kept for shapes that come again. */
#ifndef TRAJD_PYTHON_CORE_PY_PLANS_H
#define TRAJD_PYTHON_CORE_PY_PLANS_H

#include "kernels/library/trajd_kernels.h"

struct trajd_shape_plan;

#define TRAJD_PY_HOST (-1)

/* Returns a plan for requests of this shape, one of the last 16 or a new one. `gpu` is
 * TRAJD_PY_HOST, or the number of a GPU as cudaSetDevice counts. The caller holds the GIL, and releases
 * the plan. */
enum trajd_status trajd_shape_plan_take(const struct trajd_resample_request *request, int gpu,
                                        struct trajd_shape_plan **plan, struct trajd_error *error);
/* Runs a request on the CPU, or launches it on a stream of the plan's GPU. Needs no GIL. */
enum trajd_status trajd_shape_plan_run(const struct trajd_shape_plan *plan,
                                       const struct trajd_resample_request *request, void *stream,
                                       struct trajd_error *error);
/* The caller holds the GIL. */
void trajd_shape_plan_release(struct trajd_shape_plan *plan);

#endif
