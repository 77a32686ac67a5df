/* Faults that only two of a kind show: masks of training and validation that list the same episode,
 * and clocks of one episode whose times run apart. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/files/examine_internal.h"
#include "proto/plural.h"

enum { MASK_PAIRS_MAX = 64, NAME_SIZE = 256 };

/* ---- masks ---- */

static bool is_listed(const struct trajd_episode *episode, const char *mask)
{
    const char *const *key = episode->filter_keys;

    while (key && *key && strcmp(*key, mask))
        key++;
    return key && *key;
}

/* Returns whether the mask's name ends with the word of training masks. Then writes the name of its
 * validation mask: "20_percent_valid" for "20_percent_train". */
static bool find_partner(const struct examine_limits *limits, const char *mask,
                         char partner[NAME_SIZE])
{
    const size_t word = strlen(limits->train), length = strlen(mask);

    return length >= word && !strcmp(mask + length - word, limits->train) &&
           snprintf(partner, NAME_SIZE, "%.*s%s", (int)(length - word), mask, limits->valid) <
               NAME_SIZE;
}

/* Reports a training mask that shares its first episode, number `first`, with the other mask. */
static void report_masks(const struct examiner *examiner, uint32_t first, const char *mask,
                         const char *partner)
{
    const struct trajd_index *index = examiner->index;
    struct examine_finding finding =
        examine_at(index, EXAMINE_MASKS, &index->episodes[first], NULL, 1);

    for (uint32_t e = first + 1; e < index->episode_count; e++)
        finding.count +=
            is_listed(&index->episodes[e], mask) && is_listed(&index->episodes[e], partner);
    examine_report(examiner, &finding,
                   "the masks %s and %s share %" PRIu64 " episode%s; this is the first", mask,
                   partner, finding.count, trajd_plural(finding.count));
}

static void examine_masks(const struct examiner *examiner)
{
    const struct trajd_index *index = examiner->index;
    const char *told[MASK_PAIRS_MAX];
    char partner[NAME_SIZE];
    size_t count = 0, t;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const char *const *mask = index->episodes[e].filter_keys;
        for (; mask && *mask && count < MASK_PAIRS_MAX; mask++) {
            if (!find_partner(examiner->limits, *mask, partner) ||
                !is_listed(&index->episodes[e], partner))
                continue;
            for (t = 0; t < count && strcmp(told[t], *mask); t++)
                ;
            if (t < count)
                continue;
            told[count++] = *mask;
            report_masks(examiner, e, *mask, partner);
        }
    }
}

/* ---- drift ---- */

/* The largest drift that is believed: of equal rows, and of rates, beyond which they are others
 * (29.97 and 30 Hz differ by 999 ppm). */
static const double rows_drift_max = 1e-2, rates_drift_max = 5e-4;
enum { RATIO_MAX = 3 }; /* the slower of two clocks has 1 to 3 rows for whole rows of the other */

/* A line through points (x, x + d): its slope is 1 + drift. */
struct line {
    double count, x, d, xx, xd, dd; /* sums, from the first point */
};

static void add_point(struct line *line, double x, double d)
{
    line->count++;
    line->x += x;
    line->d += d;
    line->xx += x * x;
    line->xd += x * d;
    line->dd += d * d;
}

/* Returns the drift. *error becomes its standard error, *scatter that of a point. */
static double find_drift(const struct line *line, double *error, double *scatter)
{
    const double n = line->count, xx = line->xx - line->x * line->x / n,
                 xd = line->xd - line->x * line->d / n, dd = line->dd - line->d * line->d / n;
    const double rest = (dd - xd * xd / xx) / (n - 2);

    *scatter = sqrt(rest > 0 ? rest : 0);
    *error = *scatter / sqrt(xx);
    return xd / xx;
}

static double seconds(const struct trajd_episode_clock *clock, int64_t row)
{
    return 1e-9 * (double)(trajd_clock_row_ns(clock, row) - trajd_clock_row_ns(clock, 0));
}

/* Returns how much longer the intervals of a clock are than its median one. Where rows are missing,
 * intervals are several of them. NaN: they vary too much to count them. */
