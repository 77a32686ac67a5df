/* Finds what the user of a feed should know about its plan. Every warning of a plan goes through
 * trajd_window_plan_warn: `trajctl check` prints them, and workers get them when they open the
 * feed. */
#include <string.h>

#include "daemon/window/transform/chain_spec.h"
#include "daemon/window/window_plan_internal.h"
#include "daemon/window/window_report.h"
#include "proto/plural.h"

/* Above two steps for each row, most steps are invented or repeated. Below it, as from 20 to 30 Hz,
 * most steps still have a row of their own. */
#define MOST_STEPS_A_ROW 2
/* Steps of as many rows, on a clock with jitter, are not more than those. */
#define MORE_STEPS 1.05

/* Returns the mean rate of a clock over the first episode of the feed; 0 where it has no span. */
static double mean_rate_hz(const struct trajd_window_plan *plan, uint32_t clock)
{
    const struct trajd_episode_clock *view =
        &plan->dataset->index->episodes[plan->episodes[0]].clocks[clock];
    const int64_t last = view->row_count - 1;
    int64_t span_ns;

    if (last < 1)
        return 0;
    span_ns = trajd_clock_row_ns(view, last) - trajd_clock_row_ns(view, 0);
    return span_ns > 0 ? (double)last * 1e9 / (double)span_ns : 0;
}

/* Warns where a fast stream is resampled onto a slow grid without averaging, which uses few of its
 * rows, where a grid of several steps is so fast that most steps have no row of their own, and
 * where steps of sums are shorter than the rows. */
static void warn_of_rate(struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];
    const double source_hz = mean_rate_hz(plan, bracket->clock_index);
    const double anchor_hz =
        plan->rules.anchor_clock >= 0
            ? mean_rate_hz(plan, (uint32_t)plan->rules.anchor_clock)
            : (double)plan->rules.anchor_rate.num / (double)plan->rules.anchor_rate.den;
    const double grid_hz =
        grid->rate.num ? (double)grid->rate.num / (double)grid->rate.den : anchor_hz;

    if (trajd_plan_kind(plan, target) == TRAJD_KIND_LINEAR && grid->rule != TRAJD_TARGET_ROWS &&
        grid_hz > 0 && source_hz > 4 * grid_hz)
        trajd_window_plan_warn(plan,
                               "%s: kind: linear from %.4g Hz to %.4g Hz uses 2 of every %.0f "
                               "rows; kind: mean averages all",
                               plan->rules.outputs[target->output_index].name, source_hz, grid_hz,
                               source_hz / grid_hz);
    if (trajd_plan_adds(plan, target)) {
        if (source_hz > 0 && grid_hz > MORE_STEPS * source_hz)
            trajd_window_plan_warn(
                plan,
                "%s: %.4g Hz to %.4g Hz by sum leaves %.0f %% of the steps at 0, because a "
                "difference is not divided among steps: feed it at %.4g Hz or slower, or positions "
                "with relative_to: {step: before}",
                plan->rules.outputs[target->output_index].name, source_hz, grid_hz,
                100 * (1 - source_hz / grid_hz), source_hz);
        return;
    }
    if (grid->rule != TRAJD_TARGET_ROWS && grid->step_count > 1 && source_hz > 0 &&
        grid_hz > MOST_STEPS_A_ROW * source_hz)
        trajd_window_plan_warn(
            plan,
            "%s: kind: %s from %.4g Hz to %.4g Hz makes %.3g steps of each row; a rate of %.4g Hz "
            "gives the recorded rows",
            plan->rules.outputs[target->output_index].name,
            trajd_window_target_kind_name(plan, target), source_hz, grid_hz, grid_hz / source_hz,
            source_hz);
}

/* Warns where steps reach further than the longest episode is long: some of them lie outside the
 * episode in every window. Outputs of several sources get one warning. */
static void warn_of_reach(struct trajd_window_plan *plan, uint32_t t)
{
    const struct trajd_plan_target *target = &plan->rules.targets[t];
    const struct trajd_plan_output *output = &plan->rules.outputs[target->output_index];
    char reach[TRAJD_PLAN_REACH_SIZE];

    if (!output->is_hidden && (!t || target[-1].output_index != target->output_index) &&
        trajd_plan_reaches_out(plan, target, reach))
        trajd_window_plan_warn(plan,
                               "%s: its steps %s: each window has steps outside its episode, where "
                               "is_pad is true; is `at:` too far, or is ms missing?",
                               output->name, reach);
}

