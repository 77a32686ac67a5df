/* One episode while it is validated: the reasons against it, and its clocks: stamps or a rate, as many
 * rows as its streams have, and one origin. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/quantity.h"
#include "daemon/index/index_internal.h"
#include "daemon/index/stamps.h"
#include "proto/plural.h"

#define FAR_NS (INT64_C(1) << 61) /* times outside the rows end here as well (trajd_clock_row_ns) */

static void set_reason(struct trajd_candidate *c, bool is_misfit, const char *format,
                       va_list arguments)
{
    char rule[768];

    if (c->reason)
        return;
    vsnprintf(rule, sizeof rule, format, arguments);
    c->is_misfit = is_misfit;
    c->reason = trajd_arena_format(c->validation->arena, "%s%s", c->label, rule);
    if (!c->reason) {
        c->no_memory = true;
        c->reason = "no memory";
    }
}

void trajd_candidate_fault(struct trajd_candidate *c, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_reason(c, false, format, arguments);
    va_end(arguments);
}

void trajd_candidate_misfit(struct trajd_candidate *c, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_reason(c, true, format, arguments);
    va_end(arguments);
}

void trajd_candidate_no_memory(struct trajd_candidate *c)
{
    c->no_memory = true;
    trajd_candidate_fault(c, "no memory");
}

void *trajd_candidate_alloc(struct trajd_candidate *c, uint64_t count, size_t size)
{
    void *memory = trajd_arena_alloc(c->validation->arena, count * size);

    if (!memory)
        trajd_candidate_no_memory(c);
    return memory;
}

/* ---- clocks ---- */

/* Returns whether a stream before this one has the same array, whose rows are checked already. */
static bool is_checked(const struct trajd_candidate *c, uint32_t plan)
{
    const struct trajd_validation *v = c->validation;

    for (uint32_t i = 0; i < plan; i++)
        if (v->plans[i].array_index == v->plans[plan].array_index && v->found[i].feature_count)
            return true;
    return false;
}

/* Returns whether the last row of the stream's array is left out. A file that `trajctl resample`
 * made lacks it already. */
static bool drops_last_row(const struct trajd_candidate *c, const struct trajd_stream_plan *plan)
{
    return c->validation->layout->streams[plan->layout_stream].drops_last_row &&
           !*c->record->resampled_rate;
}

/* Leaves out the last row of an array, which must be the only one that its clock lacks. */
static void drop_last_row(struct trajd_candidate *c, uint32_t index, uint64_t clock_rows)
{
    const struct trajd_stream_plan *plan = &c->validation->plans[index];
    struct trajd_array *extent = &c->extents[plan->array_index];
    const bool is_cut = is_checked(c, index);

    if (extent->shape[0] != clock_rows + !is_cut || !clock_rows)
        return trajd_candidate_fault(
            c,
            "%s: has %" PRIu64 " row%s, and clock %s has %" PRIu64
            ": `rows: first` in the layout needs exactly one row more than the clock",
            c->validation->paths[plan->array_index], extent->shape[0],
            trajd_plural(extent->shape[0]), c->validation->layout->clocks[plan->clock_index].name,
            clock_rows);
    if (is_cut)
        return;
    trajd_array_cut(extent, clock_rows);
    c->validation->trimmed_row_count++;
}

static void check_rows(struct trajd_candidate *c, uint32_t index, uint64_t stamp_rows)
{
    const struct trajd_stream_plan *plan = &c->validation->plans[index];
    const struct trajd_layout_clock *clock = &c->validation->layout->clocks[plan->clock_index];
    struct trajd_array *extent = &c->extents[plan->array_index];
    const char *path = c->validation->paths[plan->array_index];

    if (drops_last_row(c, plan))
        return drop_last_row(c, index, stamp_rows);
    if (extent->shape[0] == stamp_rows + 1 && stamp_rows) {
        trajd_array_cut(extent, stamp_rows);
        c->validation->trimmed_row_count++;
    }
    if (extent->shape[0] != stamp_rows)
        trajd_candidate_fault(
            c, "%s: has %" PRIu64 " row%s, its clock %s (%s) has %" PRIu64 " stamp%s", path,
            extent->shape[0], trajd_plural(extent->shape[0]), clock->name, clock->stamps_path,
            stamp_rows, trajd_plural(stamp_rows));
}

