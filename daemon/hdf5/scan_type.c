/* Maps HDF5's element types to ours. */
#include <string.h>

#include "daemon/hdf5/scan.h"

/* Returns whether the type is little-endian IEEE binary16, for which libhdf5 has no name. */
static bool is_half(hid_t type)
{
    hid_t half = H5Tcopy(H5T_IEEE_F32LE);
    bool equal = H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0 &&
                 H5Tset_ebias(half, 15) >= 0 && H5Tequal(type, half) > 0;

    H5Tclose(half);
    return equal;
}

/* Returns whether the type is h5py's bool: an enum over int8 with FALSE = 0 and TRUE = 1. */
static bool is_bool(hid_t type)
{
    static const char *const names[] = {"FALSE", "TRUE"};

    if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        char *name = H5Tget_member_name(type, i);
        uint8_t value = 0xff;
        bool fits = name && H5Tget_member_value(type, i, &value) >= 0 && value < 2 &&
                    !strcmp(name, names[value]);
        H5free_memory(name);
        if (!fits)
            return false;
    }
    return true;
}

static enum trajd_dtype integer_type(hid_t type)
{
    static const enum trajd_dtype of_signed[] = {TRAJD_I8, TRAJD_I16, TRAJD_I32, TRAJD_I64};
    static const enum trajd_dtype of_unsigned[] = {TRAJD_U8, TRAJD_U16, TRAJD_U32, TRAJD_U64};
    size_t size = H5Tget_size(type);
    int log = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;

    if (log < 0 || H5Tget_precision(type) != size * 8 || H5Tget_offset(type) != 0)
        return TRAJD_DTYPE_NONE;
    return H5Tget_sign(type) == H5T_SGN_2 ? of_signed[log] : of_unsigned[log];
}

static const char *class_name(H5T_class_t class)
{
    switch (class) {
    case H5T_COMPOUND:
        return "a compound type is not supported";
    case H5T_VLEN:
        return "a variable-length type is not supported";
    case H5T_STRING:
        return "a string type is not supported";
    case H5T_OPAQUE:
        return "an opaque type is not supported";
    case H5T_REFERENCE:
        return "a reference type is not supported";
    case H5T_ARRAY:
        return "an array type is not supported";
    case H5T_BITFIELD:
        return "a bit field type is not supported";
    case H5T_ENUM:
        return "an enum other than bool is not supported";
    default:
        return "an unknown type is not supported";
    }
}

const char *trajd_scan_type(hid_t type, enum trajd_dtype *dtype)
{
    H5T_class_t class = H5Tget_class(type);
    bool number = class == H5T_INTEGER || class == H5T_FLOAT;

    *dtype = TRAJD_DTYPE_NONE;
    if (class == H5T_STRING && H5Tis_variable_str(type) > 0)
        return "a variable-length string type is not supported";
    if (number && H5Tget_size(type) > 1 && H5Tget_order(type) != H5T_ORDER_LE)
        return "a big-endian type is not supported";
    if (class == H5T_INTEGER)
        *dtype = integer_type(type);
    else if (class == H5T_FLOAT)
        *dtype = H5Tequal(type, H5T_IEEE_F64LE) > 0   ? TRAJD_F64
                 : H5Tequal(type, H5T_IEEE_F32LE) > 0 ? TRAJD_F32
                 : is_half(type)                      ? TRAJD_F16
                                                      : TRAJD_DTYPE_NONE;
    else if (class == H5T_ENUM && is_bool(type))
        *dtype = TRAJD_BOOL;
    if (*dtype)
        return NULL;
    return number ? "a number of unusual width is not supported" : class_name(class);
}
