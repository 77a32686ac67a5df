/* Describes one dataset: its type, shape and storage, or the reason why its rows cannot be read
 * directly from the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"
#include "daemon/base/digest.h"
#include "daemon/hdf5/helper_socket.h"

static const uint64_t row_count_max = 1u << 31;

static const char *const packed_names[3] = {"bytes", "offsets"}, *const video_names[3] = {
                                                                     "rows", "packets", "units"};

static const char *refuse(struct trajd_scan *scan, struct trajd_record_array *dataset,
                          const char *text)
{
    dataset->refusal = text ? trajd_arena_copy(scan->arena, text, strlen(text)) : NULL;
    dataset->extent = (struct trajd_array){0};
    if (!dataset->refusal)
        dataset->refusal = "no memory";
    return dataset->refusal;
}

static const char *read_shape(hid_t space, bool scalar_allowed, uint32_t element_bytes,
                              struct trajd_array *array)
{
    hsize_t shape[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, shape, NULL);

    if (H5Sget_simple_extent_type(space) == H5S_NULL)
        return "an empty (null) dataspace has no rows";
    if (rank == 0 && scalar_allowed) {
        array->rank = 1;
        array->shape[0] = 1;
        array->size_bytes = element_bytes;
        return NULL;
    }
    if (rank < 1)
        return "a scalar has no rows";
    if (rank > TRAJD_ARRAY_MAX_RANK)
        return "its rank is above 6";
    array->rank = (uint32_t)rank;
    array->size_bytes = element_bytes;
    for (int i = 0; i < rank; i++) {
        array->shape[i] = shape[i];
        if (__builtin_mul_overflow(array->size_bytes, shape[i], &array->size_bytes))
            return "its size is beyond 64 bits";
    }
    if (array->shape[0] > row_count_max || array->size_bytes > INT64_MAX)
        return "it has more rows than an index can hold";
    return NULL;
}

static const char *read_filters(struct trajd_scan *scan, hid_t creation, struct trajd_array *array)
{
    int count = H5Pget_nfilters(creation);

    if (count < 0 || count > TRAJD_ARRAY_MAX_FILTERS)
        return "too many filters";
    for (int i = 0; i < count; i++) {
        char name[64] = "";
        unsigned flags, values;
        size_t value_count = 0;
        H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &value_count, NULL,
                                             sizeof name, name, &values);
        if (filter != TRAJD_FILTER_DEFLATE && filter != TRAJD_FILTER_SHUFFLE &&
            filter != TRAJD_FILTER_FLETCHER32 && filter != TRAJD_FILTER_LZF)
            return trajd_arena_format(scan->arena, "filter %d (%s) is not supported", (int)filter,
                                      trajd_scan_name_ok(name) ? name : "unnamed");
        array->filters[i] = (uint16_t)filter;
    }
    array->filter_count = (uint32_t)count;
    return NULL;
}

static const char *read_chunked(struct trajd_scan *scan, hid_t dataset, hid_t creation,
                                struct trajd_array *array)
{
    hsize_t chunk[H5S_MAX_RANK];
    const char *why = read_filters(scan, creation, array);
    unsigned options = 0;

    if (why)
        return why;
    if (scan->has_user_block)
        return "chunks in a file with a user block are not supported (libhdf5 1.10 reports their "
               "places "
               "wrongly)";
    if (H5Pget_chunk(creation, H5S_MAX_RANK, chunk) != (int)array->rank)
        return "its chunks have another rank than its shape";
    if (array->filter_count && H5Pget_chunk_opts(creation, &options) >= 0 &&
        (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS))
        return "unfiltered edge chunks are not supported";
    for (uint32_t i = 0; i < array->rank; i++) {
        if (!chunk[i])
            return "a chunk has no rows";
        array->chunk_shape[i] = chunk[i];
    }
    array->storage = TRAJD_STORAGE_CHUNKED;
    return trajd_scan_chunks(scan, dataset, array);
}

static const char *read_compact(struct trajd_scan *scan, hid_t dataset, hid_t type,
                                struct trajd_array *array)
{
    uint8_t *bytes =
        array->size_bytes > 65536 ? NULL : trajd_arena_alloc(scan->arena, array->size_bytes);

    if (!bytes)
        return "its compact data do not fit";
    if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) < 0)
        return trajd_scan_error(scan);
    array->storage = TRAJD_STORAGE_INLINE;
    array->inline_bytes = bytes;
    return NULL;
}

/* Describes a dataset whose rows are in one piece in this file; others have no offset. This way
 * needs no creation property list, which takes the most time. */
static bool read_contiguous(hid_t dataset, struct trajd_array *array)
{
    const haddr_t offset = H5Dget_offset(dataset);

    if (offset == HADDR_UNDEF)
        H5Eclear2(H5E_DEFAULT);
    if (offset == HADDR_UNDEF || !array->size_bytes)
        return false;
    array->storage = TRAJD_STORAGE_CONTIGUOUS;
    array->offset = offset;
    return true;
}

