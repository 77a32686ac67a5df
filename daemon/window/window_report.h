/* A window plan as text, for --check, the demo and the log. */
#ifndef TRAJD_WINDOW_WINDOW_REPORT_H
#define TRAJD_WINDOW_WINDOW_REPORT_H

#include <stdio.h>

#include "daemon/window/mixture_plan.h"

/* Writes one line for the windows (for a mixture one more per dataset), then one per source of each
 * output: output, stream, clock, kind, grid, role, type and shape. Warnings about resampling that
 * loses or invents rows follow. */
void trajd_window_report(const struct trajd_mixture_plan *plan, FILE *out);

/* Returns "linear", "slerp xyzw", ... */
const char *trajd_window_kind_name(enum trajd_kind kind);
/* Returns "valid", "before start", ... */
const char *trajd_window_mask_name(enum trajd_mask mask);
/* Returns "return" or "sum" where a target adds rows, else the name of its kind. */
const char *trajd_window_target_kind_name(const struct trajd_window_plan *plan,
                                          const struct trajd_plan_target *target);

#endif
