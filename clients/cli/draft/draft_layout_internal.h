/* Shared by the files that write the draft's YAML. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_LAYOUT_INTERNAL_H
#define TRAJD_CLI_DRAFT_DRAFT_LAYOUT_INTERNAL_H

#include "clients/cli/draft/draft_layout.h"

enum { DRAFT_NAME_MAX = 512 };

/* Writes a YAML scalar. */
void draft_write_text(FILE *out, const char *text);

/* Returns the part of the path after the last '/'. */
const char *draft_last_name(const char *path);

/* Writes the name of a clock: letters of its path. */
void draft_name_clock(const struct draft_facts *facts, int clock, char name[DRAFT_NAME_MAX]);

/* Writes the lines of `streams:`. */
void draft_write_streams(FILE *out, const struct draft_facts *facts);

/* Finds an attribute, of the episode's group or one above it, whose name has one of the words and
 * whose value fits. */
const struct trajd_tree_attribute *draft_find_attribute(const struct draft_facts *facts,
                                                        const char *const *words, size_t count,
                                                        bool (*fits)(const char *),
                                                        const struct trajd_tree_object **group);

/* Writes OBJECT@NAME, relative to the episode where the object is its group. */
void draft_write_attribute(FILE *out, const struct draft_facts *facts,
                           const struct trajd_tree_object *group, const char *name);

/* Writes the lines of `meta:`, if there are any. */
void draft_write_meta(FILE *out, const struct draft_facts *facts);

/* Returns whether such a line names the dataset. */
bool draft_is_meta(const struct draft_facts *facts, uint32_t which);

#endif
