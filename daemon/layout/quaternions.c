/* Searches rows for quaternions, and writes the advice about them. */
#include "daemon/layout/quaternions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/text/text.h"

static const double unit_tolerance = 1e-3;
static const double turn_min = 0.01;  /* the least range of a column that is not constant */
static const double small_max = 0.2;  /* of a column that is near 0, for the order */
static const double large_min = 0.3;  /* of a column that is not */
static const double needed_min = 4.0; /* times the error: what a column adds to the square */

enum { COLUMNS_LISTED = 8, ENTRIES_LISTED = 2 };

/* ---- search ---- */

void trajd_quaternion_search_start(struct trajd_quaternion_search *search, uint64_t elements,
                                   uint64_t axis)
{
    search->count = 0;
    if (elements > TRAJD_QUATERNION_ROW_MAX || axis < 4)
        return;
    for (uint32_t c = 0; c < elements; c++)
        if (c % axis + 4 <= axis)
            search->candidates[search->count++] =
                (struct trajd_quaternion_candidate){.columns = {.column = c, .is_one_hot = true}};
}

static void extend(struct trajd_quaternion *quaternion, const double *q, double error, bool first)
{
    bool one_hot = true;

    if (first || (float)error > quaternion->error)
        quaternion->error = (float)error;
    for (int k = 0; k < 4; k++) {
        const float value = (float)q[k];
        one_hot = one_hot && (q[k] == 0 || fabs(q[k]) == 1);
        quaternion->low[k] = first || value < quaternion->low[k] ? value : quaternion->low[k];
        quaternion->high[k] = first || value > quaternion->high[k] ? value : quaternion->high[k];
    }
    quaternion->is_one_hot = quaternion->is_one_hot && one_hot;
}

/* Returns whether the columns may still be a quaternion after this row. */
static bool examine(struct trajd_quaternion_candidate *candidate, const double *q)
{
    const double square = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
    const double error = fabs(sqrt(square) - 1);

    if (isnan(square) || square == 0) {
        candidate->blank_rows++;
        return true;
    }
    if (error > unit_tolerance)
        return false;
    extend(&candidate->columns, q, error, !candidate->unit_rows++);
    return true;
}

void trajd_quaternion_search_add_row(struct trajd_quaternion_search *search, const double *row)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < search->count; i++) {
        struct trajd_quaternion_candidate *candidate = &search->candidates[i];
        if (!examine(candidate, row + candidate->columns.column))
            continue;
        if (kept != i)
            search->candidates[kept] = *candidate;
        kept++;
    }
    search->count = kept;
}

uint32_t trajd_quaternion_search_end(const struct trajd_quaternion_search *search,
                                     struct trajd_quaternion found[TRAJD_QUATERNIONS_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < search->count && count < TRAJD_QUATERNIONS_MAX; i++) {
        const struct trajd_quaternion_candidate *candidate = &search->candidates[i];
        if (candidate->unit_rows && candidate->unit_rows >= candidate->blank_rows)
            found[count++] = candidate->columns;
    }
    return count;
}

/* ---- judgement ---- */

uint32_t trajd_quaternions_merge(struct trajd_quaternion *found, uint32_t count,
                                 const struct trajd_quaternion *other, uint32_t other_count)
{
    uint32_t kept = 0, o = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct trajd_quaternion merged = found[i];
        while (o < other_count && other[o].column < merged.column)
            o++;
        if (o == other_count || other[o].column != merged.column)
            continue;
        merged.is_one_hot = merged.is_one_hot && other[o].is_one_hot;
        merged.error = fmaxf(merged.error, other[o].error);
        for (int k = 0; k < 4; k++) {
            merged.low[k] = fminf(merged.low[k], other[o].low[k]);
            merged.high[k] = fmaxf(merged.high[k], other[o].high[k]);
        }
        found[kept++] = merged;
    }
    return kept;
}

static double largest(const struct trajd_quaternion *quaternion, int k)
{
    return fmax(fabs((double)quaternion->low[k]), fabs((double)quaternion->high[k]));
}

