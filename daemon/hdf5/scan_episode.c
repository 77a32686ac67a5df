/* Scans one episode: finds and describes the datasets that the layout names, its rates and
 * texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "daemon/layout/glob.h"

enum { PATH_SIZE = 4096, ARRAYS_MAX = 4096 };

/* The arrays that the layout may use in an episode, and the folders in which they are. */
struct wanted {
    struct trajd_scan_names explicit_paths, family_paths;
    struct trajd_scan_names matches; /* of explicit paths with a '*', in their order */
    struct trajd_scan_folder *folders;
};

/* Returns the length of the folder in front of the last component that begins before `end`. */
static size_t folder_length(const char *path, size_t end)
{
    while (end && path[end - 1] != '/')
        end--;
    return end ? end - 1 : 0;
}

static void want(struct trajd_scan *scan, struct trajd_scan_names *paths, const char *path)
{
    /* one more than there may be, so that the caller sees it */
    if (path && paths->count <= ARRAYS_MAX && !trajd_scan_names_have(paths, path))
        trajd_scan_names_add(scan, paths, path, strlen(path));
}

/* Lists the paths below the group that match a pattern. */
static void find_matches(struct trajd_scan *scan, hid_t group, const char *pattern,
                         struct wanted *wanted, struct trajd_record_episode *episode,
                         struct trajd_scan_names *found)
{
    const char *star = strchr(pattern, '*'), *suffix = strchr(star, '/');
    const size_t length = folder_length(pattern, (size_t)(star - pattern));
    const struct trajd_scan_folder *folder =
        trajd_scan_folder(scan, group, pattern, length, &wanted->folders, episode);
    char path[PATH_SIZE];

    for (uint32_t i = 0; folder && i < folder->links.count; i++) {
        if ((size_t)snprintf(path, sizeof path, "%s%s%s%s", folder->path, length ? "/" : "",
                             folder->links.names[i], suffix ? suffix : "") < sizeof path &&
            trajd_layout_match(pattern, path, NULL, 0))
            want(scan, found, path);
    }
}

/* Adds the paths of a family, except those of other streams. */
static void want_family(struct trajd_scan *scan, hid_t group, const char *pattern,
                        struct wanted *wanted, struct trajd_record_episode *episode)
{
    struct trajd_scan_names found = {0};

    find_matches(scan, group, pattern, wanted, episode, &found);
    for (uint32_t i = 0; i < found.count; i++)
        if (!trajd_scan_names_have(&wanted->explicit_paths, found.names[i]) &&
            !trajd_scan_names_have(&wanted->matches, found.names[i]))
            want(scan, &wanted->family_paths, found.names[i]);
}

/* Returns whether a link with this path is there. */
static bool is_there(struct trajd_scan *scan, hid_t group, const char *path, struct wanted *wanted,
                     struct trajd_record_episode *episode)
{
    const size_t length = folder_length(path, strlen(path));
    const struct trajd_scan_folder *folder =
        trajd_scan_folder(scan, group, path, length, &wanted->folders, episode);

    return folder &&
           (folder->refusal || trajd_scan_links_have(&folder->links, path + length + (length > 0)));
}

/* Finds the one dataset that a path with a '*' matches in this episode, and adds it to the matches;
 * "" where there is none. Two are the episode's problem. */
static void want_match(struct trajd_scan *scan, hid_t group, const char *pattern,
                       struct wanted *wanted, struct trajd_record_episode *episode)
{
    struct trajd_scan_names found = {0};
    const char *match = "";
    uint32_t count = 0;

    find_matches(scan, group, pattern, wanted, episode, &found);
    for (uint32_t i = 0; i < found.count && !episode->problem; i++) {
        if (!is_there(scan, group, found.names[i], wanted, episode))
            continue;
        if (++count == 1) {
            match = found.names[i];
        } else if (!episode->problem) {
            episode->problem = trajd_arena_format(
                scan->arena, "%s: two datasets match it, %s and %s: write a path that matches one",
                pattern, match, found.names[i]);
            episode->is_misfit = true;
        }
    }
    trajd_scan_names_add(scan, &wanted->matches, match, strlen(match));
}

