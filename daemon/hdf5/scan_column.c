/* Reads numbers of one column. */
#include "daemon/hdf5/scan_column.h"

uint64_t trajd_scan_column_count(hid_t dataset)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const H5T_class_t class = H5Tget_class(type);
    const int rank = H5Sget_simple_extent_ndims(space);
    hsize_t shape[2] = {0, 1};

    if (rank == 1 || rank == 2)
        H5Sget_simple_extent_dims(space, shape, NULL);
    H5Sclose(space);
    H5Tclose(type);
    return shape[1] == 1 && (class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM)
               ? shape[0]
               : 0;
}

bool trajd_scan_column_read(hid_t dataset, uint64_t begin, uint64_t count, double *values)
{
    const hsize_t start[2] = {begin, 0}, block[2] = {count, 1};
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(1, block, NULL);
    const bool is_read =
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, block, NULL) >= 0 &&
        H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values) >= 0;

    H5Sclose(memory);
    H5Sclose(space);
    return is_read;
}