static const char resampled_attribute[] = "/@trajd_resample";

static void refuse_rate(struct trajd_candidate *c, uint32_t index, const char *text,
                        const char *place)
{
    const struct trajd_layout_clock *clock = &c->validation->layout->clocks[index];
    const bool is_period = place != resampled_attribute && clock->rate_unit > TRAJD_RATE_HZ;

    trajd_candidate_fault(c, "clock %s: \"%s\" of %s is not a %s", clock->name, text, place,
                          is_period ? "period" : "rate");
}

static bool clock_is_used(const struct trajd_candidate *c, uint32_t clock)
{
    for (uint32_t i = 0; i < c->validation->plan_count; i++) {
        if (c->validation->plans[i].clock_index == clock && c->validation->found[i].feature_count)
            return true;
    }
    return false;
}

/* Quarantines an episode that loses more rows than the layout allows. */
static void check_lost_rows(struct trajd_candidate *c, const struct trajd_layout_clock *source,
                            const struct trajd_record_clock *recorded)
{
    if ((double)recorded->dropped_rows >
        (double)recorded->source_rows * source->lost_rows_percent / 100)
        trajd_candidate_fault(c,
                              "%s: %" PRIu64 " of %" PRIu64
                              " rows would be left out because their stamps "
                              "repeat or go back; lost_rows of clock %s allows %g%%",
                              source->stamps_path, recorded->dropped_rows, recorded->source_rows,
                              source->name, source->lost_rows_percent);
}

/* Quarantines the episode where the attribute trajd_resample of its file states a rate, but the
 * stamps have another one: the file was changed after it was resampled. */
static void check_grid(struct trajd_candidate *c, uint32_t index)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const struct trajd_record_clock *clock = &c->record->clocks[index];
    const char *text = c->record->resampled_rate;
    struct trajd_rate rate;
    uint64_t at;

    if (!*text || c->validation->rate.num)
        return;
    if (!trajd_parse_rate(text, &rate))
        return refuse_rate(c, index, text, resampled_attribute);
    at = trajd_stamps_find_off_grid(clock->stamps_ns, clock->kept_rows, clock->row_count, rate,
                                    source->unit);
    if (at < clock->row_count)
        trajd_candidate_fault(
            c,
            "%s: row %" PRIu64 " is %.9g s after the first one, which contradicts the rate "
            "of %.6g Hz in the attribute %s: the file was changed after it was resampled; "
            "delete the attribute if the stamps are right",
            source->stamps_path, clock->kept_rows ? clock->kept_rows[at] : at,
            ((double)clock->stamps_ns[at] - (double)clock->stamps_ns[0]) * 1e-9,
            (double)rate.num / (double)rate.den, resampled_attribute);
}

/* Makes a stamped clock with absolute times, offset and latency applied. set_origin subtracts the
 * origin later. */
