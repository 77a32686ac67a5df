/* Names of files and episodes: natural order, and the files below a folder that match a glob. */
#ifndef TRAJD_LAYOUT_GLOB_H
#define TRAJD_LAYOUT_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* demo_9 before demo_10: runs of digits compare as numbers, '/' before every other byte. A total
 * order: 0 only if equal. */
int trajd_natural_compare(const char *a, const char *b);

/* Files found, in natural order of relative_paths[]. */
struct trajd_file_list {
    char **relative_paths; /* [count] */
    uint32_t count;
    uint32_t capacity;
};

/* Files below `folder` that match `pattern`: '/'-separated components for fnmatch, "**" for any
 * number of folders. Hidden names need an explicit dot; "**" follows no symbolic links to folders.
 * Depth is at most 32, files 2^22. TRAJD_ERR_IO names the folder that cannot be read. */
enum trajd_status trajd_file_list_find(const char *folder, const char *pattern,
                                       struct trajd_file_list *list, struct trajd_error *error);
void trajd_file_list_free(struct trajd_file_list *list);

/* Whether the text has any of * ? [ in it. */
bool trajd_is_glob(const char *text);

#endif
