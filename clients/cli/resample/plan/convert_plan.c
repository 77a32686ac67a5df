/* A plan: checks the options and makes streams, datasets and episodes, in this order; names the
 * output's episodes; finds rows by time; divides the work by bytes, so that the memory needed does not
 * depend on the length of an episode. */
#include "clients/cli/resample/plan/convert_plan_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_ROW_BYTES = 4096, SEGMENT_STEPS_MAX = 65536 };

static const size_t plan_bytes_max = (size_t)2 << 30;
static const uint64_t segment_bytes = UINT64_C(4) << 20; /* of the output's rows */

/* ---- the output's ids ---- */

static int compare_ids(const void *a, const void *b)
{
    const struct convert_episode *const *left = a, *const *right = b;

    return strcmp((*left)->id, (*right)->id);
}

static bool ids_repeat(const struct convert_plan *plan)
{
    const struct convert_episode **sorted =
        trajd_memory_or_exit(malloc((plan->episode_count + 1) * sizeof *sorted));
    bool repeat = false;

    for (uint32_t e = 0; e < plan->episode_count; e++)
        sorted[e] = &plan->episodes[e];
    qsort(sorted, plan->episode_count, sizeof *sorted, compare_ids);
    for (uint32_t e = 1; e < plan->episode_count && !repeat; e++)
        repeat = !strcmp(sorted[e - 1]->id, sorted[e]->id);
    free(sorted);
    return repeat;
}

/* Keeps the ids if they are unique. Otherwise numbers all episodes demo_0, demo_1, ... in order.
 * Readers sort by the number at the end of the id, and some count up to the number of episodes, so
 * a part's number cannot follow its episode's. */
static enum trajd_status name_episodes(struct convert_plan *plan, struct trajd_error *error)
{
    const struct trajd_index *first = plan->options->indexes[0];
    size_t stem;

    if (convert_plan_is_of_files(plan)) {
        for (uint32_t e = 1; e < plan->episode_count; e++)
            if (plan->episodes[e].source != plan->episodes[0].source ||
                plan->episodes[e].episode != plan->episodes[0].episode)
                return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                                       "layout %s has one episode per file, but there are several: "
                                       "resample them one at a time",
                                       first->layout->name);
        return TRAJD_OK;
    }
    if (!ids_repeat(plan))
        return TRAJD_OK;
    convert_note(
        plan->options,
        "%s: all episodes get new numbers, and the attribute trajd_source names the old ones",
        plan->cut_count ? "parts need names of their own"
                        : "episodes of several files have the same names");
    stem = strlen(plan->episodes[0].id);
    while (stem > 0 && plan->episodes[0].id[stem - 1] >= '0' &&
           plan->episodes[0].id[stem - 1] <= '9')
        stem--;
    for (uint32_t e = 0; e < plan->episode_count; e++) {
        char id[1100];
        const int length = snprintf(id, sizeof id, "%.*s%u", (int)stem, plan->episodes[0].id, e);
        if ((size_t)length >= sizeof id)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%.100s...: a name of %d bytes is too long",
                                   plan->episodes[0].id, length);
        plan->episodes[e].id =
            trajd_memory_or_exit(trajd_arena_copy(&plan->arena, id, (size_t)length));
    }
    return TRAJD_OK;
}

/* ---- the plan ---- */

static enum trajd_status check_options(const struct trajd_convert_options *options,
                                       struct trajd_error *error)
{
    const struct trajd_rate rate = options->rate;

    if (!options->index_count)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0, "name an input");
    if (rate.num <= 0 || rate.den <= 0 || rate.num / rate.den > TRAJD_CONVERT_RATE_MAX)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "the rate must be above 0 and at most %d Hz",
                               TRAJD_CONVERT_RATE_MAX);
    for (uint32_t r = 0; r < options->rule_count; r++)
        if (options->rules[r].dtype == TRAJD_BF16)
            return trajd_error_set(error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "HDF5 has no bfloat16: choose float16, float32 or float64");
    return TRAJD_OK;
}

enum trajd_status convert_plan_make(const struct trajd_convert_options *options,
                                    struct convert_plan *plan, struct trajd_error *error)
{
    enum trajd_status status;

    *plan = (struct convert_plan){.options = options, .arena = {.limit_bytes = plan_bytes_max}};
    status = check_options(options, error);
    if (!status)
        status = convert_choose_streams(plan, error);
    if (!status)
        convert_choose_chunks(plan);
    if (!status)
        status = convert_make_episodes(plan, error);
    if (!status)
        status = name_episodes(plan, error);
    return status;
}