static void make_stamped(struct trajd_candidate *c, uint32_t index, int64_t shift)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const struct trajd_record_clock *recorded = &c->record->clocks[index];
    struct trajd_episode_clock *clock = &c->clocks[index];
    int64_t *stamps;
    uint32_t *kept;

    if (!recorded->present)
        return trajd_candidate_misfit(c, "%s: missing (the stamps of clock %s)",
                                      source->stamps_path, source->name);
    if (!recorded->row_count)
        return trajd_candidate_fault(c, "%s: has 0 rows (the stamps of clock %s)",
                                     source->stamps_path, source->name);
    check_lost_rows(c, source, recorded);
    for (uint32_t i = 0; i < c->validation->plan_count && !c->reason; i++) {
        if (c->validation->plans[i].clock_index == index && c->validation->found[i].feature_count)
            check_rows(c, i, recorded->source_rows);
    }
    check_grid(c, index);
    stamps = c->reason ? NULL : trajd_candidate_alloc(c, recorded->row_count, sizeof *stamps);
    for (uint64_t i = 0; stamps && i < recorded->row_count; i++) {
        if (__builtin_add_overflow(recorded->stamps_ns[i], shift, &stamps[i]))
            return trajd_candidate_fault(
                c, "%s: row %" PRIu64 ": the stamp with offset and latency is beyond 64 bits of ns",
                source->stamps_path, i);
    }
    kept = c->reason || !recorded->kept_rows
               ? NULL
               : trajd_candidate_alloc(c, recorded->row_count, sizeof *kept);
    if (kept)
        memcpy(kept, recorded->kept_rows, recorded->row_count * sizeof *kept);
    *clock = (struct trajd_episode_clock){.row_count = (int64_t)recorded->row_count,
                                          .stamps_ns = stamps,
                                          .kept_rows = kept,
                                          .dropped_rows = recorded->dropped_rows};
}

/* A rate below 1 Hz in an attribute of a recording is most likely a period in seconds. */
static void refuse_period(struct trajd_candidate *c, const struct trajd_layout_clock *clock,
                          const char *text, struct trajd_rate rate)
{
    trajd_candidate_fault(
        c,
        "clock %s: %s of %s is below 1 Hz: it is probably a period in seconds (%.6g Hz): "
        "write unit: s (or unit: hz) beside it in the layout",
        clock->name, text, trajd_layout_rate_place(clock), (double)rate.den / (double)rate.num);
}

/* Returns the rate of the options for the clock, or for the one that it follows; num 0: there is
 * none. */
static struct trajd_rate given_rate(const struct trajd_validation *validation,
                                    const struct trajd_layout_clock *clock)
{
    if (clock->multiple)
        clock = &validation->layout->clocks[clock->multiple_of];
    for (uint32_t i = 0; i < validation->clock_rate_count; i++)
        if (!strcmp(validation->clock_rates[i].clock, clock->name))
            return validation->clock_rates[i].rate;
    return validation->rate;
}

/* Finds the rate of a regular clock. What counts: the rate of the options, the file's attribute
 * trajd_resample, the place that the layout names, and last the layout's own number, which is only
 * assumed: recorders of one format have had different rates. */
static bool find_own_rate(struct trajd_candidate *c, uint32_t index,
                          struct trajd_episode_clock *clock)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const bool is_resampled = *c->record->resampled_rate;
    const char *text = is_resampled ? c->record->resampled_rate : c->record->rates[index];
    const char *place = is_resampled ? resampled_attribute : trajd_layout_rate_place(source);

    clock->rate_source = TRAJD_RATE_DECLARED;
    clock->rate = given_rate(c->validation, source);
    if (clock->rate.num)
        return true;
    if (*text) {
        if (is_resampled ? !trajd_parse_rate(text, &clock->rate)
                         : !trajd_layout_read_rate(source, text, &clock->rate))
            refuse_rate(c, index, text, place);
        else if (!is_resampled && source->rate_unit == TRAJD_RATE_HZ_LIKELY &&
                 clock->rate.num < clock->rate.den)
            refuse_period(c, source, text, clock->rate);
        return !c->reason;
    }
    clock->rate_source = TRAJD_RATE_ASSUMED;
    clock->rate = c->validation->assumed_rate.num ? c->validation->assumed_rate
                  : source->rate.num              ? source->rate
                                                  : source->rate_default;
    if (!clock->rate.num)
        trajd_candidate_misfit(c, "clock %s: %s states no rate, and the layout has no default",
                               source->name, place);
    return !c->reason;
}

