/* How the work is divided into segments. Pure. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_SEGMENTS_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_SEGMENTS_H

#include "clients/cli/resample/plan/convert_plan.h"

/* Datasets that are worked on together: small ones on one clock, which is searched once for all;
 * else one alone. */
struct convert_group {
    uint32_t dataset_count;
    uint32_t *datasets; /* of the plan, ascending */
};

struct convert_segment {
    uint32_t episode, group;
    uint64_t step_begin, step_end;
};

/* Hands out the segments of the plan's episodes in order. Not thread-safe. */
struct convert_cursor {
    const struct convert_plan *plan;
    uint32_t group_count;
    const struct convert_group *groups;
    const bool *done; /* [episode_count]: not handed out; or NULL */
    uint32_t episode, group;
    uint64_t step;
};

enum trajd_status convert_groups_make(struct convert_plan *plan, struct convert_group **groups,
                                      uint32_t *count, struct trajd_error *error);
bool convert_cursor_next(struct convert_cursor *cursor, struct convert_segment *segment);
/* How many segments an episode has. */
uint64_t convert_segment_count(const struct convert_plan *plan, const struct convert_group *groups,
                               uint32_t group_count, uint32_t episode);

#endif