bool convert_plan_is_of_files(const struct convert_plan *plan)
{
    const struct trajd_layout *layout = plan->options->indexes[0]->layout;

    return !strpbrk(layout->groups, "*?[") && !layout->split.kind;
}

void convert_plan_select(struct convert_plan *plan, uint32_t episode)
{
    plan->episodes += episode;
    plan->episode_count = 1;
    plan->step_count = plan->byte_count = plan->duration_ns = 0;
    convert_add_sizes(plan, &plan->episodes[0]); /* fits, because the sum over all episodes did */
}

void convert_plan_clear(struct convert_plan *plan)
{
    trajd_arena_free(&plan->arena);
    free(plan->streams);
    *plan = (struct convert_plan){0};
}

/* ---- rows of the steps ---- */

/* Returns how the rows of a dataset are picked. Only those of uint8 can be encoded images, whose
 * lengths stand in another dataset, so they alone decide between previous and nearest. */
static enum trajd_kind kind_of(const struct convert_dataset *dataset)
{
    for (uint32_t l = 0; l < dataset->lane_count; l++)
        if (dataset->from == TRAJD_U8 && dataset->lanes[l].kind == TRAJD_KIND_NEAREST)
            return TRAJD_KIND_NEAREST;
    return TRAJD_KIND_PREVIOUS;
}

static bool is_same(const struct convert_pick *a, const struct convert_pick *b)
{
    return a->row_count == b->row_count && a->clock == b->clock && a->kind == b->kind;
}

/* Adds the picks of the uint8 datasets, or those of the others where no pick has their rows. */
static uint32_t add_picks(const struct convert_plan *plan, const struct convert_episode *made,
                          bool of_bytes, struct convert_pick *picks, uint32_t count)
{
    const struct trajd_index *index = plan->options->indexes[made->source];
    const struct trajd_episode *episode = &index->episodes[made->episode];

    for (uint32_t a = 0; a < made->array_count; a++) {
        const struct convert_dataset *dataset = &plan->datasets[made->arrays[a].dataset];
        const uint32_t mapped = plan->source_datasets[made->source][made->arrays[a].dataset];
        const struct convert_pick pick = {.row_count =
                                              trajd_array_row_count(&episode->extents[mapped]),
                                          .clock = dataset->clock,
                                          .kind = kind_of(dataset),
                                          .rows = made->arrays[a].rows};
        bool is_there = (dataset->from == TRAJD_U8) != of_bytes;
        for (uint32_t i = 0; i < count && !is_there; i++)
            is_there = of_bytes
                           ? is_same(&picks[i], &pick)
                           : picks[i].row_count == pick.row_count && picks[i].clock == pick.clock;
        if (!is_there && count < CONVERT_PICKS_MAX)
            picks[count++] = pick;
    }
    return count;
}

uint32_t convert_picks_of(const struct convert_plan *plan, const struct convert_episode *made,
                          uint32_t array, const struct convert_pick *picks, uint32_t count)
{
    const struct trajd_index *index = plan->options->indexes[made->source];
    const struct convert_array *wanted = &made->arrays[array];
    const struct convert_dataset *dataset = &plan->datasets[wanted->dataset];
    const uint32_t mapped = plan->source_datasets[made->source][wanted->dataset];
    const struct convert_pick pick = {
        trajd_array_row_count(&index->episodes[made->episode].extents[mapped]), dataset->clock,
        kind_of(dataset), wanted->rows};
    uint32_t i = 0;

    while (i < count && !is_same(&picks[i], &pick))
        i++;
    return i;
}

uint32_t convert_picks_find(const struct convert_plan *plan, const struct convert_episode *made,
                            struct convert_pick picks[CONVERT_PICKS_MAX])
{
    const uint32_t count = add_picks(plan, made, true, picks, 0);

    return add_picks(plan, made, false, picks, count);
}

uint64_t convert_pick_row(const struct convert_plan *plan, const struct convert_episode *made,
                          const struct convert_pick *pick, uint64_t step)
{
    const struct trajd_index *index = plan->options->indexes[made->source];
    const struct trajd_episode_clock *clock = &index->episodes[made->episode].clocks[pick->clock];
    const int64_t x = made->begin_ns + convert_step_ns(plan, step);
    int64_t row = trajd_clock_rows_until(clock, pick->rows, x) - 1;

    if (pick->kind == TRAJD_KIND_NEAREST && row + 1 < pick->rows) {
        const int64_t before = trajd_clock_row_ns(clock, row),
                      after = trajd_clock_row_ns(clock, row + 1);
        row += 2 * (x - before) >= after - before;
    }
    return clock->kept_rows ? clock->kept_rows[row] : (uint64_t)row;
}

/* ---- segments ---- */

