/* Decides which anchors of the selected episodes are windows, from missing streams and how much
 * padding is allowed. */
#include "daemon/window/window_plan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "proto/plural.h"

/* Finds the times of the first and last row of a target's stream. False: it has no rows. */
static bool target_span(const struct trajd_window_plan *plan,
                        const struct trajd_plan_target *target, const struct trajd_episode *episode,
                        int64_t *first_ns, int64_t *last_ns)
{
    const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
    const struct trajd_episode_clock *clock = &episode->clocks[bracket->clock_index];
    const int64_t rows = trajd_plan_row_count(plan, bracket, episode);

    if (rows < 1)
        return false;
    *first_ns = trajd_clock_row_ns(clock, 0);
    *last_ns = trajd_clock_row_ns(clock, rows - 1);
    return true;
}

/* Returns the time of target step t of anchor j, in ns from the origin. */
static int64_t target_ns(const struct trajd_window_plan *plan, const struct trajd_plan_grid *grid,
                         const struct trajd_episode *episode, int64_t j, int64_t t)
{
    if (grid->rule == TRAJD_TARGET_OFFSETS)
        return trajd_plan_anchor_ns(plan, episode, j) + grid->step_ns[t] +
               trajd_rules_carry_ns(&plan->rules, grid, j, t);
    return trajd_plan_anchor_ns(plan, episode, j + grid->from + t);
}

bool trajd_plan_is_missing(const struct trajd_window_plan *plan,
                           const struct trajd_plan_target *target,
                           const struct trajd_episode *episode)
{
    const struct trajd_array *array;

    if (target->stream_index == TRAJD_PLAN_ABSENT)
        return true;
    array = &episode->extents[plan->dataset->index->streams[target->stream_index].array_index];
    return array->storage == TRAJD_STORAGE_ABSENT || array->size_bytes == 0;
}

uint32_t trajd_plan_count_missing(const struct trajd_window_plan *plan, uint32_t target,
                                  uint64_t *lacking, uint64_t *rows)
{
    const int64_t clock = plan->rules.anchor_clock;
    uint64_t counts[2] = {0};
    uint32_t count = 0;

    for (uint32_t i = 0; i < plan->episode_count; i++) {
        const struct trajd_episode *episode = &plan->dataset->index->episodes[plan->episodes[i]];
        const bool lacks = trajd_plan_is_missing(plan, &plan->rules.targets[target], episode);
        const uint64_t own = clock < 0 ? 0 : (uint64_t)episode->clocks[clock].row_count;
        count += lacks;
        counts[0] += lacks ? own : 0;
        counts[1] += own;
    }
    if (lacking)
        *lacking = counts[0];
    if (rows)
        *rows = counts[1];
    return count;
}

/* Returns whether anchor j needs no more padding than allowed at one end. Targets ascend with t and
 * with j. At most `limit` steps may lie before the first row, so step `limit`, counted from 0, must
 * not. */
static bool padding_allows(const struct trajd_window_plan *plan,
                           const struct trajd_episode *episode, int64_t j, bool at_start)
{
    const uint32_t limit = at_start ? plan->spec->pad_before : plan->spec->pad_after;

    if (limit == TRAJD_SPEC_PAD_ANY)
        return true;
    for (uint32_t i = 0; i < plan->rules.target_count; i++) {
        const struct trajd_plan_target *target = &plan->rules.targets[i];
        const struct trajd_plan_bracket *bracket = &plan->rules.brackets[target->bracket_index];
        const struct trajd_plan_grid *grid = &plan->rules.grids[bracket->grid_index];
        int64_t first_ns, last_ns;

        if (trajd_plan_is_missing(plan, target, episode) ||
            !target_span(plan, target, episode, &first_ns, &last_ns) || limit >= grid->step_count ||
            (bracket->clipped && !at_start) || grid->goal)
            continue;
        if (at_start ? target_ns(plan, grid, episode, j, limit) < first_ns
                     : target_ns(plan, grid, episode, j, (int64_t)grid->step_count - 1 - limit) >
                           last_ns)
            return false;
    }
    return true;
}

