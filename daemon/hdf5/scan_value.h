/* Values of a file: one in an attribute or a dataset, or numbers of one column. */
#ifndef TRAJD_HDF5_SCAN_VALUE_H
#define TRAJD_HDF5_SCAN_VALUE_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

struct trajd_scan_value {
    hid_t id; /* < 0: it cannot be opened */
    hid_t type, space;
    bool is_dataset;
};

/* Opens the attribute of the object, or the dataset at `object` where `attribute` is NULL. The
 * caller closes it in any case. */
struct trajd_scan_value trajd_scan_value_open(hid_t group, const char *object,
                                              const char *attribute);
/* Also clears libhdf5's errors. */
void trajd_scan_value_close(struct trajd_scan_value *value);

bool trajd_scan_value_is_one(const struct trajd_scan_value *value);
/* Reads the value, which must be one, as `type`. */
bool trajd_scan_value_read(const struct trajd_scan_value *value, hid_t type, void *out);
/* Returns a value of a text type; NULL where it is not one text or cannot be read. The caller
 * frees. */
char *trajd_scan_value_read_text(const struct trajd_scan_value *value);

/* Returns the name of an enum's value, "true" or "false" for h5py's booleans; NULL where it is not
 * one value, has no name or cannot be read. The caller frees. */
char *trajd_scan_value_read_enum(const struct trajd_scan_value *value);

/* Returns the number of rows of an array of numbers with one or two axes, and the values of each; 0
 * for any other. */
uint64_t trajd_scan_row_count(hid_t dataset, uint64_t *width);
/* Reads `count` rows of `width` values from `begin` on. False where libhdf5 cannot read them. */
bool trajd_scan_rows_read(hid_t dataset, uint64_t begin, uint64_t count, uint64_t width,
                          double *values);
/* Returns the number of values, or 0 where the dataset is none of numbers in one column. */
uint64_t trajd_scan_column_count(hid_t dataset);
/* Reads `count` values from `begin` on. False where libhdf5 cannot read them. */
bool trajd_scan_column_read(hid_t dataset, uint64_t begin, uint64_t count, double *values);

#endif
