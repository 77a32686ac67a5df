/* What the index already says: refusals, assumed rates, dropped rows and gaps. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "clients/cli/files/examine_internal.h"
#include "proto/plural.h"

#define GAP_FACTOR 1.75

void examine_report(struct examiner *examiner, const struct examine_finding *base,
                    const char *format, ...)
{
    struct examine_finding finding = *base;
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    finding.text = text;
    examiner->report(examiner->context, &finding);
}

void examine_refusals(struct examiner *examiner)
{
    const struct trajd_index *index = examiner->index;

    for (uint32_t f = 0; f < index->file_count; f++)
        if (index->files[f].refusal)
            examine_report(examiner,
                           &(struct examine_finding){EXAMINE_REFUSED, index->files[f].relative_path,
                                                     NULL, NULL, -1, 1, NULL},
                           "%s", index->files[f].refusal);
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const struct trajd_episode *episode = &index->episodes[e];
        if (episode->quarantine)
            examine_report(examiner,
                           &(struct examine_finding){
                               EXAMINE_QUARANTINED, index->files[episode->file_index].relative_path,
                               episode->id, NULL, -1, 1, NULL},
                           "%s", episode->quarantine);
    }
    for (uint32_t n = 0; n < index->note_count; n++)
        examine_report(examiner,
                       &(struct examine_finding){EXAMINE_LEFT_OUT, NULL, NULL, NULL, -1, 1, NULL},
                       "%s", index->notes[n]);
}

void examine_rates(struct examiner *examiner)
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

static int compare_numbers(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void examine_gaps(struct examiner *examiner, const struct trajd_episode_clock *clock,
                         struct examine_finding finding, int64_t *intervals)
{
    const int64_t count = clock->row_count - 1;
    int64_t median, longest = 0;

    for (int64_t i = 0; i < count; i++)
        intervals[i] = clock->stamps_ns[i + 1] - clock->stamps_ns[i];
    qsort(intervals, (size_t)count, sizeof *intervals, compare_numbers);
    median = intervals[count / 2];
    finding.rule = EXAMINE_GAPS;
    finding.count = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t interval = clock->stamps_ns[i + 1] - clock->stamps_ns[i];
        if ((double)interval <= GAP_FACTOR * (double)median)
            continue;
        if (!finding.count++)
            finding.row = clock->kept_rows ? clock->kept_rows[i] : i;
        longest = interval > longest ? interval : longest;
    }
    if (finding.count)
        examine_report(examiner, &finding,
                       "%" PRIu64 " gap%s, the first after row %" PRId64
                       ", the longest %.6g ms; the median interval is %.6g ms",
                       finding.count, trajd_plural(finding.count), finding.row,
                       (double)longest / 1e6, (double)median / 1e6);
}

static void examine_end(struct examiner *examiner, const struct trajd_episode *episode,
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

enum trajd_status examine_clocks(struct examiner *examiner, const struct trajd_episode *episode,
                                 struct trajd_error *error)
{
    const struct trajd_index *index = examiner->index;

    for (uint32_t c = 0; c < index->clock_count; c++) {
        const struct trajd_episode_clock *clock = &episode->clocks[c];
        struct examine_finding finding =
            examine_at(index, EXAMINE_STAMPS, episode, index->clocks[c].name);
        int64_t *intervals;
        if (clock->dropped_rows) {
            finding.row = first_dropped(clock);
            finding.count = clock->dropped_rows;
            examine_report(examiner, &finding,
                           "%" PRIu64 " row%s dropped, the first is row %" PRId64
                           ": stamps repeat or go back",
                           clock->dropped_rows, trajd_plural(clock->dropped_rows), finding.row);
        }
        examine_end(examiner, episode, c, finding);
        if (!clock->stamps_ns || clock->row_count < 3)
            continue;
        intervals = calloc((size_t)clock->row_count, sizeof *intervals);
        if (!intervals)
            return trajd_error_set(error, TRAJD_ERR_MEMORY, 0,
                                   "no memory for the intervals of a clock");
        examine_gaps(examiner, clock, finding, intervals);
        free(intervals);
    }
    return TRAJD_OK;
}
