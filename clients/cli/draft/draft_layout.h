/* Writes a draft layout as YAML, with a comment at each guess. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_LAYOUT_H
#define TRAJD_CLI_DRAFT_DRAFT_LAYOUT_H

#include <stdio.h>

#include "clients/cli/draft/draft_plan.h"
#include "clients/cli/draft/draft_split.h"

/* What a draft is made of. All is borrowed. */
struct draft_facts {
    const char *name;      /* of the layout */
    const char *extension; /* of the files: ".hdf5" */
    const struct trajd_tree *tree;
    const struct draft_episodes *episodes;
    const struct draft_streams *streams;
    const char *few;          /* pattern of the episodes that the probe reads */
    struct draft_split split; /* empty: each array holds one episode */
    const struct draft_plan *plan;
    const struct trajd_index *probe; /* has the streams as "s0", "s1", ... */
};

/* Writes a layout in which each stream has a clock of its own, to look at rows: "s0", "s1", ... It reads
 * the episodes of facts->few, or all where this is NULL. */
void draft_write_probe(FILE *out, const struct draft_facts *facts);

/* Writes the draft. */
void draft_write_layout(FILE *out, const struct draft_facts *facts);

#endif
