/* Chooses the variant that serves a problem. A pure function of plain numbers, the same for CPU and
 * GPU, so it is tested without either. */
#ifndef TRAJD_KERNELS_DISPATCH_CHOOSE_H
#define TRAJD_KERNELS_DISPATCH_CHOOSE_H

#include <stdint.h>

#include "kernels/dispatch/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers that a choice depends on. A bit set has bit (1 << kind) or (1 << dtype). */
struct trajd_problem {
    uint32_t window_count; /* B */
    uint32_t bracket_count;
    uint32_t stream_count;
    uint32_t copied_count;  /* streams that copy bytes */
    uint32_t step_count;    /* T of the longest grid */
    uint32_t feature_count; /* D of the widest stream */
    uint64_t row_count;     /* S: estimated rows of a window; 0: not known */
    uint64_t target_count;  /* targets to search: B T, summed over brackets */
    uint64_t output_bytes;  /* output size without masks */
    uint32_t kinds;
    uint32_t source_types;
    uint32_t output_types;
    uint8_t has_derivative;
    double cpu_ns; /* estimate for one CPU thread, from the costs in choose.c */
};

struct trajd_choice {
    const char *variant;    /* static string */
    uint32_t thread_count;  /* CPU: threads that share the work */
    uint32_t slice_windows; /* CPU: windows of one slice */
    char reason[160];
};

/* Fills *problem from a request's shape, which must have passed trajd_resample_check_shape. */
void trajd_problem_of(const struct trajd_resample_request *shape, uint64_t row_count,
                      struct trajd_problem *problem);

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