/* Finds the rate of a regular clock, or of one that has several rows for each row of it. Files that
 * `trajctl resample` made have one rate. */
static bool find_rate(struct trajd_candidate *c, uint32_t index, struct trajd_episode_clock *clock)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];

    if (!find_own_rate(c, index, clock))
        return false;
    if (!source->multiple || *c->record->resampled_rate)
        return true;
    if (clock->rate.den % source->multiple == 0)
        clock->rate.den /= source->multiple;
    else
        clock->rate.num *= source->multiple;
    if (clock->rate.num > INT32_MAX)
        trajd_candidate_fault(c, "clock %s: its rate is too high", source->name);
    return !c->reason;
}

/* Returns the row count of a regular clock: of the stream that the layout names, else of its
 * longest stream. Streams that lose their last row count only where there is no other one. */
static uint64_t count_rows(struct trajd_candidate *c, uint32_t index)
{
    const char *named = c->validation->layout->clocks[index].rows;
    uint64_t rows = 0, cut_rows = 0;

    for (uint32_t i = 0; i < c->validation->plan_count; i++) {
        const struct trajd_stream_plan *plan = &c->validation->plans[i];
        const uint64_t own = c->extents[plan->array_index].shape[0];
        const bool is_cut = drops_last_row(c, plan);
        uint64_t *most = is_cut ? &cut_rows : &rows;
        if (plan->clock_index == index && c->validation->found[i].feature_count &&
            (!named || !strcmp(named, plan->stream.name)) && own - is_cut > *most)
            *most = own - is_cut;
    }
    rows = rows ? rows : cut_rows;
    if (!rows && named)
        trajd_candidate_misfit(c, "%s: missing (it counts the rows of clock %s)", named,
                               c->validation->layout->clocks[index].name);
    return rows;
}

/* Checks that the streams of a regular clock have as many rows as it has. A stream of one row is a
 * value of the whole episode. */
static void check_counts(struct trajd_candidate *c, uint32_t index, uint64_t rows)
{
    const struct trajd_validation *v = c->validation;
    const char *counted = "";

    for (uint32_t i = 0; i < v->plan_count && !*counted; i++)
        if (v->plans[i].clock_index == index && v->found[i].feature_count &&
            c->extents[v->plans[i].array_index].shape[0] == rows)
            counted = v->paths[v->plans[i].array_index];
    for (uint32_t i = 0; i < v->plan_count && !c->reason; i++) {
        const uint64_t own = c->extents[v->plans[i].array_index].shape[0];
        if (v->plans[i].clock_index != index || !v->found[i].feature_count || own == rows ||
            own == 1)
            continue;
        c->has_uneven_rows = true;
        if (v->allows_uneven_rows)
            return;
        trajd_candidate_fault(
            c,
            "%s: has %" PRIu64 " rows, and %s has %" PRIu64
            " on the same clock (%s): one of them was cut short, or they "
            "have different rates; if they are right, say so in the layout (rows: "
            "first, rows: every N)",
            v->paths[v->plans[i].array_index], own, counted, rows, v->layout->clocks[index].name);
    }
}

/* Checks that a clock with several rows for each row of another one has as many as it needs. */
static void check_multiple(struct trajd_candidate *c, uint32_t index, uint64_t rows)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const uint64_t others = (uint64_t)c->clocks[source->multiple_of].row_count,
                   multiple = *c->record->resampled_rate ? 1 : source->multiple;

    if (!others || (rows + multiple - 1) / multiple == others)
        return;
    c->has_uneven_rows = true;
    trajd_candidate_fault(c,
                          "clock %s has %" PRIu64 " rows, and clock %s has %" PRIu64
                          ": `rows: every %u` in the layout needs %" PRIu64 " to %" PRIu64,
                          source->name, rows,
                          c->validation->layout->clocks[source->multiple_of].name, others,
                          source->multiple, (others - 1) * multiple + 1, others * multiple);
}

