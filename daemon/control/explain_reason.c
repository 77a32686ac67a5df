#include "daemon/control/query.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

#include <inttypes.h>
#include <stdio.h>

/* Writes a duration with six digits: "83 ms", "1.5 s", "41.6667 ms". */
static const char *duration(uint64_t ns, char *text, size_t size)
{
    if (ns >= 1000000000)
        snprintf(text, size, "%.6g s", (double)ns * 1e-9);
    else if (ns >= 1000000)
        snprintf(text, size, "%.6g ms", (double)ns * 1e-6);
    else if (ns >= 1000)
        snprintf(text, size, "%.6g us", (double)ns * 1e-3);
    else
        snprintf(text, size, "%" PRIu64 " ns", ns);
    return text;
}

static int64_t file_row(const struct trajd_reason_facts *facts, int64_t row)
{
    return facts->kept_rows && row >= 0 && row < facts->row_count ? facts->kept_rows[row] : row;
}

static void write_before(const struct trajd_reason_facts *facts, char *text)
{
    char time[64];

    if (facts->row_count < 1)
        snprintf(text, TRAJD_REASON_SIZE, "before start: the episode has no row%s",
                 facts->clipped ? " up to the anchor" : "");
    else if (facts->in_rows)
        snprintf(text, TRAJD_REASON_SIZE, "before start: row %" PRId64, facts->step->x);
    else
        snprintf(text, TRAJD_REASON_SIZE, "%s before start (row %" PRId64 ")",
                 duration((uint64_t)facts->first_ns - (uint64_t)facts->step->x, time, sizeof time),
                 file_row(facts, 0));
}

static void write_after(const struct trajd_reason_facts *facts, char *text)
{
    const int64_t last = file_row(facts, facts->row_count - 1);
    char time[64];

    if (facts->in_rows)
        snprintf(text, TRAJD_REASON_SIZE,
                 "after end: %" PRId64 " row%s after the last (row %" PRId64 ")",
                 facts->step->x - (facts->row_count - 1),
                 trajd_plural((uint64_t)(facts->step->x - (facts->row_count - 1))), last);
    else
        snprintf(text, TRAJD_REASON_SIZE, "%s after end (row %" PRId64 "%s)",
                 duration(facts->step->past_ns, time, sizeof time), last,
                 facts->clipped ? ", the last up to the anchor" : "");
}

static void write_nan(const struct trajd_reason_facts *facts, char *text)
{
    const struct trajd_resample_step *step = facts->step;
    const bool slerp = facts->stream->kind == TRAJD_KIND_SLERP_XYZW ||
                       facts->stream->kind == TRAJD_KIND_SLERP_WXYZ;
    const bool averages = facts->stream->kind == TRAJD_KIND_MEAN && step->mean_first < step->row;
    const int64_t first = file_row(facts, averages ? step->mean_first : step->row);
    const int64_t last = file_row(facts, averages ? step->row : step->row + 1);
    int used;

    if (slerp)
        used = snprintf(text, TRAJD_REASON_SIZE,
                        "quaternion %" PRId64 " is NaN or has no direction in ",
                        facts->nan_feature / 4);
    else
        used = snprintf(text, TRAJD_REASON_SIZE, "feature %" PRId64 " is NaN in %s",
                        facts->nan_feature, averages ? "all of " : "");
    if (averages)
        snprintf(text + used, TRAJD_REASON_SIZE - (size_t)used, "rows %" PRId64 " to %" PRId64,
                 first, last);
    else if (step->blends)
        snprintf(text + used, TRAJD_REASON_SIZE - (size_t)used, "row %" PRId64 " or %" PRId64,
                 first, last);
    else
        snprintf(text + used, TRAJD_REASON_SIZE - (size_t)used, "row %" PRId64, first);
}

/* Writes why the sum over a step is masked that has rows. */
static void write_sum(const struct trajd_reason_facts *facts, enum trajd_mask mask, char *text)
{
    char limit[64];

    if (mask == TRAJD_MASK_AFTER_END)
        snprintf(text, TRAJD_REASON_SIZE,
                 "the rows end within the step (row %" PRId64 "): the sum would lack some",
                 file_row(facts, facts->row_count - 1));
    else
        snprintf(text, TRAJD_REASON_SIZE, "a gap > max_gap %s within the step: the sum lacks rows",
                 duration((uint64_t)facts->stream->max_gap_ns, limit, sizeof limit));
}

void trajd_reason_write(const struct trajd_reason_facts *facts, enum trajd_mask mask, char *text)
{
    const struct trajd_resample_step *step = facts->step;
    const int64_t before = file_row(facts, step->before),
                  behind = file_row(facts, step->before + 1);
    char time[64], limit[64];

    if (step->has_row && (mask == TRAJD_MASK_AFTER_END || mask == TRAJD_MASK_GAP) &&
        facts->stream->total == TRAJD_TOTAL_STEP) {
        write_sum(facts, mask, text);
        return;
    }
    switch (mask) {
    case TRAJD_MASK_BEFORE_START:
        write_before(facts, text);
        return;
    case TRAJD_MASK_AFTER_END:
        write_after(facts, text);
        return;
    case TRAJD_MASK_GAP:
        snprintf(text, TRAJD_REASON_SIZE, "gap of %s (rows %" PRId64 ", %" PRId64 ") > max_gap %s",
                 duration(step->width_ns, time, sizeof time), before, behind,
                 duration((uint64_t)facts->stream->max_gap_ns, limit, sizeof limit));
        return;
    case TRAJD_MASK_BAD_STAMP:
        snprintf(text, TRAJD_REASON_SIZE,
                 "the stamp of row %" PRId64 " is not later than that of row %" PRId64, behind,
                 before);
        return;
    case TRAJD_MASK_NAN:
        write_nan(facts, text);
        return;
    case TRAJD_MASK_MISSING:
        if (facts->unreadable)
            snprintf(text, TRAJD_REASON_SIZE, "the rows cannot be read: %s", facts->unreadable);
        else
            snprintf(text, TRAJD_REASON_SIZE, "the episode has no %s", facts->stream_name);
        return;
    case TRAJD_MASK_TOO_OLD:
        snprintf(text, TRAJD_REASON_SIZE, "held row %" PRId64 " is %s old, max_age is %s", before,
                 duration(step->past_ns, time, sizeof time),
                 duration((uint64_t)facts->stream->max_age_ns, limit, sizeof limit));
        return;
    case TRAJD_MASK_BAD_FRAME:
        snprintf(text, TRAJD_REASON_SIZE, "the frame of row %" PRId64 " is bad",
                 file_row(facts, step->row));
        return;
    case TRAJD_MASK_VALID:
        break;
    }
    snprintf(text, TRAJD_REASON_SIZE, "%s", trajd_window_mask_name(mask));
}
