/* Scans one file: finds the groups of its episodes. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "daemon/index/helper.h"
#include "daemon/layout/glob.h"
#include "daemon/sandbox/sandbox.h"

enum { PATH_SIZE = 4096 };

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

/* Adds the episode of a group to the record, or all episodes that its arrays hold. Returns false
 * where there are too many objects. */
static bool add_group(struct trajd_scan *scan, const char *path)
{
    struct trajd_record_episode whole = {.id = episode_id(path, scan->groups)}, *added;

    if (trajd_scan_episode(scan, *path ? path : "/", &whole))
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

/* Lists a link that cannot be followed although its name matches, so that trajd_scan_episode finds
 * its problem: an episode that is not there must not be missed silently. Where no wildcard has
 * matched yet, all episodes of the file may lie behind the link, and it is noted; a damaged group
 * refuses the file. */
static void add_lost_group(struct trajd_scan *scan, hid_t group, const char *name, const char *path,
                           struct trajd_scan_names *found)
{
    const char *failure = trajd_scan_error(scan), *lost;

    if (*episode_id(path, scan->groups)) {
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
    for (uint32_t i = 0; i < links.count && !scan->record->refusal; i++) {
        H5O_info_t info;
        if ((trajd_is_glob(component) ? fnmatch(component, links.names[i], 0)
                                      : strcmp(component, links.names[i])) ||
            (size_t)snprintf(below, sizeof below, "%s/%s", path, links.names[i]) >= sizeof below)
            continue;
        if (H5Oget_info_by_name2(group, links.names[i], &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
            add_lost_group(scan, group, links.names[i], below, found);
        else if (info.type == H5O_TYPE_GROUP && info.rc > 1 &&
                 trajd_links_meet(&scan->met, info.addr) &&
                 scan->met.repeats > TRAJD_LINKS_REPEATS_MAX)
            refuse_file(scan, below,
                        "more than 1000 links lead to groups that have other names, too");
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

/* Sets the pattern of the groups: that of the layout; or the groups that `trajctl resample` made of
 * the episodes of longer arrays. */
static bool choose_groups(struct trajd_scan *scan)
{
    const char *groups = scan->layout->groups;

    scan->cuts = scan->layout->split.kind && !trajd_scan_is_separated(scan->file);
    scan->groups = groups;
    if (scan->layout->split.kind && !scan->cuts)
        scan->groups = trajd_arena_format(scan->arena, "%s/episode_*", groups[1] ? groups : "");
    return scan->groups != NULL;
}

static void scan_groups(struct trajd_scan *scan)
{
    struct trajd_record *record = scan->record;
    struct trajd_scan_names groups = {0};

    if (!choose_groups(scan)) {
        record->refusal = "no memory for its groups";
        return;
    }
    find_groups(scan, "", scan->groups + 1, &groups);
    if (record->refusal)
        return;
    if (groups.count > 1)
        qsort(groups.names, groups.count, sizeof *groups.names, compare_natural);
    if (!groups.count) {
        record->refusal = trajd_arena_format(scan->arena, "no group matches %s%s%s", scan->groups,
                                             record->note_count ? "; " : "",
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
    static struct trajd_descriptor_blocks blocks;
    struct trajd_scan scan = {.layout = layout,
                              .slice = slice,
                              .arena = arena,
                              .record = record,
                              .descriptor = {.fd = fd, .blocks = &blocks}};
    const hid_t access = trajd_descriptor_access(&scan.descriptor);
    hid_t creation;
    hsize_t user_block = 0;
    size_t address_bytes = 0, length_bytes = 0;
    struct stat status;

    if (!trajd_sandbox_fstat(fd, &status))
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
    trajd_links_met_free(&scan.met);
    H5Fclose(scan.file);
}