static const char *read_other_storage(struct trajd_scan *scan, hid_t dataset, hid_t type,
                                      hid_t creation, struct trajd_array *array)
{
    H5D_layout_t layout = H5Pget_layout(creation);
    H5D_fill_value_t fill = H5D_FILL_VALUE_UNDEFINED;

    if (H5Pget_external_count(creation) > 0)
        return "external storage is refused (it names other files)";
    if (layout == H5D_VIRTUAL)
        return "a virtual dataset is refused (it names other files)";
    if (H5Pfill_value_defined(creation, &fill) >= 0 && fill == H5D_FILL_VALUE_USER_DEFINED) {
        if (trajd_array_is_encoded(array))
            return "a fill value of strings is not supported";
        if (H5Pget_fill_value(creation, type, array->fill) < 0)
            return trajd_scan_error(scan);
    }
    /* no rows, no columns, or contiguous and never written */
    if (!array->size_bytes || layout == H5D_CONTIGUOUS) {
        array->storage = TRAJD_STORAGE_EMPTY;
        return NULL;
    }
    if (layout == H5D_COMPACT && array->form == TRAJD_ROWS_HEAP)
        return "compact storage of values of variable length is not supported";
    if (layout == H5D_CHUNKED)
        return read_chunked(scan, dataset, creation, array);
    return layout == H5D_COMPACT ? read_compact(scan, dataset, type, array) : "an unknown storage";
}

static const char *read_storage(struct trajd_scan *scan, hid_t dataset, hid_t type,
                                struct trajd_array *array)
{
    const char *why;
    hid_t creation;

    if (read_contiguous(dataset, array))
        return H5Dget_storage_size(dataset) == array->size_bytes
                   ? NULL
                   : "its storage has another size than its shape";
    creation = H5Dget_create_plist(dataset);
    why = read_other_storage(scan, dataset, type, creation, array);
    H5Pclose(creation);
    return why;
}

/* Reads the rows from `first` on through libhdf5, for the parent to compare. */
static const char *read_check(struct trajd_scan *scan, hid_t dataset, hid_t type, hid_t space,
                              uint64_t first, struct trajd_record_array *out)
{
    const struct trajd_array *array = &out->extent;
    hsize_t begin[TRAJD_ARRAY_MAX_RANK] = {first}, count[TRAJD_ARRAY_MAX_RANK];
    uint64_t row_bytes = array->size_bytes / (array->shape[0] ? array->shape[0] : 1), rows;
    const char *why = NULL;
    hid_t memory = -1;
    void *bytes;

    if (!row_bytes || row_bytes > TRAJD_SCAN_CHECK_ROW_MAX)
        return NULL;
    if (array->form == TRAJD_ROWS_HEAP)
        return NULL; /* libhdf5 gives the values, not the references */
    if (array->storage == TRAJD_STORAGE_CONTIGUOUS &&
        (array->offset > scan->file_size || array->size_bytes > scan->file_size - array->offset))
        return NULL; /* the parent refuses rows beyond the file's end */
    rows = row_bytes > TRAJD_SCAN_CHECK_BYTES ? 1 : TRAJD_SCAN_CHECK_BYTES / row_bytes;
    if (rows > array->shape[0])
        rows = array->shape[0];
    for (uint32_t i = 0; i < array->rank; i++)
        count[i] = i ? array->shape[i] : rows;
    bytes = trajd_helper_memory(malloc(rows * row_bytes));
    if ((uint64_t)H5Sget_simple_extent_npoints(space) != rows * trajd_array_row_elements(array))
        memory = H5Screate_simple((int)array->rank, count, NULL);
    if (memory >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL) < 0)
        why = trajd_scan_error(scan);
    else if (H5Dread(dataset, type, memory < 0 ? H5S_ALL : memory, memory < 0 ? H5S_ALL : space,
                     H5P_DEFAULT, bytes) < 0)
        why = trajd_arena_format(scan->arena, "libhdf5 cannot read it: %s", trajd_scan_error(scan));
    out->check_rows = why ? 0 : rows;
    out->check_digest = why ? 0 : trajd_digest_of(bytes, rows * row_bytes);
    if (memory >= 0)
        H5Sclose(memory);
    free(bytes);
    return why;
}

static bool has_attributes(hid_t dataset)
{
    H5O_info_t info;

    return H5Oget_info2(dataset, &info, H5O_INFO_NUM_ATTRS) < 0 || info.num_attrs > 0;
}

/* Returns why references to the heap cannot be followed in this file, or NULL. */
static const char *check_heap(const struct trajd_scan *scan)
{
    if (!scan->has_wide_places)
        return "variable length in a file whose offsets have other than 8 bytes is not supported";
    return scan->has_user_block ? "variable length in a file with a user block is not supported"
                                : NULL;
}

/* Gives the array the form of its rows. Strings and references become rows of bytes. */
static const char *set_form(bool is_image, uint32_t element_bytes, struct trajd_array *array)
{
    if (is_image && array->dtype == TRAJD_U8 && array->rank == 2)
        array->form = TRAJD_ROWS_PADDED;
    if (array->form == TRAJD_ROWS_PLAIN || array->form == TRAJD_ROWS_PADDED)
        return NULL;
    if (array->rank != 1)
        return "strings and bytes of variable length must have one axis, the rows";
    array->rank = 2;
    array->shape[1] = array->chunk_shape[1] = element_bytes;
    return NULL;
}

