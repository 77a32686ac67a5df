/* Which clock each stream has, and at which rate. Pure. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_PLAN_H
#define TRAJD_CLI_DRAFT_DRAFT_PLAN_H

#include "clients/cli/draft/draft_clocks.h"

enum { DRAFT_REGULAR_MAX = 8, DRAFT_NO_CLOCK = -1 };

/* A clock without stamps: streams that have as many rows as one of them. */
struct draft_regular {
    uint32_t stream; /* gives the number of rows */
    double ratio;    /* its rows to those of the first regular clock */
};

struct draft_plan {
    /* with stamps, the streams have these clocks; without, the regular ones */
    struct draft_clocks stamped;
    uint32_t regular_count;
    struct draft_regular regular[DRAFT_REGULAR_MAX];
    int clock_of[DRAFT_STREAMS_MAX];       /* of each stream, or DRAFT_NO_CLOCK */
    bool is_row_longer[DRAFT_STREAMS_MAX]; /* it has one row more than its clock */
};

/* Gives each stream that is not left out a clock, and leaves out the streams for which there is
 * none. */
void draft_plan_clocks(const struct draft_episodes *episodes, struct draft_streams *streams,
                       const struct draft_clocks *stamped, struct draft_plan *plan);

/* Returns whether a stream that is not left out has the clock. */
bool draft_is_clock_used(const struct draft_streams *streams, const struct draft_plan *plan,
                         int clock);

#endif
