/* The grids of the episodes, and the split of episodes at gaps. */

#include "clients/cli/resample/plan/convert_plan_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/plural.h"

static const uint64_t steps_max = UINT64_C(1) << 40; /* of one episode */

/* ---- one episode ---- */

static enum trajd_status leave_out(struct convert_plan *plan, const struct trajd_index *index,
                                   const struct trajd_episode *episode, const char *why)
{
    const char *file = index->files[episode->file_index].relative_path;

    plan->left_out++;
    if (strcmp(file, episode->id))
        convert_note(plan->options, "%s: %s: left out: %s", file, episode->id, why);
    else
        convert_note(plan->options, "%s: left out: %s", file, why);
    return TRAJD_OK;
}

/* Returns whether the episode's rows have the type and shape of the first episode's. A stream of
 * some columns does not check the other columns. */
static bool has_its_rows(const struct convert_dataset *dataset, const struct trajd_array *array)
{
    bool same = !dataset->lane_count || dataset->is_encoded ||
                (array->dtype == dataset->from && array->rank == dataset->rank + 1);

    for (uint32_t d = 0; d < dataset->rank && dataset->lane_count && same; d++)
        same = array->shape[d + 1] == dataset->shape[d];
    return same;
}

bool convert_add_sizes(struct convert_plan *plan, const struct convert_episode *made)
{
    for (uint32_t a = 0; a < made->array_count; a++) {
        uint64_t bytes;
        if (__builtin_mul_overflow(plan->datasets[made->arrays[a].dataset].row_bytes,
                                   made->step_count, &bytes) ||
            __builtin_add_overflow(plan->byte_count, bytes, &plan->byte_count) ||
            plan->byte_count > INT64_MAX)
            return false;
    }
    plan->step_count += made->step_count;
    plan->duration_ns += (uint64_t)convert_step_ns(plan, made->step_count - 1);
    return true;
}

/* ---- parts of an episode ---- */

static struct convert_episode *next_episode(struct convert_plan *plan)
{
    /* Only where episodes are split. The old array stays in the arena. */
    if (plan->episode_count == plan->episode_capacity) {
        const uint32_t capacity = plan->episode_capacity + plan->episode_capacity / 2 + 16;
        struct convert_episode *grown = convert_alloc(plan, capacity * sizeof *grown);
        memcpy(grown, plan->episodes, plan->episode_count * sizeof *grown);
        plan->episodes = grown;
        plan->episode_capacity = capacity;
    }
    return &plan->episodes[plan->episode_count];
}

/* Adds one episode of the output, with a grid from begin to end. */
static enum trajd_status add_episode(struct convert_plan *plan, const struct convert_episode *uncut,
                                     const struct gap_splitter *splitter, int64_t begin,
                                     int64_t end, uint64_t steps, struct trajd_error *error)
{
    struct convert_episode *made = next_episode(plan);
    const size_t size = uncut->array_count * sizeof *uncut->arrays;
    const bool is_uncut = begin == uncut->begin_ns && end == uncut->end_ns;

    *made = *uncut;
    made->begin_ns = begin;
    made->end_ns = end;
    made->step_count = steps;
    if (!is_uncut) {
        made->arrays = convert_alloc(plan, size);
        memcpy(made->arrays, uncut->arrays, size);
    }
    for (uint32_t a = 0; a < made->array_count; a++)
        made->arrays[a].first_row = splitter->gaps[a].first_row;
    if (steps > steps_max || !convert_add_sizes(plan, made))
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "%s: %.3g s at this rate are %" PRIu64 " rows, which is too many",
                               made->id, (double)(end - begin) * 1e-9, steps);
    plan->episode_count++;
    return TRAJD_OK;
}

static enum trajd_status leave_out_for_gap(struct convert_plan *plan,
                                           const struct convert_episode *uncut)
{
    const struct trajd_index *index = plan->options->indexes[uncut->source];
    const struct trajd_episode *episode = &index->episodes[uncut->episode];
    struct convert_gap gap;
    char why[400] = "";

    for (uint32_t a = 0; a < uncut->array_count && !*why; a++) {
        struct gap_splitter splitter = {.plan = plan,
                                        .episode = episode,
                                        .arrays = &uncut->arrays[a],
                                        .array_count = 1,
                                        .gaps = &gap};
        const struct convert_dataset *dataset = &plan->datasets[uncut->arrays[a].dataset];
        gap_splitter_begin(&splitter, uncut->begin_ns, uncut->end_ns);
        if (gap.row >= 0)
            snprintf(why, sizeof why,
                     "%.200s: a gap of %.6g ms after row %" PRId64
                     " (max_gap %.6g ms), and no two steps between gaps",
                     dataset->path, (double)(gap.to_ns - gap.from_ns) * 1e-6, gap.row,
                     (double)dataset->max_gap_ns * 1e-6);
    }
    return leave_out(plan, index, episode, why);
}

static void note_parts(const struct convert_plan *plan, const struct convert_episode *uncut,
                       uint32_t count, uint32_t dropped)
{
    const struct trajd_index *index = plan->options->indexes[uncut->source];
    const char *file = index->files[index->episodes[uncut->episode].file_index].relative_path;
    const bool is_file = !strcmp(file, uncut->id);
    char remainder[80] = "";

    if (dropped)
        snprintf(remainder, sizeof remainder, ", %u of a single step left out", dropped);
    convert_note(plan->options, "%s%s%s: split at gaps into %u part%s%s", file, is_file ? "" : ": ",
                 is_file ? "" : uncut->id, count, trajd_plural(count), remainder);
}

/* Adds the episode as one grid, or as the parts between gaps that are longer than max_gap. A part
 * of a single step is left out. */
