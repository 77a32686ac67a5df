/* One stream of one episode as numbers in memory, as recorded and as resampled, for plots. */
#ifndef TRAJD_CLI_RESAMPLE_CONVERT_SERIES_H
#define TRAJD_CLI_RESAMPLE_CONVERT_SERIES_H

#include "clients/cli/resample/convert.h"

struct convert_series_options {
    const struct trajd_index *index;
    const struct trajd_episode *episode; /* an episode of the index that is not quarantined */
    const char *stream;
    struct trajd_convert_rule rule; /* its `stream` is ignored */
    struct trajd_rate rate;         /* num 0: 20 Hz */
    int64_t from_ns, to_ns;         /* from the episode's origin */
    uint32_t features_max;
};

/* Times are in s from the episode's origin. Values are [count][feature_count]. */
struct convert_series {
    const char *kind;
    struct trajd_rate rate;
    uint32_t feature_count;
    uint64_t features_left_out;
    uint64_t row_count, step_count;
    double *row_times_s, *rows, *step_times_s, *steps;
};

/* Reads one stream. The caller destroys *series. TRAJD_ERR_NOT_FOUND: no such stream, or no rows in
 * the span. TRAJD_ERR_UNSUPPORTED: more than 8 Mi values or 512 MiB of rows; a shorter span is
 * needed. */
enum trajd_status convert_series_read(const struct convert_series_options *options,
                                      struct convert_series **series, struct trajd_error *error);
void convert_series_destroy(struct convert_series **series);

#endif
