/* A file gets its name without taking it from another. */
#ifndef TRAJD_BASE_RENAME_H
#define TRAJD_BASE_RENAME_H

#include <stdbool.h>

/* Renames where `to` is not there: 0, or -1 with errno, EEXIST where it is. Filesystems that cannot
 * rename so (NFS, some of FUSE) link and unlink. Where there are no links either it is looked at
 * before: *is_sure false, a file that appeared just then has been replaced. */
int trajd_rename_new(const char *from, const char *to, bool *is_sure);

#endif
