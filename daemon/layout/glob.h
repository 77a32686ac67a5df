/* Natural order of names, and the files below a folder that match a glob. */
#ifndef TRAJD_LAYOUT_GLOB_H
#define TRAJD_LAYOUT_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* Compares two names in natural order: demo_9 comes before demo_10. Runs of digits compare as
 * numbers, and '/' comes before every other byte. This is a total order: 0 only if the names are
 * equal. */
int trajd_natural_compare(const char *a, const char *b);

/* A list of files, in natural order. */
struct trajd_file_list {
    char **relative_paths; /* [count], relative to the folder */
    uint32_t count;
    uint32_t capacity;
};

/* Finds the files below `folder` that match `pattern`. The pattern's components, which '/'
 * separates, are matched by fnmatch; the component "**" stands for any number of folders. Hidden
 * names match only a pattern with the dot in it. "**" follows no symbolic links to folders. The
 * depth is at most 32, the number of files at most 2^22. TRAJD_ERR_IO names the folder that cannot
 * be read. The caller frees the list with trajd_file_list_free; after an error it is empty. */
enum trajd_status trajd_file_list_find(const char *folder, const char *pattern,
                                       struct trajd_file_list *list, struct trajd_error *error);
/* The same, but a pattern that ends in .hdf5 or .h5 finds files of both endings: they are two names
 * of one format, and a copy of a dataset often has the other one. */
enum trajd_status trajd_file_list_find_recordings(const char *folder, const char *pattern,
                                                  struct trajd_file_list *list,
                                                  struct trajd_error *error);
/* Finds what such a search of the folder misses and a reader may expect in it: HDF5 files (*.hdf5,
 * *.h5) that are not in `found`, and linked folders that "**" does not follow. Errors as above. */
enum trajd_status trajd_file_list_find_missed(const char *folder,
                                              const struct trajd_file_list *found,
                                              struct trajd_file_list *missed,
                                              struct trajd_error *error);
void trajd_file_list_free(struct trajd_file_list *list);

/* Returns whether the text contains one of the wildcards * ? [. */
bool trajd_is_glob(const char *text);

#endif
