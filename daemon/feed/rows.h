/* What the core and the server pass on about batches: rows of a global batch, [begin, begin +
 * count), and the work that a batch takes. */
#ifndef TRAJD_FEED_ROWS_H
#define TRAJD_FEED_ROWS_H

#include <stdint.h>

struct trajd_rows {
    uint32_t begin, count;
};

/* What production works on, and what a worker waits for when it has no batch. */
enum trajd_work {
    TRAJD_WORK_ROWS,    /* rows are read into the cache */
    TRAJD_WORK_DECODE,  /* pictures are decoded */
    TRAJD_WORK_KERNELS, /* rows are resampled */
    TRAJD_WORK_COUNT,
    TRAJD_WAIT_SLOTS = TRAJD_WORK_COUNT, /* other workers or ranks hold all slots */
    TRAJD_WAIT_OTHER,                    /* production did something else, or had just begun */
    TRAJD_WAIT_COUNT
};

#endif