static int compare_datasets(const void *a, const void *b)
{
    const struct trajd_record_array *left = a, *right = b;

    return strcmp(left->path, right->path);
}

static bool is_number(const char *name)
{
    const size_t digits = strspn(name, "0123456789");

    return digits && (!name[digits] || name[digits] == '.');
}

/* Returns whether the path is a group in which each dataset is one frame: "000.jpg", "001.jpg". */
static bool holds_frames(struct trajd_scan *scan, hid_t group, const char *path,
                         struct wanted *wanted, struct trajd_record_episode *episode)
{
    const struct trajd_scan_folder *folder =
        trajd_scan_folder(scan, group, path, strlen(path), &wanted->folders, episode);
    uint32_t count = 0;

    while (folder && count < folder->links.count && is_number(folder->links.names[count]))
        count++;
    return count > 1 && count == folder->links.count;
}

/* Returns whether the layout has streams below the path, which is a group for them. */
static bool is_group(const struct trajd_layout *layout, const char *path)
{
    const size_t length = strlen(path);
    bool is_group = false;

    for (uint32_t i = 0; i < layout->stream_count && !is_group; i++)
        is_group = !strncmp(layout->streams[i].path, path, length) &&
                   layout->streams[i].path[length] == '/';
    return is_group;
}

/* Describes the array at a path, and puts it into the record or into the notes. Arrays that are
 * damaged, or that the layout requires, stay in the record with the reason, which quarantines the
 * episode. `match`: the dataset that a path with a '*' matched; else NULL. */
static void scan_dataset(struct trajd_scan *scan, hid_t group, const char *path, const char *match,
                         bool is_of_family, struct wanted *wanted,
                         struct trajd_record_episode *episode)
{
    struct trajd_record_array *dataset = &episode->arrays[episode->array_count];
    const char *place = match ? match : path;
    const size_t length = folder_length(place, strlen(place));
    const struct trajd_scan_folder *folder =
        trajd_scan_folder(scan, group, place, length, &wanted->folders, episode);
    enum trajd_scan_found found = TRAJD_SCAN_ARRAY;

    if (!folder || !is_there(scan, group, place, wanted, episode))
        return;
    *dataset = (struct trajd_record_array){.refusal = folder->refusal};
    if (!folder->refusal)
        found =
            trajd_scan_array(scan, group, place,
                             trajd_scan_links_header(&folder->links, place + length + (length > 0)),
                             trajd_layout_image_of(scan->layout, path), dataset);
    dataset->path = path;
    dataset->match = match;
    if (found == TRAJD_SCAN_OTHER && holds_frames(scan, group, place, wanted, episode)) {
        dataset->refusal = "a group with a dataset for each frame is not supported: write the "
                           "frames into one dataset";
        found = TRAJD_SCAN_ARRAY;
    }
    if (found == TRAJD_SCAN_OTHER && (is_of_family || (is_group(scan->layout, path) &&
                                                       !trajd_layout_requires(scan->layout, path))))
        return;
    if (dataset->refusal && found != TRAJD_SCAN_DAMAGED &&
        (is_of_family || !trajd_layout_requires(scan->layout, path)))
        trajd_scan_note(scan, episode->id, place, dataset->refusal);
    else
        episode->array_count++;
}

/* Describes the arrays. Returns whether they hold several episodes, which are in the record
 * then. */
static bool scan_datasets(struct trajd_scan *scan, hid_t group,
                          struct trajd_record_episode *episode)
{
    const struct trajd_layout *layout = scan->layout;
    const struct trajd_scan_folder *root;
    struct wanted wanted = {0};
    uint32_t total, next = 0;

