/* The times of the rows of an episode. */
#include "daemon/engine/view.h"

/* The limit of times far outside the rows. It leaves room for offsets; targets there are before or
 * after every row. */
#define FAR_NS (INT64_C(1) << 61)
#define SECOND_NS INT64_C(1000000000)

static int64_t bounded(__int128 ns)
{
    return ns > FAR_NS ? FAR_NS : ns < -FAR_NS ? -FAR_NS : (int64_t)ns;
}

int64_t trajd_clock_row_ns(const struct trajd_episode_clock *clock, int64_t n)
{
    const int64_t last = clock->row_count - 1;
    int64_t interval;

    if (!clock->stamps_ns)
        return clock->rate.num
                   ? bounded((__int128)clock->start_ns + trajd_rate_row_ns(clock->rate, n))
                   : 0;
    if (n >= 0 && n <= last)
        return clock->stamps_ns[n];
    interval = clock->interval_ns;
    if (!interval)
        interval = last > 0 ? (clock->stamps_ns[last] - clock->stamps_ns[0]) / last : SECOND_NS;
    return n < 0 ? bounded(clock->stamps_ns[0] + (__int128)n * interval)
                 : bounded(clock->stamps_ns[last] + (__int128)(n - last) * interval);
}

/* Narrows [*low, *high), which contains the result, around row `at`. Stamps are nearly regular, so
 * this reads few of them and keeps the others out of the processor's cache. */
static void gallop(const int64_t *stamps_ns, int64_t x_ns, int64_t at, int64_t *low, int64_t *high)
{
    const int64_t last = *high - 1;

    if (stamps_ns[at] <= x_ns) {
        for (int64_t step = 1; *low = at + 1, at + step <= last; step *= 2) {
            if (stamps_ns[at + step] > x_ns) {
                *high = at + step;
                return;
            }
            at += step;
        }
        return;
    }
    for (int64_t step = 1; *high = at, at - step >= 0; step *= 2) {
        if (stamps_ns[at - step] <= x_ns) {
            *low = at - step + 1;
            return;
        }
        at -= step;
    }
}

/* Returns the row of row_count rows where the mean rate puts x. */
static int64_t guess(const struct trajd_episode_clock *clock, int64_t row_count, int64_t x_ns)
{
    const double row = (double)x_ns * clock->rows_per_ns + clock->row_at_zero;

    return !(row > 0) ? 0 : row < (double)(row_count - 1) ? (int64_t)row : row_count - 1;
}

/* Does what trajd_rate_row_at does, with a 64-bit division where the numbers fit, which is nearly
 * always. */
static int64_t regular_row_at(struct trajd_rate rate, int64_t x_ns)
{
    int64_t from, product;

    if (x_ns < 0 || __builtin_add_overflow(x_ns, 1, &from) ||
        __builtin_mul_overflow(from, rate.num, &product))
        return trajd_rate_row_at(rate, x_ns);
    return (product - 1) / (INT64_C(1000000000) * rate.den);
}

void trajd_clock_fetch_rows_until(const struct trajd_episode_clock *clock, int64_t row_count,
                                  int64_t x_ns)
{
    if (clock->stamps_ns && row_count > 0)
        __builtin_prefetch(&clock->stamps_ns[guess(clock, row_count, x_ns)]);
}

int64_t trajd_clock_rows_until(const struct trajd_episode_clock *clock, int64_t row_count,
                               int64_t x_ns)
{
    int64_t low = 0, high = row_count;

    if (row_count < 1) /* also where the episode lacks the clock */
        return 0;
    if (!clock->stamps_ns) {
        const int64_t row = regular_row_at(clock->rate, x_ns - clock->start_ns);
        return row < 0 ? 0 : row + 1 < row_count ? row + 1 : row_count;
    }
    gallop(clock->stamps_ns, x_ns, guess(clock, row_count, x_ns), &low, &high);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (clock->stamps_ns[middle] <= x_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t trajd_clock_too_old_ns(const struct trajd_episode_clock *clock, uint32_t intervals)
{
    if (!clock->median_ns)
        return INT64_MAX;
    return bounded(trajd_clock_row_ns(clock, clock->row_count - 1) +
                   (__int128)intervals * clock->median_ns);
}

/* Returns the number that would be at place `middle` if the numbers were sorted. Moves them. */
static int64_t select_number(int64_t *numbers, int64_t count, int64_t middle)
{
    int64_t low = 0, high = count - 1;

    while (low < high) {
        const int64_t pivot = numbers[low + (high - low) / 2];
        int64_t i = low, k = high;
        while (i <= k) {
            while (numbers[i] < pivot)
                i++;
            while (numbers[k] > pivot)
                k--;
            if (i <= k) {
                const int64_t moved = numbers[i];
                numbers[i++] = numbers[k];
                numbers[k--] = moved;
            }
        }
        if (middle <= k)
            high = k;
        else if (middle >= i)
            low = i;
        else
            break;
    }
    return numbers[middle];
}

int64_t trajd_clock_find_median(const struct trajd_episode_clock *clock, int64_t *scratch)
{
    const int64_t count = clock->row_count - 1;

    if (count < 1)
        return 0;
    if (!clock->stamps_ns)
        return clock->rate.num ? trajd_rate_row_ns(clock->rate, 1) : 0;
    for (int64_t i = 0; i < count; i++)
        scratch[i] = clock->stamps_ns[i + 1] - clock->stamps_ns[i];
    return select_number(scratch, count, count / 2);
}
