/* Which variant serves a problem, and why; and running it. */
#ifndef TRAJD_KERNELS_DISPATCH_PLAN_H
#define TRAJD_KERNELS_DISPATCH_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/resample.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_pool;

/* The choice: opaque, made once per feed (per shape), immutable while it runs. */
struct trajd_plan;

/* Chooses a variant for requests of this shape: same clocks, grids, brackets and streams (kinds,
 * types, D, T), at most as many windows, window_rows only where the shape has them; pointers may
 * differ from run to run. `variant` is NULL or "auto", or a variant's name, which is then taken or
 * refused with the names that would serve. Allocates all scratch memory that runs need. */
enum trajd_status trajd_plan_create(const struct trajd_resample_request *shape,
                                    const struct trajd_device_facts *facts, const char *variant,
                                    struct trajd_plan **plan, struct trajd_error *error);

/* One line: variant, launch shape and the reason ("cpu_rows: 5 streams, 1 thread: 12 KB of output
 * is below ..."). Owned by plan. */
const char *trajd_plan_describe(const struct trajd_plan *plan);

/* Runs a request of the plan's shape. CPU variants: over the threads of `pool` (NULL: the caller's
 * thread alone), done at return. One run at a time per plan. Allocates nothing, does not block on
 * anything but the pool. */
enum trajd_status trajd_plan_run(struct trajd_plan *plan,
                                 const struct trajd_resample_request *request,
                                 struct trajd_pool *pool, struct trajd_error *error);

/* 1: a CUDA variant, run by trajd_plan_run_async alone, on requests whose pointers are the
 * device's. */
int trajd_plan_is_cuda(const struct trajd_plan *plan);

/* Launches a request of the plan's shape on the stream and returns; results are there when the
 * stream has got so far. The request's structs may be changed after the call, what they point to
 * not before. Allocates nothing, waits for nothing. */
enum trajd_status trajd_plan_run_async(struct trajd_plan *plan,
                                       const struct trajd_resample_request *request,
                                       struct trajd_device_stream *stream,
                                       struct trajd_error *error);

/* Frees the plan and clears the caller's pointer. NULL is fine. */
void trajd_plan_destroy(struct trajd_plan **plan);

#ifdef __cplusplus
}
#endif
#endif
