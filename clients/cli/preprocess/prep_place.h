/* Putting files where they belong so that a crash at any moment leaves the old one or the new one,
 * whole. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_PLACE_H
#define TRAJD_CLI_PREPROCESS_PREP_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"

enum { PREP_PATH_SIZE = 4096 };

/* "FOLDER/NAME SUFFIX". TRAJD_ERR_ARGUMENT: too long. */
enum trajd_status prep_path(char path[PREP_PATH_SIZE], const char *folder, const char *name,
                            const char *suffix, struct trajd_error *error);
/* The folders above `path`, below one that is there. TRAJD_ERR_IO. */
enum trajd_status prep_make_parents(const char *path, struct trajd_error *error);
/* What was renamed into or removed from the folder that `path` lies in is on the disk. */
enum trajd_status prep_sync_parent(const char *path, struct trajd_error *error);
/* The file's text, by another file beside it. TRAJD_ERR_IO. */
enum trajd_status prep_write(const char *path, const char *text, size_t length,
                             struct trajd_error *error);
/* Renames, parents made before and synced after; the file's bytes are on the disk before.
 * TRAJD_ERR_IO. */
enum trajd_status prep_publish(const char *from, const char *to, struct trajd_error *error);
/* The same where nothing may be replaced: base/rename.h. */
enum trajd_status prep_publish_new(const char *from, const char *to, bool *is_sure,
                                   struct trajd_error *error);
/* The same between filesystems: copied beside `to`, renamed there, and then `from` is removed.
 * TRAJD_ERR_BUSY: it changed while it was copied, and stays. TRAJD_ERR_UNSUPPORTED: `from` cannot
 * be taken away (its folder is read-only, or another's); it is still there, and `to` may be. */
enum trajd_status prep_move(const char *from, const char *to, struct trajd_error *error);

#endif
