/* Rows of a global batch: [begin, begin + count). */
#ifndef TRAJD_FEED_ROWS_H
#define TRAJD_FEED_ROWS_H

#include <stdint.h>

struct trajd_rows {
    uint32_t begin, count;
};

#endif