static enum trajd_status add_parts(struct convert_plan *plan, const struct convert_episode *uncut,
                                   struct trajd_error *error)
{
    const struct trajd_index *index = plan->options->indexes[uncut->source];
    struct gap_splitter splitter = {.plan = plan,
                                    .episode = &index->episodes[uncut->episode],
                                    .arrays = uncut->arrays,
                                    .array_count = uncut->array_count};
    const uint32_t first = plan->episode_count;
    uint32_t dropped = 0, count;
    int64_t begin, end;
    enum trajd_status status = TRAJD_OK;

    splitter.gaps = convert_alloc(plan, uncut->array_count * sizeof *splitter.gaps);
    gap_splitter_begin(&splitter, uncut->begin_ns, uncut->end_ns);
    while (!status && gap_splitter_next(&splitter, &begin, &end)) {
        const uint64_t steps = (uint64_t)trajd_rate_row_at(plan->options->rate, end - begin) + 1;
        if (begin == uncut->begin_ns && end == uncut->end_ns)
            return add_episode(plan, uncut, &splitter, begin, end, steps, error);
        if (steps < 2)
            dropped++;
        else
            status = add_episode(plan, uncut, &splitter, begin, end, steps, error);
    }
    count = plan->episode_count - first;
    if (status)
        return status;
    if (!count)
        return leave_out_for_gap(plan, uncut);
    for (uint32_t p = 0; p < count; p++) {
        plan->episodes[first + p].part = p;
        plan->episodes[first + p].part_count = count;
    }
    plan->cut_count++;
    note_parts(plan, uncut, count, dropped);
    return TRAJD_OK;
}

/* Finds the episode's datasets, and the span that all of them cover. */
static enum trajd_status make_episode(struct convert_plan *plan, uint32_t source, uint32_t number,
                                      struct trajd_error *error)
{
    const struct trajd_index *index = plan->options->indexes[source];
    const struct trajd_episode *episode = &index->episodes[number];
    struct convert_episode uncut = {.source = source, .episode = number, .id = episode->id},
                           *made = &uncut;
    int64_t begin = INT64_MIN, end = INT64_MAX;
    const char *latest = "", *earliest = "";
    char why[400];

    made->arrays = convert_alloc(plan, plan->dataset_count * sizeof *made->arrays);
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        const uint32_t mapped = plan->source_datasets[source][d];
        const struct trajd_episode_clock *clock = &episode->clocks[plan->datasets[d].clock];
        const int64_t rows =
            mapped == UINT32_MAX ? 0 : convert_row_count(clock, &episode->extents[mapped]);
        if (rows <= 0)
            continue;
        if (!has_its_rows(&plan->datasets[d], &episode->extents[mapped])) {
            snprintf(why, sizeof why,
                     "%.200s: its rows are %" PRIu64 " x %s, but %" PRIu64
                     " x %s in the first episode",
                     plan->datasets[d].path, trajd_array_row_elements(&episode->extents[mapped]),
                     trajd_dtype_name(episode->extents[mapped].dtype), plan->datasets[d].elements,
                     trajd_dtype_name(plan->datasets[d].from));
            return leave_out(plan, index, episode, why);
        }
        if (convert_row_ns(clock, 0) > begin) {
            begin = convert_row_ns(clock, 0);
            latest = plan->datasets[d].path;
        }
        if (convert_row_ns(clock, rows - 1) < end) {
            end = convert_row_ns(clock, rows - 1);
            earliest = plan->datasets[d].path;
        }
        made->arrays[made->array_count++] = (struct convert_array){.dataset = d, .rows = rows};
    }
    if (!made->array_count)
        return leave_out(plan, index, episode, "it has no rows of the chosen streams");
    if (begin > end) {
        snprintf(why, sizeof why, "%.150s begins %.3f s after %.150s has ended", latest,
                 (double)(begin - end) * 1e-9, earliest);
        return leave_out(plan, index, episode, why);
    }
    made->begin_ns = begin;
    made->end_ns = end;
    return add_parts(plan, made, error);
}

/* Returns why an episode cannot be converted; NULL: it can. Another shape counts: the array would be
 * copied beside resampled ones as it is. */
static const char *reason_against(const struct trajd_index *index,
                                  const struct trajd_episode *episode)
{
    for (uint32_t i = 0; i < index->array_count && episode->other_shapes && !episode->quarantine;
         i++)
        if (episode->other_shapes[i])
            return episode->other_shapes[i];
    return episode->quarantine;
}

enum trajd_status convert_make_episodes(struct convert_plan *plan, struct trajd_error *error)
{
    const struct trajd_convert_options *options = plan->options;
    enum trajd_status status = convert_check_selection(options, error);
    size_t count = 1;

    for (uint32_t k = 0; k < options->index_count; k++)
        count += options->indexes[k]->episode_count;
    plan->episodes = convert_alloc(plan, count * sizeof *plan->episodes);
    plan->episode_capacity = (uint32_t)count;
    for (uint32_t k = 0; k < options->index_count; k++)
        for (uint32_t e = 0; e < options->indexes[k]->episode_count && !status; e++) {
            const struct trajd_episode *episode = &options->indexes[k]->episodes[e];
            const char *why = reason_against(options->indexes[k], episode);
            if (!convert_chooses_episode(options, episode))
                continue;
            if (why) {
                plan->left_out++;
                convert_note(options, "left out: %s", why);
            } else {
                status = make_episode(plan, k, e, error);
            }
        }
    if (!status && !plan->episode_count)
        return trajd_error_set(
            error, TRAJD_ERR_DATA, 0,
            "all %" PRIu64 " episodes were left out (the notes give the reasons)", plan->left_out);
    return status;
}
