/* Which columns are stamps, by their steps and names. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "clients/cli/draft/draft_clocks.h"
#include "proto/array_len.h"

/* A clock of a robot has a rate in this range. */
static const double rate_min_hz = 1, rate_max_hz = 5000;
/* one that other stamps confirm may also be that of a battery or a GPS receiver */
static const double confirmed_min_hz = 0.01;
/* stamps since 1970 of the years 2001 to 2100 */
static const double epoch_min_s = 1e9, epoch_max_s = 4.1e9;
static const double repeats_max = 0.5; /* of all steps */

static const double per_second[] = {
    [TRAJD_UNIT_NS] = 1e9, [TRAJD_UNIT_US] = 1e6, [TRAJD_UNIT_MS] = 1e3, [TRAJD_UNIT_S] = 1};

struct draft_steps draft_add_steps(const double *values, uint64_t rows, uint64_t stride)
{
    struct draft_steps steps = {.is_integer = true,
                                .rows = rows,
                                .smallest_step = INFINITY,
                                .first = values[0],
                                .last = values[(rows - 1) * stride]};

    for (uint64_t i = 0; i < rows; i++) {
        const double value = values[i * stride];
        const double step = i ? value - values[(i - 1) * stride] : INFINITY;
        steps.is_integer = steps.is_integer && value == floor(value);
        if (!i)
            continue;
        steps.equal += step == 0;
        steps.backward += !(step >= 0); /* also NaN */
        if (step > 0 && step < steps.smallest_step)
            steps.smallest_step = step;
        if (step > steps.largest_step)
            steps.largest_step = step;
    }
    return steps;
}

bool draft_contains(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcasestr(text, words[i]))
            return true;
    }
    return false;
}

static bool is_named_time(const char *name)
{
    static const char *const words[] = {"time", "stamp", "clock", "t_ns", "t_us", "t_ms", "sec"};
    const char *slash = strrchr(name, '/');

    return draft_contains(name, words, ARRAY_LEN(words)) || !strcmp(slash ? slash + 1 : name, "t");
}

/* Numbers that often grow, and that are no time. */
static bool is_named_otherwise(const char *name)
{
    static const char *const words[] = {"index", "step", "frame",  "progress", "count",
                                        "_id",   "rew",  "return", "reward",   "offset"};

    return draft_contains(name, words, ARRAY_LEN(words));
}

/* Returns the unit that the name ends in, or -1. */
static int named_unit(const char *name)
{
    static const struct {
        const char *word;
        enum trajd_stamp_unit unit;
    } units[] = {{"nano", TRAJD_UNIT_NS},   {"_ns", TRAJD_UNIT_NS},   {"micro", TRAJD_UNIT_US},
                 {"_us", TRAJD_UNIT_US},    {"milli", TRAJD_UNIT_MS}, {"_ms", TRAJD_UNIT_MS},
                 {"seconds", TRAJD_UNIT_S}, {"_s", TRAJD_UNIT_S},     {"_sec", TRAJD_UNIT_S}};
    const size_t length = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        const size_t word = strlen(units[i].word);
        if (units[i].word[0] != '_'
                ? strcasestr(name, units[i].word) != NULL
                : length > word && !strcasecmp(name + length - word, units[i].word))
            return (int)units[i].unit;
    }
    return -1;
}

static bool is_rate(double rate_hz)
{
    return rate_hz >= rate_min_hz && rate_hz <= rate_max_hz;
}

/* Finds the unit in which the stamps are times since 1970. */
static bool find_epoch_unit(const struct draft_steps *steps, enum trajd_stamp_unit *unit)
{
    for (int i = TRAJD_UNIT_NS; i <= TRAJD_UNIT_S; i++) {
        *unit = (enum trajd_stamp_unit)i;
        if (steps->first >= epoch_min_s * per_second[i] &&
            steps->first <= epoch_max_s * per_second[i])
            return true;
    }
    return false;
}

