/* Puts files in place so that a crash at any moment leaves either the complete old file or the
 * complete new one. Digests are SHA-256 in lower-case hexadecimal. */
#ifndef TRAJD_CLI_PREPROCESS_PREP_PLACE_H
#define TRAJD_CLI_PREPROCESS_PREP_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"

enum { PREP_PATH_SIZE = 4096, PREP_DIGEST_SIZE = 65 /* includes the NUL */ };

/* Writes FOLDER/NAME and the suffix. TRAJD_ERR_ARGUMENT: the path is too long. `error` may be
 * NULL. */
enum trajd_status prep_path(char path[PREP_PATH_SIZE], const char *folder, const char *name,
                            const char *suffix, struct trajd_error *error);
/* Makes the missing folders above `path`. TRAJD_ERR_IO. */
enum trajd_status prep_make_parents(const char *path, struct trajd_error *error);
/* Writes a text through the temporary file PATH.new, over that of a killed run. TRAJD_ERR_IO. */
enum trajd_status prep_write(const char *path, const char *text, size_t length,
                             struct trajd_error *error);
/* Syncs the file, makes the parents, renames it, and syncs the parent. is_sure NULL: it may replace
 * a file; else *is_sure is as in daemon/base/files.h. TRAJD_ERR_IO. */
enum trajd_status prep_publish(const char *from, const char *to, bool *is_sure,
                               struct trajd_error *error);
/* As prep_publish, also between filesystems: copies beside `to`, renames, and removes `from`.
 * TRAJD_ERR_BUSY: `from` changed during the copy, and stays. TRAJD_ERR_UNSUPPORTED: `from` cannot
 * be removed (its folder is read-only or belongs to another user), and stays; `to` may exist. */
enum trajd_status prep_move(const char *from, const char *to, struct trajd_error *error);

void prep_digest_bytes(const void *bytes, size_t size, char digest[PREP_DIGEST_SIZE]);
/* Computes the digest of the whole file with pread. `name` is the file's name for errors.
 * TRAJD_ERR_IO. */
enum trajd_status prep_digest_file(int fd, const char *name, char digest[PREP_DIGEST_SIZE],
                                   struct trajd_error *error);

#endif
