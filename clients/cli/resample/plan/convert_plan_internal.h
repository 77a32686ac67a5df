/* Functions shared by the files that make a plan. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PLAN_INTERNAL_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PLAN_INTERNAL_H

#include "clients/cli/resample/plan/convert_plan.h"

/* A stream of the first index, and how it is converted. */
struct convert_choice {
    struct trajd_convert_stream made;
    double angle_period;
    int64_t max_gap_ns;
    /* matches the options; or shares a dataset with a stream that does */
    bool is_chosen, comes_along;
    bool is_typed; /* a rule sets `to` */
    bool has_kind; /* a rule sets `kind` */
};

static inline bool convert_is_floating(enum trajd_dtype dtype)
{
    return dtype == TRAJD_F16 || dtype == TRAJD_F32 || dtype == TRAJD_F64;
}

static inline bool convert_is_slerp(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_SLERP_XYZW || kind == TRAJD_KIND_SLERP_WXYZ;
}

/* ---- convert_datasets.c ---- */

/* Returns the first array of the dataset that has rows, or NULL. */
const struct trajd_array *convert_first_array(const struct trajd_index *index, uint32_t dataset);
/* Makes the plan's datasets from the chosen streams. */
enum trajd_status convert_add_datasets(struct convert_plan *plan, const struct trajd_index *index,
                                       struct convert_choice *choices, struct trajd_error *error);
/* Finds each dataset of the plan in each index. */
void convert_map_datasets(struct convert_plan *plan);
/* Chooses the chunk shapes of the compressed datasets. */
void convert_choose_chunks(struct convert_plan *plan);

/* ---- convert_streams.c ---- */

/* Makes the plan's streams, datasets and lanes from the first index, and compares the other indexes
 * with it. */
enum trajd_status convert_choose_streams(struct convert_plan *plan, struct trajd_error *error);

/* ---- convert_episodes.c ---- */

/* Makes the grids of the chosen episodes. TRAJD_ERR_DATA: no episode is left. */
enum trajd_status convert_make_episodes(struct convert_plan *plan, struct trajd_error *error);
/* Adds the episode to the plan's sizes. Returns false if they overflow. */
bool convert_add_sizes(struct convert_plan *plan, const struct convert_episode *made);

#endif
