/* What answers to queries share: documents of several pages; why a step is masked, in words; and how
 * frames are stored and made, whether a frame is bad, and what the augmentation draws. */
#include "daemon/control/query.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/window/window_report.h"
#include "proto/plural.h"

/* ---- documents of several pages ---- */

#define END_BYTES 512 /* reserved for the end of a document, after its items */

bool trajd_query_fits(struct trajd_json *json, struct trajd_json_mark mark)
{
    return trajd_json_fits(json, mark, TRAJD_QUERY_MAX_ANSWER - END_BYTES);
}

void trajd_query_end_page(struct trajd_json *json, uint64_t next, uint64_t total)
{
    trajd_json_close_array(json);
    if (next < total)
        trajd_json_u64(json, "next", next);
    else
        trajd_json_null(json, "next");
    trajd_json_close_object(json);
}

/* ---- reasons, in words and numbers ---- */

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

static void write_lost(const struct trajd_reason_facts *facts, char *text)
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
                        facts->lost_feature / 4);
    else
        used =
            snprintf(text, TRAJD_REASON_SIZE,
                     "feature %" PRId64 " is NaN, infinite or too large in ", facts->lost_feature);
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

/* Writes that the stream stopped before its episode. */
static void write_ended(const struct trajd_reason_facts *facts, char *text)
{
    char age[64], interval[64];

    snprintf(text, TRAJD_REASON_SIZE,
             "the last row of %s (row %" PRId64 ") is %s old, more than %d median intervals of %s: "
             "it stops before its episode",
             facts->stream_name, file_row(facts, facts->step->before),
             duration(facts->step->past_ns, age, sizeof age), TRAJD_TOO_OLD_INTERVALS,
             duration((uint64_t)facts->median_ns, interval, sizeof interval));
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
        write_lost(facts, text);
        return;
    case TRAJD_MASK_MISSING:
        if (facts->unreadable)
            snprintf(text, TRAJD_REASON_SIZE, "the rows cannot be read: %s", facts->unreadable);
        else
            snprintf(text, TRAJD_REASON_SIZE, "the episode has no %s", facts->stream_name);
        return;
    case TRAJD_MASK_TOO_OLD:
        if (facts->stream->max_age_ns < 0 || step->past_ns <= (uint64_t)facts->stream->max_age_ns)
            return write_ended(facts, text);
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

/* ---- images ---- */

void trajd_explain_image(const struct trajd_window_plan *plan, uint32_t image,
                         struct trajd_json *json)
{
    const struct trajd_index_stream *stream =
        trajd_plan_stream(plan, &plan->rules.targets[plan->rules.row_target_count + image]);
    struct trajd_image_words words;
    char text[TRAJD_PREPARATION_WORDS_SIZE];

    trajd_window_write_words(plan, image, &words);
    trajd_json_open_object(json, "picture");
    if (trajd_window_describe_prepared(plan, image, text))
        trajd_json_string(json, "prepared", text);
    for (uint32_t w = 0; w < words.count; w++)
        trajd_json_string(json, words.list[w].key, words.list[w].text);
    if (trajd_image_channels(stream->image.color) == 3)
        trajd_json_string(json, "color_from", trajd_index_color_source(stream));
    trajd_json_close_object(json);
}

void trajd_explain_draws(const struct trajd_window_plan *plan, uint32_t image, uint64_t seed,
                         const struct trajd_window *window, uint32_t step, struct trajd_json *json)
{
    const struct trajd_augment *augment = &plan->rules.images[image].augment;
    struct trajd_augment_params params;

    if (!augment->count)
        return;
    trajd_window_draw(plan, image, seed, window, step, &params);
    trajd_json_open_array(json, "draws");
    for (uint32_t i = 0; i < augment->count; i++) {
        trajd_json_open_object(json, NULL);
        trajd_json_string(json, "kind", trajd_augment_kind_name(augment->steps[i].kind));
        trajd_json_open_array(json, "values");
        for (int v = 0; v < TRAJD_AUGMENT_VALUES; v++)
            trajd_json_number(json, NULL, "%.9g", (double)params.values[i][v]);
        trajd_json_close_array(json);
        trajd_json_close_object(json);
    }
    trajd_json_close_array(json);
}

enum trajd_mask trajd_explain_frame(const struct trajd_window_plan *plan, uint32_t image,
                                    uint32_t episode, int64_t row, char *reason)
{
    const struct trajd_plan_target *target =
        &plan->rules.targets[plan->rules.row_target_count + image];
    struct trajd_frame_use use = {.episode_index = episode, .row = (uint32_t)row};
    struct trajd_frame_view *view = NULL;
    struct trajd_error error = {.message = "trajd-decoder was not found"};
    enum trajd_status status = TRAJD_ERR_SYSTEM;

    if (plan->dataset->frames)
        status =
            trajd_frames_open_view(plan->dataset->frames, target->stream_index,
                                   &plan->rules.images[image].preparation, 1, false, &view, &error);
    if (!status)
        status = trajd_frames_pin(view, &use, 1, &error);
    snprintf(reason, TRAJD_REASON_SIZE, "%s",
             status       ? error.message
             : use.pixels ? ""
                          : use.reason);
    if (!status) {
        status = use.status;
        trajd_frames_unpin(view, &use, 1);
    }
    trajd_frames_close_view(&view);
    return status == TRAJD_ERR_DATA || status == TRAJD_ERR_NOT_FOUND ||
                   (status == TRAJD_ERR_IO && plan->spec->keep_bad_rows)
               ? TRAJD_MASK_BAD_FRAME
               : TRAJD_MASK_VALID;
}
