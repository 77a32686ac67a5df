/* Statistics of an output or of a stream, as data: the figures of each feature, their names in
 * documents, and reading them from a file. daemon/stats computes them.
 *
 * A file is JSON of at most 1 MiB, in one of three forms, told apart by their keys:
 *
 *   trajd     {"trajd_statistics": 1, "outputs": {NAME: {"mean": [...], ...}}}, written by
 *             `trajctl stats`
 *   openpi    {"norm_stats": {NAME: {"mean": [...], "std": [...], "q01": [...], "q99": [...]}}}
 *   LeRobot   {NAME: {"mean": [...], "std": [...], "min": [...], "max": [...], "count": [...]}}
 *
 * Nested lists are read in order, as if they were one list. */
#ifndef TRAJD_WINDOW_STATISTICS_H
#define TRAJD_WINDOW_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/yaml.h"
#include "proto/error.h"

#define TRAJD_STATISTICS_QUANTILES 5 /* 0.01, 0.10, 0.50, 0.90, 0.99 */

#define TRAJD_STATISTICS_ANY_CHAIN UINT64_MAX

/* The figures of one feature. Without any value (count 0) they are NaN. */
struct trajd_feature_statistics {
    uint64_t count;         /* finite values that the figures describe */
    uint64_t nan, infinite; /* values that were left out */
    double mean, std;       /* std of the population: the sum of squares is divided by count */
    double min, max;
    double quantiles[TRAJD_STATISTICS_QUANTILES];
};

enum trajd_statistics_source {
    TRAJD_STATISTICS_WINDOWS = 0, /* an output's steps, once for each window */
    TRAJD_STATISTICS_ROWS = 1, /* an output at each row of the anchor's clock, or a stream's rows */
    TRAJD_STATISTICS_FILE = 2
};

/* One block of memory. The caller frees it with free(). */
struct trajd_statistics {
    enum trajd_statistics_source source;
    /* identifies dataset, windows and output: equal numbers, equal figures. 0: from a file */
    uint64_t fingerprint;
    /* of a file: the chain of the output that it describes (trajd_chain_id), or
     * TRAJD_STATISTICS_ANY_CHAIN where its form does not say */
    uint64_t chain_id;
    uint64_t item_count;  /* windows or rows that were read */
    uint64_t step_count;  /* steps of those windows; else the rows */
    uint64_t valid_count; /* steps that are counted */
    uint32_t feature_count;
    struct trajd_feature_statistics features[];
};

/* Returns statistics of zeros. Caller frees. NULL: no memory. */
struct trajd_statistics *trajd_statistics_new(enum trajd_statistics_source source,
                                              uint32_t feature_count);

/* The figures that documents contain, by their names there. Each is a double of
 * trajd_feature_statistics. */
#define TRAJD_STATISTICS_FIGURES 9
extern const struct trajd_statistics_figure {
    const char *name;
    size_t offset;
} trajd_statistics_figures[TRAJD_STATISTICS_FIGURES];

/* Reads the statistics with the name `name` from a file. Figures that the file lacks are NaN.
 * Caller frees. TRAJD_ERR_NOT_FOUND: no such file, or no such name in it (the message has the
 * nearest name). TRAJD_ERR_DATA: the file has none of the three forms. */
enum trajd_status trajd_statistics_read_file(const char *path, const char *name,
                                             struct trajd_statistics **statistics,
                                             struct trajd_error *error);
/* Does the same for a document that has been read. */
enum trajd_status trajd_statistics_read_yaml(const struct trajd_yaml *yaml, const char *name,
                                             struct trajd_statistics **statistics,
                                             struct trajd_error *error);

#endif
