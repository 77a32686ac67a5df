/* Numbers of one column, read through libhdf5: flags, lengths, ends. */
#ifndef TRAJD_HDF5_SCAN_COLUMN_H
#define TRAJD_HDF5_SCAN_COLUMN_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the number of values, or 0 where the dataset is none of numbers in one column. */
uint64_t trajd_scan_column_count(hid_t dataset);
/* Reads `count` values from `begin` on. False where libhdf5 cannot read them. */
bool trajd_scan_column_read(hid_t dataset, uint64_t begin, uint64_t count, double *values);

#endif
