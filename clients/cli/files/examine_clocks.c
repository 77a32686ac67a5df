/* What the index already says: refusals, assumed rates, dropped rows and gaps. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/cli/files/examine_internal.h"
#include "daemon/base/memory.h"
#include "proto/plural.h"

#define GAP_FACTOR 1.75

void examine_report(const struct examiner *examiner, const struct examine_finding *base,
                    const char *format, ...)
{
    struct examine_finding finding = *base;
    char text[1024];
    va_list arguments;

    if (!finding.count)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    finding.text = text;
    examiner->report(examiner->context, &finding);
}

void examine_refusals(const struct examiner *examiner)
{
    const struct trajd_index *index = examiner->index;

    for (uint32_t f = 0; f < index->file_count; f++)
        if (index->files[f].refusal)
            examine_report(examiner,
                           &(struct examine_finding){EXAMINE_REFUSED, index->files[f].relative_path,
                                                     NULL, NULL, -1, 1, NULL},
                           "%s", index->files[f].refusal);
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct examine_finding finding =
            examine_at(index, EXAMINE_QUARANTINED, &index->episodes[e], NULL, 1);
        if (index->episodes[e].quarantine)
            examine_report(examiner, &finding, "%s", index->episodes[e].quarantine);
    }
    for (uint32_t n = 0; n < index->note_count; n++)
        examine_report(examiner,
                       &(struct examine_finding){EXAMINE_LEFT_OUT, NULL, NULL, NULL, -1, 1, NULL},
                       "%s", index->notes[n]);
}

void examine_rates(const struct examiner *examiner)
{
    const struct trajd_index *index = examiner->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        const struct trajd_layout_clock *source = &index->layout->clocks[c];
        const char *place = trajd_layout_rate_place(source);
        struct trajd_index_rates rates = {0};
        char text[TRAJD_RATES_TEXT_SIZE];
        trajd_index_rates_add(index, c, &rates);
        if (!rates.assumed_count)
            continue;
        examine_report(examiner,
                       &(struct examine_finding){EXAMINE_ASSUMED_RATE, NULL, NULL, source->name, -1,
                                                 rates.assumed_count, NULL},
                       "%s: no file states the rate%s%s%s%s%s; state it with assume_rate: for "
                       "preprocess, --assume-rate=HZ for resample, datasets.NAME.rate for a daemon",
                       trajd_index_rates_text(&rates, text), place ? ", which would be in " : "",
                       place ? place : "", source->rate_json ? " " : "",
                       source->rate_json ? source->rate_json : "",
                       place ? "" : ": it is only the layout's `rate:`");
    }
}

static void examine_gaps(const struct examiner *examiner, const struct trajd_episode_clock *clock,
                         struct examine_finding finding)
{
    int64_t *scratch = trajd_memory_or_exit(malloc((size_t)clock->row_count * sizeof *scratch));
    const int64_t median = trajd_clock_find_median(clock, scratch);
    int64_t longest = 0;

    free(scratch);
    finding.rule = EXAMINE_GAPS;
    finding.count = 0;
    for (int64_t i = 0; i + 1 < clock->row_count; i++) {
        const int64_t interval = clock->stamps_ns[i + 1] - clock->stamps_ns[i];
        if ((double)interval <= GAP_FACTOR * (double)median)
            continue;
        examine_count(&finding, examine_array_row(clock, i));
        longest = interval > longest ? interval : longest;
    }
    examine_report(examiner, &finding,
                   "%" PRIu64 " gap%s, the first after row %" PRId64
                   ", the longest %.6g ms; the median interval is %.6g ms",
                   finding.count, trajd_plural(finding.count), finding.row, (double)longest / 1e6,
                   (double)median / 1e6);
}

static void examine_end(const struct examiner *examiner, const struct trajd_episode *episode,
                        uint32_t clock, struct examine_finding finding)
{
    char text[TRAJD_EARLY_END_TEXT_SIZE];

    finding.rule = EXAMINE_ENDS_EARLY;
    finding.count = 1;
    finding.row = -1;
    if (trajd_episode_ends_early(episode, clock, text))
        examine_report(examiner, &finding, "%s", text);
}

static int64_t first_dropped(const struct trajd_episode_clock *clock)
{
    int64_t row = 0;

    while (clock->kept_rows && row < clock->row_count && clock->kept_rows[row] == row)
        row++;
    return row;
}

void examine_clocks(const struct examiner *examiner, const struct trajd_episode *episode)
{
    const struct trajd_index *index = examiner->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        const struct trajd_episode_clock *clock = &episode->clocks[c];
        struct examine_finding finding =
            examine_at(index, EXAMINE_STAMPS, episode, index->clocks[c].name, clock->dropped_rows);
        finding.row = first_dropped(clock);
        examine_report(examiner, &finding,
                       "%" PRIu64 " row%s dropped, the first is row %" PRId64
                       ": stamps repeat or go back",
                       clock->dropped_rows, trajd_plural(clock->dropped_rows), finding.row);
        examine_end(examiner, episode, c, finding);
        if (clock->stamps_ns && clock->row_count >= 3)
            examine_gaps(examiner, clock, finding);
    }
}
