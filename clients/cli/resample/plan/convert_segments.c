/* Divides the work by bytes, so that the memory needed does not depend on the length of an
 * episode. */

#include "clients/cli/resample/plan/convert_segments.h"

enum { SMALL_ROW_BYTES = 4096, SEGMENT_STEPS_MAX = 65536 };

static const uint64_t segment_bytes = UINT64_C(4) << 20; /* of the output's rows */

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
