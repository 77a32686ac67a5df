/* HDF5 files that a script writes for a group of tests, such as those of make_index_files.py: one
 * for each thing that an index must keep, quarantine or refuse. Short ways to index them. All
 * functions but the first fail the running test where they cannot do their work. */
#ifndef TRAJD_TESTS_INDEX_FILES_H
#define TRAJD_TESTS_INDEX_FILES_H

#include <stdbool.h>

#include "daemon/index/index.h"

#define INDEX_FILES_SKIPPED 77 /* the exit status of a test that cannot run */

/* The folder of the files. */
extern char index_folder[];

/* Chooses the script of tests/tools that writes the files, with its options. Returns whether Python
 * has h5py, which it needs. */
bool index_files_choose(const char *script);
/* For cmocka_run_group_tests: make the folder with the files, and remove it. */
int index_files_make(void **state);
int index_files_remove(void **state);

/* Runs a command, which must succeed. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Copies files of index_folder into a new folder below it. They get a time in the past, so that the
 * cache may keep their records. */
void make_folder(const char *name, const char *files);

/* Options without a cache, with two children and a long timeout. `path` is borrowed. */
struct trajd_index_options options_for(const char *path, const char *layout);
/* Indexes index_folder/name. */
enum trajd_status try_open(const char *name, const char *layout, struct trajd_index **index,
                           struct trajd_error *error);
/* The same, where it must succeed. The caller destroys the index. */
struct trajd_index *open_named(const char *name, const char *layout);
struct trajd_index *must_open(const struct trajd_index_options *options);
/* Returns the stream with the name, which must exist. */
const struct trajd_index_stream *stream_of(const struct trajd_index *index, const char *name);

#endif
