/* Cuts the arrays of a group into episodes: at flags and jumps, or by their lengths, ends or starts. Each
 * episode gets arrays of its own, which are row ranges of the group's. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/helper_socket.h"
#include "daemon/hdf5/scan.h"
#include "proto/array_len.h"
#include "proto/plural.h"

enum { EPISODE_COUNT_MAX = 1 << 20, CHUNK_CACHE_SLOTS = 4001 };
static const size_t chunk_cache_bytes = (size_t)64 << 20;
static const uint64_t width_max = 1 << 16; /* values that are compared at once, and a row more */

/* Where the episodes of a group begin. */
struct parts {
    uint64_t *begins; /* [count + 1]: the last one is the end of all; owned */
    uint32_t count;
    bool last_is_open; /* no flag ends the last episode */
};

static const char no_memory[] = "no memory for its episodes";

static bool add_begin(struct parts *parts, uint64_t begin)
{
    uint64_t *grown = parts->begins;

    if (parts->count > EPISODE_COUNT_MAX)
        return false;
    if (!(parts->count & (parts->count - 1)) || !grown)
        grown = trajd_helper_memory(realloc(grown, (2 * (size_t)parts->count + 2) * sizeof *grown));
    parts->begins = grown;
    grown[parts->count++] = begin;
    return true;
}

/* Opens a column of the split and counts its values. Returns NULL, or the reason why that is
 * impossible. */
static const char *open_column(struct trajd_scan *scan, hid_t group, const char *path,
                               hid_t *dataset, uint64_t *count)
{
    *dataset = H5Dopen2(group, path, H5P_DEFAULT);
    if (*dataset < 0)
        return trajd_arena_format(scan->arena, "%s: cannot be opened: %s", path,
                                  trajd_scan_error(scan));
    *count = trajd_scan_column_count(*dataset);
    if (*count)
        return NULL;
    H5Dclose(*dataset);
    return trajd_arena_format(scan->arena, "%s: has no rows, or is not a column of numbers", path);
}

static const char *cannot_read(struct trajd_scan *scan, const char *path)
{
    return trajd_arena_format(scan->arena, "%s: cannot be read: %s", path, trajd_scan_error(scan));
}

/* ---- flags ---- */

/* Sets ends[i] where a flag is set in row i. */
static const char *read_flags(struct trajd_scan *scan, hid_t dataset, const char *path,
                              uint64_t count, bool *ends)
{
    double values[4096];

    for (uint64_t begin = 0; begin < count; begin += ARRAY_LEN(values)) {
        const uint64_t some = count - begin < ARRAY_LEN(values) ? count - begin : ARRAY_LEN(values);
        if (!trajd_scan_column_read(dataset, begin, some, values))
            return cannot_read(scan, path);
        for (uint64_t i = 0; i < some; i++)
            ends[begin + i] = ends[begin + i] || values[i] != 0;
    }
    return NULL;
}

static const char *add_flag(struct trajd_scan *scan, hid_t group, const char *path, bool **ends,
                            uint64_t *rows)
{
    const char *first = scan->layout->split.paths[0];
    uint64_t count;
    hid_t dataset;
    const char *why = open_column(scan, group, path, &dataset, &count);

    if (why)
        return why;
    if (!*ends) {
        *ends = calloc(count, sizeof **ends);
        *rows = count;
    }
    if (!*ends)
        why = no_memory;
    else if (count != *rows)
        why = trajd_arena_format(scan->arena, "%s: has %" PRIu64 " row%s, and %s has %" PRIu64,
                                 path, count, trajd_plural(count), first, *rows);
    else
        why = read_flags(scan, dataset, path, count, *ends);
    H5Dclose(dataset);
    return why;
}

/* The two arrays of `next:`. */
struct next {
    hid_t dataset[2]; /* the rows, and the next row of each */
    uint64_t width;   /* of a row */
    double *values[2];
    uint64_t count; /* of rows that `values` has room for */
};

