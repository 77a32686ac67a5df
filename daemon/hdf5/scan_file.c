/* Scans one file: finds its episodes, and in each of them the datasets that the layout names. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/layout/glob.h"
#include "daemon/hdf5/scan.h"
#include "daemon/hdf5/scan_split.h"
#include "daemon/index/helper.h"

enum { PATH_SIZE = 4096 };

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
    if (path && !trajd_scan_names_have(paths, path))
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
           (folder->refusal || trajd_scan_names_have(&folder->links, path + length + (length > 0)));
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

/* Returns whether a clock or a stream that is not optional needs the path. An episode without it is
 * quarantined. */
static bool is_required(const struct trajd_layout *layout, const char *path)
{
    for (uint32_t i = 0; i < layout->clock_count; i++) {
        const struct trajd_layout_clock *clock = &layout->clocks[i];
        if ((clock->stamps_path && !strcmp(clock->stamps_path, path)) ||
            (clock->start_path && !strcmp(clock->start_path, path)))
            return true;
    }
    for (uint32_t i = 0; i < layout->stream_count; i++) {
        if (!layout->streams[i].optional && !strcmp(layout->streams[i].path, path))
            return true;
    }
    return false;
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
        found = trajd_scan_array(scan, group, place, trajd_layout_image_of(scan->layout, path),
                                 dataset);
    dataset->path = path;
    dataset->match = match;
    if (found == TRAJD_SCAN_OTHER && holds_frames(scan, group, place, wanted, episode)) {
        dataset->refusal = "a group with a dataset for each frame is not supported: write the "
                           "frames into one dataset";
        found = TRAJD_SCAN_ARRAY;
    }
    if (found == TRAJD_SCAN_OTHER &&
        (is_of_family || (is_group(scan->layout, path) && !is_required(scan->layout, path))))
        return;
    if (dataset->refusal && found != TRAJD_SCAN_DAMAGED &&
        (is_of_family || !is_required(scan->layout, path)))
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
    if (!episode->arrays || total > 4096) {
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
    if (!root || episode->problem || !layout->split.kind)
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

/* Returns an episode's id: its group's path from the first component of the pattern with a
 * wildcard; "" where the path has no such component. */
static const char *episode_id(const char *path, const char *pattern)
{
    while (*pattern == '/' && *path == '/') {
        size_t length = strcspn(pattern + 1, "/") + 1;
        if (memchr(pattern, '*', length) || memchr(pattern, '?', length) ||
            memchr(pattern, '[', length))
            return path + 1;
        path += strcspn(path + 1, "/") + 1;
        pattern += length;
    }
    return "";
}

/* Describes the episode of a group. Returns whether the group holds several episodes, which are in
 * the record then. */
static bool scan_episode(struct trajd_scan *scan, const char *path,
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

/* Adds the episode of a group to the record, or all episodes that its arrays hold. Returns false
 * where there are too many objects. */
static bool add_group(struct trajd_scan *scan, const char *path)
{
    struct trajd_record_episode whole = {.id = episode_id(path, scan->layout->groups)}, *added;

    if (scan_episode(scan, *path ? path : "/", &whole))
        return true;
    added = whole.rate_count ? trajd_scan_add_episodes(scan, 1) : NULL;
    if (added)
        *added = whole;
    return added != NULL;
}

static void refuse_file(struct trajd_scan *scan, const char *path, const char *reason)
{
    if (reason && !scan->record->refusal)
        scan->record->refusal =
            trajd_arena_format(scan->arena, "%s: %s", *path ? path : "/", reason);
}

/* Lists a link that cannot be followed although its name matches, so that scan_episode finds its
 * problem: an episode that is not there must not be missed silently. Where no wildcard has matched
 * yet, all episodes of the file may lie behind the link, and it is noted; a damaged group refuses
 * the file. */
static void add_lost_group(struct trajd_scan *scan, hid_t group, const char *name, const char *path,
                           struct trajd_scan_names *found)
{
    const char *failure = trajd_scan_error(scan), *lost;

    if (*episode_id(path, scan->layout->groups)) {
        trajd_scan_names_add(scan, found, path, strlen(path));
        return;
    }
    lost = trajd_scan_lost_link(group, name);
    if (lost)
        trajd_scan_note(scan, "", path + 1, lost);
    else
        refuse_file(scan, path, trajd_arena_format(scan->arena, "cannot be opened: %s", failure));
}

/* Finds the groups below `path` that match the rest of the pattern. */
static void find_groups(struct trajd_scan *scan, const char *path, const char *pattern,
                        struct trajd_scan_names *found)
{
    size_t length = strcspn(pattern, "/");
    struct trajd_scan_names links = {0};
    char component[PATH_SIZE], below[PATH_SIZE];
    hid_t group;

    if (!*pattern) {
        trajd_scan_names_add(scan, found, path, strlen(path));
        return;
    }
    group = H5Gopen2(scan->file, *path ? path : "/", H5P_DEFAULT);
    if (group < 0) {
        refuse_file(scan, path, trajd_scan_error(scan));
        return;
    }
    snprintf(component, sizeof component, "%.*s", (int)length, pattern);
    refuse_file(scan, path, trajd_scan_links(scan, group, &links));
    for (uint32_t i = 0; i < links.count; i++) {
        H5O_info_t info;
        if ((trajd_is_glob(component) ? fnmatch(component, links.names[i], 0)
                                      : strcmp(component, links.names[i])) ||
            (size_t)snprintf(below, sizeof below, "%s/%s", path, links.names[i]) >= sizeof below)
            continue;
        if (H5Oget_info_by_name2(group, links.names[i], &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
            add_lost_group(scan, group, links.names[i], below, found);
        else if (info.type == H5O_TYPE_GROUP)
            find_groups(scan, below, pattern + length + (pattern[length] == '/'), found);
    }
    H5Gclose(group);
}

static int compare_natural(const void *a, const void *b)
{
    return trajd_natural_compare(*(const char *const *)a, *(const char *const *)b);
}

/* Keeps only the groups of the slice. Notes on the whole file stay in the first slice only. */
static void take_slice(struct trajd_scan *scan, struct trajd_scan_names *groups)
{
    const uint64_t count = groups->count, begin = count * scan->slice.index / scan->slice.count;

    if (scan->slice.count == TRAJD_HELPER_PROBE) {
        groups->count = count < TRAJD_HELPER_PROBED ? (uint32_t)count : TRAJD_HELPER_PROBED;
        return;
    }
    groups->names += begin;
    groups->count = (uint32_t)(count * (scan->slice.index + 1) / scan->slice.count - begin);
    if (scan->slice.index)
        scan->record->note_count = 0;
}

static void scan_groups(struct trajd_scan *scan)
{
    struct trajd_record *record = scan->record;
    struct trajd_scan_names groups = {0};

    find_groups(scan, "", scan->layout->groups + 1, &groups);
    if (record->refusal)
        return;
    if (groups.count > 1)
        qsort(groups.names, groups.count, sizeof *groups.names, compare_natural);
    if (!groups.count) {
        record->refusal = trajd_arena_format(scan->arena, "no group matches %s%s%s",
                                             scan->layout->groups, record->note_count ? "; " : "",
                                             record->note_count ? record->notes[0] : "");
        record->is_misfit = !record->note_count;
        return;
    }
    take_slice(scan, &groups);
    scan->resampled_rate = trajd_scan_resampled_rate(scan);
    scan->file_rates =
        trajd_arena_alloc(scan->arena, scan->layout->clock_count * sizeof *scan->file_rates);
    for (uint32_t i = 0; i < groups.count; i++)
        if (!add_group(scan, groups.names[i])) {
            *record = (struct trajd_record){.refusal = "too many objects for one record"};
            return;
        }
    if (scan->layout->filter_path)
        trajd_scan_filters(scan);
    if (record->refusal)
        record->episode_count = 0;
}

void trajd_scan_file(const struct trajd_layout *layout, int fd, struct trajd_scan_slice slice,
                     struct trajd_arena *arena, struct trajd_record *record)
{
    struct trajd_scan scan = {.layout = layout,
                              .slice = slice,
                              .arena = arena,
                              .record = record,
                              .descriptor = {.fd = fd}};
    const hid_t access = trajd_descriptor_access(&scan.descriptor);
    hid_t creation;
    hsize_t user_block = 0;
    size_t address_bytes = 0, length_bytes = 0;
    struct stat status;

    if (!fstat(fd, &status))
        scan.file_size = (uint64_t)status.st_size;
    scan.file = H5Fopen(TRAJD_DESCRIPTOR_NAME, H5F_ACC_RDONLY, access);
    if (scan.file < 0) { /* reads the error first: the library's next call clears it */
        record->refusal = trajd_scan_unreadable(&scan, fd);
        H5Pclose(access);
        return;
    }
    H5Pclose(access);
    creation = H5Fget_create_plist(scan.file);
    H5Pget_userblock(creation, &user_block);
    H5Pget_sizes(creation, &address_bytes, &length_bytes);
    H5Pclose(creation);
    scan.has_wide_places = address_bytes == 8 && length_bytes == 8;
    scan.has_user_block = user_block > 0;
    scan_groups(&scan);
    H5Fclose(scan.file);
}
