// libs: trajd_live_core
/* Measures libtrajd_live on an hour of recorded time: joints and a pose at 500 Hz, a force at 1 kHz, an
 * observation at 50 Hz with histories, means, slerp and a relative pose (tests/support/live_robot.h).
 *
 * usage: bench_live [SECONDS]. Prints how long an observation and a push take, and the memory of the
 * process after the first minute and at the end. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "clients/live/trajd_live.h"
#include "tests/support/live_robot.h"

#define MS INT64_C(1000000)

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static long peak_kb(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static int compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, uint32_t *ns, uint64_t count)
{
    qsort(ns, count, sizeof *ns, compare);
    printf("%-12s %9" PRIu64 " times, us: p50 %.2f  p99 %.2f  p99.9 %.2f  max %.2f\n", what, count,
           ns[count / 2] / 1e3, ns[count * 99 / 100] / 1e3, ns[count * 999 / 1000] / 1e3,
           ns[count - 1] / 1e3);
}

/* Pushes the rows of a millisecond. Returns how many. */
static int push_ms(struct trajd_live *live, int64_t ms)
{
    const double angle = (double)ms * 1e-3;
    const double joints[7] = {angle, angle, angle, 4, 5, 6, 7}, position[3] = {angle, 0, 1},
                 turn[4] = {0, 0, sin(angle / 2), cos(angle / 2)};
    const float force[6] = {(float)angle, 1, 2, 3, 4, 5}, grip = (float)(ms / 20);
    int rows = 1;

    trajd_live_push(live, LIVE_ROBOT_FORCE, (ms + 1) * MS, force, NULL);
    if (ms % 2 == 0) {
        trajd_live_push(live, LIVE_ROBOT_JOINTS, ms * MS, joints, NULL);
        trajd_live_push(live, LIVE_ROBOT_POSITION, ms * MS, position, NULL);
        trajd_live_push(live, LIVE_ROBOT_TURN, ms * MS, turn, NULL);
        rows += 3;
    }
    if (ms % 20 == 0)
        rows += !trajd_live_push(live, LIVE_ROBOT_GRIP, ms * MS, &grip, NULL);
    return rows;
}

int main(int argc, char **argv)
{
    const int64_t seconds = argc > 1 ? atoll(argv[1]) : 3600;
    uint32_t *observe_ns = calloc((size_t)seconds * 50 + 1, sizeof *observe_ns);
    uint64_t observed = 0, pushed = 0, push_ns = 0;
    struct trajd_live *live;
    struct trajd_error error;
    long first_kb = 0, last_kb;
    void *out;

    if (!observe_ns || trajd_live_open_text(live_robot, sizeof live_robot - 1, NULL, &live, &error))
        return 1;
    for (int64_t i = 0; i < seconds * 50; i++)
        observe_ns[i] = 1; /* maps the pages */
    out = malloc(trajd_live_size_bytes(live));
    for (int64_t ms = 0; ms < seconds * 1000; ms++) {
        const uint64_t begin_ns = now_ns();
        pushed += (uint64_t)push_ms(live, ms);
        push_ns += now_ns() - begin_ns;
        if (ms < 1000 || ms % 20)
            continue;
        const uint64_t start_ns = now_ns();
        if (trajd_live_observe(live, ms * MS, 0, out, NULL, &error)) {
            fprintf(stderr, "%s\n", error.message);
            return 1;
        }
        observe_ns[observed++] = (uint32_t)(now_ns() - start_ns);
        if (ms == 60000)
            first_kb = peak_kb();
    }
    last_kb = peak_kb();
    print_times("observation", observe_ns, observed);
    printf("%-12s %9" PRIu64 " times, us: mean %.3f\n", "push", pushed,
           (double)push_ns / 1e3 / (double)pushed);
    printf("memory: %ld kB after a minute, %ld kB at the end\n", first_kb, last_kb);
    free(out);
    free(observe_ns);
    trajd_live_close(&live);
    return 0;
}