static const char *open_next(struct trajd_scan *scan, hid_t group, uint64_t rows, struct next *next)
{
    const struct trajd_layout_split *split = &scan->layout->split;
    const char *const paths[] = {split->rows_path, split->next_path};

    for (int i = 0; i < 2; i++) {
        uint64_t width = 0, own;
        next->dataset[i] = H5Dopen2(group, paths[i], H5P_DEFAULT);
        if (next->dataset[i] < 0)
            return trajd_arena_format(scan->arena, "%s: cannot be opened: %s", paths[i],
                                      trajd_scan_error(scan));
        own = trajd_scan_row_count(next->dataset[i], &width);
        if (own != rows || !width || (i && width != next->width))
            return trajd_arena_format(
                scan->arena, "%s: `next` of the layout needs rows of numbers, as many as %s has%s",
                paths[i], split->paths[0], i ? ", each as long as those of the other array" : "");
        next->width = width;
    }
    next->count = width_max / next->width + 1;
    for (int i = 0; i < 2; i++)
        next->values[i] = calloc(next->count, next->width * sizeof *next->values[i]);
    return next->values[0] && next->values[1] ? NULL : no_memory;
}

/* Returns whether the row and the next one of the row before it differ. NaN is equal to itself. */
static bool differ(const struct next *next, uint64_t row)
{
    const double *a = next->values[0] + row * next->width, *b = next->values[1] + row * next->width;

    for (uint64_t k = 0; k < next->width; k++)
        if (a[k] != b[k] && !(isnan(a[k]) && isnan(b[k])))
            return true;
    return false;
}

/* Sets ends[i] where the next row of row i is not row i + 1. */
static const char *compare_next(struct trajd_scan *scan, const struct next *next, uint64_t rows,
                                bool *ends)
{
    const struct trajd_layout_split *split = &scan->layout->split;
    uint64_t differing = 0;

    for (uint64_t begin = 0; begin + 1 < rows; begin += next->count) {
        const uint64_t left = rows - 1 - begin, some = left < next->count ? left : next->count;
        if (!trajd_scan_rows_read(next->dataset[0], begin + 1, some, next->width, next->values[0]))
            return cannot_read(scan, split->rows_path);
        if (!trajd_scan_rows_read(next->dataset[1], begin, some, next->width, next->values[1]))
            return cannot_read(scan, split->next_path);
        for (uint64_t i = 0; i < some; i++) {
            const bool is_end = differ(next, i);
            differing += is_end;
            ends[begin + i] = ends[begin + i] || is_end;
        }
    }
    return 2 * differing <= rows
               ? NULL
               : trajd_arena_format(scan->arena,
                                    "%s: %" PRIu64 " of %" PRIu64
                                    " rows are not the following row of %s, so these are not "
                                    "next rows",
                                    split->next_path, differing, rows, split->rows_path);
}

/* Ends episodes where the recording jumps although no flag is set. */
static const char *add_jumps(struct trajd_scan *scan, hid_t group, uint64_t rows, bool *ends)
{
    struct next next = {.dataset = {-1, -1}};
    const char *why = open_next(scan, group, rows, &next);

    if (!why)
        why = compare_next(scan, &next, rows, ends);
    for (int i = 0; i < 2; i++) {
        if (next.dataset[i] >= 0)
            H5Dclose(next.dataset[i]);
        free(next.values[i]);
    }
    return why;
}

static const char *find_flagged(struct trajd_scan *scan, hid_t group, struct parts *parts)
{
    const struct trajd_layout_split *split = &scan->layout->split;
    const char *why = NULL;
    bool *ends = NULL, has_room;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < split->path_count && !why; i++)
        why = add_flag(scan, group, split->paths[i], &ends, &rows);
    if (!why && split->next_path)
        why = add_jumps(scan, group, rows, ends);
    has_room = add_begin(parts, 0);
    for (uint64_t i = 0; !why && has_room && i + 1 < rows; i++)
        has_room = !ends[i] || add_begin(parts, i + 1);
    if (!why && has_room) {
        parts->last_is_open = !ends[rows - 1];
        has_room = add_begin(parts, rows);
    }
    free(ends);
    return why ? why : has_room ? NULL : "more than a million episodes";
}

/* ---- numbers ---- */

