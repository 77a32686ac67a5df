/* The clock of the daemon, for timeouts, latencies and liveness. The time of recorded data never
 * comes from it. */
#ifndef TRAJD_BASE_CLOCK_H
#define TRAJD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t trajd_read_clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Returns CLOCK_MONOTONIC in nanoseconds: the clock of systemd's watchdog, which a change of the
 * wall clock does not move. */
static inline int64_t trajd_now_ns(void)
{
    return trajd_read_clock_ns(CLOCK_MONOTONIC);
}

static inline struct timespec trajd_timespec(int64_t time_ns)
{
    return (struct timespec){.tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000};
}

/* Returns the time that is timeout_ms from now, for a condition with CLOCK_MONOTONIC. */
static inline struct timespec trajd_deadline(uint32_t timeout_ms)
{
    return trajd_timespec(trajd_now_ns() + timeout_ms * INT64_C(1000000));
}

#endif
