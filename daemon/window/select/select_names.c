/* Finds episodes and files by name, for `episodes:` and `ranges:`. */
#include "daemon/window/select/select.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "proto/plural.h"

#define NEAREST_NAMES 4096 /* names among which a misspelled one is searched */

/* The names of an index, sorted for searches. */
struct names {
    const struct trajd_index *index;
    uint32_t *by_id;      /* [episode_count]: episodes in the order of their ids */
    uint32_t *by_path;    /* [file_count]: files in the order of their paths */
    uint32_t *file_begin; /* [file_count + 1]: each file's first episode */
    struct trajd_arena arena;
};

/* What a name means. */
struct match {
    uint32_t file;        /* UINT32_MAX: not a file's name */
    uint32_t count;       /* of episodes */
    uint32_t first;       /* of a file: its first episode, the others follow */
    const uint32_t *list; /* of an episode's name: the episodes [count]; NULL: `first` */
};

static int compare_ids(const void *a, const void *b, void *context)
{
    const struct trajd_index *index = context;
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    const int order = strcmp(index->episodes[left].id, index->episodes[right].id);

    return order ? order : (left > right) - (left < right);
}

static int compare_paths(const void *a, const void *b, void *context)
{
    const struct trajd_index *index = context;

    return strcmp(index->files[*(const uint32_t *)a].relative_path,
                  index->files[*(const uint32_t *)b].relative_path);
}

/* Sorts the names. The caller frees, also after an error. */
static enum trajd_status make_names(const struct trajd_index *index, struct names *names,
                                    struct trajd_error *error)
{
    uint32_t e = 0;

    *names = (struct names){.index = index, .arena.limit_bytes = SIZE_MAX};
    names->by_id = trajd_arena_array(&names->arena, index->episode_count, sizeof *names->by_id);
    names->by_path = trajd_arena_array(&names->arena, index->file_count, sizeof *names->by_path);
    names->file_begin =
        trajd_arena_array(&names->arena, index->file_count + 1, sizeof *names->file_begin);
    if (names->arena.is_starved)
        return trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the names of episodes");
    for (uint32_t i = 0; i < index->episode_count; i++)
        names->by_id[i] = i;
    for (uint32_t f = 0; f < index->file_count; f++) {
        names->by_path[f] = f;
        names->file_begin[f] = e;
        while (e < index->episode_count && index->episodes[e].file_index == f)
            e++;
    }
    names->file_begin[index->file_count] = e;
    qsort_r(names->by_id, index->episode_count, sizeof *names->by_id, compare_ids,
            (void *)(uintptr_t)index);
    qsort_r(names->by_path, index->file_count, sizeof *names->by_path, compare_paths,
            (void *)(uintptr_t)index);
    return TRAJD_OK;
}

/* Compares a path with the first `length` bytes of a text. */
static int compare_text(const char *path, const char *text, size_t length)
{
    const int order = strncmp(path, text, length);

    return order ? order : path[length] != 0;
}

/* Returns the file with that path, or UINT32_MAX. */
static uint32_t find_file(const struct names *names, const char *text, size_t length)
{
    uint32_t low = 0, high = names->index->file_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2, file = names->by_path[middle];
        const int order = compare_text(names->index->files[file].relative_path, text, length);
        if (!order)
            return file;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return UINT32_MAX;
}

