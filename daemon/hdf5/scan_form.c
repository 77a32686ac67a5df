/* Recognises episodes whose arrays do not have one row for each time step of one episode. A layout
 * would read wrong rows from them. The rules leave a form alone in doubt: what they do not
 * recognise is listed in clients/docs/reference/layouts.md. */
#include <inttypes.h>
#include <string.h>

#include "daemon/layout/glob.h"
#include "daemon/hdf5/scan.h"
#include "proto/array_len.h"

/* An axis this long is none of arms, fingers or points of a hand. */
static const uint64_t axis_rows_min = 32;
/* A row of low-dimensional data is no longer. */
static const uint64_t row_width_max = 64;

static bool is_usable(const struct trajd_record_array *array)
{
    return !array->refusal && array->extent.rank && array->extent.size_bytes;
}

/* Returns the axes of an array. A frame that is a run of bytes has none. */
static uint32_t rank_of(const struct trajd_array *array)
{
    return trajd_array_is_encoded(array) ? 1 : array->rank;
}

/* Returns whether axis 0 counts episodes and axis 1 rows: all arrays have both axes in common, and
 * at least one has columns on a third. */
static bool is_stacked(const struct trajd_record_episode *episode)
{
    const struct trajd_array *first = NULL;
    bool has_columns = false;
    uint32_t count = 0; /* of arrays that are not images */

    for (uint32_t i = 0; i < episode->array_count; i++) {
        const struct trajd_array *array = &episode->arrays[i].extent;
        if (!is_usable(&episode->arrays[i]) || rank_of(array) < 2)
            continue;
        if (!first)
            first = array;
        if (array->shape[0] != first->shape[0] || array->shape[1] != first->shape[1])
            return false;
        if (array->dtype == TRAJD_U8)
            continue;
        count++;
        has_columns = has_columns || (array->rank > 2 && array->shape[2] <= row_width_max);
    }
    return count > 1 && has_columns && first->shape[1] >= axis_rows_min;
}

/* Returns whether the rows of all arrays of rank 2 are on axis 1: they have that axis in common,
 * and not axis 0, or the other arrays have as many rows as it, or all have the same improbable
 * shape. */
static bool is_transposed(const struct trajd_record_episode *episode)
{
    const struct trajd_array *first = NULL;
    bool differs = false, has_witness = false;
    uint64_t longest = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < episode->array_count; i++) {
        const struct trajd_array *array = &episode->arrays[i].extent;
        if (!is_usable(&episode->arrays[i]) || rank_of(array) != 2)
            continue;
        if (!first)
            first = array;
        if (array->shape[1] != first->shape[1])
            return false;
        differs = differs || array->shape[0] != first->shape[0];
        longest = array->shape[0] > longest ? array->shape[0] : longest;
        count++;
    }
    if (!first || first->shape[1] <= longest)
        return false;
    for (uint32_t i = 0; i < episode->array_count; i++) {
        const struct trajd_array *array = &episode->arrays[i].extent;
        if (!is_usable(&episode->arrays[i]) || rank_of(array) == 2)
            continue;
        if (array->shape[0] <= longest)
            return false;
        has_witness = has_witness || array->shape[0] == first->shape[1];
    }
    return has_witness || (differs && first->shape[1] >= axis_rows_min) ||
           (count > 1 && first->shape[1] > row_width_max && first->shape[1] >= 4 * longest);
}

/* ---- flags ---- */

enum flag_kind {
    LAST_ROW,  /* not 0 in the last row of an episode */
    FIRST_ROW, /* not 0 in the first row of an episode */
    LABEL,     /* the number of the row's episode */
    ENDS,      /* for each episode the row after its last one */
};

struct flag {
    const char *name;
    enum flag_kind kind;
    /* Also counts in groups that a wildcard finds. Each of those is one episode, in which robomimic
     * and ManiSkill set the other flags in every state of success. */
    bool in_groups;
};

