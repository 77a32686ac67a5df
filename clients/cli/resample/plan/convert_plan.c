/* A plan: checks the options and makes streams, datasets and episodes, in this order; names the
 * output's episodes; finds rows by time; divides the work by bytes, so that the memory needed does not
 * depend on the length of an episode. */
#include "clients/cli/resample/plan/convert_plan.h"

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
static enum trajd_status name_episodes(struct convert_plan *plan)
{
    size_t stem;

    if (convert_plan_is_of_files(plan)) {
        for (uint32_t e = 1; e < plan->episode_count; e++)
            if (plan->episodes[e].source != plan->episodes[0].source ||
                plan->episodes[e].episode != plan->episodes[0].episode)
                return trajd_error_set(plan->error, TRAJD_ERR_ARGUMENT, 0,
                                       "layout %s has one episode per file, but there are several: "
                                       "resample them one at a time",
                                       plan->first->layout->name);
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
            return trajd_error_set(plan->error, TRAJD_ERR_UNSUPPORTED, 0,
                                   "%.100s...: a name of %d bytes is too long",
                                   plan->episodes[0].id, length);
        plan->episodes[e].id =
            trajd_memory_or_exit(trajd_arena_copy(&plan->arena, id, (size_t)length));
    }
    return TRAJD_OK;
}

/* ---- groups ---- */

static bool is_small(const struct convert_dataset *dataset)
{
    return !dataset->is_compressed && dataset->row_bytes <= SMALL_ROW_BYTES &&
           dataset->source_bytes <= SMALL_ROW_BYTES;
}

/* Groups the datasets, and chooses the steps of a segment of each group. */
static void make_groups(struct convert_plan *plan)
{
    plan->groups = convert_alloc(plan, plan->dataset_count * sizeof *plan->groups);
    for (uint32_t d = 0; d < plan->dataset_count; d++) {
        struct convert_dataset *dataset = &plan->datasets[d];
        struct convert_group *group = plan->groups;
        dataset->group = UINT32_MAX;
        if (dataset->is_encoded)
            continue;
        while (group < plan->groups + plan->group_count &&
               !(group->is_small && is_small(dataset) && group->clock == dataset->clock))
            group++;
        dataset->group = (uint32_t)(group - plan->groups);
        if (dataset->group == plan->group_count) {
            plan->group_count++;
            *group =
                (struct convert_group){.clock = dataset->clock,
                                       .is_small = is_small(dataset),
                                       .row_bytes = 1,
                                       .unit = dataset->is_compressed ? dataset->chunk_rows : 1};
        }
        group->row_bytes += dataset->row_bytes;
    }
    for (struct convert_group *group = plan->groups; group < plan->groups + plan->group_count;
         group++) {
        const uint64_t fit = segment_bytes / group->row_bytes, steps = fit > SEGMENT_STEPS_MAX
                                                                           ? SEGMENT_STEPS_MAX
                                                                       : fit < 1 ? 1
                                                                                 : fit;
        group->steps = (steps + group->unit - 1) / group->unit * group->unit;
    }
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
    enum trajd_status status = check_options(options, error);

    *plan = (struct convert_plan){
        .options = options, .error = error, .arena = {.limit_bytes = plan_bytes_max}};
    if (status)
        return status;
    plan->first = options->indexes[0];
    if ((status = convert_choose_streams(plan)) || (status = convert_make_episodes(plan)))
        return status;
    make_groups(plan);
    return name_episodes(plan);
}

bool convert_plan_is_of_files(const struct convert_plan *plan)
{
    const struct trajd_layout *layout = plan->first->layout;

    return !strpbrk(layout->groups, "*?[") && !layout->split.kind;
}

void convert_plan_select(struct convert_plan *plan, uint32_t episode)
{
    plan->episodes += episode;
    plan->episode_count = 1;
    plan->step_count = plan->byte_count = plan->duration_ns = 0;
    convert_add_sizes(plan, &plan->episodes[0]); /* fits, because the sum over all episodes did */
}

/* ---- rows of the steps ---- */

/* Returns how the rows of a dataset are picked. Only those of uint8 can be encoded images, whose
 * lengths stand in another dataset, so they alone decide between previous and nearest. */
