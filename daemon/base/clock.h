/* The clock for timeouts, latencies and liveness. The time of recorded data never comes from it. */
#ifndef TRAJD_BASE_CLOCK_H
#define TRAJD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in nanoseconds: the clock of systemd's watchdog, which a change of the
 * wall clock does not move. */
static inline int64_t trajd_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

#endif