static const struct flag flags[] = {
    {"dones", LAST_ROW, false},       {"done", LAST_ROW, false},
    {"terminated", LAST_ROW, false},  {"truncated", LAST_ROW, false},
    {"terminations", LAST_ROW, true}, {"truncations", LAST_ROW, true},
    {"terminals", LAST_ROW, true},    {"timeouts", LAST_ROW, true},
    {"is_last", LAST_ROW, true},      {"is_first", FIRST_ROW, true},
    {"episode_index", LABEL, true},   {"episode_id", LABEL, true},
    {"episode_ends", ENDS, true},     {"meta/episode_ends", ENDS, true},
};

/* Returns whether an array of the episode has this number of rows. */
static bool has_rows(const struct trajd_record_episode *episode, uint64_t rows)
{
    for (uint32_t i = 0; i < episode->array_count; i++) {
        if (is_usable(&episode->arrays[i]) && episode->arrays[i].extent.shape[0] == rows)
            return true;
    }
    return false;
}

/* Returns whether another episode begins at a value after this one. */
static bool is_boundary(enum flag_kind kind, double before, double value)
{
    return kind == LAST_ROW    ? before != 0 && value == 0
           : kind == FIRST_ROW ? value != 0
                               : before != value;
}

/* The rows at which episodes begin, ascending. */
struct begins {
    const uint64_t *rows;
    uint32_t count;
};

/* Returns whether the row is one of the begins. Rows ascend from call to call. */
static bool is_known(struct begins *begins, uint64_t row)
{
    while (begins->count && *begins->rows < row) {
        begins->rows++;
        begins->count--;
    }
    return begins->count && *begins->rows == row;
}

/* Finds the first row at which another episode begins, and which is none of `begins`; `rows` where
 * there is none. False where the flags cannot be read. */
static bool find_boundary(hid_t dataset, enum flag_kind kind, uint64_t rows, struct begins begins,
                          uint64_t *boundary)
{
    double values[4096], before = 0;

    for (uint64_t begin = 0; begin < rows; begin += ARRAY_LEN(values)) {
        const uint64_t count = rows - begin < ARRAY_LEN(values) ? rows - begin : ARRAY_LEN(values);
        if (!trajd_scan_column_read(dataset, begin, count, values))
            return false;
        for (uint64_t i = 0; i < count; i++) {
            if (begin + i && is_boundary(kind, before, values[i]) &&
                !is_known(&begins, begin + i)) {
                *boundary = begin + i;
                return true;
            }
            before = values[i];
        }
    }
    *boundary = rows;
    return true;
}

/* Finds the end of the first episode in a list of ends; `rows` where there is one episode. */
static bool find_first_end(hid_t dataset, const struct trajd_record_episode *episode,
                           uint64_t count, uint64_t *rows, uint64_t *boundary)
{
    double first, last;

    *rows = *boundary = 0;
    if (!trajd_scan_column_read(dataset, 0, 1, &first) ||
        !trajd_scan_column_read(dataset, count - 1, 1, &last))
        return false;
    if (count > 1 && last >= 1 && last < 9e15 && first > 0 && first < last &&
        has_rows(episode, (uint64_t)last)) {
        *rows = (uint64_t)last;
        *boundary = (uint64_t)first;
    }
    return true;
}

static const char *cannot_read(struct trajd_scan *scan, const struct flag *flag)
{
    return trajd_arena_format(scan->arena,
                              "%s: cannot be read, so that it is not known whether an episode "
                              "ends inside the arrays: %s",
                              flag->name, trajd_scan_error(scan));
}

/* Returns why the flags show several episodes, or NULL. */
static const char *check_flags(struct trajd_scan *scan, hid_t dataset, const struct flag *flag,
                               const struct trajd_record_episode *episode)
{
    uint64_t rows = trajd_scan_column_count(dataset), boundary = rows;
    bool is_read = true;

    if (!rows || (flag->kind != ENDS && !has_rows(episode, rows)))
        return NULL;
    is_read = flag->kind == ENDS
                  ? find_first_end(dataset, episode, rows, &rows, &boundary)
                  : find_boundary(dataset, flag->kind, rows, (struct begins){0}, &boundary);
    if (!is_read)
        return cannot_read(scan, flag);
    if (boundary == rows)
        return NULL;
    return trajd_arena_format(scan->arena,
                              "%s: another episode begins at row %" PRIu64 " of %" PRIu64
                              ": the arrays hold several episodes one after another; cut them by "
                              "`split` in the layout",
                              flag->name, boundary, rows);
}