static enum trajd_kind kind_of(const struct convert_dataset *dataset)
{
    for (uint32_t l = 0; l < dataset->lane_count; l++)
        if (dataset->from == TRAJD_U8 && dataset->lanes[l].stream->kind == TRAJD_KIND_NEAREST)
            return TRAJD_KIND_NEAREST;
    return TRAJD_KIND_PREVIOUS;
}

uint32_t convert_picks_find(const struct convert_plan *plan, const struct convert_episode *made,
                            struct convert_pick picks[CONVERT_PICKS_MAX], uint32_t *of)
{
    uint32_t count = 0;

    for (int of_bytes = 1; of_bytes >= 0; of_bytes--)
        for (uint32_t a = 0; a < made->array_count; a++) {
            const uint32_t d = made->arrays[a].dataset;
            const struct convert_dataset *dataset = &plan->datasets[d];
            const struct convert_pick pick = {
                trajd_array_row_count(convert_extent_of(plan, made, d)), dataset->clock,
                kind_of(dataset), made->arrays[a].rows};
            uint32_t i = 0;
            if ((dataset->from == TRAJD_U8) != of_bytes)
                continue;
            while (i < count &&
                   (picks[i].row_count != pick.row_count || picks[i].clock != pick.clock ||
                    (of_bytes && picks[i].kind != pick.kind)))
                i++;
            if (i == count && count < CONVERT_PICKS_MAX)
                picks[count++] = pick;
            of[a] = i;
        }
    return count;
}

uint64_t convert_pick_row(const struct convert_plan *plan, const struct convert_episode *made,
                          const struct convert_pick *pick, uint64_t step)
{
    const struct trajd_episode_clock *clock = &convert_source_of(plan, made)->clocks[pick->clock];
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

uint64_t convert_chunk_bytes(const struct convert_dataset *dataset, uint64_t rows)
{
    uint64_t bytes = rows * trajd_dtype_size(dataset->to);

    for (uint32_t d = 0; d < dataset->rank; d++)
        bytes *= dataset->chunk_shape[d];
    return bytes;
}

uint64_t convert_segment_bytes(const struct convert_plan *plan)
{
    uint64_t longest = 1, most = 0;

    for (uint32_t e = 0; e < plan->episode_count; e++)
        if (plan->episodes[e].step_count > longest)
            longest = plan->episodes[e].step_count;
    for (uint32_t g = 0; g < plan->group_count; g++) {
        const uint64_t steps = plan->groups[g].steps < longest ? plan->groups[g].steps : longest;
        uint64_t bytes = 0;
        for (uint32_t d = 0; d < plan->dataset_count; d++) {
            const struct convert_dataset *dataset = &plan->datasets[d];
            if (dataset->group != g)
                continue;
            bytes += dataset->is_compressed ? convert_chunk_bytes(dataset, dataset->chunk_rows)
                                            : steps * dataset->row_bytes;
            bytes = (bytes + 63) / 64 * 64;
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool has_any(const struct convert_plan *plan, const struct convert_episode *made,
                    uint32_t group)
{
    for (uint32_t a = 0; a < made->array_count; a++)
        if (plan->datasets[made->arrays[a].dataset].group == group)
            return true;
    return false;
}

struct convert_segment *convert_segments_list(const struct convert_plan *plan, uint64_t *count)
{
    struct convert_segment *list = NULL;
    uint64_t capacity = 0;

    *count = 0;
    for (uint32_t e = 0; e < plan->episode_count; e++)
        for (uint32_t g = 0; g < plan->group_count; g++) {
            const uint64_t end = plan->episodes[e].step_count, steps = plan->groups[g].steps;
            for (uint64_t step = 0; step < end && has_any(plan, &plan->episodes[e], g);
                 step += steps) {
                if (*count == capacity) {
                    capacity = 2 * capacity + 64;
                    list = trajd_memory_or_exit(realloc(list, capacity * sizeof *list));
                }
                list[(*count)++] =
                    (struct convert_segment){e, g, step, end - step < steps ? end : step + steps};
            }
        }
    return list;
}
