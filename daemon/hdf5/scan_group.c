/* The names of links in a group. The groups of an episode: the links in those that may hold arrays,
 * and whether they hold anything else than the recorded arrays. A copy of an episode without
 * anything else need not search its groups again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { NAME_LENGTH_MAX = 1024, LINK_COUNT_MAX = 1 << 20, PATH_SIZE = 4096 };

bool trajd_scan_name_ok(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    }
    return length > 0 && length <= NAME_LENGTH_MAX;
}

bool trajd_scan_names_add(struct trajd_scan *scan, struct trajd_scan_names *names, const char *name,
                          size_t length)
{
    if (names->count == names->capacity) {
        uint32_t capacity = names->capacity ? names->capacity * 2 : 32;
        const char **grown = capacity > 2 * LINK_COUNT_MAX
                                 ? NULL
                                 : trajd_arena_alloc(scan->arena, capacity * sizeof *grown);
        haddr_t *headers = trajd_arena_alloc(scan->arena, capacity * sizeof *headers);
        if (!grown || !headers)
            return false;
        if (names->count) {
            memcpy(grown, names->names, names->count * sizeof *grown);
            memcpy(headers, names->headers, names->count * sizeof *headers);
        }
        names->names = grown;
        names->headers = headers;
        names->capacity = capacity;
    }
    names->headers[names->count] = HADDR_UNDEF;
    names->names[names->count] = trajd_arena_copy(scan->arena, name, length);
    return names->names[names->count] && ++names->count;
}

bool trajd_scan_names_have(const struct trajd_scan_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (!strcmp(names->names[i], name))
            return true;
    }
    return false;
}

static int compare_names(const void *name, const void *other)
{
    return strcmp(name, *(const char *const *)other);
}

static const char **find_link(const struct trajd_scan_names *links, const char *name)
{
    return links->count
               ? bsearch(name, links->names, links->count, sizeof *links->names, compare_names)
               : NULL;
}

bool trajd_scan_links_have(const struct trajd_scan_names *links, const char *name)
{
    return find_link(links, name) != NULL;
}

haddr_t trajd_scan_links_header(const struct trajd_scan_names *links, const char *name)
{
    const char **found = find_link(links, name);

    return found ? links->headers[found - links->names] : HADDR_UNDEF;
}

const char *trajd_scan_lost_link(hid_t group, const char *path)
{
    H5L_info_t info;
    const bool is_known = H5Lget_info(group, path, &info, H5P_DEFAULT) >= 0;

    H5Eclear2(H5E_DEFAULT);
    if (!is_known || info.type == H5L_TYPE_HARD)
        return NULL;
    return info.type == H5L_TYPE_SOFT ? "a link that leads nowhere"
                                      : "an external link is refused (it names another file)";
}

struct link_visit {
    struct trajd_scan *scan;
    struct trajd_scan_names *names;
    const char *problem;
};

static herr_t add_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct link_visit *visit = context;

    (void)group;
    if (!trajd_scan_name_ok(name))
        visit->problem = "it has a link whose name is too long or has control characters";
    else if (!trajd_scan_names_add(visit->scan, visit->names, name, strlen(name)))
        visit->problem = "it has too many links";
    else if (info->type == H5L_TYPE_HARD)
        visit->names->headers[visit->names->count - 1] = info->u.address;
    return visit->problem ? 1 : 0;
}

const char *trajd_scan_links(struct trajd_scan *scan, hid_t group, struct trajd_scan_names *names)
{
    struct link_visit visit = {scan, names, NULL};
    char damage[TRAJD_LINKS_PROBLEM_SIZE];

    if (trajd_links_visit(group, add_link, &visit, damage))
        return visit.problem;
    trajd_scan_error(scan); /* finds out whether the storage failed */
    visit.problem = trajd_arena_format(scan->arena, "the group is damaged: %s", damage);
    return visit.problem ? visit.problem : "the group is damaged";
}

/* ---- folders ---- */

/* Opens the folder and lists its links. Sets its refusal, or the episode's problem. */
static void open_folder(struct trajd_scan *scan, hid_t group, struct trajd_scan_folder *folder,
                        struct trajd_record_episode *episode)
{
    const char *name = *folder->path ? folder->path : ".", *problem = NULL;
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);

    if (object < 0) {
        const char *failure = trajd_scan_error(scan);
        folder->refusal = trajd_scan_lost_link(group, name);
        problem = folder->refusal
                      ? NULL
                      : trajd_arena_format(scan->arena, "cannot be opened: %s", failure);
    } else if (H5Iget_type(object) == H5I_GROUP) {
        problem = trajd_scan_links(scan, object, &folder->links);
    }
    if (object >= 0)
        H5Oclose(object);
    if (folder->refusal)
        trajd_scan_note(scan, episode->id, folder->path, folder->refusal);
    if (problem && !episode->problem)
        episode->problem = trajd_arena_format(scan->arena, "%s%s%s", folder->path,
                                              *folder->path ? ": " : "", problem);
}

