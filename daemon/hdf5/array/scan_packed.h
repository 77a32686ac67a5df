/* What groups in place of a dataset share: packed frames and packed video. */
#ifndef TRAJD_HDF5_ARRAY_SCAN_PACKED_H
#define TRAJD_HDF5_ARRAY_SCAN_PACKED_H

#include "daemon/hdf5/scan.h"

/* Returns whether the path leads to a group that has these members; NULL ends the names early. */
bool trajd_scan_has(hid_t group, const char *path, const char *const names[3]);
/* Describe such a group. Return NULL, or the reason why it cannot be used. */
const char *trajd_scan_packed(struct trajd_scan *scan, hid_t group,
                              const struct trajd_layout_image *image, struct trajd_array *array);
const char *trajd_scan_video(struct trajd_scan *scan, hid_t group,
                             const struct trajd_layout_image *image, struct trajd_array *array);

/* Finds a dataset of the group that must be in one piece in the file, with `count` entries of
 * `width` elements. Returns NULL, or the reason why it cannot be used. */
const char *trajd_scan_piece(struct trajd_scan *scan, hid_t group, const char *name, hid_t type,
                             uint64_t width, uint64_t *offset, uint64_t *count);
/* Reads an attribute of one text; "" where there is none, "?" where it is not a text that fits. */
void trajd_scan_word(hid_t group, const char *name, char *word, size_t word_size);
/* Reads an attribute of `count` numbers. False where it is none. */
bool trajd_scan_numbers(hid_t group, const char *name, uint64_t count, uint64_t *numbers);
/* Compares the words of the group with the layout. A layout that leaves the colour open takes any.
 * Returns NULL, or how they differ. */
const char *trajd_scan_words(struct trajd_scan *scan, hid_t group,
                             const struct trajd_layout_image *image);

#endif
