/* Lists everything that an HDF5 file has. */
#ifndef TRAJD_HDF5_SCAN_TREE_H
#define TRAJD_HDF5_SCAN_TREE_H

#include "daemon/index/record.h"

/* Appends the encoded tree (daemon/index/tree/tree.h) of the file behind the descriptor. Failures
 * stand in the tree. Ends the process where memory runs out. */
void trajd_scan_tree(int fd, struct trajd_bytes *bytes);

#endif
