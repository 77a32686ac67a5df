/* Episodes that lie one after another in the arrays of one group (the layout's key split). */
#ifndef TRAJD_HDF5_SCAN_SPLIT_H
#define TRAJD_HDF5_SCAN_SPLIT_H

#include "daemon/hdf5/scan.h"

/* Where the episodes of a group begin. */
struct trajd_scan_parts {
    uint64_t *begins; /* [count + 1]: the last one is the end of all; owned, in malloc's memory */
    uint32_t count;
    bool last_is_open; /* no flag ends the last episode */
};

/* Adds the episodes of the group to the record. `whole` has its arrays, texts and rates. Returns
 * NULL, or the reason why it cannot be cut into episodes, with whole->is_misfit. */
const char *trajd_scan_split(struct trajd_scan *scan, hid_t group,
                             const struct trajd_scan_names *links,
                             struct trajd_record_episode *whole);

#endif
