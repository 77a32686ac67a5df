/* Why a step is not valid, in words and with the figures. */
#ifndef TRAJD_CONTROL_EXPLAIN_REASON_H
#define TRAJD_CONTROL_EXPLAIN_REASON_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/resample.h"

#define TRAJD_REASON_SIZE 512

/* What a reason speaks of. Rows are told as they are numbered in the file. */
struct trajd_reason_facts {
    const struct trajd_resample_step *step;
    const struct trajd_stream *stream;
    const char *stream_name;
    bool in_rows;              /* the grid's unit */
    bool clipped;              /* the window sees rows up to its anchor (and lookahead) only */
    int64_t row_count;         /* that the window may see */
    int64_t first_ns;          /* row 0, ns from the clock's zero */
    const uint32_t *kept_rows; /* file's number of each row, or NULL: the same */
    const char *unreadable;    /* why the episode's rows cannot be read, or NULL */
    int64_t nan_feature;       /* < 0: none */
};

/* "valid", "before start", ...: for tables. */
const char *trajd_mask_name(enum trajd_mask mask);
/* Writes the reason of `mask`, which is not VALID; text has room for TRAJD_REASON_SIZE. */
void trajd_reason_write(const struct trajd_reason_facts *facts, enum trajd_mask mask, char *text);

#endif
