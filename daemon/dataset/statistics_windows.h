/* Between statistics_windows.c, which says what is counted in what form, and statistics_walk.c, which goes over the windows. */
#ifndef TRAJD_DATASET_STATISTICS_WINDOWS_H
#define TRAJD_DATASET_STATISTICS_WINDOWS_H

#include "daemon/dataset/statistics_sweep.h"

/* Counts the active items of all windows, chunk by chunk; for statistics_run_sweeps. `context` is a struct windows_walk. */
enum trajd_status statistics_walk_windows(struct statistics_sweep *sweep, void *context, struct trajd_error *error);

#endif
