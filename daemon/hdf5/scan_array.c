/* One dataset: its type, shape and storage, or the reason why its rows cannot be read from the file
 * directly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/digest.h"
#include "daemon/hdf5/scan.h"

static const uint64_t check_bytes =
    4096; /* compared with the parent's own reading: whole rows up to this, at least one */
static const uint64_t check_row_bytes_max = 64u << 20;
static const uint64_t chunk_count_max = 4u << 20;
static const uint64_t row_count_max = 1u << 31;

static const char *refuse(struct trajd_scan *scan, struct trajd_record_array *dataset,
                          const char *text)
{
    dataset->refusal = text ? trajd_arena_copy(scan->arena, text, strlen(text)) : NULL;
    dataset->extent = (struct trajd_array){0};
    if (!dataset->refusal)
        dataset->refusal = "no memory";
    return dataset->refusal;
}

/* IEEE binary16 in little endian, which libhdf5 has no name for. */
static bool is_half(hid_t type)
{
    hid_t half = H5Tcopy(H5T_IEEE_F32LE);
    bool equal = H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0 &&
                 H5Tset_ebias(half, 15) >= 0 && H5Tequal(type, half) > 0;

    H5Tclose(half);
    return equal;
}

/* h5py's bool: an enum over int8 with FALSE = 0 and TRUE = 1. */
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

/* NULL, or why the type is not one of ours. */
static const char *read_type(hid_t type, enum trajd_dtype *dtype)
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

