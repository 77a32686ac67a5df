/* Finds quaternions in rows: four adjacent columns of length 1 that turn. A layout has to declare
 * them with kind slerp, because linear and mean blend columns as plain numbers: half way between q
 * and -q, which are one rotation, the blend is zero.
 *
 *     search of one array of one episode   start, add_row (each row), end -> found
 *     all episodes                         merge(found, found of the next episode)
 *     judgement                            select -> quaternions
 *     text for people                      advise
 *
 * Pure: nothing here reads files or allocates. */
#ifndef TRAJD_LAYOUT_QUATERNIONS_H
#define TRAJD_LAYOUT_QUATERNIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/resample.h"

enum {
    TRAJD_QUATERNIONS_MAX = 64,      /* of one array; further ones are not reported */
    TRAJD_QUATERNION_ROW_MAX = 1024, /* elements; wider rows are not searched */
    TRAJD_QUATERNION_ADVICE_SIZE = 512,
};

/* Columns [column, column + 4) of a row, and what is known of them over all rows in which they have
 * length 1. */
struct trajd_quaternion {
    uint32_t column;
    bool is_one_hot; /* in each row one element is 1 or -1, and the others are 0 */
    float error;     /* the largest |length - 1| */
    float low[4], high[4];
};

struct trajd_quaternion_candidate {
    struct trajd_quaternion columns;
    uint32_t unit_rows, blank_rows; /* blank: all four are 0, or one is NaN */
};

struct trajd_quaternion_search {
    uint32_t count;
    struct trajd_quaternion_candidate candidates[TRAJD_QUATERNION_ROW_MAX];
};

/* Begins a search. A row has `elements` elements, and its last axis `axis` (of shape (T, 2, 4): 8
 * and 4). A quaternion does not cross the last axis. */
void trajd_quaternion_search_start(struct trajd_quaternion_search *search, uint64_t elements,
                                   uint64_t axis);
/* Examines a row of `elements` elements. */
void trajd_quaternion_search_add_row(struct trajd_quaternion_search *search, const double *row);
/* Writes the columns that had length 1, within 0.001, in all rows that were not blank, ascending.
 * Returns their number. */
uint32_t trajd_quaternion_search_end(const struct trajd_quaternion_search *search,
                                     struct trajd_quaternion found[TRAJD_QUATERNIONS_MAX]);

/* Keeps in found[count] the columns that other[other_count] has too, with the ranges of both.
 * Returns their number. */
uint32_t trajd_quaternions_merge(struct trajd_quaternion *found, uint32_t count,
                                 const struct trajd_quaternion *other, uint32_t other_count);

/* Keeps in found[count] the columns that are quaternions beyond doubt. They turn, they are not
 * one-hot, and no two overlap. If the row has other columns, too, each of the four is needed for
 * the length 1. Returns their number. */
uint32_t trajd_quaternions_select(struct trajd_quaternion *found, uint32_t count, uint64_t elements,
                                  uint64_t axis);

/* Returns "xyzw" or "wxyz" if the values show the order: a body that only turns about the vertical
 * axis, or a gripper that points down, has two columns near 0. Else NULL. */
const char *trajd_quaternion_order(const struct trajd_quaternion *quaternion);

/* A stream whose columns are blended as plain numbers. */
struct trajd_quaternion_advice {
    const char *stream, *path;
    const char *clock; /* NULL: the layout has one clock, so an entry need not name it */
    enum trajd_kind kind;
    /* columns of the array that the stream has: [first_column, first_column + feature_count) */
    uint64_t first_column, feature_count;
    uint64_t elements; /* of a row of the array */
    bool has_columns;  /* the array is of rank 2: a layout can name some columns of it */
    uint32_t count;    /* >= 1 */
    const struct trajd_quaternion *quaternions;
};

/* Writes which columns are quaternions, and the entries that the layout needs, the first two of
 * many. */
void trajd_quaternions_advise(const struct trajd_quaternion_advice *advice,
                              char text[TRAJD_QUATERNION_ADVICE_SIZE]);

#endif
