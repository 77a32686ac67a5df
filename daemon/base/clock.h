/* The time that timeouts, latencies and liveness are measured in. Never the time of data: that is
 * an episode's own. */
#ifndef TRAJD_BASE_CLOCK_H
#define TRAJD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC: what systemd compares with, and what a change of the wall clock does not touch.
 */
static inline int64_t trajd_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

#endif
