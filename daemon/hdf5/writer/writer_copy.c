/* Copies the objects outside the episodes: attributes, groups, small tables. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"
#include "daemon/layout/layout.h"

enum { DEPTH_MAX = 32, NAME_SIZE = 1025, COPY_BYTES_MAX = 64 << 20, GROUPS_MAX = 4096 };

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

/* ---- objects that no stream names ---- */

static bool is_known(const struct trajd_writer *writer, const char *path)
{
    for (uint32_t i = 0; i < writer->known_count; i++)
        if (!strcmp(writer->known[i], path))
            return true;
    return false;
}

static bool is_table(const struct trajd_writer *writer, const char *path)
{
    for (uint32_t i = 0; i < writer->table_count; i++)
        if (trajd_layout_match(writer->tables[i], path, NULL, 0))
            return true;
    return false;
}

/* Returns whether the path was not reported before, and remembers it. False as well when the list
 * is full. */
static bool is_first_report(struct trajd_writer *writer, const char *path)
{
    for (uint32_t i = 0; i < writer->reported_count; i++)
        if (!strcmp(writer->reported[i], path))
            return false;
    if (writer->reported_count == TRAJD_WRITER_REPORTED_MAX)
        return false;
    writer->reported[writer->reported_count++] = trajd_helper_memory(strdup(path));
    return true;
}

/* Copies a dataset or a named type. Its attributes are copied one by one, so that one that cannot
 * be read does not lose the object. H5Ocopy fails if libhdf5 cannot list the attributes; then the
 * values are copied. */
static void copy_object(const struct trajd_writer_beside *beside, hid_t from, hid_t to,
                        const char *name, const char *path)
{
    const hid_t copying = H5Pcreate(H5P_OBJECT_COPY);
    hid_t source, made;
    bool ok;

    H5Pset_copy_object(copying, H5O_COPY_WITHOUT_ATTR_FLAG);
    ok = H5Ocopy(from, name, to, name, copying, H5P_DEFAULT) >= 0;
    H5Pclose(copying);
    H5Eclear2(H5E_DEFAULT);
    if (!ok && H5Lexists(to, name, H5P_DEFAULT) > 0)
        H5Ldelete(to, name, H5P_DEFAULT);
    source = H5Oopen(from, name, H5P_DEFAULT);
    ok = ok || (source >= 0 && H5Iget_type(source) == H5I_DATASET &&
                H5Dget_storage_size(source) <= COPY_BYTES_MAX &&
                trajd_writer_copy_values(source, to, name));
    made = ok ? H5Oopen(to, name, H5P_DEFAULT) : -1;
    if (source >= 0 && made >= 0)
        trajd_writer_copy_attributes(beside->writer, source, made, path);
    trajd_writer_close(source);
    trajd_writer_close(made);
    H5Eclear2(H5E_DEFAULT);
    if (!ok)
        trajd_writer_note(beside->writer, "%s: %s cannot be carried over", beside->label, path);
}

/* Gives an episode that is cut out of longer arrays an object that it shares with the other ones:
 * the object is copied once, and each episode has a hard link to it. */