/* Returns whether an output takes rows of the clock. */
static bool is_clock_used(const struct trajd_window_plan *plan, uint32_t clock)
{
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].stream_index != TRAJD_PLAN_ABSENT &&
            plan->rules.brackets[plan->rules.targets[t].bracket_index].clock_index == clock)
            return true;
    return false;
}

/* Returns whether both clocks have rows in the episode, and none of their times are the same. */
static bool is_disjoint(const struct trajd_episode *episode, uint32_t clock, uint32_t other)
{
    const struct trajd_episode_clock *a = &episode->clocks[clock], *b = &episode->clocks[other];

    return a->row_count && b->row_count &&
           (trajd_clock_row_ns(a, a->row_count - 1) < trajd_clock_row_ns(b, 0) ||
            trajd_clock_row_ns(b, b->row_count - 1) < trajd_clock_row_ns(a, 0));
}

/* Warns of a clock that has no time in common with the anchors: no step finds a row near it. */
static void warn_of_disjoint_clocks(struct trajd_window_plan *plan, uint32_t clock)
{
    const struct trajd_index *index = plan->dataset->index;
    uint32_t count = 0, first = 0;

    if (plan->rules.anchor_clock < 0 || plan->rules.anchor_clock == (int64_t)clock ||
        !is_clock_used(plan, clock))
        return;
    for (uint32_t i = 0; i < plan->episode_count; i++)
        if (is_disjoint(&index->episodes[plan->episodes[i]], clock,
                        (uint32_t)plan->rules.anchor_clock))
            first = count++ ? first : plan->episodes[i];
    if (count)
        trajd_window_plan_warn(
            plan,
            "clock %s has no time in common with the anchors' clock %s in %u of %u episode%s (the "
            "first: %s: %s): align them with `offset:` of the clock in the layout",
            index->clocks[clock].name, index->clocks[plan->rules.anchor_clock].name, count,
            plan->episode_count, trajd_plural(plan->episode_count),
            index->files[index->episodes[first].file_index].relative_path,
            index->episodes[first].id);
}

/* Returns whether an output takes rows of the clock that are not events. */
static bool is_clock_lasting(const struct trajd_window_plan *plan, uint32_t clock)
{
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        if (plan->rules.targets[t].stream_index != TRAJD_PLAN_ABSENT &&
            plan->rules.brackets[plan->rules.targets[t].bracket_index].clock_index == clock &&
            !trajd_plan_stream(plan, &plan->rules.targets[t])->is_event)
            return true;
    return false;
}

/* Warns of a clock that stops before its episodes. */
static void warn_of_early_end(struct trajd_window_plan *plan, uint32_t clock)
{
    const struct trajd_index *index = plan->dataset->index;
    char text[TRAJD_EARLY_END_TEXT_SIZE];
    uint32_t count = 0, first = 0;

    for (uint32_t i = 0; i < plan->episode_count && is_clock_lasting(plan, clock); i++)
        if (trajd_episode_ends_early(&index->episodes[plan->episodes[i]], clock, NULL))
            first = count++ ? first : plan->episodes[i];
    if (!count)
        return;
    trajd_episode_ends_early(&index->episodes[first], clock, text);
    trajd_window_plan_warn(
        plan,
        "clock %s stops before its episode in %u of %u episode%s (%s: %s: it %s): %s; if its rows "
        "are events, write events: true in the layout",
        index->clocks[clock].name, count, plan->episode_count, trajd_plural(plan->episode_count),
        index->files[index->episodes[first].file_index].relative_path, index->episodes[first].id,
        text,
        plan->spec->version < 2 ? "observations after that repeat its last row as valid"
                                : "steps of its streams after that are masked TOO_OLD (7) while "
                                  "the anchors go on");
}

/* Notes what version 1 does with streams that end before their episode. */
static void keep_ends(struct trajd_window_plan *plan)
{
    const struct trajd_index *index = plan->dataset->index;
    uint32_t early = 0, uneven = 0;

    for (uint32_t i = 0; i < plan->episode_count; i++) {
        const struct trajd_episode *episode = &index->episodes[plan->episodes[i]];
        bool any = false;
        for (uint32_t c = 0; c < index->clock_count && !any; c++)
            any = is_clock_lasting(plan, c) && trajd_episode_ends_early(episode, c, NULL);
        early += any;
        uneven += episode->has_uneven_rows;
    }
    if (early)
        trajd_window_plan_keeps(plan, "mask steps after a stream that stops before its episode");
    if (uneven)
        trajd_window_plan_keeps(plan,
                                "leave out %u of %u episodes, whose streams on one clock differ in "
                                "their rows",
                                uneven, plan->episode_count);
}

