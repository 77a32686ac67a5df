/* A plan: the variant chosen for requests of one shape, with the reason, and the way to run it. */
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

/* Opaque. Created once per feed (per shape), and immutable afterwards. */
struct trajd_plan;

/* Chooses a variant for requests of this shape. Requests of a shape have the same clocks, grids,
 * brackets and streams (kinds, types, D, T), and at most as many windows. They have window_rows
 * only if the shape has them. Their pointers may differ from run to run. `variant` is NULL or
 * "auto", or the name of a variant. A named variant that cannot serve the shape is an error, whose
 * message lists the variants that would serve. */
enum trajd_status trajd_plan_create(const struct trajd_resample_request *shape,
                                    const struct trajd_device_facts *facts, const char *variant,
                                    struct trajd_plan **plan, struct trajd_error *error);

/* Does the same for runs with a `then` (trajd_plan_run_then), whose work on all windows takes
 * then_ns on one thread. Both together are divided over the threads. */
enum trajd_status trajd_plan_create_then(const struct trajd_resample_request *shape, double then_ns,
                                         const struct trajd_device_facts *facts,
                                         const char *variant, struct trajd_plan **plan,
                                         struct trajd_error *error);

/* Returns one line with the variant, its launch shape and the reason ("cpu_rows: 256 windows x 5
 * streams (4 copied), 1 thread, 28 us of work, on one thread"). Owned by the plan. */
const char *trajd_plan_describe(const struct trajd_plan *plan);

/* Runs a request of the plan's shape with a CPU variant, on the threads of `pool` (NULL: only on
 * the caller's thread). The results are complete on return. A run does not change the plan, so
 * several threads may run it at the same time. Allocates nothing, and blocks only on the pool. */
enum trajd_status trajd_plan_run(struct trajd_plan *plan,
                                 const struct trajd_resample_request *request,
                                 struct trajd_pool *pool, struct trajd_error *error);

/* Does the same, and calls `then` for each slice of windows [begin, end) when it is complete, in
 * the thread that made it. */
enum trajd_status trajd_plan_run_then(struct trajd_plan *plan,
                                      const struct trajd_resample_request *request,
                                      void (*then)(void *context, uint32_t begin, uint32_t end),
                                      void *context, struct trajd_pool *pool,
                                      struct trajd_error *error);

/* Returns 1 for a CUDA variant. It is run only by trajd_plan_run_async, with device pointers in the
 * request. */
int trajd_plan_is_cuda(const struct trajd_plan *plan);

/* Launches a request of the plan's shape on the stream and returns. The results are complete when
 * the stream has passed the launch. The caller may change the request's structs after the call, but
 * the memory they point to only when the results are complete. Allocates nothing and does not
 * block. */
enum trajd_status trajd_plan_run_async(struct trajd_plan *plan,
                                       const struct trajd_resample_request *request,
                                       struct trajd_device_stream *stream,
                                       struct trajd_error *error);

/* Does the same on a cudaStream_t of the calling thread's current GPU. NULL: the legacy default
 * stream. */
enum trajd_status trajd_plan_run_on(struct trajd_plan *plan,
                                    const struct trajd_resample_request *request, void *stream,
                                    struct trajd_error *error);

/* Frees the plan and clears the caller's pointer. NULL is fine. */
void trajd_plan_destroy(struct trajd_plan **plan);

#ifdef __cplusplus
}
#endif
#endif
