/* The datasets that the episodes of a file have in common: which of them can be streams, and why the
 * others cannot. Pure: it looks only at the tree of the file. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_STREAMS_H
#define TRAJD_CLI_DRAFT_DRAFT_STREAMS_H

#include "clients/cli/draft/draft_episodes.h"

enum { DRAFT_STREAMS_MAX = 512 };

/* A dataset, over all episodes. */
struct draft_stream {
    const char *path; /* relative to the episode */
    const struct trajd_tree_object *example;
    uint32_t episode_count; /* that have it */
    uint64_t least_rows, most_rows;
    uint64_t *rows;  /* [episodes->count]; UINT64_MAX: the episode lacks it */
    bool differs;    /* its type or row shape differs between episodes */
    bool is_encoded; /* its rows begin as JPEG or PNG do */
    bool is_matrix;  /* its rows are poses or rotations as matrices */
    /* NULL, or why it is no stream, in words that complete "left out: " */
    const char *left_out;
};

struct draft_streams {
    struct trajd_arena arena;
    uint32_t count;
    struct draft_stream list[DRAFT_STREAMS_MAX];
    bool is_cut; /* the file has more different datasets */
};

/* Collects the datasets of all episodes, in the order of the file. Zeroed, *streams is empty; the
 * caller frees its arena. False where memory ran out. */
bool draft_collect_streams(const struct trajd_tree *tree, const struct draft_episodes *episodes,
                           struct draft_streams *streams);

/* Returns whether the two have the same number of rows in each episode that has both, after `more`
 * rows were added to those of `a`. False where no episode has both. */
bool draft_same_rows(const struct draft_episodes *episodes, const struct draft_stream *a,
                     uint64_t more, const struct draft_stream *b);

/* Returns whether the stream's rows look like pictures, by its type and shape. */
bool draft_is_picture(const struct draft_stream *stream);

#endif
