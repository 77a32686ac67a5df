/* Finds episodes and files by name. */
#include <stdlib.h>
#include <string.h>

#include "daemon/base/yaml.h"
#include "daemon/window/select/select_internal.h"

#define NEAREST_NAMES 4096 /* names among which a misspelled one is searched */

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

enum trajd_status trajd_select_names_make(const struct trajd_index *index,
                                          struct trajd_select_names *names,
                                          struct trajd_error *error)
{
    uint32_t e = 0;

    *names = (struct trajd_select_names){
        .index = index,
        .by_id = calloc(index->episode_count + 1, sizeof *names->by_id),
        .by_path = calloc(index->file_count + 1, sizeof *names->by_path),
        .file_begin = calloc(index->file_count + 1, sizeof *names->file_begin)};
    if (!names->by_id || !names->by_path || !names->file_begin)
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

void trajd_select_names_free(struct trajd_select_names *names)
{
    free(names->by_id);
    free(names->by_path);
    free(names->file_begin);
}

/* Compares a path with the first `length` bytes of a text. */
static int compare_text(const char *path, const char *text, size_t length)
{
    const int order = strncmp(path, text, length);

    return order ? order : path[length] != 0;
}

/* Returns the file with that path, or UINT32_MAX. */
static uint32_t find_file(const struct trajd_select_names *names, const char *text, size_t length)
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
static uint32_t first_of_id(const struct trajd_select_names *names, const char *id)
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

static bool find_id(const struct trajd_select_names *names, const char *id,
                    struct trajd_select_match *match)
{
    const uint32_t first = first_of_id(names, id);
    uint32_t end = first;

    while (end < names->index->episode_count &&
           strcmp(names->index->episodes[names->by_id[end]].id, id) == 0)
        end++;
    *match = (struct trajd_select_match){
        .file = UINT32_MAX, .count = end - first, .list = names->by_id + first};
    return end > first;
}

/* Finds FILE:EPISODE. Both may contain colons. */
static bool find_both(const struct trajd_select_names *names, const char *name,
                      struct trajd_select_match *match)
{
    for (const char *colon = strchr(name, ':'); colon; colon = strchr(colon + 1, ':')) {
        const uint32_t file = find_file(names, name, (size_t)(colon - name));
        for (uint32_t e = file == UINT32_MAX ? 0 : names->file_begin[file];
             file != UINT32_MAX && e < names->file_begin[file + 1]; e++)
            if (strcmp(names->index->episodes[e].id, colon + 1) == 0) {
                *match = (struct trajd_select_match){.file = UINT32_MAX, .count = 1, .first = e};
                return true;
            }
    }
    return false;
}

bool trajd_select_names_find(const struct trajd_select_names *names, const char *name,
                             struct trajd_select_match *match)
{
    const uint32_t file = find_file(names, name, strlen(name));

    if (file == UINT32_MAX)
        return find_id(names, name, match) || find_both(names, name, match);
    *match =
        (struct trajd_select_match){.file = file,
                                    .count = names->file_begin[file + 1] - names->file_begin[file],
                                    .first = names->file_begin[file]};
    return true;
}

const char *trajd_select_names_nearest(const struct trajd_select_names *names, const char *name)
{
    const struct trajd_index *index = names->index;
    const char *list[NEAREST_NAMES];
    size_t count = 0;

    for (uint32_t e = 0; e < index->episode_count && count < NEAREST_NAMES / 2; e++)
        list[count++] = index->episodes[e].id;
    for (uint32_t f = 0; f < index->file_count && count < NEAREST_NAMES; f++)
        list[count++] = index->files[f].relative_path;
    return trajd_yaml_nearest(name, list, count);
}