/* Returns whether the rate of the clock decides which rows the target takes. Steps that are rows of
 * the anchor's own clock are the same at any rate. */
static bool depends_on_rate(const struct trajd_window_plan *plan,
                            const struct trajd_plan_target *target, uint32_t clock)
{
    const struct trajd_spec_range *at = &plan->spec->outputs[target->output_index].at;
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];

    if (bracket->clock_index != clock && plan->rules.anchor_clock != (int64_t)clock)
        return false;
    return at->in_time || at->rate.num || plan->spec->rate.num || plan->spec->anchor_rate.num ||
           plan->rules.grids[bracket->grid_index].rule != TRAJD_TARGET_ROWS;
}

/* Warns where steps of time are counted on a clock whose rate is assumed. In version 1 of the
 * configuration the rate that a layout claims counts as stated. */
static void warn_of_assumption(struct trajd_window_plan *plan, uint32_t clock)
{
    struct trajd_index_rates rates = {0};
    char text[TRAJD_RATES_TEXT_SIZE];

    trajd_index_rates_add(plan->dataset->index, clock, &rates);
    for (uint32_t t = 0; t < plan->rules.target_count && rates.assumed_count; t++) {
        const struct trajd_plan_target *target = &plan->rules.targets[t];
        if (target->stream_index == TRAJD_PLAN_ABSENT || !depends_on_rate(plan, target, clock))
            continue;
        trajd_index_rates_text(&rates, text);
        if (plan->spec->version == 1 && plan->dataset->index->layout->clocks[clock].rate.num)
            trajd_window_plan_keeps(plan,
                                    "warn that no file states the rate of clock %s, %s, until "
                                    "datasets.%s.rate does",
                                    plan->dataset->index->clocks[clock].name, text,
                                    plan->dataset->name);
        else
            trajd_window_plan_warn(
                plan,
                "%s: its steps are times, but the rate of clock %s is not stated: %s; state it "
                "with datasets.%s.rate",
                plan->rules.outputs[target->output_index].name,
                plan->dataset->index->clocks[clock].name, text, plan->dataset->name);
        return;
    }
}

/* Returns whether each step lies on a row of the stream's clock, so that nothing is blended. */
static bool takes_rows(const struct trajd_window_plan *plan, const struct trajd_plan_target *target)
{
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];

    if (trajd_plan_kind(plan, target) == TRAJD_KIND_MEAN)
        return grid->rule == TRAJD_TARGET_ROWS &&
               !plan->spec->outputs[target->output_index].mean_width_ns;
    return grid->rule == TRAJD_TARGET_ROWS ||
           (grid->rule == TRAJD_TARGET_OFFSETS &&
            (int64_t)bracket->clock_index == plan->rules.anchor_clock &&
            trajd_rate_divides(grid->rate, plan->rules.anchor_rate));
}

/* Returns whether a gap in the clock's rows gives steps of the target that no mask marks. */
static bool is_open_to_gaps(const struct trajd_window_plan *plan,
                            const struct trajd_plan_target *target, uint32_t clock)
{
    const struct trajd_spec_output *output = &plan->spec->outputs[target->output_index];

    return target->stream_index != TRAJD_PLAN_ABSENT &&
           plan->rules.brackets[target->bracket_index].clock_index == clock &&
           output->max_gap_ns < 0 && output->max_age_ns < 0 &&
           trajd_plan_stream(plan, target)->max_gap_ns < 0 &&
           !trajd_plan_stream(plan, target)->is_event && !takes_rows(plan, target);
}

