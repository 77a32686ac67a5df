/* Reads, copies and sets attributes. */
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"
#include "proto/plural.h"

struct attribute_copy {
    struct trajd_writer *writer;
    hid_t to;
    const char *path;
};

static herr_t copy_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
    struct attribute_copy *copy = context;
    struct trajd_scan_value attribute;
    hid_t made = -1;
    void *value = NULL;
    size_t size;
    bool ok = false;

    (void)info;
    if (H5Aexists(copy->to, name) > 0)
        return 0;
    attribute = trajd_scan_value_open(object, ".", name);
    if (attribute.type >= 0 && attribute.space >= 0 &&
        /* a reference is an address in its file, also where it is a part of another type */
        H5Tdetect_class(attribute.type, H5T_REFERENCE) <= 0) {
        const hssize_t count = H5Sget_simple_extent_npoints(attribute.space);
        size = H5Tget_size(attribute.type);
        value = count >= 0 && size && (uint64_t)count <= SIZE_MAX / 2 / size
                    ? calloc((size_t)count + 1, size)
                    : NULL;
        made = value ? H5Acreate2(copy->to, name, attribute.type, attribute.space, H5P_DEFAULT,
                                  H5P_DEFAULT)
                     : -1;
        ok = made >= 0 && (count == 0 || (H5Aread(attribute.id, attribute.type, value) >= 0 &&
                                          H5Awrite(made, attribute.type, value) >= 0));
        if (count > 0 && value &&
            (H5Tdetect_class(attribute.type, H5T_VLEN) > 0 ||
             H5Tis_variable_str(attribute.type) > 0))
            H5Dvlen_reclaim(attribute.type, attribute.space, H5P_DEFAULT, value);
    }
    free(value);
    trajd_writer_close(made);
    if (made >= 0 && !ok)
        H5Adelete(copy->to, name);
    if (!ok)
        trajd_writer_note(copy->writer, "%s: attribute %s of %s cannot be carried over",
                          copy->writer->label, name, copy->path);
    trajd_scan_value_close(&attribute);
    return 0;
}

void trajd_writer_visit_attributes(struct trajd_writer *writer, hid_t object, const char *path,
                                   H5A_operator2_t visit, void *context)
{
    hsize_t position = 0;
    H5O_info_t info = {.num_attrs = 0};

    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &position, visit, context) >= 0)
        return;
    H5Eclear2(H5E_DEFAULT);
    H5Oget_info2(object, &info, H5O_INFO_NUM_ATTRS);
    trajd_writer_note(
        writer,
        "%s: %llu attribute%s of %s cannot be read, because libhdf5 does not know the "
        "type of at least one: left out",
        writer->label, (unsigned long long)info.num_attrs, trajd_plural(info.num_attrs), path);
}

void trajd_writer_copy_attributes(struct trajd_writer *writer, hid_t from, hid_t to,
                                  const char *path)
{
    struct attribute_copy copy = {.writer = writer, .to = to, .path = path};

    trajd_writer_visit_attributes(writer, from, path, copy_attribute, &copy);
}

void trajd_writer_set_count(hid_t object, const char *name, uint64_t value)
{
    struct trajd_scan_value attribute = trajd_scan_value_open(object, ".", name);
    const int64_t number = (int64_t)value;

    if (attribute.type >= 0 && H5Tget_class(attribute.type) == H5T_INTEGER &&
        trajd_scan_value_is_one(&attribute))
        H5Awrite(attribute.id, H5T_NATIVE_INT64, &number);
    trajd_scan_value_close(&attribute);
}

bool trajd_writer_set(hid_t object, const char *name, hid_t type, hid_t space, hid_t value_type,
                      const void *value)
{
    hid_t attribute;
    bool ok;

    if (H5Aexists(object, name) > 0)
        H5Adelete(object, name);
    attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ok = attribute >= 0 && H5Awrite(attribute, value_type, value) >= 0;
    trajd_writer_close(attribute);
    return ok;
}

bool trajd_writer_set_text(hid_t object, const char *name, const char *text, bool variable)
{
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    bool ok;

    H5Tset_size(type, variable ? H5T_VARIABLE : strlen(text) + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
    ok = trajd_writer_set(object, name, type, space, type, variable ? (const void *)&text : text);
    trajd_writer_close(space);
    trajd_writer_close(type);
    return ok;
}
