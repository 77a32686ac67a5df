#include "clients/cli/resample/plan/convert_plan_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t plan_bytes_max = (size_t)2 << 30;

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
    return !strpbrk(plan->options->indexes[0]->layout->groups, "*?[");
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
