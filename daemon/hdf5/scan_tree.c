/* Walks over all groups and datasets of a file and makes their tree. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "daemon/index/tree/tree.h"

enum { DEPTH_MAX = 32, PATH_SIZE = 4096, WORDS_SIZE = 256 };
static const size_t tree_bytes_max = (size_t)256 << 20;

struct walk {
    struct trajd_tree tree;
    uint32_t object_room, attribute_room; /* of the tree's arrays */
    uint32_t object_count, depth;         /* object_count: links that were followed */
    struct trajd_links_met met;
    char path[PATH_SIZE];
    haddr_t above[DEPTH_MAX]; /* the addresses of the groups on the way here */
};

static const char *copy_text(struct walk *walk, const char *text)
{
    return trajd_helper_memory(trajd_arena_copy(&walk->tree.arena, text, strlen(text)));
}

/* Returns an array with room for one element more. The room doubles. */
static void *make_room(void *array, size_t size, uint32_t count, uint32_t *room)
{
    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 64;
    return trajd_helper_memory(realloc(array, *room * size));
}

/* Adds an object at the current path, with copies of its texts. */
static void add(struct walk *walk, struct trajd_tree_object object)
{
    struct trajd_tree *tree = &walk->tree;

    object.path = copy_text(walk, walk->path);
    object.type = copy_text(walk, object.type ? object.type : "");
    object.storage = copy_text(walk, object.storage ? object.storage : "");
    tree->objects = make_room(tree->objects, sizeof object, tree->object_count, &walk->object_room);
    tree->objects[tree->object_count++] = object;
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
    trajd_helper_make_plain(text, ' ');
    free(copy);
}

static herr_t visit_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context)
{
    struct walk *walk = context;
    struct trajd_tree *tree = &walk->tree;
    char text[TRAJD_TREE_VALUE_MAX + 1];
    struct trajd_scan_value value;

    (void)info;
    if (!trajd_scan_name_ok(name))
        return 0;
    value = trajd_scan_value_open(object, ".", name);
    describe_value(&value, text, sizeof text);
    trajd_scan_value_close(&value);
    tree->attributes = make_room(tree->attributes, sizeof *tree->attributes, tree->attribute_count,
                                 &walk->attribute_room);
    tree->attributes[tree->attribute_count++] =
        (struct trajd_tree_attribute){copy_text(walk, name), copy_text(walk, text)};
    tree->objects[tree->object_count - 1].attribute_count++;
    return 0;
}

static void add_attributes(struct walk *walk, hid_t object)
{
    hsize_t position = 0;

    H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &position, visit_attribute, walk);
    H5Eclear2(H5E_DEFAULT);
}

