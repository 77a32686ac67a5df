/* Says in words and numbers why a step of a window is masked. Pure functions. */
#ifndef TRAJD_CONTROL_EXPLAIN_REASON_H
#define TRAJD_CONTROL_EXPLAIN_REASON_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/resample.h"

#define TRAJD_REASON_SIZE 512

/* One step of one stream. Reasons number rows as the file does. */
struct trajd_reason_facts {
    const struct trajd_resample_step *step;
    const struct trajd_stream *stream;
    const char *stream_name;
    bool in_rows;              /* the grid counts rows instead of ns */
    bool clipped;              /* the window sees rows up to its anchor (plus lookahead) only */
    int64_t row_count;         /* rows that the window may see */
    int64_t first_ns;          /* time of row 0, in ns from the clock's zero */
    const uint32_t *kept_rows; /* the file's number of each row; NULL: the same number */
    const char *unreadable;    /* why the episode's rows cannot be read; NULL: they can */
    int64_t nan_feature;       /* index of a feature that is NaN; < 0: none */
};

/* Returns a short name for tables: "valid", "before start", ... Static. */
const char *trajd_mask_name(enum trajd_mask mask);
/* Writes the reason of `mask`, which is not VALID, to `text`, which has TRAJD_REASON_SIZE bytes. */
void trajd_reason_write(const struct trajd_reason_facts *facts, enum trajd_mask mask, char *text);

#endif
