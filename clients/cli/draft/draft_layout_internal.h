/* Shared by the files that write the draft's YAML. */
#ifndef TRAJD_CLI_DRAFT_DRAFT_LAYOUT_INTERNAL_H
#define TRAJD_CLI_DRAFT_DRAFT_LAYOUT_INTERNAL_H

#include "clients/cli/draft/draft_layout.h"

enum { DRAFT_NAME_MAX = 512 };

/* Writes a YAML scalar. */
void draft_write_text(FILE *out, const char *text);

/* Returns whether the text has one of the words, in any case. */
bool draft_contains(const char *text, const char *const *words, size_t count);

/* Returns the part of the path after the last '/'. */
const char *draft_last_name(const char *path);

/* Writes the name of a clock: letters of its path. */
void draft_name_clock(const struct draft_facts *facts, int clock, char name[DRAFT_NAME_MAX]);

/* Writes the lines of `streams:`. */
void draft_write_streams(FILE *out, const struct draft_facts *facts);

#endif
