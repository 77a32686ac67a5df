/* The source rows that the steps of an episode take, for datasets that no stream names. */

#include "clients/cli/resample/plan/convert_picks.h"

/* Returns how the rows of a dataset are picked. Only those of uint8 can be encoded pictures, whose
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
    int64_t row = convert_row_at(clock, pick->rows, x);

    if (pick->kind == TRAJD_KIND_NEAREST && row + 1 < pick->rows) {
        const int64_t before = convert_row_ns(clock, row), after = convert_row_ns(clock, row + 1);
        row += 2 * (x - before) >= after - before;
    }
    return clock->kept_rows ? clock->kept_rows[row] : (uint64_t)row;
}
