/* Rates that files state, and rates that are given from outside in their place. */
#include <stdio.h>
#include <string.h>

#include "daemon/base/quantity.h"
#include "daemon/layout/layout.h"

const char *trajd_rate_source_name(enum trajd_rate_source source)
{
    static const char *const names[] = {"measured", "declared", "assumed"};

    return names[source];
}

const char *trajd_layout_rate_place(const struct trajd_layout_clock *clock)
{
    return clock->rate_attribute ? clock->rate_attribute : clock->rate_path;
}

uint32_t trajd_layout_units_per_second(const struct trajd_layout_clock *clock)
{
    static const uint32_t units[] = {
        [TRAJD_RATE_S] = 1, [TRAJD_RATE_MS] = 1000, [TRAJD_RATE_US] = 1000000};

    return units[clock->rate_unit];
}

bool trajd_layout_read_rate(const struct trajd_layout_clock *clock, const char *text,
                            struct trajd_rate *rate)
{
    const uint32_t units = trajd_layout_units_per_second(clock);

    return units ? trajd_parse_period(text, units, rate) : trajd_parse_rate(text, rate);
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool is_same_rate(const struct trajd_layout_clock *a, const struct trajd_layout_clock *b)
{
    return a->rate.num == b->rate.num && a->rate.den == b->rate.den &&
           a->rate_default.num == b->rate_default.num &&
           a->rate_default.den == b->rate_default.den &&
           is_same_text(a->rate_attribute, b->rate_attribute) &&
           is_same_text(a->rate_path, b->rate_path) && a->rate_unit == b->rate_unit &&
           is_same_text(a->rate_json, b->rate_json);
}

enum trajd_status trajd_layout_check_one_rate(const struct trajd_layout *layout,
                                              struct trajd_error *error)
{
    const struct trajd_layout_clock *first = NULL;

    for (uint32_t i = 0; i < layout->clock_count; i++) {
        const struct trajd_layout_clock *clock = &layout->clocks[i];
        if (clock->stamps_path)
            continue;
        if (first && !is_same_rate(first, clock))
            return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                   "rate: layout %s has clocks of different rates (%s, %s): write "
                                   "their rates into a copy of the layout",
                                   layout->name, first->name, clock->name);
        if (!first)
            first = clock;
    }
    if (first)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "rate: layout %s takes all times from recorded stamps (clock %s): leave "
                           "the rate out",
                           layout->name, layout->clocks[0].name);
}