/* Warns of gaps in the rows of a clock, where the steps inside count as valid. */
static void warn_of_gaps(struct trajd_window_plan *plan, uint32_t clock)
{
    const struct trajd_index *index = plan->dataset->index;
    uint32_t count = 0, longest = 0, t = 0;

    while (t < plan->rules.target_count && !is_open_to_gaps(plan, &plan->rules.targets[t], clock))
        t++;
    for (uint32_t i = 0; i < plan->episode_count && t < plan->rules.target_count; i++) {
        const uint32_t e = plan->episodes[i];
        if (!index->episodes[e].clocks[clock].gap_ns)
            continue;
        if (!count++ ||
            index->episodes[e].clocks[clock].gap_ns > index->episodes[longest].clocks[clock].gap_ns)
            longest = e;
    }
    if (count)
        trajd_window_plan_warn(
            plan,
            "%s: clock %s has gaps in %u of %u episode%s (the longest, %.4g s, in %s: %s): "
            "observations inside repeat the row before, other steps are made of the rows around, "
            "all as valid; max_age of observations and max_gap of others mask them",
            plan->rules.outputs[plan->rules.targets[t].output_index].name,
            index->clocks[clock].name, count, plan->episode_count,
            trajd_plural(plan->episode_count),
            (double)index->episodes[longest].clocks[clock].gap_ns * 1e-9,
            index->files[index->episodes[longest].file_index].relative_path,
            index->episodes[longest].id);
}

/* Warns where quaternions are blended as plain numbers. */
static void warn_of_quaternions(struct trajd_window_plan *plan,
                                const struct trajd_plan_target *target)
{
    const struct trajd_index_stream *stream = trajd_plan_stream(plan, target);
    const enum trajd_kind kind = trajd_plan_kind(plan, target);
    const struct trajd_quaternion *quaternions;
    const uint32_t count = trajd_index_find_quaternions(
        plan->dataset->index, stream->array_index, stream->first_column,
        stream->first_column + stream->feature_count, kind, &quaternions);
    char text[TRAJD_QUATERNION_ADVICE_SIZE];

    if (!count || takes_rows(plan, target))
        return;
    trajd_index_advise_quaternions(plan->dataset->index, stream, kind, quaternions, count, text);
    trajd_window_plan_warn(plan, "%s: %s: %s", plan->rules.outputs[target->output_index].name,
                           stream->name, text);
}

/* Warns of files without any mask, where the feed is filtered by one: none of their episodes can be
 * in it. */
static void warn_of_masks(struct trajd_window_plan *plan)
{
    const struct trajd_index *index = plan->dataset->index;
    uint32_t e = 0, count = 0, first = 0;

    for (uint32_t f = 0; f < index->file_count && plan->spec->select.filter; f++) {
        bool has_mask = false, has_episode = false;
        for (; e < index->episode_count && index->episodes[e].file_index == f; e++) {
            const struct trajd_episode *episode = &index->episodes[e];
            has_episode |= !trajd_window_plan_quarantine(plan, episode);
            has_mask |= episode->filter_keys && episode->filter_keys[0];
        }
        if (has_episode && !has_mask)
            first = count++ ? first : f;
    }
    if (count)
        trajd_window_plan_warn(plan,
                               "filter: %s: %u of %u files have no mask, and none of their "
                               "episodes is used (the first: %s)",
                               plan->spec->select.filter, count, index->file_count,
                               index->files[first].relative_path);
}

/* Warns of episodes that lack the text by which the feed selects. */
static void warn_of_text(struct trajd_window_plan *plan, const char *key)
{
    const struct trajd_index *index = plan->dataset->index;
    uint32_t count = 0, first = 0, m = 0;

    while (m < index->layout->meta_count && strcmp(index->layout->metas[m].name, key) != 0)
        m++;
    for (uint32_t e = 0; e < index->episode_count && m < index->layout->meta_count; e++)
        if (!trajd_window_plan_quarantine(plan, &index->episodes[e]) &&
            !index->episodes[e].metas[m])
            first = count++ ? first : e;
    if (count)
        trajd_window_plan_warn(plan,
                               "where: %s: %u of %u episodes have no such text and are not used "
                               "(the first: %s: %s)",
                               key, count, plan->found_count - plan->quarantined.count,
                               index->files[index->episodes[first].file_index].relative_path,
                               index->episodes[first].id);
}

/* Warns of what version 1 of the configuration keeps as it was. */
static void warn_of_version(struct trajd_window_plan *plan)
{
    const struct trajd_layout *layout = plan->dataset->index->layout;

    if (plan->spec->version < 2)
        keep_ends(plan);
    if (layout->is_version_1)
        trajd_window_plan_keeps(plan, "read the dataset by the layout %s as it is now",
                                layout->name);
    if (plan->version_changes)
        trajd_window_plan_warn(plan,
                               "`version: 1` of the configuration keeps what trajd 0.1.0 did; "
                               "`version: 2` would %s",
                               plan->version_changes);
}

