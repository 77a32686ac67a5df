/* Where the sum over a step of time ends, and its mask. For host and device. */
#ifndef TRAJD_KERNELS_TOTAL_H
#define TRAJD_KERNELS_TOTAL_H

#include "kernels/resample.h"

/* Returns the time of a row. Stamps and row 0 of a regular clock are those of the window. */
TRAJD_BOTH_SIDES int64_t trajd_total_time(const int64_t *stamps_ns, struct trajd_rate rate,
                                          int64_t row)
{
    return stamps_ns ? stamps_ns[row] : trajd_rate_row_ns(rate, row);
}

/* Returns the mask code of the sum over a step of time [x, end), whose rows are [row, row_end) of
 * row_count. */
TRAJD_BOTH_SIDES uint8_t trajd_total_mask(const int64_t *stamps_ns, struct trajd_rate rate,
                                          int64_t row_count, int64_t max_gap_ns, int64_t x,
                                          int64_t end, int64_t row, int64_t row_end)
{
    const int64_t last = row_count - 1;
    const uint64_t limit = (uint64_t)max_gap_ns;

    if (max_gap_ns >= 0)
        for (int64_t i = row > 0 && trajd_total_time(stamps_ns, rate, row) > x ? row - 1 : row;
             i < row_end; i++)
            if (i < last && (uint64_t)trajd_total_time(stamps_ns, rate, i + 1) -
                                    (uint64_t)trajd_total_time(stamps_ns, rate, i) >
                                limit)
                return TRAJD_MASK_GAP;
    if (row_end == row_count && row_count > 1) {
        const __int128 t = trajd_total_time(stamps_ns, rate, last);
        const __int128 interval = t - trajd_total_time(stamps_ns, rate, last - 1);
        if (2 * (end - t) >= 3 * interval)
            return TRAJD_MASK_AFTER_END;
    }
    return TRAJD_MASK_VALID;
}

/* Returns where step t of step_count ends, as an offset from the anchor. `offsets` are those of the
 * window. */
TRAJD_BOTH_SIDES int64_t trajd_total_end(int64_t total_width, uint32_t step_count,
                                         const int64_t *offsets, uint32_t t)
{
    if (t + 1 < step_count && offsets[t + 1] != TRAJD_NO_TARGET)
        return offsets[t + 1];
    return offsets[t] > INT64_MAX - total_width ? INT64_MAX : offsets[t] + total_width;
}

#endif
