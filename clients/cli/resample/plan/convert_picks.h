/* Which source rows the steps of an episode take. Datasets that no stream names, but that have an
 * entry for each row, are copied by these rows: lengths of encoded pictures, for example. */
#ifndef TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PICKS_H
#define TRAJD_CLI_RESAMPLE_PLAN_CONVERT_PICKS_H

#include "clients/cli/resample/plan/convert_plan.h"

#define CONVERT_PICKS_MAX 256

/* One way to pick rows. */
struct convert_pick {
    uint64_t row_count; /* of the datasets in the file */
    uint32_t clock;
    enum trajd_kind kind; /* previous or nearest */
    int64_t rows;         /* as the clock counts them */
};

/* Finds the ways in which the episode's streams pick rows. Returns their number. */
uint32_t convert_picks_find(const struct convert_plan *plan, const struct convert_episode *made,
                            struct convert_pick picks[CONVERT_PICKS_MAX]);
/* Returns which of the `count` picks has the rows of an episode's array of uint8; `count`: none. */
uint32_t convert_picks_of(const struct convert_plan *plan, const struct convert_episode *made,
                          uint32_t array, const struct convert_pick *picks, uint32_t count);
/* Returns the row in the file that a step takes. */
uint64_t convert_pick_row(const struct convert_plan *plan, const struct convert_episode *made,
                          const struct convert_pick *pick, uint64_t step);

#endif
