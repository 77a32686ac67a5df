/* Statistics from files of ours and of others: JSON, told apart by what is in it.
 *
 *   trajd     {"trajd_statistics": 1, "outputs": {NAME: {"mean": [...], ...}}}         what trajctl
 *             stats writes
 *   openpi    {"norm_stats": {NAME: {"mean": [...], "std": [...], "q01": [...], "q99": [...]}}}
 *   LeRobot   {NAME: {"mean": [...], "std": [...], "min": [...], "max": [...], "count": [...]}};
 *             nested lists are taken in order
 *
 * At most 1 MiB. */
#ifndef TRAJD_STATS_STATS_FILE_H
#define TRAJD_STATS_STATS_FILE_H

#include "daemon/base/yaml.h"
#include "daemon/stats/stats.h"

/* The statistics that the file has under `name`; figures that it lacks are NaN.
 * TRAJD_ERR_NOT_FOUND: no file, or no such name (the nearest is told). TRAJD_ERR_DATA: of no known
 * form. free() the result. */
enum trajd_status trajd_statistics_read_file(const char *path, const char *name,
                                             struct trajd_statistics **statistics,
                                             struct trajd_error *error);
/* The same of a document that has been read. */
enum trajd_status trajd_statistics_read_yaml(const struct trajd_yaml *yaml, const char *name,
                                             struct trajd_statistics **statistics,
                                             struct trajd_error *error);

#endif