/* Returns a folder of the list, or NULL. */
static struct trajd_scan_folder *find_folder(struct trajd_scan_folder *list, const char *path,
                                             size_t length)
{
    while (list && (strncmp(list->path, path, length) || list->path[length]))
        list = list->next;
    return list;
}

const struct trajd_scan_folder *trajd_scan_folder(struct trajd_scan *scan, hid_t group,
                                                  const char *path, size_t length,
                                                  struct trajd_scan_folder **list,
                                                  struct trajd_record_episode *episode)
{
    struct trajd_scan_folder *folder = find_folder(*list, path, length);
    const struct trajd_scan_folder *above = NULL;
    size_t name = length; /* where the folder's own name begins */

    if (folder || episode->problem)
        return episode->problem ? NULL : folder;
    while (name && path[name - 1] != '/')
        name--;
    if (length)
        above = trajd_scan_folder(scan, group, path, name ? name - 1 : 0, list, episode);
    folder = episode->problem ? NULL : trajd_arena_alloc(scan->arena, sizeof *folder);
    if (!folder)
        return NULL;
    *folder = (struct trajd_scan_folder){.path = trajd_arena_copy(scan->arena, path, length),
                                         .refusal = above ? above->refusal : NULL,
                                         .next = *list};
    if (!folder->path)
        return NULL;
    *list = folder;
    if (!above || trajd_scan_links_have(&above->links, folder->path + name))
        open_folder(scan, group, folder, episode);
    return episode->problem ? NULL : folder;
}

struct search {
    const struct trajd_record_episode *episode;
    const char *folder; /* "" or "obs/" */
};

/* Returns the first dataset whose path is not before `path`, or the count. */
static uint32_t find_dataset(const struct trajd_record_episode *episode, const char *path)
{
    uint32_t low = 0, high = episode->array_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(episode->arrays[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_dataset(const struct trajd_record_episode *episode, const char *path)
{
    const uint32_t i = find_dataset(episode, path);
    bool is_match = false;

    if (i < episode->array_count && !strcmp(episode->arrays[i].path, path))
        return !episode->arrays[i].refusal;
    for (uint32_t k = 0; k < episode->array_count && !is_match; k++)
        is_match = episode->arrays[k].match && !strcmp(episode->arrays[k].match, path) &&
                   !episode->arrays[k].refusal;
    return is_match;
}

static bool holds_no_more(hid_t group, const struct trajd_record_episode *episode,
                          const char *folder);

/* Returns whether a group only leads to recorded datasets. `path` ends in a slash. */
static bool is_plain_folder(hid_t group, const char *name,
                            const struct trajd_record_episode *episode, const char *path)
{
    const uint32_t i = find_dataset(episode, path);
    H5O_info_t info;
    hid_t below;
    bool is_plain;

    if (i == episode->array_count || strncmp(episode->arrays[i].path, path, strlen(path)) != 0)
        return false;
    below = H5Gopen2(group, name, H5P_DEFAULT);
    is_plain = below >= 0 && H5Oget_info2(below, &info, H5O_INFO_NUM_ATTRS) >= 0 &&
               !info.num_attrs && holds_no_more(below, episode, path);
    if (below >= 0)
        H5Gclose(below);
    return is_plain;
}

/* Returns 1, which ends the visit, at the first other object. Any soft link counts as one. */
static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    const struct search *search = context;
    char path[PATH_SIZE];

    if (info->type != H5L_TYPE_HARD ||
        (size_t)snprintf(path, sizeof path, "%s%s", search->folder, name) + 1 >= sizeof path)
        return 1;
    if (is_dataset(search->episode, path))
        return 0;
    return is_plain_folder(group, name, search->episode, strcat(path, "/")) ? 0 : 1;
}

static bool holds_no_more(hid_t group, const struct trajd_record_episode *episode,
                          const char *folder)
{
    struct search search = {episode, folder};
    hsize_t position = 0;

    return H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &position, visit_link, &search) == 0;
}

bool trajd_scan_is_plain(hid_t group, const struct trajd_record_episode *episode)
{
    const bool is_plain = !episode->problem && holds_no_more(group, episode, "");

    H5Eclear2(H5E_DEFAULT);
    return is_plain;
}
