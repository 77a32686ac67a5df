/* Between the makers of a window plan: its targets in window_plan.c, its grids and brackets in
 * window_plan_grid.c. */
#ifndef TRAJD_WINDOW_WINDOW_PLAN_INTERNAL_H
#define TRAJD_WINDOW_WINDOW_PLAN_INTERNAL_H

#include "daemon/window/window_plan.h"

/* "line N: outputs.NAME: ..." */
enum trajd_status trajd_plan_output_error(const struct trajd_spec_output *output,
                                          struct trajd_error *error, enum trajd_status status,
                                          const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The bracket in which the output sees a stream, new if there is none like it; and so its grid. */
enum trajd_status trajd_plan_find_bracket(struct trajd_window_plan *plan,
                                          const struct trajd_spec_output *output,
                                          const struct trajd_index_stream *stream, bool is_absent,
                                          uint32_t *bracket_index, struct trajd_error *error);

#endif
