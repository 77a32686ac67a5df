/* Finds the groups of a file that are its episodes: the ones that repeat. Pure: it looks only at the
 * tree of the file. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_EPISODES_H
#define TRAJD_CLI_DRAFT_DRAFT_EPISODES_H

#include "daemon/index/tree/tree.h"

enum { DRAFT_PATTERN_SIZE = 1024 };

struct draft_episodes {
    char pattern[DRAFT_PATTERN_SIZE]; /* as in a layout: "/data/demo_*", or "/": the file is one */
    uint32_t count;
    uint32_t *groups; /* [count]: objects of the tree, in natural order of their paths; owned */
};

/* Returns the last component of the object's path; "" of the root. */
const char *draft_name_of(const struct trajd_tree_object *object);

/* Returns the next object in the same group, or what comes after that group. */
uint32_t draft_next_of(const struct trajd_tree *tree, uint32_t object);

/* Returns the object after the last one inside objects[group]. */
uint32_t draft_end_of(const struct trajd_tree *tree, uint32_t group);

/* Returns whether the object is a dataset that may have a row for each time step. */
bool draft_has_rows(const struct trajd_tree_object *object);

/* Returns a hash of the names, types and row shapes of all that is in the group. Groups that are
 * recordings of the same kind have the same. Numbers of rows, and widths of padded bytes, do not
 * count. */
uint64_t draft_signature(const struct trajd_tree *tree, uint32_t group);

/* Writes a pattern that matches one to ten of many episodes, in the middle of them. Returns false where
 * there are not many, or their names do not end in a digit. */
bool draft_few_episodes(const struct trajd_tree *tree, const struct draft_episodes *episodes,
                        char pattern[DRAFT_PATTERN_SIZE]);

/* Fills *episodes; the caller frees episodes->groups. False where memory ran out. */
bool draft_find_episodes(const struct trajd_tree *tree, struct draft_episodes *episodes);

#endif