/* Finds the anchors [*begin, *end) of an episode before padding: the rows of a clock, or the steps
 * of a rate in the span that all streams of the feed share. */
static void anchor_range(const struct trajd_window_plan *plan, const struct trajd_episode *episode,
                         int64_t *begin, int64_t *end)
{
    int64_t from_ns = INT64_MIN, to_ns = INT64_MAX;

    *begin = *end = 0;
    if (plan->rules.anchor_clock >= 0) {
        *end = episode->clocks[plan->rules.anchor_clock].row_count;
        return;
    }
    for (uint32_t i = 0; i < plan->rules.target_count; i++) {
        int64_t first_ns, last_ns;
        if (trajd_plan_is_missing(plan, &plan->rules.targets[i], episode))
            continue;
        if (!target_span(plan, &plan->rules.targets[i], episode, &first_ns, &last_ns))
            return;
        from_ns = first_ns > from_ns ? first_ns : from_ns;
        to_ns = last_ns < to_ns ? last_ns : to_ns;
    }
    if (from_ns == INT64_MIN || from_ns > to_ns)
        return;
    *begin = trajd_rate_row_at(plan->spec->anchor_rate, from_ns - 1) + 1;
    *end = trajd_rate_row_at(plan->spec->anchor_rate, to_ns) + 1;
}

/* Narrows [*begin, *end) to the anchors that padding allows. Both conditions are monotonic in j. */
static void apply_padding(const struct trajd_window_plan *plan, const struct trajd_episode *episode,
                          int64_t *begin, int64_t *end)
{
    int64_t low = *begin, high = *end;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (padding_allows(plan, episode, middle, true))
            high = middle;
        else
            low = middle + 1;
    }
    *begin = low;
    high = *end;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (padding_allows(plan, episode, middle, false))
            low = middle + 1;
        else
            high = middle;
    }
    *end = low;
}

static enum trajd_status check_missing(const struct trajd_window_plan *plan,
                                       const struct trajd_episode *episode, bool *skip,
                                       struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;

    *skip = false;
    for (uint32_t i = 0; i < plan->rules.target_count; i++) {
        const struct trajd_plan_target *target = &plan->rules.targets[i];
        if (!trajd_plan_is_missing(plan, target, episode))
            continue;
        if (target->missing == TRAJD_MISSING_SKIP)
            *skip = true;
        else if (target->missing == TRAJD_MISSING_ERROR)
            return trajd_error_set(
                error, TRAJD_ERR_DATA, 0,
                "outputs.%s: %s: episode %s has no stream %s: set missing: zero or missing: skip",
                plan->rules.outputs[target->output_index].name,
                index->files[episode->file_index].relative_path, episode->id,
                trajd_plan_stream(plan, target)->name);
    }
    return TRAJD_OK;
}

static enum trajd_status no_windows(const struct trajd_window_plan *plan, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    const bool is_padding_limited =
        plan->spec->pad_before != TRAJD_SPEC_PAD_ANY || plan->spec->pad_after != TRAJD_SPEC_PAD_ANY;
    char reach[TRAJD_PLAN_REACH_SIZE] = "";
    uint32_t t = 0;

    if (plan->spec->select.filter) {
        bool known = false;
        for (uint32_t e = 0; e < index->episode_count && !known; e++)
            known = trajd_select_mask_lists(&index->episodes[e], plan->spec->select.filter);
        if (!known)
            return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                                   "filter: no mask %s lists an episode of dataset %s",
                                   plan->spec->select.filter, plan->dataset->name);
    }
    while (is_padding_limited && t < plan->rules.target_count &&
           !trajd_plan_reaches_out(plan, &plan->rules.targets[t], reach))
        t++;
    return trajd_error_set(
        error, TRAJD_ERR_DATA, 0,
        "filter, where, episodes, split, ranges and pad leave no window of %u usable episode%s"
        "%s%s%s%s%s%s",
        plan->found_count - plan->quarantined.count,
        trajd_plural(plan->found_count - plan->quarantined.count), *reach ? "; the steps of " : "",
        *reach ? plan->rules.outputs[plan->rules.targets[t].output_index].name : "",
        *reach ? " " : "", reach,
        plan->quarantined.count ? "; others are quarantined, the first: " : "",
        plan->quarantined.count && plan->quarantined.list[0] ? plan->quarantined.list[0] : "");
}