static const char *describe(struct trajd_scan *scan, hid_t dataset, bool scalar_allowed,
                            bool is_image, struct trajd_record_array *out)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    struct trajd_array *array = &out->extent;
    uint32_t element_bytes = 0;
    const char *why = trajd_scan_type(type, is_image, array, &element_bytes);

    array->has_attributes = has_attributes(dataset);
    if (!why && array->form == TRAJD_ROWS_HEAP)
        why = check_heap(scan);
    if (!why)
        why = read_shape(space, scalar_allowed, element_bytes, array);
    if (!why)
        why = read_storage(scan, dataset, type, array);
    if (!why)
        why = read_check(scan, dataset, type, space, 0, out);
    if (!why)
        why = set_form(is_image, element_bytes, array);
    H5Sclose(space);
    H5Tclose(type);
    return why;
}

void trajd_scan_check_rows(struct trajd_scan *scan, hid_t dataset, uint64_t begin,
                           struct trajd_record_array *array)
{
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    struct trajd_record_array stored = *array;
    const char *why;

    if (stored.extent.form == TRAJD_ROWS_STRING)
        stored.extent.rank = 1; /* as the dataset has it */
    why = read_check(scan, dataset, type, space, begin, &stored);
    array->check_rows = stored.check_rows;
    array->check_digest = stored.check_digest;
    if (why)
        refuse(scan, array, why);
    H5Sclose(space);
    H5Tclose(type);
}

static bool is_start(const struct trajd_layout *layout, const char *path)
{
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        if (layout->clocks[i].start_path && !strcmp(layout->clocks[i].start_path, path))
            return true;
    }
    return false;
}

/* Sets the reason why a path cannot be opened as a dataset. */
static enum trajd_scan_found refuse_object(struct trajd_scan *scan, hid_t group, const char *path,
                                           struct trajd_record_array *dataset)
{
    const char *failure = trajd_scan_error(scan), *lost;
    H5O_info_t info;

    if (H5Oget_info_by_name2(group, path, &info, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
        info.type != H5O_TYPE_DATASET) {
        refuse(scan, dataset, TRAJD_RECORD_NO_DATASET);
        return TRAJD_SCAN_OTHER;
    }
    H5Eclear2(H5E_DEFAULT);
    lost = trajd_scan_lost_link(group, path);
    refuse(scan, dataset,
           lost ? lost : trajd_arena_format(scan->arena, "cannot be opened: %s", failure));
    return lost ? TRAJD_SCAN_ARRAY : TRAJD_SCAN_DAMAGED;
}

/* Describes a group in place of a dataset. */
static enum trajd_scan_found
scan_group(struct trajd_scan *scan, hid_t group, const char *path, const char *what,
           const char *(*describe_group)(struct trajd_scan *, hid_t,
                                         const struct trajd_layout_image *, struct trajd_array *),
           const struct trajd_layout_image *image, struct trajd_record_array *dataset)
{
    const hid_t folder = H5Gopen2(group, path, H5P_DEFAULT);
    const char *why = "the group cannot be opened";

    scan->has_failed = folder < 0;
    if (folder >= 0) {
        why = describe_group(scan, folder, image, &dataset->extent);
        H5Gclose(folder);
    }
    if (why)
        refuse(scan, dataset, trajd_arena_format(scan->arena, "%s: %s", what, why));
    return why && scan->has_failed ? TRAJD_SCAN_DAMAGED : TRAJD_SCAN_ARRAY;
}

enum trajd_scan_found trajd_scan_array(struct trajd_scan *scan, hid_t group, const char *path,
                                       haddr_t header, const struct trajd_layout_image *image,
                                       struct trajd_record_array *dataset)
{
    hid_t object;
    const char *why;

    if (trajd_scan_alike(scan, path, header, image, dataset))
        return TRAJD_SCAN_ARRAY;
    object = H5Dopen2(group, path, H5P_DEFAULT);
    *dataset = (struct trajd_record_array){.path = path};
    if (object < 0 && image && trajd_scan_has(group, path, packed_names))
        return scan_group(scan, group, path, "packed frames", trajd_scan_packed, image, dataset);
    if (object < 0 && image && trajd_scan_has(group, path, video_names))
        return scan_group(scan, group, path, "packed video", trajd_scan_video, image, dataset);
    if (object < 0)
        return refuse_object(scan, group, path, dataset);
    scan->has_failed = false;
    why = describe(scan, object, is_start(scan->layout, path), image != NULL, dataset);
    if (why)
        refuse(scan, dataset, why);
    trajd_scan_alike_keep(scan, path, header, image, dataset);
    H5Dclose(object);
    return why && scan->has_failed ? TRAJD_SCAN_DAMAGED : TRAJD_SCAN_ARRAY;
}