    for (uint32_t i = 0; i < layout->clock_count; i++) {
        want(scan, &wanted.explicit_paths, layout->clocks[i].stamps_path);
        want(scan, &wanted.explicit_paths, layout->clocks[i].start_path);
    }
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        if (!trajd_layout_is_family(&layout->streams[i]))
            want(scan, &wanted.explicit_paths, layout->streams[i].path);
    }
    for (uint32_t i = 0; i < wanted.explicit_paths.count; i++) {
        if (strchr(wanted.explicit_paths.names[i], '*'))
            want_match(scan, group, wanted.explicit_paths.names[i], &wanted, episode);
    }
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        if (trajd_layout_is_family(&layout->streams[i]))
            want_family(scan, group, layout->streams[i].path, &wanted, episode);
    }
    total = wanted.explicit_paths.count + wanted.family_paths.count;
    episode->arrays = trajd_arena_alloc(scan->arena, (total ? total : 1) * sizeof *episode->arrays);
    if (!episode->arrays || total > ARRAYS_MAX) {
        episode->problem = "too many datasets";
        return false;
    }
    for (uint32_t i = 0; i < wanted.explicit_paths.count; i++) {
        const char *path = wanted.explicit_paths.names[i];
        const char *match =
            strchr(path, '*') && next < wanted.matches.count ? wanted.matches.names[next++] : NULL;
        if (!match || *match)
            scan_dataset(scan, group, path, match, false, &wanted, episode);
    }
    for (uint32_t i = 0; i < wanted.family_paths.count; i++)
        scan_dataset(scan, group, wanted.family_paths.names[i], NULL, true, &wanted, episode);
    qsort(episode->arrays, episode->array_count, sizeof *episode->arrays, compare_datasets);
    root = trajd_scan_folder(scan, group, "", 0, &wanted.folders, episode);
    if (root && !episode->problem)
        episode->problem = trajd_scan_form(scan, group, &root->links, episode);
    if (!root || episode->problem || !scan->cuts)
        return false;
    episode->problem = trajd_scan_split(scan, group, &root->links, episode);
    return !episode->problem;
}

static void scan_metas(struct trajd_scan *scan, const char *path,
                       struct trajd_record_episode *episode)
{
    const struct trajd_layout *layout = scan->layout;

    episode->metas =
        layout->meta_count
            ? trajd_arena_alloc(scan->arena, layout->meta_count * sizeof *episode->metas)
            : NULL;
    for (uint32_t i = 0; episode->metas && i < layout->meta_count; i++, episode->meta_count++)
        if (!layout->metas[i].file || layout->metas[i].attribute)
            episode->metas[i] = trajd_scan_text(scan, path, episode->id, &layout->metas[i]);
}

/* Returns the rate of a clock. A place that is named from the root is read once for all
 * episodes. */
static const char *rate_of(struct trajd_scan *scan, hid_t group, uint32_t clock)
{
    const char *place = trajd_layout_rate_place(&scan->layout->clocks[clock]);

    if (!place || *place != '/' || !scan->file_rates)
        return trajd_scan_rate(scan, group, &scan->layout->clocks[clock]);
    if (!scan->file_rates[clock])
        scan->file_rates[clock] = trajd_scan_rate(scan, group, &scan->layout->clocks[clock]);
    return scan->file_rates[clock];
}

bool trajd_scan_episode(struct trajd_scan *scan, const char *path,
                        struct trajd_record_episode *episode)
{
    const struct trajd_layout *layout = scan->layout;
    bool is_split;
    hid_t group;

    episode->rate_count = layout->clock_count;
    episode->rates = trajd_arena_alloc(scan->arena, layout->clock_count * sizeof *episode->rates);
    if (!episode->rates) {
        episode->rate_count = 0;
        return false;
    }
    for (uint32_t i = 0; i < layout->clock_count; i++)
        episode->rates[i] = "";
    episode->resampled_rate = scan->resampled_rate;
    group = H5Gopen2(scan->file, path, H5P_DEFAULT);
    if (group < 0) {
        const char *error = trajd_scan_error(scan), *lost = trajd_scan_lost_link(scan->file, path);
        episode->problem = trajd_arena_format(
            scan->arena, "%s%s", lost ? lost : "the group cannot be opened: ", lost ? "" : error);
        return false;
    }
    for (uint32_t i = 0; i < layout->clock_count; i++)
        episode->rates[i] = rate_of(scan, group, i);
    scan_metas(scan, path, episode);
    is_split = scan_datasets(scan, group, episode);
    episode->is_plain = !is_split && trajd_scan_is_plain(group, episode);
    H5Gclose(group);
    return is_split;
}