static bool turns(const struct trajd_quaternion *quaternion)
{
    bool any = false;

    for (int k = 0; k < 4; k++)
        any = any || (double)(quaternion->high[k] - quaternion->low[k]) >= turn_min;
    return any && !quaternion->is_one_hot;
}

/* Returns whether the length would differ from 1 without any one of the columns. Else the length 1
 * may be that of two or three columns beside one that is nearly 0. */
static bool needs_each_column(const struct trajd_quaternion *quaternion)
{
    bool all = true;

    for (int k = 0; k < 4; k++) {
        const double most = largest(quaternion, k);
        all = all && most > 0 && most * most > needed_min * (double)quaternion->error;
    }
    return all;
}

/* Returns whether exactly one column is always 0: a direction with a zero behind or before it. */
static bool is_direction(const struct trajd_quaternion *quaternion)
{
    int zeros = 0;

    for (int k = 0; k < 4; k++)
        zeros += largest(quaternion, k) == 0;
    return zeros == 1;
}

static bool has_column(const struct trajd_quaternion *found, uint32_t count, uint64_t column)
{
    for (uint32_t i = 0; i < count; i++)
        if (found[i].column == column)
            return true;
    return false;
}

/* Returns whether a row is made of nothing but quaternions, or is a position with one behind it:
 * the places where quaternions stand. */
static bool has_usual_form(const struct trajd_quaternion *found, uint32_t count, uint64_t elements,
                           uint64_t axis)
{
    if (axis == 7)
        return true;
    for (uint64_t c = 0; c < elements && c / 4 < TRAJD_QUATERNIONS_MAX; c += 4)
        if (!has_column(found, count, c))
            return false;
    return axis % 4 == 0;
}

static bool stands_usually(const struct trajd_quaternion *quaternion, uint64_t axis)
{
    return axis == 7 ? quaternion->column % 7 == 3 : quaternion->column % 4 == 0;
}

/* Removes columns that overlap others, which are kept if their length is nearer to 1. */
static uint32_t separate(struct trajd_quaternion *found, uint32_t count)
{
    bool is_kept[TRAJD_QUATERNIONS_MAX] = {false}, is_out[TRAJD_QUATERNIONS_MAX] = {false};
    uint32_t kept = 0;

    for (;;) {
        uint32_t best = count;
        for (uint32_t i = 0; i < count; i++)
            if (!is_kept[i] && !is_out[i] && (best == count || found[i].error < found[best].error))
                best = i;
        if (best == count)
            break;
        is_kept[best] = true;
        for (uint32_t i = 0; i < count; i++)
            is_out[i] = is_out[i] || (!is_kept[i] && found[i].column + 4 > found[best].column &&
                                      found[best].column + 4 > found[i].column);
    }
    for (uint32_t i = 0; i < count; i++)
        if (is_kept[i])
            found[kept++] = found[i];
    return kept;
}

uint32_t trajd_quaternions_select(struct trajd_quaternion *found, uint32_t count, uint64_t elements,
                                  uint64_t axis)
{
    const bool is_usual = has_usual_form(found, count, elements, axis);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        const bool expected = is_usual && stands_usually(&found[i], axis);
        if (turns(&found[i]) &&
            (expected ? !is_direction(&found[i]) : needs_each_column(&found[i])))
            found[kept++] = found[i];
    }
    return separate(found, kept);
}

const char *trajd_quaternion_order(const struct trajd_quaternion *quaternion)
{
    bool is_small[4], is_large[4];

    for (int k = 0; k < 4; k++) {
        is_small[k] = largest(quaternion, k) < small_max;
        is_large[k] = largest(quaternion, k) > large_min;
    }
    if (is_small[1] && is_small[2] && is_large[0] && is_large[3])
        return "wxyz"; /* upright: (w, 0, 0, z) */
    if (is_small[0] && is_small[3] && is_large[1] && is_large[2])
        return "wxyz"; /* down: (0, x, y, 0) */
    if (is_small[0] && is_small[1] && is_large[2] && is_large[3])
        return "xyzw"; /* upright: (0, 0, z, w) */
    return NULL;
}

/* ---- text ---- */