/* Lists the files and episodes that the feed cannot use. */
static void list_quarantined(struct trajd_window_plan *plan)
{
    const struct trajd_index *index = plan->dataset->index;
    uint32_t e = 0;

    plan->found_count = index->episode_count + index->refused_file_count;
    for (uint32_t f = 0; f < index->file_count; f++) {
        if (index->files[f].refusal)
            trajd_plan_texts_add(plan, &plan->quarantined, index->files[f].refusal);
        for (; e < index->episode_count && index->episodes[e].file_index == f; e++) {
            const char *reason = trajd_window_plan_quarantine(plan, &index->episodes[e]);
            if (reason)
                trajd_plan_texts_add(plan, &plan->quarantined, reason);
        }
    }
}

/* What is collected while the plan's episodes are found. */
struct segment_list {
    struct trajd_segment *segments;
    uint32_t count;
    struct trajd_digest anchors; /* of the selected episodes */
    uint32_t short_count, first_short;
    struct trajd_select_ranges ranges;         /* of `ranges:` */
    uint32_t rangeless_count, first_rangeless; /* episodes without a range */
};

/* Warns of episodes that are selected and still give no window: the training never sees them. */
static void warn_of_short(struct trajd_window_plan *plan, const struct segment_list *list)
{
    const struct trajd_index *index = plan->dataset->index;
    const struct trajd_episode *episode = &index->episodes[list->first_short];

    if (list->short_count)
        trajd_window_plan_warn(plan,
                               "%u of the %u selected episodes are too short for any window with "
                               "this pad: (the first: %s: %s)",
                               list->short_count,
                               list->short_count + list->rangeless_count + plan->episode_count,
                               index->files[episode->file_index].relative_path, episode->id);
}

/* Warns of episodes that `episodes:` lists and that the feed cannot use. */
static void warn_of_listed(struct trajd_window_plan *plan, const uint8_t *flags,
                           const struct trajd_select_refused *refused)
{
    const struct trajd_index *index = plan->dataset->index;
    const char *first = refused->first;
    uint32_t count = refused->count;

    plan->listed_count = refused->count;
    for (uint32_t e = 0; e < index->episode_count; e++) {
        const char *reason = trajd_window_plan_quarantine(plan, &index->episodes[e]);
        plan->listed_count += (flags[e] & TRAJD_SELECT_LISTED) != 0;
        if (!(flags[e] & TRAJD_SELECT_LISTED) || !reason)
            continue;
        first = first ? first : reason;
        count++;
    }
    if (plan->spec->select.entry_count && count)
        trajd_window_plan_warn(plan,
                               "episodes: %u of the %u listed episodes are quarantined and not "
                               "used (the first: %s)",
                               count, plan->listed_count, first);
}

/* Warns of entries of `ranges:` for which there is no episode, and of episodes without a range. */
static void warn_of_ranges(struct trajd_window_plan *plan, const struct segment_list *list)
{
    const struct trajd_ranges *ranges = plan->spec->select.ranges;
    const struct trajd_index *index = plan->dataset->index;
    const struct trajd_episode *episode = &index->episodes[list->first_rangeless];

    if (list->ranges.unknown_count)
        trajd_window_plan_warn(plan,
                               "ranges: %s: %u of the %u keys name no episode of the dataset (the "
                               "first: %.200s)",
                               ranges->source, list->ranges.unknown_count, ranges->entry_count,
                               list->ranges.first_unknown);
    if (list->rangeless_count)
        trajd_window_plan_warn(
            plan,
            "ranges: %s: %u of the %u selected episodes have no range there, and "
            "so no window (the first: %s: %s)",
            ranges->source, list->rangeless_count,
            list->rangeless_count + list->short_count + plan->episode_count,
            index->files[episode->file_index].relative_path, episode->id);
}

