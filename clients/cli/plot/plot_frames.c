#include "clients/cli/plot/plot_frames.h"

#include "daemon/cache/dataset.h"

static struct plot_frame frame_at(const struct trajd_episode_clock *clock, int64_t row)
{
    return (struct plot_frame){
        .row = clock->kept_rows ? clock->kept_rows[row] : (uint64_t)row,
        .time_ns = trajd_clock_row_ns(clock, row),
    };
}

/* Chooses rows first to end - 1, evenly, with both ends. */
static uint64_t choose_evenly(const struct trajd_episode_clock *clock, int64_t first, int64_t end,
                              struct plot_frame *frames, uint32_t room)
{
    const int64_t rows = end - first,
                  count = rows < PLOT_FRAMES_DEFAULT ? rows : PLOT_FRAMES_DEFAULT;

    for (int64_t i = 0; i < count && i < room; i++)
        frames[i] = frame_at(clock, first + (count > 1 ? (rows - 1) * i / (count - 1) : 0));
    return (uint64_t)count;
}

uint64_t plot_choose_frames(const struct trajd_episode_clock *clock, uint64_t row_count,
                            struct trajd_rate rate, int64_t from_ns, int64_t to_ns,
                            struct plot_frame *frames, uint32_t room)
{
    const int64_t rows = clock->stamps_ns ? clock->row_count : (int64_t)row_count;
    const int64_t first =
        from_ns == INT64_MIN ? 0 : trajd_clock_rows_until(clock, rows, from_ns - 1);
    const int64_t end = to_ns == INT64_MAX ? rows : trajd_clock_rows_until(clock, rows, to_ns);
    int64_t begin_ns;
    uint64_t count;

    if (first >= end)
        return 0;
    if (!rate.num)
        return choose_evenly(clock, first, end, frames, room);
    begin_ns = trajd_clock_row_ns(clock, first);
    count = 1 + (uint64_t)trajd_rate_row_at(rate, trajd_clock_row_ns(clock, end - 1) - begin_ns);
    for (uint64_t i = 0; i < count && i < room; i++) {
        const int64_t at_ns = begin_ns + trajd_rate_row_ns(rate, (int64_t)i);
        frames[i] = frame_at(clock, trajd_clock_rows_until(clock, end, at_ns) - 1);
    }
    return count;
}
