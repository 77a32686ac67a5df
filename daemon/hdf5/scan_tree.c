/* Walks over all groups and datasets of a file and writes a line for each. */
#include "daemon/hdf5/scan_tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/group_links.h"
#include "daemon/hdf5/scan.h"
#include "daemon/hdf5/scan_value.h"
#include "daemon/index/tree/tree.h"

enum { DEPTH_MAX = 32, PATH_SIZE = 4096, WORDS_SIZE = 256, ATTRIBUTES_MAX = 64 };

struct walk {
    struct trajd_bytes *lines;
    uint32_t object_count, depth;
    char path[PATH_SIZE];
    haddr_t above[DEPTH_MAX]; /* the addresses of the groups on the way here */
    bool is_cut;
};

static void add(struct walk *walk, const char *text)
{
    trajd_bytes_add(walk->lines, text, strlen(text));
}

/* Appends the fields, with tabs between them and a newline at the end. NULL ends the list. */
static void add_line(struct walk *walk, const char *const *fields)
{
    for (uint32_t i = 0; fields[i]; i++) {
        if (i)
            add(walk, "\t");
        add(walk, fields[i]);
    }
    add(walk, "\n");
}

/* Writes the value in words: a text, cut to the size, a number, the name of an enum's value, or the
 * number of elements. */
static void describe_value(const struct trajd_scan_value *value, char *text, size_t size)
{
    const H5T_class_t class = value->id < 0 ? H5T_NO_CLASS : H5Tget_class(value->type);
    char *copy = class == H5T_STRING ? trajd_scan_value_read_text(value)
                 : class == H5T_ENUM ? trajd_scan_value_read_enum(value)
                                     : NULL;
    double number;

    snprintf(text, size, "?");
    if (copy)
        snprintf(text, size, "%s", copy);
    else if (value->id >= 0 && !trajd_scan_value_is_one(value))
        snprintf(text, size, "(%lld elements)",
                 (long long)H5Sget_simple_extent_npoints(value->space));
    else if ((class == H5T_INTEGER || class == H5T_FLOAT) &&
             trajd_scan_value_read(value, H5T_NATIVE_DOUBLE, &number))
        snprintf(text, size, "%.9g", number);
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    }
    free(copy);
}

static herr_t visit_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
    struct walk *walk = context;
    char text[TRAJD_TREE_VALUE_MAX + 1];
    struct trajd_scan_value value;

    (void)info;
    if (!trajd_scan_name_ok(name))
        return 0;
    value = trajd_scan_value_open(object, ".", name);
    describe_value(&value, text, sizeof text);
    trajd_scan_value_close(&value);
    add_line(walk, (const char *const[]){"A", name, text, NULL});
    return 0;
}

static void add_attributes(struct walk *walk, hid_t object)
{
    hsize_t position = 0;

    H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &position, visit_attribute, walk);
    H5Eclear2(H5E_DEFAULT);
}

static void describe_shape(hid_t space, char text[WORDS_SIZE])
{
    hsize_t shape[H5S_MAX_RANK];
    const int rank = H5Sget_simple_extent_dims(space, shape, NULL);
    size_t used = 0;

    strcpy(text, "-");
    for (int i = 0; i < rank && rank <= TRAJD_ARRAY_MAX_RANK; i++)
        used += (size_t)snprintf(text + used, WORDS_SIZE - used, "%s%" PRIu64, i ? "," : "",
                                 (uint64_t)shape[i]);
}

static size_t describe_filters(hid_t creation, char text[WORDS_SIZE], size_t used)
{
    const int count = H5Pget_nfilters(creation);

    for (int i = 0; i < count && used < WORDS_SIZE; i++) {
        unsigned flags, values;
        size_t value_count = 0;
        char name[64] = "";
        const H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &value_count,
                                                   NULL, sizeof name, name, &values);
        if (filter == TRAJD_FILTER_DEFLATE)
            strcpy(name, "gzip");
        used += (size_t)snprintf(text + used, WORDS_SIZE - used, " %s",
                                 trajd_scan_name_ok(name) ? name : "filter");
    }
    return used;
}

static void describe_storage(hid_t dataset, char text[WORDS_SIZE])
{
    const hid_t creation = H5Dget_create_plist(dataset);
    const H5D_layout_t layout = H5Pget_layout(creation);
    hsize_t chunk[H5S_MAX_RANK];
    int rank = layout == H5D_CHUNKED ? H5Pget_chunk(creation, H5S_MAX_RANK, chunk) : 0;
    size_t used = 0;

    snprintf(text, WORDS_SIZE, "%s",
             layout == H5D_COMPACT      ? "compact"
             : layout == H5D_VIRTUAL    ? "virtual"
             : layout == H5D_CONTIGUOUS ? "contiguous"
                                        : "chunks (");
    if (H5Pget_external_count(creation) > 0)
        strcpy(text, "external");
    used = strlen(text);
    for (int i = 0; i < rank && rank <= TRAJD_ARRAY_MAX_RANK; i++)
        used += (size_t)snprintf(text + used, WORDS_SIZE - used, "%" PRIu64 "%s",
                                 (uint64_t)chunk[i], i + 1 < rank ? "," : ")");
    describe_filters(creation, text, used);
    H5Pclose(creation);
}

