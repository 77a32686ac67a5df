/* Rows and times of a clock. */

#include "clients/cli/resample/plan/convert_plan_internal.h"

int64_t convert_row_at(const struct trajd_episode_clock *clock, int64_t rows, int64_t x)
{
    if (!clock->stamps_ns) {
        const int64_t row =
            x < clock->start_ns ? -1 : trajd_rate_row_at(clock->rate, x - clock->start_ns);
        return row < rows ? row : rows - 1;
    }
    return trajd_stamps_until(clock->stamps_ns, rows, x) - 1;
}

/* A clock that drops rows counts the kept ones. A clock that no stream of the episode uses counts
 * no rows, even if its stamps exist. */
int64_t convert_row_count(const struct trajd_episode_clock *clock, const struct trajd_array *array)
{
    const uint64_t rows = array->storage == TRAJD_STORAGE_ABSENT || !array->size_bytes
                              ? 0
                              : trajd_array_row_count(array);

    if (clock->stamps_ns)
        return rows ? clock->row_count : 0;
    return clock->rate.num > 0 ? (int64_t)rows : 0;
}
