/* Rotations that a stream's kind blends as plain numbers, for trajctl validate. */
#ifndef TRAJD_CLI_FILES_EXAMINE_ROTATIONS_H
#define TRAJD_CLI_FILES_EXAMINE_ROTATIONS_H

#include "daemon/index/index.h"

/* Returns the number of quaternions that the stream's kind blends as plain numbers, and writes what
 * to do about them. Columns that another entry of the layout names with a fitting kind do not
 * count. */
uint32_t examine_quaternions(const struct trajd_index *index,
                             const struct trajd_index_stream *stream,
                             char text[TRAJD_QUATERNION_ADVICE_SIZE]);

/* How often each column jumps by about a full turn from one row to the next, and how far it moves
 * else. All arrays are [columns]. */
struct examine_wraps {
    uint64_t *radians, *degrees;
    double *moved; /* sum over all pairs of rows without a jump */
    uint64_t pairs;
};

/* Counts the jumps between two rows of a linear stream. */
void examine_wraps_add(struct examine_wraps *wraps, const double *row, const double *next,
                       uint64_t columns);
/* Returns the number of jumps of the columns that are angles: they jump, move slowly else, and none
 * of their values lies outside one turn, which begins at 0 or at minus half a turn. Writes what to
 * do about them. */
uint64_t examine_wraps_end(const struct examine_wraps *wraps, const double *low, const double *high,
                           uint64_t columns, char *text, size_t size);

#endif
