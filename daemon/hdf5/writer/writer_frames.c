/* Copies a whole file for `trajctl pack`: as it is, but with a group of packed frames in place of
 * each listed dataset. The parent writes the frames. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/group_links.h"
#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/writer/writer.h"
#include "daemon/index/rows/array.h"

enum { DATASETS_MAX = 1 << 20, DEPTH_MAX = 32, GROUPS_MAX = 1 << 20, WORD_COUNT = 4 };
#define WORD_SIZE 32

static const char *const word_names[WORD_COUNT] = {"encoding", "color", "flip", "unit"};

/* A dataset, or a group of packed frames, of the input that is packed. */
struct packed {
    char *path; /* from the root, without a slash in front */
    uint64_t rows, bytes;
    char words[WORD_COUNT][WORD_SIZE];
    uint64_t size[2]; /* height, width */
    char preparation[TRAJD_PREPARATION_TEXT_MAX + 1];
    bool is_made;
};

struct copying {
    struct trajd_writer *writer;
    struct packed *packed; /* ascending by strcmp of their paths */
    uint32_t packed_count;
    uint64_t *places; /* two for each: of its bytes, of its offsets */
    uint32_t group_count;
};

/* A group that is copied. */
struct copied_group {
    struct copying *copying;
    hid_t to;
    const char *path; /* "" or "obs/" */
    unsigned depth;
    bool failed; /* the failure is sent */
};

/* ---- packed frames ---- */

static bool set_numbers(hid_t group, const char *name, const uint64_t *numbers, hsize_t count)
{
    const hid_t space = H5Screate_simple(1, &count, NULL);
    const hid_t attribute = H5Acreate2(group, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool ok = attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_UINT64, numbers) >= 0;

    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return ok;
}

/* Creates a dataset of one axis in one piece, and finds its place. */
static bool make_piece(hid_t group, const char *name, hid_t type, hsize_t count, uint64_t *place)
{
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, NULL);
    hid_t made;
    haddr_t address = HADDR_UNDEF;

    H5Pset_obj_track_times(creation, 0);
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    made = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (made >= 0 && count)
        address = H5Dget_offset(made);
    *place = address == HADDR_UNDEF ? UINT64_MAX : address;
    if (made >= 0)
        H5Dclose(made);
    H5Sclose(space);
    H5Pclose(creation);
    return made >= 0 && (!count || address != HADDR_UNDEF);
}

/* Returns whether the source has the rows that the parent counted. Packed frames have one offset
 * more. */
static bool has_rows(hid_t source, uint64_t rows)
{
    const bool is_group = H5Iget_type(source) == H5I_GROUP;
    const hid_t dataset = is_group ? H5Dopen2(source, "offsets", H5P_DEFAULT) : source;
    const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    hsize_t shape[H5S_MAX_RANK] = {0};
    const int rank = space < 0 ? 0 : H5Sget_simple_extent_dims(space, shape, NULL);

    if (space >= 0)
        H5Sclose(space);
    if (is_group && dataset >= 0)
        H5Dclose(dataset);
    return rank > 0 && shape[0] == rows + is_group;
}

/* Removes attributes of packed frames that were copied: the new frames have their own. */
static void remove_words(hid_t group)
{
    for (int w = 0; w < WORD_COUNT; w++)
        if (H5Aexists(group, word_names[w]) > 0)
            H5Adelete(group, word_names[w]);
    if (H5Aexists(group, "size") > 0)
        H5Adelete(group, "size");
}

static bool set_words(hid_t group, const struct packed *packed)
{
    bool ok = set_numbers(group, "size", packed->size, 2);

    for (int w = 0; w < WORD_COUNT && ok; w++)
        ok = trajd_writer_set_text(group, word_names[w], packed->words[w], true);
    return ok && (!*packed->preparation ||
                  trajd_writer_set_text(group, "preparation", packed->preparation, true));
}

