/* Rates that are given from outside in place of the layout's. */
#include <stdio.h>
#include <string.h>

#include "daemon/layout/layout.h"

const char *trajd_rate_source_name(enum trajd_rate_source source)
{
    static const char *const names[] = {"measured", "declared", "assumed"};

    return names[source];
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
