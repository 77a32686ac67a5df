/* One episode while it is validated. Private to this folder. */
#ifndef TRAJD_INDEX_INDEX_CANDIDATE_H
#define TRAJD_INDEX_INDEX_CANDIDATE_H

#include "daemon/index/index_internal.h"

/* Its memory lies in the arena of the index. */
struct trajd_candidate {
    struct trajd_validation *validation;
    const struct trajd_record_episode *record;
    const char *label; /* "file: demo_1: " */
    struct trajd_array *extents;
    struct trajd_episode_clock *clocks;
    const char *reason; /* to quarantine the episode; NULL: none so far */
    bool is_misfit;     /* the reason: it has another structure than the layout */
    bool no_memory;
};

/* Give the reason to quarantine the episode: its content is bad, or it has another structure than
 * the layout. The first reason counts. */
void trajd_candidate_fault(struct trajd_candidate *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void trajd_candidate_misfit(struct trajd_candidate *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void trajd_candidate_no_memory(struct trajd_candidate *c);
/* Returns zeroed memory of the arena, or NULL with the reason. */
void *trajd_candidate_alloc(struct trajd_candidate *c, uint64_t count, size_t size);

/* index_clocks.c. Makes the clocks with absolute times, and cuts the arrays that have a row
 * more. */
void trajd_candidate_make_clocks(struct trajd_candidate *c);
/* Moves all clocks to one origin, the earliest first row. */
void trajd_candidate_set_origin(struct trajd_candidate *c, struct trajd_episode *episode);

#endif