static double find_interval(const struct trajd_episode_clock *clock, double median, double *error)
{
    struct line line = {0};
    double rows = 0, scatter, drift;

    for (int64_t row = 0; row < clock->row_count; row++) {
        const double x = rows * median;
        add_point(&line, x, seconds(clock, row) - x);
        if (row + 1 < clock->row_count)
            rows += round((seconds(clock, row + 1) - seconds(clock, row)) / median);
    }
    drift = find_drift(&line, error, &scatter);
    return scatter < median / 4 ? drift : NAN;
}

/* Compares two clocks of different row counts: by their intervals, which must have a simple ratio.
 * Writes it. NaN: they have none. */
static double compare_rates(const struct trajd_episode_clock *one,
                            const struct trajd_episode_clock *other, double *error, char how[64])
{
    const double one_ns = (double)one->median_ns, other_ns = (double)other->median_ns;
    double one_error, other_error, ratio, drift = NAN;

    if (!one->stamps_ns || !other->stamps_ns || !one->median_ns || !other->median_ns)
        return NAN;
    ratio = other_ns * (1 + find_interval(other, 1e-9 * other_ns, &other_error)) /
            (one_ns * (1 + find_interval(one, 1e-9 * one_ns, &one_error)));
    *error = hypot(one_error, other_error);
    for (int k = 1; k <= RATIO_MAX && !(fabs(drift) <= rates_drift_max); k++) {
        const double p = ratio >= 1 ? round(ratio * k) : k, q = ratio >= 1 ? k : round(k / ratio);
        drift = ratio * q / p - 1;
        snprintf(how, 64, "by the rates, which are %.0f to %.0f", q, p);
    }
    return fabs(drift) <= rates_drift_max ? drift : NAN;
}

/* Compares two clocks of as many rows, row by row. */
static double compare_rows(const struct trajd_episode_clock *one,
                           const struct trajd_episode_clock *other, double *error, char how[64])
{
    struct line line = {0};
    double scatter, drift;

    for (int64_t row = 0; row < one->row_count; row++)
        add_point(&line, seconds(one, row), seconds(other, row) - seconds(one, row));
    drift = find_drift(&line, error, &scatter);
    snprintf(how, 64, "row by row");
    return fabs(drift) <= rows_drift_max ? drift : NAN;
}

static void compare_clocks(const struct examiner *examiner, const struct trajd_episode *episode,
                           uint32_t a, uint32_t b)
{
    const struct examine_limits *limits = examiner->limits;
    const struct trajd_index *index = examiner->index;
    const struct trajd_episode_clock *one = &episode->clocks[a], *other = &episode->clocks[b];
    const struct examine_finding finding =
        examine_at(index, EXAMINE_DRIFT, episode, index->clocks[b].name, 1);
    double span, drift, error = 0;
    char how[64];

    if (one->row_count < 3 || other->row_count < 3)
        return;
    span = fmin(seconds(one, one->row_count - 1), seconds(other, other->row_count - 1));
    if (span < 1e-9 * (double)limits->drift_time_ns)
        return;
    drift = one->row_count == other->row_count && !one->kept_rows && !other->kept_rows
                ? compare_rows(one, other, &error, how)
                : compare_rates(one, other, &error, how);
    if (fabs(drift) - 3 * error > 1e-6 * limits->drift_ppm)
        examine_report(examiner, &finding,
                       "its time runs %.1f ppm %s than that of the clock %s, %s: %.3g ms in %.4g s "
                       "(more than %g ppm over at least %g s is a finding)",
                       1e6 * fabs(drift), drift > 0 ? "faster" : "slower", index->clocks[a].name,
                       how, 1e3 * fabs(drift) * span, span, limits->drift_ppm,
                       1e-9 * (double)limits->drift_time_ns);
}

static bool is_measured(const struct trajd_episode_clock *clock)
{
    return clock->stamps_ns || clock->rate_source != TRAJD_RATE_ASSUMED;
}

static void examine_drift(const struct examiner *examiner)
{
    const struct trajd_index *index = examiner->index;

    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        for (uint32_t b = 1; b < index->clock_count && !episode->quarantine; b++)
            for (uint32_t a = 0; a < b; a++)
                if (is_measured(&episode->clocks[a]) && is_measured(&episode->clocks[b]))
                    compare_clocks(examiner, episode, a, b);
    }
}

enum trajd_status examine_pairs(const struct examiner *examiner, struct trajd_error *error)
{
    examine_masks(examiner);
    examine_drift(examiner);
    return examine_duplicates(examiner, error);
}
