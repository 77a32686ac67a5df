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
        return "a compound type (a table with named columns) is not supported: store each column "
               "as "
               "an array of its own";
    case H5T_OPAQUE:
        return "an opaque type is not supported";
    case H5T_REFERENCE:
        return "a reference type is not supported";
    case H5T_ARRAY:
        return "an array type is not supported";
    case H5T_BITFIELD:
        return "a bit field type is not supported";
    case H5T_ENUM:
        return "an enum of unusual width is not supported";
    default:
        return "an unknown type is not supported";
    }
}

/* Sets the type of an enum: bool, or its integers. Names of one byte are u8, also where the file
 * has i8 and no negative names. */
static const char *set_enum(hid_t type, struct trajd_array *array)
{
    const hid_t integers = H5Tget_super(type);
    bool has_negative = false;

    array->dtype = is_bool(type) ? TRAJD_BOOL : integer_type(integers);
    array->is_enum = array->dtype != TRAJD_BOOL;
    for (int i = 0; array->dtype == TRAJD_I8 && i < H5Tget_nmembers(type); i++) {
        int8_t value = 0;
        has_negative =
            H5Tget_member_value(type, (unsigned)i, &value) < 0 || value < 0 || has_negative;
    }
    if (array->dtype == TRAJD_I8 && !has_negative)
        array->dtype = TRAJD_U8;
    if (array->dtype && H5Tget_size(integers) > 1 && H5Tget_order(integers) != H5T_ORDER_LE)
        array->dtype = TRAJD_DTYPE_NONE;
    H5Tclose(integers);
    return array->dtype ? NULL : class_name(H5T_ENUM);
}

/* Sets the form of rows of bytes: fixed strings and lists of u8 of variable length. Strings of
 * variable length end at the first zero, so they hold no frames. */
static const char *set_bytes(hid_t type, bool is_image, struct trajd_array *array,
                             uint32_t *element_bytes)
{
    const bool is_list = H5Tget_class(type) == H5T_VLEN;
    const hid_t super = is_list ? H5Tget_super(type) : -1;
    const bool is_bytes =
        !is_list || (H5Tget_class(super) == H5T_INTEGER && H5Tget_size(super) == 1);

    if (super >= 0)
        H5Tclose(super);
    if (!is_bytes)
        return "a variable-length type of other than bytes is not supported";
    if (H5Tis_variable_str(type) > 0)
        return "a variable-length string type is not supported";
    if (!is_image)
        return is_list ? "a variable-length type is not supported, except for frames: a stream "
                         "with the key image, like image: {color: rgb}"
                       : "a string type is not supported, except for frames: a stream with the key "
                         "image, like image: {color: rgb}";
    if (!is_list && H5Tget_strpad(type) == H5T_STR_SPACEPAD)
        return "strings padded by spaces are not supported";
    if (!is_list && H5Tget_size(type) > TRAJD_ROW_BYTES_MAX)
        return "strings of more than 64 MiB are not supported";
    array->dtype = TRAJD_U8;
    array->form = is_list ? TRAJD_ROWS_HEAP : TRAJD_ROWS_STRING;
    *element_bytes = is_list ? TRAJD_HEAP_REFERENCE_BYTES : (uint32_t)H5Tget_size(type);
    return NULL;
}

const char *trajd_scan_type(hid_t type, bool is_image, struct trajd_array *array,
                            uint32_t *element_bytes)
{
    H5T_class_t class = H5Tget_class(type);
    bool number = class == H5T_INTEGER || class == H5T_FLOAT;

    array->dtype = TRAJD_DTYPE_NONE;
    if (class == H5T_STRING || class == H5T_VLEN)
        return set_bytes(type, is_image, array, element_bytes);
    if (number && H5Tget_size(type) > 1 && H5Tget_order(type) != H5T_ORDER_LE)
        return "a big-endian type is not supported";
    if (class == H5T_ENUM && set_enum(type, array))
        return class_name(class);
    if (class == H5T_INTEGER)
        array->dtype = integer_type(type);
    else if (class == H5T_FLOAT)
        array->dtype = H5Tequal(type, H5T_IEEE_F64LE) > 0   ? TRAJD_F64
                       : H5Tequal(type, H5T_IEEE_F32LE) > 0 ? TRAJD_F32
                       : is_half(type)                      ? TRAJD_F16
                                                            : TRAJD_DTYPE_NONE;
    *element_bytes = trajd_dtype_size(array->dtype);
    if (array->dtype)
        return NULL;
    return number ? "a number of unusual width is not supported" : class_name(class);
}
