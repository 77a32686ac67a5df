/* Reads `at:` of an output: a range of steps or times. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/feed_spec/window_spec_internal.h"

/* Parses a step count like "-1" or a time like "-200ms". False: neither. */
static bool parse_end(const char *text, bool *in_time, int64_t *value)
{
    char *end;
    long long steps = strtoll(text, &end, 10);

    if (end != text && *end == 0) {
        *in_time = false;
        *value = steps;
        return steps >= -TRAJD_SPEC_MAX_STEPS && steps <= TRAJD_SPEC_MAX_STEPS;
    }
    *in_time = true;
    return trajd_parse_duration(text, value) && llabs(*value) <= TRAJD_SPEC_MAX_NS;
}

static void trim(char *text)
{
    size_t length = strlen(text), lead = strspn(text, " \t");
    while (length > lead && strchr(" \t", text[length - 1]))
        length--;
    memmove(text, text + lead, length - lead);
    text[length - lead] = 0;
}

const char *trajd_spec_range_parse(const char *text, struct trajd_spec_range *range)
{
    char from[64], to[64], *at, *dots;
    bool to_in_time;

    memset(range, 0, sizeof *range);
    if (strlen(text) >= sizeof from)
        return "too long";
    strcpy(from, text);
    at = strchr(from, '@');
    if (at) {
        *at++ = 0;
        strcpy(to, at);
        trim(to);
        if (!trajd_parse_rate(to, &range->rate))
            return "the text after '@' is not a rate in Hz";
    }
    dots = strstr(from, "..");
    strcpy(to, dots ? dots + 2 : from);
    if (dots)
        *dots = 0;
    trim(from);
    trim(to);
    if (!parse_end(from, &range->in_time, &range->from) || !parse_end(to, &to_in_time, &range->to))
        return "expected FROM..TO of whole steps (-1..14) or of times (-200ms..0ms), and "
               "optionally '@ RATE' after it";
    if (range->from == 0 || range->to == 0) /* "0" is a step and a time */
        range->in_time = to_in_time = range->in_time || to_in_time;
    if (range->in_time != to_in_time)
        return "one end is a number of steps and the other a time";
    if (range->from > range->to)
        return "FROM is greater than TO";
    return NULL;
}
