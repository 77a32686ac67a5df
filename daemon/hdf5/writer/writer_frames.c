/* For `trajctl pack`: copies a whole file as it is, but without the datasets that are packed, and
 * then makes a group of packed frames in place of each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"
#include "daemon/index/rows/array.h"

enum { DEPTH_MAX = 32, GROUPS_MAX = 1 << 20, WORD_COUNT = 4 };
#define WORD_SIZE 32

/* ---- the file ---- */

struct copying {
    struct trajd_writer *writer;
    char **left_out; /* ascending by strcmp */
    uint32_t left_out_count;
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

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_left_out(const struct copying *copying, const char *path)
{
    return copying->left_out_count &&
           bsearch(&path, copying->left_out, copying->left_out_count, sizeof path, compare_paths);
}

static bool copy_group(const struct copied_group *in, hid_t from, const char *name,
                       const char *path);

/* Copies a dataset, a named type, or a link as it is. */
static bool copy_leaf(const struct copied_group *in, hid_t from, const char *name, const char *path,
                      bool is_link)
{
    const herr_t done = is_link ? H5Lcopy(from, name, in->to, name, H5P_DEFAULT, H5P_DEFAULT)
                                : H5Ocopy(from, name, in->to, name, H5P_DEFAULT, H5P_DEFAULT);

    return done >= 0 || trajd_writer_fail("%s", path);
}

static herr_t visit_member(hid_t from, const char *name, const H5L_info_t *info, void *context)
{
    struct copied_group *in = context;
    char path[TRAJD_WRITER_PATH_SIZE];
    H5O_info_t object;

    if ((size_t)snprintf(path, sizeof path, "%s%s", in->path, name) + 1 >= sizeof path)
        in->failed = !trajd_writer_fail("a path is too long");
    else if (info->type != H5L_TYPE_HARD)
        in->failed = !copy_leaf(in, from, name, path, true);
    else if (H5Oget_info_by_name2(from, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        in->failed = !trajd_writer_fail("%s", path);
    else if (is_left_out(in->copying, path))
        return 0;
    else if (object.type == H5O_TYPE_GROUP)
        in->failed = !copy_group(in, from, name, strcat(path, "/"));
    else
        in->failed = !copy_leaf(in, from, name, path, false);
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
    struct copied_group below = {.copying = in->copying, .path = path, .depth = in->depth + 1};
    hid_t group;
    bool ok;

    if (below.depth > DEPTH_MAX || ++in->copying->group_count > GROUPS_MAX)
        return trajd_writer_fail("too many groups, or links that lead back up");
    group = H5Gopen2(from, name, H5P_DEFAULT);
    below.to = H5Gcreate2(in->to, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ok = group >= 0 && below.to >= 0 ? copy_members(&below, group) : trajd_writer_fail("%s", path);
    trajd_writer_close(group);
    trajd_writer_close(below.to);
    return ok;
}

bool trajd_writer_copy_file(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    struct copying copying = {.writer = writer};
    struct copied_group root = {.copying = &copying, .path = ""};
    const hid_t from = H5Gopen2(writer->input, "/", H5P_DEFAULT);
    bool ok;

    copying.left_out = trajd_writer_texts(frame, &copying.left_out_count);
    root.to = H5Gopen2(writer->output, "/", H5P_DEFAULT);
    ok = !frame->failed && from >= 0 && root.to >= 0 ? copy_members(&root, from)
                                                     : trajd_writer_fail("%s", writer->label);
    trajd_writer_close(from);
    trajd_writer_close(root.to);
    return ok;
}

/* ---- packed frames ---- */

static const char *const word_names[WORD_COUNT] = {"encoding", "color", "flip", "unit"};

/* A group of packed frames. */
struct packed {
    char path[TRAJD_WRITER_PATH_SIZE]; /* from the root, without a slash in front */
    uint64_t rows, bytes;
    char words[WORD_COUNT][WORD_SIZE];
    uint64_t size[2]; /* height, width */
    char preparation[TRAJD_PREPARATION_TEXT_MAX + 1];
};

/* Creates an array of one axis in one piece. */
static bool make_piece(hid_t group, const char *name, hid_t type, hsize_t count,
                       struct trajd_writer_array *array)
{
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, NULL);

    H5Pset_obj_track_times(creation, 0);
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    array->id = H5Dcreate2(group, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    array->type = type;
    array->left = array->rows = count;
    array->row_bytes = H5Tget_size(type);
    trajd_writer_close(space);
    trajd_writer_close(creation);
    return array->id >= 0;
}

static bool is_video(hid_t source)
{
    return H5Iget_type(source) == H5I_GROUP && H5Aexists(source, "codec") > 0;
}

/* Returns whether the source has the rows that the parent counted. Packed frames have one offset
 * more. */
static bool has_rows(hid_t source, uint64_t rows)
{
    const bool is_group = H5Iget_type(source) == H5I_GROUP, has_end = is_group && !is_video(source);
    const hid_t dataset =
        is_group ? H5Dopen2(source, has_end ? "offsets" : "rows", H5P_DEFAULT) : source;
    const hid_t space = dataset < 0 ? -1 : H5Dget_space(dataset);
    hsize_t shape[H5S_MAX_RANK] = {0};
    const int rank = space < 0 ? 0 : H5Sget_simple_extent_dims(space, shape, NULL);

    trajd_writer_close(space);
    if (is_group)
        trajd_writer_close(dataset);
    return rank > 0 && shape[0] == rows + has_end;
}

static bool set_words(hid_t group, const struct packed *packed)
{
    const hsize_t count = 2;
    const hid_t space = H5Screate_simple(1, &count, NULL);
    bool ok =
        trajd_writer_set(group, "size", H5T_STD_I64LE, space, H5T_NATIVE_UINT64, packed->size);

    trajd_writer_close(space);
    for (int w = 0; w < WORD_COUNT && ok; w++)
        ok = trajd_writer_set_text(group, word_names[w], packed->words[w], true);
    return ok && (!*packed->preparation ||
                  trajd_writer_set_text(group, "preparation", packed->preparation, true));
}

/* Deletes what says how a video is packed. */
static void delete_video_words(hid_t group)
{
    static const char *const names[] = {"version", "codec", "pixel_format", "matrix",
                                        "range",   "media", "media_size",   "largest_unit"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (H5Aexists(group, names[i]) > 0)
            H5Adelete(group, names[i]);
}

/* Fills the group. The attributes of frames that were packed already are copied first, because the
 * new frames have words of their own; those of a dataset are copied where they are none of these
 * words. */
static bool fill_group(struct trajd_writer *writer, hid_t source, hid_t group,
                       const struct packed *packed)
{
    struct trajd_writer_array *arrays = trajd_writer_add_episode(writer, 2);
    const bool is_group = H5Iget_type(source) == H5I_GROUP;

    if (!make_piece(group, "bytes", H5T_STD_U8LE, packed->bytes, &arrays[0]) ||
        !make_piece(group, "offsets", H5T_STD_I64LE, packed->rows + 1, &arrays[1]))
        return trajd_writer_fail("%s", packed->path);
    if (is_group)
        trajd_writer_copy_attributes(writer, source, group, packed->path);
    if (is_video(source))
        delete_video_words(group);
    if (!set_words(group, packed))
        return trajd_writer_fail("%s", packed->path);
    if (!is_group)
        trajd_writer_copy_attributes(writer, source, group, packed->path);
    return true;
}

static bool make_group(struct trajd_writer *writer, hid_t source, const struct packed *packed)
{
    hid_t group;
    bool ok;

    if (source < 0)
        return trajd_writer_fail("%s", packed->path);
    if (!has_rows(source, packed->rows))
        return trajd_writer_fail(
            "%.1000s has another number of rows than its episode: it cannot be packed",
            packed->path);
    if (H5Iget_type(source) != H5I_GROUP && H5Aexists(source, "preparation") > 0)
        return trajd_writer_fail(
            "%.1000s has an attribute preparation, which says of packed frames how they were "
            "prepared: rename it",
            packed->path);
    group = trajd_writer_make_group(writer->output, packed->path);
    ok = group >= 0 ? fill_group(writer, source, group, packed)
                    : trajd_writer_fail("%s", packed->path);
    trajd_writer_close(group);
    return ok;
}

/* Closes the arrays of the frames before: prepared frames may need less room than was made. */
static void close_arrays_before(struct trajd_writer *writer)
{
    if (!writer->episode_count)
        return;
    for (uint32_t a = 0; a < 2; a++) {
        struct trajd_writer_array *array = &writer->episodes[writer->episode_count - 1].arrays[a];
        trajd_writer_close(array->id);
        array->id = -1;
    }
}

bool trajd_writer_frames(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    struct packed packed;
    hid_t source;
    bool ok;

    trajd_writer_text(frame, packed.path, sizeof packed.path);
    packed.rows = trajd_writer_u64(frame);
    packed.bytes = trajd_writer_u64(frame);
    for (int w = 0; w < WORD_COUNT; w++)
        trajd_writer_text(frame, packed.words[w], sizeof packed.words[w]);
    for (int d = 0; d < 2; d++)
        packed.size[d] = trajd_writer_u32(frame);
    trajd_writer_text(frame, packed.preparation, sizeof packed.preparation);
    if (frame->failed || writer->input < 0)
        return trajd_writer_fail("frames of the recipe cannot be read");
    close_arrays_before(writer);
    source = H5Oopen(writer->input, packed.path, H5P_DEFAULT);
    ok = make_group(writer, source, &packed);
    trajd_writer_close(source);
    return ok;
}