static bool make_packed(const struct copied_group *in, hid_t source, const char *name,
                        struct packed *packed)
{
    struct copying *copying = in->copying;
    const bool is_group = H5Iget_type(source) == H5I_GROUP;
    uint64_t *places = copying->places + 2 * (packed - copying->packed);
    char what[TRAJD_WRITER_PATH_SIZE];
    hid_t group;
    bool ok;

    if (!has_rows(source, packed->rows)) {
        snprintf(what, sizeof what,
                 "%.1000s has another number of rows than its episode: it cannot be packed",
                 packed->path);
        return trajd_writer_fail(what);
    }
    if (!is_group && H5Aexists(source, "preparation") > 0) {
        snprintf(what, sizeof what,
                 "%.1000s has an attribute preparation, which says of packed frames how they were "
                 "prepared: rename it",
                 packed->path);
        return trajd_writer_fail(what);
    }
    group = H5Gcreate2(in->to, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ok = group >= 0 && make_piece(group, "bytes", H5T_STD_U8LE, packed->bytes, &places[0]) &&
         make_piece(group, "offsets", H5T_STD_I64LE, packed->rows + 1, &places[1]);
    if (ok && is_group) {
        trajd_writer_copy_attributes(copying->writer, source, group, packed->path);
        remove_words(group);
    }
    ok = ok && set_words(group, packed);
    if (ok && !is_group)
        trajd_writer_copy_attributes(copying->writer, source, group, packed->path);
    if (group >= 0)
        H5Gclose(group);
    packed->is_made = ok;
    return ok || trajd_writer_fail(packed->path);
}

/* ---- the file ---- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct packed *)a)->path, ((const struct packed *)b)->path);
}

static struct packed *find_packed(const struct copying *copying, char *path)
{
    const struct packed key = {.path = path};

    return copying->packed_count
               ? bsearch(&key, copying->packed, copying->packed_count, sizeof key, compare_paths)
               : NULL;
}

static bool copy_group(const struct copied_group *in, hid_t from, const char *name,
                       const char *path);

/* Copies a dataset, a named type, or a link as it is. */
static bool copy_leaf(const struct copied_group *in, hid_t from, const char *name, const char *path,
                      bool is_link)
{
    const herr_t done = is_link ? H5Lcopy(from, name, in->to, name, H5P_DEFAULT, H5P_DEFAULT)
                                : H5Ocopy(from, name, in->to, name, H5P_DEFAULT, H5P_DEFAULT);

    return done >= 0 || trajd_writer_fail(path);
}

static herr_t visit_member(hid_t from, const char *name, const H5L_info_t *info, void *context)
{
    struct copied_group *in = context;
    char path[TRAJD_WRITER_PATH_SIZE];
    struct packed *packed;
    H5O_info_t object;
    hid_t source;

    if ((size_t)snprintf(path, sizeof path, "%s%s", in->path, name) + 1 >= sizeof path) {
        in->failed = !trajd_writer_fail("a path is too long");
    } else if (info->type != H5L_TYPE_HARD) {
        in->failed = !copy_leaf(in, from, name, path, true);
    } else if (H5Oget_info_by_name2(from, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
        in->failed = !trajd_writer_fail(path);
    } else if ((packed = find_packed(in->copying, path))) {
        source = H5Oopen(from, name, H5P_DEFAULT);
        in->failed = source < 0 ? !trajd_writer_fail(path) : !make_packed(in, source, name, packed);
        if (source >= 0)
            H5Oclose(source);
    } else if (object.type == H5O_TYPE_GROUP) {
        in->failed = !copy_group(in, from, name, strcat(path, "/"));
    } else {
        in->failed = !copy_leaf(in, from, name, path, false);
    }
    return in->failed;
}

static bool copy_members(struct copied_group *in, hid_t from)
{
    struct trajd_writer *writer = in->copying->writer;
    char problem[TRAJD_LINKS_PROBLEM_SIZE];

    trajd_writer_copy_attributes(writer, from, in->to, in->path);
    return (trajd_links_visit(from, visit_member, in, problem) ||
            trajd_writer_fail_group(writer->label, in->path, problem)) &&
           !in->failed;
}

static bool copy_group(const struct copied_group *in, hid_t from, const char *name,
                       const char *path)
{
    struct copied_group below = {
        .copying = in->copying, .path = path, .depth = in->depth + 1, .to = -1};
    hid_t group;
    bool ok;

    if (below.depth > DEPTH_MAX || ++in->copying->group_count > GROUPS_MAX)
        return trajd_writer_fail("too many groups, or links that lead back up");
    group = H5Gopen2(from, name, H5P_DEFAULT);
    below.to = H5Gcreate2(in->to, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ok = group >= 0 && below.to >= 0 ? copy_members(&below, group) : trajd_writer_fail(path);
    if (group >= 0)
        H5Gclose(group);
    if (below.to >= 0)
        H5Gclose(below.to);
    return ok;
}

static bool copy_file(struct copying *copying)
{
    const hid_t from = H5Gopen2(copying->writer->input, "/", H5P_DEFAULT);
    struct copied_group root = {.copying = copying, .path = "", .to = -1};
    bool ok = from >= 0 || trajd_writer_fail(copying->writer->label);

    root.to = H5Gopen2(copying->writer->output, "/", H5P_DEFAULT);
    ok = ok && (root.to >= 0 || trajd_writer_fail("the output")) && copy_members(&root, from);
    if (from >= 0)
        H5Gclose(from);
    if (root.to >= 0)
        H5Gclose(root.to);
    for (uint32_t i = 0; i < copying->packed_count && ok; i++)
        ok = copying->packed[i].is_made || trajd_writer_fail(copying->packed[i].path);
    return ok;
}

/* ---- the frame ---- */

static bool read_packed(struct packed *packed, struct trajd_writer_frame *frame)
{
    char path[TRAJD_WRITER_PATH_SIZE];

    trajd_writer_text(frame, path, sizeof path);
    packed->rows = trajd_writer_u64(frame);
    packed->bytes = trajd_writer_u64(frame);
    for (int w = 0; w < WORD_COUNT; w++)
        trajd_writer_text(frame, packed->words[w], sizeof packed->words[w]);
    for (int d = 0; d < 2; d++)
        packed->size[d] = trajd_writer_u32(frame);
    trajd_writer_text(frame, packed->preparation, sizeof packed->preparation);
    packed->path = frame->failed ? NULL : strdup(path);
    return packed->path != NULL;
}

bool trajd_writer_frames(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint32_t count = trajd_writer_u32(frame);
    struct copying copying = {.writer = writer};
    bool ok = !frame->failed && count <= DATASETS_MAX;

    copying.packed = ok ? calloc((size_t)count + 1, sizeof *copying.packed) : NULL;
    copying.places = ok ? calloc(2 * (size_t)count + 1, sizeof *copying.places) : NULL;
    ok = ok && copying.packed && copying.places;
    for (; copying.packed_count < count && ok; copying.packed_count++) {
        ok = read_packed(&copying.packed[copying.packed_count], frame) &&
             (!copying.packed_count || compare_paths(&copying.packed[copying.packed_count - 1],
                                                     &copying.packed[copying.packed_count]) < 0);
    }
    ok = ok ? copy_file(&copying) : trajd_writer_fail("the list of datasets cannot be read");
    ok = ok && trajd_helper_send(TRAJD_WRITER_OFFSETS, copying.places,
                                 2 * (size_t)count * sizeof *copying.places);
    for (uint32_t i = 0; copying.packed && i <= count && copying.packed[i].path; i++)
        free(copying.packed[i].path);
    free(copying.packed);
    free(copying.places);
    return ok && trajd_writer_close_output(writer);
}
