/* The clock of libtrajd: CLOCK_MONOTONIC in nanoseconds. Thread-safe. */
#ifndef TRAJD_C_CLIENT_CLOCK_H
#define TRAJD_C_CLIENT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TRAJD_NS_PER_MS UINT64_C(1000000)

static inline uint64_t trajd_client_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* Returns the time that is timeout_ms from now. Below 0: UINT64_MAX, which never comes. */
static inline uint64_t trajd_client_deadline_ns(int64_t timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX
                          : trajd_client_now_ns() + (uint64_t)timeout_ms * TRAJD_NS_PER_MS;
}

/* Sleeps once, at most for pause_ns, which is below one second. A signal ends the sleep early. */
static inline void trajd_client_sleep_ns(uint32_t pause_ns)
{
    const struct timespec pause = {.tv_nsec = pause_ns};
    nanosleep(&pause, NULL);
}

#endif