static bool is_there(hid_t group, const struct trajd_scan_names *links, const char *name)
{
    if (!strchr(name, '/'))
        return trajd_scan_names_have(links, name);
    return trajd_scan_names_have(links, "meta") && H5Lexists(group, name, H5P_DEFAULT) > 0;
}

/* Returns whether the layout's split names the flag. */
static bool is_in_split(const struct trajd_layout_split *split, const char *name)
{
    for (uint32_t i = 0; i < split->path_count; i++)
        if (!strcmp(split->paths[i], name))
            return true;
    return false;
}

/* Returns why a flag that the split does not name shows an episode that begins elsewhere than at
 * `begins`, or NULL. */
static const char *check_split_flags(struct trajd_scan *scan, hid_t dataset,
                                     const struct flag *flag,
                                     const struct trajd_record_episode *episode,
                                     struct begins begins)
{
    const uint64_t rows = begins.rows[begins.count];
    uint64_t boundary = rows;

    if (trajd_scan_column_count(dataset) != rows || !has_rows(episode, rows))
        return NULL;
    if (!find_boundary(dataset, flag->kind, rows, begins, &boundary))
        return cannot_read(scan, flag);
    if (boundary == rows)
        return NULL;
    return trajd_arena_format(scan->arena,
                              "%s: another episode begins at row %" PRIu64 " of %" PRIu64
                              ", where the flags of the layout's `split` end none: add %s to them",
                              flag->name, boundary, rows, flag->name);
}

/* Returns why the flags of the group contradict that it is one episode, or, where `begins` has rows,
 * those episodes; or NULL. */
static const char *check_all_flags(struct trajd_scan *scan, hid_t group,
                                   const struct trajd_scan_names *links,
                                   const struct trajd_record_episode *episode, struct begins begins)
{
    const bool only_in_groups = begins.rows || trajd_is_glob(scan->layout->groups);
    const char *why = NULL;

    for (size_t i = 0; i < ARRAY_LEN(flags) && !why; i++) {
        hid_t dataset;
        if ((only_in_groups && !flags[i].in_groups) ||
            (begins.rows &&
             (flags[i].kind == ENDS || is_in_split(&scan->layout->split, flags[i].name))) ||
            !is_there(group, links, flags[i].name))
            continue;
        dataset = H5Dopen2(group, flags[i].name, H5P_DEFAULT);
        if (dataset < 0)
            continue; /* a group, or damaged: of no stream then */
        why = begins.rows ? check_split_flags(scan, dataset, &flags[i], episode, begins)
                          : check_flags(scan, dataset, &flags[i], episode);
        H5Dclose(dataset);
    }
    H5Eclear2(H5E_DEFAULT);
    return why;
}

const char *trajd_scan_form(struct trajd_scan *scan, hid_t group,
                            const struct trajd_scan_names *links,
                            const struct trajd_record_episode *episode)
{
    /* Stamps count the rows. Arrays of several clocks have different numbers of rows. */
    if (scan->layout->clock_count == 1 && !scan->layout->clocks[0].stamps_path) {
        if (is_stacked(episode))
            return "its arrays hold several episodes stacked on axis 0, which a layout reads as "
                   "time; write each into a group or file of its own";
        if (is_transposed(episode))
            return "its arrays have the time on the last axis, and a layout reads axis 0 as time; "
                   "transpose them";
    }
    return scan->layout->split.kind
               ? NULL
               : check_all_flags(scan, group, links, episode, (struct begins){0});
}

const char *trajd_scan_form_split(struct trajd_scan *scan, hid_t group,
                                  const struct trajd_scan_names *links,
                                  const struct trajd_record_episode *episode,
                                  const uint64_t *begins, uint32_t count)
{
    return check_all_flags(scan, group, links, episode, (struct begins){begins, count});
}
