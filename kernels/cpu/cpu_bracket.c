/* Finds the targets of a bracket on its clock, once for all its streams.
 *
 * Math      the last row i with t[i] <= x. Stamps: from a guess, steps of 1, 2, 4, ... rows
 *           until x is enclosed, then bisection. Regular clock: the formula of proto/timebase.h,
 *           in 64 bits if the product fits.
 * Moves     two or three stamps per target if rows are evenly spaced. The first guess comes from
 *           the mean rate of the window's rows, each next one from the target before it.
 * Numerics  integers throughout. The fraction is one division of exact differences, as in the
 *           reference. */
#include "kernels/cpu/cpu.h"

static int64_t rate_row_ns(struct trajd_rate rate, int64_t row)
{
    int64_t product;

    if (row < 0 || __builtin_mul_overflow(row, 1000000000 * rate.den, &product))
        return trajd_rate_row_ns(rate, row);
    return product / rate.num;
}

static int64_t rate_row_at(struct trajd_rate rate, int64_t x)
{
    int64_t product;

    if (x < 0 || x == INT64_MAX || __builtin_mul_overflow(x + 1, rate.num, &product))
        return trajd_rate_row_at(rate, x);
    return (product - 1) / (1000000000 * rate.den);
}

int64_t trajd_cpu_stamp_of(const struct trajd_cpu_window *window, int64_t row)
{
    return window->stamps_ns ? window->stamps_ns[row] : rate_row_ns(window->rate, row);
}

/* Searches the last row at or before x, and returns it. Requires below < result + 1 <= above and
 * t[below] <= x < t[above]; t[-1] and t[row_count] stand for the infinities. */
static int64_t search(const int64_t *stamps, int64_t below, int64_t above, int64_t x)
{
    while (above - below > 1) {
        int64_t middle = below + (above - below) / 2;
        if (stamps[middle] <= x)
            below = middle;
        else
            above = middle;
    }
    return below;
}

static int64_t gallop(const int64_t *stamps, int64_t row_count, int64_t x, int64_t guess)
{
    int64_t step = 1, next;

    /* This condition is usually true. Whether the result is guess or guess + 1 cannot be predicted,
     * so it is computed without a branch. */
    if (row_count - guess > 2 && stamps[guess] <= x && x < stamps[guess + 2])
        return guess + (stamps[guess + 1] <= x);
    if (stamps[guess] <= x) {
        while (row_count - guess > step) {
            next = guess + step;
            if (stamps[next] > x)
                return search(stamps, guess, next, x);
            guess = next;
            step *= 2;
        }
        return search(stamps, guess, row_count, x);
    }
    while (guess >= step) {
        next = guess - step;
        if (stamps[next] <= x)
            return search(stamps, next, guess, x);
        guess = next;
        step *= 2;
    }
    return search(stamps, -1, guess, x);
}

int64_t trajd_cpu_row_at(const struct trajd_cpu_window *window, int64_t x, int64_t guess)
{
    int64_t row;

    if (window->stamps_ns) {
        guess = guess < 0 ? 0 : guess < window->row_count ? guess : window->row_count - 1;
        return gallop(window->stamps_ns, window->row_count, x, guess);
    }
    row = rate_row_at(window->rate, x);
    return row < 0 ? -1 : row < window->row_count ? row : window->row_count - 1;
}

/* Returns one row before the place of x if the rows were evenly spaced. With jitter the target is
 * in that row or the next one. */
static int64_t even_guess(const struct trajd_cpu_window *window, int64_t x)
{
    int64_t last = window->row_count - 1;
    double first_ns, span_ns, share;

    if (last <= 0)
        return 0;
    first_ns = (double)window->stamps_ns[0];
    span_ns = (double)window->stamps_ns[last] - first_ns;
    share = ((double)x - first_ns) / span_ns;
    if (!(share > 0))
        return 0;
    share = share < 1 ? share * (double)last - 1 : (double)last;
    return share > 0 ? (int64_t)share : 0;
}

void trajd_cpu_fetch_ends(const struct trajd_cpu_window *window)
{
    __builtin_prefetch(window->stamps_ns);
    __builtin_prefetch(window->stamps_ns + window->row_count - 1);
}

int64_t trajd_cpu_fetch_guess(const struct trajd_cpu_window *window, int64_t offset)
{
    const int64_t guess =
        even_guess(window, (int64_t)((uint64_t)window->anchor + (uint64_t)offset));

    __builtin_prefetch(window->stamps_ns + guess);
    return guess;
}

static void find_inside(const struct trajd_cpu_window *window, int64_t x,
                        struct trajd_cpu_step *step)
{
    uint64_t past = (uint64_t)x - (uint64_t)trajd_cpu_stamp_of(window, step->row);

    if (step->row == window->row_count - 1) {
        step->mask = past > 0 ? TRAJD_MASK_AFTER_END : TRAJD_MASK_VALID;
        step->ns = past;
        return;
    }
    step->ns = (uint64_t)trajd_cpu_stamp_of(window, step->row + 1) - (uint64_t)x + past;
    if (past == 0)
        return;
    if (past >= step->ns) {
        step->mask = TRAJD_MASK_BAD_STAMP;
        return;
    }
    step->a = (double)past / (double)step->ns;
    step->upper_nearer = past >= step->ns - past;
}

static void find_row(const struct trajd_cpu_window *window, int64_t row,
                     struct trajd_cpu_step *step)
{
    if (row < 0 || window->row_count == 0)
        step->mask = TRAJD_MASK_BEFORE_START;
    else if (row >= window->row_count)
        step->mask = TRAJD_MASK_AFTER_END;
    step->row = row < window->row_count ? row : window->row_count - 1;
}

void trajd_cpu_find_steps(const struct trajd_cpu_window *window, enum trajd_grid_unit unit,
                          const int64_t *offsets, uint32_t count, int64_t guess,
                          struct trajd_cpu_step *steps)
{
    for (uint32_t t = 0; t < count; t++) {
        struct trajd_cpu_step *step = &steps[t];
        int64_t x = (int64_t)((uint64_t)window->anchor + (uint64_t)offsets[t]);

        *step = (struct trajd_cpu_step){.has_target = offsets[t] != TRAJD_NO_TARGET};
        if (!step->has_target) {
            step->mask = TRAJD_MASK_BAD_STAMP;
        } else if (unit == TRAJD_GRID_ROWS) {
            find_row(window, x, step);
        } else if (window->row_count == 0) {
            step->mask = TRAJD_MASK_BEFORE_START;
        } else {
            guess = trajd_cpu_row_at(window, x, guess);
            step->row = guess;
            if (guess < 0)
                step->mask = TRAJD_MASK_BEFORE_START;
            else
                find_inside(window, x, step);
        }
    }
}
