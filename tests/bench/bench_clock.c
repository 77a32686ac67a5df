// libs: trajd_window
/* Measures trajd_clock_rows_until, which finds the number of rows of a stamped clock at or before a
 * time, once per window and clock. Compares it with a search through all rows, for few episodes (in
 * the CPU cache), for many, and on a regular clock. Compare figures of one run only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/cache/dataset.h"

#define QUESTIONS 500000u

struct question {
    const struct trajd_episode_clock *clock;
    int64_t x_ns;
};

static struct question questions[QUESTIONS];
static uint64_t state = 1;

static uint64_t next_number(uint64_t limit)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % limit;
}

static uint64_t now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static int64_t search_all(const struct trajd_episode_clock *clock, int64_t row_count, int64_t x_ns)
{
    return trajd_stamps_until(clock->stamps_ns, row_count, x_ns);
}

static double mean_ns(int64_t (*rows_until)(const struct trajd_episode_clock *, int64_t, int64_t),
                      uint64_t *sum)
{
    const uint64_t begin_ns = now_ns();

    for (uint32_t i = 0; i < QUESTIONS; i++)
        *sum += (uint64_t)rows_until(questions[i].clock, questions[i].clock->row_count,
                                     questions[i].x_ns);
    return (double)(now_ns() - begin_ns) / QUESTIONS;
}

/* 200 Hz with up to 1 ms of jitter, 2 to 12 s long */
static struct trajd_episode_clock make_clock(void)
{
    struct trajd_episode_clock clock = {.row_count = 400 + (int64_t)next_number(2000)};
    int64_t *stamps = malloc((size_t)clock.row_count * sizeof *stamps);

    if (!stamps)
        exit(1);
    for (int64_t row = 0; row < clock.row_count; row++)
        stamps[row] = row * 5000000 + (int64_t)next_number(1000000);
    clock.stamps_ns = stamps;
    clock.rows_per_ns =
        (double)(clock.row_count - 1) / (double)(stamps[clock.row_count - 1] - stamps[0]);
    clock.row_at_zero = -(double)stamps[0] * clock.rows_per_ns;
    return clock;
}

static void run(uint32_t episode_count)
{
    struct trajd_episode_clock *clocks = malloc(episode_count * sizeof *clocks);
    uint64_t one = 0, other = 0;
    double whole, guessed;

    if (!clocks)
        exit(1);
    for (uint32_t e = 0; e < episode_count; e++)
        clocks[e] = make_clock();
    for (uint32_t i = 0; i < QUESTIONS; i++) {
        questions[i].clock = &clocks[next_number(episode_count)];
        questions[i].x_ns = (int64_t)next_number((uint64_t)questions[i].clock->row_count * 5000000);
    }
    mean_ns(search_all, &(uint64_t){0});
    whole = mean_ns(search_all, &one);
    guessed = mean_ns(trajd_clock_rows_until, &other);
    printf("%" PRIu32 " episodes: all rows %.1f ns, from the line %.1f ns, %.2f of it%s\n",
           episode_count, whole, guessed, guessed / whole, one == other ? "" : ": AND THEY DIFFER");
    for (uint32_t e = 0; e < episode_count; e++)
        free((void *)(uintptr_t)clocks[e].stamps_ns);
    free(clocks);
}

int main(void)
{
    static const struct trajd_episode_clock regular = {.row_count = 100000, .rate = {30, 1}};
    uint64_t sum = 0;

    run(200);
    run(20000);
    for (uint32_t i = 0; i < QUESTIONS; i++)
        questions[i] = (struct question){&regular, (int64_t)next_number(UINT64_C(3000000000000))};
    printf("a regular clock: %.1f ns\n", mean_ns(trajd_clock_rows_until, &sum));
    return 0;
}
