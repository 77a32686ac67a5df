/* Finds out whether an episode's group holds only the recorded datasets. A copy of such an episode
 * need not search the group again. */
#include <stdio.h>
#include <string.h>

#include "daemon/hdf5/scan.h"

enum { PATH_SIZE = 4096 };

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

    return i < episode->array_count && !strcmp(episode->arrays[i].path, path) &&
           !episode->arrays[i].refusal;
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