static const char *read_shape(hid_t space, bool scalar_allowed, struct trajd_array *array)
{
    hsize_t shape[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, shape, NULL);

    if (H5Sget_simple_extent_type(space) == H5S_NULL)
        return "an empty (null) dataspace has no rows";
    if (rank == 0 && scalar_allowed) {
        array->rank = 1;
        array->shape[0] = 1;
        return NULL;
    }
    if (rank < 1)
        return "a scalar has no rows";
    if (rank > TRAJD_ARRAY_MAX_RANK)
        return "its rank is above 6";
    array->rank = (uint32_t)rank;
    array->size_bytes = trajd_dtype_size(array->dtype);
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

struct chunk_visit {
    struct trajd_array *array;
    struct trajd_chunk *chunks;
    bool odd; /* something that does not fit the grid */
};

/* Puts a chunk, given by the element it begins at, at its place in the grid. */
static void place_chunk(struct chunk_visit *visit, const hsize_t *begin, unsigned mask,
                        haddr_t address, hsize_t size)
{
    const struct trajd_array *array = visit->array;
    uint64_t place = 0;

    for (uint32_t i = 0; i < array->rank; i++) {
        uint64_t grid = (array->shape[i] + array->chunk_shape[i] - 1) / array->chunk_shape[i];
        if (begin[i] % array->chunk_shape[i] || begin[i] >= array->shape[i]) {
            visit->odd = true;
            return;
        }
        place = place * grid + begin[i] / array->chunk_shape[i];
    }
    if (size > UINT32_MAX)
        visit->odd = true;
    else
        visit->chunks[place] = (struct trajd_chunk){address, (uint32_t)size, mask};
}

#ifdef TRAJD_HAVE_CHUNK_ITER
static int visit_chunk(const hsize_t *begin, unsigned mask, haddr_t address, hsize_t size,
                       void *context)
{
    place_chunk(context, begin, mask, address, size);
    return H5_ITER_CONT;
}
#endif

/* Every chunk by its number: O(n^2) in the library, and all that 1.10 before .10 has. */
static bool list_chunks(hid_t dataset, struct chunk_visit *visit)
{
    hid_t space = H5Dget_space(dataset);
    hsize_t count = 0, begin[H5S_MAX_RANK] = {0}, size;
    bool ok = H5Dget_num_chunks(dataset, space, &count) >= 0;
    haddr_t address;
    unsigned mask;

    visit->odd = false;
    for (hsize_t i = 0; ok && i < count; i++) {
        ok = H5Dget_chunk_info(dataset, space, i, begin, &mask, &address, &size) >= 0;
        if (ok)
            place_chunk(visit, begin, mask, address, size);
    }
    H5Sclose(space);
    return ok && !visit->odd;
}

const char *trajd_scan_chunks(struct trajd_scan *scan, hid_t dataset, struct trajd_array *array)
{
    struct chunk_visit visit = {.array = array};
    uint64_t count = 1;
    bool ok = false;

    for (uint32_t i = 0; i < array->rank; i++) {
        uint64_t grid = (array->shape[i] + array->chunk_shape[i] - 1) / array->chunk_shape[i];
        if (__builtin_mul_overflow(count, grid, &count) || count > chunk_count_max)
            return "more than 4 million chunks";
    }
    visit.chunks = trajd_arena_alloc(scan->arena, count * sizeof *visit.chunks);
    if (!visit.chunks)
        return "no memory for its chunks";
    for (uint64_t i = 0; i < count; i++)
        visit.chunks[i].offset = TRAJD_ARRAY_MISSING_CHUNK;
#ifdef TRAJD_HAVE_CHUNK_ITER
    /* Some releases give the chunk's number instead of its element: that is off the grid, and the
     * slow way follows. */
    ok = H5Dchunk_iter(dataset, H5P_DEFAULT, visit_chunk, &visit) >= 0 && !visit.odd;
#endif
    if (!ok && !list_chunks(dataset, &visit))
        return visit.odd ? "its chunks do not fit its shape" : trajd_scan_error(scan);
    array->chunk_count = count;
    array->chunks = visit.chunks;
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

/* What lies in one piece, and this file; all else has no offset. Spares the creation list, the
 * dearest question to ask. */
static bool read_contiguous(hid_t dataset, struct trajd_array *array)
{
    haddr_t offset = H5Dget_offset(dataset);

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
    if (H5Pfill_value_defined(creation, &fill) >= 0 && fill == H5D_FILL_VALUE_USER_DEFINED &&
        H5Pget_fill_value(creation, type, array->fill) < 0)
        return trajd_scan_error(scan);
    /* no rows, no columns, or never written */
    if (!array->size_bytes || layout == H5D_CONTIGUOUS) {
        array->storage = TRAJD_STORAGE_EMPTY;
        return NULL;
    }
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

static bool has_filter(const struct trajd_array *array, uint16_t filter)
{
    for (uint32_t i = 0; i < array->filter_count; i++) {
        if (array->filters[i] == filter)
            return true;
    }
    return false;
}

/* Reads the first rows the library's way, for the parent to compare. */
static const char *read_check(struct trajd_scan *scan, hid_t dataset, hid_t type, hid_t space,
                              struct trajd_record_array *out)
{
    const struct trajd_array *array = &out->extent;
    hsize_t begin[TRAJD_ARRAY_MAX_RANK] = {0}, count[TRAJD_ARRAY_MAX_RANK];
    uint64_t row_bytes = array->size_bytes / (array->shape[0] ? array->shape[0] : 1), rows;
    const char *why = NULL;
    hid_t memory = -1;
    void *bytes;

    if (!row_bytes || row_bytes > check_row_bytes_max || has_filter(array, TRAJD_FILTER_LZF))
        return NULL; /* libhdf5 itself has no lzf */
    if (array->storage == TRAJD_STORAGE_CONTIGUOUS &&
        (array->offset > scan->file_size || array->size_bytes > scan->file_size - array->offset))
        return NULL; /* the parent refuses what lies beyond the file's end */
    rows = row_bytes > check_bytes ? 1 : check_bytes / row_bytes;
    if (rows > array->shape[0])
        rows = array->shape[0];
    for (uint32_t i = 0; i < array->rank; i++)
        count[i] = i ? array->shape[i] : rows;
    bytes = malloc(rows * row_bytes);
    if (rows < array->shape[0])
        memory = H5Screate_simple((int)array->rank, count, NULL);
    if (!bytes)
        why = "no memory";
    else if (memory >= 0 &&
             H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL) < 0)
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

static const char *describe(struct trajd_scan *scan, hid_t dataset, bool scalar_allowed,
                            struct trajd_record_array *out)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const char *why = read_type(type, &out->extent.dtype);

    out->extent.has_attributes = has_attributes(dataset);
    if (!why)
        why = read_shape(space, scalar_allowed, &out->extent);
    if (!why && out->extent.rank == 1 && H5Sget_simple_extent_ndims(space) == 0)
        out->extent.size_bytes = trajd_dtype_size(out->extent.dtype);
    if (!why)
        why = read_storage(scan, dataset, type, &out->extent);
    if (!why)
        why = read_check(scan, dataset, type, space, out);
    H5Sclose(space);
    H5Tclose(type);
    return why;
}

/* Steps over a path's links. 0: a part is missing, 1: all there, -1: one leads out of the file. */
static int check_links(hid_t group, const char *path)
{
    char slice[4096];
    size_t length = 0;

    do {
        H5L_info_t info;
        length += strcspn(path + length, "/");
        if (length >= sizeof slice)
            return 0;
        memcpy(slice, path, length);
        slice[length] = '\0';
        if (H5Lexists(group, slice, H5P_DEFAULT) <= 0 ||
            H5Lget_info(group, slice, &info, H5P_DEFAULT) < 0)
            return 0;
        if (info.type == H5L_TYPE_EXTERNAL || info.type > H5L_TYPE_EXTERNAL)
            return -1;
    } while (path[length++]);
    return 1;
}

static bool is_start(const struct trajd_layout *layout, const char *path)
{
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        if (layout->clocks[i].start_path && !strcmp(layout->clocks[i].start_path, path))
            return true;
    }
    return false;
}

/* Why a path cannot be opened as a dataset; false where there is none, or where a family meets
 * something else. */
static bool refuse_object(struct trajd_scan *scan, hid_t group, const char *path, bool of_family,
                          struct trajd_record_array *dataset)
{
    const char *failure = trajd_scan_error(scan);
    int links = check_links(group, path);
    H5O_info_t info;
    bool other = links > 0 && H5Oget_info_by_name(group, path, &info, H5P_DEFAULT) >= 0 &&
                 info.type != H5O_TYPE_DATASET;

    H5Eclear2(H5E_DEFAULT);
    if (links == 0 || (other && of_family))
        return false;
    if (links < 0)
        return refuse(scan, dataset, "an external link is refused (it names another file)");
    if (other)
        return refuse(scan, dataset, "it is no dataset");
    return refuse(scan, dataset, trajd_arena_format(scan->arena, "cannot be opened: %s", failure));
}

bool trajd_scan_array(struct trajd_scan *scan, hid_t group, const char *path, bool of_family,
                      struct trajd_record_array *dataset)
{
    const bool is_nested = strchr(path, '/') != NULL;
    bool there = of_family; /* listed just before */
    hid_t object;
    const char *why;

    *dataset = (struct trajd_record_array){.path = path};
    if (!of_family)
        there = is_nested ? check_links(group, path) > 0 : H5Lexists(group, path, H5P_DEFAULT) > 0;
    if (!there && !is_nested)
        return false;
    object = there ? H5Dopen2(group, path, H5P_DEFAULT) : -1;
    if (object < 0)
        return refuse_object(scan, group, path, of_family, dataset);
    why = describe(scan, object, is_start(scan->layout, path), dataset);
    if (why)
        refuse(scan, dataset, why);
    H5Dclose(object);
    return true;
}
