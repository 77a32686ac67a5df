/* Reads one value, of an attribute or of a dataset that holds one, and numbers of one column: flags,
 * lengths, ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"
#include "daemon/hdf5/helper_socket.h"

enum { TEXT_BYTES_MAX = 16 << 20, ENUM_NAME_SIZE = 128 };

struct trajd_scan_value trajd_scan_value_open(hid_t group, const char *object,
                                              const char *attribute)
{
    struct trajd_scan_value value = {.is_dataset = !attribute, .type = -1, .space = -1};

    value.id = attribute ? H5Aopen_by_name(group, object, attribute, H5P_DEFAULT, H5P_DEFAULT)
                         : H5Dopen2(group, object, H5P_DEFAULT);
    if (value.id < 0) {
        H5Eclear2(H5E_DEFAULT);
        return value;
    }
    value.type = attribute ? H5Aget_type(value.id) : H5Dget_type(value.id);
    value.space = attribute ? H5Aget_space(value.id) : H5Dget_space(value.id);
    return value;
}

bool trajd_scan_value_is_one(const struct trajd_scan_value *value)
{
    return H5Sget_simple_extent_npoints(value->space) == 1;
}

bool trajd_scan_value_read(const struct trajd_scan_value *value, hid_t type, void *out)
{
    return value->is_dataset ? H5Dread(value->id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0
                             : H5Aread(value->id, type, out) >= 0;
}

char *trajd_scan_value_read_text(const struct trajd_scan_value *value)
{
    const size_t size = H5Tget_size(value->type);
    char *text = NULL, *copy = NULL;

    if (!trajd_scan_value_is_one(value))
        return NULL;
    if (H5Tis_variable_str(value->type) > 0) {
        if (trajd_scan_value_read(value, value->type, &text) && text &&
            strlen(text) <= TEXT_BYTES_MAX)
            copy = trajd_helper_memory(strdup(text));
        H5Dvlen_reclaim(value->type, value->space, H5P_DEFAULT, &text);
        return copy;
    }
    copy = size > TEXT_BYTES_MAX ? NULL : trajd_helper_memory(calloc(1, size + 1));
    if (copy && !trajd_scan_value_read(value, value->type, copy)) {
        free(copy);
        copy = NULL;
    }
    return copy;
}

char *trajd_scan_value_read_enum(const struct trajd_scan_value *value)
{
    uint64_t member = 0;
    char name[ENUM_NAME_SIZE] = "";

    if (!trajd_scan_value_is_one(value) || H5Tget_size(value->type) > sizeof member ||
        !trajd_scan_value_read(value, value->type, &member) ||
        H5Tenum_nameof(value->type, &member, name, sizeof name) < 0 || !*name)
        return NULL;
    return strdup(!strcmp(name, "TRUE") ? "true" : !strcmp(name, "FALSE") ? "false" : name);
}

void trajd_scan_value_close(struct trajd_scan_value *value)
{
    if (value->space >= 0)
        H5Sclose(value->space);
    if (value->type >= 0)
        H5Tclose(value->type);
    if (value->id >= 0 && value->is_dataset)
        H5Dclose(value->id);
    else if (value->id >= 0)
        H5Aclose(value->id);
    H5Eclear2(H5E_DEFAULT);
}

/* ---- columns ---- */

uint64_t trajd_scan_row_count(hid_t dataset, uint64_t *width)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const H5T_class_t class = H5Tget_class(type);
    const int rank = H5Sget_simple_extent_ndims(space);
    hsize_t shape[2] = {0, 1};

    if (rank == 1 || rank == 2)
        H5Sget_simple_extent_dims(space, shape, NULL);
    H5Sclose(space);
    H5Tclose(type);
    *width = shape[1];
    return class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM ? shape[0] : 0;
}

uint64_t trajd_scan_column_count(hid_t dataset)
{
    uint64_t width;
    const uint64_t rows = trajd_scan_row_count(dataset, &width);

    return width == 1 ? rows : 0;
}

bool trajd_scan_rows_read(hid_t dataset, uint64_t begin, uint64_t count, uint64_t width,
                          double *values)
{
    const hsize_t start[2] = {begin, 0}, block[2] = {count, width}, size = count * width;
    hid_t space = H5Dget_space(dataset), memory = H5Screate_simple(1, &size, NULL);
    const bool is_read =
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, block, NULL) >= 0 &&
        H5Dread(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values) >= 0;

    H5Sclose(memory);
    H5Sclose(space);
    return is_read;
}

bool trajd_scan_column_read(hid_t dataset, uint64_t begin, uint64_t count, double *values)
{
    return trajd_scan_rows_read(dataset, begin, count, 1, values);
}
