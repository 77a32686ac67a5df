/* Shared by the files of this folder. */
#ifndef TRAJD_LIVE_LIVE_INTERNAL_H
#define TRAJD_LIVE_LIVE_INTERNAL_H

#include "daemon/live/live_description.h"

/* Returns why an output is not part of an observation; NULL: it is. */
const char *trajd_live_left_out(const struct trajd_window_plan *plan, uint32_t output_index);
/* Returns the steps of an output. They are the same for all its sources, except for the rule. */
const struct trajd_plan_grid *trajd_live_grid(const struct trajd_window_plan *plan,
                                              uint32_t output_index);

#endif