static void add_segment(struct segment_list *list, uint32_t episode, int64_t begin, int64_t end)
{
    if (begin < end)
        list->segments[list->count++] =
            (struct trajd_segment){.episode_index = episode,
                                   .first_anchor = begin,
                                   .window_count = (uint64_t)(end - begin)};
}

/* Adds the anchors in [begin, end) that the episode's ranges allow. *row_count is the anchors
 * before padding. */
static enum trajd_status add_ranges(struct trajd_window_plan *plan, uint32_t e, int64_t row_count,
                                    int64_t begin, int64_t end, struct segment_list *list,
                                    struct trajd_error *error)
{
    const struct trajd_ranges *ranges = plan->spec->select.ranges;
    const struct trajd_ranges_entry *entry = &ranges->entries[list->ranges.entry_of[e]];

    for (uint32_t r = entry->first; r < entry->first + entry->count; r++) {
        const struct trajd_range *range = &ranges->ranges[r];
        if (range->end > row_count)
            return trajd_error_set(
                error, TRAJD_ERR_DATA, 0,
                "ranges: %s: %.200s: [%lld, %lld] ends behind the last row: clock %s has %lld rows",
                ranges->source, trajd_ranges_name(ranges, entry), (long long)range->begin,
                (long long)range->end, plan->spec->anchor_clock, (long long)row_count);
        trajd_digest_add_u64(&list->anchors, (uint64_t)range->begin);
        trajd_digest_add_u64(&list->anchors, (uint64_t)range->end);
        add_segment(list, e, begin > range->begin ? begin : range->begin,
                    end < range->end ? end : range->end);
    }
    return TRAJD_OK;
}

/* Returns whether `ranges:` leaves the episode no anchor. */
static bool is_rangeless(const struct trajd_window_plan *plan, uint32_t e,
                         struct segment_list *list)
{
    const struct trajd_ranges *ranges = plan->spec->select.ranges;

    if (!ranges ||
        (list->ranges.entry_of[e] != UINT32_MAX && ranges->entries[list->ranges.entry_of[e]].count))
        return false;
    list->first_rangeless = list->rangeless_count++ ? list->first_rangeless : e;
    return true;
}

/* Adds the anchors of a selected episode. */
static enum trajd_status add_episode(struct trajd_window_plan *plan, uint32_t e,
                                     struct segment_list *list, struct trajd_error *error)
{
    const struct trajd_episode *episode = &plan->dataset->index->episodes[e];
    const uint32_t before = list->count;
    int64_t begin, end, row_count;
    bool skip;
    enum trajd_status status = check_missing(plan, episode, &skip, error);

    if (status || skip || is_rangeless(plan, e, list))
        return status;
    anchor_range(plan, episode, &begin, &end);
    row_count = end;
    if (plan->anchor_ends)
        plan->anchor_ends[e] = end;
    trajd_digest_add_u64(&list->anchors, e);
    trajd_digest_add_u64(&list->anchors, (uint64_t)begin);
    trajd_digest_add_u64(&list->anchors, (uint64_t)end);
    apply_padding(plan, episode, &begin, &end);
    if (plan->spec->select.ranges)
        status = add_ranges(plan, e, row_count, begin, end, list, error);
    else
        add_segment(list, e, begin, end);
    if (list->count > before)
        plan->episodes[plan->episode_count++] = e;
    else
        list->first_short = list->short_count++ ? list->first_short : e;
    return status;
}

