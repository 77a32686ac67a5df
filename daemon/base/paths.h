/* Where the parts of an installation are, seen from the running program: beside it, below its
 * prefix, or in the build tree. */
#ifndef TRAJD_BASE_PATHS_H
#define TRAJD_BASE_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/* The trajd-indexer to run: beside the program, PREFIX/libexec/trajd/, or daemon/dataset/ of the
 * build that the program lies in. */
bool trajd_paths_helper(char *path, size_t size);

/* The folder of layouts: PREFIX/share/trajd/layouts, or configs/layouts of the source tree that the
 * program lies in. */
bool trajd_paths_layouts(char *path, size_t size);

/* The daemon itself: beside the program, or daemon/ of the build that it lies in. */
bool trajd_paths_daemon(char *path, size_t size);

#endif