/* Adds the begin of the episode after the one that a value ends or begins. */
static const char *add_number(struct trajd_scan *scan, struct parts *parts, uint64_t row,
                              double value)
{
    const struct trajd_layout_split *split = &scan->layout->split;
    const uint64_t last = parts->begins[parts->count - 1];
    const bool is_start = split->kind == TRAJD_SPLIT_STARTS;
    uint64_t begin;

    if (!(value >= 0 && value < 0x1p53) || value != floor(value))
        return trajd_arena_format(scan->arena, "%s: row %" PRIu64 " is %g, and no number of rows",
                                  split->paths[0], row, value);
    begin = (uint64_t)value + (split->kind == TRAJD_SPLIT_LENGTHS ? last : 0);
    if (is_start && !row)
        return begin ? trajd_arena_format(scan->arena,
                                          "%s: the first episode begins at row %" PRIu64
                                          ": the rows before it belong to none",
                                          split->paths[0], begin)
                     : NULL;
    if (begin < last)
        return trajd_arena_format(scan->arena,
                                  "%s: row %" PRIu64 " is %" PRIu64 ", before row %" PRIu64
                                  " of the episode before it: the numbers must ascend",
                                  split->paths[0], row, begin, last);
    return add_begin(parts, begin) ? NULL : "more than a million episodes";
}

static const char *find_numbered(struct trajd_scan *scan, hid_t group, struct parts *parts)
{
    const char *path = scan->layout->split.paths[0];
    uint64_t count;
    double values[1024];
    hid_t dataset;
    const char *why = open_column(scan, group, path, &dataset, &count);

    if (why)
        return why;
    if (!add_begin(parts, 0))
        why = no_memory;
    for (uint64_t begin = 0; begin < count && !why; begin += ARRAY_LEN(values)) {
        const uint64_t some = count - begin < ARRAY_LEN(values) ? count - begin : ARRAY_LEN(values);
        if (!trajd_scan_column_read(dataset, begin, some, values))
            why = cannot_read(scan, path);
        for (uint64_t i = 0; i < some && !why; i++)
            why = add_number(scan, parts, begin + i, values[i]);
    }
    H5Dclose(dataset);
    return why;
}

/* ---- rows ---- */

/* Returns the rows of the first array that the layout requires, else of the first one. */
static uint64_t count_rows(const struct trajd_scan *scan, const struct trajd_record_episode *whole)
{
    for (uint32_t i = 0; i < whole->array_count; i++)
        if (!whole->arrays[i].refusal && trajd_layout_requires(scan->layout, whole->arrays[i].path))
            return whole->arrays[i].extent.shape[0];
    return whole->array_count ? whole->arrays[0].extent.shape[0] : 0;
}

/* Finds the begins, and the end of the last episode. */
static const char *find_parts(struct trajd_scan *scan, hid_t group,
                              const struct trajd_record_episode *whole, struct parts *parts)
{
    const struct trajd_layout_split *split = &scan->layout->split;
    const uint64_t rows = count_rows(scan, whole);
    const char *why = split->kind == TRAJD_SPLIT_FLAGS ? find_flagged(scan, group, parts)
                                                       : find_numbered(scan, group, parts);

    if (!why && split->kind == TRAJD_SPLIT_STARTS && rows < parts->begins[parts->count - 1])
        return trajd_arena_format(scan->arena,
                                  "%s: the last episode begins at row %" PRIu64 " of %" PRIu64,
                                  split->paths[0], parts->begins[parts->count - 1], rows);
    if (!why && split->kind == TRAJD_SPLIT_STARTS && !add_begin(parts, rows))
        return no_memory;
    parts->count -= !why;
    return why;
}

/* Checks that the arrays have as many rows as all episodes together. Optional ones that have not
 * are left out, with a note. */
static const char *check_rows(struct trajd_scan *scan, struct trajd_record_episode *whole,
                              const struct parts *parts)
{
    const char *const first = scan->layout->split.paths[0];
    const uint64_t rows = parts->begins[parts->count];
    uint32_t kept = 0;

    for (uint32_t i = 0; i < whole->array_count; i++) {
        struct trajd_record_array *array = &whole->arrays[i];
        const uint64_t own = array->extent.shape[0];
        const char *why;
        if (array->refusal || own == rows) {
            whole->arrays[kept++] = *array;
            continue;
        }
        why = trajd_arena_format(scan->arena,
                                 "has %" PRIu64 " row%s, and the episodes of %s have %" PRIu64, own,
                                 trajd_plural(own), first, rows);
        if (trajd_layout_requires(scan->layout, array->path))
            return trajd_arena_format(scan->arena, "%s: %s", array->path, why ? why : no_memory);
        trajd_scan_note(scan, whole->id, array->path, why ? why : no_memory);
    }
    whole->array_count = kept;
    return NULL;
}

/* ---- episodes ---- */