/* Finds the episodes of `ranges:`. */
static enum trajd_status find_ranges(const struct trajd_window_plan *plan,
                                     struct segment_list *list, struct trajd_error *error)
{
    const struct trajd_select_rules *rules = &plan->spec->select;

    if (rules->ranges_file && !rules->ranges)
        return trajd_error_set(
            error, TRAJD_ERR_ARGUMENT, 0,
            "%s: a feed that a job sends can only name a file that a feed of the "
            "daemon's configuration names, too: send the ranges themselves, "
            "{EPISODE: [[BEGIN, END], ...]}",
            rules->ranges_place);
    if (!rules->ranges)
        return TRAJD_OK;
    if (plan->rules.anchor_clock < 0)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: ranges count the rows of a clock: they need anchor: {clock: "
                               "NAME}",
                               rules->ranges_place);
    return trajd_select_ranges_find(rules->ranges, plan->dataset->index, &list->ranges, error);
}

static enum trajd_status find_segments(struct trajd_window_plan *plan, uint8_t *flags,
                                       struct segment_list *list, struct trajd_error *error)
{
    const struct trajd_index *index = plan->dataset->index;
    struct trajd_select_refused refused;
    enum trajd_status status =
        trajd_select_episodes(&plan->spec->select, index, flags, &refused, error);

    list_quarantined(plan);
    if (!status)
        status = find_ranges(plan, list, error);
    if (status)
        return status;
    warn_of_listed(plan, flags, &refused);
    for (uint32_t e = 0; e < index->episode_count && !status; e++)
        if ((flags[e] & TRAJD_SELECT_TAKEN) &&
            !trajd_window_plan_quarantine(plan, &index->episodes[e]))
            status = add_episode(plan, e, list, error);
    plan->anchors_digest = trajd_digest_end(&list->anchors);
    if (!status && !list->count)
        status = no_windows(plan, error);
    warn_of_short(plan, list);
    warn_of_ranges(plan, list);
    return status;
}

static enum trajd_status make_sampler(struct trajd_window_plan *plan,
                                      const struct segment_list *list, struct trajd_error *error)
{
    const struct trajd_window_spec *spec = plan->spec;
    const struct trajd_sampler_options options = {.segments = list->segments,
                                                  .segment_count = list->count,
                                                  .fingerprint = plan->fingerprint,
                                                  .seed = spec->seed,
                                                  .order = spec->order,
                                                  .block_windows = spec->block_windows,
                                                  .block_neighbours = spec->block_neighbours,
                                                  .tail = spec->tail,
                                                  .one_per_episode = spec->one_per_episode,
                                                  .epoch_windows = spec->epoch_windows,
                                                  .global_batch = spec->global_batch};

    return trajd_sampler_create(&options, &plan->sampler, error);
}

enum trajd_status trajd_window_plan_segments(struct trajd_window_plan *plan,
                                             struct trajd_error *error)
{
    const uint32_t episode_count = plan->dataset->index->episode_count;
    const struct trajd_ranges *ranges = plan->spec->select.ranges;
    const size_t room = (size_t)episode_count + 1 + (ranges ? ranges->range_count : 0);
    struct segment_list list = {.segments = calloc(room, sizeof *list.segments)};
    uint8_t *flags = calloc(episode_count + 1, sizeof *flags);
    enum trajd_status status = TRAJD_OK;

    trajd_digest_init(&list.anchors);
    plan->episodes = trajd_arena_array(&plan->arena, episode_count, sizeof *plan->episodes);
    if (plan->rules.goal_count)
        plan->anchor_ends =
            trajd_arena_array(&plan->arena, episode_count, sizeof *plan->anchor_ends);
    if (!list.segments || !flags || plan->arena.is_starved)
        status = trajd_plan_no_memory(error);
    if (!status)
        status = find_segments(plan, flags, &list, error);
    if (!status)
        status = make_sampler(plan, &list, error);
    trajd_select_ranges_free(&list.ranges);
    free(list.segments);
    free(flags);
    return status;
}
