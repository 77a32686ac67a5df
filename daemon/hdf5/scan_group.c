/* The groups of an episode: the links in those that may hold arrays, and whether they hold anything
 * else than the recorded arrays. A copy of an episode without anything else need not search its
 * groups again. */
#include <stdio.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { PATH_SIZE = 4096 };

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
    if (!above || trajd_scan_names_have(&above->links, folder->path + name))
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