/* Says how many episodes lack a stream for which the output has `missing: zero`, and that version 1
 * then masks whole steps. */
static void warn_of_missing(struct trajd_window_plan *plan, uint32_t t)
{
    const struct trajd_plan_target *target = &plan->rules.targets[t];
    const char *output = plan->rules.outputs[target->output_index].name;
    uint64_t lacking, rows;
    char share[64] = "", then[256] = "all steps are masked there";
    uint32_t count;

    if (target->missing != TRAJD_MISSING_ZERO)
        return;
    count = trajd_plan_count_missing(plan, t, &lacking, &rows);
    if (plan->spec->version < 2 && count && trajd_plan_may_fill(plan, target->output_index))
        trajd_window_plan_keeps(plan, "mask only the columns of %s in %s where episodes lack it",
                                trajd_plan_stream(plan, target)->name, output);
    if (plan->spec->version < 2)
        return;
    if (rows)
        snprintf(share, sizeof share, " (%llu of %llu rows)", (unsigned long long)lacking,
                 (unsigned long long)rows);
    if (target->is_filled)
        snprintf(then, sizeof then,
                 "its columns are 0 there before norm, and %s.missing is true for them; the other "
                 "streams decide which steps are masked",
                 output);
    if (count)
        trajd_window_plan_warn(plan, "%s: %s is missing in %u of %u episode%s%s: %s", output,
                               trajd_plan_stream(plan, target)->name, count, plan->episode_count,
                               trajd_plural(plan->episode_count), share, then);
}

/* Says which norm of a preset version 1 keeps. Warns of a preset that leaves actions as recorded,
 * because those of robomimic are within [-1, 1], where the files are not robomimic's. */
static void warn_of_preset(struct trajd_window_plan *plan, const struct trajd_spec_output *output)
{
    const struct trajd_preset *preset = output->preset;
    const bool has_rotation = output->chain && output->chain->rotation_count;

    if (!preset || !preset->norm_of_1 || !output->norm_is_presets)
        return;
    if (plan->spec->version < 2)
        trajd_window_plan_keeps(plan, "give %s the norm of preset %s, %s", output->name,
                                preset->name, trajd_preset_norm(preset, has_rotation, 2));
    else if (preset->norm_of_poses && !has_rotation &&
             !trajd_layout_is_robomimic(plan->dataset->index->layout))
        trajd_window_plan_warn(plan,
                               "%s: preset: %s leaves actions as recorded, as for robomimic's "
                               "files, whose actions are within [-1, 1]: for these files use "
                               "preset: %s_real, or norm: none",
                               output->name, preset->name, preset->name);
}

void trajd_window_plan_find_warnings(struct trajd_window_plan *plan)
{
    char videos[TRAJD_VIDEOS_TEXT_SIZE];
    bool is_costly;

    for (uint32_t o = 0; o < plan->rules.visible_count; o++)
        warn_of_preset(plan, &plan->spec->outputs[o]);
    for (uint32_t t = 0; t < plan->rules.target_count; t++)
        warn_of_missing(plan, t);
    if (plan->dataset->index->layout->guess)
        trajd_window_plan_warn(plan, "no feed opens before the guesses of the layout are gone: %s",
                               plan->dataset->index->layout->guess);
    warn_of_masks(plan);
    for (uint32_t w = 0; w < plan->spec->select.text_count; w++)
        warn_of_text(plan, plan->spec->select.texts[w].key);
    for (uint32_t t = 0; t < plan->rules.target_count; t++) {
        if (plan->rules.targets[t].stream_index == TRAJD_PLAN_ABSENT)
            continue;
        warn_of_reach(plan, t);
        warn_of_rate(plan, &plan->rules.targets[t]);
        warn_of_quaternions(plan, &plan->rules.targets[t]);
    }
    for (uint32_t c = 0; c < plan->dataset->index->clock_count; c++)
        warn_of_assumption(plan, c);
    for (uint32_t c = 0; c < plan->dataset->index->clock_count; c++)
        warn_of_disjoint_clocks(plan, c);
    for (uint32_t c = 0; c < plan->dataset->index->clock_count; c++)
        warn_of_early_end(plan, c);
    for (uint32_t c = 0; c < plan->dataset->index->clock_count; c++)
        warn_of_gaps(plan, c);
    if (trajd_window_describe_videos(plan, &is_costly, videos) && is_costly)
        trajd_window_plan_warn(plan, "%s", videos);
    warn_of_version(plan);
}
