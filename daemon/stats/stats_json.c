#include <inttypes.h>
#include <math.h>
#include <stddef.h>

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

static void write_number(double value, int digits, FILE *out)
{
    if (isfinite(value))
        fprintf(out, "%.*g", digits, value);
    else
        fprintf(out, "null");
}

void trajd_statistics_write_floats(const float *values, uint32_t count, FILE *out)
{
    for (uint32_t i = 0; i < count; i++) {
        fputc(i ? ',' : '[', out);
        write_number((double)values[i], 9, out);
    }
    fprintf(out, count ? "]" : "[]");
}

static const void *member(const struct trajd_statistics *statistics, uint32_t feature,
                          size_t offset)
{
    return (const char *)&statistics->features[feature] + offset;
}

void trajd_statistics_write(const struct trajd_statistics *statistics, uint32_t first,
                            uint32_t count, FILE *out)
{
    fprintf(out, "\"source\":\"%s\",\"fingerprint\":\"%016" PRIx64 "\",\"%s\":%" PRIu64,
            sources[statistics->source], statistics->fingerprint,
            statistics->source == TRAJD_STATISTICS_ROWS ? "rows" : "windows",
            statistics->item_count);
    fprintf(out, ",\"steps\":%" PRIu64 ",\"valid_steps\":%" PRIu64 ",\"features\":%u",
            statistics->step_count, statistics->valid_count, statistics->feature_count);
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        fprintf(out, ",\"%s\":[", counts[n].name);
        for (uint32_t i = first; i < first + count; i++)
            fprintf(out, "%s%" PRIu64, i > first ? "," : "",
                    *(const uint64_t *)member(statistics, i, counts[n].offset));
        fputc(']', out);
    }
    for (size_t n = 0; n < TRAJD_STATISTICS_FIGURES; n++) {
        fprintf(out, ",\"%s\":[", trajd_statistics_figures[n].name);
        for (uint32_t i = first; i < first + count; i++) {
            fprintf(out, "%s", i > first ? "," : "");
            write_number(*(const double *)member(statistics, i, trajd_statistics_figures[n].offset),
                         17, out);
        }
        fputc(']', out);
    }
}
