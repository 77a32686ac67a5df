/* Datasets that tell where episodes end in arrays that hold several of them. Pure. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_SPLIT_H
#define TRAJD_CLI_DRAFT_DRAFT_SPLIT_H

#include "clients/cli/draft/draft_streams.h"

enum { DRAFT_SPLIT_MAX = 8 };

/* As `split:` of a layout. */
struct draft_split {
    const char *kind; /* "flags", "lengths", "ends" or "starts"; NULL: no dataset has such a name */
    uint32_t count;
    uint32_t streams[DRAFT_SPLIT_MAX];
};

/* Finds the datasets by their names: lengths, ends or starts, else flags. */
struct draft_split draft_find_split(const struct draft_streams *streams);

/* Leaves out the streams that have not one row for each step of all episodes. */
void draft_apply_split(const struct draft_split *split, struct draft_streams *streams);

#endif