static void link_object(const struct trajd_writer_beside *beside, hid_t from, hid_t to,
                        const char *name, const char *path)
{
    char folder_path[TRAJD_WRITER_PATH_SIZE];
    hid_t folder, shared = H5Oopen(beside->shared, path, H5P_DEFAULT);

    if (shared < 0) {
        snprintf(folder_path, sizeof folder_path, "%.*s", (int)(strlen(path) - strlen(name)), path);
        folder = *folder_path ? trajd_writer_make_group(beside->shared, folder_path)
                              : H5Oopen(beside->shared, ".", H5P_DEFAULT);
        copy_object(beside, from, folder, name, path);
        trajd_writer_close(folder);
    }
    trajd_writer_close(shared);
    if (H5Lexists(to, name, H5P_DEFAULT) <= 0)
        H5Lcreate_hard(beside->shared, path, to, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Eclear2(H5E_DEFAULT);
}

/* Notes a dataset that is not in the output. Returns true. */
static bool leave_out(const struct trajd_writer_beside *beside, const char *path, const char *why)
{
    if (is_first_report(beside->writer, path))
        trajd_writer_note(beside->writer,
                          "%s: no stream of the layout, and %s: left out (first in %s)", path, why,
                          beside->label);
    return true;
}

/* Copies a dataset of an episode, along the axis that counts rows if there is one. */
static bool copy_dataset(const struct trajd_writer_beside *beside, hid_t from, hid_t to,
                         const char *name, const char *path, hid_t dataset)
{
    struct trajd_writer_pick pick = {.length = TRAJD_LENGTH_SAME};
    const char *obstacle;

    if (!is_table(beside->writer, path) && !trajd_writer_find_length(beside, dataset, path, &pick))
        return false;
    if (pick.length == TRAJD_LENGTH_ROWS) {
        if (!trajd_writer_pick_rows(beside, dataset, to, name, path, &pick, &obstacle))
            return false;
        if (obstacle)
            return leave_out(beside, path, obstacle);
        if (is_first_report(beside->writer, path))
            trajd_writer_note(beside->writer,
                              "%s: no stream of the layout, but axis %d has an entry for each row: "
                              "each step gets that of its row (first in %s; if the length is a "
                              "coincidence, list it under tables: in the layout)",
                              path, pick.axis, beside->label);
        return true;
    }
    if (pick.length == TRAJD_LENGTH_OTHER_ROWS)
        return leave_out(beside, path, "of a row a step");
    if (pick.length != TRAJD_LENGTH_SAME && H5Dget_storage_size(dataset) > COPY_BYTES_MAX)
        return leave_out(beside, path, "large");
    if (pick.length == TRAJD_LENGTH_LONG && is_first_report(beside->writer, path))
        trajd_writer_note(
            beside->writer,
            "%s: no stream of the layout, and of another length: copied as it is, not resampled",
            path);
    if (beside->shared >= 0)
        link_object(beside, from, to, name, path);
    else
        copy_object(beside, from, to, name, path);
    return true;
}

/* Copies an object that is not a group. */
static bool copy_leaf(const struct trajd_writer_beside *beside, hid_t from, hid_t to,
                      const char *name, const char *path)
{
    const hid_t dataset = beside->is_episode ? H5Dopen2(from, name, H5P_DEFAULT) : -1;
    bool ok = true;

    if (dataset >= 0)
        ok = copy_dataset(beside, from, to, name, path, dataset);
    else
        copy_object(beside, from, to, name, path);
    trajd_writer_close(dataset);
    return ok;
}

struct folder {
    struct trajd_writer_beside *beside;
    hid_t to;
    const char *path; /* "" or "obs/" */
    unsigned depth;
    bool failed; /* the failure is sent */
};

static bool copy_folder(const struct folder *folder, hid_t from);

/* Copies the group `name` of `from`. `path`: of the group. */
static bool copy_group(const struct folder *folder, hid_t from, const char *name, const char *path)
{
    struct trajd_writer_beside *beside = folder->beside;
    struct folder below = {.beside = beside, .to = -1, .path = path, .depth = folder->depth + 1};
    hid_t group;
    bool ok = true;

    if (below.depth > DEPTH_MAX || ++beside->group_count >= GROUPS_MAX) {
        if (below.depth > DEPTH_MAX || beside->group_count == GROUPS_MAX)
            trajd_writer_note(
                beside->writer,
                "%s: more than %d groups, %d levels, or links that lead back up: %s is left out",
                beside->label, GROUPS_MAX, DEPTH_MAX, path);
        return true;
    }
    group = H5Gopen2(from, name, H5P_DEFAULT);
    below.to = H5Lexists(folder->to, name, H5P_DEFAULT) > 0
                   ? H5Gopen2(folder->to, name, H5P_DEFAULT)
                   : H5Gcreate2(folder->to, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (group >= 0 && below.to >= 0)
        ok = copy_folder(&below, group);
    trajd_writer_close(group);
    trajd_writer_close(below.to);
    return ok;
}

static herr_t visit_member(hid_t from, const char *name, const H5L_info_t *info, void *context)
{
    struct folder *folder = context;
    struct trajd_writer_beside *beside = folder->beside;
    char path[TRAJD_WRITER_PATH_SIZE];
    const int length = snprintf(path, sizeof path, "%s%s", folder->path, name);
    H5O_info_t object;
    bool is_there;

    if ((size_t)length + 1 < sizeof path && beside->is_episode && is_known(beside->writer, path))
        return 0;
    if ((size_t)length + 1 >= sizeof path ||
        H5Oget_info_by_name2(from, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
        H5Eclear2(H5E_DEFAULT);
        trajd_writer_note(beside->writer, "%s: %s %s: left out", beside->label, path,
                          info->type == H5L_TYPE_HARD ? "is damaged"
                                                      : "is a link that leads nowhere");
        return 0;
    }
    is_there = H5Lexists(folder->to, name, H5P_DEFAULT) > 0;
    if (object.type == H5O_TYPE_GROUP)
        folder->failed = !copy_group(folder, from, name, strcat(path, "/"));
    else if (!is_there)
        folder->failed = !copy_leaf(beside, from, folder->to, name, path);
    H5Eclear2(H5E_DEFAULT);
    return folder->failed;
}

static bool copy_folder(const struct folder *folder, hid_t from)
{
    struct trajd_writer_beside *beside = folder->beside;
    struct folder inside = *folder;
    char problem[TRAJD_LINKS_PROBLEM_SIZE];

    trajd_writer_copy_attributes(beside->writer, from, inside.to,
                                 *inside.path ? inside.path : beside->label);
    return (trajd_links_visit(from, visit_member, &inside, problem) ||
            trajd_writer_fail_group(beside->label, inside.path, problem)) &&
           !inside.failed;
}

bool trajd_writer_copy_folder(struct trajd_writer_beside *beside, hid_t from, hid_t to,
                              const char *path)
{
    const struct folder folder = {.beside = beside, .to = to, .path = path};

    return copy_folder(&folder, from);
}

/* ---- outside the episodes ---- */

struct comparison {
    struct trajd_writer *writer;
    hid_t to;
    const char *path;
};

struct level {
    struct trajd_writer_beside *beside;
    hid_t to;
    char path[TRAJD_WRITER_PATH_SIZE]; /* of the group, with a slash at its end */
    /* the rest of the pattern of groups, below this one */
    const char *pattern;
    unsigned depth;
    bool failed; /* the failure is sent */
};

static bool copy_level(struct trajd_writer_beside *beside, hid_t from, const char *path,
                       const char *pattern, unsigned depth);

/* Copies an object that is not an episode. Groups on the way to episodes are created, and the
 * episodes in them are not copied. */
static herr_t visit_link(hid_t from, const char *name, const H5L_info_t *info, void *context)
{
    struct level *level = context;
    const struct trajd_writer *writer = level->beside->writer;
    const size_t length = strcspn(level->pattern, "/");
    char component[NAME_SIZE], path[TRAJD_WRITER_PATH_SIZE];
    H5O_info_t object;
    hid_t below;

    snprintf(component, sizeof component, "%.*s", (int)length, level->pattern);
    if ((size_t)snprintf(path, sizeof path, "%s%s", level->path, name) + 1 < sizeof path &&
        *writer->filter_folder && !strcmp(path, writer->filter_folder))
        return 0;
    if (!fnmatch(component, name, 0) &&
        H5Oget_info_by_name2(from, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) >= 0 &&
        object.type == H5O_TYPE_GROUP) {
        below = level->pattern[length] ? H5Gopen2(from, name, H5P_DEFAULT) : -1;
        if (below >= 0) {
            level->failed = !copy_level(level->beside, below, strcat(path, "/"),
                                        level->pattern + length + 1, level->depth + 1);
            H5Gclose(below);
        }
    } else if (writer->is_first) {
        struct folder folder = {.beside = level->beside, .to = level->to, .path = level->path};
        level->failed = visit_member(from, name, info, &folder);
    }
    return level->failed;
}

static char *attribute_bytes(hid_t object, const char *name, size_t *size)
{
    struct trajd_scan_value attribute = trajd_scan_value_open(object, ".", name);
    const hid_t type = attribute.type;
    char *bytes = NULL;

    *size = 0;
    if (type >= 0 && H5Tis_variable_str(type) > 0) {
        bytes = trajd_scan_value_read_text(&attribute);
        *size = bytes ? strlen(bytes) : 0;
    } else if (type >= 0 && H5Tdetect_class(type, H5T_VLEN) <= 0 &&
               H5Sget_simple_extent_npoints(attribute.space) > 0) {
        *size = (size_t)H5Sget_simple_extent_npoints(attribute.space) * H5Tget_size(type);
        bytes = calloc(1, *size + 1);
        if (bytes && H5Aread(attribute.id, type, bytes) < 0)
            *size = 0;
    }
    trajd_scan_value_close(&attribute);
    return bytes;
}

/* Notes an attribute that differs from the first input's. Counts are computed again, so they may
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
                          comparison->writer->label, name, comparison->path);
    free(here);
    free(there);
    return 0;
}

static bool copy_level(struct trajd_writer_beside *beside, hid_t from, const char *path,
                       const char *pattern, unsigned depth)
{
    struct trajd_writer *writer = beside->writer;
    struct level level = {.beside = beside, .pattern = pattern, .depth = depth};
    struct comparison comparison = {.writer = writer, .path = path};
    char problem[TRAJD_LINKS_PROBLEM_SIZE];
    bool ok;

    if (depth > DEPTH_MAX)
        return trajd_writer_fail("groups are nested too deep");
    snprintf(level.path, sizeof level.path, "%s", path);
    level.to = trajd_writer_make_group(writer->output, path);
    if (level.to < 0)
        return trajd_writer_fail("%s", path);
    comparison.to = level.to;
    if (writer->is_first)
        trajd_writer_copy_attributes(writer, from, level.to, path);
    else
        trajd_writer_visit_attributes(writer, from, path, compare_attribute, &comparison);
    ok = (trajd_links_visit(from, visit_link, &level, problem) ||
          trajd_writer_fail_group(writer->label, path, problem)) &&
         !level.failed;
    H5Gclose(level.to);
    H5Eclear2(H5E_DEFAULT);
    return ok;
}

/* Where a file is one episode, the root belongs to the episode, and writer_episode.c copies it. */
bool trajd_writer_copy_surroundings(struct trajd_writer *writer)
{
    struct trajd_writer_beside beside = {.writer = writer, .label = writer->label, .shared = -1};
    hid_t root;
    bool ok;

    if (!writer->groups[1])
        return true;
    root = H5Gopen2(writer->input, "/", H5P_DEFAULT);
    if (root < 0)
        return trajd_writer_fail("%s", writer->label);
    ok = copy_level(&beside, root, "/", writer->groups + 1, 0);
    H5Gclose(root);
    return ok;
}