static bool is_small(const struct convert_dataset *dataset)
{
    return !dataset->is_encoded && !dataset->is_compressed &&
           dataset->row_bytes <= SMALL_ROW_BYTES && dataset->source_bytes <= SMALL_ROW_BYTES;
}

void convert_groups_make(struct convert_plan *plan, struct convert_group **groups, uint32_t *count)
{
    bool *taken = convert_alloc(plan, plan->dataset_count);

    *count = 0;
    *groups = convert_alloc(plan, plan->dataset_count * sizeof **groups);
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        struct convert_group *group = &(*groups)[*count];
        if (taken[d] || plan->datasets[d].is_encoded)
            continue;
        group->datasets = convert_alloc(plan, plan->dataset_count * sizeof *group->datasets);
        for (uint32_t other = d; other < plan->dataset_count; other++) {
            const bool joins =
                other == d || (is_small(&plan->datasets[d]) && is_small(&plan->datasets[other]) &&
                               plan->datasets[other].clock == plan->datasets[d].clock);
            if (!joins || taken[other])
                continue;
            group->datasets[group->dataset_count++] = other;
            taken[other] = true;
        }
        ++*count;
    }
}

/* Returns the steps of a segment: the same for all segments of a group, and a multiple of a chunk
 * if compressed. */
static uint64_t segment_steps(const struct convert_plan *plan, const struct convert_group *group)
{
    const struct convert_dataset *first = &plan->datasets[group->datasets[0]];
    uint64_t row_bytes = 1, steps;

    for (uint32_t i = 0; i < group->dataset_count; i++)
        row_bytes += plan->datasets[group->datasets[i]].row_bytes;
    steps = segment_bytes / row_bytes;
    steps = steps > SEGMENT_STEPS_MAX ? SEGMENT_STEPS_MAX : steps < 1 ? 1 : steps;
    return first->is_compressed
               ? (steps + first->chunk_rows - 1) / first->chunk_rows * first->chunk_rows
               : steps;
}

uint64_t convert_segment_bytes(const struct convert_plan *plan, const struct convert_group *group)
{
    uint64_t steps = 1, bytes = 0;

    for (uint32_t e = 0; e < plan->episode_count; e++)
        steps = plan->episodes[e].step_count > steps ? plan->episodes[e].step_count : steps;
    if (segment_steps(plan, group) < steps)
        steps = segment_steps(plan, group);
    for (uint32_t i = 0; i < group->dataset_count; i++) {
        const struct convert_dataset *dataset = &plan->datasets[group->datasets[i]];
        uint64_t rows = steps, row_bytes = dataset->row_bytes;
        if (dataset->is_compressed) {
            row_bytes = trajd_dtype_size(dataset->to);
            for (uint32_t d = 0; d < dataset->rank; d++)
                row_bytes *= dataset->chunk_shape[d];
            rows = dataset->chunk_rows;
        }
        bytes += (rows * row_bytes + 63) / 64 * 64;
    }
    return bytes;
}

static bool has_any(const struct convert_episode *episode, const struct convert_group *group)
{
    for (uint32_t a = 0; a < episode->array_count; a++)
        for (uint32_t i = 0; i < group->dataset_count; i++)
            if (episode->arrays[a].dataset == group->datasets[i])
                return true;
    return false;
}

uint64_t convert_segment_count(const struct convert_plan *plan, const struct convert_group *groups,
                               uint32_t group_count, uint32_t episode)
{
    uint64_t count = 0;

    for (uint32_t g = 0; g < group_count; g++) {
        const uint64_t steps = segment_steps(plan, &groups[g]);
        if (has_any(&plan->episodes[episode], &groups[g]))
            count += (plan->episodes[episode].step_count + steps - 1) / steps;
    }
    return count;
}

bool convert_cursor_next(struct convert_cursor *cursor, struct convert_segment *segment)
{
    const struct convert_plan *plan = cursor->plan;

    while (cursor->episode < plan->episode_count) {
        const struct convert_episode *episode = &plan->episodes[cursor->episode];
        if (cursor->group == cursor->group_count) {
            cursor->episode++;
            cursor->group = 0;
            cursor->step = 0;
        } else if (cursor->step == episode->step_count ||
                   !has_any(episode, &cursor->groups[cursor->group])) {
            cursor->group++;
            cursor->step = 0;
        } else {
            const uint64_t steps = segment_steps(plan, &cursor->groups[cursor->group]),
                           remaining = episode->step_count - cursor->step;
            *segment =
                (struct convert_segment){cursor->episode, cursor->group, cursor->step,
                                         cursor->step + (steps < remaining ? steps : remaining)};
            cursor->step = segment->step_end;
            return true;
        }
    }
    return false;
}