/* Finds the unit that gives a plausible rate. Floats are rather seconds, integers rather ns. */
static bool find_rate_unit(const struct draft_steps *steps, double mean_step,
                           enum trajd_stamp_unit *unit)
{
    static const enum trajd_stamp_unit of_floats[] = {TRAJD_UNIT_S, TRAJD_UNIT_MS, TRAJD_UNIT_US,
                                                      TRAJD_UNIT_NS};
    static const enum trajd_stamp_unit of_integers[] = {TRAJD_UNIT_NS, TRAJD_UNIT_US, TRAJD_UNIT_MS,
                                                        TRAJD_UNIT_S};

    for (int i = 0; i < 4; i++) {
        *unit = steps->is_integer ? of_integers[i] : of_floats[i];
        if (is_rate(per_second[*unit] / mean_step))
            return true;
    }
    return false;
}

bool draft_is_clock(const struct draft_steps *steps, const char *name, struct draft_clock *clock)
{
    const double moves = (double)(steps->rows - 1 - steps->equal);
    const double mean_step = (steps->last - steps->first) / (double)(steps->rows - 1);
    const bool is_named = is_named_time(name);
    const int unit = named_unit(name);
    bool is_epoch;

    if (steps->rows < 3 || steps->backward || !isfinite(mean_step) || mean_step <= 0 ||
        moves < (1 - repeats_max) * (double)(steps->rows - 1))
        return false;
    is_epoch = find_epoch_unit(steps, &clock->unit);
    if (!is_epoch && unit >= 0 && is_rate(per_second[unit] / mean_step))
        clock->unit = (enum trajd_stamp_unit)unit;
    else if (!is_epoch && !find_rate_unit(steps, mean_step, &clock->unit))
        return false;
    clock->is_unit_known = is_epoch || (int)clock->unit == unit;
    clock->first = steps->first;
    clock->last = steps->last;
    clock->rate_hz = per_second[clock->unit] / mean_step;
    clock->has_repeats = steps->equal > 0;
    clock->jitter_percent = 100 * fmax(steps->largest_step / mean_step - 1,
                                       1 - fmin(1, steps->smallest_step / mean_step));
    if (is_named)
        return is_rate(clock->rate_hz);
    if (is_named_otherwise(name))
        return false;
    return is_epoch ? is_rate(clock->rate_hz)
                    : clock->jitter_percent < 20 && mean_step != 1 && steps->smallest_step > 0;
}

/* Returns whether the numbers of both, without their units, lie mostly in the same range. */
static bool have_same_range(const struct draft_clock *a, const struct draft_clock *b)
{
    const double common = fmin(a->last, b->last) - fmax(a->first, b->first);

    return common > 0.5 * fmax(a->last - a->first, b->last - b->first);
}

/* Returns the rate that the clock has in another unit. */
static double rate_in(const struct draft_clock *clock, enum trajd_stamp_unit unit)
{
    return clock->rate_hz * per_second[unit] / per_second[clock->unit];
}

void draft_settle_units(struct draft_clocks *clocks)
{
    for (uint32_t i = 0; i < clocks->count; i++) {
        struct draft_clock *clock = &clocks->list[i];
        for (uint32_t j = 0; j < clocks->count && !clock->is_unit_known; j++) {
            const struct draft_clock *other = &clocks->list[j];
            const double rate_hz = rate_in(clock, other->unit);
            if (other->unit == clock->unit || !have_same_range(clock, other) ||
                rate_hz < confirmed_min_hz || rate_hz > rate_max_hz ||
                (!other->is_unit_known && is_rate(rate_in(other, clock->unit))))
                continue;
            clock->unit = other->unit;
            clock->rate_hz = rate_hz;
        }
    }
}

bool draft_have_common_time(const struct draft_clock *a, const struct draft_clock *b)
{
    return a->last / per_second[a->unit] >= b->first / per_second[b->unit] &&
           b->last / per_second[b->unit] >= a->first / per_second[a->unit];
}
