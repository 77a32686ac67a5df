/* Everything that can be found wrong in files: what the index refused, and what the rows themselves
 * show. */
#ifndef TRAJD_CLI_FILES_EXAMINE_H
#define TRAJD_CLI_FILES_EXAMINE_H

#include <stdint.h>

#include "daemon/index/index.h"
#include "proto/error.h"

/* The rules, by the names that `--ignore` takes. */
enum examine_rule {
    EXAMINE_REFUSED, /* no episode could be taken from the file */
    /* the episode is left out: stamps that repeat or go back, shapes that differ, ... */
    EXAMINE_QUARANTINED,
    /* a dataset that only optional streams ask for, and why it cannot be read; a file by a further
     * name */
    EXAMINE_LEFT_OUT,
    EXAMINE_STAMPS, /* rows that the layout's policy for repeated or backward stamps drops */
    /* intervals of more than 1.75 times the clock's median: frames that were dropped */
    EXAMINE_GAPS,
    EXAMINE_UNREADABLE, /* rows that cannot be read */
    EXAMINE_NOT_FINITE, /* NaN or infinite elements */
    EXAMINE_NOT_UNIT,   /* quaternions whose length is off 1 by more than 0.001 */
    /* a quaternion followed by (nearly) its negative: the same rotation, and poison to what
     * averages */
    EXAMINE_SIGN_FLIPS,
    EXAMINE_CONSTANT, /* a column that has one value in all episodes */
    EXAMINE_IDLE,     /* half of the rows and more are the row before over again */
    EXAMINE_RULE_COUNT,
};
extern const char *const examine_rule_names[EXAMINE_RULE_COUNT + 1]; /* NULL-ended */

struct examine_finding {
    enum examine_rule rule;
    /* relative path, id, name; NULL where it is about more than one */
    const char *file, *episode, *stream;
    /* first such row in the file's dataset, -1: none in particular */
    int64_t row;
    uint64_t count;   /* of such rows, or 1 */
    const char *text; /* in words; valid during the call */
};

/* Tells `report` of every finding, in the order of files, episodes, streams. Reads all rows once,
 * in blocks of a few MiB. What cannot be read is a finding, but for TRAJD_ERR_IO: the storage
 * fails, and nothing is known of the rows; and TRAJD_ERR_MEMORY. */
enum trajd_status examine_index(const struct trajd_index *index,
                                void (*report)(void *context,
                                               const struct examine_finding *finding),
                                void *context, struct trajd_error *error);

#endif
