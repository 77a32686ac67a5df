/* Whole files: reading one into memory, replacing one so that a crash leaves the old or the new
 * one, and naming one without taking the name from another. */
#ifndef TRAJD_BASE_FILES_H
#define TRAJD_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "proto/error.h"

/* Reads the file at `path` into memory. *data is followed by a zero byte; the caller frees it.
 * TRAJD_ERR_NOT_FOUND where there is no such file; TRAJD_ERR_ARGUMENT where it is longer than
 * `limit` bytes, or no regular file; TRAJD_ERR_IO; TRAJD_ERR_MEMORY. *data is NULL after an error.
 */
enum trajd_status trajd_file_read(const char *path, size_t limit, char **data, size_t *length,
                                  struct trajd_error *error);

/* The same for a file that is open: for callers with flags of their own. `path` is for messages. */
enum trajd_status trajd_file_read_fd(int fd, const char *path, size_t limit, char **data,
                                     size_t *length, struct trajd_error *error);

/* Writes `length` bytes at the descriptor's position, in as many calls as it takes. 0, or -1 with
 * errno. */
int trajd_file_write_all(int fd, const void *data, size_t length);

/* A file that is written beside `path` and then takes its name. */
struct trajd_file_replacement {
    int fd; /* to be written to */
    char temporary[4096 + 16];
};

/* Creates the file PATH.XXXXXX, readable and writable for its owner alone. 0, or -1 with errno. */
int trajd_file_replace_begin(struct trajd_file_replacement *replacement, const char *path);

/* As trajd_file_replace_begin, but creates the file PATH and the suffix, with the mode of open().
 * It removes a file of that name, which a killed run has left, so the caller makes sure that one
 * process at a time replaces `path`. */
int trajd_file_replace_begin_as(struct trajd_file_replacement *replacement, const char *path,
                                const char *suffix, mode_t mode);

/* Syncs the new file to the disk, closes it and renames it to `path`. 0, or -1 with errno; then the
 * new file is removed and what was at `path` is untouched. `good` false: only closes and removes.
 */
int trajd_file_replace_end(struct trajd_file_replacement *replacement, const char *path, bool good);

/* Returns the content of a file that trajd_file_write_sealed wrote under this magic number, which the
 * caller frees. NULL where there is none of at most `limit` bytes, where it is damaged or has another
 * magic number, and where memory is missing. Follows no symbolic link. For caches, which only save
 * time. */
void *trajd_file_read_sealed(const char *path, uint64_t magic, size_t limit, size_t *length);
/* Replaces the file at `path`: the magic number, the length and a digest of the content, u64 each,
 * and the content. It is not synced to the disk. 0, or -1 with errno. */
int trajd_file_write_sealed(const char *path, uint64_t magic, const void *content, size_t length);

/* Returns whether this user alone can have put the file in its place: it is a regular file of this
 * user with one name. */
bool trajd_file_is_own(const struct stat *file);

/* Syncs the folder that holds `path`, so that a rename in it survives a power cut. 0, or -1 with
 * errno. */
int trajd_file_sync_folder(const char *path);

/* Renames `from` to `to` where nothing is at `to`. 0, or -1 with errno, which is EEXIST where
 * something is. On file systems that cannot rename this way (NFS, some of FUSE) a link is made and
 * the old name removed. Where links fail too, `to` is looked up before the rename: then *is_sure
 * is false, and a file that appeared in between has been replaced. */
int trajd_file_rename_new(const char *from, const char *to, bool *is_sure);

#endif
