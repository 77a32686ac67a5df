/* Lists everything that an HDF5 file has (daemon/index/tree/tree.h has the form of the lines). */
#ifndef TRAJD_HDF5_SCAN_TREE_H
#define TRAJD_HDF5_SCAN_TREE_H

#include "daemon/index/record.h"

/* Appends the lines of the file behind the descriptor. Failures stand in the lines. */
void trajd_scan_tree(int fd, struct trajd_bytes *lines);

#endif
