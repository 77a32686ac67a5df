/* Walks over the links of a group. All walks use this function, because libhdf5 does not report
 * every damage: in a group with a changed byte it lists names that it then does not find. */
#ifndef TRAJD_HDF5_GROUP_LINKS_H
#define TRAJD_HDF5_GROUP_LINKS_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#define TRAJD_LINKS_PROBLEM_SIZE 256

/* Calls `visit` for each link of the group, sorted by name, until it returns a value other than 0.
 * Returns false where the group is damaged: its links cannot be listed up to the last one, are not
 * in order, or cannot be found by their names. `problem` then describes the damage, and libhdf5's
 * error stack holds the library's own error, if there is one. What was visited before is
 * incomplete, so the caller must not use it. */
bool trajd_links_visit(hid_t group, H5L_iterate_t visit, void *context,
                       char problem[TRAJD_LINKS_PROBLEM_SIZE]);

/* The objects that were met, by their addresses. Zeroed, it is empty. */
struct trajd_links_met {
    haddr_t *addresses; /* [capacity], HADDR_UNDEF: free; owned */
    uint32_t capacity, count;
    uint32_t repeats; /* how often an object was met again */
};

/* How often objects may be met again by other names. With links to links, a small file can have
 * more names than any walk ends with. */
enum { TRAJD_LINKS_REPEATS_MAX = 1000 };

/* Returns whether the object was met before, and adds it. Ends the process if out of memory.
 */
bool trajd_links_meet(struct trajd_links_met *met, haddr_t address);
void trajd_links_met_free(struct trajd_links_met *met);

#endif