/* Returns the place in by_id of the first episode whose id is not below `id`. */
static uint32_t first_of_id(const struct names *names, const char *id)
{
    uint32_t low = 0, high = names->index->episode_count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(names->index->episodes[names->by_id[middle]].id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool find_id(const struct names *names, const char *id, struct match *match)
{
    const uint32_t first = first_of_id(names, id);
    uint32_t end = first;

    while (end < names->index->episode_count &&
           strcmp(names->index->episodes[names->by_id[end]].id, id) == 0)
        end++;
    *match = (struct match){.file = UINT32_MAX, .count = end - first, .list = names->by_id + first};
    return end > first;
}

/* Finds FILE:EPISODE. Both may contain colons. */
static bool find_both(const struct names *names, const char *name, struct match *match)
{
    for (const char *colon = strchr(name, ':'); colon; colon = strchr(colon + 1, ':')) {
        const uint32_t file = find_file(names, name, (size_t)(colon - name));
        for (uint32_t e = file == UINT32_MAX ? 0 : names->file_begin[file];
             file != UINT32_MAX && e < names->file_begin[file + 1]; e++)
            if (strcmp(names->index->episodes[e].id, colon + 1) == 0) {
                *match = (struct match){.file = UINT32_MAX, .count = 1, .first = e};
                return true;
            }
    }
    return false;
}

/* Finds the file with that path, else the episodes with that id, else the episode of FILE:EPISODE.
 * False: nothing has that name. */
static bool find_name(const struct names *names, const char *name, struct match *match)
{
    const uint32_t file = find_file(names, name, strlen(name));

    if (file == UINT32_MAX)
        return find_id(names, name, match) || find_both(names, name, match);
    *match = (struct match){.file = file,
                            .count = names->file_begin[file + 1] - names->file_begin[file],
                            .first = names->file_begin[file]};
    return true;
}

/* Suggests a name of an episode or file that is spelled almost so. */
static struct trajd_yaml_suggestion suggest(const struct names *names, const char *name)
{
    const struct trajd_index *index = names->index;
    const char *list[NEAREST_NAMES];
    size_t count = 0;

    for (uint32_t e = 0; e < index->episode_count && count < NEAREST_NAMES / 2; e++)
        list[count++] = index->episodes[e].id;
    for (uint32_t f = 0; f < index->file_count && count < NEAREST_NAMES; f++)
        list[count++] = index->files[f].relative_path;
    return trajd_yaml_suggest("", name, list, count, " ");
}

/* ---- `episodes: [0..39, demo_45, episode_3.hdf5]`. Numbers count all episodes that were found, in
 * natural order: a quarantined episode keeps its number, and a file that gives no episode has
 * one ---- */

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
                                   const struct names *names, uint8_t *flags,
                                   struct trajd_select_refused *refused, struct trajd_error *error)
{
    struct match match;

    if (!find_name(names, entry->name, &match))
        return trajd_error_set(error, TRAJD_ERR_NOT_FOUND, 0,
                               "%s: no episode and no file of the dataset is called %.200s "
                               "(%sFILE:EPISODE names one of several files' episodes; "
                               "`trajctl inspect --json` lists them)",
                               entry->place, entry->name, suggest(names, entry->name).text);
    for (uint32_t i = 0; i < match.count; i++)
        flags[match.list ? match.list[i] : match.first + i] |= TRAJD_SELECT_LISTED;
    if (match.file != UINT32_MAX && names->index->files[match.file].refusal)
        mark_refused(names->index, match.file, refused);
    return TRAJD_OK;
}

static enum trajd_status mark_entries(const struct trajd_select_rules *rules,
                                      const struct names *names, const struct numbered *numbers,
                                      uint8_t *flags, struct trajd_select_refused *refused,
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
    struct names names = {0};
    struct numbered *numbers;
    enum trajd_status status;

    if (!rules->entry_count) {
        memset(flags, TRAJD_SELECT_LISTED, index->episode_count);
        return TRAJD_OK;
    }
    numbers = calloc(found_count(index) + 1, sizeof *numbers);
    status = numbers ? make_names(index, &names, error)
                     : trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for episodes");
    if (!status) {
        number_all(index, numbers);
        status = mark_entries(rules, &names, numbers, flags, refused, error);
    }
    trajd_arena_free(&names.arena);
    free(numbers);
    return status;
}

/* ---- `ranges:`: the entry of each episode ---- */

/* Finds the episode of a key as openpi writes it: FOLDER--FILE, where FILE is the path of the
 * recording on the machine that made it. The longest end of it that is a file of the dataset
 * counts. */
static bool find_recording(const struct names *names, const char *key, struct match *match)
{
    const char *path = strstr(key, "--");

    for (const char *next = path; next; next = strstr(next + 1, "--"))
        path = next;
    for (path = path ? path + 2 : NULL; path; path = strchr(path, '/')) {
        path += *path == '/';
        if (*path && find_name(names, path, match) && match->file != UINT32_MAX)
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
                                    const struct names *names, struct trajd_select_ranges *found,
                                    struct trajd_error *error)
{
    const char *key = trajd_ranges_name(ranges, &ranges->entries[entry]);
    struct match match;

    if (!find_name(names, key, &match) && !find_recording(names, key, &match)) {
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
    struct names names = {0};
    enum trajd_status status = make_names(index, &names, error);

    *found = (struct trajd_select_ranges){
        .entry_of = calloc((size_t)index->episode_count + 1, sizeof *found->entry_of)};
    if (!status && !found->entry_of)
        status = trajd_error_set(error, TRAJD_ERR_MEMORY, 0, "no memory for the ranges");
    if (!status)
        memset(found->entry_of, 0xff, index->episode_count * sizeof *found->entry_of);
    for (uint32_t e = 0; e < ranges->entry_count && !status; e++)
        status = find_entry(ranges, e, &names, found, error);
    trajd_arena_free(&names.arena);
    if (status)
        trajd_select_ranges_free(found);
    return status;
}

void trajd_select_ranges_free(struct trajd_select_ranges *found)
{
    free(found->entry_of);
    found->entry_of = NULL;
}