static void make_regular(struct trajd_candidate *c, uint32_t index, int64_t shift)
{
    const struct trajd_layout_clock *source = &c->validation->layout->clocks[index];
    const struct trajd_record_clock *recorded = &c->record->clocks[index];
    struct trajd_episode_clock *clock = &c->clocks[index];

    if (!find_rate(c, index, clock))
        return;
    if (source->start_path && !recorded->has_start)
        return trajd_candidate_misfit(c, "%s: missing (the start of clock %s)", source->start_path,
                                      source->name);
    if (__builtin_add_overflow(recorded->start_ns, shift, &clock->start_ns))
        return trajd_candidate_fault(
            c, "%s: the start with offset and latency is beyond 64 bits of ns", source->name);
    clock->row_count = (int64_t)count_rows(c, index);
    for (uint32_t i = 0; i < c->validation->plan_count && !c->reason; i++) {
        const struct trajd_stream_plan *plan = &c->validation->plans[i];
        if (plan->clock_index == index && c->validation->found[i].feature_count &&
            drops_last_row(c, plan))
            drop_last_row(c, i, (uint64_t)clock->row_count);
    }
    check_counts(c, index, (uint64_t)clock->row_count);
    if (source->multiple)
        check_multiple(c, index, (uint64_t)clock->row_count);
}

void trajd_candidate_make_clocks(struct trajd_candidate *c)
{
    const struct trajd_layout *layout = c->validation->layout;
    bool any = false;

    c->clocks = trajd_candidate_alloc(c, layout->clock_count, sizeof *c->clocks);
    for (uint32_t i = 0; i < layout->clock_count && !c->reason; i++) {
        int64_t shift = 0;
        if (!clock_is_used(c, i))
            continue;
        any = true;
        if (__builtin_sub_overflow(layout->clocks[i].offset_ns, layout->clocks[i].latency_ns,
                                   &shift))
            trajd_candidate_fault(c, "clock %s: offset and latency are beyond 64 bits of ns",
                                  layout->clocks[i].name);
        else if (layout->clocks[i].stamps_path)
            make_stamped(c, i, shift);
        else
            make_regular(c, i, shift);
    }
    if (!any)
        trajd_candidate_misfit(c, "has none of the layout's arrays");
}

/* Sets the line through the first and the last stamp. */
static void fit_line(struct trajd_episode_clock *clock)
{
    const int64_t last = clock->row_count - 1;

    if (!clock->stamps_ns || last < 1)
        return;
    clock->rows_per_ns =
        (double)last / ((double)clock->stamps_ns[last] - (double)clock->stamps_ns[0]);
    clock->row_at_zero = -(double)clock->stamps_ns[0] * clock->rows_per_ns;
}

/* Makes *ns relative to the origin. Returns whether it is too far from it: differences and sums of
 * times must fit 64 bits. */
static bool is_far(int64_t *ns, int64_t origin_ns)
{
    return __builtin_sub_overflow(*ns, origin_ns, ns) || *ns > FAR_NS;
}

/* Returns whether a clock tells how long the episode lasts: it has several rows, and of a stream
 * that is not of events. */
static bool is_lasting(const struct trajd_candidate *c, uint32_t clock)
{
    const struct trajd_validation *v = c->validation;

    for (uint32_t i = 0; i < v->plan_count && c->clocks[clock].row_count > 1; i++)
        if (v->plans[i].clock_index == clock && v->found[i].feature_count && !v->found[i].is_event)
            return true;
    return false;
}

/* Finds the longest gap of a clock, and its median interval where the episode has other clocks.
 * scratch: as many numbers as the clock has rows. */
