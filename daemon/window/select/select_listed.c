/* `episodes: [0..39, demo_45, episode_3.hdf5]` of a feed. Numbers count all episodes that were
 * found, in natural order: a quarantined episode keeps its number, and a file that gives no episode
 * has one. */
#include <stdlib.h>
#include <string.h>

#include "daemon/window/select/select_internal.h"
#include "proto/plural.h"

/* What has a number: an episode, or a refused file. */
struct numbered {
    uint32_t episode; /* UINT32_MAX: a refused file */
    uint32_t file;
};

static uint32_t found_count(const struct trajd_index *index)
{
    return index->episode_count + index->refused_file_count;
}

static void number_all(const struct trajd_index *index, struct numbered *numbers)
{
    const uint32_t count = found_count(index);
    uint32_t e = 0, n = 0;

    for (uint32_t f = 0; f < index->file_count && n < count; f++) {
        for (; e < index->episode_count && index->episodes[e].file_index == f && n < count; e++)
            numbers[n++] = (struct numbered){e, f};
        if (index->files[f].refusal && n < count)
            numbers[n++] = (struct numbered){UINT32_MAX, f};
    }
}

static void mark_refused(const struct trajd_index *index, uint32_t file,
                         struct trajd_select_refused *refused)
{
    if (!refused->count++)
        refused->first = index->files[file].refusal;
}

static enum trajd_status mark_numbers(const struct trajd_select_entry *entry,
                                      const struct trajd_index *index,
                                      const struct numbered *numbers, uint8_t *flags,
                                      struct trajd_select_refused *refused,
                                      struct trajd_error *error)
{
    if (entry->last >= found_count(index))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: there is no episode %u: the dataset has %u episode%s, numbered "
                               "from 0",
                               entry->place, entry->last, found_count(index),
                               trajd_plural(found_count(index)));
    for (uint32_t n = entry->first; n <= entry->last; n++) {
        if (numbers[n].episode != UINT32_MAX)
            flags[numbers[n].episode] |= TRAJD_SELECT_LISTED;
        else
            mark_refused(index, numbers[n].file, refused);
    }
    return TRAJD_OK;
}

static enum trajd_status mark_name(const struct trajd_select_entry *entry,
                                   const struct trajd_select_names *names, uint8_t *flags,
                                   struct trajd_select_refused *refused, struct trajd_error *error)
{
    struct trajd_select_match match;
    const char *nearest;

    if (!trajd_select_names_find(names, entry->name, &match)) {
        nearest = trajd_select_names_nearest(names, entry->name);
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: no episode and no file of the dataset is called %.200s "
                               "(%s%.200s%sFILE:EPISODE names one of several files' episodes; "
                               "`trajctl inspect --json` lists them)",
                               entry->place, entry->name, nearest ? "did you mean " : "",
                               nearest ? nearest : "", nearest ? "? " : "");
    }
    for (uint32_t i = 0; i < match.count; i++)
        flags[match.list ? match.list[i] : match.first + i] |= TRAJD_SELECT_LISTED;
    if (match.file != UINT32_MAX && names->index->files[match.file].refusal)
        mark_refused(names->index, match.file, refused);
    return TRAJD_OK;
}

static enum trajd_status mark_entries(const struct trajd_select_rules *rules,
                                      const struct trajd_select_names *names,
                                      const struct numbered *numbers, uint8_t *flags,
                                      struct trajd_select_refused *refused,
                                      struct trajd_error *error)
{
    enum trajd_status status = TRAJD_OK;

    for (uint32_t i = 0; i < rules->entry_count && !status; i++) {
        const struct trajd_select_entry *entry = &rules->entries[i];
        status = entry->name ? mark_name(entry, names, flags, refused, error)
                             : mark_numbers(entry, names->index, numbers, flags, refused, error);
    }
    return status;
}

enum trajd_status trajd_select_mark_listed(const struct trajd_select_rules *rules,
                                           const struct trajd_index *index, uint8_t *flags,
                                           struct trajd_select_refused *refused,
                                           struct trajd_error *error)
{
    struct trajd_select_names names = {0};
    struct numbered *numbers;
    enum trajd_status status;

    if (!rules->entry_count) {
        memset(flags, TRAJD_SELECT_LISTED, index->episode_count);
        return TRAJD_OK;
    }
    numbers = calloc(found_count(index) + 1, sizeof *numbers);
    status = numbers ? trajd_select_names_make(index, &names, error)
                     : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for episodes");
    if (!status) {
        number_all(index, numbers);
        status = mark_entries(rules, &names, numbers, flags, refused, error);
    }
    trajd_select_names_free(&names);
    free(numbers);
    return status;
}
