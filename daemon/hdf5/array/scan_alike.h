/* Datasets that differ from one which libhdf5 has described only in where and how many their rows
 * are. Most datasets of a set of recordings are such, and libhdf5 takes 20 us to open and close
 * one. */
#ifndef TRAJD_HDF5_SCAN_ALIKE_H
#define TRAJD_HDF5_SCAN_ALIKE_H

#include "daemon/hdf5/scan.h"

/* What the rows of every dataset are read for: the parent compares as many whole rows as the first
 * size holds, at least one, but none that is larger than the second one. */
enum { TRAJD_SCAN_CHECK_BYTES = 4096, TRAJD_SCAN_CHECK_ROW_MAX = 64 << 20 };

/* Keeps the description of the dataset whose object header lies at `header`. Does nothing for one
 * whose rows are not in one piece, or whose header is of another form than most. */
void trajd_scan_alike_keep(struct trajd_scan *scan, const char *path, haddr_t header,
                           const struct trajd_layout_image *image,
                           const struct trajd_record_array *dataset);

/* Describes a dataset whose object header equals the one that was kept for this path. Returns false
 * where it does not: then libhdf5 has to look. */
bool trajd_scan_alike(struct trajd_scan *scan, const char *path, haddr_t header,
                      const struct trajd_layout_image *image, struct trajd_record_array *dataset);

#endif