/* Returns the column behind the quaternions that follow quaternion i without a space. *next becomes
 * the first quaternion that does not. */
static uint64_t end_of_run(const struct trajd_quaternion_advice *advice, uint32_t i, uint32_t *next)
{
    const struct trajd_quaternion *all = advice->quaternions;

    for (*next = i + 1; *next < advice->count && all[*next].column == all[*next - 1].column + 4;)
        (*next)++;
    return all[*next - 1].column + 4;
}

/* Returns the order that the quaternions show; NULL: none, or two different ones. */
static const char *order_of(const struct trajd_quaternion_advice *advice)
{
    const char *order = NULL;

    for (uint32_t i = 0; i < advice->count; i++) {
        const char *one = trajd_quaternion_order(&advice->quaternions[i]);
        if (one && order && strcmp(one, order) != 0)
            return NULL;
        order = one ? one : order;
    }
    return order;
}

static void add_columns(struct trajd_text *text, const struct trajd_quaternion_advice *advice)
{
    for (uint32_t i = 0, next; i < advice->count; i = next) {
        const uint64_t end = end_of_run(advice, i, &next);
        if (i >= COLUMNS_LISTED)
            return trajd_text_add(text, ", ...");
        trajd_text_add(text, "%s%u..%llu", i ? ", " : "", advice->quaternions[i].column,
                       (unsigned long long)end - 1);
    }
}

/* Adds the layout's entry for the columns [begin, end) of the array. */
static void add_entry(struct trajd_text *text, const struct trajd_quaternion_advice *advice,
                      uint32_t begin, uint64_t end, bool is_whole, const char *order)
{
    trajd_text_add(text, "%s", advice->stream);
    if (!is_whole)
        trajd_text_add(text, "_%u", begin);
    trajd_text_add(text, ": {path: %s, ", advice->path);
    if (begin > 0 || end < advice->elements)
        trajd_text_add(text, "columns: \"%u:%llu\", ", begin, (unsigned long long)end);
    if (advice->clock)
        trajd_text_add(text, "clock: %s, ", advice->clock);
    trajd_text_add(text, "kind: slerp, order: %s}", order ? order : "ORDER");
}

static void add_entries(struct trajd_text *text, const struct trajd_quaternion_advice *advice,
                        bool is_whole)
{
    const char *order = order_of(advice);

    for (uint32_t i = 0, next, run = 0; i < advice->count; i = next, run++) {
        const uint64_t end = end_of_run(advice, i, &next);
        if (run == ENTRIES_LISTED) {
            trajd_text_add(text, ", ...");
            break;
        }
        trajd_text_add(text, "%s", i ? ", " : "");
        add_entry(text, advice, advice->quaternions[i].column, end, is_whole, order);
    }
    trajd_text_add(
        text, order ? " (this order is likely from the values)"
                    : " (ORDER is wxyz in states of MuJoCo and in Isaac Lab 2, xyzw in robosuite's "
                      "obs and ROS)");
}

void trajd_quaternions_advise(const struct trajd_quaternion_advice *advice,
                              char text[TRAJD_QUATERNION_ADVICE_SIZE])
{
    struct trajd_text out = {text, TRAJD_QUATERNION_ADVICE_SIZE, 0};
    uint32_t next;
    const uint64_t end = end_of_run(advice, 0, &next);
    const bool is_whole = advice->quaternions[0].column == advice->first_column &&
                          end == advice->first_column + advice->feature_count;

    trajd_text_add(&out, "columns ");
    add_columns(&out, advice);
    trajd_text_add(&out, " are quaternions, and kind %s blends them as plain numbers: ",
                   advice->kind == TRAJD_KIND_MEAN    ? "mean"
                   : advice->kind == TRAJD_KIND_ANGLE ? "angle"
                                                      : "linear");
    if (is_whole)
        trajd_text_add(&out, "set in the layout, before other entries for this dataset: ");
    else if (advice->has_columns)
        trajd_text_add(&out, "use kind: previous, or name them in the layout: ");
    else
        return trajd_text_add(&out, "use kind: previous");
    add_entries(&out, advice, is_whole);
}
