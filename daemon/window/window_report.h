/* A window plan in words, for people: --check, the demo, the log. */
#ifndef TRAJD_WINDOW_WINDOW_REPORT_H
#define TRAJD_WINDOW_WINDOW_REPORT_H

#include <stdio.h>

#include "daemon/window/mixture_plan.h"

/* A line for the windows (of a mixture one more for each dataset), then one per source of each
 * output: output, stream, clock, kind, grid, role, type and shape; behind them warnings about
 * resampling that loses or invents rows. */
void trajd_window_report(const struct trajd_mixture_plan *plan, FILE *out);

/* "linear", "slerp xyzw", ... */
const char *trajd_window_kind_name(enum trajd_kind kind);

#endif
