/* Finds the files of this installation from the running program: beside it, below its prefix, or in
 * the build tree. Each function writes a path and returns false where there is none. */
#ifndef TRAJD_BASE_PATHS_H
#define TRAJD_BASE_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/* The helper program trajd-indexer: beside the program, in PREFIX/libexec/trajd/, or in
 * daemon/hdf5/ of the program's build. */
bool trajd_paths_helper(char *path, size_t size);

/* The helper program trajd-decoder, in the same places; in the build it is in daemon/decode/. */
bool trajd_paths_decoder(char *path, size_t size);

/* trajd-decoder's module for H.264 and HEVC: beside the program, or in daemon/decode/ of the
 * program's build. */
bool trajd_paths_avcodec(char *path, size_t size);

/* The folder of layouts: PREFIX/share/trajd/layouts, or configs/layouts of the source tree. */
bool trajd_paths_layouts(char *path, size_t size);

/* The daemon: beside the program, or in daemon/ of the program's build. */
bool trajd_paths_daemon(char *path, size_t size);

#endif
