/* libtrajd_kernels: resampling of time series, on the CPU or on an NVIDIA GPU. C11 and C++17.
 *
 * kernels/resample.h, which this header includes, defines a request: the arrays with their shapes
 * and units, the kinds of interpolation and the mask codes. This header runs requests. The daemon
 * trajd and the Python package run theirs with the same library.
 *
 *     struct trajd_kernels *kernels;
 *     struct trajd_kernels_plan *plan;
 *     struct trajd_error error;
 *     struct trajd_resample_request request = {.window_count = 256, ...};
 *     if (trajd_kernels_open(&(struct trajd_kernels_options){.thread_count = 2}, &kernels, &error) ||
 *         trajd_kernels_plan_create(kernels, &request, NULL, &plan, &error) ||
 *         trajd_kernels_run(plan, &request, NULL, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     trajd_kernels_plan_destroy(&plan);
 *     trajd_kernels_close(&kernels);
 *
 * Memory. A run reads and writes the caller's arrays and copies none of them. They are host memory
 * for a CPU, and device memory for a GPU; the structs of a request are always host memory. open and
 * plan_create allocate, and run does not.
 *
 * Errors. A function that returns enum trajd_status returns TRAJD_OK or the status of the error,
 * and fills *error; `error` may be NULL. If run returns an error, it has written nothing. NaN, gaps
 * and missing rows are not errors: the mask says so for each step. If the stamps of a clock do not
 * ascend, a run stays inside the arrays, but it may use other rows.
 *
 * Threads. Any thread may call any function at any time, and several threads may run one plan at
 * the same time. Runs that share the threads of one `struct trajd_kernels` take turns. Close and
 * destroy need that no other thread uses the object. After a fork the child may run plans that were
 * made with thread_count 1, and no others.
 *
 * ABI. The library's name changes (libtrajd_kernels.so.2) if a change breaks programs. The members
 * `reserved` of structs are zero, so that structs keep their size when they get members. Zero is
 * the default of every member of the options. The numbers of enums do not change. */
#ifndef TRAJD_KERNELS_H
#define TRAJD_KERNELS_H

#include <stdint.h>

#include "kernels/resample.h"
#include "proto/dtype.h"
#include "proto/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trajd_kernels;      /* threads of the CPU, or one GPU */
struct trajd_kernels_plan; /* how requests of one shape run there */

enum trajd_kernels_place {
    TRAJD_KERNELS_CPU = 0,
    TRAJD_KERNELS_GPU = 1,
};

struct trajd_kernels_options {
    enum trajd_kernels_place place;
    /* CPU: threads that share a run, with the calling one; 0: 1, at most 1024 */
    uint32_t thread_count;
    uint32_t gpu_ordinal; /* GPU: its number as cudaSetDevice counts */
    /* GPU: a file of measured launch shapes for the GPU (bench_resample tune); NULL: by rule */
    const char *tuning_path;
    uint64_t reserved[8]; /* 0 */
};

/* Starts the threads, or opens the GPU in its primary context. The threads block all signals. The
 * caller closes *kernels.
 * TRAJD_ERR_ARGUMENT: wrong options; TRAJD_ERR_UNSUPPORTED: the library has no CUDA kernels, or
 * none for this GPU; TRAJD_ERR_NOT_FOUND: no such GPU, or its driver is missing or too old;
 * TRAJD_ERR_SYSTEM: a thread cannot be started. */
enum trajd_status trajd_kernels_open(const struct trajd_kernels_options *options,
                                     struct trajd_kernels **kernels, struct trajd_error *error);

/* Ends the threads and clears the pointer; NULL is fine. All plans must have been destroyed. */
void trajd_kernels_close(struct trajd_kernels **kernels);

/* Makes a plan for requests of the shape of `shape`: the same clocks, grids, brackets and streams
 * (kinds, types, T, D), and at most as many windows. The pointers in a request, S, strides and
 * limits such as max_gap_ns may differ from run to run. In `shape` all pointers to arrays may be
 * NULL; a stream whose scale and offset, derivative or mask is NULL there may have them later. Only
 * if window_rows is not NULL in the shape may requests have it. window_count is at least 1.
 * `variant` NULL: chosen by rule; else the name of a variant, such as "reference".
 * TRAJD_ERR_ARGUMENT, TRAJD_ERR_UNSUPPORTED: the shape breaks a rule of resample.h, which the
 * message names ("streams[3]: ..."). */
enum trajd_status trajd_kernels_plan_create(struct trajd_kernels *kernels,
                                            const struct trajd_resample_request *shape,
                                            const char *variant, struct trajd_kernels_plan **plan,
                                            struct trajd_error *error);

/* Returns one line with the variant and the reason for it. Owned by the plan. */
const char *trajd_kernels_plan_describe(const struct trajd_kernels_plan *plan);

/* Runs a request. Allocates nothing.
 *   CPU  `stream` must be NULL. The results are complete on return.
 *   GPU  `stream` is a cudaStream_t or CUstream of the primary context; NULL: the legacy default
 *        stream. Launches kernels and returns; never waits for the GPU, so it also works while a
 *        graph is captured. The results are complete when the stream has passed the launches. The
 *        caller may change the structs of the request at once, and the arrays when the results are
 *        complete. Leaves the GPU as the calling thread's current device.
 * TRAJD_ERR_ARGUMENT, TRAJD_ERR_UNSUPPORTED: the request breaks a rule, or differs from the plan;
 * TRAJD_ERR_DEVICE: the GPU refused the launch. */
enum trajd_status trajd_kernels_run(const struct trajd_kernels_plan *plan,
                                    const struct trajd_resample_request *request, void *stream,
                                    struct trajd_error *error);

/* Frees the plan and clears the pointer; NULL is fine. On a GPU runs may still be in progress. */
void trajd_kernels_plan_destroy(struct trajd_kernels_plan **plan);

#ifdef __cplusplus
}
#endif
#endif
