/* One stream of one episode as numbers in memory, as it was recorded and as a conversion makes it:
 * for looking at it. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_SERIES_H
#define TRAJD_CLI_RESAMPLE_CONVERT_SERIES_H

#include "clients/cli/resample/convert.h"

struct convert_series_options {
    const struct trajd_index *index;
    const struct trajd_episode *episode; /* kept, of the index */
    const char *stream;
    struct trajd_convert_rule rule; /* its `stream` is not looked at */
    struct trajd_rate rate;         /* num 0: 20 Hz */
    int64_t from_ns, to_ns;         /* of the episode's origin */
    uint32_t features_max;
};

/* Times in s from the episode's origin; values [count][feature_count]. */
struct convert_series {
    const char *kind;
    struct trajd_rate rate;
    uint32_t feature_count;
    uint64_t features_left_out;
    uint64_t row_count, step_count;
    double *row_times_s, *rows, *step_times_s, *steps;
};

/* TRAJD_ERR_NOT_FOUND: no such stream, or no rows in that span; TRAJD_ERR_UNSUPPORTED: more than
 * some million values: a shorter span is needed. */
enum trajd_status convert_series_read(const struct convert_series_options *options,
                                      struct convert_series **series, struct trajd_error *error);
void convert_series_destroy(struct convert_series **series);

#endif
