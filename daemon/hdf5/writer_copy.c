/* Copies the objects outside the episodes: attributes, groups, small tables. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer.h"

enum { DEPTH_MAX = 32, NAME_SIZE = 1025 };

struct comparison {
    struct trajd_writer *writer;
    hid_t to;
    const char *path;
};

bool trajd_writer_copy_object(struct trajd_writer *writer, hid_t from, hid_t to, const char *name)
{
    if (H5Ocopy(from, name, to, name, H5P_DEFAULT, H5P_DEFAULT) >= 0)
        return true;
    H5Eclear2(H5E_DEFAULT);
    if (H5Lexists(to, name, H5P_DEFAULT) > 0)
        H5Ldelete(to, name, H5P_DEFAULT);
    H5Eclear2(H5E_DEFAULT);
    trajd_writer_note(writer, "%s: %s cannot be carried over", writer->label, name);
    return false;
}

hid_t trajd_writer_make_group(hid_t from, const char *path)
{
    hid_t links, group;

    if (!path[strspn(path, "/")])
        return H5Gopen2(from, "/", H5P_DEFAULT);
    if (H5Lexists(from, path, H5P_DEFAULT) > 0)
        return H5Gopen2(from, path, H5P_DEFAULT);
    H5Eclear2(H5E_DEFAULT);
    links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    group = H5Gcreate2(from, path, links, H5P_DEFAULT, H5P_DEFAULT);
    H5Pclose(links);
    return group;
}

struct level {
    struct trajd_writer *writer;
    hid_t to;
    char path[TRAJD_WRITER_PATH_SIZE]; /* of the group; "": the root */
    /* the rest of the pattern of groups, below this one */
    const char *pattern;
    unsigned depth;
    bool failed;
};

static bool copy_level(struct trajd_writer *writer, hid_t from, const char *path,
                       const char *pattern, unsigned depth);

/* Copies an object that is no episode. Groups on the way to episodes are created, and the episodes
 * in them are not copied. */
static herr_t visit_link(hid_t from, const char *name, const H5L_info_t *info, void *context)
{
    struct level *level = context;
    const size_t length = strcspn(level->pattern, "/");
    char component[NAME_SIZE], path[TRAJD_WRITER_PATH_SIZE];
    H5O_info_t object;

    (void)info;
    snprintf(component, sizeof component, "%.*s", (int)length, level->pattern);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", level->path, name) >= sizeof path)
        return 0;
    if (*level->writer->filter_folder && !strcmp(path, level->writer->filter_folder))
        return 0;
    if (H5Oget_info_by_name2(from, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
        H5Eclear2(H5E_DEFAULT);
        if (level->writer->is_first)
            trajd_writer_note(level->writer, "%s: %s is a link that leads nowhere: left out",
                              level->writer->label, path);
        return 0;
    }
    if (object.type == H5O_TYPE_GROUP && !fnmatch(component, name, 0)) {
        const hid_t below = level->pattern[length] ? H5Gopen2(from, name, H5P_DEFAULT) : -1;
        if (below >= 0) {
            level->failed = !copy_level(level->writer, below, path, level->pattern + length + 1,
                                        level->depth + 1);
            H5Gclose(below);
        }
    } else if (level->writer->is_first) {
        trajd_writer_copy_object(level->writer, from, level->to, name);
    }
    return level->failed ? 1 : 0;
}

static char *attribute_bytes(hid_t object, const char *name, size_t *size)
{
    const struct trajd_writer_attribute attribute = trajd_writer_open_attribute(object, name);
    const hid_t type = attribute.type;
    char *bytes = NULL;

    *size = 0;
    if (type >= 0 && H5Sget_simple_extent_npoints(attribute.space) == 1 &&
        H5Tis_variable_str(type) > 0) {
        bytes = trajd_writer_variable_text(&attribute);
        *size = bytes ? strlen(bytes) : 0;
    } else if (type >= 0 && H5Tdetect_class(type, H5T_VLEN) <= 0 &&
               H5Sget_simple_extent_npoints(attribute.space) > 0) {
        *size = (size_t)H5Sget_simple_extent_npoints(attribute.space) * H5Tget_size(type);
        bytes = calloc(1, *size + 1);
        if (bytes && H5Aread(attribute.id, type, bytes) < 0)
            *size = 0;
    }
    trajd_writer_close_attribute(&attribute);
    return bytes;
}

/* Notes an attribute that differs from the first input's. Counts are computed anew, so they may
 * differ. */
static herr_t compare_attribute(hid_t object, const char *name, const H5A_info_t *info,
                                void *context)
{
    struct comparison *comparison = context;
    size_t here_size, there_size;
    char *here, *there;

    (void)info;
    if (!strcmp(name, "total") || !strncmp(name, "num_", 4))
        return 0;
    here = attribute_bytes(object, name, &here_size);
    there = attribute_bytes(comparison->to, name, &there_size);
    if (!there || !here || here_size != there_size || memcmp(here, there, here_size))
        trajd_writer_note(comparison->writer,
                          "%s: attribute %s of %s is not that of the first input, which is kept",
                          comparison->writer->label, name,
                          *comparison->path ? comparison->path : "/");
    free(here);
    free(there);
    return 0;
}

static bool copy_level(struct trajd_writer *writer, hid_t from, const char *path,
                       const char *pattern, unsigned depth)
{
    struct level level = {.writer = writer, .pattern = pattern, .depth = depth};
    struct comparison comparison = {.writer = writer, .path = path};
    hsize_t position = 0, attribute_position = 0;

    if (depth > DEPTH_MAX)
        return trajd_writer_fail("groups are nested too deep");
    snprintf(level.path, sizeof level.path, "%s", path);
    level.to = trajd_writer_make_group(writer->output, *path ? path : "/");
    if (level.to < 0)
        return trajd_writer_fail(*path ? path : "/");
    comparison.to = level.to;
    if (writer->is_first)
        level.failed = !trajd_writer_copy_attributes(writer, from, level.to, *path ? path : "/");
    else
        level.failed = H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_INC, &attribute_position,
                                   compare_attribute, &comparison) < 0;
    if (!level.failed &&
        H5Literate(from, H5_INDEX_NAME, H5_ITER_INC, &position, visit_link, &level) < 0)
        level.failed = true;
    H5Gclose(level.to);
    H5Eclear2(H5E_DEFAULT);
    return !level.failed || trajd_writer_fail(*path ? path : "/");
}

/* Where a file is one episode, the root belongs to the episode, and writer_episode.c copies it. */
bool trajd_writer_copy_surroundings(struct trajd_writer *writer)
{
    hid_t root;
    bool ok;

    if (!writer->groups[1])
        return true;
    root = H5Gopen2(writer->input, "/", H5P_DEFAULT);
    if (root < 0)
        return trajd_writer_fail(writer->label);
    ok = copy_level(writer, root, "", writer->groups + 1, 0);
    H5Gclose(root);
    return ok;
}
