/* Divides a plan into segments, which threads process. Pure. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_SEGMENTS_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_SEGMENTS_H

#include "clients/cli/resample/plan/convert_plan.h"

/* Datasets that a segment processes together: small ones on one clock, which is searched once for
 * all of them. A large dataset is a group of its own. */
struct convert_group {
    uint32_t dataset_count;
    uint32_t *datasets; /* indexes of the plan's datasets, ascending */
};

struct convert_segment {
    uint32_t episode, group;
    uint64_t step_begin, step_end;
};

/* Returns the segments of the plan's episodes in order. Not thread-safe. */
struct convert_cursor {
    const struct convert_plan *plan;
    uint32_t group_count;
    const struct convert_group *groups;
    uint32_t episode, group;
    uint64_t step;
};

void convert_groups_make(struct convert_plan *plan, struct convert_group **groups, uint32_t *count);
bool convert_cursor_next(struct convert_cursor *cursor, struct convert_segment *segment);
/* Returns the most room that the rows of a segment of the group need, each dataset aligned to 64
 * bytes; of a compressed dataset, the room of one chunk before it is compressed. */
uint64_t convert_segment_bytes(const struct convert_plan *plan, const struct convert_group *group);
/* Returns the number of segments of an episode. */
uint64_t convert_segment_count(const struct convert_plan *plan, const struct convert_group *groups,
                               uint32_t group_count, uint32_t episode);

#endif
