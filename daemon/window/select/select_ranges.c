/* `ranges:` of a feed: finds the entry of each episode. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/select/select_internal.h"

/* Finds the episode of a key as openpi writes it: FOLDER--FILE, where FILE is the path of the
 * recording on the machine that made it. The longest end of it that is a file of the dataset
 * counts. */
static bool find_recording(const struct trajd_select_names *names, const char *key,
                           struct trajd_select_match *match)
{
    const char *path = strstr(key, "--");

    for (const char *next = path; next; next = strstr(next + 1, "--"))
        path = next;
    for (path = path ? path + 2 : NULL; path; path = strchr(path, '/')) {
        path += *path == '/';
        if (*path && trajd_select_names_find(names, path, match) && match->file != UINT32_MAX)
            return true;
    }
    return false;
}

static enum trajd_status set_entry(const struct trajd_ranges *ranges, uint32_t entry,
                                   uint32_t episode, struct trajd_select_ranges *found,
                                   struct trajd_error *error)
{
    const uint32_t before = found->entry_of[episode];

    found->entry_of[episode] = entry;
    if (before == UINT32_MAX)
        return TRAJD_OK;
    return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                           "ranges: %s: %.150s and %.150s are the same episode", ranges->source,
                           trajd_ranges_name(ranges, &ranges->entries[before]),
                           trajd_ranges_name(ranges, &ranges->entries[entry]));
}

/* Finds the episode of an entry. A file that gives no episode has none. */
static enum trajd_status find_entry(const struct trajd_ranges *ranges, uint32_t entry,
                                    const struct trajd_select_names *names,
                                    struct trajd_select_ranges *found, struct trajd_error *error)
{
    const char *key = trajd_ranges_name(ranges, &ranges->entries[entry]);
    struct trajd_select_match match;

    if (!trajd_select_names_find(names, key, &match) && !find_recording(names, key, &match)) {
        found->first_unknown = found->unknown_count++ ? found->first_unknown : key;
        return TRAJD_OK;
    }
    if (match.count > 1)
        return trajd_error_set(error, TRAJD_ERR_ARGUMENT, 0,
                               "ranges: %s: %.200s: the dataset has %u such episodes: write "
                               "FILE:EPISODE",
                               ranges->source, key, match.count);
    return match.count
               ? set_entry(ranges, entry, match.list ? match.list[0] : match.first, found, error)
               : TRAJD_OK;
}

enum trajd_status trajd_select_ranges_find(const struct trajd_ranges *ranges,
                                           const struct trajd_index *index,
                                           struct trajd_select_ranges *found,
                                           struct trajd_error *error)
{
    struct trajd_select_names names = {0};
    enum trajd_status status = trajd_select_names_make(index, &names, error);

    *found = (struct trajd_select_ranges){
        .entry_of = calloc((size_t)index->episode_count + 1, sizeof *found->entry_of)};
    if (!status && !found->entry_of)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the ranges");
    if (!status)
        memset(found->entry_of, 0xff, index->episode_count * sizeof *found->entry_of);
    for (uint32_t e = 0; e < ranges->entry_count && !status; e++)
        status = find_entry(ranges, e, &names, found, error);
    trajd_select_names_free(&names);
    if (status)
        trajd_select_ranges_free(found);
    return status;
}

void trajd_select_ranges_free(struct trajd_select_ranges *found)
{
    free(found->entry_of);
    found->entry_of = NULL;
}
