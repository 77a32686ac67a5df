/* The rates of a clock over all episodes, and where they come from. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/index/index.h"

static void add_rate(const struct trajd_episode_clock *clock, struct trajd_index_rates *rates)
{
    const double hz = (double)clock->rate.num / (double)clock->rate.den;

    if (clock->rate_source == TRAJD_RATE_ASSUMED)
        rates->assumed_count++;
    rates->source = rates->assumed_count ? TRAJD_RATE_ASSUMED : TRAJD_RATE_DECLARED;
    if (!rates->lowest_hz || hz < rates->lowest_hz)
        rates->lowest_hz = hz;
    if (hz > rates->highest_hz)
        rates->highest_hz = hz;
}

void trajd_index_rates_add(const struct trajd_index *index, uint32_t clock,
                           struct trajd_index_rates *rates)
{
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode_clock *view =
            index->episodes[e].quarantine ? NULL : &index->episodes[e].clocks[clock];
        if (!view || !view->row_count)
            continue;
        rates->episode_count++;
        if (index->clocks[clock].regular)
            add_rate(view, rates);
    }
}

const char *trajd_index_rates_text(const struct trajd_index_rates *rates,
                                   char text[TRAJD_RATES_TEXT_SIZE])
{
    int length = 0;

    *text = '\0';
    if (!rates->lowest_hz)
        return text;
    if (rates->lowest_hz != rates->highest_hz)
        length = snprintf(text, TRAJD_RATES_TEXT_SIZE, "%.6g to ", rates->lowest_hz);
    length += snprintf(text + length, TRAJD_RATES_TEXT_SIZE - (size_t)length, "%.6g Hz",
                       rates->highest_hz);
    if (rates->assumed_count == rates->episode_count)
        snprintf(text + length, TRAJD_RATES_TEXT_SIZE - (size_t)length, " (assumed)");
    else if (rates->assumed_count)
        snprintf(text + length, TRAJD_RATES_TEXT_SIZE - (size_t)length,
                 " (assumed in %" PRIu32 " of %" PRIu32 " episodes)", rates->assumed_count,
                 rates->episode_count);
    return text;
}
