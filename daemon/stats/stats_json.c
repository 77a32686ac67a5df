/* Writes statistics as JSON. */
#include <inttypes.h>
#include <stddef.h>

#include "daemon/base/json.h"
#include "daemon/stats/stats.h"

static const char *const sources[] = {"windows", "rows", "file"};

static const struct {
    const char *name;
    size_t offset;
} counts[] = {
    {"count", offsetof(struct trajd_feature_statistics, count)},
    {"nan", offsetof(struct trajd_feature_statistics, nan)},
    {"infinite", offsetof(struct trajd_feature_statistics, infinite)},
};

void trajd_statistics_write_floats(const float *values, uint32_t count, const char *key,
                                   struct trajd_json *json)
{
    trajd_json_open_array(json, key);
    for (uint32_t i = 0; i < count; i++)
        trajd_json_number(json, NULL, "%.9g", (double)values[i]);
    trajd_json_close_array(json);
}

static const void *member(const struct trajd_statistics *statistics, uint32_t feature,
                          size_t offset)
{
    return (const char *)&statistics->features[feature] + offset;
}

void trajd_statistics_write(const struct trajd_statistics *statistics, uint32_t first,
                            uint32_t count, struct trajd_json *json)
{
    const uint32_t end = first + count;

    trajd_json_string(json, "source", sources[statistics->source]);
    trajd_json_format(json, "fingerprint", "%016" PRIx64, statistics->fingerprint);
    trajd_json_u64(json, statistics->source == TRAJD_STATISTICS_ROWS ? "rows" : "windows",
                   statistics->item_count);
    trajd_json_u64(json, "steps", statistics->step_count);
    trajd_json_u64(json, "valid_steps", statistics->valid_count);
    trajd_json_u64(json, "features", statistics->feature_count);
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        trajd_json_open_array(json, counts[n].name);
        for (uint32_t i = first; i < end; i++)
            trajd_json_u64(json, NULL, *(const uint64_t *)member(statistics, i, counts[n].offset));
        trajd_json_close_array(json);
    }
    for (size_t n = 0; n < TRAJD_STATISTICS_FIGURES; n++) {
        const size_t offset = trajd_statistics_figures[n].offset;
        trajd_json_open_array(json, trajd_statistics_figures[n].name);
        for (uint32_t i = first; i < end; i++)
            trajd_json_number(json, NULL, "%.17g", *(const double *)member(statistics, i, offset));
        trajd_json_close_array(json);
    }
}
