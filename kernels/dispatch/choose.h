/* Chooses the variant that serves a problem. A pure function of plain numbers, the same for CPU and
 * GPU, so it is tested without either. */
#ifndef TRAJD_KERNELS_DISPATCH_CHOOSE_H
#define TRAJD_KERNELS_DISPATCH_CHOOSE_H

#include <stdint.h>

#include "kernels/dispatch/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers that a choice depends on. */
struct trajd_problem {
    uint32_t window_count; /* B */
    uint32_t stream_count;
    uint32_t copied_count; /* streams that copy bytes */
    double cpu_ns;         /* estimate for one CPU thread, from the costs in choose.c */
};

typedef void trajd_run_windows(const struct trajd_resample_request *request, uint32_t window_begin,
                               uint32_t window_end);

struct trajd_choice {
    const char *variant;    /* static string */
    trajd_run_windows *run; /* NULL: on a GPU, with the style below */
    int cuda_style;
    uint32_t thread_count;  /* CPU: threads that share the work */
    uint32_t slice_windows; /* CPU: windows of one slice */
    char reason[160];
};

/* Fills *problem from a request's shape, which must have passed trajd_resample_check_shape. */
void trajd_problem_of(const struct trajd_resample_request *shape, struct trajd_problem *problem);

/* Chooses the first row of the table that serves the problem. If `requested` is not NULL and not
 * "auto", only rows of that name count. Returns TRAJD_ERR_ARGUMENT if no row matches; the message
 * lists the variants that would serve. */
enum trajd_status trajd_choose(const struct trajd_problem *problem,
                               const struct trajd_device_facts *facts, const char *requested,
                               struct trajd_choice *choice, struct trajd_error *error);

#ifdef __cplusplus
}
#endif
#endif
