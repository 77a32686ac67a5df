/* Finds quaternions and angles that a layout interpolates as plain numbers. */
#include "clients/cli/files/examine_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/plural.h"

static const double turn_rad = 6.283185307179586476925, turn_deg = 360.0;
static const double jump_min = 0.9;    /* of a turn */
static const double step_max = 0.1;    /* of a turn: the mean step; noise has larger ones */
static const double rounding = 1.0005; /* values of a turn that is written as 3.1416 */

static bool interpolates_plainly(enum trajd_kind kind)
{
    return kind == TRAJD_KIND_LINEAR || kind == TRAJD_KIND_MEAN || kind == TRAJD_KIND_ANGLE;
}

/* Returns whether a stream of fewer columns, which trajctl resample prefers, has all four. */
static bool is_named(const struct trajd_index *index, const struct trajd_index_stream *stream,
                     const struct trajd_quaternion *quaternion)
{
    for (uint32_t s = 0; s < index->stream_count; s++) {
        const struct trajd_index_stream *other = &index->streams[s];
        if (other->array_index == stream->array_index && !interpolates_plainly(other->kind) &&
            other->feature_count < stream->feature_count &&
            other->first_column <= quaternion->column &&
            quaternion->column + 4 <= other->first_column + other->feature_count)
            return true;
    }
    return false;
}

uint32_t examine_quaternions(const struct trajd_index *index,
                             const struct trajd_index_stream *stream,
                             char text[TRAJD_QUATERNION_ADVICE_SIZE])
{
    const struct trajd_quaternion *all;
    struct trajd_quaternion unnamed[TRAJD_QUATERNIONS_MAX];
    const uint32_t count = trajd_index_find_quaternions(
        index, stream->array_index, stream->first_column,
        stream->first_column + stream->feature_count, stream->kind, &all);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!is_named(index, stream, &all[i]))
            unnamed[kept++] = all[i];
    if (kept)
        trajd_index_advise_quaternions(index, stream, stream->kind, unnamed, kept, text);
    return kept;
}

void examine_wraps_add(struct examine_wraps *wraps, const double *row, const double *next,
                       uint64_t columns)
{
    for (uint64_t d = 0; d < columns; d++) {
        const double step = fabs(next[d] - row[d]);
        const bool radians = step > jump_min * turn_rad && step <= rounding * turn_rad;
        const bool degrees = step > jump_min * turn_deg && step <= rounding * turn_deg;
        wraps->radians[d] += radians;
        wraps->degrees[d] += degrees;
        wraps->moved[d] += radians || degrees ? 0 : step;
    }
    wraps->pairs++;
}

static bool is_angle(uint64_t jumps, double moved, uint64_t pairs, double low, double high,
                     double turn)
{
    const double half = turn / 2 * rounding;
    return jumps && moved < step_max * turn * (double)pairs &&
           ((low >= -half && high <= half) ||
            (low >= (1 - rounding) * turn && high <= rounding * turn));
}

uint64_t examine_wraps_end(const struct examine_wraps *wraps, const double *low, const double *high,
                           uint64_t columns, char *text, size_t size)
{
    uint64_t count = 0;
    size_t used = (size_t)snprintf(text, size, "column ");
    bool has_degrees = false;

    for (uint64_t d = 0; d < columns; d++) {
        const bool radians =
            is_angle(wraps->radians[d], wraps->moved[d], wraps->pairs, low[d], high[d], turn_rad);
        const bool degrees =
            is_angle(wraps->degrees[d], wraps->moved[d], wraps->pairs, low[d], high[d], turn_deg);
        if (!radians && !degrees)
            continue;
        if (used < size - 200)
            used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, count ? ", " : "", d);
        count += radians ? wraps->radians[d] : wraps->degrees[d];
        has_degrees = has_degrees || degrees;
    }
    snprintf(text + used, size - used,
             ": an angle that wraps, %" PRIu64 " time%s, and kind linear blends it through all "
             "angles in between: set kind: angle%s for these columns in the layout",
             count, trajd_plural(count), has_degrees ? ", unit: deg" : "");
    return count;
}