static void find_intervals(struct trajd_episode_clock *clock, bool has_others, int64_t *scratch)
{
    const int64_t median_ns = trajd_clock_find_median(clock, scratch);
    int64_t longest_ns = 0;

    if (has_others)
        clock->median_ns = median_ns;
    for (int64_t i = 0; clock->stamps_ns && i + 1 < clock->row_count; i++)
        if (clock->stamps_ns[i + 1] - clock->stamps_ns[i] > longest_ns)
            longest_ns = clock->stamps_ns[i + 1] - clock->stamps_ns[i];
    if (longest_ns / TRAJD_TOO_OLD_INTERVALS > median_ns)
        clock->gap_ns = longest_ns;
}

/* Finds when the episode ends, and the intervals of its clocks. */
static void find_end(struct trajd_candidate *c, struct trajd_episode *episode)
{
    const uint32_t count = c->validation->layout->clock_count;
    int64_t rows = 0, *scratch;
    uint32_t used = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_episode_clock *clock = &c->clocks[i];
        const int64_t last_ns = trajd_clock_row_ns(clock, clock->row_count - 1);
        used += clock->row_count > 0;
        if (is_lasting(c, i) && last_ns > episode->end_ns)
            episode->end_ns = last_ns;
        rows = clock->row_count > rows ? clock->row_count : rows;
    }
    scratch = malloc((size_t)(rows + 1) * sizeof *scratch);
    for (uint32_t i = 0; scratch && i < count; i++)
        if (is_lasting(c, i))
            find_intervals(&c->clocks[i], used > 1, scratch);
    if (!scratch)
        trajd_candidate_no_memory(c);
    free(scratch);
}

bool trajd_episode_ends_early(const struct trajd_episode *episode, uint32_t clock,
                              char text[TRAJD_EARLY_END_TEXT_SIZE])
{
    const struct trajd_episode_clock *rows = &episode->clocks[clock];
    const int64_t last = rows->row_count - 1, last_ns = trajd_clock_row_ns(rows, last);

    if (trajd_clock_too_old_ns(rows, TRAJD_TOO_OLD_INTERVALS) >= episode->end_ns)
        return false;
    if (text)
        snprintf(text, TRAJD_EARLY_END_TEXT_SIZE,
                 "stops %.4g s before its episode ends: its last row is %" PRId64
                 ", at %.4g s of %.4g s, and its median interval is %.4g ms",
                 ((double)episode->end_ns - (double)last_ns) * 1e-9,
                 rows->kept_rows ? (int64_t)rows->kept_rows[last] : last, (double)last_ns * 1e-9,
                 (double)episode->end_ns * 1e-9, (double)rows->median_ns * 1e-6);
    return true;
}

void trajd_candidate_set_origin(struct trajd_candidate *c, struct trajd_episode *episode)
{
    uint32_t count = c->validation->layout->clock_count;
    int64_t origin = INT64_MAX;

    for (uint32_t i = 0; i < count; i++) {
        const struct trajd_episode_clock *clock = &c->clocks[i];
        int64_t first = clock->stamps_ns ? clock->stamps_ns[0] : clock->start_ns;
        if (clock->row_count && first < origin)
            origin = first;
    }
    for (uint32_t i = 0; i < count && !c->reason; i++) {
        struct trajd_episode_clock *clock = &c->clocks[i];
        /* allocated by make_stamped; const for all other code */
        int64_t *stamps = (int64_t *)clock->stamps_ns;
        bool far = clock->row_count && !stamps && is_far(&clock->start_ns, origin);
        for (int64_t k = 0; stamps && k < clock->row_count; k++)
            far = is_far(&stamps[k], origin) || far;
        if (far)
            trajd_candidate_fault(
                c, "clock %s: it reaches more than 73 years beyond the episode's earliest stamp",
                c->validation->layout->clocks[i].name);
        if (!clock->row_count)
            clock->start_ns = 0;
        fit_line(clock);
    }
    episode->origin_ns = origin;
    if (!c->reason)
        find_end(c, episode);
}