/* An array of more dimensions than trajd reads is described as a scalar. */
static void read_shape(hid_t space, struct trajd_tree_object *object)
{
    hsize_t shape[H5S_MAX_RANK];
    const int rank = H5Sget_simple_extent_dims(space, shape, NULL);

    for (int i = 0; i < rank && rank <= TRAJD_ARRAY_MAX_RANK; i++)
        object->shape[object->rank++] = shape[i];
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

/* Writes the names of a table's columns: "compound (time, q)". Those that do not fit are left out. */
static void write_columns(hid_t type, char text[WORDS_SIZE])
{
    const int count = H5Tget_nmembers(type);
    size_t used = (size_t)snprintf(text, WORDS_SIZE, "compound");

    for (int i = 0; i < count; i++) {
        char *name = H5Tget_member_name(type, (unsigned)i);
        const bool fits =
            name && trajd_scan_name_ok(name) && used + strlen(name) + sizeof ", ...)" < WORDS_SIZE;
        used += (size_t)snprintf(text + used, WORDS_SIZE - used, "%s%s", i ? ", " : " (",
                                 fits ? name : "...");
        H5free_memory(name);
        if (!fits)
            break;
    }
    if (count > 0)
        strcat(text, ")");
}

/* Finds how the elements are stored, and their type in words. */
static void read_type(hid_t type, struct trajd_tree_object *object, char text[WORDS_SIZE])
{
    static const char *const foreign[] = {"compound", "opaque",    "reference", "array",
                                          "enum",     "bit field", "vlen",      "number"};
    static const H5T_class_t classes[] = {H5T_COMPOUND, H5T_OPAQUE,   H5T_REFERENCE, H5T_ARRAY,
                                          H5T_ENUM,     H5T_BITFIELD, H5T_VLEN,      H5T_NO_CLASS};
    const H5T_class_t class = H5Tget_class(type);
    struct trajd_array array = {0};
    uint32_t element_bytes;
    int which = 0;

    object->type = text;
    if (!trajd_scan_type(type, false, &array, &element_bytes)) {
        object->form = TRAJD_TREE_PLAIN;
        object->dtype = array.dtype;
        object->type = trajd_dtype_name(array.dtype);
        return;
    }
    if (class == H5T_STRING) {
        const bool is_variable = H5Tis_variable_str(type) > 0;
        object->form = is_variable ? TRAJD_TREE_TEXT : TRAJD_TREE_STRING;
        snprintf(text, WORDS_SIZE, is_variable ? "text" : "S%zu", H5Tget_size(type));
        return;
    }
    if (class == H5T_VLEN) {
        const hid_t base = H5Tget_super(type);
        const bool is_bytes =
            !trajd_scan_type(base, false, &array, &element_bytes) && array.dtype == TRAJD_U8;
        H5Tclose(base);
        object->form = TRAJD_TREE_BYTES;
        object->type = "u8 of variable length";
        if (is_bytes)
            return;
    }
    while (classes[which] != H5T_NO_CLASS && classes[which] != class)
        which++;
    object->form = TRAJD_TREE_FOREIGN;
    object->type = class == H5T_COMPOUND ? text : foreign[which];
    if (class == H5T_COMPOUND)
        write_columns(type, text);
}

static void add_dataset(struct walk *walk, hid_t dataset)
{
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    struct trajd_tree_object object = {.kind = TRAJD_TREE_DATASET};
    char words[WORDS_SIZE], storage[WORDS_SIZE];

    read_type(type, &object, words);
    read_shape(space, &object);
    describe_storage(dataset, storage);
    object.storage = storage;
    add(walk, object);
    add_attributes(walk, dataset);
    H5Sclose(space);
    H5Tclose(type);
}

static void add_problem(struct walk *walk, const char *problem)
{
    add(walk, (struct trajd_tree_object){.kind = TRAJD_TREE_PROBLEM, .storage = problem});
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
    add(walk, (struct trajd_tree_object){.kind = TRAJD_TREE_GROUP});
    add_attributes(walk, group);
    walk->above[walk->depth++] = info.addr;
    walk_group(walk, group);
    walk->depth--;
}

static void add_object(struct walk *walk, hid_t group, const char *name)
{
    hid_t object;
    H5I_type_t type;
    const char *lost;

    object = H5Oopen(group, name, H5P_DEFAULT);
    type = object < 0 ? H5I_BADID : H5Iget_type(object);
    lost = object < 0 ? trajd_scan_lost_link(group, name) : NULL;
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

    if (walk->tree.is_cut || walk->object_count == TRAJD_TREE_OBJECTS_MAX) {
        walk->tree.is_cut = true;
        return 1;
    }
    if (!trajd_scan_name_ok(name) ||
        (size_t)snprintf(walk->path + length, PATH_SIZE - length, "%s%s", length ? "/" : "",
                         name) >= PATH_SIZE - length) {
        walk->path[length] = '\0';
        add_problem(walk, "a link whose name is too long or has control characters");
    } else if (info->type == H5L_TYPE_HARD && trajd_links_meet(&walk->met, info->u.address) &&
               walk->met.repeats >= TRAJD_LINKS_REPEATS_MAX) {
        if (walk->met.repeats == TRAJD_LINKS_REPEATS_MAX)
            add_problem(walk, "another name of an object above; further ones are left out");
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

void trajd_scan_tree(int fd, struct trajd_bytes *bytes)
{
    struct trajd_record record = {0};
    struct walk walk = {.tree.arena = {.limit_bytes = tree_bytes_max}};
    struct trajd_tree *tree = &walk.tree;
    struct trajd_scan scan = {.arena = &tree->arena, .record = &record, .descriptor = {.fd = fd}};
    const hid_t access = trajd_descriptor_access(&scan.descriptor);
    struct trajd_error error;
    enum trajd_status status;
    hid_t root;

    scan.file = H5Fopen(TRAJD_DESCRIPTOR_NAME, H5F_ACC_RDONLY, access);
    root = scan.file < 0 ? -1 : H5Gopen2(scan.file, "/", H5P_DEFAULT);
    if (root < 0) { /* reads the error first: the library's next call clears it */
        tree->refusal = trajd_scan_unreadable(&scan, fd);
    } else {
        add_group(&walk, root);
        H5Gclose(root);
    }
    status = trajd_tree_encode(tree, bytes, &error);
    if (status == TRAJD_ERR_ARGUMENT) {
        bytes->length = 0;
        status = trajd_tree_encode(&(struct trajd_tree){.refusal = error.message}, bytes, NULL);
    }
    if (status)
        trajd_helper_memory(NULL);
    trajd_links_met_free(&walk.met);
    if (scan.file >= 0)
        H5Fclose(scan.file);
    H5Pclose(access);
    free(tree->objects);
    free(tree->attributes);
    trajd_arena_free(&tree->arena);
}