static const char *describe_type(hid_t type, char text[WORDS_SIZE])
{
    static const char *const foreign[] = {"compound", "opaque",    "reference", "array",
                                          "enum",     "bit field", "vlen",      "number"};
    static const H5T_class_t classes[] = {H5T_COMPOUND, H5T_OPAQUE,   H5T_REFERENCE, H5T_ARRAY,
                                          H5T_ENUM,     H5T_BITFIELD, H5T_VLEN,      H5T_NO_CLASS};
    const H5T_class_t class = H5Tget_class(type);
    struct trajd_array array = {0};
    uint32_t element_bytes;
    int which = 0;

    if (!trajd_scan_type(type, false, &array, &element_bytes))
        return strcpy(text, trajd_dtype_name(array.dtype)), "plain";
    if (class == H5T_STRING && H5Tis_variable_str(type) > 0)
        return strcpy(text, "text"), "text";
    if (class == H5T_STRING)
        return snprintf(text, WORDS_SIZE, "S%zu", H5Tget_size(type)), "string";
    if (class == H5T_VLEN) {
        const hid_t base = H5Tget_super(type);
        const bool is_bytes =
            !trajd_scan_type(base, false, &array, &element_bytes) && array.dtype == TRAJD_U8;
        H5Tclose(base);
        if (is_bytes)
            return strcpy(text, "u8 of variable length"), "bytes";
    }
    while (classes[which] != H5T_NO_CLASS && classes[which] != class)
        which++;
    return strcpy(text, foreign[which]), "foreign";
}

static void add_dataset(struct walk *walk, hid_t dataset)
{
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    char words[WORDS_SIZE], shape[WORDS_SIZE], storage[WORDS_SIZE];
    const char *form = describe_type(type, words);

    describe_shape(space, shape);
    describe_storage(dataset, storage);
    add_line(walk, (const char *const[]){"D", walk->path, form, words, shape, storage, NULL});
    add_attributes(walk, dataset);
    H5Sclose(space);
    H5Tclose(type);
}

static void add_problem(struct walk *walk, const char *problem)
{
    add_line(walk, (const char *const[]){"L", walk->path, problem, NULL});
}

static void walk_group(struct walk *walk, hid_t group);

/* Adds the group, unless it is one of those above it. */
static void add_group(struct walk *walk, hid_t group)
{
    H5O_info_t info;

    if (H5Oget_info2(group, &info, H5O_INFO_BASIC) < 0) {
        add_problem(walk, "a group that cannot be read");
        return;
    }
    for (uint32_t i = 0; i < walk->depth; i++) {
        if (walk->above[i] == info.addr) {
            add_problem(walk, "a link to a group above it");
            return;
        }
    }
    if (walk->depth == DEPTH_MAX) {
        add_problem(walk, "a group that lies too deep");
        return;
    }
    add_line(walk, (const char *const[]){"G", walk->path, NULL});
    add_attributes(walk, group);
    walk->above[walk->depth++] = info.addr;
    walk_group(walk, group);
    walk->depth--;
}

static void add_object(struct walk *walk, hid_t group, const char *name)
{
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    const H5I_type_t type = object < 0 ? H5I_BADID : H5Iget_type(object);
    const char *lost = object < 0 ? trajd_scan_lost_link(group, name) : NULL;

    if (type == H5I_DATASET)
        add_dataset(walk, object);
    else if (type == H5I_GROUP)
        add_group(walk, object);
    else if (object < 0)
        add_problem(walk, lost ? lost : "an object that cannot be opened");
    if (object >= 0)
        H5Oclose(object);
    H5Eclear2(H5E_DEFAULT);
}

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct walk *walk = context;
    const size_t length = strlen(walk->path);

    (void)info;
    if (walk->is_cut || walk->object_count == TRAJD_TREE_OBJECTS_MAX || walk->lines->failed) {
        walk->is_cut = true;
        return 1;
    }
    if (!trajd_scan_name_ok(name) ||
        (size_t)snprintf(walk->path + length, PATH_SIZE - length, "%s%s", length ? "/" : "",
                         name) >= PATH_SIZE - length) {
        walk->path[length] = '\0';
        add_problem(walk, "a link whose name is too long or has control characters");
    } else {
        add_object(walk, group, name);
    }
    walk->object_count++;
    walk->path[length] = '\0';
    return 0;
}

static void walk_group(struct walk *walk, hid_t group)
{
    char problem[TRAJD_LINKS_PROBLEM_SIZE];

    if (!trajd_links_visit(group, visit_link, walk, problem))
        add_problem(walk, "a damaged group: its links cannot all be listed");
    H5Eclear2(H5E_DEFAULT);
}

void trajd_scan_tree(int fd, struct trajd_bytes *lines)
{
    struct trajd_arena arena = {.limit_bytes = 1 << 20};
    struct trajd_record record = {0};
    struct trajd_scan scan = {.arena = &arena, .record = &record, .descriptor = {.fd = fd}};
    const hid_t access = trajd_descriptor_access(&scan.descriptor);
    struct walk walk = {.lines = lines};
    hid_t root;

    scan.file = H5Fopen(TRAJD_DESCRIPTOR_NAME, H5F_ACC_RDONLY, access);
    root = scan.file < 0 ? -1 : H5Gopen2(scan.file, "/", H5P_DEFAULT);
    if (root < 0) { /* reads the error first: the library's next call clears it */
        const char *reason = trajd_scan_unreadable(&scan, fd);
        add_line(&walk, (const char *const[]){"X", reason, NULL});
    } else {
        add_group(&walk, root);
        H5Gclose(root);
    }
    if (walk.is_cut)
        add(&walk, "M\n");
    if (scan.file >= 0)
        H5Fclose(scan.file);
    H5Pclose(access);
    trajd_arena_free(&arena);
}