/* Opens an array with a chunk cache for all chunks of one row. */
static hid_t open_array(hid_t group, const char *path)
{
    const hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    hid_t dataset;

    H5Pset_chunk_cache(access, CHUNK_CACHE_SLOTS, chunk_cache_bytes, 1);
    dataset = H5Dopen2(group, path, access);
    H5Pclose(access);
    return dataset;
}

/* Gives the array of each episode: its rows, and what libhdf5 reads of the first ones. */
static void cut_array(struct trajd_scan *scan, hid_t group, uint32_t a,
                      const struct trajd_record_episode *whole, const struct parts *parts,
                      struct trajd_record_episode *episodes)
{
    const struct trajd_record_array *from = &whole->arrays[a];
    hid_t dataset = from->refusal ? -1 : open_array(group, from->match ? from->match : from->path);

    for (uint32_t i = 0; i < parts->count; i++) {
        const uint64_t begin = parts->begins[i], rows = parts->begins[i + 1] - begin;
        struct trajd_record_array *array = &episodes[i].arrays[a];
        if (!rows)
            continue;
        *array = *from;
        if (from->refusal)
            continue;
        trajd_array_slice(&array->extent, begin, rows);
        if (dataset >= 0) /* not a group of packed frames */
            trajd_scan_check_rows(scan, dataset, begin, array);
    }
    if (dataset >= 0)
        H5Dclose(dataset);
    H5Eclear2(H5E_DEFAULT);
}

/* Names the episode and gives it what all episodes of the group share. */
static const char *start_episode(struct trajd_scan *scan, uint32_t number,
                                 const struct trajd_record_episode *whole,
                                 const struct parts *parts, struct trajd_record_episode *episode)
{
    const uint64_t begin = parts->begins[number], end = parts->begins[number + 1];

    *episode = *whole;
    episode->id = trajd_arena_format(scan->arena, "%s%sepisode_%" PRIu32, whole->id,
                                     *whole->id ? "/" : "", number);
    episode->arrays =
        trajd_arena_alloc(scan->arena, (whole->array_count + 1) * sizeof *episode->arrays);
    episode->first_row = begin;
    episode->all_rows = parts->begins[parts->count];
    if (begin == end)
        episode->problem =
            trajd_arena_format(scan->arena, "%s: the episode has 0 rows at row %" PRIu64,
                               scan->layout->split.paths[0], begin);
    else if (number + 1 == parts->count && parts->last_is_open)
        episode->problem = trajd_arena_format(
            scan->arena,
            "%s%s: not set in the rows %" PRIu64 " to %" PRIu64
            ", the last of the file: the recording stops before the end of the episode",
            scan->layout->split.paths[0],
            scan->layout->split.path_count > 1 ? " and the other flags" : "", begin, end - 1);
    if (episode->problem)
        episode->array_count = 0;
    return episode->id && episode->arrays ? NULL : no_memory;
}

const char *trajd_scan_split(struct trajd_scan *scan, hid_t group,
                             const struct trajd_scan_names *links,
                             struct trajd_record_episode *whole)
{
    const struct trajd_layout_split *split = &scan->layout->split;
    struct trajd_record_episode own = *whole, *episodes = NULL;
    struct parts parts = {0};
    const char *why;

    for (uint32_t i = 0; i < split->path_count; i++)
        if (H5Lexists(group, split->paths[i], H5P_DEFAULT) <= 0) {
            H5Eclear2(H5E_DEFAULT);
            whole->is_misfit = true;
            return trajd_arena_format(scan->arena, "%s: missing (`split` of the layout needs it)",
                                      split->paths[i]);
        }
    why = find_parts(scan, group, whole, &parts);
    if (!why)
        why = check_rows(scan, &own, &parts);
    if (!why && split->kind == TRAJD_SPLIT_FLAGS)
        why = trajd_scan_form_split(scan, group, links, &own, parts.begins, parts.count);
    if (!why)
        episodes = trajd_scan_add_episodes(scan, parts.count);
    if (!why && !episodes)
        why = no_memory;
    for (uint32_t i = 0; i < parts.count && !why; i++)
        why = start_episode(scan, i, &own, &parts, &episodes[i]);
    for (uint32_t a = 0; a < own.array_count && !why; a++)
        cut_array(scan, group, a, &own, &parts, episodes);
    free(parts.begins);
    return why;
}
